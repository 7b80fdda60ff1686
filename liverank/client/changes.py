"""Events of the change feed, as the client returns them. docs/api.md explains every member."""

from __future__ import annotations

from typing import Literal

import msgspec

from liverank.choices import Key
from liverank.client.responses import RankedVertex


class LeftVertex(msgspec.Struct, frozen=True):
    """rank: None if the vertex was removed."""

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
    """What changed in one published revision; docs/api.md explains the members.

    time     of the publication, Unix seconds
    seconds  by stage of the slowest batch
    """

    time: float
    seconds: dict[str, float]
    entered: list[RankedVertex]
    left: list[LeftVertex]
    moved: list[RankedVertex]
    truncated: bool
    deferred: bool


ChangeEvent = Snapshot | Gap | Change
