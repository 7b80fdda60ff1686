"""Analyses over HTTP: programs that run on one version of a graph, between its batches."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from liverank_gpu import PROGRAMS, ProgramRun, VertexProgram
from liverank_service.formats import EXPORTED
from liverank_service.http.schemas import (
    AnalysisInfo,
    AnalysisList,
    AnalysisStarted,
    TopValues,
    ValueAnswer,
)
from tests.gpu.programs import oracle
from tests.service.graphs import engine_of
from tests.service.http.test_exports import table_of
from tests.service.http.test_problems import problem
from tests.service.server import Server, running, wait_for

EDGES = [
    *(["a", "b"], ["b", "c"], ["c", "a"], ["c", "d"], ["d", "e"], ["b", "a"], ["b", "b"]),
    *(["x", "y"], ["y", "z"], ["w", "w"]),
]
"""A triangle with a tail, a path, and a vertex alone."""


@pytest.fixture(scope="module")
def path(server: Server) -> str:
    created = server.new_graph()
    server.http.post(f"{created}/batches", json={"insert": EDGES}).raise_for_status()
    return created


class Held:
    """Runs of vertex programs that do not advance until they are freed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._free = threading.Event()
        advance = ProgramRun.step

        def step(run: ProgramRun, seconds: float) -> None:
            free = self._free.is_set() or not isinstance(run.program, VertexProgram)
            if free or seconds == math.inf:
                advance(run, seconds)
            else:
                time.sleep(0.001)

        monkeypatch.setattr(ProgramRun, "step", step)

    def free(self) -> None:
        self._free.set()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held(monkeypatch)
    yield held
    held.free()


def start(server: Server, path: str, program: str, fresh: bool = False, **parameters: Any) -> str:
    """The path of the new analysis."""
    body = {"parameters": parameters, "fresh": fresh}
    answer = server.http.post(f"{path}/analyses/{program}", json=body)
    assert answer.status_code == 202, answer.text
    identity = AnalysisStarted.model_validate_json(answer.content).id
    assert answer.headers["Location"] == f"{path}/analyses/{identity}"
    return answer.headers["Location"]


def state(server: Server, analysis: str, **query: Any) -> Any:
    answer = server.http.get(analysis, params=query)
    assert answer.status_code == 200, answer.text
    return AnalysisInfo.model_validate_json(answer.content)


def finished(server: Server, analysis: str, min_version: int = 0) -> Any:
    found = state(server, analysis, wait=60, min_version=min_version)
    assert (found.state, found.problem) == ("finished", None)
    return found


def values(server: Server, analysis: str) -> dict[Any, Any]:
    """By vertex."""
    rows = table_of(server.http.get(f"{analysis}/export")).to_pylist()
    return {row["vertex"]: row["value"] for row in rows}


EXPECTED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, float]]] = {
    "levels": (
        {"source": "a"},
        {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4} | dict.fromkeys("wxyz"),
        {},
    ),
    "distances": ({"source": "x"}, {"x": 0.0, "y": 1.0, "z": 2.0} | dict.fromkeys("abcdew"), {}),
    "paths": ({"source": "x"}, {"x": 0.0, "y": 1.0, "z": 2.0} | dict.fromkeys("abcdew"), {}),
    "components": (
        {},
        dict.fromkeys("abcde", "a") | dict.fromkeys("xyz", "x") | {"w": "w"},
        {"components": 3, "largest": 5},
    ),
    "triangles": ({}, dict.fromkeys("abc", 1) | dict.fromkeys("dexyzw", 0), {"triangles": 1.0}),
    "cores": (
        {},
        dict.fromkeys("abc", 2) | dict.fromkeys("dexyz", 1) | {"w": 0},
        {"largest": 2.0},
    ),
    "densest": (
        {"epsilon": 0.0},
        dict.fromkeys("abc", 1) | dict.fromkeys("dexyzw", 0),
        {"density": 1.0, "vertices": 3.0},
    ),
    "clustering": (
        {},
        {"a": 1.0, "b": 1.0, "c": 1 / 3} | dict.fromkeys("dexyzw", 0.0),
        {"average": 7 / 27, "transitivity": 3 / 7, "triangles": 1.0},
    ),
}
"""Parameters, values and summary."""


OF_EDGES = {
    "support": (0, {"triangles": 1.0, "largest": 1.0}),
    "trussness": (2, {"largest": 3.0, "partitions": 1.0}),
}
"""The value of edges without triangles, one less than of those in the triangle, and the summary."""


@pytest.mark.parametrize(
    "program", [each for each in PROGRAMS if each not in (*OF_EDGES, "dn-graphs")]
)
def test_every_program_answers_by_key(server: Server, path: str, program: str) -> None:
    parameters, expected, summary = EXPECTED.get(program, ({}, None, None))
    analysis = start(server, path, program, **parameters)
    found = finished(server, analysis)
    assert (found.program, found.version, found.fresh) == (program, 1, False)
    assert found.receipt is not None
    assert not found.receipt.continued
    assert found.progress.supersteps == found.receipt.supersteps
    assert found.parameters.items() >= parameters.items()
    rows = values(server, analysis)
    if expected is not None:
        assert rows == pytest.approx(expected, nan_ok=True)
        assert found.summary == pytest.approx(summary)
    elif program == "pagerank":
        assert sum(rows.values()) == pytest.approx(1.0)
        ranks = {row["vertex"]: row["rank"] for row in _ranks(server, path)}
        assert rows == pytest.approx(ranks, abs=1e-5)
    for vertex, value in list(rows.items())[:3]:
        answer = server.http.get(f"{analysis}/values/{vertex}")
        read = ValueAnswer.model_validate_json(answer.content)
        assert (read.vertex, read.value, read.version) == (vertex, value, 1)
    assert server.http.delete(analysis).status_code == 204
    assert problem(server.http.get(analysis), 404)["type"].endswith(":unknown-analysis")


def test_paths_name_the_vertex_before(server: Server, path: str) -> None:
    analysis = start(server, path, "paths", source="a")
    finished(server, analysis)
    arrow = {"Accept": "application/vnd.apache.arrow.stream"}
    rows = table_of(server.http.get(f"{analysis}/export", headers=arrow)).to_pylist()
    found = {row["vertex"]: (row["value"], row["predecessor"]) for row in rows}
    reached = {"a": (0.0, None), "b": (1.0, "a"), "c": (2.0, "b"), "d": (3.0, "c"), "e": (4.0, "d")}
    assert found == reached | dict.fromkeys("wxyz", (None, None))
    for vertex, (value, before) in found.items():
        answer = server.http.get(f"{analysis}/values/{vertex}")
        read = ValueAnswer.model_validate_json(answer.content)
        assert (read.value, read.predecessor) == (value, before)
    answer = server.http.get(f"{analysis}/top", params={"k": 1})
    assert answer.json()["values"] == [{"vertex": "e", "value": 4.0}]
    assert server.http.delete(analysis).status_code == 204


def _ranks(server: Server, path: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table_of(server.http.get(f"{path}/ranks")).to_pylist()
    return rows


def test_top_values_groups_and_exports(server: Server, path: str) -> None:
    levels = start(server, path, "levels", source="a")
    components = start(server, path, "components")
    finished(server, levels)
    finished(server, components)

    def top(analysis: str, **query: Any) -> list[tuple[Any, Any]]:
        answer = server.http.get(f"{analysis}/top", params=query)
        read = TopValues.model_validate_json(answer.content)
        assert read.version == 1
        return [(row.vertex, row.value) for row in read.values]

    assert top(levels) == [("e", 4), ("d", 3), ("c", 2), ("b", 1), ("a", 0)]
    assert top(levels, k=2, order="smallest") == [("a", 0), ("b", 1)]
    assert top(components, k=2) == [("a", 5), ("x", 3)]
    assert top(components, order="smallest") == [("w", 1), ("x", 3), ("a", 5)]
    for media_type in EXPORTED:
        answer = server.http.get(f"{levels}/export", headers={"Accept": media_type})
        assert answer.headers["Liverank-Version"] == "1"
        rows = {row["vertex"]: row["value"] for row in table_of(answer).to_pylist()}
        assert rows == EXPECTED["levels"][1]
        again = {"Accept": media_type, "If-None-Match": answer.headers["ETag"]}
        assert server.http.get(f"{levels}/export", headers=again).status_code == 304
    listed = AnalysisList.model_validate_json(server.http.get(f"{path}/analyses").content)
    assert [f"{path}/analyses/{one.id}" for one in listed.analyses] == [levels, components]
    for analysis in (levels, components):
        server.http.delete(analysis).raise_for_status()


@pytest.mark.parametrize("program", OF_EDGES)
def test_programs_of_edges_answer_by_edge_and_by_vertex(
    server: Server, path: str, program: str
) -> None:
    least, summary = OF_EDGES[program]
    before = server.http.get(path).json()["memory"]["analyses"]
    analysis = start(server, path, program)
    found = finished(server, analysis)
    assert (found.version, found.summary) == (1, summary)
    rows = table_of(server.http.get(f"{analysis}/export")).to_pylist()
    expected = dict.fromkeys(("ab", "ac", "bc"), least + 1)
    expected |= dict.fromkeys(("cd", "de", "xy", "yz"), least)
    assert {row["source"] + row["target"]: row["value"] for row in rows} == expected
    assert len(rows) == len(expected)
    for media_type in EXPORTED:
        answer = server.http.get(f"{analysis}/export", headers={"Accept": media_type})
        assert table_of(answer).to_pylist() == rows
    for order, sign in (("largest", -1), ("smallest", 1)):
        for k in (1, 2, 5, 9):
            answer = server.http.get(f"{analysis}/top", params={"k": k, "order": order})
            read = TopValues.model_validate_json(answer.content)
            assert (read.version, read.values) == (1, [])
            best = sorted(rows, key=lambda row, sign=sign: sign * row["value"])[:k]  # type: ignore[misc]
            assert [edge.model_dump() for edge in read.edges] == best
    for vertex, value in (("a", least + 1), ("c", least + 1), ("d", least), ("w", None)):
        assert server.http.get(f"{analysis}/values/{vertex}").json()["value"] == value
    problem(server.http.get(f"{analysis}/values/nobody"), 404)
    assert server.http.get(path).json()["memory"]["analyses"] - before == 12 * 7 + 4 * 9
    server.http.delete(analysis).raise_for_status()


def test_dn_graphs_answer_by_edge_by_vertex_and_by_graph(server: Server, path: str) -> None:
    """The triangle a, b, c has the path c, d, e at its side, and x, y, z is a path of its own."""
    before = server.http.get(path).json()["memory"]["analyses"]
    analysis = start(server, path, "dn-graphs")
    found = finished(server, analysis)
    assert (found.version, found.summary) == (1, {"graphs": 2.0, "largest": 1.0})
    expected = {"ab": ("a", 1), "ac": ("a", 1), "bc": ("a", 1), "xy": ("x", 0), "yz": ("x", 0)}
    for media_type in EXPORTED:
        answer = server.http.get(f"{analysis}/export", headers={"Accept": media_type})
        rows = table_of(answer).to_pylist()
        assert len(rows) == len(expected)
        read = {"".join(sorted(r["source"] + r["target"])): (r["value"], r["lambda"]) for r in rows}
        assert read == expected
    for order, graphs in (("largest", [("a", 1), ("x", 0)]), ("smallest", [("x", 0), ("a", 1)])):
        for k in (1, 2, 5):
            top = server.http.get(f"{analysis}/top", params={"k": k, "order": order}).content
            read_top = TopValues.model_validate_json(top)
            assert [(row.vertex, row.value) for row in read_top.values] == graphs[:k]
            assert read_top.edges == []
    named = dict.fromkeys("abc", "a") | dict.fromkeys("xyz", "x") | dict.fromkeys("dew")
    for vertex, name in named.items():
        assert server.http.get(f"{analysis}/values/{vertex}").json()["value"] == name
    # 4 columns of edges, the value of each vertex, and the name and λ of each DN-graph
    held = server.http.get(path).json()["memory"]["analyses"] - before
    assert held == 16 * 5 + 4 * 9 + 8 * 2
    server.http.delete(analysis).raise_for_status()


def test_trussness_follows_removals_and_takes_its_parameters(server: Server) -> None:
    path = server.new_graph(keys="integer", directed=False)
    edges = [[a, b] for a in range(5) for b in range(a)] + [[4, 9]]
    server.http.post(f"{path}/batches", json={"insert": edges}).raise_for_status()
    analysis = start(server, path, "trussness", fresh=True, binary=0, partitions=3)
    finished(server, analysis)

    def trussness() -> dict[frozenset[int], int]:
        rows = table_of(server.http.get(f"{analysis}/export")).to_pylist()
        return {frozenset((row["source"], row["target"])): row["value"] for row in rows}

    assert trussness() == {frozenset(edge): 5 for edge in edges[:-1]} | {frozenset((4, 9)): 2}
    batch = {"remove": [0], "insert": [[9, 3], [20, 20]]}
    receipt = server.http.post(f"{path}/batches", json=batch).json()
    found = finished(server, analysis, receipt["version"])
    assert found.receipt is not None
    assert found.receipt.continued
    left = [edge for edge in edges if 0 not in edge and 9 not in edge]
    late = ((4, 9), (3, 9))
    assert trussness() == {frozenset(e): 4 for e in left} | {frozenset(e): 3 for e in late}
    assert server.http.get(f"{analysis}/values/20").json()["value"] is None
    problem(server.http.get(f"{analysis}/values/0"), 404)


def test_nothing_is_kept_on_the_device_of_an_answer_that_no_run_continues(server: Server) -> None:
    path = server.new_graph(keys="integer", directed=False)
    server.http.post(f"{path}/batches", json={"insert": [[0, 1], [1, 2], [2, 0]]})
    finished(server, start(server, path, "dn-graphs", fresh=True))
    analyses = server.catalog.get(path.rsplit("/", 1)[1]).analyses
    assert analyses._last == {}
    finished(server, start(server, path, "trussness", fresh=True))
    assert len(analyses._last) == 1


def test_cores_that_are_kept_fresh_continue(server: Server) -> None:
    path = server.new_graph(keys="integer", directed=False)
    edges = [[a, b] for a in range(5) for b in range(a)]
    path_edges = [[a, a + 1] for a in range(9, 90)]
    server.http.post(f"{path}/batches", json={"insert": edges + path_edges}).raise_for_status()
    analysis = start(server, path, "cores", fresh=True)
    finished(server, analysis)
    expected = dict.fromkeys(range(5), 4) | dict.fromkeys(range(9, 91), 1)
    assert values(server, analysis) == expected
    changed = {"delete": [[0, 1]], "insert": [[90, 9]]}
    receipt = server.http.post(f"{path}/batches", json=changed).json()
    found = finished(server, analysis, receipt["version"])
    assert found.receipt is not None
    assert found.receipt.continued
    assert values(server, analysis) == dict.fromkeys(range(5), 3) | dict.fromkeys(range(9, 91), 2)


def test_keys_that_are_integers_are_values_too(server: Server) -> None:
    path = server.new_graph(keys="integer", directed=False, weighted=True)
    edges = [[10, 20, 2.5], [20, 30, 1.5], [-5, 7, 1.0]]
    server.http.post(f"{path}/batches", json={"insert": edges}).raise_for_status()
    components = start(server, path, "components")
    distances = start(server, path, "distances", source=30)
    finished(server, components)
    finished(server, distances)
    assert values(server, components) == {10: 10, 20: 10, 30: 10, -5: -5, 7: -5}
    assert values(server, distances) == {10: 4.0, 20: 1.5, 30: 0.0, -5: None, 7: None}


@pytest.mark.parametrize(
    ("program", "body", "status", "field"),
    [
        ("walk", {}, 422, "program"),
        ("levels", {}, 422, "parameters.source"),
        ("levels", {"parameters": {"source": 5}}, 422, "parameters.source"),
        ("levels", {"parameters": {"source": "nobody"}}, 404, "parameters.source"),
        ("components", {"parameters": {"source": "a"}}, 422, "parameters.source"),
        ("pagerank", {"parameters": {"damping": "0.5"}}, 422, "parameters.damping"),
        ("pagerank", {"parameters": {"damping": 2}}, 422, "parameters.damping"),
        ("labels", {"parameters": {"iterations": 1.5}}, 422, "parameters.iterations"),
        ("labels", {"parameters": {"iterations": 0}}, 422, "parameters.iterations"),
        ("labels", {"parameters": {"iterations": 10**400}}, 422, "parameters.iterations"),
        ("pagerank", {"parameters": {"tolerance": 10**400}}, 422, "parameters.tolerance"),
        ("trussness", {"parameters": {"binary": 2}}, 422, "parameters.binary"),
        ("trussness", {"parameters": {"partitions": 0}}, 422, "parameters.partitions"),
        ("support", {"parameters": {"binary": 1}}, 422, "parameters.binary"),
        ("densest", {"parameters": {"epsilon": -1}}, 422, "parameters.epsilon"),
        ("densest", {"parameters": {"epsilon": True}}, 422, "parameters.epsilon"),
        ("pagerank", {"mode": "asynchronous"}, 422, "mode"),
        ("components", {"fresh": "yes"}, 422, "fresh"),
        # larger than the integers of the answers, which no read of the list could then have
        ("components", {"limits": {"memory": 2**64}}, 422, "limits.memory"),
        (
            "levels",
            {"parameters": {"source": "a"}, "limits": {"supersteps": 2**64}},
            422,
            "limits.s",
        ),
        ("levels", {"save_every": 2**64}, 422, "save_every"),
    ],
)
def test_what_cannot_run_is_refused_by_name(
    server: Server, path: str, program: str, body: dict[str, Any], status: int, field: str
) -> None:
    refused = server.http.post(f"{path}/analyses/{program}", json=body)
    document = problem(refused, status)
    assert document["field"].startswith(field), document
    assert server.http.get(f"{path}/analyses").json() == {"analyses": []}


def test_a_missing_or_unknown_parameter_is_told(server: Server) -> None:
    calls = "/graphs/default/analyses"
    missing = problem(server.http.post(f"{calls}/levels"), 422)
    expected = "parameters.source: expected the key of a vertex: a non-empty string"
    assert missing["detail"] == expected
    unknown = problem(server.http.post(f"{calls}/cores", json={"parameters": {"k": 3}}), 422)
    assert unknown["detail"] == "parameters.k: unknown parameter; cores takes no parameters"


def test_lengths_that_decay_are_refused(server: Server) -> None:
    path = server.new_graph(half_life=60.0)
    server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]}).raise_for_status()
    body = {"parameters": {"source": "a"}}
    refused = problem(server.http.post(f"{path}/analyses/distances", json=body), 422)
    assert (refused["field"], refused["value"]) == ("program", "distances")
    finished(server, start(server, path, "levels", source="a"))


def test_what_does_not_fit_is_refused_or_fails(
    server: Server, path: str, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": EDGES}).raise_for_status()
    analysis = start(server, path, "components")
    for place in ("liverank_gpu.programs.running", "liverank_gpu.graph.reading"):
        monkeypatch.setattr(f"{place}.copied_bytes", lambda _: 1 << 60)
    refused = problem(server.http.post(f"{path}/analyses/components", json={}), 507)
    assert refused["type"] == "urn:liverank:problem:out-of-memory"
    server.http.post(f"{path}/batches", json={"insert": [["a", "z"]]}).raise_for_status()
    held.free()
    found = state(server, analysis, wait=60)
    assert (found.state, found.version) == ("failed", None)
    assert found.problem is not None
    assert found.problem.type == "urn:liverank:problem:out-of-memory"
    refused = problem(server.http.get(f"{analysis}/top"), 409)
    assert refused["type"] == "urn:liverank:problem:no-answer"
    assert "it is failed" in refused["detail"]


def test_an_answer_is_that_of_the_version_at_which_it_began(server: Server, held: Held) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": EDGES}).raise_for_status()
    analysis = start(server, path, "levels", source="a")
    assert state(server, analysis).state == "running"
    assert server.http.get(path).json()["memory"]["programs"] == 0
    batch = {"remove": ["c"], "insert": [["a", "e"], ["e", "new"], ["c", "w"]]}
    server.http.post(f"{path}/batches", json=batch).raise_for_status()
    assert server.http.get(path).json()["memory"]["programs"] > 0
    held.free()
    assert finished(server, analysis).version == 1
    assert values(server, analysis) == EXPECTED["levels"][1]
    memory = server.http.get(path).json()["memory"]
    assert (memory["programs"], memory["analyses"]) == (0, 4 * 9)
    assert server.http.get(f"{analysis}/values/c").json()["value"] == 2
    problem(server.http.get(f"{analysis}/values/new"), 404)
    second = start(server, path, "levels", source="a")
    assert finished(server, second).version == 2
    expected = dict.fromkeys("cdwxyz") | {"a": 0, "b": 1, "e": 1, "new": 2}
    assert values(server, second) == expected


def test_two_run_at_once_and_the_others_wait(server: Server, held: Held) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": EDGES}).raise_for_status()
    analyses = [start(server, path, "components") for _ in range(4)]

    def states() -> list[str]:
        listed = AnalysisList.model_validate_json(server.http.get(f"{path}/analyses").content)
        return [one.state for one in listed.analyses]

    assert states() == ["running", "running", "queued", "queued"]
    metrics = server.http.get("/metrics").text
    assert f'liverank_analyses{{graph="{path.rsplit("/", 1)[1]}"}} 4.0' in metrics
    for cancelled in (analyses[3], analyses[0]):
        assert server.http.delete(cancelled).status_code == 204
        assert state(server, cancelled, wait=60).state == "cancelled"
    wait_for(lambda: states() == ["cancelled", "running", "running", "cancelled"])
    problem(server.http.get(f"{analyses[0]}/top"), 409)
    held.free()
    for running_one in analyses[1:3]:
        finished(server, running_one)
    assert server.http.delete(analyses[0]).status_code == 204
    assert states() == ["finished", "finished", "cancelled"]
    # personalized queries and batches were answered all the time
    assert engine_of(server.catalog.get(path.rsplit("/", 1)[1]).pipeline).programs.nbytes == 0


@pytest.mark.usefixtures("held")
def test_a_wait_ends_in_time_and_with_the_graph(server: Server) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": EDGES}).raise_for_status()
    analysis = start(server, path, "components")
    assert state(server, analysis, wait=0.05).state == "running"
    with ThreadPoolExecutor(1) as clients:
        waiting = clients.submit(server.http.get, analysis, params={"wait": 60})
        wait_for(lambda: server.app.state.limit.waiting[f" for graph {path.rsplit('/', 1)[1]!r}"])
        assert server.http.delete(path).status_code == 204
        assert problem(waiting.result(60), 404)["type"] == "urn:liverank:problem:unknown-graph"
    server.http.put(path).raise_for_status()
    problem(server.http.get(analysis), 404)
    assert server.http.get(f"{path}/analyses").json() == {"analyses": []}


def test_an_analysis_that_is_kept_fresh_follows_every_version(server: Server) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": EDGES}).raise_for_status()
    analysis = start(server, path, "levels", fresh=True, source="a")
    assert finished(server, analysis).version == 1

    def after(**batch: Any) -> Any:
        receipt = server.http.post(f"{path}/batches", json=batch).json()
        found = finished(server, analysis, receipt["version"])
        assert found.version == receipt["version"]
        return found

    found = after(insert=[["a", "x"], ["e", "f"]])
    assert found.receipt is not None
    assert found.receipt.continued
    assert values(server, analysis)["z"] == 3
    found = after(delete=[["a", "x"]])
    assert found.receipt is not None
    assert not found.receipt.continued
    assert values(server, analysis)["z"] is None
    # its source is gone, and comes back with another id
    server.http.post(f"{path}/batches", json={"remove": ["a"]}).raise_for_status()
    wait_for(lambda: state(server, analysis).state == "failed")
    failed = state(server, analysis)
    assert failed.problem is not None
    assert failed.problem.type == "urn:liverank:problem:unknown-vertex"
    assert failed.version == 3
    after(insert=[["q", "r"], ["a", "w"]])
    assert values(server, analysis)["w"] == 1
    server.http.delete(analysis).raise_for_status()
    problem(server.http.get(analysis), 404)


def test_a_fresh_analysis_that_a_batch_overtook_runs_again_at_once(
    server: Server, held: Held
) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": EDGES}).raise_for_status()
    analysis = start(server, path, "levels", fresh=True, source="a")
    server.http.post(f"{path}/batches", json={"insert": [["a", "w"]]}).raise_for_status()
    assert state(server, analysis).state == "running"
    held.free()  # nothing else wakes the graph's thread from here on
    assert finished(server, analysis, min_version=2).version == 2
    assert values(server, analysis)["w"] == 1


def test_requests_survive_a_restart_and_answers_do_not(tmp_path: Path, held: Held) -> None:
    path = "/graphs/default"
    with running(tmp_path, max_analyses=4) as server:
        server.http.post(f"{path}/batches", json={"insert": EDGES}).raise_for_status()
        cancelled = start(server, path, "components", fresh=True)
        server.http.delete(cancelled).raise_for_status()
        assert state(server, cancelled).state == "cancelled"
        done = start(server, path, "cores")
        assert finished(server, done).version == 1
        removed = start(server, path, "triangles")
        finished(server, removed)
        interrupted = start(server, path, "levels", source="a")
        refused = problem(server.http.post(f"{path}/analyses/cores"), 409)
        assert refused["type"] == "urn:liverank:problem:too-many-analyses"
        assert "has 4 analyses, which is its limit; 1 of them are queued" in refused["detail"]
        server.http.delete(removed).raise_for_status()
        kept = start(server, path, "components", fresh=True)
        assert state(server, interrupted).state == state(server, kept).state == "running"
    held.free()
    with running(tmp_path) as server:
        for analysis in (done, interrupted):
            found = state(server, analysis)
            assert (found.state, found.version, found.receipt) == ("interrupted", None, None)
            problem(server.http.get(f"{analysis}/top"), 409)
        assert found.parameters == {"source": "a"}
        for gone in (removed, cancelled):
            problem(server.http.get(gone), 404)
        assert finished(server, kept).version == 1
        assert values(server, kept) == EXPECTED["components"][1]
        for analysis in (done, interrupted, kept):
            assert server.http.delete(analysis).status_code == 204
    file = tmp_path / "graphs" / "default" / "analyses.json"
    assert json.loads(file.read_text()) == {"format": 1, "analyses": {}}
    # an earlier release took limits of any size
    limits = {"limits": {"supersteps": 2**62, "memory": 2**70}, "save_every": 2**70}
    stored = {"program": "components", "parameters": {}, "fresh": False, "created": 1.0}
    file.write_text(json.dumps({"format": 1, "analyses": {"x": stored | limits}}))
    with running(tmp_path) as server:
        (found,) = server.http.get(f"{path}/analyses").json()["analyses"]
        assert found["limits"] == {"supersteps": 2**53, "seconds": None, "memory": 2**53}
        assert found["save_every"] == 2**53
    file.write_text('{"format": 1, "analyses": {"x": {"program": 5}}}')
    with running(tmp_path) as server:
        stopped = problem(server.http.get(path), 503)
    assert "analyses.json: is not a file of analyses: analyses.x.program 5" in stopped["detail"]


def test_compiling_programs_does_not_occupy_the_threads_of_reads(
    server: Server, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    monkeypatch.setattr(
        server.catalog,
        "warm_up_program",
        lambda *_: names.append(threading.current_thread().name),
    )
    server.http.delete(start(server, path, "cores")).raise_for_status()
    assert [name.rsplit("_", 1)[0] for name in names] == ["liverank-catalog"]
    for one in server.http.get(f"{path}/analyses").json()["analyses"]:  # a cancelled one is kept
        server.http.delete(f"{path}/analyses/{one['id']}").raise_for_status()


@pytest.mark.usefixtures("held")
def test_a_disk_that_fails_refuses_the_request(
    server: Server, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = start(server, path, "components")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("liverank_service.storage.files.write_synced", full)
    refused = problem(server.http.post(f"{path}/analyses/cores"), 507)
    assert refused["type"] == "urn:liverank:problem:storage-full"
    problem(server.http.delete(kept), 507)
    assert state(server, kept).state == "running"
    monkeypatch.undo()  # held too
    finished(server, kept)
    server.http.delete(kept).raise_for_status()
    assert server.http.get(f"{path}/analyses").json() == {"analyses": []}
    assert engine_of(server.catalog.get(path.rsplit("/", 1)[1]).pipeline).programs._running == []


def test_seconds_are_counted_by_program_and_outcome(server: Server) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": EDGES}).raise_for_status()
    finished(server, start(server, path, "cores"))
    labels = f'graph="{path.rsplit("/", 1)[1]}",outcome="finished",program="cores"'
    line = f"liverank_analysis_seconds_count{{{labels}}} 1.0"
    assert line in server.http.get("/metrics").text
    server.http.delete(path).raise_for_status()
    assert labels not in server.http.get("/metrics").text


def test_ties_of_labels_go_to_the_lowest_integer_key(server: Server) -> None:
    """Whatever the order in which keys came, and which ids are free or used again."""
    path, choice = server.new_graph(keys="integer"), random.Random(3)
    names = [choice.getrandbits(64) - 2**63 for _ in range(60)]
    first = [[choice.choice(names), choice.choice(names)] for _ in range(150)]
    second = [[choice.choice(names), choice.choice(names[10:])] for _ in range(30)]
    for body in ({"insert": first}, {"remove": names[:20]}, {"insert": second}):
        server.http.post(f"{path}/batches", json=body).raise_for_status()
    edges = {(u, v) for u, v in first if not {u, v} & set(names[:20])}
    edges |= {(u, v) for u, v in second}
    analysis = start(server, path, "labels")
    finished(server, analysis)
    found = values(server, analysis)
    expected = {v: v for edge in first for v in edge if v not in names[:20]}
    assert found == expected | oracle.communities(edges, 10)
