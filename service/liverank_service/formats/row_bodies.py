"""Batches in NDJSON and CSV: an edge, or a vertex to remove, per line or row."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from liverank.choices import KeyKind
from liverank_service.errors import FormatError
from liverank_service.formats.arrow import json_table, read_table
from liverank_service.formats.columns import Attributes, EdgeColumns
from liverank_service.formats.json_body import Edges, joined, replacements
from liverank_service.formats.tables import batch_of, check_names
from liverank_service.formats.values import (
    COLUMNS,
    ENDS,
    EXPECTED_KEY,
    EXPECTED_NOTHING,
    EXPECTED_OPERATION,
    EXPECTED_TEXTS,
    EXPECTED_TIME,
    EXPECTED_WEIGHT,
    OPERATIONS,
    decode_text,
    described,
    is_key,
    listed,
    parse_json,
    parsed_times,
    refuse_others,
)
from liverank_service.vertex_keys import ARROW_TYPES

_EXPECTED = {"weight": EXPECTED_WEIGHT, "time": EXPECTED_TIME}

_BLANK_LINE = re.compile(rb"\n\s*\n")


def decode_ndjson(body: bytes, kind: KeyKind, attributes: Attributes) -> EdgeColumns:
    """Raises FormatError."""
    if b'"replace"' in body:
        return _with_lists(body, kind, attributes)
    return _decode_rows(body, kind, attributes)


def _with_lists(body: bytes, kind: KeyKind, attributes: Attributes) -> EdgeColumns:
    """A batch some of whose lines may be the new list of a vertex. Raises FormatError."""
    numbered = [line for line in enumerate(body.split(b"\n"), 1) if line[1].strip()]
    edges: list[tuple[int, bytes]] = []
    lists: dict[Any, list[Any]] = {}
    places: dict[str, int] = {}
    shape: dict[str, bool] = {}
    for index, (number, line) in enumerate(numbered):
        row = parse_json(line, "body", index, number) if b'"replace"' in line else None
        if not isinstance(row, dict) or "replace" not in row:
            edges.append((index, line))
            continue
        name = str(row["replace"])
        if not is_key(row["replace"], kind):
            message = f"expected {EXPECTED_KEY[kind]}, got {described(row['replace'])}"
            raise FormatError("replace", index, message)
        if name in lists:
            message = f"expected one line for each vertex, got {described(row['replace'])} again"
            raise FormatError("replace", index, message)
        lists[name], places[name] = _targets_of(row, index, attributes), index
        if lists[name]:
            _check_attached(row, index, attributes, shape)
    try:
        columns = _decode_rows(b"\n".join(line for _, line in edges), kind, attributes)
    except FormatError as error:
        if error.index is None:
            raise
        raise FormatError(error.field, edges[error.index][0], error.message) from None
    try:
        replaced, found = replacements(lists, kind, attributes)
    except FormatError as error:
        at = places.get(error.field.removeprefix("replace."), 0)
        name, _, message = error.message.partition(": ")
        if name not in ("target", *attributes.names):
            name, message = "target", error.message
        place = "" if error.index is None else f"item {error.index}: "
        raise FormatError(f"{name}s", at, f"{place}{message}") from None
    _refuse_rows(columns, edges, replaced)
    rows = Edges(columns.insert_sources, columns.insert_targets, columns.weights, columns.times)
    try:
        sources, targets, weights, times = joined(rows, found)
    except FormatError as error:
        at = next(places[name] for name, listed_targets in lists.items() if listed_targets)
        raise FormatError("times", at, error.message) from None
    return dataclasses.replace(
        columns,
        insert_sources=sources,
        insert_targets=targets,
        weights=weights,
        times=times,
        replace=pa.concat_arrays([columns.replace, replaced]),
    )


def _refuse_rows(columns: EdgeColumns, edges: list[tuple[int, bytes]], replaced: pa.Array) -> None:
    """Raises FormatError for a line with an edge of a vertex that another line replaces.

    columns, edges  what the lines with edges say, and their numbers
    """
    for sources in (columns.insert_sources, columns.delete_sources, columns.replace):
        if pc.any(pc.is_in(sources, replaced)).as_py():
            rows = [(index, parse_json(line, "body", index)) for index, line in edges]
            rows = [row for row in rows if row[1].get("operation") != "remove"]
            keys = pa.array([row["source"] for _, row in rows], replaced.type)
            refuse_others(keys, replaced, "source", [index for index, _ in rows])


def _check_attached(
    row: dict[str, Any], index: int, attributes: Attributes, shape: dict[str, bool]
) -> None:
    """Raises FormatError unless the list has weights and times as the first one has.

    shape  whether that has each; empty for the first
    """
    for name in attributes.names:
        given = row.get(f"{name}s")
        if shape.setdefault(name, given is not None) != (given is not None):
            expected = "an array" if shape[name] else "nothing"
            got = "nothing" if given is None else described(given)
            message = f"expected {expected}, as in the first list, got {got}"
            raise FormatError(f"{name}s", index, message)


def _targets_of(row: dict[str, Any], index: int, attributes: Attributes) -> list[Any]:
    """The new list as `replacements` takes it. Raises FormatError."""
    attached = [f"{name}s" for name in attributes.names]
    for name in row:
        attributes.check(name.removesuffix("s"), name, index)
        if name not in ("replace", "targets", *attached):
            expected = listed(["replace", "targets", *attached])
            raise FormatError(name, index, f"unknown member; expected {expected}")
    lists = {name: row.get(name) for name in ("targets", *attached)}
    targets = lists["targets"]
    for name, values in lists.items():
        if values is None and name != "targets":
            continue
        if not isinstance(values, list):
            raise FormatError(name, index, f"expected an array, got {described(values)}")
        if not isinstance(targets, list) or len(values) != len(targets):
            message = f"expected as many items as in targets, got {len(values)}"
            raise FormatError(name, index, message)
    assert isinstance(targets, list)
    weights, times = lists.get("weights"), lists.get("times")
    if times is not None:
        weights = [None] * len(targets) if weights is None else weights
        return [list(each) for each in zip(targets, weights, times, strict=True)]
    return (
        targets if weights is None else [list(each) for each in zip(targets, weights, strict=True)]
    )


def _decode_rows(body: bytes, kind: KeyKind, attributes: Attributes) -> EdgeColumns:
    members = [(name, ARROW_TYPES[kind]) for name in ENDS] + [("operation", pa.string())]
    schema = pa.schema([*members, *((name, pa.float64()) for name in attributes.names)])
    if not body.strip():
        return batch_of(schema.empty_table(), kind, attributes)
    if b"null" in body:  # pyarrow's reader crashes at a null that is not a member of an object
        _find_wrong_line(body, kind, attributes)
    try:
        table = json_table(body, schema)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        _find_wrong_line(body, kind, attributes)
        raise FormatError("body", None, f"not NDJSON: {error}") from error
    if table.num_rows != _count_lines(body):  # the reader accepts several objects per line
        _find_wrong_line(body, kind, attributes)
        raise FormatError("body", None, "not NDJSON: expected one JSON object per line")
    operation = pc.fill_null(table["operation"], "insert")
    for name in attributes.names:
        if table[name].null_count == len(table):
            table = table.drop_columns(name)
    return batch_of(table.set_column(2, "operation", operation), kind, attributes)


def _count_lines(body: bytes) -> int:
    """The number of lines that are not blank."""
    lines = body.strip()
    if _BLANK_LINE.search(lines):
        return sum(1 for line in lines.split(b"\n") if line.strip())
    return lines.count(b"\n") + 1


def _find_wrong_line(body: bytes, kind: KeyKind, attributes: Attributes) -> None:
    """Raises FormatError for the first line that is not an edge; returns if there is none."""
    known = (*COLUMNS, *attributes.names)
    lines = ((n, line) for n, line in enumerate(io.BytesIO(body), 1) if line.strip())
    for index, (number, line) in enumerate(lines):
        row = parse_json(line.removesuffix(b"\n"), "body", index, number)
        if not isinstance(row, dict):
            raise FormatError("body", index, f"expected a JSON object, got {described(row)}")
        for name in row:
            attributes.check(name, name, index)
            if name not in known:
                raise FormatError(name, index, f"unknown member; expected {listed(known)}")
        operation = row.get("operation", "insert")
        removes = operation == "remove"
        removes = removes or (operation == "replace" and row.get("target") is None)
        for name in ENDS[:1] if removes else ENDS:
            if not is_key(row.get(name), kind):
                got = described(row[name]) if name in row else "nothing"
                raise FormatError(name, index, f"expected {EXPECTED_KEY[kind]}, got {got}")
        if removes and row.get("target") is not None:
            got = described(row["target"])
            raise FormatError("target", index, f"expected {EXPECTED_NOTHING}, got {got}")
        if operation not in (*OPERATIONS, None):
            message = f"expected {EXPECTED_OPERATION}, got {described(operation)}"
            raise FormatError("operation", index, message)
        for name, expected in _EXPECTED.items():
            value = row.get(name)
            if value is not None and type(value) not in (int, float):
                raise FormatError(name, index, f"expected {expected}, got {described(value)}")


_LONGEST_HEADER = 4096
"""Bytes; the names of all columns are far shorter."""

_INTEGER = re.compile(r"-?[0-9]{1,19}")


def decode_csv(body: bytes, kind: KeyKind, attributes: Attributes) -> EdgeColumns:
    """Raises FormatError."""
    _check_header(body, attributes)
    types = dict.fromkeys(ENDS, ARROW_TYPES[kind])
    types |= dict.fromkeys(("operation", *_READERS), pa.string())
    if kind == "integer" and (b"0x" in body or b"0X" in body):  # the reader parses 0xff as 255
        _find_wrong_row(body, kind, attributes)
    read = partial(
        pyarrow.csv.read_csv,
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            # a row that removes a vertex has an empty target, as one that empties its list
            column_types=types,
            null_values=[""] if b"remove" in body or b"replace" in body else [],
            strings_can_be_null=False,
        ),
    )
    try:
        table = read_table(read, body)
    except pa.ArrowInvalid as error:
        _find_wrong_row(body, kind, attributes)
        raise FormatError("body", None, f"not CSV: {error}") from error
    for name in attributes.names:
        if table.column_names.count(name) == 1:
            place = table.column_names.index(name)
            table = table.set_column(place, name, _READERS[name](table[name]))
    return batch_of(table, kind, attributes)


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The weights as numbers; empty cells are null. Raises FormatError."""
    return _parsed(column, "weight", EXPECTED_WEIGHT)


def _times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The times as numbers or timestamps; empty cells are null. Raises FormatError."""
    found = parsed_times(_texts(column))
    if found is not None:
        return found
    return _parsed(column, "time", f"{EXPECTED_TIME}, {EXPECTED_TEXTS}")


_READERS = {"weight": _numbers, "time": _times}


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)


def _parsed(column: pa.ChunkedArray, name: str, expected: str) -> pa.ChunkedArray:
    texts = _texts(column)
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        for index, text in enumerate(texts.to_pylist()):
            try:
                pa.scalar(text).cast(pa.float64())
            except pa.ArrowInvalid:
                message = f"expected {expected}, got {described(text)}"
                raise FormatError(name, index, message) from None
        raise


def _check_header(body: bytes, attributes: Attributes) -> None:
    """Raises FormatError for names that are wrong, before the reader makes a column of each: one
    takes it thousands of times the bytes of its name.
    """
    begin = body[:_LONGEST_HEADER]
    if not begin.strip(b"\r\n"):
        begin = body.lstrip(b"\r\n")[:_LONGEST_HEADER]
    text = begin.removeprefix(BOM_UTF8).decode(errors="replace")
    if (header := next(_rows(text), None)) is not None:
        check_names(header, attributes)


def _rows(text: str) -> Iterator[list[str]]:
    """Those that are not blank. Raises FormatError."""
    try:
        yield from (row for row in csv.reader(io.StringIO(text, newline="")) if row)
    except csv.Error as error:  # such as a cell of more than 128 KiB
        raise FormatError("body", None, f"not CSV: {error}") from error


def _find_wrong_row(body: bytes, kind: KeyKind, attributes: Attributes) -> None:
    """Raises FormatError for a missing header, or for the first row with a wrong number of columns
    or without a key; returns if there is none.
    """
    text = decode_text(body.removeprefix(BOM_UTF8), "body")  # as Arrow's reader
    rows = _rows(text)
    header = next(rows, None)
    if header is None:
        raise FormatError("body", None, "expected a header source,target[,operation], got nothing")
    check_names(header, attributes)
    for index, row in enumerate(rows):
        if len(row) != len(header):
            message = f"expected {len(header)} columns, as in the header, got {len(row)}"
            raise FormatError("body", index, message)
        operation = row[header.index("operation")] if "operation" in header else "insert"
        removes = operation == "remove" or (
            operation == "replace" and not row[header.index("target")]
        )
        for name in ENDS[:1] if removes else ENDS:
            text = row[header.index(name)]
            number = text.strip(" \t")  # which Arrow ignores
            integral = kind == "integer" and _INTEGER.fullmatch(number) is not None
            if not is_key(int(number) if integral else text, kind):
                message = f"expected {EXPECTED_KEY[kind]}, got {described(text)}"
                raise FormatError(name, index, message)
