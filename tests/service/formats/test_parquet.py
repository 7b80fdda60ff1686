"""Batches as Parquet files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from service.errors import DecodedTooLarge, FormatError
from service.formats.decode import decode_batch
from service.formats.media_types import PARQUET
from service.vertex_keys import KeyKind


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pyarrow.parquet.write_table(table, sink, **options)
    return sink.getvalue()


@pytest.mark.parametrize("row_group_size", [1, 1000])
def test_columns_become_a_batch(row_group_size: int) -> None:
    table = pa.table(
        {
            "target": ["b", "ü", "c"],
            "source": ["a", "a", "b"],
            "operation": ["insert"] * 2 + ["delete"],
        }
    )
    body = parquet(table, row_group_size=row_group_size)
    columns = decode_batch(PARQUET, body, "string")
    assert columns.insert_sources.to_pylist() == ["a", "a"]
    assert columns.insert_targets.to_pylist() == ["b", "ü"]
    assert columns.delete_sources.to_pylist() == ["b"]
    assert columns.delete_targets.to_pylist() == ["c"]


@pytest.mark.parametrize("kind", ["string", "integer"])
def test_large_files_are_read_in_order(kind: KeyKind) -> None:
    numbers = np.random.default_rng(1).integers(0, 1 << 40, (2, 200_000))
    keys = [
        pa.array(each).cast(pa.string() if kind == "string" else pa.int64()) for each in numbers
    ]
    body = parquet(pa.table({"source": keys[0], "target": keys[1]}))
    columns = decode_batch(PARQUET, body, kind)
    assert columns.insert_sources.equals(keys[0])
    assert columns.insert_targets.equals(keys[1])


def test_a_file_without_rows_is_an_empty_batch() -> None:
    empty = pa.table({name: pa.array([], pa.string()) for name in ("source", "target")})
    assert decode_batch(PARQUET, parquet(empty), "string").operations == 0


@pytest.mark.parametrize(
    ("table", "kind", "message"),
    [
        (pa.table({"source": ["a"]}), "string", "target: missing column"),
        (pa.table({"source": ["a"], "target": ["b"], "x": [1]}), "string", "x: unknown column"),
        (
            pa.table({"source": [1], "target": [2]}),
            "string",
            "source: expected a column of strings",
        ),
        (
            pa.table({"source": ["1"], "target": ["2"]}),
            "integer",
            "source: expected a column of int",
        ),
        (
            pa.table({"source": ["a", None], "target": ["b", "c"]}),
            "string",
            r"source\[1\]: expected",
        ),
        (pa.table({"source": ["a", "b"], "target": ["b", ""]}), "string", r"target\[1\]: expected"),
    ],
)
def test_invalid_columns_are_refused(table: pa.Table, kind: KeyKind, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        decode_batch(PARQUET, parquet(table), kind)


def test_damaged_files_are_refused() -> None:
    body = parquet(pa.table({"source": list(range(1000)), "target": list(range(1000))}))
    for damaged in (b"", b"PAR1", body[:-1], body[:500], body[:200] + b"\0" * 400 + body[600:]):
        with pytest.raises(FormatError, match="body: expected a Parquet file"):
            decode_batch(PARQUET, damaged, "integer")


def test_a_file_that_decodes_to_too_much_is_refused() -> None:
    zeros = np.zeros(1_000_000, np.int64)
    short = parquet(
        pa.table({"source": zeros, "target": zeros}), compression="zstd", use_dictionary=False
    )
    repeated = pa.array(["x" * 1000]).take(pa.array(np.zeros(1_000_000, np.int64)))
    for body, kind in (
        (short, "integer"),
        (parquet(pa.table({"source": zeros, "target": zeros})), "integer"),
        (parquet(pa.table({"source": repeated, "target": repeated})), "string"),
    ):
        assert len(body) < 300_000
        with pytest.raises(DecodedTooLarge, match="exceeds the 1 MiB limit"):
            decode_batch(PARQUET, body, kind, 1 << 20)  # type: ignore[arg-type]
