"""The engine and the key table of one graph, which change together or not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import perf_counter

from gpu import Change, DeviceLost, EdgeBatch, Engine, OutOfMemory
from service.formats.decode import EdgeColumns
from service.pipeline.batch import Batch, in_order_of_position, joined, new_keys
from service.vertex_keys.table import KeyTable

log = logging.getLogger("liverank.pipeline")


class KeyedGraph:
    """A graph whose vertices have keys. For one thread, that of its pipeline."""

    def __init__(self, graph: str, engine: Engine, keys: KeyTable) -> None:
        self._graph = graph
        self._engine = engine
        self._keys = keys

    def fitting(
        self, batches: list[Batch], refuse: Callable[[Batch, OutOfMemory], None]
    ) -> list[Batch]:
        """The batches that memory has room for; calls `refuse` with each of the others."""
        known = len(self._keys)
        try:
            # as if they were one, and all their keys new, which is quick to say
            self._engine.check_memory(
                sum(batch.columns.operations for batch in batches),
                known + sum(batch.columns.most_new_keys for batch in batches),
            )
            return batches
        except OutOfMemory:
            pass
        fitting = []
        operations, vertices = 0, known
        for batch in batches:
            more = (batch.columns.operations, new_keys(batch.columns, self._keys))
            try:
                self._engine.check_memory(operations + more[0], vertices + more[1])
            except OutOfMemory as error:
                refuse(batch, error)
            else:
                fitting.append(batch)
                operations, vertices = operations + more[0], vertices + more[1]
        return fitting

    def apply(self, columns: EdgeColumns) -> tuple[Change, float]:
        """Keys to ids, then into the engine; returns the seconds that the keys took too.

        An error leaves keys and graph as they were.
        """
        started = perf_counter()
        known = len(self._keys)
        try:
            batch = self._with_ids(columns)
            seconds = perf_counter() - started
            return self._engine.apply(batch), seconds
        except BaseException:
            self._keys.truncate(known)
            raise

    def apply_together(self, batches: Sequence[EdgeColumns]) -> tuple[list[Change], float] | None:
        """Applies small batches as one, where that is the same; the seconds that the keys of each
        took too. None: nothing was done, and they are to be applied one by one.

        Raises DeviceLost.
        """
        started = perf_counter()
        known = len(self._keys)
        columns = joined(batches)
        if columns is None:
            return None
        parts = [(len(one.insert_sources), len(one.delete_sources)) for one in batches]
        try:
            edges = self._with_ids(columns)
            seconds = (perf_counter() - started) / len(batches)
            changes = self._engine.apply_parts(edges, parts)
        except DeviceLost:
            raise
        except Exception as error:
            # one of them is at fault, and only that one is to be rejected
            log.info("graph %s: %s: one by one", self._graph, error)
            changes = None
        if changes is None:
            self._keys.truncate(known)
            return None
        return changes, seconds

    def _with_ids(self, columns: EdgeColumns) -> EdgeBatch:
        inserted = len(columns.insert_sources)
        ids = self._keys.assign(in_order_of_position(columns))
        # Deletions create no keys. They are looked up afterwards, so that one which names an edge
        # that another batch of those together inserts is seen to.
        return EdgeBatch(
            ids[0 : 2 * inserted : 2],
            ids[1 : 2 * inserted : 2],
            self._keys.lookup(columns.delete_sources),
            self._keys.lookup(columns.delete_targets),
            vertices=len(self._keys),
        )
