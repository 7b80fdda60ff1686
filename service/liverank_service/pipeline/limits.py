"""Limits on a single batch."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from liverank_service.errors import BatchTooLarge, FormatError
from liverank_service.formats.columns import EdgeColumns


def check_size(columns: EdgeColumns, max_edges: int, max_key_bytes: int) -> None:
    """Raises BatchTooLarge for too many edges and vertices, FormatError for a key too long."""
    changed = [keys for change in columns.sets.values() for keys in (change.add, change.remove)]
    others = [columns.vertices, columns.remove, columns.replace, *changed]
    count = columns.operations + sum(map(len, others))
    if count > max_edges:
        raise BatchTooLarge(count, max_edges)
    for field, keys in (
        ("replace", columns.replace),
        ("insert", columns.insert_sources),
        ("insert", columns.insert_targets),
        ("delete", columns.delete_sources),
        ("delete", columns.delete_targets),
        ("vertices", columns.vertices),
        ("remove", columns.remove),
        *(("sets", keys) for keys in changed),
    ):
        if not pa.types.is_string(keys.type) or not len(keys):
            continue
        text = keys.buffers()[-1]
        if text is None or text.size <= max_key_bytes:
            continue  # all keys together are short enough
        lengths = pc.binary_length(keys)
        longest = pc.max(lengths).as_py()
        if longest > max_key_bytes:
            index = pc.index(lengths, pa.scalar(longest, lengths.type)).as_py()
            if field == "insert":
                field, index = columns.place_of_insertion(index)
            message = f"expected a key of at most {max_key_bytes:,} bytes, got {longest:,}"
            raise FormatError(field, index, message)
