"""Batches as Parquet files."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from liverank.choices import KeyKind
from liverank_service.errors import DecodedTooLarge, FormatError
from liverank_service.formats import PARQUET
from liverank_service.formats.arrow import page_bytes
from liverank_service.formats.decode import decode_batch


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
    zeros = np.zeros(200_000, np.int64)
    short = parquet(
        pa.table({"source": zeros, "target": zeros}), compression="zstd", use_dictionary=False
    )
    repeated = pa.array(["x" * 1000]).take(pa.array(zeros[:10_000]))
    for body, kind in (
        (short, "integer"),
        (parquet(pa.table({"source": zeros, "target": zeros})), "integer"),
        (parquet(pa.table({"source": repeated, "target": repeated})), "string"),
    ):
        assert len(body) < 300_000
        with pytest.raises(DecodedTooLarge, match="exceeds the 1 MiB limit"):
            decode_batch(PARQUET, body, kind, 1 << 20)  # type: ignore[arg-type]
    unknown = parquet(pa.table({"source": zeros, "target": zeros, "x": zeros}))
    with pytest.raises(FormatError, match="x: unknown column"):  # before anything is decoded
        decode_batch(PARQUET, unknown, "integer", 1 << 20)


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.string_view()])
def test_texts_are_read_as_keys(text: pa.DataType) -> None:
    column = pa.array(["a", "b"], text)
    columns = decode_batch(
        PARQUET, parquet(pa.table({"source": column, "target": column})), "string"
    )
    assert columns.insert_sources.equals(pa.array(["a", "b"]))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_the_headers_of_pages_tell_their_sizes(
    version: str, compression: str, dictionary: bool
) -> None:
    numbers = np.random.default_rng(1).integers(0, 1000, 300_000)
    table = pa.table({"source": numbers, "target": pa.array(numbers).cast(pa.string())})
    file = parquet(
        table,
        data_page_version=version,
        compression=compression,
        use_dictionary=dictionary,
        data_page_size=100_000,
        row_group_size=100_000,
    )
    metadata = pyarrow.parquet.read_metadata(io.BytesIO(file))
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    stated = sum(group.total_byte_size for group in groups)  # with the headers
    sizes = list(page_bytes(file, metadata))
    assert len(sizes) >= 12
    assert 0.9 * stated < sum(sizes) < stated + len(sizes) * 1024 + 16 * 1000 * 6 * dictionary


def _varint(number: int, length: int = 0) -> bytes:
    """As Thrift writes it; of `length` bytes at least."""
    rest, pieces = 2 * number, list[int]()
    while rest > 127 or len(pieces) < length - 1:
        pieces.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*pieces, rest])


def test_sizes_are_those_of_the_pages_not_those_of_the_footer() -> None:
    column = pa.array(np.zeros(10_000, np.int64))
    table = pa.table({"source": column, "target": column})
    file = parquet(table, compression="zstd", use_dictionary=False)
    size = pyarrow.parquet.read_metadata(io.BytesIO(file)).row_group(0).total_byte_size
    assert size > 160_000
    begin = len(file) - 8 - int.from_bytes(file[-8:-4], "little")
    stated = _varint(size)
    assert file[begin:].count(stated) == 1
    lying = file[:begin] + file[begin:].replace(stated, _varint(1, len(stated)))
    metadata = pyarrow.parquet.read_metadata(io.BytesIO(lying))
    assert metadata.row_group(0).total_byte_size == 1
    with pytest.raises(DecodedTooLarge):
        decode_batch(PARQUET, lying, "integer", 100_000)


def test_values_that_repeat_those_before_are_refused() -> None:
    table = pa.table({"source": ["x" * 1000] * 100, "target": ["b"] * 100})
    body = parquet(table, use_dictionary=False, column_encoding={"source": "DELTA_BYTE_ARRAY"})
    with pytest.raises(
        FormatError, match=r"source: expected the encoding PLAIN, .* got DELTA_BYTE"
    ):
        decode_batch(PARQUET, body, "string")


def test_a_damaged_header_of_a_page_is_refused() -> None:
    body = parquet(pa.table({"source": list(range(1000)), "target": list(range(1000))}))
    for place in range(4, 40):
        for byte in (0, 0x19, 0xFF):
            damaged = body[:place] + bytes([byte]) + body[place + 1 :]
            with contextlib.suppress(FormatError, DecodedTooLarge):
                decode_batch(PARQUET, damaged, "integer", 1 << 20)
