"""Metrics count what happened, logs say it, and both lead from an answer to its cause."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.parser import text_string_to_metric_families

from gpu import Engine, OutOfMemory
from service import logs
from service.catalog import Catalog
from service.http import metrics
from service.pipeline.observer import StageSeconds
from service.queries.view import View
from tests.service.server import Server, running, wait_for

Sample = tuple[str, frozenset[tuple[str, str]]]


def scraped(server: Server) -> dict[Sample, float]:
    answer = server.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def value(server: Server, name: str, **labels: str) -> float | None:
    return scraped(server).get((name, frozenset(labels.items())))


def test_stages_are_counted_as_the_library_counts_one_by_one() -> None:
    random = np.random.default_rng(5)
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    histogram = Histogram(
        "liverank_stage_seconds", "", ["graph", "stage"], buckets=metrics.SECONDS, registry=theirs
    )
    stages = metrics.StageHistograms()
    ours.register(stages)
    for graph, count in (("a", 1), ("b", 300), ("a", 40)):
        # exact bounds of buckets are among them
        values = random.choice(
            [*metrics.SECONDS, 0.0, 1e-5, 0.3, 40.0], (count, len(metrics.STAGES))
        )
        batches = [StageSeconds(*row) for row in values.tolist()]
        stages.observe(graph, batches)
        for batch in batches:
            for stage, seconds in asdict(batch).items():
                histogram.labels(graph, stage).observe(seconds)

    def samples(registry: CollectorRegistry) -> dict[Sample, Any]:
        return {
            (sample.name, frozenset(sample.labels.items())): pytest.approx(sample.value)
            for family in registry.collect()
            for sample in family.samples
            if not sample.name.endswith("_created")
        }

    assert len(samples(ours)) == 2 * len(metrics.STAGES) * 18
    assert samples(ours) == {place: like.expected for place, like in samples(theirs).items()}
    stages.forget("b")
    assert len(samples(ours)) == len(metrics.STAGES) * 18


def test_a_batch_is_counted_with_its_edges_and_stages(server: Server) -> None:
    path = server.new_graph()
    graph = path.rsplit("/", 1)[1]
    server.http.post(f"{path}/batches", json={"insert": [["a", "b"], ["a", "b"], ["b", "c"]]})
    receipt = server.http.post(
        f"{path}/batches", json={"delete": [["a", "b"], ["x", "y"]], "vertices": ["z"]}
    ).json()
    # Batches are counted when they are answered, so that nobody waits for it.
    wait_for(lambda: value(server, "liverank_stage_seconds_count", graph=graph, stage="total") == 2)
    samples = scraped(server)

    def of(name: str, **labels: str) -> float:
        return samples[name, frozenset({"graph": graph, **labels}.items())]

    assert of("liverank_batches_total", outcome="ranked") == 2
    changes = {"inserted": 2, "already_present": 1, "deleted": 1, "not_found": 1}
    for change, count in changes.items():
        assert of("liverank_edges_total", change=change) == count
    assert of("liverank_batch_edges_sum") == 5
    assert of("liverank_group_batches_count") == 2
    assert of("liverank_stage_seconds_count", stage="solve") == 2
    assert of("liverank_stage_seconds_sum", stage="total") >= receipt["seconds"]["total"]
    assert (of("liverank_version"), of("liverank_committed_version")) == (2, 2)
    assert of("liverank_revision") == receipt["revision"]
    assert of("liverank_error_bound") == receipt["error_bound"]
    assert (of("liverank_vertices"), of("liverank_graph_edges")) == (4, 1)
    memory = server.http.get(path).json()["memory"]
    for purpose, count in memory.items():
        assert of("liverank_memory_bytes", purpose=purpose) == count
    assert of("liverank_queue_batches") == of("liverank_queue_bytes") == 0


def test_what_waits_and_what_is_refused_is_counted(tmp_path: Path) -> None:
    with running(tmp_path, max_queue_batches=1) as server:
        pipeline = server.catalog.get("default").pipeline
        gate = threading.Event()
        pipeline.call(lambda _: gate.wait(60))
        sent = threading.Thread(target=lambda: server.http.post("/graphs/default/batches", json={}))
        sent.start()
        while not pipeline.batches.jobs:
            pass
        assert server.http.post("/graphs/default/batches", json={}).status_code == 429
        samples = scraped(server)
        graph = ("graph", "default")
        assert samples["liverank_queue_batches", frozenset([graph])] == 1
        assert samples["liverank_queue_bytes", frozenset([graph])] > 0
        assert samples["liverank_queue_computations", frozenset([graph])] == 1
        refused = frozenset([graph, ("kind", "batch")])
        assert samples["liverank_refused_total", refused] == 1
        gate.set()
        sent.join()
        assert value(server, "liverank_queue_batches", graph="default") == 0


def test_a_batch_that_is_rejected_or_fails_is_counted(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = server.new_graph()
    graph = path.rsplit("/", 1)[1]

    def out_of_memory(*_: object) -> None:
        raise OutOfMemory("the batch", 1000, 10)

    with monkeypatch.context() as patched:
        patched.setattr(Engine, "apply", out_of_memory)
        answer = server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]})
        assert answer.status_code == 507
    with monkeypatch.context() as patched:
        patched.setattr(Engine, "update", out_of_memory)
        answer = server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]})
        assert answer.status_code == 500
    name = "liverank_batches_total"
    wait_for(lambda: value(server, name, graph=graph, outcome="rejected") == 1)
    wait_for(lambda: value(server, name, graph=graph, outcome="failed") == 1)


def test_a_dropped_graph_leaves_nothing_behind(server: Server) -> None:
    path = server.new_graph()
    graph = path.rsplit("/", 1)[1]
    server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]})
    wait_for(lambda: value(server, "liverank_stage_seconds_count", graph=graph, stage="total") == 1)
    assert f'"{graph}"' in server.http.get("/metrics").text
    server.http.delete(path)
    assert f'"{graph}"' not in server.http.get("/metrics").text


def test_answers_are_counted_by_call_and_status(server: Server) -> None:
    def count(call: str, status: str) -> float:
        return value(server, "liverank_http_requests_total", call=call, status=status) or 0

    call = "GET /graphs/{graph}/ranks/{vertex}"
    before = {status: count(call, status) for status in ("404", "422")}
    server.http.get("/graphs/default/ranks/nobody")
    server.http.get("/graphs/default/ranks/also/nobody?min_version=-1")
    assert count(call, "404") == before["404"] + 1
    assert count(call, "422") == before["422"] + 1
    unmatched = count("unmatched", "404")
    server.http.request("PURGE", "/made-up-by-the-client")
    assert count("unmatched", "404") == unmatched + 1
    assert "made-up" not in server.http.get("/metrics").text
    assert "PURGE" not in server.http.get("/metrics").text
    # The scrape itself is at work while it is answered.
    assert value(server, "liverank_http_requests_at_work") == 1
    assert value(server, "liverank_receiving_bytes") == 0


def test_metrics_are_there_before_the_server_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(Catalog, "open", lambda _catalog: gate.wait(60))
    with running(tmp_path, wait_until_ready=False) as server:
        assert value(server, "liverank_ready") == 0
        gate.set()


def test_the_process_and_the_version_are_told(server: Server) -> None:
    samples = scraped(server)
    assert samples["process_resident_memory_bytes", frozenset()] > 1e7
    assert samples["liverank_build_info", frozenset({("version", server.app.version)})] == 1


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


def test_a_slow_batch_is_logged_with_where_its_time_went(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path, slow_batch_seconds=0) as server, caplog.at_level(logging.WARNING):
        answer = server.http.post(
            "/graphs/default/batches",
            json={"insert": [["a", "b"]], "delete": [["c", "d"]]},
            headers={"X-Request-ID": "slow-one"},
        )
    # The server has ended: what was to be logged is.
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


def test_who_was_not_let_in_is_logged(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    server.http.get("/graphs", headers={"Host": "attacker.example"})
    (record,) = [record for record in caplog.records if record.name == "liverank.access"]
    assert record.getMessage().startswith("access denied: Host 'attacker.example' is not a")
    assert record.__dict__["call"] == "GET /graphs"
    assert record.__dict__["client"] == "127.0.0.1"


# Formats


@pytest.fixture
def lines() -> Iterator[Any]:
    """Logs through each formatter; gives the text that comes out."""
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
