"""The decoded size of an Arrow stream, determined before it is decoded."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from service.formats.arrow_limits import decoded_bytes, decompressed_bytes


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
def test_columns_are_measured_as_they_will_be_written_out(text: pa.DataType, encoded: bool) -> None:
    column = pa.array(["é", None, "abc", "x" * 100], text)
    if encoded:
        column = pa.DictionaryArray.from_arrays(pa.array([3, 3, 0, None], pa.int8()), column)
    # all but the first, so that offsets matter
    lengths = [100, 2, 0] if encoded else [0, 3, 100]
    assert decoded_bytes(pa.table({"source": column.slice(1)})) == sum(lengths)
