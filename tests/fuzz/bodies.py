"""Bodies that may be anything: what a batch's decoder and a graph make of them.

Each case is decoded as a request's body is; what decodes is applied to a small graph beside an
oracle, a set of edges. A case fails where anything but the errors that become 4xx is raised, and
where the graph is not what the oracle says: a batch that was half applied.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from gpu import EdgeBatch, Engine
from service.batch_limits import check_size
from service.errors import BatchTooLarge
from service.formats import (
    EdgeColumns,
    ExpandsTooFar,
    FormatError,
    UnsupportedFormat,
    decode_batch,
    decode_payload,
    encode_batch,
)
from service.keys import KeyKind

REFUSALS = (FormatError, UnsupportedFormat, ExpandsTooFar, BatchTooLarge)
LIMIT = 1 << 16

TYPES = (
    "application/json",
    "application/x-ndjson",
    "text/csv",
    "application/vnd.apache.arrow.stream",
)

_texts = st.sampled_from(["a", "b", "ab", "é", "\0", '"', "\\", ":", ",", "\n", " ", "😀"])
_keys = st.one_of(_texts, st.integers(-3, 3), st.text(max_size=3))
_odd = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(),
    st.integers(-(2**70), 2**70),
    st.just(""),
    st.lists(_keys, max_size=3),
    st.dictionaries(st.sampled_from(["source", "target", "x"]), st.lists(_keys, max_size=2)),
)
_pairs = st.lists(
    st.lists(st.one_of(_keys, _keys, _keys, _odd), min_size=1, max_size=3), max_size=4
)
_columns = st.fixed_dictionaries({"source": st.lists(_keys), "target": st.lists(_keys)})
_documents = st.dictionaries(
    st.sampled_from(["insert", "delete", "vertices", "insert ", "Insert"]),
    st.one_of(_pairs, _pairs, _columns, st.lists(_keys, max_size=4), _odd),
    max_size=4,
)


def _arrow(rows: list[tuple[Any, Any, Any]], compression: str | None) -> bytes:
    names = ("source", "target", "operation")
    try:
        table = pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)})
    except (pa.ArrowException, UnicodeEncodeError, OverflowError):
        return b""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


_operations = st.sampled_from(["insert", "delete", "insert", "Delete", None])
_rows = st.lists(st.tuples(_texts, _texts, _operations), max_size=5)
_number_rows = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), _operations), max_size=5)

_json_bodies = st.one_of(
    _documents.map(json.dumps),
    st.lists(_documents.map(lambda one: json.dumps(one)[1:-1]), max_size=3).map(
        lambda parts: "{" + ",".join(filter(None, parts)) + "}"  # members that stand twice
    ),
).map(lambda text: text.encode("utf-8", "surrogatepass"))
_line_bodies = st.lists(
    st.dictionaries(
        st.sampled_from(["source", "target", "operation", "x"]), st.one_of(_keys, _odd)
    ),
    max_size=4,
).map(lambda rows: "\n".join(map(json.dumps, rows)).encode("utf-8", "surrogatepass"))
_csv_bodies = st.lists(st.lists(st.text(max_size=3), max_size=4), max_size=4).map(
    lambda rows: "\n".join(["source,target,operation", *map(",".join, rows)]).encode(
        "utf-8", "surrogatepass"
    )
)
_arrow_bodies = st.builds(
    _arrow, st.one_of(_rows, _number_rows), st.sampled_from([None, "zstd", "lz4"])
)


def _damage(body: bytes, places: list[tuple[int, int]]) -> bytes:
    damaged = bytearray(body)
    for place, value in places:
        if damaged:
            damaged[place % len(damaged)] = value
    return bytes(damaged)


_places = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=3)
_whole = st.one_of(
    st.tuples(st.just(TYPES[0]), _json_bodies),
    st.tuples(st.just(TYPES[1]), _line_bodies),
    st.tuples(st.just(TYPES[2]), _csv_bodies),
    st.tuples(st.just(TYPES[3]), _arrow_bodies),
)

cases = st.tuples(
    st.one_of(
        _whole,
        st.tuples(_whole, _places).map(lambda case: (case[0][0], _damage(case[0][1], case[1]))),
        st.tuples(st.sampled_from(TYPES), st.binary(max_size=64)),
    ),
    st.sampled_from(("string", "integer")),
)
"""((content type, body), kind of key): what a client means, the same damaged, and noise."""


def decoded(content_type: str, body: bytes, kind: KeyKind) -> EdgeColumns | None:
    """The batch; None where it is refused. Raises what no client may cause."""
    try:
        columns = decode_batch(content_type, body, kind, LIMIT)
        check_size(columns, 1000, 4096)
    except REFUSALS:
        return None
    assert decode_payload(encode_batch(columns)) == columns, "the journal would give another batch"
    return columns


class Oracle:
    """A graph of the engine, and the same edges as a set."""

    def __init__(self) -> None:
        self.engine = Engine(backend="cpu")
        self.ids: dict[str | int, int] = {}
        self.edges: set[tuple[int, int]] = set()

    def apply(self, columns: EdgeColumns) -> None:
        """Applies the batch to both and compares what the engine says it did."""
        deletions = self._pairs(columns.delete_sources, columns.delete_targets, known_only=True)
        insertions = self._pairs(columns.insert_sources, columns.insert_targets)
        for key in columns.vertices.to_pylist():
            self.ids.setdefault(key, len(self.ids))
        before = set(self.edges)
        self.edges -= set(deletions)
        deleted = len(before) - len(self.edges)
        kept = len(self.edges)
        self.edges |= set(insertions)
        change = self.engine.apply(
            EdgeBatch(*_columns_of(insertions), *_columns_of(deletions), vertices=len(self.ids))
        )
        assert (change.inserted, change.deleted) == (len(self.edges) - kept, deleted)
        assert (self.engine.edges, self.engine.vertices) == (len(self.edges), len(self.ids))

    def _pairs(
        self, sources: pa.Array, targets: pa.Array, known_only: bool = False
    ) -> list[tuple[int, int]]:
        pairs = []
        for pair in zip(sources.to_pylist(), targets.to_pylist(), strict=True):
            if known_only:
                source, target = (self.ids.get(key, -1) for key in pair)
            else:
                source, target = (self.ids.setdefault(key, len(self.ids)) for key in pair)
            pairs.append((source, target))
        return pairs


def _columns_of(pairs: list[tuple[int, int]]) -> tuple[Any, Any]:
    import numpy as np

    array = np.array(pairs, np.int32).reshape(-1, 2)
    return array[:, 0].copy(), array[:, 1].copy()
