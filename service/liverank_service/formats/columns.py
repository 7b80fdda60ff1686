"""A batch as columns of keys, the result of decoding any format, and what it has beside edges:
changes of vertex sets and the range of an external source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liverank.choices import KeyKind
from liverank_gpu import OnConflict
from liverank_service.errors import FormatError
from liverank_service.formats.values import (
    EXPECTED_TIME,
    UNWEIGHTED,
    TimeRule,
    described,
    key_column,
    listed,
    too_far,
)


@dataclass(frozen=True, slots=True)
class SourceRange:
    """The messages of a partition of a source after one position, up to another.

    Positions are texts of the source, without an order: a batch continues the one that ended where
    it begins.

    begin  None: the batch is the first of this partition
    """

    source: str
    partition: str
    begin: str | None
    end: str

    def document(self) -> list[str | None]:
        """As the journal stores it."""
        return [self.source, self.partition, self.begin, self.end]


def stored_range(document: Any) -> SourceRange:
    """The range from its document. Raises FormatError for anything else."""
    if isinstance(document, list) and len(document) == 4:
        source, partition, begin, end = document
        texts = (source, partition, end, "" if begin is None else begin)
        if all(isinstance(text, str) for text in texts):
            return SourceRange(source, partition, begin, end)
    message = f"expected range [source, partition, from or null, to], got {document!r}"
    raise FormatError("payload", None, message)


SetOperation = Literal["replace", "drop"]


@dataclass(frozen=True)
class SetChange:
    """What a batch does to a set of vertices, by their keys, as columns of a batch.

    remove, add  in this order
    operation    ``replace``: the set has the added vertices alone, and is created if there is none;
                 ``drop``: there is no such set any more. None: the set exists, and is changed
    """

    add: pa.Array
    remove: pa.Array
    operation: SetOperation | None = None


@dataclass(frozen=True)
class EdgeColumns:
    """A batch as columns of external keys: all pa.string() or all pa.int64(), without nulls.

    `remove` are vertices that go with their edges, first; keys of none are ignored. `vertices` are
    keys that the graph has after the batch, with or without an edge. Deletions are applied before
    insertions, whatever their order in the body.

    weights      pa.float32(), of the insertions, as in liverank_gpu.EdgeBatch; None: all 1
    on_conflict  what an insertion does to the weight of an edge that is present or repeated
    sets         changes of sets of vertices by their names, after the insertions
    times        pa.float64(), Unix seconds, of the insertions; None for a graph without times
    expiry       whether the service made it, of edges that are too old
    range        the range of an external source that the batch covers
    replace      vertices whose out-edges, in an undirected graph all edges, are those that the
                 batch inserts: the others leave
    delete_weights  pa.float32(), with on_conflict ``add``: what deletions take away from the
                 weights of their edges, null: all; None: all of them do
    delete_times pa.float64(), in a graph with half_life: the times of these weights
    """

    insert_sources: pa.Array
    insert_targets: pa.Array
    delete_sources: pa.Array
    delete_targets: pa.Array
    vertices: pa.Array
    weights: pa.Array | None = None
    on_conflict: OnConflict = "replace"
    sets: Mapping[str, SetChange] = field(default_factory=dict)
    remove: pa.Array = None
    times: pa.Array | None = None
    expiry: bool = False
    range: SourceRange | None = None
    replace: pa.Array = None
    delete_weights: pa.Array | None = None
    delete_times: pa.Array | None = None

    def __post_init__(self) -> None:
        for name in ("remove", "replace"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, self.vertices.slice(0, 0))

    @property
    def keys(self) -> dict[str, pa.Array]:
        """The columns of keys by name."""
        return {name: getattr(self, name) for name in KEY_COLUMNS}

    def place_of_insertion(self, index: int) -> tuple[str, int]:
        """The field of a batch in JSON that has this insertion, and its place there: in a list that
        the batch replaces, or in `insert`.
        """
        listed = pc.is_in(self.insert_sources.slice(0, index + 1), self.replace)
        before, source = listed.slice(0, index), self.insert_sources[index]
        if not listed[index].as_py():
            return "insert", index - pc.sum(before, min_count=0).as_py()
        same = pc.equal(self.insert_sources.slice(0, index), source)
        return f"replace.{source.as_py()}", pc.sum(same, min_count=0).as_py()

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        own = [getattr(self, name) for name in (*KEY_COLUMNS, *_NUMBERS)]
        own += (keys for change in self.sets.values() for keys in (change.add, change.remove))
        return sum(column.nbytes for column in own if column is not None and len(column))

    @property
    def operations(self) -> int:
        """The number of insertions and deletions."""
        return len(self.insert_sources) + len(self.delete_sources)

    @property
    def max_new_keys(self) -> int:
        """The number of keys that the batch creates if all are different and new."""
        return 2 * len(self.insert_sources) + len(self.vertices)


EDGE_COLUMNS = tuple(EdgeColumns.__annotations__)[:5]
KEY_COLUMNS = (*EDGE_COLUMNS, "remove", "replace")
_NUMBERS = ("weights", "times", "delete_weights", "delete_times")


MAX_SET_NAME = 200
MAX_SETS = 10_000
"""That one batch changes."""

_SET_MEMBERS = ("add", "remove")


def decode_sets(document: object, kind: KeyKind) -> dict[str, SetChange]:
    """The changes by name, of {name: {"add": [key, …], "remove": [key, …]}}. Raises FormatError."""
    sets = _sets(document, _SET_MEMBERS)
    if len(sets) > MAX_SETS:
        raise FormatError("sets", None, f"expected at most {MAX_SETS:,} sets, got {len(sets):,}")
    return {name: _change(name, given, kind) for name, given in sets.items()}


def check_set_name(name: str, field: str) -> None:
    """Raises FormatError."""
    if not 1 <= len(name) <= MAX_SET_NAME:
        message = f"expected 1 to {MAX_SET_NAME} characters, got {described(name)}"
        raise FormatError(field, None, message)


def set_documents(sets: Mapping[str, SetChange]) -> dict[str, Any]:
    """The changes as JSON, as the journal has them."""
    return {
        name: {
            "add": change.add.to_pylist(),
            "remove": change.remove.to_pylist(),
            "whole": change.operation,
        }
        for name, change in sets.items()
    }


def stored_sets(document: object, kind: KeyKind) -> dict[str, SetChange]:
    """The changes in a document of `set_documents`. Raises FormatError."""
    changes = {}
    for name, given in _sets(document, (*_SET_MEMBERS, "whole")).items():
        operation: Any = given.pop("whole", None)
        if operation is not None and operation not in get_args(SetOperation):
            raise FormatError(f"sets.{name}.whole", None, f"got {described(operation)}")
        change = _change(name, given, kind)
        changes[name] = SetChange(change.add, change.remove, operation)
    return changes


def _sets(document: object, members: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    if not isinstance(document, dict):
        raise FormatError("sets", None, f"expected an object of sets, got {described(document)}")
    for name, given in document.items():
        check_set_name(name, "sets")
        if not isinstance(given, dict):
            message = f"expected an object of {listed(_SET_MEMBERS)}, got {described(given)}"
            raise FormatError(f"sets.{name}", None, message)
        for member in given:
            if member not in members:
                message = f"unknown member; expected {listed(_SET_MEMBERS)}"
                raise FormatError(f"sets.{name}.{member}", None, message)
    return document


def _change(name: str, given: dict[str, Any], kind: KeyKind) -> SetChange:
    columns: list[pa.Array] = []
    for member in _SET_MEMBERS:
        keys, field = given.get(member, []), f"sets.{name}.{member}"
        if not isinstance(keys, list):
            raise FormatError(field, None, f"expected an array of keys, got {described(keys)}")
        columns.append(key_column(keys, kind, field))
    return SetChange(*columns)


_REFUSALS = {
    "weight": UNWEIGHTED,
    "time": "the edges of the graph have no times: send them without, or create a graph with the "
    "option half_life or window",
}
_OF_DELETIONS = {
    "weight": "a deletion has a weight, which it takes away, only with on_conflict=add",
    "time": "a deletion has a time, that of the weight which it takes away, only with "
    "on_conflict=add in a graph with the option half_life",
}


class Attributes(NamedTuple):
    """What insertions of a graph may have beside their keys.

    times      None if no times
    adds       whether weights add up, so that deletions may have weights too
    deletions  whether these are those of deletions
    """

    weighted: bool = False
    times: TimeRule | None = None
    adds: bool = False
    deletions: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        has_weight, has_time = self.weighted, self.times is not None
        if self.deletions:
            has_weight = self.adds
            has_time = self.adds and self.times is not None and self.times.decays
        return ("weight",) * has_weight + ("time",) * has_time

    @property
    def of_deletions(self) -> Attributes | None:
        """Those of deletions; None for an unweighted graph."""
        return self._replace(deletions=True) if self.weighted else None

    def subtracts(self, name: str) -> bool:
        """Whether deletions may have the attribute."""
        return self.of_deletions is not None and name in self.of_deletions.names

    def check(self, name: str, field: str, index: int | None = None) -> None:
        """Raises FormatError for an attribute that the graph, or a deletion, does not have."""
        if name in _REFUSALS and name not in self.names:
            refusals = _OF_DELETIONS if self.deletions else _REFUSALS
            raise FormatError(field, index, refusals[name])

    def completed(self, columns: EdgeColumns) -> EdgeColumns:
        """The columns with a time for each insertion, in a graph with times, and for each weight
        that is taken away, where weights decay. Raises FormatError.
        """
        if columns.delete_weights is not None and len(columns.replace):
            message = "expected nothing where a deletion has a weight: send two batches"
            raise FormatError("replace", None, message)
        rule, given = self.times, {}
        if rule is None:
            return columns
        if columns.times is None and len(columns.insert_sources):
            given["times"] = pa.array(np.full(len(columns.insert_sources), rule.now))
        if rule.decays and columns.delete_weights is not None and columns.delete_times is None:
            is_whole, none = columns.delete_weights.is_null(), pa.scalar(None, pa.float64())
            given["delete_times"] = pc.if_else(is_whole, none, rule.now)
        if not given:
            return columns
        if rule.clock == "event":
            what = "insertion" if "times" in given else "deletion with a weight"
            message = f"the graph has the clock event: give every {what} a time, {EXPECTED_TIME}"
            raise FormatError("time", None, message)
        if rule.now > rule.farthest:
            raise FormatError("time", None, f"{too_far(rule)}; it is {rule.now:.3f} now")
        return replace(columns, **given)


PLAIN = Attributes()
"""Those of a graph without weights and times."""
