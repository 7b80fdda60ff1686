"""Programs of users over HTTP: put, listed, run within limits, dropped, and refused by line."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from liverank_service.errors import FileDamaged
from liverank_service.formats import ARROW_STREAM
from liverank_service.http.schemas import ProgramInfo, ProgramList, ProgramRequest, TopValues
from liverank_service.storage import programs
from liverank_service.storage.backup import backup, restore
from tests.service.http.test_analyses import EDGES, finished, start, state, values
from tests.service.http.test_exports import table_of
from tests.service.server import Server, running

HOPS = '''
FAR = 2147483647


class Hops:
    """Breadth-first search: the built-in program `levels` again."""

    dtype = "int32"
    identity = FAR
    merge = "min"
    parameters = {"source": 0}
    monotone = True
    first_wins = True

    def initial(vertex, source):
        return 0 if vertex == source else FAR

    def gather(source_value):
        return source_value + 1

    def apply(old, gathered):
        return min(old, gathered)

    def scatter(old, new):
        return old != new
'''

SPINNING = '''
class Spinning:
    """Never ends, and divides by zero."""

    dtype = "int64"
    identity = 0
    merge = "sum"
    parameters = {"by": 0}

    def initial(vertex):
        return vertex + 1

    def gather(source_value, by):
        return source_value // by + -9223372036854775807 // -1

    def apply(old, gathered, superstep):
        return superstep + gathered % 0

    def scatter(old, new):
        return True
'''


DOUBLED = '''
class Doubled:
    """Hops from a vertex, not along loops, and two to the power of them."""

    dtype = {"hops": "int32", "doubled": "float64"}
    identity = (99, 0.0)
    edge_dtype = "int64"
    parameters = {"source": 0}

    def initial(vertex, source):
        return (0, 1.0) if vertex == source else (99, 0.0)

    def sends(sender, receiver):
        return sender != receiver

    def edge_apply(edge):
        return edge + 1

    def gather(source_value):
        return source_value.hops + 1, source_value.doubled * 2.0

    def merge(a, b):
        return a if a.hops < b.hops else b

    def apply(old, gathered):
        return gathered if gathered.hops < old.hops else old

    def scatter(old, new):
        return old != new
'''


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Server]:
    with running(data, programs=True, max_program_seconds=5.0) as server:
        yield server


@pytest.fixture(scope="module")
def path(server: Server) -> str:
    created = server.new_graph()
    server.http.post(f"{created}/batches", json={"insert": EDGES}).raise_for_status()
    return created


def refused(answer: httpx.Response, status: int, name: str) -> dict[str, Any]:
    """The problem document of a refusal of this type."""
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    assert found["type"] == f"urn:liverank:problem:{name}"
    return found


def put(server: Server, name: str, source: str) -> Any:
    answer = server.http.put(f"/programs/{name}", json={"source": source})
    assert answer.status_code in (200, 201), answer.text
    return ProgramInfo.model_validate_json(answer.content)


def analyse(server: Server, path: str, program: str, **body: Any) -> str:
    answer = server.http.post(f"{path}/analyses/{program}", json=body)
    assert answer.status_code == 202, answer.text
    return str(answer.headers["Location"])


def test_a_program_is_put_read_run_and_dropped(server: Server, path: str) -> None:
    assert put(server, "hops", HOPS).parameters == {"source": 0}
    listed = ProgramList.model_validate_json(server.http.get("/programs").content).programs
    assert [(each.name, each.monotone) for each in listed] == [("hops", True)]
    found = ProgramInfo.model_validate_json(server.http.get("/programs/hops").content)
    assert (found.source, found.dtype, found.refusal) == (HOPS, "int32", None)
    levels = start(server, path, "levels", source="a")
    finished(server, levels)
    expected = values(server, levels)
    for mode in ("synchronous", "asynchronous"):
        one = analyse(server, path, "hops", parameters={"source": "a"}, mode=mode)
        assert finished(server, one).mode == mode
        assert values(server, one) == expected
    assert server.http.delete("/programs/hops").status_code == 204
    assert refused(server.http.get("/programs/hops"), 404, "unknown-program")
    found = refused(server.http.post(f"{path}/analyses/hops"), 422, "invalid-value")
    assert "one of pagerank" in found["detail"]


def test_a_program_may_have_records_and_values_of_edges(server: Server, path: str) -> None:
    found = put(server, "doubled", DOUBLED)
    assert (found.dtype, found.edge_dtype) == ({"hops": "int32", "doubled": "float64"}, "int64")
    one = analyse(server, path, "doubled", parameters={"source": "a"})
    finished(server, one)
    expected = {name: (hops, 2.0**hops) for hops, name in enumerate("abcde")}
    expected |= dict.fromkeys("wxyz", (99, 0.0))
    rows = table_of(server.http.get(f"{one}/export")).to_pylist()
    assert {row["vertex"]: (row["value"], row["doubled"]) for row in rows} == expected
    answer = server.http.get(f"{one}/values/d").json()
    assert (answer["value"], answer["others"]) == (3, {"doubled": 8.0})
    for name in ("value", "vertex"):
        source = DOUBLED.replace("doubled", name)
        answer = server.http.put("/programs/other", json={"source": source})
        assert refused(answer, 422, "program-refused")["line"] == 5


ALONG = """
class Along:
    \"\"\"Nearest, where an edge is twice as long once used; how often edges were used.\"\"\"

    dtype = "float64"
    identity = 1e9
    merge = "min"
    edge_dtype = {"length": "float64", "sent": "int32"}
    edge_initial = (-1.0, 0)
    parameters = {"source": 0}

    def initial(vertex, source):
        return 0.0 if vertex == source else 1e9

    def gather(source_value, weight, edge):
        return source_value + (weight if edge.length < 0.0 else edge.length)

    def edge_apply(edge, weight):
        return weight * 2.0, edge.sent + 1

    def apply(old, gathered):
        return min(old, gathered)

    def scatter(old, new):
        return old != new
"""
WEIGHTED = [("a", "b", 1.0), ("a", "c", 5.0), ("b", "c", 1.0), ("c", "d", 2.5), ("x", "a", 3.0)]


def sent_along(edges: list[tuple[str, str, float]], source: str) -> dict[tuple[str, str], int]:
    """How often ALONG sends along each edge."""
    length = {(one, other): weight for one, other, weight in edges}
    sent, distance, active = dict.fromkeys(length, 0), {source: 0.0}, {source}
    while active:
        came: dict[str, float] = {}
        for one, other in [each for each in length if each[0] in active]:
            first = sent[one, other] == 0
            by = distance[one] + length[one, other] * (1.0 if first else 2.0)
            came[other] = min(came.get(other, math.inf), by)
            sent[one, other] += 1
        active = {vertex for vertex, by in came.items() if by < distance.get(vertex, 1e9)}
        distance |= {vertex: came[vertex] for vertex in active}
    return sent


@pytest.mark.parametrize("media_type", ["text/csv", "application/x-ndjson", ARROW_STREAM])
def test_the_values_of_edges_are_returned(server: Server, media_type: str) -> None:
    graph = server.new_graph(weighted=True)
    rows = [{"source": one, "target": two, "weight": w} for one, two, w in WEIGHTED]
    server.http.post(f"{graph}/batches", json={"insert": rows}).raise_for_status()
    put(server, "along", ALONG)
    one = analyse(server, graph, "along", parameters={"source": "a"})
    version = finished(server, one).version
    answer = server.http.get(f"{one}/export?of=edges", headers={"Accept": media_type})
    assert answer.headers["Liverank-Version"] == str(version)
    table = table_of(answer)
    assert table.column_names == ["source", "target", "value", "sent"]
    sent = sent_along(WEIGHTED, "a")
    assert sorted(sent.values()) == [0, 1, 1, 1, 2]
    expected = {
        (one, two): (w * 2.0 if sent[one, two] else -1.0, sent[one, two])
        for one, two, w in WEIGHTED
    }
    found = {(e["source"], e["target"]): (e["value"], e["sent"]) for e in table.to_pylist()}
    assert found == expected
    for order, first in (("largest", ("a", "c", 10.0)), ("smallest", ("x", "a", -1.0))):
        answer = server.http.get(f"{one}/top?of=edges&k=1&order={order}")
        top = TopValues.model_validate_json(answer.content)
        (edge,) = top.edges
        assert ((edge.source, edge.target, edge.value), top.values) == (first, [])
    assert [each["value"] for each in table_of(server.http.get(f"{one}/export")).to_pylist()]


def test_values_of_what_has_none_are_refused_by_name(server: Server, path: str) -> None:
    counts = start(server, path, "support")
    levels = start(server, path, "levels", source="a")
    for one, of, own in ((counts, "vertices", "edges"), (levels, "edges", "vertices")):
        finished(server, one)
        for call in ("top", "export"):
            found = refused(server.http.get(f"{one}/{call}?of={of}"), 422, "invalid-value")
            assert (found["field"], found["value"]) == ("of", of)
            assert f"has values of {own} alone" in found["detail"]
            server.http.get(f"{one}/{call}?of={own}").raise_for_status()
        assert server.http.get(f"{one}/top?of=none").status_code == 422
    for name in ("value", "source", "target"):
        source = ALONG.replace("sent", name)
        answer = server.http.put("/programs/other", json={"source": source})
        assert refused(answer, 422, "program-refused")["line"] == 8


def test_answers_with_values_of_edges_count_as_memory(server: Server) -> None:
    graph = server.new_graph()
    edges = [[f"{one}", f"{other}"] for one in range(40) for other in range(25)]
    server.http.post(f"{graph}/batches", json={"insert": edges}).raise_for_status()
    put(server, "doubled", DOUBLED)
    one = analyse(server, graph, "doubled", parameters={"source": "3"})
    finished(server, one)
    rows = table_of(server.http.get(f"{one}/export?of=edges")).num_rows
    assert rows == len(edges) - 25  # not for loops
    memory = server.http.get(graph).json()["memory"]["analyses"]
    assert memory == rows * (4 + 4 + 8) + 40 * (4 + 8)


def test_the_example_of_the_interface_is_one() -> None:
    (example,) = ProgramRequest.model_json_schema()["examples"]
    assert programs.checked_program("example", example["source"]).monotone


def test_a_program_that_never_ends_is_ended_by_its_limits(server: Server, path: str) -> None:
    put(server, "spinning", SPINNING)
    some = analyse(server, path, "spinning", limits={"supersteps": 9})
    found = finished(server, some)
    assert (found.receipt.supersteps, found.receipt.finished) == (9, False)
    assert found.limits.seconds == 5.0
    short = analyse(server, path, "spinning", limits={"seconds": 0.2}, parameters={"by": -1})
    found = state(server, short, wait=60)
    assert (found.state, found.problem.type[-14:]) == ("failed", "limit-exceeded")
    assert found.problem.field == "limits.seconds"
    assert 0.2 < found.progress.seconds < 5.0
    small = server.http.post(f"{path}/analyses/spinning", json={"limits": {"memory": 64}})
    assert "limit of memory" in refused(small, 507, "out-of-memory")["detail"]
    long = server.http.post(f"{path}/analyses/spinning", json={"limits": {"seconds": 6}})
    assert refused(long, 422, "invalid-value")["field"] == "limits.seconds"


def test_batches_and_reads_go_on_while_one_runs(server: Server) -> None:
    graph = server.new_graph()
    server.http.post(f"{graph}/batches", json={"insert": EDGES}).raise_for_status()
    put(server, "spinning", SPINNING)
    one = analyse(server, graph, "spinning", limits={"seconds": 4})
    number = 0
    while state(server, one).state == "running" and number < 20:
        edge = [f"n{number}", "a"]
        server.http.post(f"{graph}/batches", json={"insert": [edge]}).raise_for_status()
        server.http.get(f"{graph}/top").raise_for_status()
        number += 1
    assert number > 3
    server.http.delete(one).raise_for_status()
    assert state(server, one).state in ("cancelled", "failed")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"mode": "asynchronous"}, "mode"),
        ({"mode": "fast"}, "mode"),
        ({"limits": {"supersteps": 3}}, "limits.supersteps"),
        ({"limits": {"supersteps": 0}}, "limits.supersteps"),
        ({"limits": {"seconds": -1.0}}, "limits.seconds"),
        ({"limits": {"memory": 1.5}}, "limits.memory"),
        ({"limits": {"cores": 1}}, "limits.cores"),
        ({"save_every": 5}, "save_every"),
        ({"save_every": -1}, "save_every"),
        ({"save_every": 1.5}, "save_every"),
    ],
)
def test_what_a_run_cannot_have_is_refused(
    server: Server, path: str, body: dict[str, Any], field: str
) -> None:
    answer = server.http.post(f"{path}/analyses/triangles", json=body)
    assert refused(answer, 422, "invalid-value")["field"] == field


@pytest.mark.parametrize(
    ("line", "change", "reason"),
    [
        (16, ("0 if", "__import__('os').system('id') if"), "a call of"),
        (19, ("source_value + 1", "source_value.__class__"), "source_value.__class__"),
        (19, ("source_value + 1", "gather(source_value)"), "a call of"),
        (8, ('"int32"', '"int; system()"'), "dtype"),
        (5, ("class Hops:", "class Hops(int):"), "without bases"),
    ],
)
def test_a_refusal_names_line_and_reason(
    server: Server, line: int, change: tuple[str, str], reason: str
) -> None:
    answer = server.http.put("/programs/bad", json={"source": HOPS.replace(*change)})
    found = refused(answer, 422, "program-refused")
    assert found["line"] == line, found
    assert reason in found["detail"]
    assert server.http.get("/programs/bad").status_code == 404


@pytest.mark.parametrize("name", ["levels", "a b", "-x", "x" * 65])
def test_a_name_is_plain_and_of_no_built_in_program(server: Server, name: str) -> None:
    answer = server.http.put(f"/programs/{name}", json={"source": HOPS})
    assert refused(answer, 422, "invalid-value")["field"] == "name"


def test_a_fresh_analysis_runs_what_is_put_in_its_place_and_fails_without(server: Server) -> None:
    graph = server.new_graph()
    server.http.post(f"{graph}/batches", json={"insert": EDGES}).raise_for_status()
    put(server, "mine", HOPS)
    one = analyse(server, graph, "mine", parameters={"source": "a"}, fresh=True)
    finished(server, one)
    assert values(server, one)["e"] == 4
    put(server, "mine", HOPS.replace("source_value + 1", "source_value + 2"))
    receipt = server.http.post(f"{graph}/batches", json={"insert": [["e", "v"]]}).json()
    found = finished(server, one, receipt["version"])
    assert not found.receipt.continued
    assert values(server, one)["v"] == 10
    server.http.delete("/programs/mine").raise_for_status()
    server.http.post(f"{graph}/batches", json={"insert": [["v", "u"]]}).raise_for_status()
    end = time.monotonic() + 60
    while (found := state(server, one)).state != "failed" and time.monotonic() < end:
        time.sleep(0.05)
    assert found.problem.field == "program"


def test_programs_and_what_runs_them_survive_a_restart_and_a_backup(tmp_path: Path) -> None:
    data, saved, again = (tmp_path / name for name in ("data", "saved", "again"))
    with running(data, programs=True) as server:
        graph = server.new_graph()
        server.http.post(f"{graph}/batches", json={"insert": EDGES}).raise_for_status()
        put(server, "hops", HOPS)
        limits, given = {"supersteps": 50, "seconds": 2.0, "memory": None}, {"source": "a"}
        body = {"parameters": given, "fresh": True, "mode": "asynchronous", "limits": limits}
        one = analyse(server, graph, "hops", **body)
        finished(server, one)
        backup(data, saved)
    restore(saved, again)
    for place in (data, again):
        with running(place, programs=True) as server:
            found = finished(server, one)
            assert (found.mode, found.limits.model_dump()) == ("asynchronous", limits)
            assert values(server, one)["e"] == 4
    with running(data) as server:  # programs are off
        assert state(server, one, wait=60).problem.type.endswith("programs-off")
        assert server.http.get("/programs/hops").json()["source"] == HOPS
        answer = server.http.put("/programs/hops", json={"source": HOPS})
        assert refused(answer, 403, "programs-off")
        assert refused(server.http.post(f"{graph}/analyses/hops", json=body), 403, "programs-off")
        assert server.http.delete("/programs/hops").status_code == 204
    assert json.loads((data / programs.FILE).read_text())["programs"] == {}


def test_a_program_that_a_release_refuses_stays_and_does_not_run(tmp_path: Path) -> None:
    stored = {"source": HOPS.replace("FAR", "eval(1)"), "created": 1.0}
    file = tmp_path / programs.FILE
    file.write_text(json.dumps({"format": 1, "programs": {"old": stored}}))
    with running(tmp_path, programs=True) as server:
        found = ProgramInfo.model_validate_json(server.http.get("/programs/old").content)
        assert "line 2" in found.refusal
        answer = server.http.post("/graphs/default/analyses/old")
        assert "cannot be run" in refused(answer, 422, "program-refused")["detail"]
    file.write_text('{"format": 1, "programs": {"old": {"source": 3, "created": 1.0}}}')
    with pytest.raises(FileDamaged, match=r"programs\.old\.source 3"):
        programs.read_programs(tmp_path)


def test_a_compiler_that_takes_too_much_is_ended_and_nothing_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\nulimit -t 1\nwhile true; do true; done\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    own = HOPS.replace("source_value + 1", "source_value + 77")
    with running(tmp_path / "data", programs=True) as server:
        answer = server.http.put("/programs/large", json={"source": own})
        found = refused(answer, 503, "backend-unavailable")
        assert "program 'large' was not compiled within 300 s and 4 GiB" in found["detail"]
        assert server.http.get("/programs/large").status_code == 404
        server.http.get("/graphs/default/top").raise_for_status()


def test_there_are_at_most_so_many_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "MOST", 2)
    with running(tmp_path, programs=True) as server:
        for name in ("one", "two", "one"):
            put(server, name, HOPS)
        answer = server.http.put("/programs/three", json={"source": HOPS})
        assert refused(answer, 507, "too-many-programs")
        assert len(server.http.get("/programs").json()["programs"]) == 2


def test_scopes(tmp_path: Path) -> None:
    key = "x" * 40
    with running(tmp_path, programs=True, api_key=key) as server:
        http, admin = server.http, {"Authorization": f"Bearer {key}"}

        def with_scope(scope: str, graphs: list[str] | None = None) -> dict[str, str]:
            body = {"name": scope, "scope": scope, "graphs": graphs}
            created = http.post("/keys", json=body, headers=admin)
            return {"Authorization": f"Bearer {created.json()['key']}"}

        write, some = with_scope("write"), with_scope("admin", ["default"])
        for headers in (write, some):
            answer = http.put("/programs/hops", json={"source": HOPS}, headers=headers)
            assert refused(answer, 403, "forbidden")
        assert http.put("/programs/hops", json={"source": HOPS}, headers=admin).status_code == 201
        assert http.get("/programs/hops", headers=with_scope("read")).status_code == 200
        assert http.delete("/programs/hops", headers=write).status_code == 403
        http.post(
            "/graphs/default/batches", json={"insert": EDGES}, headers=write
        ).raise_for_status()
        started = http.post(
            "/graphs/default/analyses/hops", json={"parameters": {"source": "a"}}, headers=write
        )
        assert started.status_code == 202
        assert math.isfinite(http.get("/programs/hops", headers=write).json()["created"])


def test_a_lower_limit_of_the_server_counts_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path, programs=True, max_program_seconds=60.0) as server:
        graph = server.new_graph()
        server.http.post(f"{graph}/batches", json={"insert": EDGES}).raise_for_status()
        put(server, "spinning", SPINNING)
        one = analyse(server, graph, "spinning", limits={"seconds": 50.0}, fresh=True)
    with running(tmp_path, programs=True, max_program_seconds=0.2) as server:
        found = state(server, one, wait=60)
        assert (found.state, found.problem.field) == ("failed", "limits.seconds")
        assert found.problem.value == 0.2
        assert 0.2 < found.progress.seconds < 50.0
