"""Exports of the client: to files, to Arrow and streamed; broken ones leave nothing behind."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from liverank import AsyncClient, Client, InvalidInput, ServerError, ServerUnreachable
from liverank.client.exports import MEDIA_TYPES
from tests.service.server import Server

EDGES = [("a", "b"), ("b", "c"), ("c", "a"), ("a", "c")]


@pytest.fixture(scope="module")
def graph(server: Server) -> str:
    name = server.new_graph().rsplit("/", 1)[1]
    with client_of(server) as client:
        client.send(name, insert=EDGES)
    return name


def client_of(server: Server) -> Client:
    return Client(str(server.http.base_url))


def test_exports_become_tables(server: Server, graph: str) -> None:
    with client_of(server) as client:
        edges = client.export_edges(graph).to_arrow()
        assert sorted(zip(*(column.to_pylist() for column in edges.columns), strict=True)) == (
            sorted(EDGES)
        )
        # whatever the format
        export = client.export_ranks(graph, format="csv")
        ranks = export.to_arrow()
        assert ranks.schema.metadata[b"liverank.version"] == b"1"
        expected = client.ranks(graph, ranks["vertex"]).ranks
        assert ranks["rank"].to_pylist() == expected
        assert export.to_pandas()["rank"].tolist() == expected
        assert pl.DataFrame(export)["rank"].to_list() == expected


@pytest.mark.parametrize("format", MEDIA_TYPES)
def test_an_export_is_saved_as_it_is_streamed(
    server: Server,
    graph: str,
    tmp_path: Path,
    format: Any,  # noqa: A002
) -> None:
    with client_of(server) as client:
        known = client.graph(graph)
        path = tmp_path / "ranks"
        saved = client.export_ranks(graph, format=format).save(path)
        assert saved.bytes == path.stat().st_size
        assert (saved.version, saved.revision, saved.error_bound) == (
            known.version,
            known.revision,
            known.error_bound,
        )
        into = io.BytesIO()
        edges = client.export_edges(graph, format=format).save(into)
        assert (edges.version, edges.revision, edges.error_bound) == (1, None, None)
        assert edges.bytes == len(into.getvalue())
        streamed = b"".join(client.export_ranks(graph, format=format))
    if format == "parquet":
        tables = (
            pyarrow.parquet.read_table(io.BytesIO(each)) for each in (streamed, path.read_bytes())
        )
        one, other = tables
        assert one.equals(other)
    else:
        assert streamed == path.read_bytes()


def test_an_asynchronous_client_exports_the_same(
    server: Server, graph: str, tmp_path: Path
) -> None:
    async def exported() -> tuple[pa.Table, bytes, int]:
        async with AsyncClient(str(server.http.base_url)) as client:
            table = await client.export_edges(graph).to_arrow()
            pieces = [piece async for piece in client.export_edges(graph, format="csv")]
            saved = await client.export_edges(graph, format="csv").save(tmp_path / "edges.csv")
            return table, b"".join(pieces), saved.bytes

    table, streamed, size = asyncio.run(exported())
    with client_of(server) as client:
        assert table.equals(client.export_edges(graph).to_arrow())
        assert streamed == b"".join(client.export_edges(graph, format="csv"))
    assert (tmp_path / "edges.csv").read_bytes() == streamed
    assert size == len(streamed)


def test_an_incomplete_export_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    class Broken(httpx.SyncByteStream):
        def __iter__(self) -> Any:
            yield b"source,target\n"
            raise httpx.RemoteProtocolError("peer closed connection")

    def answer(_: httpx.Request) -> httpx.Response:
        headers = {"Liverank-Version": "1", "Content-Type": "text/csv"}
        return httpx.Response(200, stream=Broken(), headers=headers)

    client = Client("http://liverank.test", transport=httpx.MockTransport(answer))
    path = tmp_path / "edges.csv"
    for use in (lambda each: each.save(path), list):
        with pytest.raises(ServerUnreachable, match="peer closed connection"):
            use(client.export_edges("g", format="csv"))
    assert not list(tmp_path.iterdir())
    path.write_text("before")
    path.chmod(0o640)
    with pytest.raises(ServerUnreachable):
        client.export_edges("g", format="csv").save(path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_refusals_are_raised_before_a_file_is_opened(
    server: Server, graph: str, tmp_path: Path
) -> None:
    with client_of(server) as client:
        with pytest.raises(ServerError) as caught:
            client.export_edges("nothing").save(tmp_path / "edges")
        assert caught.value.status == 404
        with pytest.raises(ServerError) as caught:
            client.export_ranks(graph, min_version=99, timeout=0.1).to_arrow()
        assert caught.value.status == 504
        with pytest.raises(InvalidInput, match="format: expected one of csv"):
            client.export_ranks(graph, format="xml")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_neighbours_and_subgraphs_are_read(server: Server, graph: str) -> None:
    with client_of(server) as client:
        out = client.neighbors(graph, "a", min_version=1)
        assert sorted(str(each.vertex) for each in out.neighbors) == ["b", "c"]
        assert (out.degree, out.direction) == (2, "out")
        assert client.neighbors(graph, "a", "in", 5).neighbors[0].vertex == "c"
        found = client.subgraph(graph, ["a", "c", "z"])
        assert sorted(found.edges) == [("a", "c"), ("c", "a")]
        assert (found.unknown, found.weights) == (["z"], None)
