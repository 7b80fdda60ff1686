"""What the shards have planned of a batch, and tell each other before any of them writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from liverank_gpu.graph.packed_csr import PackedCsr
from liverank_gpu.graph.workspace import Workspace
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import SortedKeys
from liverank_gpu.operations.update import LAST_PLACE, Counts, EdgeChanges


class Direction(NamedTuple):
    """What a batch does to the lists of one direction of one shard.

    inserted, deleted, reweighted  see liverank_gpu.operations.update.Counts
    growth    entries and loops that the lists have more after it
    longest   upper bound on the length of a list after it
    exceeded  1 if a sum of weights exceeds float32
    """

    inserted: int
    deleted: int
    reweighted: int
    growth: int
    longest: int
    exceeded: int


@dataclass(frozen=True, slots=True)
class Load:
    """Both directions in new arrays.

    exceeded  int64[1 or 0]: the key of the first edge of own out-lists whose sum of weights exceeds
              float32
    touched   int32[…] each: supersets of own sources and removed targets, see ShardUpdate
    """

    outgoing: PackedCsr
    incoming: PackedCsr
    loop: Array
    degree: Array
    directions: tuple[Direction, Direction]
    exceeded: Array
    touched: tuple[Array, Array]
    changes: EdgeChanges | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """A planned batch, and room for what it changes.

    in_changes  of the in-lists, with sources as columns, for their pages
    exceeded    see Load
    """

    workspace: Workspace
    counts: tuple[Counts, Counts]
    changes: EdgeChanges
    in_changes: EdgeChanges
    directions: tuple[Direction, Direction]
    exceeded: Array

    @property
    def touched(self) -> tuple[Array, Array]:
        """See Load.touched."""
        return self.changes.sources, self.changes.removed_targets


def exceeded_key(counts: Counts, keys: SortedKeys) -> Array:
    """Load.exceeded of the planned operations on own out-lists."""
    end = LAST_PLACE - counts.exceeded if counts.exceeded else 0
    return keys.keys[max(0, end - 1) : end]
