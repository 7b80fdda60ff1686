"""Compares what the decoder and a graph make of a body with independent results.

Each case is decoded like the body of a request. If that succeeds, other parsers read it again, and
it is applied to a small graph and to a set of edges. A case fails if an error is raised that is not
a 4xx response, if the parsers differ, or if the graph differs from the set, as after a batch that
was partly applied.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from liverank.choices import KeyKind
from liverank_gpu import EdgeBatch, Engine
from liverank_service.errors import BatchTooLarge, BodyTooLarge, FormatError, UnsupportedFormat
from liverank_service.formats.columns import EdgeColumns
from liverank_service.formats.decode import decode_batch
from liverank_service.formats.payload import decode_payload, encode_batch
from liverank_service.pipeline.batch import check_size

REFUSALS = (FormatError, UnsupportedFormat, BodyTooLarge, BatchTooLarge)
MOST_BYTES = 1 << 17
MOST_EDGES = 1000
MOST_KEY_BYTES = 4096

Key = str | int
Pairs = list[tuple[Key, Key]]


def decoded(content_type: str, body: bytes, kind: KeyKind) -> EdgeColumns | None:
    """The batch; None if it is refused. Raises errors that no client may cause."""
    try:
        columns = decode_batch(content_type, body, kind, MOST_BYTES)
        check_size(columns, MOST_EDGES, MOST_KEY_BYTES)
    except REFUSALS:
        return None
    assert decode_payload(encode_batch(columns)) == columns, "the journal would give another batch"
    expected = _read_again(content_type, body, kind)
    if expected is not None:
        assert _as_lists(columns) == expected, "another reader of the format reads another batch"
    return columns


def _as_lists(columns: EdgeColumns) -> tuple[Pairs, Pairs, list[Key]]:
    return (
        _pairs(columns.insert_sources, columns.insert_targets),
        _pairs(columns.delete_sources, columns.delete_targets),
        columns.vertices.to_pylist(),
    )


def _pairs(sources: pa.Array, targets: pa.Array) -> Pairs:
    return list(zip(sources.to_pylist(), targets.to_pylist(), strict=True))


def _read_again(
    content_type: str, body: bytes, kind: KeyKind
) -> tuple[Pairs, Pairs, list[Key]] | None:
    """Insertions, deletions and vertices by the standard library; None for the other formats."""
    media_type = content_type.split(";")[0].strip().lower()
    if media_type in ("application/json", ""):
        document = json.loads(body)
        edges = [_edges_of(document.get(name, [])) for name in ("insert", "delete")]
        return edges[0], edges[1], document.get("vertices", [])
    if media_type == "application/x-ndjson":
        rows = [json.loads(line) for line in body.split(b"\n") if line.strip()]
        inserted, deleted = (
            [
                (row["source"], row["target"])
                for row in rows
                if (row.get("operation") or "insert") == operation
            ]
            for operation in ("insert", "delete")
        )
        return inserted, deleted, []
    if media_type == "text/csv":
        lines = io.StringIO(body.decode("utf-8-sig"), newline="")
        header, *table = (row for row in csv.reader(lines) if row)
        rows = [dict(zip(header, row, strict=True)) for row in table]
        number = int if kind == "integer" else str
        inserted, deleted = (
            [
                (number(row["source"]), number(row["target"]))
                for row in rows
                if row.get("operation", "insert") == operation
            ]
            for operation in ("insert", "delete")
        )
        return inserted, deleted, []
    return None


def _edges_of(edges: Any) -> Pairs:
    if isinstance(edges, dict):
        return list(zip(edges["source"], edges["target"], strict=True))
    return [(source, target) for source, target in edges]


@dataclass(frozen=True)
class Counts:
    """The changes of a batch, as in its receipt."""

    inserted: int
    already_present: int
    deleted: int
    not_found: int
    new_vertices: int


class Model:
    """A graph as a set of edges."""

    def __init__(self) -> None:
        self.ids: dict[Key, int] = {}
        self.edges: set[tuple[int, int]] = set()

    def apply(self, columns: EdgeColumns) -> tuple[Counts, EdgeBatch]:
        """The changes of the batch, and the batch in the model's ids."""
        insert, delete, vertices = _as_lists(columns)
        known = len(self.ids)
        deletions = [
            (self.ids.get(source, -1), self.ids.get(target, -1)) for source, target in delete
        ]
        insertions = [
            (
                self.ids.setdefault(source, len(self.ids)),
                self.ids.setdefault(target, len(self.ids)),
            )
            for source, target in insert
        ]
        for key in vertices:
            self.ids.setdefault(key, len(self.ids))
        gone = self.edges.intersection(deletions)
        self.edges -= gone
        new = set(insertions) - self.edges
        self.edges |= new
        counts = Counts(
            inserted=len(new),
            already_present=len(insertions) - len(new),
            deleted=len(gone),
            not_found=len(deletions) - len(gone),
            new_vertices=len(self.ids) - known,
        )
        batch = EdgeBatch(*_columns_of(insertions), *_columns_of(deletions), vertices=len(self.ids))
        return counts, batch


class Oracle:
    """A graph of the engine, and a model of it."""

    def __init__(self) -> None:
        self.engine = Engine(backend="cpu")
        self.model = Model()

    def apply(self, columns: EdgeColumns) -> None:
        """Applies the batch to both and compares the changes."""
        counts, batch = self.model.apply(columns)
        change = self.engine.apply(batch)
        assert counts == Counts(
            change.inserted,
            change.already_present,
            change.deleted,
            change.not_found,
            change.new_vertices,
        )
        assert (self.engine.edges, self.engine.vertices) == (
            len(self.model.edges),
            len(self.model.ids),
        )

    def compare(self) -> None:
        """Compares every edge."""
        sources, targets = self.engine.edge_list()
        edges = list(zip(sources.tolist(), targets.tolist(), strict=True))
        assert len(edges) == len(self.model.edges)
        assert set(edges) == self.model.edges


def _columns_of(pairs: list[tuple[int, int]]) -> tuple[Any, Any]:
    array = np.array(pairs, np.int32).reshape(-1, 2)
    return array[:, 0].copy(), array[:, 1].copy()
