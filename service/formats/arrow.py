"""Arrow IPC streams, and batches in them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from service.errors import DecodedTooLarge, FormatError
from service.formats.arrow_limits import decoded_bytes, decompressed_bytes
from service.formats.attributes import Attributes
from service.formats.columns import EdgeColumns
from service.formats.tables import batch_of
from service.vertex_keys import KeyKind


def decode_arrow(body: bytes, kind: KeyKind, attributes: Attributes, limit: int) -> EdgeColumns:
    """Raises as `limited_table`, and FormatError for wrong columns."""
    return batch_of(limited_table(body, limit), kind, attributes)


def limited_table(body: bytes, limit: int) -> pa.Table:
    """The table in a stream. Raises FormatError, and DecodedTooLarge for more than `limit` bytes,
    before it allocates them.
    """
    _check_size(lambda: decompressed_bytes(body), limit)
    table = arrow_table(body, "body")
    _check_size(lambda: decoded_bytes(table), limit)
    return table


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


def _check_size(measure: Callable[[], int], limit: int) -> None:
    try:
        size = measure()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError("body", None, f"expected an Arrow IPC stream: {error}") from error
    if size > limit:
        raise DecodedTooLarge(size, limit)
