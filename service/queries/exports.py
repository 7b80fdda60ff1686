"""The ranks of a view, and the edges of a graph, as Arrow tables in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from gpu import CapturedEdges
from service.queries.view import View
from service.vertex_keys import ARROW_TYPES, VertexKeys

PIECE_ROWS = 1 << 17
"""Rows of a piece: their keys and their encoding are in memory at a time."""


@dataclass(frozen=True, slots=True)
class Export:
    """A table that is made while it is read, once.

    facts   members of every row, by name, which are in the schema's metadata
    pieces  record batches of at most PIECE_ROWS rows
    """

    schema: pa.Schema
    facts: dict[str, int | float]
    pieces: Iterator[pa.RecordBatch]


def ranks_export(view: View) -> Export:
    """Columns vertex and rank, by id. Copies the ranks to the host: 8 bytes a vertex.

    Raises OutOfMemory, DeviceLost.
    """
    facts = {"version": view.version, "revision": view.revision, "error_bound": view.error_bound}
    fields = {"vertex": ARROW_TYPES[view.keys.kind], "rank": pa.float64()}
    schema = _schema(fields, facts)
    ranks = view.ranks.to_numpy()  # here, so that an error is the response

    def pieces() -> Iterator[pa.RecordBatch]:
        for first in range(0, len(ranks), PIECE_ROWS):
            ids = view.keys.vertices(first, first + PIECE_ROWS)
            yield pa.record_batch([view.keys.keys(ids), pa.array(ranks[ids])], schema=schema)

    return Export(schema, facts, pieces())


def edges_export(edges: CapturedEdges, keys: VertexKeys, version: int, weighted: bool) -> Export:
    """Columns source, target and, of a weighted graph, weight. The edges of a source follow each
    other.

    version  of the graph when the edges were captured
    """
    facts: dict[str, int | float] = {"version": version}
    key = ARROW_TYPES[keys.kind]
    fields = {"source": key, "target": key}
    if weighted:
        fields["weight"] = pa.float32()
    schema = _schema(fields, facts)

    def pieces() -> Iterator[pa.RecordBatch]:
        for block in edges.blocks():
            for first in range(0, len(block.sources), PIECE_ROWS):
                rows = slice(first, first + PIECE_ROWS)
                columns = [keys.keys(block.sources[rows]), keys.keys(block.targets[rows])]
                if block.weights is not None:
                    columns.append(pa.array(block.weights[rows]))
                yield pa.record_batch(columns, schema=schema)

    return Export(schema, facts, pieces())


def _schema(fields: dict[str, pa.DataType], facts: dict[str, int | float]) -> pa.Schema:
    metadata = {f"liverank.{name}": repr(value) for name, value in facts.items()}
    return pa.schema(
        [pa.field(name, kind, nullable=False) for name, kind in fields.items()], metadata
    )
