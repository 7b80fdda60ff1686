"""Events of the change feed, as the client returns them."""

from __future__ import annotations

from typing import Literal

import msgspec

from liverank.choices import Key
from liverank.client.responses import RankedVertex


class LeftVertex(msgspec.Struct, frozen=True):
    """rank: None if the vertex was removed, or is no place of the watched query any more."""

    vertex: Key
    rank: float | None


class _ChangeEvent(msgspec.Struct, frozen=True, tag_field="event", tag=str.lower):
    """id: `changes` continues after this event if it is given as `last_event_id`."""

    id: str
    version: int
    revision: int
    error_bound: float


class Snapshot(_ChangeEvent, frozen=True):
    """top: best first. The first event, from which the others continue."""

    top: list[RankedVertex]


class Gap(_ChangeEvent, frozen=True):
    """Events before it are lost: forget what they said, and continue from `top`."""

    reason: Literal["epoch", "too-old", "future"]
    top: list[RankedVertex]


class Change(_ChangeEvent, frozen=True):
    """What changed in one published revision. A view or a watched query has another one of the same
    revision if it is solved between two.

    id         `changes` continues after this event if it is given as `last_event_id`
    version, revision, error_bound  as in every read
    time       when the revision was published, Unix seconds
    seconds    time by stage, as in a receipt, of the slowest of the batches ranked together; empty
               where no batch was
    entered    vertices that entered the top, with their ranks
    left       vertices that left the top, with their ranks; None for one that was removed
    moved      other vertices whose rank moved by more than `threshold`, with their ranks
    truncated  more vertices moved than `limit` allows: these have the largest differences, later
               events have the others
    deferred   the server skipped these ranks because it is behind; the next event that is not
               deferred has their changes
    """

    time: float
    seconds: dict[str, float]
    entered: list[RankedVertex]
    left: list[LeftVertex]
    moved: list[RankedVertex]
    truncated: bool
    deferred: bool


ChangeEvent = Snapshot | Gap | Change
