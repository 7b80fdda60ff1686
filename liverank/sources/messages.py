"""What a message says: changes of edges."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, cast

import msgspec

from liverank.choices import Key
from liverank.client.responses import GraphOptions
from liverank.errors import LiverankError

Form = Literal["edge", "batch", "debezium"]
Operation = Literal["insert", "delete"]

MAX_EDGE_MIB = 16
"""Of a message with a single edge, or a row: larger ones are not decoded."""

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError)
"""What decoding raises for some message."""


class Message(NamedTuple):
    """position: in its partition; time: of the broker, Unix seconds."""

    position: str
    body: bytes
    time: float


class EdgeChange(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One edge is inserted, or deleted.

    weight, time  of an insertion, and of what a deletion takes away; None: none is given
    """

    source: Key
    target: Key
    operation: Operation = "insert"
    weight: float | None = None
    time: float | None = None


class Replacement(msgspec.Struct, gc=False):
    """The out-list of a vertex, in an undirected graph all its edges, goes. The insertions of its
    new list follow.
    """

    source: Key
    operation: Literal["replace"] = "replace"
    target: None = None
    weight: None = None
    time: None = None


Change = EdgeChange | Replacement


class _List(msgspec.Struct, forbid_unknown_fields=True):
    """A message with the new list of a vertex."""

    replace: Key
    targets: list[Key]
    weights: list[float] | None = None
    times: list[float] | None = None


class InvalidMessage(LiverankError):
    """The message cannot be used, for this reason."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table of edges. weight, time: None: it has none."""

    source: str = "source"
    target: str = "target"
    weight: str | None = None
    time: str | None = None


class Reader:
    """Reads messages of single edges for a graph with these options."""

    def __init__(
        self, form: Form, options: GraphOptions, columns: Columns, adds: bool = False
    ) -> None:
        """adds: whether weights add up, so that deletions may have them"""
        forms: dict[str, Callable[[Message], Sequence[Change]]] = {
            "edge": self._edge,
            "debezium": self._row,
        }
        self._read = forms[form]
        self._decode = msgspec.json.Decoder(EdgeChange).decode
        self._decode_list = msgspec.json.Decoder(_List).decode
        self._adds, self._decays = adds, options.decays
        self._kind = int if options.keys == "integer" else str
        self._weighted = options.weighted
        self._timed = options.timed
        self._columns = columns
        self._decode_valid = None
        if form == "edge":
            valid = _valid_edge(self._kind, self._weighted, self._timed)
            self._decode_valid = msgspec.json.Decoder(valid).decode_lines

    def read_all(self, messages: Sequence[Message]) -> Sequence[Change]:
        """The changes, in order. Raises InvalidMessage for one that `read` refuses."""
        changes: Sequence[Change] | None = self._read_lines(messages)
        if changes is None:
            changes = [change for message in messages for change in self.read(message)]
        return changes

    def _read_lines(self, messages: Sequence[Message]) -> list[EdgeChange] | None:
        """What read_all returns, decoded at once; None unless each message is a valid edge in one
        line.
        """
        bodies = [message.body for message in messages]
        if self._decode_valid is None or max(map(len, bodies), default=0) > MAX_EDGE_MIB << 20:
            return None
        lines = b"\n".join(bodies)
        try:
            edges = self._decode_valid(lines)
        except _UNREADABLE:
            return None
        # a line without anything is skipped
        if len(edges) != len(bodies) or lines.count(b"\n") != len(bodies) - 1:
            return None
        for edge, message in zip(edges, messages, strict=True):
            if edge.operation == "delete":
                if self._wrong_deletion(edge, message) is not None:
                    return None
            else:
                self._complete(edge, message)
        return edges

    def _complete(self, edge: EdgeChange, message: Message) -> None:
        """Gives an insertion what every one has in the graph."""
        if self._weighted and edge.weight is None:
            edge.weight = 1.0
        if self._timed and edge.time is None:
            edge.time = message.time

    def _wrong_deletion(self, edge: EdgeChange, message: Message) -> str | None:
        """Completes what a deletion takes away. Returns why it cannot be; None if it can."""
        if edge.weight is None and edge.time is None:
            return None
        if not self._adds:
            return "a deletion has no weight and no time, unless on_conflict is add"
        if edge.weight is None:
            return f"time: a deletion has one only with a weight, got {edge.time!r}"
        if not 0.0 < edge.weight < math.inf:
            return f"weight: expected a finite number above 0, got {edge.weight!r}"
        if not self._decays and edge.time is not None:
            return f"time: a deletion has one only where weights decay, got {edge.time!r}"
        if self._decays and edge.time is None:
            edge.time = message.time
        return None

    def read(self, message: Message) -> Sequence[Change]:
        """The changes, in order. Raises InvalidMessage."""
        if len(message.body) > MAX_EDGE_MIB << 20:
            raise InvalidMessage(
                f"message of {len(message.body):,} bytes exceeds the {MAX_EDGE_MIB} MiB limit"
            )
        try:
            changes = self._read(message)
        except _UNREADABLE as error:
            raise InvalidMessage(f"invalid message: {error}") from None
        for change in changes:
            if isinstance(change, EdgeChange):
                self._check(change, message)
            elif not self._is_key(change.source):
                raise self._of_key("replace", change.source)
        return changes

    def _check(self, change: EdgeChange, message: Message) -> None:
        """Completes the change. Raises InvalidMessage."""
        for name in ("source", "target"):
            if not self._is_key(key := getattr(change, name)):
                raise self._of_key(name, key)
        if change.operation == "delete":
            if (reason := self._wrong_deletion(change, message)) is not None:
                raise InvalidMessage(reason)
            return
        if not self._weighted and change.weight is not None:
            raise InvalidMessage(f"weight: the graph has none, got {change.weight!r}")
        if not self._timed and change.time is not None:
            raise InvalidMessage(f"time: the graph has none, got {change.time!r}")
        self._complete(change, message)

    def _is_key(self, key: Any) -> bool:
        return type(key) is self._kind and key != ""

    def _of_key(self, name: str, key: Any) -> InvalidMessage:
        expected = "an integer" if self._kind is int else "a non-empty string"
        return InvalidMessage(f"{name}: expected {expected}, got {key!r}")

    def _edge(self, message: Message) -> list[Change]:
        if b'"replace"' in message.body:
            document = msgspec.json.decode(message.body)
            if isinstance(document, dict) and "replace" in document:
                return self._list(self._decode_list(message.body))
        return [self._decode(message.body)]

    def _list(self, found: _List) -> list[Change]:
        """The vertex, then the insertions of its new list."""
        for name in ("weights", "times"):
            values = getattr(found, name)
            if values is not None and len(values) != len(found.targets):
                expected = f"expected {len(found.targets)} items, as in targets"
                raise InvalidMessage(f"{name}: {expected}, got {len(values)}")
        nothing = [None] * len(found.targets)
        rows = zip(found.targets, found.weights or nothing, found.times or nothing, strict=True)
        inserted = (
            EdgeChange(found.replace, target, "insert", weight, time)
            for target, weight, time in rows
        )
        return [Replacement(found.replace), *inserted]

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
            changes.append(EdgeChange(before.source, before.target, "delete"))
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
        return EdgeChange(row[columns.source], row[columns.target], "insert", *numbers)


def _valid_edge(kind: type, weighted: bool, timed: bool) -> type[EdgeChange]:
    """An EdgeChange whose types say what a graph accepts."""
    key = int if kind is int else Annotated[str, msgspec.Meta(min_length=1)]
    number = float | None
    valid = msgspec.defstruct(
        "ValidEdge",
        [
            ("source", key),
            ("target", key),
            ("operation", Operation, "insert"),
            ("weight", number if weighted else None, None),
            ("time", number if timed else None, None),
        ],
        bases=(EdgeChange,),
        forbid_unknown_fields=True,
        gc=False,
    )
    return cast(type[EdgeChange], valid)
