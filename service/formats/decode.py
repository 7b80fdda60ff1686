"""Wire formats: request bodies → columns of keys, and the journal's payload.

    application/json
        {"insert": [["a", "b"], …], "delete": [["c", "d"], …], "vertices": ["e", …]}
        or by column {"insert": {"source": ["a", …], "target": ["b", …]}, …}
    application/x-ndjson
        {"source": "a", "target": "b", "operation": "delete"} a line
    text/csv
        a header source,target[,operation], then one edge a line
    application/vnd.apache.arrow.stream
        columns source, target and, if wanted, operation

All members of the JSON object may be left out; `operation` is "insert" where it is left out. Good
input becomes Arrow arrays without a Python step per key; only a body that was refused is searched,
value after value, for the first that is wrong.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from service.formats.arrow_limits import decompressed_bytes, written_out_bytes
from service.formats.duplicate_members import names_in, repeated_member
from service.vertex_keys.table import ARROW_TYPES, KeyKind

_DUE: dict[KeyKind, str] = {
    "string": "a non-empty string",
    "integer": "an integer from -2⁶³ to 2⁶³-1",
}
_PYTHON_TYPES: dict[KeyKind, type] = {"string": str, "integer": int}
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")
_BLANK_LINE = re.compile(rb"\n\s*\n")
_ENDS = ("source", "target")
_COLUMNS = (*_ENDS, "operation")
_MEMBERS = ("insert", "delete", "vertices")
_OPERATIONS = ("insert", "delete")
_OPERATION_DUE = '"insert" or "delete"'
# From this size on a JSON body goes to Arrow's parser, which makes no object per key and does not
# hold the interpreter lock; below it orjson is the faster.
_LARGE_BODY = 1 << 16
# Keys in all columns up to which a batch is small for the journal.
_SMALL_BATCH = 64
_EMPTY = {kind: pa.array([], type_) for kind, type_ in ARROW_TYPES.items()}
_LARGEST_BLOCK = 2**31 - 1


class FormatError(ValueError):
    """The body is not what its format asks for.

    field    where: "insert", "vertices", "source", …, or "body" for the whole
    index    which edge, vertex or row of the field, from 0; None where none is to blame
    message  what is due there, and what was found
    """

    def __init__(self, field: str, index: int | None, message: str) -> None:
        self.field = field
        self.index = index
        self.message = message
        super().__init__(f"{field if index is None else f'{field}[{index}]'}: {message}")


class UnsupportedFormat(ValueError):
    """A body of `content_type` cannot be read; those in `accepted` can."""

    def __init__(self, content_type: str, accepted: tuple[str, ...]) -> None:
        self.content_type = content_type
        self.accepted = accepted
        super().__init__(f"{content_type!r} cannot be read; in UTF-8, {', '.join(accepted)} can")


@dataclass(frozen=True)
class EdgeColumns:
    """A batch as columns of external keys: all pa.string() or all pa.int64(), without nulls.

    `vertices` are keys that the graph shall have even without an edge. Deletions come before
    insertions, whatever their order in the body was.
    """

    insert_sources: pa.Array
    insert_targets: pa.Array
    delete_sources: pa.Array
    delete_targets: pa.Array
    vertices: pa.Array

    @property
    def operations(self) -> int:
        """How many edges are inserted and deleted."""
        return len(self.insert_sources) + len(self.delete_sources)

    @property
    def most_new_keys(self) -> int:
        """How many keys it may create, were they all different and new."""
        return 2 * len(self.insert_sources) + len(self.vertices)


class ExpandsTooFar(ValueError):
    """The body is short, but what it holds is not."""

    def __init__(self, expanded: int, limit: int) -> None:
        super().__init__(
            f"the body holds {expanded:,} bytes once it is decompressed and its dictionaries are "
            f"written out; {limit:,} are taken"
        )


_COLUMN_NAMES = [field.name for field in fields(EdgeColumns)]


def decode_batch(
    content_type: str | None, body: bytes, kind: KeyKind, limit: int = sys.maxsize
) -> EdgeColumns:
    """The batch in a request body; no content type means JSON.

    Raises UnsupportedFormat for another content type or charset, FormatError for a body that does
    not hold what is due, and ExpandsTooFar for one that holds more than `limit` bytes.
    """
    media_type, *parameters = (part.strip().lower() for part in (content_type or "").split(";"))
    charset = next((p[8:].strip('"') for p in parameters if p.startswith("charset=")), "utf-8")
    decoder = _DECODERS.get(media_type or "application/json")
    if decoder is None or charset not in ("utf-8", "utf8", "us-ascii"):
        raise UnsupportedFormat(content_type or "", tuple(_DECODERS))
    return decoder(body, kind, limit)


def encode_batch(columns: EdgeColumns) -> bytes:
    """The batch as the journal keeps it: an Arrow IPC stream of one row, one list a column; of a
    small batch, JSON of the columns that are not empty, which is quicker made and shorter.
    """
    arrays = {name: getattr(columns, name) for name in _COLUMN_NAMES}
    if sum(map(len, arrays.values())) <= _SMALL_BATCH:
        kind = "string" if pa.types.is_string(columns.vertices.type) else "integer"
        full = {name: column.to_pylist() for name, column in arrays.items() if len(column)}
        return orjson.dumps({"keys": kind, **full})
    lists = []
    for column in arrays.values():
        lists.append(pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column))
    row = pa.record_batch(lists, names=_COLUMN_NAMES)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_batch(row)
    payload: bytes = sink.getvalue().to_pybytes()
    return payload


def decode_payload(payload: bytes) -> EdgeColumns:
    """What `encode_batch` was given. Raises FormatError for bytes that it did not make."""
    if payload.startswith(b"{"):
        return _decode_small(payload)
    table = _arrow_table(payload, "payload")
    if table.column_names != _COLUMN_NAMES or table.num_rows != 1:
        raise FormatError("payload", None, f"one row of {', '.join(_COLUMN_NAMES)} is due")
    return EdgeColumns(*(_joined(column).flatten() for column in table.columns))


def _decode_small(payload: bytes) -> EdgeColumns:
    document = _parse_json(payload, "payload", None)
    kind = document.pop("keys", None)
    columns = [document.pop(name, []) for name in _COLUMN_NAMES]
    if (
        not isinstance(kind, str)
        or kind not in ARROW_TYPES
        or document
        or not all(isinstance(one, list) for one in columns)
    ):
        raise FormatError("payload", None, f"keys and {', '.join(_COLUMN_NAMES)} are due")
    return EdgeColumns(*(_key_column(column, kind, "payload") for column in columns))


def _decode_json(body: bytes, kind: KeyKind, _limit: int) -> EdgeColumns:
    if len(body) >= _LARGE_BODY:
        columns = _large_pairs(body, kind)
        if columns is not None:
            return columns
    document = _parse_json(body, "body", None)
    if not isinstance(document, dict):
        raise FormatError("body", None, f"a JSON object is due, got {_described(document)}")
    for name in document:
        if name not in _MEMBERS:
            raise FormatError(name, None, f"unknown; {_listed(_MEMBERS)} are known")
    vertices = document.get("vertices", [])
    if not isinstance(vertices, list):
        raise FormatError("vertices", None, f"an array of keys is due, got {_described(vertices)}")
    columns = EdgeColumns(
        *_edges(document.get("insert", []), kind, "insert"),
        *_edges(document.get("delete", []), kind, "delete"),
        _key_column(vertices, kind, "vertices"),
    )
    objects = [document, *(edges for edges in document.values() if isinstance(edges, dict))]
    if names_in(body) > sum(map(len, objects)):
        name = repeated_member(body)
        if name is not None:
            raise FormatError(name, None, "stands twice in one object")
    return columns


def _large_pairs(body: bytes, kind: KeyKind) -> EdgeColumns | None:
    """The batch, if written as pairs and without a fault; None leaves the verdict to orjson."""
    if not body.startswith(b"{") or b"null" in body:  # Arrow takes a null for an absent member
        return None
    keys = pa.list_(ARROW_TYPES[kind])
    schema = pa.schema([("insert", pa.list_(keys)), ("delete", pa.list_(keys)), ("vertices", keys)])
    try:
        table = _arrow_json(body, schema, newlines_in_values=True)
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    if table.num_rows != 1:
        return None
    edges = [_joined(table[name]).flatten() for name in _OPERATIONS]
    if any(pc.any(pc.not_equal(pc.list_value_length(pairs), 2)).as_py() for pairs in edges):
        return None
    insert, delete = (pairs.flatten() for pairs in edges)
    vertices = _joined(table["vertices"]).flatten()
    if any(_first_fault(column, kind) is not None for column in (insert, delete, vertices)):
        return None
    return EdgeColumns(*_every_second(insert), *_every_second(delete), vertices)


def _every_second(keys: pa.Array) -> tuple[pa.Array, pa.Array]:
    sources = pa.array([True, False] * (len(keys) // 2), pa.bool_())
    return keys.filter(sources), keys.filter(pc.invert(sources))


def _edges(edges: object, kind: KeyKind, field: str) -> tuple[pa.Array, pa.Array]:
    """Sources and targets from an array of pairs, or from an object of two arrays of keys."""
    if isinstance(edges, dict):
        return _edges_by_column(edges, kind, field)
    if not isinstance(edges, list):
        due = "an array of pairs [source, target] or an object of source and target is due"
        raise FormatError(field, None, f"{due}, got {_described(edges)}")
    if set(map(type, edges)) - {list} or set(map(len, edges)) - {2}:
        for index, pair in enumerate(edges):
            if not isinstance(pair, list) or len(pair) != 2:
                got = f"{len(pair)} items" if isinstance(pair, list) else _described(pair)
                due = f"a pair [source, target] is due, got {got}"
                raise FormatError(field, index, due)
    if not edges:
        return _EMPTY[kind], _EMPTY[kind]
    keys = list(chain.from_iterable(edges))
    _check_keys(keys, kind, lambda i: (field, i // 2, f"{_ENDS[i % 2]}: "))
    both = pa.array(keys[::2] + keys[1::2], ARROW_TYPES[kind])
    return both[: len(edges)], both[len(edges) :]


def _edges_by_column(
    edges: dict[str, object], kind: KeyKind, field: str
) -> tuple[pa.Array, pa.Array]:
    for name in edges:
        if name not in _ENDS:
            raise FormatError(f"{field}.{name}", None, "unknown; source and target are known")
    columns = []
    for name in _ENDS:
        keys = edges.get(name)
        if not isinstance(keys, list):
            got = _described(keys) if name in edges else "nothing"
            raise FormatError(f"{field}.{name}", None, f"an array of keys is due, got {got}")
        columns.append(_key_column(keys, kind, f"{field}.{name}"))
    sources, targets = columns
    if len(sources) != len(targets):
        due = f"{len(sources)} keys are due, as many as in source, got {len(targets)}"
        raise FormatError(f"{field}.target", None, due)
    return sources, targets


def _key_column(keys: list[Any], kind: KeyKind, field: str) -> pa.Array:
    if not keys:
        return _EMPTY[kind]
    _check_keys(keys, kind, lambda i: (field, i, ""))
    return pa.array(keys, ARROW_TYPES[kind])


def _check_keys(
    keys: list[Any], kind: KeyKind, place: Callable[[int], tuple[str, int, str]]
) -> None:
    """Looks at all keys at once, and one by one only for the first that is not of the kind."""
    expected = _PYTHON_TYPES[kind]
    if not set(map(type, keys)) - {expected}:  # bool is a type of its own here
        if expected is str and "" not in keys:
            return
        if expected is int and (not keys or (min(keys) >= -(2**63) and max(keys) < 2**63)):
            return
    for position, key in enumerate(keys):
        if not _is_key(key, kind):
            field, index, role = place(position)
            due = f"{role}{_DUE[kind]} is due, got {_described(key)}"
            raise FormatError(field, index, due)


def _is_key(key: object, kind: KeyKind) -> bool:
    if kind == "string":
        return isinstance(key, str) and key != ""
    return isinstance(key, int) and not isinstance(key, bool) and -(2**63) <= key < 2**63


def _decode_ndjson(body: bytes, kind: KeyKind, _limit: int) -> EdgeColumns:
    schema = pa.schema([(name, ARROW_TYPES[kind]) for name in _ENDS] + [("operation", pa.string())])
    if not body.strip():
        return _batch(schema.empty_table(), kind)
    if b"null" in body:  # pyarrow's reader ends the process at a null that is no object's member
        _blame_ndjson(body, kind)
    try:
        table = _arrow_json(body, schema, newlines_in_values=False)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        _blame_ndjson(body, kind)
        raise FormatError("body", None, f"not NDJSON: {error}") from error
    if table.num_rows != _lines_in(body):  # the reader takes several objects in one line
        _blame_ndjson(body, kind)
        raise FormatError("body", None, "not NDJSON: one JSON object a line is due")
    operation = pc.fill_null(table["operation"], "insert")
    return _batch(table.set_column(2, "operation", operation), kind)


def _lines_in(body: bytes) -> int:
    """How many lines are not blank."""
    lines = body.strip()
    if _BLANK_LINE.search(lines):
        return sum(1 for line in lines.split(b"\n") if line.strip())
    return lines.count(b"\n") + 1


def _blame_ndjson(body: bytes, kind: KeyKind) -> None:
    """Raises for the first line that is not an edge."""
    lines = ((n, line) for n, line in enumerate(body.split(b"\n"), 1) if line.strip())
    for index, (number, line) in enumerate(lines):
        row = _parse_json(line, "body", index, number)
        if not isinstance(row, dict):
            raise FormatError("body", index, f"a JSON object is due, got {_described(row)}")
        for name in row:
            if name not in _COLUMNS:
                raise FormatError(name, index, f"unknown; {_listed(_COLUMNS)} are known")
        for name in _ENDS:
            if not _is_key(row.get(name), kind):
                got = _described(row[name]) if name in row else "nothing"
                raise FormatError(name, index, f"{_DUE[kind]} is due, got {got}")
        operation = row.get("operation", "insert")
        if operation not in (*_OPERATIONS, None):
            due = f"{_OPERATION_DUE} is due, got {_described(operation)}"
            raise FormatError("operation", index, due)


def _decode_csv(body: bytes, kind: KeyKind, _limit: int) -> EdgeColumns:
    types = dict.fromkeys(_ENDS, ARROW_TYPES[kind]) | {"operation": pa.string()}
    if kind == "integer" and (b"0x" in body or b"0X" in body):  # the reader takes 0xff for 255
        _blame_csv(body, kind)
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(body),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=types, null_values=[], strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        _blame_csv(body, kind)
        raise FormatError("body", None, f"not CSV: {error}") from error
    return _batch(table, kind)


def _blame_csv(body: bytes, kind: KeyKind) -> None:
    """Raises for a missing header, or the first row that has too many columns or no key in one."""
    reader = csv.reader(io.StringIO(_text(body, "body"), newline=""))
    rows = (row for row in reader if row)
    header = next(rows, None)
    if header is None:
        raise FormatError("body", None, "a header line source,target[,operation] is due, got none")
    _check_names(header)
    for index, row in enumerate(rows):
        if len(row) != len(header):
            due = f"{len(header)} columns are due, as in the header, got {len(row)}"
            raise FormatError("body", index, due)
        for name in _ENDS:
            text = row[header.index(name)]
            number = text.strip(" \t")  # what Arrow passes over
            whole = kind == "integer" and _WHOLE_NUMBER.fullmatch(number) is not None
            if not _is_key(int(number) if whole else text, kind):
                due = f"{_DUE[kind]} is due, got {_described(text)}"
                raise FormatError(name, index, due)


def _decode_arrow(body: bytes, kind: KeyKind, limit: int) -> EdgeColumns:
    _check_expansion(lambda: decompressed_bytes(body), limit)
    table = _arrow_table(body, "body")
    _check_expansion(lambda: written_out_bytes(table), limit)
    return _batch(table, kind)


def _check_expansion(measure: Callable[[], int], limit: int) -> None:
    try:
        expanded = measure()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError("body", None, f"an Arrow IPC stream is due: {error}") from error
    if expanded > limit:
        raise ExpandsTooFar(expanded, limit)


def _batch(table: pa.Table, kind: KeyKind) -> EdgeColumns:
    """The batch in a table of source, target and perhaps operation."""
    try:
        names = table.column_names
    except UnicodeDecodeError as error:
        raise FormatError("body", None, f"the name of a column is not UTF-8: {error}") from error
    _check_names(names)
    sources, targets = (_typed(table[name], kind, name) for name in _ENDS)
    if "operation" not in names:
        nothing = sources.slice(0, 0)
        return EdgeColumns(sources, targets, nothing, nothing, nothing)
    operation = table["operation"]
    if not _holds_strings(operation.type):
        due = f"a column of {_OPERATION_DUE} is due, got {operation.type}"
        raise FormatError("operation", None, due)
    operation = _joined(operation.cast(pa.string()))
    known = pc.fill_null(pc.is_in(operation, pa.array(_OPERATIONS)), False)
    index = known.index(False).as_py()
    if index >= 0:
        due = f"{_OPERATION_DUE} is due, got {_described(operation[index].as_py())}"
        raise FormatError("operation", index, due)
    inserts = pc.equal(operation, "insert")
    deletes = pc.invert(inserts)
    return EdgeColumns(
        sources.filter(inserts),
        targets.filter(inserts),
        sources.filter(deletes),
        targets.filter(deletes),
        sources.slice(0, 0),
    )


def _typed(column: pa.ChunkedArray, kind: KeyKind, field: str) -> pa.Array:
    fits = _holds_strings(column.type) if kind == "string" else pa.types.is_integer(column.type)
    if not fits:
        due = f"a column of {'strings' if kind == 'string' else 'integers'} is due"
        raise FormatError(field, None, f"{due}, got {column.type}")
    column = _joined(column)
    try:
        keys = column.cast(ARROW_TYPES[kind])
    except pa.ArrowInvalid as error:
        if kind == "string":
            raise FormatError(field, None, f"too many bytes of keys: {error}") from error
        keys, index = (
            None,
            pc.greater(column, pa.scalar(2**63 - 1, column.type)).index(True).as_py(),
        )
    else:
        index = _first_fault(keys, kind)
    if index is not None:
        due = f"{_DUE[kind]} is due, got {_described(column[index].as_py())}"
        raise FormatError(field, index, due)
    return keys


def _first_fault(keys: pa.Array, kind: KeyKind) -> int | None:
    """The first that is null or empty."""
    faults = keys.is_null()
    if kind == "string":
        faults = pc.or_(faults, pc.fill_null(pc.equal(pc.binary_length(keys), 0), False))
    index: int = faults.index(True).as_py()
    return index if index >= 0 else None


def _holds_strings(arrow_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    return arrow_type in (pa.string(), pa.large_string(), pa.string_view())


def _check_names(names: list[str]) -> None:
    for name in names:
        if name not in _COLUMNS:
            raise FormatError(name, None, f"unknown column; {_listed(_COLUMNS)} are known")
        if names.count(name) > 1:
            raise FormatError(name, None, f"one column is due, got {names.count(name)}")
    for name in _ENDS:
        if name not in names:
            raise FormatError(name, None, f"this column is due, got {_listed(names)}")


def _arrow_table(body: bytes, field: str) -> pa.Table:
    """Every byte is checked: a crafted offset must not reach a kernel."""
    try:
        table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError(field, None, f"an Arrow IPC stream is due: {error}") from error
    return table


def _arrow_json(body: bytes, schema: pa.Schema, newlines_in_values: bool) -> pa.Table:
    # One block, since a value must not be longer than one.
    table = pyarrow.json.read_json(
        pa.BufferReader(body),
        read_options=pyarrow.json.ReadOptions(block_size=min(len(body) + 1, _LARGEST_BLOCK)),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=schema,
            unexpected_field_behavior="error",
            newlines_in_values=newlines_in_values,
        ),
    )
    table.validate(full=True)
    return table


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _parse_json(body: bytes, field: str, index: int | None, line: int = 1) -> Any:
    """The value; `line` is that of the first byte, for the message."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        _text(body, field, index, line)  # orjson does not say where the text stops being UTF-8
        place = f"line {line + error.lineno - 1}, column {error.colno}"
        raise FormatError(field, index, f"malformed JSON at {place}: {error.msg}") from error


def _text(body: bytes, field: str, index: int | None = None, line: int = 1) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        before = body[: error.start]
        line += before.count(b"\n")
        byte = error.start - before.rfind(b"\n")
        place = f"line {line}, byte {byte}"
        raise FormatError(field, index, f"not UTF-8 at {place}: {error.reason}") from error


def _described(value: object) -> str:
    """The value as a message names it, in JSON's words and not too long."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        shown = value if len(value) <= 40 else f"{value[:40]}…"
        return f"the string {json.dumps(shown, ensure_ascii=False)}"
    return "an array" if isinstance(value, list) else "an object"


def _listed(names: list[str] | tuple[str, ...]) -> str:
    if not names:
        return "nothing"
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


_DECODERS: dict[str, Callable[[bytes, KeyKind, int], EdgeColumns]] = {
    "application/json": _decode_json,
    "application/x-ndjson": _decode_ndjson,
    "text/csv": _decode_csv,
    "application/vnd.apache.arrow.stream": _decode_arrow,
}
