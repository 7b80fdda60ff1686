"""Batches as Parquet files."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet

from service.errors import DecodedTooLarge, FormatError
from service.formats.arrow_limits import decoded_bytes
from service.formats.attributes import Attributes
from service.formats.columns import EdgeColumns
from service.formats.tables import batch_of, check_names
from service.vertex_keys import KeyKind

_PIECE_ROWS = 1 << 16


def decode_parquet(body: bytes, kind: KeyKind, attributes: Attributes, limit: int) -> EdgeColumns:
    """Raises FormatError, and DecodedTooLarge once more than `limit` bytes are decoded.

    Columns that the file says are larger are not decoded. Strings are read as dictionaries, so that
    a value that is repeated many times takes its memory once until its size is known.
    """
    try:
        file = pyarrow.parquet.ParquetFile(
            pa.BufferReader(body),
            read_dictionary=_text_columns(body) if kind == "string" else None,
            pre_buffer=False,
        )
        check_names(file.schema_arrow.names, attributes)
        if (stated := _stated_bytes(file.metadata)) > limit:
            raise DecodedTooLarge(stated, limit)
        pieces, size = [], 0
        for piece in file.iter_batches(batch_size=_PIECE_ROWS, use_threads=False):
            table = pa.Table.from_batches([piece])
            table.validate(full=True)
            size += decoded_bytes(table)
            if size > limit:
                raise DecodedTooLarge(size, limit)
            pieces.append(piece)
        table = pa.Table.from_batches(pieces, file.schema_arrow)
    except FormatError:
        raise
    except (pa.ArrowException, OSError, ValueError, UnicodeDecodeError) as error:
        raise FormatError("body", None, f"expected a Parquet file: {error}") from error
    return batch_of(table, kind, attributes)


def _stated_bytes(metadata: pyarrow.parquet.FileMetaData) -> int:
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    return sum(group.total_byte_size for group in groups)


def _text_columns(body: bytes) -> list[str]:
    schema = pyarrow.parquet.read_schema(pa.BufferReader(body))
    return [field.name for field in schema if pa.types.is_string(field.type)]
