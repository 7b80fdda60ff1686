"""The engine, the key table and the named vertex sets of one graph, which change together or not at
all; and the position that it has reached in each external source.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liverank.client.responses import SourcePosition
from liverank_gpu import (
    Change,
    DeviceLost,
    EdgeBatch,
    EdgeReader,
    Engine,
    EngineError,
    InvalidValue,
    OutOfMemory,
    ShardLost,
    ViewSteps,
)
from liverank_service.errors import (
    InvalidField,
    ServiceError,
    SourcePositionConflict,
    UnknownSet,
    UnknownVertex,
)
from liverank_service.formats.columns import EdgeColumns, SetChange, SourceRange
from liverank_service.formats.values import weights_or_1
from liverank_service.pipeline.window import Window
from liverank_service.queries.model import Members, Vertices
from liverank_service.vertex_keys import FoundKeys, VertexKeys, VertexTable

log = logging.getLogger("liverank.pipeline")


class IncompletelyApplied(Exception):
    """The graph has a batch that the window did not follow. It cannot be rejected: a restart
    applies it again.
    """

    def __init__(self, graph: str, error: Exception) -> None:
        super().__init__(f"graph {graph!r} has a batch that its window did not follow: {error!r}")


MAX_COALESCED_EDGES = 1 << 12
"""Maximum number of edges of a batch that is applied together with others."""


_AHEAD = ThreadPoolExecutor(1, "liverank-keys")

_SAFE_FACTOR = 4
"""A batch is not at risk if this many times its estimate is available."""


class KeyedGraph:
    """A graph whose vertices have keys, and sets of them. Only for the writer's thread.

    graph   its name; engine  that has its edges and ranks
    window  None for one whose edges stay
    """

    def __init__(
        self,
        graph: str,
        engine: Engine,
        keys: VertexTable,
        sets: VertexSets,
        window: Window | None = None,
    ) -> None:
        self.graph, self.engine = graph, engine
        self.sets, self.window = sets, window
        self._keys = keys
        self._ahead: tuple[EdgeColumns, Future[FoundKeys]] | None = None

    @property
    def keys(self) -> VertexKeys:
        """The keys of its vertices now."""
        return self._keys.state

    def vertices(self) -> Vertices:
        """Its vertices now, in which the keys of queries are looked up."""
        return Vertices(self.graph, self.keys, self.engine.id_limit, self.sets.members)

    @property
    def weighted(self) -> bool:
        """Whether its edges have weights."""
        return self.engine.options.weighted

    @property
    def edge_reader(self) -> EdgeReader:
        """Reads its edges; they are in ids."""
        return self.engine.edge_reader

    @property
    def damping(self) -> float:
        """Of the graph's ranks."""
        return self.engine.options.damping

    def view_steps_to(self, name: str, vertex: int) -> ViewSteps:
        """See Engine.view_steps_to."""
        return self.engine.view_steps_to(name, vertex)

    def memory(self) -> dict[str, int]:
        """Bytes held in host memory, by purpose."""
        keys = {"keys": self.keys.nbytes}
        return keys if self.window is None else {**keys, "times": self.window.times.nbytes}

    def check_memory(self, batches: Sequence[EdgeColumns]) -> list[OutOfMemory | None]:
        """For each batch the error if it does not fit into memory after the others, or None."""
        known = self.keys.limit
        try:
            # first as one batch with only new keys: no keys have to be looked up
            self.engine.check_memory(
                sum(self._operations(columns) for columns in batches),
                known + sum(columns.max_new_keys for columns in batches),
            )
            return [None] * len(batches)
        except OutOfMemory:
            pass
        errors: list[OutOfMemory | None] = []
        operations, vertices = 0, known
        for columns in batches:
            added = (self._operations(columns), self._new_keys(columns))
            try:
                self.engine.check_memory(operations + added[0], vertices + added[1])
            except OutOfMemory as error:
                errors.append(error)
            else:
                errors.append(None)
                operations, vertices = operations + added[0], vertices + added[1]
        return errors

    def memory_risk(self, columns: EdgeColumns) -> OutOfMemory | None:
        """An error with the figures if the batch is estimated to need so much of the available
        memory that it may need more; None otherwise.
        """
        vertices = self.keys.limit + columns.max_new_keys
        try:
            self.engine.check_memory(self._operations(columns), vertices, _SAFE_FACTOR)
        except OutOfMemory as error:
            return error
        return None

    def look_ahead(self, batches: Sequence[EdgeColumns]) -> None:
        """Begins to look up the keys of the first of these batches, if it is large, on another
        thread, for `apply`; what was looked up for others is forgotten.
        """
        if self._ahead is not None:
            self._ahead[1].cancel()
            self._ahead = None
        if batches and batches[0].operations > MAX_COALESCED_EDGES:
            columns = batches[0]
            find = self._keys.finder((columns.insert_sources, columns.insert_targets))
            with suppress(RuntimeError):  # no thread can be started: `apply` looks them up
                _AHEAD.submit(int)  # starts it: what is in the queue of none would stay there
                self._ahead = columns, _AHEAD.submit(find)

    def apply(self, columns: EdgeColumns) -> tuple[Change, float]:
        """Assigns ids to the keys and applies the batch; also returns the seconds for the keys.

        An error leaves keys and graph unchanged, but DeviceLost, ShardLost and IncompletelyApplied:
        after these the graph may have the batch, and cannot be used any more.
        """
        started = perf_counter()
        before = self._keys.mark()
        try:
            batch = self._with_ids(columns)
            removed = np.unique(batch.remove) if len(batch.remove) else batch.remove
            members = self.sets.after(columns.sets, self.keys.lookup, removed)
            seconds = perf_counter() - started
            self._reserve(columns)
            decided = self.engine.decide(batch)
            change = self.engine.apply(decided)
        except BaseException as error:
            self._keys.undo(before)
            # what deletions take away was checked when the batch was decoded
            if isinstance(error, InvalidValue) and _names_insertion(error):
                raise _of_insertion(error, columns) from None
            raise
        self.sets.members = members
        try:
            if self.window is not None:
                sources, targets = decided.left
                left = replace(
                    batch,
                    delete_sources=sources,
                    delete_targets=targets,
                    delete_weights=None,
                    delete_times=None,
                )
                self.window.applied(left, columns)
        except (DeviceLost, ShardLost):
            raise
        except Exception as error:
            raise IncompletelyApplied(self.graph, error) from error
        with suppress(MemoryError, OverflowError):  # the next batch may have enough
            self._keys.compact()
        return _expired(change) if columns.expiry else change, seconds

    def apply_coalesced(self, batches: Sequence[EdgeColumns]) -> tuple[list[Change], float] | None:
        """Applies several small batches as one if the result is the same; also returns the seconds
        for the keys of each. None if nothing was done: apply them one by one.

        Raises DeviceLost. After any other error the graph cannot be used: the batches may have been
        applied.
        """
        started = perf_counter()
        before = self._keys.mark()
        # together, edges that a batch makes decay and expire would not be counted
        columns = None if self._decays else _coalesced(batches)
        if columns is None:
            return None
        parts = [(len(batch.insert_sources), len(batch.delete_sources)) for batch in batches]
        try:
            edges = self._with_ids(columns)
            self._reserve(columns)
        except Exception as error:
            self._undo(before, error)
            return None
        seconds = (perf_counter() - started) / len(batches)
        try:
            changes = self.engine.apply_coalesced(edges, parts)
        except DeviceLost:
            raise
        except EngineError as error:
            self._undo(before, error)
            return None
        if changes is None:
            self._keys.undo(before)
            return None
        if self.window is not None:
            self.window.applied(edges, columns)
        return changes, seconds

    def _reserve(self, columns: EdgeColumns) -> None:
        """Raises MemoryError, before the graph is changed."""
        if self.window is not None:
            self.window.times.reserve(len(columns.insert_sources))

    def _undo(self, mark: tuple[VertexKeys, int], error: Exception) -> None:
        """Takes back the keys of batches that were not applied, because one of them cannot be."""
        log.info("graph %s: %s: applying batches one by one", self.graph, error)
        self._keys.undo(mark)

    def _with_ids(self, columns: EdgeColumns) -> EdgeBatch:
        named = self.keys.lookup(columns.remove)
        removed = self._keys.remove(named)
        sources, targets, vertices = self._assigned(columns, removed)
        # Deletions create no keys. Looked up last, so that a deletion of an edge that another of
        # the coalesced batches inserts is found.
        return EdgeBatch(
            sources,
            targets,
            self.keys.lookup(columns.delete_sources),
            self.keys.lookup(columns.delete_targets),
            self.keys.limit,
            None if columns.weights is None else columns.weights.to_numpy(),
            columns.on_conflict,
            named,
            vertices,
            times=columns.times.to_numpy() if self._decays and columns.times is not None else None,
            replace=self.keys.lookup(columns.replace),
            delete_weights=_filled(columns.delete_weights, np.inf),
            delete_times=_filled(columns.delete_times, 0.0),
        )

    def _operations(self, columns: EdgeColumns) -> int:
        """The number of insertions and deletions, with those of lists that are replaced and of
        edges that get another weight by what is taken away.
        """
        if columns.delete_weights is not None:
            return columns.operations + len(columns.delete_weights)
        if not len(columns.replace):
            return columns.operations
        replaced = self.keys.lookup(columns.replace)
        leaving = self.edge_reader.count_out_edges(replaced[replaced >= 0])
        return columns.operations + leaving

    @property
    def _decays(self) -> bool:
        return self.engine.options.decays

    def _assigned(
        self, columns: EdgeColumns, removed: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The ids of the insertions' ends and of the vertices. Keys that are new get theirs in
        order: source and target of each insertion, then the vertices. The lowest ids come first:
        those of vertices that were `removed`, by this batch or before.
        """
        ahead, self._ahead = self._ahead, None
        found = None
        if ahead is not None and not ahead[1].cancel() and ahead[0] is columns:
            found = ahead[1].result()  # it has begun: else that of another graph may be before it
        ends = columns.insert_sources, columns.insert_targets
        sources, targets = self._keys.assign_rows(ends, lambda: self._free_ids(removed), found)
        if not len(columns.vertices):
            return sources, targets, np.empty(0, np.int64)
        free = partial(self._free_ids, removed, sources, targets)
        return sources, targets, self._keys.assign(columns.vertices, free)

    def _free_ids(self, removed: NDArray[np.int64], *taken: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ascending: those of vertices `removed` by this batch, or before, but for the `taken`."""
        free = self.engine.free_ids()
        free = np.union1d(free, removed) if len(removed) else free
        return np.setdiff1d(free, np.concatenate(taken)) if taken else free

    def _new_keys(self, columns: EdgeColumns) -> int:
        """The number of keys that the batch would create."""
        keys = pa.chunked_array([columns.insert_sources, columns.insert_targets, columns.vertices])
        return int((self.keys.lookup(keys.unique()) < 0).sum())


def _coalesced(batches: Sequence[EdgeColumns]) -> EdgeColumns | None:
    """The columns of several small batches, one after the other.

    None for a single batch, for large ones, if one removes vertices, adds them by key, replaces
    their lists, takes weights away, changes sets or is an expiry, and if they differ in what they
    do to present edges.
    """
    edges = sum(batch.operations for batch in batches)
    named = any(
        len(batch.vertices)
        or len(batch.remove)
        or len(batch.replace)
        or batch.sets
        or batch.expiry
        or batch.delete_weights is not None
        for batch in batches
    )
    differ = len({batch.on_conflict for batch in batches}) > 1
    if len(batches) < 2 or edges > MAX_COALESCED_EDGES or named or differ:
        return None
    weights = None
    if any(batch.weights is not None for batch in batches):
        given = (weights_or_1(batch.weights, len(batch.insert_sources)) for batch in batches)
        weights = pa.concat_arrays(given)
    timed = [batch.times for batch in batches if batch.times is not None]
    times = pa.concat_arrays(timed) if timed else None
    keys = {
        name: pa.concat_arrays([batch.keys[name] for batch in batches]) for name in batches[0].keys
    }
    return replace(batches[0], **keys, weights=weights, times=times)


def _expired(change: Change) -> Change:
    """The change of an expiry: edges that decayed before are no longer found."""
    return replace(change, expired=change.expired + change.deleted, deleted=0, not_found=0)


def _filled(column: pa.Array | None, value: float) -> NDArray[Any] | None:
    """The numbers of a column, `value` for null."""
    return None if column is None else column.fill_null(value).to_numpy()


def _names_insertion(error: InvalidValue) -> bool:
    return error.field.endswith("]") and not error.field.startswith("delete_")


def _of_insertion(error: InvalidValue, columns: EdgeColumns) -> InvalidField:
    """The error of a weight or a time, as one of the insertion that has it."""
    column, _, place = error.field.removesuffix("]").partition("[")
    field, index = columns.place_of_insertion(int(place))
    message = f"{column.removesuffix('s')}: {error.value!r} must be {error.requirement}"
    return InvalidField(field, index, error.value, message)


class VertexSets:
    """Only for the writer's thread, except that `members` may be read by any.

    members  replaced, never changed
    """

    def __init__(self, graph: str, members: Members) -> None:
        self._graph = graph
        self.members = members

    def after(
        self,
        changes: Mapping[str, SetChange],
        ids_of: Callable[[pa.Array], NDArray[np.int64]],
        removed: NDArray[np.int64],
    ) -> Members:
        """The members after a batch: without the vertices that it removes, then with its changes.

        ids_of   the ids of keys, -1 where a vertex is unknown
        removed  ids, ascending

        Raises UnknownSet, and UnknownVertex for an unknown vertex to add.
        """
        members = dict(self.members)
        for name, ids in self.members.items() if len(removed) else ():
            places = np.searchsorted(ids, removed)
            inside = places < len(ids)
            gone = places[inside][ids[places[inside]] == removed[inside]]
            members[name] = np.delete(ids, gone) if len(gone) else ids
        if not changes:
            return members if len(removed) else self.members
        for name, change in changes.items():
            if change.operation == "drop":
                if members.pop(name, None) is None:
                    raise UnknownSet(self._graph, name, f"sets.{name}")
                continue
            if name not in members and change.operation is None:
                raise UnknownSet(self._graph, name, f"sets.{name}")
            added = ids_of(change.add)
            if (added < 0).any():
                index = int(np.flatnonzero(added < 0)[0])
                key = change.add[index].as_py()
                raise UnknownVertex(self._graph, key, f"sets.{name}.add", index)
            before = np.empty(0, np.int64) if change.operation == "replace" else members[name]
            kept = np.setdiff1d(before, ids_of(change.remove), assume_unique=False)
            members[name] = np.union1d(kept, added)
        return members


MAX_PARTITIONS = 10_000
"""Of one graph, of all sources: every checkpoint has their positions."""


class SourcePositions:
    """The positions of one graph. They follow from its batches: each that was applied moves the
    position of its range from the begin to the end; a rejected one moves none.

    Only for the writer's thread.
    """

    def __init__(self, graph: str, positions: Sequence[SourcePosition] = ()) -> None:
        self._graph = graph
        self._newest = {(one.source, one.partition): one for one in positions}

    @property
    def newest(self) -> list[SourcePosition]:
        """By source and partition."""
        return sorted(self._newest.values(), key=lambda one: (one.source, one.partition))

    @property
    def reached(self) -> dict[tuple[str, str], str]:
        """The position by source and partition."""
        return {key: one.position for key, one in self._newest.items()}

    def check(self, columns: EdgeColumns) -> None:
        """Raises SourcePositionConflict for a batch that does not begin at the position, and
        InvalidField for one partition too many.
        """
        (error,) = self.conflicts([columns])
        if error is not None:
            raise error

    def conflicts(self, batches: Sequence[EdgeColumns]) -> list[ServiceError | None]:
        """For each batch the error of `check` after the others, if those are applied, or None."""
        reached: dict[tuple[str, str], str] = {}
        return [self._conflict(columns.range, reached) for columns in batches]

    def advance(self, columns: EdgeColumns, version: int, time: float) -> None:
        """Notes that a batch that was checked is applied.

        time  of its commit, Unix seconds
        """
        given = columns.range
        if given is not None:
            found = SourcePosition(given.source, given.partition, given.end, version, time)
            self._newest[given.source, given.partition] = found

    def _conflict(
        self, given: SourceRange | None, reached: dict[tuple[str, str], str]
    ) -> ServiceError | None:
        """Adds the end of the range to `reached` if there is no conflict."""
        if given is None:
            return None
        key = given.source, given.partition
        before = self._newest.get(key)
        stored = reached.get(key, None if before is None else before.position)
        if given.begin != stored:
            return SourcePositionConflict(*key, given.begin, stored)
        known = len(self._newest.keys() | reached.keys()) if stored is None else 0
        if known >= MAX_PARTITIONS:
            message = f"graph {self._graph!r} has {known:,} partitions, which is the limit"
            return InvalidField("partition", None, given.partition, message)
        reached[key] = given.end
        return None
