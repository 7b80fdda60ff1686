"""Arrow IPC streams."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from liverank_service.errors import DecodedTooLarge, FormatError
from liverank_service.formats.arrow_limits import decompressed_bytes, plain_table


def stream_table(body: bytes, limit: int, check: Callable[[pa.Schema], None]) -> pa.Table:
    """The table in a stream, of plain columns.

    check  raises FormatError for columns that are not read; nothing was decoded before
    Raises FormatError, and DecodedTooLarge for more than `limit` bytes, before it makes them.
    """
    try:
        reader = pa.ipc.open_stream(pa.py_buffer(body))
        check(reader.schema)
        if (size := decompressed_bytes(body)) > limit:
            raise DecodedTooLarge(size, limit)
        return plain_table(reader, reader.schema, limit)
    except FormatError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError("body", None, f"expected an Arrow IPC stream: {error}") from error


def arrow_table(body: bytes, field: str) -> pa.Table:
    """The table in a stream, fully validated: a crafted offset must not reach a kernel.

    Raises FormatError.
    """
    try:
        table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError(field, None, f"expected an Arrow IPC stream: {error}") from error
    return table
