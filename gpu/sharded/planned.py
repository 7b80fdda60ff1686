"""What the shards have planned of a batch, and tell each other before any of them writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gpu.graph.packed_csr import PackedCsr
from gpu.graph.workspace import Workspace
from gpu.operations.device import Array
from gpu.operations.update import Counts, EdgeChanges


class Direction(NamedTuple):
    """What a batch does to the lists of one direction of one shard.

    inserted, deleted, reweighted  see gpu.operations.update.Counts
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
    """Both directions of a graph that had no edges, in new arrays."""

    outgoing: PackedCsr
    incoming: PackedCsr
    loop: Array
    degree: Array
    directions: tuple[Direction, Direction]
    changes: EdgeChanges | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """A planned batch, and room for what it changes."""

    workspace: Workspace
    counts: tuple[Counts, Counts]
    changes: EdgeChanges
    directions: tuple[Direction, Direction]
