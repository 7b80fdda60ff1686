"""Tables as streams of bytes: what is read back is what was written."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tracemalloc
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet
import pytest

from liverank_service.formats import ARROW_STREAM, CSV, EXPORTED, NDJSON, PARQUET, encode
from liverank_service.formats.encode import (
    encoded,
    json_lines,
    json_objects,
    json_tuples,
    json_values,
)

STRINGS = [
    "plain",
    'quo"te',
    "back\\slash",
    "com,ma",
    "line\nbreak",
    "\x00\x1f\x7f",
    "ü\u2028𝄞",
    " ",
]
SCHEMAS = {
    "strings": pa.schema({"vertex": pa.string(), "rank": pa.float64()}),
    "integers": pa.schema({"source": pa.int64(), "target": pa.int64(), "weight": pa.float32()}),
}


def batches_of(kind: str) -> list[pa.RecordBatch]:
    schema = SCHEMAS[kind]
    if kind == "strings":
        ranks = np.array([0.1 + 0.2, 1e-300, 0.5, 1.0, 1e-9, 3e-5, 0.0, 1 / 3])
        whole = pa.record_batch([pa.array(STRINGS), pa.array(ranks)], schema=schema)
    else:
        keys = pa.array([0, -(2**63), 2**63 - 1, 7])
        weights = pa.array(np.array([0.1, 1.0, 3e30, 1e-30], np.float32))
        whole = pa.record_batch([keys, keys, weights], schema=schema)
    return [whole.slice(0, 3), whole.slice(3)]


def read(content: bytes, media_type: str, schema: pa.Schema) -> list[dict[str, Any]]:
    if media_type == ARROW_STREAM:
        return pa.ipc.open_stream(content).read_all().to_pylist()  # type: ignore[no-any-return]
    if media_type == PARQUET:
        table = pyarrow.parquet.read_table(io.BytesIO(content))
        return table.to_pylist()  # type: ignore[no-any-return]
    if media_type == NDJSON:
        return [json.loads(line) for line in content.decode().split("\n")[:-1]]
    rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    as_python: dict[str, Any] = {
        field.name: str if pa.types.is_string(field.type) else json.loads for field in schema
    }
    return [{name: as_python[name](value) for name, value in row.items()} for row in rows]


@pytest.mark.parametrize("coding", [None, "gzip", "zstd"])
@pytest.mark.parametrize("media_type", EXPORTED)
@pytest.mark.parametrize("kind", SCHEMAS)
def test_what_is_read_is_what_was_written(kind: str, media_type: str, coding: str | None) -> None:
    schema, batches = SCHEMAS[kind], batches_of(kind)
    content = b"".join(encoded(schema, iter(batches), media_type, coding))
    if coding == "gzip":
        content = gzip.decompress(content)
    elif coding == "zstd":
        content = pa.CompressedInputStream(pa.BufferReader(content), "zstd").read()
    rows = pa.Table.from_batches(batches).to_pylist()
    found = read(content, media_type, schema)
    if kind == "integers" and media_type in (CSV, NDJSON):
        # the shortest decimal that is this float32
        for row, other in zip(rows, found, strict=True):
            assert np.float32(other.pop("weight")) == np.float32(row.pop("weight"))
    assert found == rows


@pytest.mark.parametrize("coding", [None, "gzip", "zstd"])
@pytest.mark.parametrize("media_type", EXPORTED)
def test_an_empty_table_has_its_columns(media_type: str, coding: str | None) -> None:
    schema = SCHEMAS["strings"]
    content = b"".join(encoded(schema, iter([]), media_type, coding))
    if coding is None:
        assert read(content, media_type, schema) == []
        assert media_type != CSV or content == b'"vertex","rank"\n'


@pytest.mark.parametrize("media_type", EXPORTED)
def test_a_piece_follows_each_batch(media_type: str) -> None:
    made = 0

    def batches() -> Any:
        nonlocal made
        for each in range(5):
            made += 1
            yield pa.record_batch(
                [pa.array(["k"] * 1000), pa.array([float(each)] * 1000)], SCHEMAS["strings"]
            )

    pieces = encoded(SCHEMAS["strings"], batches(), media_type)
    next(pieces)
    assert made <= 2
    assert sum(map(len, pieces)) > 0
    assert made == 5


def test_lines_of_no_rows_are_none() -> None:
    empty = pa.RecordBatch.from_pylist([], SCHEMAS["strings"])
    assert json_lines(empty) == b""


# Lists in JSON: byte for byte what orjson makes of Python objects


@pytest.mark.parametrize("few", [0, 1_000])
@pytest.mark.parametrize("rows", [0, 1, 3, 8, 20])
@pytest.mark.parametrize("keys", ["plain", "strings", "integers"])
def test_a_list_in_json_is_that_of_objects(
    monkeypatch: pytest.MonkeyPatch, keys: str, rows: int, few: int
) -> None:
    monkeypatch.setattr(encode, "_FEW_ROWS", few)
    monkeypatch.setattr(encode, "_PIECE_ROWS", 3)
    random = np.random.default_rng(rows)
    ranks = 10.0 ** random.uniform(-20, 20, rows)
    ranks[1::4] = np.nan
    named: list[Any] = [f"v{place}" for place in range(rows)]
    if keys == "strings":
        named = [*STRINGS, *named][:rows]
    elif keys == "integers":
        named = random.integers(-(2**63), 2**63 - 1, rows, endpoint=True).tolist()
    column = pa.array([*named[:1], *named], pa.string() if keys != "integers" else pa.int64())
    column = column[1:] if rows else column  # not at the start of its buffer
    numbers = [None if np.isnan(rank) else rank for rank in ranks.tolist()]
    whole = {
        "objects": json_objects({"vertex": column, "rank": ranks}),
        "tuples": json_tuples(column, column),
        "keys": json_values(column),
        "ranks": json_values(ranks),
        "some": json_values(ranks[::2]),
    }
    assert orjson.dumps(whole) == orjson.dumps(
        {
            "objects": [
                {"vertex": key, "rank": rank} for key, rank in zip(named, numbers, strict=True)
            ],
            "tuples": [[key, key] for key in named],
            "keys": named,
            "ranks": numbers,
            "some": numbers[::2],
        }
    )


def test_long_lists_make_no_object_a_row() -> None:
    rows = 200_000
    keys, ranks = pa.array([f"vertex {n}" for n in range(rows)]), np.random.rand(rows)
    json_objects({"vertex": keys[:10], "rank": ranks[:10]})
    tracemalloc.start()
    try:
        made = orjson.dumps({"ranks": json_objects({"vertex": keys, "rank": ranks})})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # dictionaries alone would take 15 times as much
    assert peak < 4 * len(made)
