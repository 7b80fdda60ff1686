"""The decoded size of an Arrow stream, determined before it is decoded."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest

from liverank_service.errors import DecodedTooLarge
from liverank_service.formats.arrow import decompressed_bytes, plain_table


def arrow(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_the_size_of_a_stream_is_known_without_decompressing_it(compression: str | None) -> None:
    table = pa.table({"source": pa.array(np.zeros(50_000, np.int64)), "target": ["key"] * 50_000})
    assert decompressed_bytes(arrow(table, compression)) == pytest.approx(table.nbytes, rel=0.01)


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize("encoded", [False, True])
def test_columns_are_measured_as_they_are_written_out(text: pa.DataType, encoded: bool) -> None:
    column = pa.array(["é", None, "abc", "x" * 100], text)
    if encoded:
        column = pa.DictionaryArray.from_arrays(pa.array([3, 3, 0, None], pa.int8()), column)
    # all but the first, so that offsets matter
    batch = pa.record_batch({"source": column.slice(1)})
    lengths = [100, 2, 0] if encoded else [0, 3, 100]
    size = sum(lengths) + 4 * 3 + (105 + 4 * 4) * encoded
    table = plain_table([batch], batch.schema, size)
    assert table["source"].to_pylist() == column.slice(1).to_pylist()
    assert table["source"].type == pa.string()
    with pytest.raises(DecodedTooLarge, match=f"decodes to {size} bytes"):
        plain_table([batch], batch.schema, size - 1)


def test_a_dictionary_counts_once_however_many_batches_have_it() -> None:
    texts = pa.array(["x" * 1000])
    column = pa.DictionaryArray.from_arrays(pa.array([None] * 100, pa.int8()), texts)
    batches = [pa.record_batch({"source": column})] * 100
    assert plain_table(batches, batches[0].schema, 50_000).num_rows == 10_000
    others = [
        pa.record_batch(
            {"source": pa.DictionaryArray.from_arrays(column.indices, pa.array([f"{n:01000}"]))}
        )
        for n in range(100)
    ]
    with pytest.raises(DecodedTooLarge):
        plain_table(others, others[0].schema, 50_000)


def test_a_crafted_index_or_view_reaches_no_kernel() -> None:
    texts = pa.array(["a"])
    far = pa.DictionaryArray.from_arrays(pa.array([0, 7], pa.int8()), texts, safe=False)
    view = struct.pack("<i4sii", 1000, b"xxxx", 0, 0)
    seen = pa.Array.from_buffers(
        pa.string_view(), 1, [None, pa.py_buffer(view), pa.py_buffer(b"x")]
    )
    for column in (far, seen):
        batch = pa.record_batch({"source": column})
        with pytest.raises(pa.ArrowException):
            plain_table([batch], batch.schema, 1 << 20)


def test_rows_without_bytes_count() -> None:
    batch = pa.record_batch({"target": pa.Array.from_buffers(pa.null(), 1 << 40, [None])})
    with pytest.raises(DecodedTooLarge):
        plain_table([batch], batch.schema, 1 << 20)
