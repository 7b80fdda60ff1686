"""Logs: request ids, records of failures, and formats."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from liverank_service import logs
from liverank_service.queries.view import View
from tests.crash.nursery import Nursery
from tests.service.server import Server, running

# Requests and their ids


def test_a_request_keeps_its_own_id_or_gets_one(server: Server) -> None:
    given = server.http.get("/livez", headers={"X-Request-ID": "mine-1.2_3"})
    assert given.headers["x-request-id"] == "mine-1.2_3"
    for bad in ("", "a b", "x" * 65, "a;b", 'a"b'):
        made = server.http.get("/livez", headers={"X-Request-ID": bad}).headers["x-request-id"]
        assert made != bad
        assert len(made) == 16
    first, second = (server.http.get("/nowhere").headers["x-request-id"] for _ in range(2))
    assert first != second


def test_a_failure_is_logged_under_the_id_of_its_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_view: View, _key: object) -> float:
        raise RuntimeError("a fault")

    monkeypatch.setattr(View, "rank", fail)
    caplog.handler.addFilter(logs._add_request_id)
    answer = server.http.get("/graphs/default/ranks/a")
    (record,) = [record for record in caplog.records if record.name == "liverank.http"]
    assert record.__dict__["request_id"] == answer.headers["x-request-id"]
    assert record.getMessage() == "GET /graphs/default/ranks/a failed"
    assert record.exc_info is not None
    caplog.handler.removeFilter(logs._add_request_id)


def test_a_slow_batch_is_logged_with_its_stages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path, slow_batch_seconds=0) as server, caplog.at_level(logging.WARNING):
        answer = server.http.post(
            "/graphs/default/batches",
            json={"insert": [["a", "b"]], "delete": [["c", "d"]]},
            headers={"X-Request-ID": "slow-one"},
        )
    # The server has ended, so all records are complete.
    (record,) = [record for record in caplog.records if record.name == "liverank.batches"]
    figures = record.__dict__
    assert (figures["graph"], figures["version"], figures["edges"]) == ("default", 1, 2)
    assert (figures["together"], figures["request_id"]) == (1, "slow-one")
    assert figures["seconds"].keys() == answer.json()["seconds"].keys()
    assert figures["strategy"] == "auto"


def test_a_batch_that_is_not_slow_is_not_logged(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    path = server.new_graph()
    with caplog.at_level(logging.INFO):
        server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]})
    assert [record for record in caplog.records if record.name.startswith("liverank")] == []


def test_denied_access_is_logged(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    server.http.get("/graphs", headers={"Host": "attacker.example"})
    (record,) = [record for record in caplog.records if record.name == "liverank.access"]
    assert record.getMessage().startswith("access denied: Host 'attacker.example' is not a")
    assert record.__dict__["call"] == "GET /graphs"
    assert record.__dict__["client"] == "127.0.0.1"


# Formats


@pytest.fixture
def lines() -> Iterator[Any]:
    """Logs through each formatter; returns the output."""
    stream = io.StringIO()
    logger = logging.getLogger("test-of-formats")
    logger.propagate = False

    def write(formatter: logging.Formatter, message: str, **extra: Any) -> str:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(formatter)
        handler.addFilter(logs._add_request_id)
        logger.handlers = [handler]
        logger.warning(message, extra=extra)
        text = stream.getvalue()
        stream.seek(0)
        stream.truncate()
        return text

    yield write
    logger.handlers = []


def test_json_is_one_object_a_line_with_what_came_along(lines: Any) -> None:
    token = logs.request_id.set("r-1")
    text = lines(logs.JsonFormatter(), 'a "quote"\nand a line', graph="g", seconds={"solve": 0.5})
    logs.request_id.reset(token)
    assert text.count("\n") == 1
    document = json.loads(text)
    assert document.pop("time").endswith("+00:00")
    assert document == {
        "level": "warning",
        "logger": "test-of-formats",
        "message": 'a "quote"\nand a line',
        "graph": "g",
        "seconds": {"solve": 0.5},
        "request_id": "r-1",
    }


def test_text_is_one_line_whatever_the_client_sent(lines: Any) -> None:
    text = lines(logs.TextFormatter(), "vertex 'a\n2026-01-01 error forged: ok'", graph="g")
    assert text.count("\n") == 1
    assert text.endswith(
        "warning test-of-formats: vertex 'a\\n2026-01-01 error forged: ok' graph=g\n"
    )


def test_a_traceback_stays_with_its_line(lines: Any) -> None:
    try:
        raise ValueError("a fault")
    except ValueError as error:
        text = lines(logs.JsonFormatter(), "failed", exc_info_of=error)
        record = logging.makeLogRecord(
            {"msg": "failed", "exc_info": (type(error), error, error.__traceback__)}
        )
    assert json.loads(text)["exc_info_of"] == "a fault"
    assert "ValueError: a fault" in json.loads(logs.JsonFormatter().format(record))["traceback"]
    assert logs.TextFormatter().format(record).endswith("ValueError: a fault")


# A process whose logs are JSON

_FAILING = """
import gc, logging, threading, warnings
from liverank_service import logs
from liverank_service.pipeline.shards import end_process
from liverank_gpu import DeviceLost

class Unraisable:
    def __del__(self):
        raise ValueError("unraisable")

logs.set_up("json")
logging.getLogger("uvicorn.error").info("started")
warnings.warn("a warning")
thread = threading.Thread(target=lambda: 1 / 0, name="failing")
thread.start()
thread.join()
Unraisable()
gc.collect()
{end}
"""


@pytest.mark.parametrize(
    ("end", "last"),
    [
        ("raise KeyError('uncaught')", "KeyError: 'uncaught'"),
        ("end_process(DeviceLost('gone'))", "gone; the process ends and must be restarted"),
    ],
)
def test_every_line_of_a_process_is_json(end: str, last: str, nursery: Nursery) -> None:
    done = nursery.run(_FAILING.format(end=end))
    records = [json.loads(line) for line in done.stderr.splitlines()]
    messages = [record["message"] for record in records]
    assert done.returncode != 0
    assert messages[0] == "started"
    assert "a warning" in messages[1]
    assert messages[2] == "thread 'failing' failed: ZeroDivisionError: division by zero"
    assert "ZeroDivisionError" in records[2]["traceback"]
    assert "unraisable" in messages[3]
    assert last in messages[-1]
