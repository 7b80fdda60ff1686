"""Parquet files."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet

from liverank_service.errors import DecodedTooLarge, FormatError
from liverank_service.formats.arrow_limits import PIECE_ROWS, holds_strings, plain_table
from liverank_service.formats.parquet_pages import page_bytes


def parquet_table(body: bytes, limit: int, check: Callable[[pa.Schema], None]) -> pa.Table:
    """The table in a file, of plain columns.

    check  raises FormatError for columns that are not read; nothing was decoded before
    Raises FormatError, and DecodedTooLarge once more than `limit` bytes are decoded.

    Pages are measured before any is decompressed. Texts are read as dictionaries, so that a value
    that is repeated many times takes its memory once until its size is known; the other columns
    have a fixed width, and so a piece of them is small.
    """
    try:
        file = pyarrow.parquet.ParquetFile(pa.BufferReader(body), pre_buffer=False)
        schema = file.schema_arrow
        check(schema)
        size = 0
        for page in page_bytes(body, file.metadata):
            size += page
            if size > limit:
                raise DecodedTooLarge(size, limit)
        if texts := [field.name for field in schema if holds_strings(field.type)]:
            file = pyarrow.parquet.ParquetFile(
                pa.BufferReader(body),
                metadata=file.metadata,
                read_dictionary=texts,
                pre_buffer=False,
            )
        batches = file.iter_batches(batch_size=PIECE_ROWS, use_threads=False)
        return plain_table(batches, file.schema_arrow, limit)
    except FormatError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError("body", None, f"expected a Parquet file: {error}") from error
