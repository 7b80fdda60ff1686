"""The ranks of a view, the edges of a graph and the values of an analysis, as Arrow tables in
pieces; the answers to personalized queries as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from liverank.options import given
from liverank_gpu import CapturedEdges
from liverank_service.queries.analyses import AnalysisAnswer
from liverank_service.queries.model import QueryResponse, members_of
from liverank_service.queries.view import Places, View
from liverank_service.vertex_keys import ARROW_TYPES, VertexKeys

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
    facts = view.facts
    fields = {"vertex": ARROW_TYPES[view.keys.kind], "rank": pa.float64()}
    schema = _schema(fields, facts)
    ranks = view.ranks.to_numpy()  # here, so that an error is the response

    def pieces() -> Iterator[pa.RecordBatch]:
        for first in range(0, len(ranks), PIECE_ROWS):
            ids = view.keys.vertices(first, first + PIECE_ROWS)
            yield pa.record_batch([view.keys.keys(ids), pa.array(ranks[ids])], schema=schema)

    return Export(schema, facts, pieces())


def top_export(view: View, places: Places) -> Export:
    """Columns vertex and rank, best first, of the first places."""
    facts = view.facts
    kind = ARROW_TYPES[view.keys.kind]
    schema = _schema({"vertex": kind, "rank": pa.float64()}, facts)
    columns = [pa.array(places.vertices, kind), pa.array(places.ranks, pa.float64())]
    return Export(schema, facts, iter([pa.record_batch(columns, schema=schema)]))


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


def values_export(answer: AnalysisAnswer) -> Export:
    """Columns vertex and value, by id, null for a vertex that has no value, and predecessor of
    paths; of edges source, target and value, and of DN-graphs lambda; and the other numbers of
    records.
    """
    facts: dict[str, int | float] = {"version": answer.version}
    has_nulls = answer.edges is None and answer.missing is not None
    schema = _schema(answer.fields, facts, {"value", *answer.others} if has_nulls else set())

    def pieces() -> Iterator[pa.RecordBatch]:
        for first in range(0, answer.limit, PIECE_ROWS):
            columns = answer.columns(first, first + PIECE_ROWS)
            yield pa.record_batch(columns, schema=schema)

    return Export(schema, facts, pieces())


def answers_stream(found: QueryResponse, labels: Sequence[Any]) -> bytes:
    """An Arrow stream with the columns query, vertex and rank: the places of the queries, one query
    after the other, best first. The metadata has version and revision, and as `liverank.answers`,
    in JSON, what else is known of each answer.

    labels  of the queries: integers or strings
    """
    answers = [
        {
            "query": label,
            **members_of(answer.places, answer.ignored),
            **given(trace=answer.places.trace),
        }
        for label, answer in zip(labels, found.answers, strict=True)
    ]
    names = pa.array(labels)
    counts = [len(answer.vertices) for answer in found.answers]
    columns = [
        names.take(pa.array(np.repeat(np.arange(len(counts)), counts))),
        pa.concat_arrays([answer.vertices for answer in found.answers]),
        pa.array(np.concatenate([answer.places.ranks for answer in found.answers])),
    ]
    fields = dict(
        zip(("query", "vertex", "rank"), (column.type for column in columns), strict=True)
    )
    schema = _schema(fields, {"version": found.version, "revision": found.revision})
    schema = schema.with_metadata({**schema.metadata, "liverank.answers": orjson.dumps(answers)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _schema(
    fields: dict[str, pa.DataType], facts: dict[str, int | float], nullable: Set[str] = frozenset()
) -> pa.Schema:
    metadata = {f"liverank.{name}": repr(value) for name, value in facts.items()}
    return pa.schema(
        [pa.field(name, kind, nullable=name in nullable) for name, kind in fields.items()], metadata
    )
