"""The ids that a batch gives to new keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from gpu import Engine, Options
from service.formats.columns import EdgeColumns
from service.pipeline.keyed_graph import KeyedGraph
from service.pipeline.vertex_sets import VertexSets
from service.vertex_keys import ARROW_TYPES, KeyKind, VertexTable


@pytest.mark.parametrize("kind", ["string", "integer"])
@pytest.mark.parametrize("distinct", [3, 1000, 200_000])
def test_ids_follow_the_position_in_the_batch(kind: KeyKind, distinct: int) -> None:
    generator = np.random.default_rng(distinct)
    engine = Engine(Options(), "cpu")
    keys = VertexTable(kind)
    keyed = KeyedGraph("g", engine, keys, VertexSets("g", {}))
    seen: dict[int, int] = {}
    for count in (1, 50, 150_000, 0):
        ends = generator.integers(0, distinct, (count, 2))
        vertices = generator.integers(0, 2 * distinct, 20)
        for key in [*ends.ravel().tolist(), *vertices.tolist()]:
            seen.setdefault(key, len(seen))

        def column(numbers: np.ndarray) -> pa.Array:
            return pa.array(numbers.astype(np.int64)).cast(ARROW_TYPES[kind])

        nothing = column(np.empty(0))
        keyed.apply(
            EdgeColumns(column(ends[:, 0]), column(ends[:, 1]), nothing, nothing, column(vertices))
        )
        found = keys.state.lookup(column(np.array(list(seen))))
        assert found.tolist() == list(seen.values())
        assert engine.vertices == keys.state.limit == len(seen)
