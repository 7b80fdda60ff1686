"""Exports of ranks and edges over HTTP."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from liverank_gpu import OutOfMemory
from liverank_service.formats import ARROW_STREAM, CSV, EXPORTED, NDJSON, PARQUET
from liverank_service.http.responses import tagged_response
from tests.service.server import Server, connection_to, running, wait_for

EDGES = [[f"v{i}", f"v{(i * i + 1) % 50}"] for i in range(60)] + [["v1", "v1"], ["k,\n", "v2"]]
DISTINCT = {tuple(edge) for edge in EDGES}


@pytest.fixture(scope="module")
def path(server: Server) -> str:
    created = server.new_graph()
    assert server.http.post(f"{created}/batches", json={"insert": EDGES}).status_code == 200
    return created


def table_of(answer: httpx.Response) -> pa.Table:
    content, kind = answer.content, answer.headers["content-type"].split(";")[0]
    if kind == ARROW_STREAM:
        return pa.ipc.open_stream(content).read_all()
    if kind == PARQUET:
        return pyarrow.parquet.read_table(io.BytesIO(content))
    if kind == NDJSON:
        return pa.Table.from_pylist([json.loads(line) for line in content.splitlines()])
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    return pyarrow.csv.read_csv(io.BytesIO(content), parse_options=options)


def export(server: Server, url: str, **headers: str) -> httpx.Response:
    return server.http.get(url, headers={name.replace("_", "-"): v for name, v in headers.items()})


@pytest.mark.parametrize("coding", ["identity", "gzip"])
@pytest.mark.parametrize("media_type", EXPORTED)
def test_all_ranks_are_those_of_single_reads(
    server: Server, path: str, media_type: str, coding: str
) -> None:
    answer = export(server, f"{path}/ranks", Accept=media_type, Accept_Encoding=coding)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(media_type)
    is_coded = coding == "gzip" and media_type != PARQUET
    assert answer.headers.get("content-encoding") == ("gzip" if is_coded else None)
    rows = table_of(answer).to_pylist()
    vertices = [row["vertex"] for row in rows]
    asked = server.http.post(f"{path}/ranks", json={"vertices": vertices}).json()
    assert [row["rank"] for row in rows] == asked["ranks"]
    assert len(set(vertices)) == len(rows) == server.http.get(path).json()["vertices"]
    facts = {name: asked[name] for name in ("version", "revision", "error_bound")}
    given = {name: answer.headers[f"Liverank-{name.replace('_', '-')}"] for name in facts}
    assert given == {name: str(value) for name, value in facts.items()}
    if media_type in (ARROW_STREAM, PARQUET):
        metadata = table_of(answer).schema.metadata
        assert metadata[b"liverank.revision"] == str(asked["revision"]).encode()


def test_ranks_that_do_not_fit_into_memory_are_an_error_before_the_response(
    server: Server, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = server.catalog.get(path.rsplit("/", 1)[1]).pipeline.view

    def fail(_: object) -> None:
        raise OutOfMemory("a copy of the ranks", 1000, 10)

    monkeypatch.setattr(type(view.ranks), "to_numpy", fail)
    answer = export(server, f"{path}/ranks")
    assert answer.status_code == 507
    assert answer.json()["type"] == "urn:liverank:problem:out-of-memory"


@pytest.mark.parametrize("media_type", EXPORTED)
def test_all_edges_are_those_of_the_graph(server: Server, path: str, media_type: str) -> None:
    answer = export(server, f"{path}/edges", Accept=media_type)
    rows = table_of(answer).to_pylist()
    assert {(row["source"], row["target"]) for row in rows} == DISTINCT
    assert len(rows) == len(DISTINCT)
    assert answer.headers["Liverank-Version"] == "1"


def test_zstd_is_preferred_among_codings(server: Server, path: str) -> None:
    with server.http.stream(
        "GET", f"{path}/ranks", headers={"Accept-Encoding": "gzip, zstd"}
    ) as answer:
        assert answer.headers["content-encoding"] == "zstd"
        content = pa.CompressedInputStream(
            pa.BufferReader(b"".join(answer.iter_raw())), "zstd"
        ).read()
    assert content == export(server, f"{path}/ranks", Accept_Encoding="identity").content


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("*/*", CSV),
        ("application/*", NDJSON),
        (f"text/csv;q=0.5, {PARQUET}", PARQUET),
        (f"{ARROW_STREAM};q=0.2, */*;q=0.1", ARROW_STREAM),
        ("text/csv;q=0, */*", NDJSON),
        (f"text/html, {NDJSON};q=0.9, text/*;q=0.5", NDJSON),
        ("TEXT/CSV", CSV),
        ("", CSV),
    ],
)
def test_the_form_is_negotiated(server: Server, path: str, accept: str, chosen: str) -> None:
    assert export(server, f"{path}/ranks", Accept=accept).headers["content-type"].startswith(chosen)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Accept", "application/json"),
        ("Accept", "text/csv;q=0"),
        ("Accept", "text/csv;q=2, text/html"),
        ("Accept", "*/*;q=0"),
        ("Accept-Encoding", "br, identity;q=0"),
        ("Accept-Encoding", "*;q=0"),
    ],
)
def test_a_client_that_accepts_no_form_is_told_which_there_are(
    server: Server, path: str, header: str, value: str
) -> None:
    for table in ("ranks", "edges"):
        answer = server.http.get(f"{path}/{table}", headers={header: value})
        assert answer.status_code == 406
        problem = answer.json()
        assert problem["type"].endswith("not-acceptable")
        assert (problem["field"], problem["value"]) == (header, value)
        expected = list(EXPORTED) if header == "Accept" else ["zstd", "gzip", "identity"]
        assert problem["accepted"] == expected


@pytest.mark.parametrize(
    ("value", "coding"),
    [
        ("gzip", "gzip"),
        ("gzip;q=0.5, zstd;q=0.4", "gzip"),
        ("gzip;q=0.5, identity", None),
        ("*", None),
        ("identity;q=0, *", "zstd"),
        ("br", None),
        ("gzip;q=0", None),
        ("zstd;q=0, gzip, identity;q=0", "gzip"),
    ],
)
def test_the_coding_is_negotiated(
    server: Server, path: str, value: str, coding: str | None
) -> None:
    with server.http.stream("GET", f"{path}/ranks", headers={"Accept-Encoding": value}) as answer:
        assert answer.headers.get("content-encoding") == coding


@pytest.mark.parametrize("coding", ["identity", "gzip"])
@pytest.mark.parametrize("media_type", EXPORTED)
def test_the_first_places_are_a_table_where_one_is_asked_for(
    server: Server, path: str, media_type: str, coding: str
) -> None:
    places = server.http.get(f"{path}/top?k=3&offset=1").json()
    url = f"{path}/top?k=3&offset=1"
    answer = export(server, url, Accept=media_type, Accept_Encoding=coding)
    assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, media_type)
    is_coded = coding == "gzip" and media_type != PARQUET
    assert answer.headers.get("content-encoding") == ("gzip" if is_coded else None)
    assert table_of(answer).to_pylist() == places["ranks"]
    assert int(answer.headers["liverank-version"]) == places["version"]
    assert answer.headers["etag"] != server.http.get(url).headers["etag"]
    again = export(
        server,
        url,
        Accept=media_type,
        Accept_Encoding=coding,
        If_None_Match=answer.headers["etag"],
    )
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("*/*", "application/json"),
        ("", "application/json"),
        ("text/html, application/xhtml+xml, */*;q=0.8", "application/json"),
        ("application/json, text/csv", "application/json"),
        ("text/csv, application/json;q=0.9", CSV),
    ],
)
def test_the_first_places_are_json_unless_a_table_is_preferred(
    server: Server, path: str, accept: str, chosen: str
) -> None:
    answer = export(server, f"{path}/top?k=3", Accept=accept)
    assert answer.headers["content-type"].split(";")[0] == chosen
    refused = export(server, f"{path}/top?k=3", Accept="text/html")
    assert refused.status_code == 406
    assert refused.json()["accepted"] == ["application/json", *EXPORTED]


# Conditional reads


def test_the_sources_have_a_tag(server: Server) -> None:
    path = server.new_graph()
    first = server.http.get(f"{path}/sources")
    again = export(server, f"{path}/sources", If_None_Match=first.headers["etag"])
    assert (again.status_code, again.content) == (304, b"")
    position = {"source": "s", "partition": "0", "to": "1"}
    sent = server.http.post(f"{path}/batches", params=position, json={"insert": [["a", "b"]]})
    assert sent.status_code == 200
    changed = export(server, f"{path}/sources", If_None_Match=first.headers["etag"])
    assert (changed.status_code, len(changed.json()["sources"])) == (200, 1)


def test_tags_differ_by_form_parameters_and_graph(server: Server, path: str) -> None:
    tags = [
        export(server, f"{path}/ranks", Accept=media_type, Accept_Encoding=coding).headers["etag"]
        for media_type in EXPORTED
        for coding in ("identity", "gzip")
        if (media_type, coding) != (PARQUET, "gzip")  # which has one form
    ]
    tags += [server.http.get(f"{path}/{read}").headers["etag"] for read in ("top?k=1", "top?k=2")]
    again = server.new_graph()
    server.http.post(f"{again}/batches", json={"insert": EDGES})
    tags.append(server.http.get(f"{again}/top?k=1").headers["etag"])
    assert len(set(tags)) == len(tags)


def test_a_recomputation_has_another_tag_and_the_same_edges(server: Server) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": EDGES})
    before = [server.http.get(f"{path}/{read}").headers["etag"] for read in ("ranks", "edges")]
    server.http.post(f"{path}/recompute")
    after = [server.http.get(f"{path}/{read}").headers["etag"] for read in ("ranks", "edges")]
    assert before[0] != after[0]
    assert before[1] == after[1]


def test_tags_do_not_outlive_a_restart_or_a_dropped_graph(tmp_path: Any) -> None:
    with running(tmp_path) as server:
        server.http.post("/graphs/default/batches", json={"insert": EDGES})
        before = server.http.get("/graphs/default/ranks").headers["etag"]
        server.http.put("/graphs/g")
        dropped = server.http.get("/graphs/g/edges").headers["etag"]
        server.http.delete("/graphs/g")
        server.http.put("/graphs/g")
        assert server.http.get("/graphs/g/edges").headers["etag"] != dropped
    with running(tmp_path) as server:
        wait_for(lambda: server.http.get("/graphs/default/ranks").status_code == 200)
        assert server.http.get("/graphs/default/ranks").headers["etag"] != before


# One revision, beside the writer, within limits


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a graph whose export exceeds all buffers of a connection."""
    data = tmp_path_factory.mktemp("data")
    with running(data, max_exports=2, slow_client_seconds=1.0) as server:
        server.http.put("/graphs/g", json={"keys": "integer"})
        numbers = np.random.default_rng(5).integers(0, 1 << 20, (2, 600_000))
        sink = io.BytesIO()
        table = pa.table({"source": numbers[0], "target": numbers[1]})
        pyarrow.parquet.write_table(table, sink)
        answer = server.http.post(
            "/graphs/g/batches", content=sink.getvalue(), headers={"Content-Type": PARQUET}
        )
        assert answer.status_code == 200, answer.text
        yield server


def test_an_export_is_of_one_version_while_batches_are_applied(large: Server) -> None:
    headers = {"Accept": NDJSON, "Accept-Encoding": "identity"}
    for table in ("edges", "ranks"):
        known = large.http.get("/graphs/g").json()
        url = large.url(f"graphs/g/{table}")
        with httpx.stream("GET", url, headers=headers, timeout=60) as answer:
            pieces = answer.iter_raw()
            first = next(pieces)
            for each in range(3):
                batch = {"insert": [[2_000_000 + each + known["version"], 7]], "delete": [[7, 9]]}
                # applied while the export is not read
                assert large.http.post("/graphs/g/batches", json=batch).status_code == 200
            lines = first + b"".join(pieces)
            assert answer.headers["Liverank-Version"] == str(known["version"])
        expected = known["edges"] if table == "edges" else known["vertices"]
        assert lines.count(b"\n") == expected


def test_more_exports_than_the_limit_are_refused_and_then_not(large: Server) -> None:
    assert large.app.state.limit.exports == 0
    url = large.url("graphs/g/edges")
    with (
        httpx.stream("GET", url, timeout=60) as one,
        httpx.stream("GET", url, timeout=60) as other,
    ):
        assert (one.status_code, other.status_code) == (200, 200)
        third = large.http.get("/graphs/g/ranks")
        assert third.status_code == 503
        assert third.json()["detail"] == "too many exports; the limit is 2; retry later"
        assert int(third.headers["retry-after"]) > 0
        assert large.http.get("/graphs/g/top").status_code == 200
    wait_for(lambda: large.app.state.limit.exports == 0)
    assert large.http.get("/graphs/g/ranks").status_code == 200


def test_exports_of_one_version_share_a_copy(large: Server) -> None:
    edges = large.catalog.get("g").pipeline.edges
    copies: list[Any] = []
    threads = [threading.Thread(target=lambda: copies.append(edges.copy())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(copy) for copy in copies}) == 1
    large.http.post("/graphs/g/batches", json={"insert": [[1, 2]]})
    assert edges.copy() is not copies[0]
    assert edges.copy().version == copies[0].version + 1


def test_a_client_that_reads_too_slowly_is_cut_off(large: Server) -> None:
    with connection_to(large) as connection:
        connection.sendall(b"GET /graphs/g/edges HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_for(lambda: large.app.state.limit.exports == 1)
        started = time.monotonic()
        wait_for(lambda: large.app.state.limit.exports == 0)
        assert time.monotonic() - started > 0.5
        received = b""
        try:
            while piece := connection.recv(1 << 20):
                received += piece
        except ConnectionResetError:
            pass
        assert not received.endswith(b"0\r\n\r\n")  # so the client knows that it is incomplete


def test_a_client_that_disconnects_releases_its_copy(large: Server) -> None:
    with httpx.stream("GET", large.url("graphs/g/edges"), timeout=60) as answer:
        assert large.app.state.limit.exports == 1
        next(answer.iter_raw())
    wait_for(lambda: large.app.state.limit.exports == 0)


# Neighbours and subgraphs


def test_neighbours_are_read_in_both_directions(server: Server, path: str) -> None:
    for vertex in ("v1", "v2", "v10", "v59"):
        for direction, place in (("out", 0), ("in", 1)):
            answer = server.http.get(f"{path}/neighbors/{vertex}?direction={direction}").json()
            expected = {edge[1 - place] for edge in DISTINCT if edge[place] == vertex}
            assert {each["vertex"] for each in answer["neighbors"]} == expected
            assert answer["degree"] == len(expected) == len(answer["neighbors"])
            assert (answer["vertex"], answer["direction"]) == (vertex, direction)
            assert answer["version"] == 1


def test_few_neighbours_of_many_can_be_asked_for(server: Server, path: str) -> None:
    whole = server.http.get(f"{path}/neighbors/v2?direction=in").json()
    answer = server.http.get(f"{path}/neighbors/v2?direction=in&limit=2").json()
    assert answer["degree"] == whole["degree"] > 2
    assert len(answer["neighbors"]) == 2


@pytest.mark.parametrize("read", ["neighbors/v2?limit=5", "top?k=5", "top?k=5&among=some"])
def test_long_lists_are_not_made_on_the_event_loop(
    server: Server, path: str, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = f"liverank_service.http.routes.{'edges' if 'neighbors' in read else 'ranks'}"
    server.http.put(f"{path}/sets/some", json={"vertices": ["v1", "v2"]}).raise_for_status()
    server.http.get(f"{path}/top")
    names: list[str] = []

    def recorded(*given: Any) -> Any:
        names.append(threading.current_thread().name)
        return tagged_response(*given)

    monkeypatch.setattr(f"{made}.tagged_response", recorded)
    answer = server.http.get(f"{path}/{read}")
    monkeypatch.setattr(f"{made}.FEW_ROWS", 0)
    assert server.http.get(f"{path}/{read}").content == answer.content
    assert answer.status_code == 200
    assert (names[0] == "test-server") == ("among" not in read)
    assert names[1] != "test-server"


def test_neighbours_of_an_unknown_vertex_are_not_found(server: Server, path: str) -> None:
    assert server.http.get(f"{path}/neighbors/nobody").status_code == 404
    assert server.http.get(f"{path}/neighbors/v1?direction=both").status_code == 422
    assert server.http.get(f"{path}/neighbors/v1?limit=0").status_code == 422


def test_a_subgraph_has_the_edges_among_its_vertices(server: Server, path: str) -> None:
    vertices = [f"v{i}" for i in range(0, 50, 2)] + ["v1", "v1", "nobody"]
    answer = server.http.post(f"{path}/subgraph", json={"vertices": vertices}).json()
    members = set(vertices)
    expected = {edge for edge in DISTINCT if set(edge) <= members}
    assert {tuple(edge) for edge in answer["edges"]} == expected
    assert len(answer["edges"]) == len(expected)
    assert sorted(answer["vertices"]) == sorted(members - {"nobody"})
    assert answer["unknown"] == ["nobody"]
    empty = server.http.post(f"{path}/subgraph", json={"vertices": []}).json()
    assert (empty["vertices"], empty["edges"]) == ([], [])


def test_reads_of_edges_see_what_is_committed(server: Server) -> None:
    path = server.new_graph()
    for version in range(1, 6):
        edge = [f"s{version}", f"t{version}"]
        answer = server.http.post(f"{path}/batches?wait=durable", json={"insert": [edge]}).json()
        found = server.http.get(f"{path}/neighbors/{edge[0]}?min_version={version}").json()
        assert found["neighbors"] == [{"vertex": edge[1]}]
        assert found["version"] >= answer["version"] == version
        edges = table_of(server.http.get(f"{path}/edges?min_version={version}"))
        assert len(edges) == version
    late = server.http.get(f"{path}/edges?min_version=99&timeout=0.1")
    assert late.status_code == 504
