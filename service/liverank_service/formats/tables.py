"""Arrow tables of edges: columns source, target and, optionally, operation, weight and time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liverank.choices import KeyKind
from liverank_service.errors import FormatError
from liverank_service.formats.arrow import holds_strings
from liverank_service.formats.columns import Attributes, EdgeColumns
from liverank_service.formats.values import (
    COLUMNS,
    ENDS,
    EXPECTED_KEY,
    EXPECTED_NOTHING,
    EXPECTED_OPERATION,
    EXPECTED_TIME,
    OPERATIONS,
    at_rows,
    described,
    listed,
    refuse_others,
    spread,
    times_of,
    weights_of,
)
from liverank_service.vertex_keys import ARROW_TYPES

_LONGEST_TYPE = 100
"""Characters of a type in a message: a struct names all its fields."""

_TYPES: dict[str, Callable[[pa.DataType], bool]] = {
    "strings": holds_strings,
    "integers": pa.types.is_integer,
    "numbers": lambda found: pa.types.is_integer(found) or pa.types.is_floating(found),
    "timestamps": pa.types.is_timestamp,
}
"""The types of columns that are read, as messages call them."""

OF_KEYS: dict[KeyKind, str] = {"string": "strings", "integer": "integers"}


def batch_of(table: pa.Table, kind: KeyKind, attributes: Attributes) -> EdgeColumns:
    """The batch in the table, whose texts are pa.string(). Raises FormatError."""
    check_schema(table.schema, kind, attributes)
    names = table.column_names
    sources = keys_of(table["source"], kind, "source")
    nothing = sources.slice(0, 0)
    if "operation" not in names:
        targets = keys_of(table["target"], kind, "target")
        weights = weights_of(table["weight"], "weight") if "weight" in names else None
        times = times_of(table["time"], "time", attributes.times) if "time" in names else None
        return EdgeColumns(sources, targets, nothing, nothing, nothing, weights, times=times)
    operation = combined(table["operation"])
    known = pc.fill_null(pc.is_in(operation, pa.array(OPERATIONS)), False)
    index = known.index(False).as_py()
    if index >= 0:
        message = f"expected {EXPECTED_OPERATION}, got {described(operation[index].as_py())}"
        raise FormatError("operation", index, message)
    inserts, deletes, removes, replaces = (pc.equal(operation, name) for name in OPERATIONS)
    without = pc.and_(replaces, _are_empty(table["target"], kind))
    targets = keys_of(table["target"], kind, "target", pc.or_(removes, without))
    replaced = sources.filter(replaces).unique()
    others = pc.or_(inserts, deletes)
    refuse_others(sources.filter(others), replaced, "source", pc.indices_nonzero(others).to_numpy())
    inserts = pc.or_(inserts, pc.and_not(replaces, without))
    readers: dict[str, Callable[[pa.ChunkedArray, str], pa.Array]] = {
        "weight": weights_of,
        "time": partial(times_of, rule=attributes.times),
    }
    readers = {name: read for name, read in readers.items() if name in names}
    lowers = _subtracting(table, deletes, attributes)
    given, taken = {}, {}
    for name, read in readers.items():
        others = lowers if attributes.subtracts(name) else None
        _refuse_surplus(table, name, inserts, others)
        is_given = combined(table[name]).is_valid()
        taken_from = pc.and_(lowers, is_given)
        if others is not None and pc.any(taken_from).as_py():
            _require_all(name, lowers, taken_from)
            found = _of_rows(table, name, lowers, read)
            taken[name] = spread(found, _mask(lowers)).filter(deletes)
            if not pc.any(pc.and_(inserts, is_given)).as_py():
                continue  # the column is there for deletions
        given[name] = _of_rows(table, name, inserts, read)
    return EdgeColumns(
        sources.filter(inserts),
        targets.filter(inserts),
        sources.filter(deletes),
        targets.filter(deletes),
        nothing,
        given.get("weight"),
        times=given.get("time"),
        remove=sources.filter(removes),
        replace=replaced,
        delete_weights=taken.get("weight"),
        delete_times=taken.get("time"),
    )


def _are_empty(targets: pa.ChunkedArray, kind: KeyKind) -> pa.Array:
    """Which rows have no target."""
    column = combined(targets)
    if kind == "string" and holds_strings(column.type):
        return pc.fill_null(pc.equal(pc.binary_length(column), 0), True)
    return column.is_null()


def _subtracting(table: pa.Table, deletes: pa.Array, attributes: Attributes) -> pa.Array:
    """Which rows take away a weight."""
    if "weight" not in table.column_names or not attributes.subtracts("weight"):
        return pc.and_not(deletes, deletes)
    return pc.and_(deletes, combined(table["weight"]).is_valid())


def _require_all(name: str, lowers: pa.Array, given: pa.Array) -> None:
    """Raises FormatError if not all rows that take away a weight have the attribute."""
    index = pc.and_not(lowers, given).index(True).as_py()
    if index >= 0:
        message = f"{EXPECTED_TIME}, got null; give every deletion with a weight a {name}, or none"
        raise FormatError(name, index, f"expected {message}")


def _refuse_surplus(table: pa.Table, name: str, inserts: pa.Array, others: pa.Array | None) -> None:
    """Raises FormatError for an attribute of a row that is no insertion, nor one of `others`."""
    column = table[name]
    rows = inserts if others is None else pc.or_(inserts, others)
    index = pc.and_(pc.invert(rows), column.is_valid()).index(True).as_py()
    if index < 0:
        return
    which = "only insertions have one"
    if others is not None:
        which = "only insertions and deletions" + " with a weight" * (name == "time") + " have one"
    elif name == "weight" and table["operation"][index].as_py() == "delete":
        which += " unless on_conflict is add"
    got = described(column[index].as_py())
    raise FormatError(name, index, f"expected null, because {which}, got {got}")


def _of_rows(
    table: pa.Table, name: str, rows: pa.Array, read: Callable[[pa.ChunkedArray, str], pa.Array]
) -> pa.Array:
    """An attribute of some rows, all of which have it. Raises FormatError."""
    return at_rows(np.flatnonzero(_mask(rows)), lambda: read(table[name].filter(rows), name))


def _mask(rows: pa.Array) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = rows.to_numpy(zero_copy_only=False)
    return mask


def column_names(schema: pa.Schema) -> list[str]:
    """Raises FormatError."""
    try:
        names: list[str] = schema.names
    except UnicodeDecodeError as error:
        raise FormatError("body", None, f"the name of a column is not UTF-8: {error}") from error
    return names


def check_schema(schema: pa.Schema, kind: KeyKind, attributes: Attributes) -> None:
    """Raises FormatError unless the columns are those of a batch, by name and type."""
    names = column_names(schema)
    check_names(names, attributes)
    check_type(schema, "source", OF_KEYS[kind])
    # where all rows remove a vertex, or empty its list, none has a target
    if "operation" not in names or not pa.types.is_null(schema.field("target").type):
        check_type(schema, "target", OF_KEYS[kind])
    check_type(schema, "operation", "strings", expected=EXPECTED_OPERATION)
    check_type(schema, "weight", "numbers")
    check_type(schema, "time", "numbers", "timestamps")


def check_type(schema: pa.Schema, name: str, *accepted: str, expected: str | None = None) -> None:
    """Raises FormatError if the column is there, and of none of the accepted types."""
    if name not in schema.names:
        return
    found = schema.field(name).type
    if not any(_TYPES[each](found) for each in accepted):
        got = str(found)
        got = got if len(got) <= _LONGEST_TYPE else f"{got[:_LONGEST_TYPE]}…"
        message = f"expected a column of {expected or ' or '.join(accepted)}, got {got}"
        raise FormatError(name, None, message)


def check_names(names: list[str], attributes: Attributes) -> None:
    """Raises FormatError for column names that are unknown, duplicate or missing."""
    for name in names:
        attributes.check(name, name)
    check_columns(names, (*COLUMNS, *attributes.names), ENDS)


def check_columns(names: list[str], known: tuple[str, ...], required: tuple[str, ...]) -> None:
    """Raises FormatError for a name that is not `known`, duplicate, or missing."""
    for name in names:
        if name not in known:
            raise FormatError(name, None, f"unknown column; expected {listed(known)}")
        if names.count(name) > 1:
            raise FormatError(name, None, f"expected one column, got {names.count(name)}")
    for name in required:
        if name not in names:
            raise FormatError(name, None, f"missing column; got {listed(names)}")


def combined(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def keys_of(
    column: pa.ChunkedArray, kind: KeyKind, field: str, without: pa.Array | None = None
) -> pa.Array:
    """The keys in a column of a type that was checked. Raises FormatError.

    without  the rows that must have none; theirs are any
    """
    if without is not None and pc.any(without).as_py():
        column = _filled(column, kind, field, without)
    try:
        column = combined(column)
        keys = column.cast(ARROW_TYPES[kind])
    except pa.ArrowInvalid as error:
        if kind == "string":
            raise FormatError(field, None, f"too many bytes of keys: {error}") from error
        too_large = pc.greater(column, pa.scalar(2**63 - 1, column.type))
        keys, index = None, too_large.index(True).as_py()
    else:
        invalid = keys.is_null()
        if kind == "string":
            invalid = pc.or_(invalid, pc.fill_null(pc.equal(pc.binary_length(keys), 0), False))
        index = invalid.index(True).as_py()
    if index >= 0:
        message = f"expected {EXPECTED_KEY[kind]}, got {described(column[index].as_py())}"
        raise FormatError(field, index, message)
    return keys


def _filled(
    column: pa.ChunkedArray, kind: KeyKind, field: str, without: pa.Array
) -> pa.ChunkedArray:
    """The column with some key in the rows `without` one. Raises FormatError if one has a key."""
    if pa.types.is_null(column.type):
        column = column.cast(ARROW_TYPES[kind])
    present = column.is_valid()
    if kind == "string":
        present = pc.and_(present, pc.not_equal(column, ""))
    index = pc.fill_null(pc.and_(present, without), False).index(True).as_py()
    if index >= 0:
        got = described(column[index].as_py())
        raise FormatError(field, index, f"expected {EXPECTED_NOTHING}, got {got}")
    some = pa.scalar("none" if kind == "string" else 0, column.type)
    return pc.if_else(pa.chunked_array([without]), some, column)
