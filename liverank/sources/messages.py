"""What a message says: changes of edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec

from liverank.choices import Key
from liverank.client.responses import GraphOptions
from liverank.errors import LiverankError

Form = Literal["edge", "batch", "debezium"]


class Message(NamedTuple):
    """position: in its partition; time: of the broker, Unix seconds."""

    position: str
    body: bytes
    time: float


class EdgeChange(NamedTuple):
    """One edge is inserted, or deleted. weight, time: of an insertion; None: none is given."""

    source: Key
    target: Key
    deleted: bool = False
    weight: float | None = None
    time: float | None = None


class InvalidMessage(LiverankError):
    """The message cannot be used, for this reason."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table of edges. weight, time: None: it has none."""

    source: str = "source"
    target: str = "target"
    weight: str | None = None
    time: str | None = None


class _Edge(msgspec.Struct, forbid_unknown_fields=True):
    source: Key
    target: Key
    operation: Literal["insert", "delete"] = "insert"
    weight: float | None = None
    time: float | None = None


class Reader:
    """Reads messages of single edges for a graph with these options."""

    def __init__(self, form: Form, options: GraphOptions, columns: Columns) -> None:
        forms: dict[str, Callable[[Message], list[EdgeChange]]] = {
            "edge": self._edge,
            "debezium": self._row,
        }
        self._read = forms[form]
        self._decode = msgspec.json.Decoder(_Edge).decode
        self._kind = int if options.keys == "integer" else str
        self._weighted = options.weighted
        self._timed = options.half_life is not None or options.window is not None
        self._columns = columns

    def read(self, message: Message) -> list[EdgeChange]:
        """The changes, in order. Raises InvalidMessage."""
        try:
            changes = self._read(message)
        except msgspec.DecodeError as error:
            raise InvalidMessage(f"invalid message: {error}") from None
        return [self._checked(change, message) for change in changes]

    def _checked(self, change: EdgeChange, message: Message) -> EdgeChange:
        """The change with a weight and a time if the graph has them. Raises InvalidMessage."""
        source, target, deleted, weight, time = change
        kind = self._kind
        if type(source) is not kind or type(target) is not kind or source == "" or target == "":
            raise self._of_keys(source, target)
        if deleted:
            return change
        if self._weighted:
            weight = 1.0 if weight is None else weight
        elif weight is not None:
            raise InvalidMessage(f"weight: the graph has none, got {weight!r}")
        if self._timed:
            time = message.time if time is None else time
        elif time is not None:
            raise InvalidMessage(f"time: the graph has none, got {time!r}")
        elif weight is None:
            return change
        return EdgeChange(source, target, False, weight, time)

    def _of_keys(self, source: Any, target: Any) -> InvalidMessage:
        kind = self._kind
        source_is_valid = type(source) is kind and source != ""
        name, key = ("target", target) if source_is_valid else ("source", source)
        expected = "an integer" if kind is int else "a non-empty string"
        return InvalidMessage(f"{name}: expected {expected}, got {key!r}")

    def _edge(self, message: Message) -> list[EdgeChange]:
        edge = self._decode(message.body)
        deleted = edge.operation == "delete"
        if deleted and not (edge.weight is None and edge.time is None):
            raise InvalidMessage("a deletion has no weight and no time")
        return [EdgeChange(edge.source, edge.target, deleted, edge.weight, edge.time)]

    def _row(self, message: Message) -> list[EdgeChange]:
        """A change of a row, as Debezium describes it, with or without its schema."""
        if not message.body:
            return []  # a tombstone, after a deletion
        document = msgspec.json.decode(message.body)
        if isinstance(document, dict) and "payload" in document:
            document = document["payload"]
        if document is None:
            return []
        operation = document.get("op") if isinstance(document, dict) else None
        if operation not in ("c", "r", "u", "d"):
            raise InvalidMessage(f"op: expected c, r, u or d, got {operation!r}")
        changes = []
        if operation in ("u", "d"):
            before = self._edge_of("before", document)
            changes.append(EdgeChange(before.source, before.target, True))
        if operation != "d":
            changes.append(self._edge_of("after", document))
        return changes

    def _edge_of(self, name: str, document: dict[str, Any]) -> EdgeChange:
        row, columns = document.get(name), self._columns
        if not isinstance(row, dict):
            raise InvalidMessage(f"{name}: expected a row, got {row!r}")
        for column in (columns.source, columns.target, columns.weight, columns.time):
            if column is not None and column not in row:
                raise InvalidMessage(f"{name}: expected a column {column!r}, got {list(row)}")
        numbers = []
        for column in (columns.weight, columns.time):
            value = None if column is None else row[column]
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float)
            ):
                raise InvalidMessage(f"{name}.{column}: expected a number, got {value!r}")
            numbers.append(None if value is None else float(value))
        return EdgeChange(row[columns.source], row[columns.target], False, *numbers)
