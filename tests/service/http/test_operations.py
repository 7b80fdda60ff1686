"""Liveness, readiness and OpenAPI."""

from __future__ import annotations

import gc
import re
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from liverank_gpu import Engine
from liverank_service.catalog import Catalog
from liverank_service.pipeline.writer import Writer
from liverank_service.settings import Settings
from tests.service.server import Server, running, wait_for


def test_the_server_lives_at_once_and_is_ready_once_the_kernels_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = threading.Event()
    monkeypatch.setattr(Engine, "compiles_kernels", True)  # as on a GPU
    monkeypatch.setattr(Engine, "warm_up", lambda _engine: compiled.wait(60))
    with running(tmp_path, wait_until_ready=False) as server:
        assert server.http.get("/livez").json() == {"status": "alive"}
        wait_for(lambda: "compiling" in server.http.get("/readyz").text)
        for path in ("/readyz", "/graphs", "/graphs/default", "/graphs/default/top"):
            answer = server.http.get(path)
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "1"
            expected = "the server is not ready: compiling kernels"
            assert answer.json()["detail"] == expected
        assert server.http.put("/graphs/early").status_code == 503
        compiled.set()
        wait_for(lambda: server.http.get("/readyz").status_code == 200)
        assert server.http.get("/graphs/default").status_code == 200


def test_a_graph_that_cannot_be_recovered_is_named_and_nothing_is_served(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.http.post("/graphs/default/batches", json={"insert": [["a", "b"]]})
    (tmp_path / "graphs" / "default" / "journal.db").write_bytes(b"no database" * 1000)
    with running(tmp_path, wait_until_ready=False) as server:
        wait_for(lambda: "failed" in server.http.get("/readyz").text)
        detail = server.http.get("/readyz").json()["detail"]
        assert "recovering graph 'default' failed" in detail
        assert "journal.db: file is not a database; there is nothing to recover from" in detail
        assert server.http.get("/livez").status_code == 200


def test_graphs_that_have_stopped_are_listed_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: Any) -> None:
        raise ZeroDivisionError("a fault")

    with running(tmp_path) as server:
        server.http.put("/graphs/damaged").raise_for_status()
    (tmp_path / "graphs" / "damaged" / "watched.json").write_text("{")
    with running(tmp_path) as server:
        http = server.http
        (damaged,) = http.get("/readyz").json()["stopped"]
        assert damaged["graph"] == "damaged"
        assert damaged["reason"] in http.get("/graphs/damaged").json()["detail"]
        assert 'liverank_stopped{graph="default"} 0.0' in http.get("/metrics").text
        with monkeypatch.context() as patch:
            patch.setattr(Writer, "_apply", fault)
            answer = http.post("/graphs/default/batches", json={"insert": [["a", "b"]]})
        assert answer.status_code == 500
        wait_for(lambda: len(http.get("/readyz").json()["stopped"]) == 2)
        stopped = {one["graph"]: one["reason"] for one in http.get("/readyz").json()["stopped"]}
        assert stopped["damaged"] == damaged["reason"]
        assert stopped["default"].endswith("restart the server: ZeroDivisionError('a fault')")
        for name in stopped:
            assert f'liverank_stopped{{graph="{name}"}} 1.0' in http.get("/metrics").text
        assert http.get("/graphs/default").json()["version"] == 0
    with running(tmp_path) as server:
        wait_for(lambda: server.http.get("/graphs/default").json()["version"] == 1)
        assert [one["graph"] for one in server.http.get("/readyz").json()["stopped"]] == ["damaged"]


def test_a_second_server_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with running(tmp_path), running(tmp_path, wait_until_ready=False) as second:
        wait_for(lambda: "failed" in second.http.get("/readyz").text)
        detail = second.http.get("/readyz").json()["detail"]
        assert detail.endswith("another server uses this data directory")


def test_every_answer_ends_its_line(server: Server) -> None:
    path = server.new_graph()
    answers = [
        server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]}),
        server.http.get(f"{path}/batches/1"),
        server.http.get(f"{path}/ranks/a"),
        server.http.get(f"{path}/ranks/nobody"),
        server.http.get("/livez"),
        server.http.get("/nowhere"),
    ]
    assert [answer.content[-2:] for answer in answers] == [b"}\n"] * len(answers)


def test_docs_are_served(server: Server) -> None:
    answer = server.http.get("/docs")
    assert answer.status_code == 200
    assert "swagger" in answer.text


def test_openapi_names_the_problem_documents_and_the_bodies(server: Server) -> None:
    schema: dict[str, Any] = server.http.get("/openapi.json").json()
    problem = {"schema": {"$ref": "#/components/schemas/Problem"}}
    assert "Problem" in schema["components"]["schemas"]
    send = schema["paths"]["/graphs/{graph}/batches"]["post"]
    for status in ("404", "413", "415", "422", "503"):
        assert send["responses"][status]["content"] == {"application/problem+json": problem}
    assert "BatchRequest" in str(send["requestBody"])
    assert {"strategy", "wait", "Idempotency-Key"} < {
        parameter["name"] for parameter in send["parameters"]
    }


def test_the_interactive_documentation_needs_no_other_host(server: Server) -> None:
    page = server.http.get("/docs").text
    fetched = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert any(path.endswith("swagger-ui-bundle.js") for path in fetched)
    for path in fetched:
        assert "//" not in path  # relative, so that they work behind a path of a proxy
        assert server.http.get(urljoin("/docs", path)).status_code == 200


def test_a_dropped_graph_is_freed_without_a_search_for_garbage(server: Server) -> None:
    """Whatever it was used for; a search would hold up all reads, and not find what is frozen."""
    path, seeds, limits = server.new_graph(), {"seeds": {"a": 1}}, {"supersteps": 1}
    for method, of, body, status in (
        ("POST", "batches", {"insert": [["a", "b"], ["b", "c"]]}, 200),
        ("POST", "batches", {"insert": [["c", "a"]], "delete": [["a", "b"]]}, 200),
        ("PUT", "watched/mine", seeds, 201),
        ("POST", "personalized", {"queries": [seeds]}, 200),
        ("POST", "analyses/components", {"fresh": True}, 202),
        ("PUT", "sets/some", {"vertices": ["a"]}, 200),
        ("POST", "batches", {"insert": [["d", "a"]]}, 200),
        ("GET", "neighbors/a", None, 200),
        ("GET", "edges", None, 200),
        ("GET", "top", None, 200),
        ("GET", "batches/9", None, 404),
        ("PUT", "views/mine", {"teleport": {"weights": {"a": 1}}}, 201),
        ("POST", "analyses/levels", {"parameters": {"source": "b"}, "limits": limits}, 202),
    ):
        answer = server.http.request(method, f"{path}/{of}", json=body)
        assert answer.status_code == status, (of, answer.text)
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        pipeline = server.catalog.get(path.rsplit("/", 1)[1]).pipeline
        engine = pipeline._engine
        assert engine is not None
        pipeline.checkpoint().result(60.0)
        # the watched query and the view have errors from now on
        assert server.post(path, json={"remove": ["a"]})["removed"] == 1
        parts = (pipeline, engine, engine._graph, engine._iterate.values, pipeline.view)
        held = [weakref.ref(part) for part in parts]
        del pipeline, engine, parts
        assert server.http.delete(path).status_code == 204
        wait_for(lambda: [part() for part in held] == [None] * len(held))
    finally:
        gc.enable()
        gc.unfreeze()


def test_a_server_that_is_ready_has_warmed_up_each_kind_of_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed: list[tuple[str, bool]] = []
    not_ready: list[str | None] = []

    def note(what: str) -> Callable[[Engine], None]:
        def record(engine: Engine) -> None:
            warmed.append((what, engine.options.weighted))
            not_ready.append(catalog.not_ready)

        return record

    monkeypatch.setattr(Engine, "warm_up", note("first"))
    monkeypatch.setattr(Engine, "warm_up_others", note("others"))
    catalog = Catalog(Settings(data=tmp_path))
    catalog.open()
    assert catalog.not_ready is None
    assert warmed == [("first", False), ("first", True)]
    assert not_ready == ["compiling kernels"] * 2
    catalog.warm_up_others()
    assert warmed[2:] == [("others", False), ("others", True)]
    warmed.clear()
    catalog.create("w", {"weighted": True})
    assert warmed == []
    catalog.close()


def test_a_server_that_is_ready_is_not_searched_for_garbage(server: Server) -> None:
    gc.unfreeze()
    server.catalog.warm_up_others()
    assert gc.get_freeze_count() > 0
