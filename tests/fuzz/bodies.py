"""Arbitrary bodies, generated and shrunk by Hypothesis."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

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
        lambda parts: "{" + ",".join(filter(None, parts)) + "}"  # duplicate members
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
"""((content type, body), kind of key): valid bodies, damaged ones, and noise."""
