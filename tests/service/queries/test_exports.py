"""Tables of ranks and edges: pieces, order and weights."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import orjson
import pyarrow as pa
import pytest

from liverank_gpu import EdgeBatch, Engine, Options
from liverank_service.pipeline.edge_reading import Subgraph
from liverank_service.queries import exports
from liverank_service.queries.exports import edges_export, ranks_export
from liverank_service.queries.view import View
from liverank_service.vertex_keys import VertexKeys, VertexTable

EDGES = {(0, 1): 0.5, (1, 2): 2.0, (2, 0): 1.25, (3, 3): 4.0, (0, 3): 1.0}


def graph(weighted: bool) -> tuple[Engine, VertexKeys]:
    engine, keys = Engine(Options(weighted=weighted), "cpu"), VertexTable("string")
    keys.assign(pa.array([f"v{vertex}" for vertex in range(5)]))
    ends = np.array(list(EDGES))
    weights = np.array(list(EDGES.values()), np.float32) if weighted else None
    engine.apply(EdgeBatch(ends[:, 0], ends[:, 1], weights=weights, vertices=5))
    engine.update()
    return engine, keys.state


@pytest.mark.parametrize("rows", [2, 1000])
@pytest.mark.parametrize("weighted", [False, True])
def test_edges_have_the_weights_of_a_weighted_graph(weighted: bool, rows: int) -> None:
    engine, keys = graph(weighted)
    captured = engine.edge_reader.capture(engine.edge_reader.buffer())
    with patch.object(exports, "PIECE_ROWS", rows):
        export = edges_export(captured, keys, 7, weighted)
        pieces = list(export.pieces)
    assert max(len(piece) for piece in pieces) <= rows
    table = pa.Table.from_batches(pieces, export.schema)
    assert table.column_names == ["source", "target"] + ["weight"] * weighted
    assert table.schema.metadata == {b"liverank.version": b"7"}
    found = {
        (int(row["source"][1:]), int(row["target"][1:])): row.get("weight", 1.0)
        for row in table.to_pylist()
    }
    assert found == {edge: weight if weighted else 1.0 for edge, weight in EDGES.items()}


@pytest.mark.parametrize("weighted", [False, True])
def test_a_subgraph_has_the_weights_of_its_edges(weighted: bool) -> None:
    engine, keys = graph(weighted)
    ids = np.array([0, 1, 3])
    out = engine.edge_reader.out_edges(ids, 100)
    document = orjson.loads(orjson.dumps(Subgraph(3, keys, ids, pa.array(["x"]), out).document()))
    assert (document["version"], document["unknown"]) == (3, ["x"])
    assert document["vertices"] == ["v0", "v1", "v3"]
    weights = document.get("weights", [1.0] * 3)
    found = dict(zip(map(tuple, document["edges"]), weights, strict=True))
    expected = {("v0", "v1"): 0.5, ("v3", "v3"): 4.0, ("v0", "v3"): 1.0}
    assert found == {edge: weight if weighted else 1.0 for edge, weight in expected.items()}
    assert ("weights" in document) == weighted


def test_ranks_are_those_of_the_view_in_order_of_ids() -> None:
    engine, keys = graph(False)
    # known to the table, but not to the view
    keys._table.assign(pa.array(["later"]))
    view = View("test", 4, 9, 1e-7, 5, 5, {}, engine.publish(), keys)
    with patch.object(exports, "PIECE_ROWS", 2):
        export = ranks_export(view)
        pieces = list(export.pieces)
    table = pa.Table.from_batches(pieces, export.schema)
    assert [len(piece) for piece in pieces] == [2, 2, 1]
    assert table["vertex"].to_pylist() == ["v0", "v1", "v2", "v3", "v4"]
    assert table["rank"].to_numpy().tolist() == engine.publish().to_numpy().tolist()
    assert export.facts == {"version": 4, "revision": 9, "error_bound": 1e-7}
