"""The documents are complete, and their examples match the server."""

from __future__ import annotations

import json
import re
from functools import partial
from http import HTTPStatus
from pathlib import Path
from string import Template
from typing import Any

import httpx
import pyarrow
import pytest
from msgspec.structs import fields
from prometheus_client.parser import text_string_to_metric_families
from starlette.routing import Route as AnyRoute

from benchmarks.tables import MARKS
from liverank.options import MAX_K
from liverank_service.app import create_app
from liverank_service.graph_options import GraphOptions
from liverank_service.http.access import LIST_OF_GRAPHS, REQUIRED_SCOPE
from liverank_service.http.route import Route
from liverank_service.http.schemas import Problem, Receipt, Seconds
from liverank_service.problems import problem_types
from liverank_service.settings import PREFIX, Settings
from tests.docs.examples import curl_arguments, matches
from tests.kernels.test_compile import ARCHITECTURES
from tests.service.server import Server, openapi, running, wait_for
from tools.reference.pages import DOCUMENTS, page

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "api.md").read_text("utf-8")
REFERENCE = (ROOT / "docs" / "operations-reference.md").read_text("utf-8")
CALLS = page(DOCUMENTS / "http-calls.md")
EXAMPLES = re.findall(
    r"```(sh|python)\n(.*?)\n```(?:\n\n```(?:json|http|text)\n(.*?)\n```)?", TEXT, re.DOTALL
)
"""Language, request and response, which some do not show."""


def section(heading: str, text: str = TEXT) -> str:
    """The text under a heading, up to the next heading of any level."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.DOTALL | re.MULTILINE)
    assert found, f"there is no heading {heading!r}"
    return found[1]


def rows(text: str) -> dict[str, list[str]]:
    """The rows of the tables in `text`: the name in the first cell to the cells after it."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("|"):
            first, *others = (cell.strip() for cell in line.strip("|").split("|"))
            found.update(dict.fromkeys(re.findall(r"`([^`]+)`", first), others))
    return found


def commands(example: str) -> list[str]:
    return re.split(r"\n(?=curl )", example)


def calls() -> set[str]:
    app = create_app(Settings())
    described = {
        f"{method.upper()} {path}" for path, item in openapi()["paths"].items() for method in item
    }
    beside = {
        f"GET {route.path}"
        for route in app.routes
        if isinstance(route, AnyRoute) and not isinstance(route, Route)
    }
    return described | beside


SHARD_METRICS = {
    "liverank_shard_vertices": ("gauge", "`graph`, `shard`"),
    "liverank_shard_edges": ("gauge", "`graph`, `shard`"),
    "liverank_recovering": ("gauge", "`graph`"),
    "liverank_shard_restarts_total": ("counter", "`graph`"),
}
"""Only of graphs in shards, which tests/service/http/test_shards.py has."""


def test_every_call_is_listed_with_its_scope_and_no_other() -> None:
    listed = {call: cells[0] for call, cells in rows(CALLS).items() if re.match("[A-Z]+ /", call)}
    due: dict[str, str] = {call: scope or "none" for call, scope in REQUIRED_SCOPE.items()}
    for call in due:
        if "{graph}" not in call and due[call] != "none" and call != LIST_OF_GRAPHS:
            due[call] += ", all graphs"
    assert listed == due
    of_pages = {"GET /", "GET /docs", "GET /openapi.json"}
    assert set(listed) | of_pages == calls()
    assert all(f"`{call}`" in CALLS for call in of_pages)


def test_every_field_of_the_receipt_is_explained_and_no_other() -> None:
    receipt, seconds = (rows(section(name, CALLS)) for name in ("Receipt", "Seconds"))
    assert set(receipt) == set(Receipt.model_fields)
    assert set(seconds) == set(Seconds.model_fields)
    assert all(meaning for *_, meaning in [*receipt.values(), *seconds.values()])


def test_every_option_of_a_graph_is_documented_with_its_default() -> None:
    options = rows(section("GraphRequest", CALLS))
    assert list(options) == [field.name for field in fields(GraphOptions)]
    for field in fields(GraphOptions):
        _, default, meaning = options[field.name]
        assert (json.loads(default.strip("`")) if default else None) == field.default
        assert meaning or field.name == "keys"
        assert f"`{field.name}`" in section("Graphs") or field.name == "storage"


def test_exactly_the_settings_are_documented_with_their_defaults() -> None:
    settings = rows(page(DOCUMENTS / "settings.md"))
    named = {name for name in settings if name.startswith(PREFIX)}
    assert named == {PREFIX + name.upper() for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        option, default, _ = settings[PREFIX + name.upper()]
        assert default == _shown(field.default)
        assert option in ("", f"`--{name.replace('_', '-')}`")


def test_exactly_the_problem_types_are_documented_with_status_and_advice() -> None:
    problems = rows(section("Problems"))
    listed = {name: int(cells[0]) for name, cells in problems.items() if cells[0].isdecimal()}
    assert listed == {name: int(status) for name, status in problem_types().items()}
    assert all(when and advice for name in listed for _, when, advice in [problems[name]])


def test_exactly_the_metrics_are_documented_with_their_labels(server: Server) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]})
    server.http.get(f"{path}/nothing")
    started = server.http.post(f"{path}/analyses/components").headers["Location"]
    server.http.get(started, params={"wait": 60})
    wait_for(lambda: "liverank_stage_seconds_sum{" in server.http.get("/metrics").text)
    due: dict[str, tuple[str, str]] = {}
    for family in text_string_to_metric_families(server.http.get("/metrics").text):
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        name = family.name + "_total" if family.type == "counter" else family.name
        if family.samples and not name.endswith("_created"):
            due[name] = family.type, ", ".join(f"`{label}`" for label in sorted(labels))
    listed = {
        name: (kind, ", ".join(sorted(labels.split(", "))))
        for name, (kind, labels, _) in rows(page(DOCUMENTS / "metrics.md")).items()
    }
    assert listed == due | SHARD_METRICS


def test_every_member_of_a_change_is_explained(server: Server) -> None:
    path = server.new_graph()
    with server.http.stream("GET", f"{path}/changes") as stream:
        data = (line[6:] for line in stream.iter_lines() if line.startswith("data: "))
        next(data)  # the snapshot
        server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]})
        members = set(json.loads(next(data)))
    server.http.delete(path)
    explained = rows(section("Change", page(DOCUMENTS / "python-api.md")))
    assert set(explained) == members | {"id"}  # which is no part of the data
    assert all(meaning for *_, meaning in explained.values())


def test_every_member_of_a_problem_is_explained() -> None:
    members = rows(section("Problem", CALLS))
    assert set(members) == set(Problem.model_fields)
    assert all(meaning for *_, meaning in members.values())


def test_the_limit_of_k_is_named() -> None:
    assert f"≥ 1, ≤ {MAX_K}" in rows(section("top", CALLS))["k"][1]


def test_the_examples_are_what_a_fresh_server_answers(tmp_path: Path) -> None:
    with running(tmp_path, programs=True) as server:
        made: dict[str, str] = {}
        for language, written, expected in EXAMPLES:
            example = Template(written).safe_substitute(made)
            if language == "python":
                names = {"url": str(server.http.base_url), "pyarrow": pyarrow, "httpx": httpx}
                exec(example, names)
                continue
            if expected.startswith("event: "):
                with server.http.stream(**curl_arguments(example)) as stream:
                    assert _event(next(stream.iter_text())) == _event(expected), example
                continue
            if not expected:
                for command in commands(example):
                    server.http.request(**curl_arguments(command)).raise_for_status()
                continue
            answer = server.http.request(**curl_arguments(example))
            if answer.status_code == HTTPStatus.CREATED and "key" in answer.json():
                made["ID"] = answer.json()["id"]
                made.setdefault("KEY", answer.json()["key"])
            if answer.headers.get("content-type", "").startswith("text/csv"):
                assert answer.text == expected + "\n", example
            elif expected.startswith("HTTP"):
                assert expected == f"HTTP/1.1 {answer.status_code} {answer.reason_phrase}"
            elif "…" in expected:
                assert matches(answer.text, expected, is_json=True), example
            else:
                document = json.loads(expected.replace("\n", ""))
                assert _steady(answer.json()) == _steady(document), example
            if "analyses/levels" in example:
                made["ANALYSIS"] = answer.json()["id"]
            elif answer.status_code == HTTPStatus.ACCEPTED:
                # a reader takes longer to paste the next example than the ranks take
                batch = f"{answer.url.path}/{answer.json()['version']}"
                wait_for(partial(_is_ranked, server, batch))


def test_every_call_has_an_example() -> None:
    examples = [example for language, example, _ in EXAMPLES if language == "sh"]
    requests = [curl_arguments(command) for each in examples for command in commands(each)]
    asked = {(request["method"], request["url"].split("?")[0]) for request in requests}
    for call in calls() - {"GET /", "GET /docs", "GET /openapi.json"}:
        method, path = call.split(" ")
        pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))
        assert any(method == m and re.fullmatch(pattern, url) for m, url in asked), call


def test_every_logger_is_listed_and_no_other() -> None:
    made = {
        name
        for folder in ("gpu", "service")
        for path in (ROOT / folder).rglob("*.py")
        for name in re.findall(r'getLogger\("(liverank[^"]*)"\)', path.read_text("utf-8"))
    }
    listed = set(rows(section("Logs", REFERENCE))) - {"logger", "uvicorn.error"}
    assert {name for name in listed if name.startswith("liverank.")} == made


@pytest.mark.parametrize("file", ["api.md", "operations-reference.md"])
def test_lines_are_no_longer_than_a_screen_is_wide(file: str) -> None:
    written = MARKS.sub("", (ROOT / "docs" / file).read_text("utf-8"))  # figures differ
    lines = [line for line in written.splitlines() if not line.startswith("|")]
    assert [line for line in lines if len(line) > 128] == []


def _shown(default: object) -> str:
    if default is None:
        return "none"
    return f"`{default}`".lower() if isinstance(default, bool) else f"`{default}`"


def _event(text: str) -> tuple[str, Any]:
    """The name and the data of a server-sent event."""
    found = re.match(r"event: (\w+)\ndata: (.*)\nid: [0-9a-f]{16}\.\d+-\d+", text, re.DOTALL)
    assert found, text
    return found[1], _steady(json.loads(found[2].replace("\n", "")))


def _is_ranked(server: Server, batch: str) -> bool:
    return "ranked_version" in server.http.get(batch).json()


def _steady(answer: Any) -> Any:
    """`answer` without what varies between runs: times, last digits of floats, memory."""
    if isinstance(answer, dict):
        return {
            name: sorted(value)
            if name in ("seconds", "memory") and value is not None
            else _steady(value)
            for name, value in answer.items()
            if name
            not in (
                "iterations",
                "backend",
                "id",
                "key",
                "created",
                "write_seconds",
                "pause_seconds",
            )
            and not (name == "seconds" and isinstance(value, float))
        }
    if isinstance(answer, list):
        return [_steady(value) for value in answer]
    return pytest.approx(answer, abs=1e-5) if isinstance(answer, float) else answer


def test_the_image_has_machine_code_for_every_architecture_that_is_tested() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    (named,) = re.findall(r"python -m liverank_gpu\.backends\.cuda\.kernels ([\w ]+?) ;;", text)
    assert tuple(named.split()) == ARCHITECTURES
