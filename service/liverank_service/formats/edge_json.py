"""Files of JSON → tables: an object for each edge, one a line (NDJSON). Keys are strings or 64-bit
integers, as they are written in the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.json

from liverank_service.formats.arrow import read_table
from liverank_service.formats.edge_list import ACCEPTED, EdgeListError, end_columns

_OBJECTS = re.compile(rb'\s*\{\s*"[^"]*"\s*:')
_ARRAY = re.compile(rb'\s*\[\s*(?:\[\s*["\d-]|\{\s*")')
_NO_OBJECT = re.compile(rb"(?m)^[ \t\r]*[^{\s]")


def is_json(path: Path, content: bytes) -> bool:
    """Whether the content begins with a JSON object. Raises EdgeListError for a JSON array, which
    would otherwise be rows of text.
    """
    if _ARRAY.match(content):
        message = f"a JSON array is not read, but an object a line (NDJSON) is; {ACCEPTED}"
        raise EdgeListError(path, None, message)
    return _OBJECTS.match(content) is not None


def read_json_rows(path: Path, content: bytes) -> pa.Table:
    """The objects as rows, their members as columns. Raises EdgeListError."""
    if other := _NO_OBJECT.search(content):
        raise _no_object(path, content.count(b"\n", 0, other.end()) + 1, content)
    try:
        table = _with_keys(content, _parsed(content))
        table.validate(full=True)  # strings are UTF-8
        return table
    except (pa.ArrowException, UnicodeDecodeError) as error:
        for number, line in enumerate(content.split(b"\n"), 1):
            try:
                json.loads(line.strip() or b"{}")
            except ValueError:  # also of bytes that are not UTF-8
                raise _no_object(path, number, content) from error
        raise EdgeListError(path, None, f"cannot be read: {error}; {ACCEPTED}") from error


def _parsed(content: bytes, texts: Sequence[str] = ()) -> pa.Table:
    """texts: columns that are strings; the types of others are inferred"""
    schema = pa.schema([(name, pa.string()) for name in texts])
    # one block, since a column has the type of its values in the first
    size = min(len(content) + 1, 2**31 - 1)
    read = partial(
        pyarrow.json.read_json,
        read_options=pyarrow.json.ReadOptions(block_size=size),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=schema),
    )
    return read_table(read, content)


def _with_keys(content: bytes, table: pa.Table) -> pa.Table:
    """The table with the keys as they are written: Arrow reads strings like dates as times."""
    names = table.column_names
    ends = end_columns([name.lower() for name in names])
    types = {name: table.schema.field(name).type for at, name in enumerate(names) if at in ends}
    if texts := [name for name, found in types.items() if pa.types.is_timestamp(found)]:
        table = _parsed(content, texts).select(names)
    return table


def _no_object(path: Path, number: int, content: bytes) -> EdgeListError:
    text = content.split(b"\n", number)[number - 1].decode("utf-8", "replace").strip()
    shown = repr(text if len(text) <= 60 else f"{text[:60]}…")
    return EdgeListError(path, number, f"expected a JSON object, got {shown}")
