"""Analyses: both clients start them, wait for them and read their answers."""

from __future__ import annotations

import asyncio

import pytest

from liverank import AsyncClient, Client, ServerError
from tests.service.server import Server

EDGES = [("a", "b"), ("b", "c"), ("x", "y")]


def test_a_program_runs_and_its_answer_is_read(server: Server) -> None:
    with Client(str(server.http.base_url)) as client:
        client.create("with-analyses")
        client.insert("with-analyses", EDGES)
        identity = client.start_analysis(
            "with-analyses", "levels", parameters={"source": "a"}, fresh=True
        )
        found = client.analysis("with-analyses", identity, wait=60)
        assert (found.state, found.version, found.fresh) == ("finished", 1, True)
        assert client.value("with-analyses", identity, "y").value is None
        receipt = client.insert("with-analyses", [("c", "x")])
        found = client.analysis("with-analyses", identity, wait=60, min_version=receipt.version)
        assert found.receipt is not None
        assert found.receipt.continued
        assert client.value("with-analyses", identity, "y").value == 4
        (best,) = client.top_values("with-analyses", identity, 1).values
        assert (best.vertex, best.value) == ("y", 4)
        table = client.export_values("with-analyses", identity).to_arrow()
        assert table.column_names == ["vertex", "value"]
        assert table.num_rows == 5
        assert [one.id for one in client.analyses("with-analyses")] == [identity]
        client.drop_analysis("with-analyses", identity)
        with pytest.raises(ServerError) as refused:
            client.analysis("with-analyses", identity)
        assert refused.value.status == 404


def test_the_same_with_asyncio(server: Server) -> None:
    async def run() -> list[tuple[object, object]]:
        async with AsyncClient(str(server.http.base_url)) as client:
            await client.create("with-analyses-too")
            await client.insert("with-analyses-too", EDGES)
            identity = await client.start_analysis("with-analyses-too", "components")
            await client.analysis("with-analyses-too", identity, wait=60)
            table = await client.export_values("with-analyses-too", identity).to_arrow()
            assert table.num_rows == 5
            top = await client.top_values("with-analyses-too", identity)
            return [(place.vertex, place.value) for place in top.values]

    assert asyncio.run(run()) == [("a", 3), ("x", 2)]


def test_values_of_edges(server: Server) -> None:
    graph = "with-trusses"
    with Client(str(server.http.base_url)) as client:
        client.create(graph)
        client.insert(graph, [*EDGES, ("c", "a")])
        identity = client.start_analysis(graph, "trussness")
        client.analysis(graph, identity, wait=60)
        (best,) = client.top_values(graph, identity, 1).edges
        assert ({best.source, best.target} < {"a", "b", "c"}, best.value) == (True, 3)
        table = client.export_values(graph, identity).to_arrow()
        assert table.column_names == ["source", "target", "value"]
        assert table.num_rows == 4
        identity_of_graphs = client.start_analysis(graph, "dn-graphs")
        client.analysis(graph, identity_of_graphs, wait=60)
        (densest,) = client.top_values(graph, identity_of_graphs, 1).values
        assert (densest.value, densest.vertex in {"a", "b", "c"}) == (1, True)
        assert client.value(graph, identity_of_graphs, "a").value == densest.vertex
        table = client.export_values(graph, identity_of_graphs).to_arrow()
        assert table.column_names == ["source", "target", "value", "lambda"]

    async def run() -> list[object]:
        async with AsyncClient(str(server.http.base_url)) as client:
            top = await client.top_values(graph, identity, 1, order="smallest")
            assert top.values == []
            (edge,) = top.edges
            value = await client.value(graph, identity, edge.source)
            return [edge.source, edge.target, edge.value, value.value]

    assert asyncio.run(run()) == ["x", "y", 2, 2]
