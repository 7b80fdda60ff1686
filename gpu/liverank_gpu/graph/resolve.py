"""What a batch says of edges as they are, decided against the graph before anything changes: the
lists that it replaces, and the weights that its deletions take away.

Both become deletions and insertions, so that nothing behind this knows of them. Where weights add
up, an edge that gets another weight is deleted and inserted again, and `ResolvedBatch.change`
counts it as what it is. The cost follows the lists of the vertices that the batch names, which are
read in one call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.columns import LEAST_WEIGHT
from liverank_gpu.errors import InvalidValue
from liverank_gpu.graph.batch import insertion_weights
from liverank_gpu.graph.decay import half_lives, require_times, times_at
from liverank_gpu.graph.packed_csr import find
from liverank_gpu.graph.reading import EdgeBlock, EdgeReader
from liverank_gpu.graph.vertices import NO_IDS
from liverank_gpu.operations.device import Array
from liverank_gpu.types import Change, EdgeBatch, Options

_ROUNDING = 2.0**-20
"""Where weights decay, they are rounded: an edge has left with less of its weight than this."""


@dataclass(frozen=True, slots=True)
class ResolvedBatch:
    """A batch without replacements and weights of deletions.

    batch      as the graph takes it
    left       sources and targets of the edges that it deletes for good, or to insert again
    again      edges that it deletes and inserts
    reweighted those of them that insertions of the batch name
    missing    deletions with a weight that name no edge, and repeats of those of a whole edge
    lowered    those that take away weight, but for one of each edge that leaves
    insertions of the batch as it was
    first      insertions of edges with less weight, which are before those
    """

    batch: EdgeBatch
    left: tuple[NDArray[np.int64], NDArray[np.int64]]
    again: int = 0
    reweighted: int = 0
    missing: int = 0
    lowered: int = 0
    insertions: int = 0
    first: int = 0

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Errors of insertions name their places in the batch as it was."""
        try:
            yield
        except InvalidValue as error:
            name, _, place = error.field.removesuffix("]").partition("[")
            if not self.first or not place:
                raise
            field = f"{name}[{int(place) - self.first}]"
            raise InvalidValue(field, error.value, error.requirement) from None

    def change(self, change: Change) -> Change:
        """What the batch did, from what the graph counts."""
        if not (self.again or self.missing or self.lowered):
            return change
        inserted = max(0, change.inserted - self.again)
        reweighted = change.reweighted + self.reweighted
        return replace(
            change,
            inserted=inserted,
            reweighted=reweighted,
            already_present=self.insertions - inserted - reweighted,
            deleted=max(0, change.deleted - self.again),
            not_found=change.not_found + self.missing,
            lowered=self.lowered,
        )


def resolved(
    batch: EdgeBatch,
    options: Options,
    reader: EdgeReader,
    id_limit: int,
    to_host: Callable[[Array], NDArray[np.int64]],
) -> ResolvedBatch:
    """The batch, decided against the edges that `reader` reads.

    id_limit  every id is below it
    Raises InvalidValue for weights and times that the graph does not take, OutOfMemory.
    """
    columns: dict[str, Any] = {}
    for name in ("insert_sources", "insert_targets", "delete_sources", "delete_targets"):
        column = getattr(batch, name)
        column = column if isinstance(column, np.ndarray) else to_host(column)
        columns[name] = column.astype(np.int64, copy=False)
    batch = replace(batch, **columns)
    insertion_weights(batch, options.weighted)
    edges = _Edges(options, reader, batch.remove, id_limit)
    return _lowered(batch, edges) if batch.delete_weights is not None else _replaced(batch, edges)


class _Edges:
    """The edges of a graph, by the vertices that a batch names.

    removed  int64[…], those that it removes, whose edges are gone by then
    """

    def __init__(
        self, options: Options, reader: EdgeReader, removed: NDArray[np.int64], id_limit: int
    ) -> None:
        self.options, self.reader = options, reader
        self._removed, self._limit = removed, id_limit

    def keys(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[k], a number for each edge; -1 with an id that is none."""
        if not self.options.directed:
            sources, targets = np.minimum(sources, targets), np.maximum(sources, targets)
        known = (np.minimum(sources, targets) >= 0) & (np.maximum(sources, targets) < 1 << 31)
        return np.where(known, sources << 32 | targets, -1)

    def of(self, vertices: NDArray[np.int64]) -> EdgeBlock:
        """Those of vertices, any ids, that no removal takes."""
        known = np.unique(vertices[(vertices >= 0) & (vertices < self._limit)])
        edges = self.reader.out_edges(np.setdiff1d(known, self._removed), sys.maxsize)
        return edges.only(~np.isin(edges.targets, self._removed))


def _replaced(batch: EdgeBatch, edges: _Edges) -> ResolvedBatch:
    present = edges.of(batch.replace)
    keys = edges.keys(present.sources, present.targets)
    stays = np.isin(keys, edges.keys(batch.insert_sources, batch.insert_targets))
    named = np.isin(keys, edges.keys(batch.delete_sources, batch.delete_targets))
    again = 0
    if batch.on_conflict == "add":  # to what the list says, not to what was there
        again = int((stays & ~named).sum())
        stays[:] = False
    left = _joined((batch.delete_sources, batch.delete_targets), present.only(~(stays | named)))
    without = replace(batch, replace=NO_IDS, delete_sources=left[0], delete_targets=left[1])
    return ResolvedBatch(without, left, again, again, insertions=len(batch.insert_sources))


def _lowered(batch: EdgeBatch, edges: _Edges) -> ResolvedBatch:
    options = edges.options
    require_times(batch, options.decays)
    amounts = np.asarray(batch.delete_weights, np.float64)
    keys = edges.keys(batch.delete_sources, batch.delete_targets)
    present = edges.of(batch.delete_sources)
    of_present = edges.keys(present.sources, present.targets)
    chosen = np.unique(of_present, return_index=True)[1]
    chosen = chosen[np.isin(of_present[chosen], keys)]
    present, of_present = present.only(chosen), of_present[chosen]
    assert present.weights is not None
    place, found = find(np, of_present, keys)
    place, amounts = place[found], amounts[found]
    whole = np.isinf(amounts)
    times, exponents, least = batch.times, NO_IDS, 0.0
    if options.decays:
        assert batch.delete_times is not None
        exponents, least = edges.reader.exponents(present.sources), _ROUNDING
        ages = half_lives(batch.delete_times, options, "delete_times")[found]
        with np.errstate(over="ignore"):  # of far more than there is
            amounts[~whole] *= np.exp2(ages - exponents[place])[~whole]
    rest = present.weights - np.bincount(place, amounts, len(of_present))
    leaves = rest < np.maximum(LEAST_WEIGHT, least * present.weights)
    lower, kept = present.only(~leaves), rest[~leaves].astype(np.float32)
    insertions = len(batch.insert_sources)
    weights = np.ones(insertions, np.float32) if batch.weights is None else batch.weights
    if options.decays:
        # a weight is stored as it is by this time
        given = np.empty(0) if times is None else times
        times = np.append(times_at(exponents[~leaves], options), given)
    left = _joined((NO_IDS, NO_IDS), present.only(leaves))
    deleted = _joined(left, lower)
    without = replace(
        batch,
        delete_sources=deleted[0],
        delete_targets=deleted[1],
        delete_weights=None,
        delete_times=None,
        insert_sources=np.append(lower.sources, batch.insert_sources),
        insert_targets=np.append(lower.targets, batch.insert_targets),
        weights=np.append(kept, weights),
        times=times,
    )
    named = edges.keys(batch.insert_sources, batch.insert_targets)
    repeats = int(whole.sum()) - len(np.unique(place[whole]))
    return ResolvedBatch(
        without,
        left,
        len(kept),
        int(np.isin(of_present[~leaves], named).sum()),
        int((~found).sum()) + repeats,
        int(found.sum()) - int(leaves.sum()) - repeats,
        insertions,
        len(kept),
    )


def _joined(
    columns: tuple[NDArray[np.int64], NDArray[np.int64]], edges: EdgeBlock
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.append(columns[0], edges.sources), np.append(columns[1], edges.targets)
