"""Engine, keys and published view of a graph, to a checkpoint and back.

Arrays of a checkpoint:

    those of liverank_gpu.snapshot.Snapshot; values may be float32, as earlier releases could keep
    them
    keys-seed, keys-slots, keys-offsets, keys-arena    see liverank_service.vertex_keys.table
    keys-numbers       int32[limit], the number of the key of each id, -1 where it is free; left out
                       if no vertex was removed, since ids are the numbers then
    sets               int64[…], ids, ascending in each set, one set after the other; left out
                       without sets
    window-edges, window-times    uint64[e] and float64[e], source · 2³² + target + 1 by ids, and
                       Unix seconds; of an undirected edge the lower id comes first
    view-0, …          float64[limit], the ranks of views by id: of those that spread over the graph
    window-isolated    int64[…], ids that lost their last edges by age, and have not left yet

Numbers:

    engine             those of liverank_gpu.snapshot.Snapshot
    keys               ``string`` or ``integer``
    memory             bytes by purpose, as they were published
    sets               the number of members by name, in the order of the array
    sources            the fields of SourcePosition; left out if there are none
    views              name and base (liverank_gpu.Ranks.base) of each view that has an array; left
                       out if there are none
    newest-time        the clock of a window; null before the first edge
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu import Capture, Engine, Ranks, Snapshot
from liverank_service.errors import StorageFailed
from liverank_service.pipeline.source_positions import SourcePosition
from liverank_service.pipeline.window import Window, WindowCapture
from liverank_service.queries.model import Members
from liverank_service.queries.rank_views import Start
from liverank_service.queries.view import View
from liverank_service.storage.checkpoint import Checkpoint
from liverank_service.vertex_keys import KeyKind, VertexCapture, VertexKeys

_KEYS_PREFIX, _SETS, _WINDOW_PREFIX, _NEWEST = "keys-", "sets", "window-", "newest-time"
_SOURCES, _VIEWS, _VIEW_PREFIX = "sources", "views", "view-"

_DENSE_PART = 8
"""A view is stored if more than one rank in _DENSE_PART is not 0: others are soon solved again."""


@dataclass(frozen=True, slots=True)
class Captured:
    """A graph whose batches are all ranked: captured by its writer, for another thread.

    pause_seconds  how long this blocked the writer
    call           calls a function on the writer's thread
    """

    view: View
    chain: bytes
    engine: Capture
    keys: VertexCapture
    sets: Members
    window: WindowCapture | None
    sources: Sequence[SourcePosition]
    pause_seconds: float
    call: Callable[[Callable[[], Any]], Any]

    def checkpoint(self) -> Checkpoint:
        """To be written before `release`, while the writer continues."""
        snapshot = self.engine.snapshot()
        keys = {f"{_KEYS_PREFIX}{name}": array for name, array in self.keys.arrays().items()}
        numbers: dict[str, Any] = {
            "engine": snapshot.numbers,
            "keys": self.keys.kind,
            "memory": self.view.memory,
        }
        arrays = snapshot.arrays | keys
        if self.sets:
            numbers[_SETS] = {name: len(ids) for name, ids in self.sets.items()}
            arrays[_SETS] = np.concatenate(list(self.sets.values()))
        if self.sources:
            numbers[_SOURCES] = [one.document() for one in self.sources]
        if self.window is not None:
            numbers[_NEWEST] = self.window.newest
            arrays |= {f"{_WINDOW_PREFIX}{k}": each for k, each in self.window.arrays().items()}
        parts: dict[str, Iterable[NDArray[Any]]] = {
            name: map(self.call, pieces) for name, pieces in self.engine.pieces().items()
        }
        views = list[dict[str, Any]]()
        for name, ranks in self._dense_views():
            # one at a time is on the host
            parts[f"{_VIEW_PREFIX}{len(views)}"] = map(Ranks.to_numpy, [ranks])
            views.append({"name": name, "base": ranks.base})
        if views:
            numbers[_VIEWS] = views
        return Checkpoint(self.view.version, self.view.revision, self.chain, numbers, arrays, parts)

    def _dense_views(self) -> Iterator[tuple[str, Ranks]]:
        for name, one in (self.view.rank_views or {}).items():
            if one.ranks is not None:
                some = np.count_nonzero(one.ranks.to_numpy())
                if some > one.ranks.id_limit // _DENSE_PART:
                    yield name, one.ranks

    def release(self) -> None:
        """Frees what shards hold for it."""
        if self.engine.pieces():
            with suppress(Exception):  # the shards are lost, or the graph is closed
                self.call(self.engine.release)


def snapshot_of(checkpoint: Checkpoint) -> Snapshot:
    arrays = {
        name: array
        for name, array in checkpoint.arrays.items()
        if not name.startswith((_KEYS_PREFIX, _SETS, _WINDOW_PREFIX, _VIEW_PREFIX))
    }
    arrays["values"] = arrays["values"].astype(np.float64, copy=False)
    return Snapshot(arrays, checkpoint.numbers["engine"])


def keys_of(checkpoint: Checkpoint, kind: KeyKind) -> VertexKeys:
    """Raises StorageFailed for a checkpoint of a graph with keys of the other kind."""
    stored = checkpoint.numbers["keys"]
    if stored != kind:
        raise StorageFailed(
            f"checkpoint {checkpoint.name}", f"has {stored} keys, but the graph has {kind} keys"
        )
    arrays = {
        name.removeprefix(_KEYS_PREFIX): array
        for name, array in checkpoint.arrays.items()
        if name.startswith(_KEYS_PREFIX)
    }
    return VertexKeys.restored(kind, len(checkpoint.arrays["length"]), arrays)


def restore_window(checkpoint: Checkpoint, window: Window) -> None:
    """Takes the times of the edges from a checkpoint."""
    arrays = {
        name.removeprefix(_WINDOW_PREFIX): array
        for name, array in checkpoint.arrays.items()
        if name.startswith(_WINDOW_PREFIX)
    }
    window.restore(arrays, checkpoint.numbers[_NEWEST])


def source_positions_of(checkpoint: Checkpoint) -> list[SourcePosition]:
    return [SourcePosition(**document) for document in checkpoint.numbers.get(_SOURCES, [])]


def view_of(checkpoint: Checkpoint, engine: Engine, keys: VertexKeys) -> View:
    """The view that was published when the checkpoint was taken."""
    snapshot = snapshot_of(checkpoint)
    ranks = engine.ranks_of(snapshot)
    return View(
        version=checkpoint.version,
        revision=checkpoint.revision,
        error_bound=snapshot.numbers["error_bound"],
        vertices=ranks.count,
        edges=int(snapshot.numbers["edges"]),
        memory=checkpoint.numbers["memory"],
        ranks=ranks,
        keys=keys,
        watched=None,
        rank_views=None,
        sets=sets_of(checkpoint),
        positions={
            (one.source, one.partition): one.position for one in source_positions_of(checkpoint)
        },
    )


def views_of(checkpoint: Checkpoint) -> dict[str, Start]:
    """The ranks of views as of the checkpoint, by name, to start from."""
    stored = checkpoint.numbers.get(_VIEWS, [])
    return {
        one["name"]: (checkpoint.arrays[f"{_VIEW_PREFIX}{place}"], one["base"])
        for place, one in enumerate(stored)
    }


def sets_of(checkpoint: Checkpoint) -> Members:
    sizes = checkpoint.numbers.get(_SETS, {})
    ends = np.cumsum(list(sizes.values()), dtype=np.int64)[:-1]
    return dict(zip(sizes, np.split(checkpoint.arrays[_SETS], ends), strict=True)) if sizes else {}
