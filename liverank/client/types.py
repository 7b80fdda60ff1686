"""Responses of the server, as the client returns them. docs/api.md explains every member."""

from __future__ import annotations

from typing import Literal, TypedDict

Key = str | int
Pair = tuple[Key, Key]


class RankedVertex(TypedDict):
    vertex: Key
    rank: float


class Published(TypedDict):
    """The members of every read of published ranks."""

    version: int
    revision: int
    error_bound: float


class Receipt(TypedDict):
    """The result of a batch. seconds: by stage."""

    version: int
    ranked_version: int
    revision: int
    inserted: int
    already_present: int
    deleted: int
    not_found: int
    new_vertices: int
    strategy: str
    iterations: int
    touched_vertices: int
    error_bound: float
    converged: bool
    seconds: dict[str, float]


class Accepted(TypedDict):
    """The response to a batch sent with wait="durable": it is on disk, ranks follow."""

    version: int
    status: Literal["durable"]


class VertexRank(Published, RankedVertex):
    pass


class RankList(Published):
    """ranks: in the order of the requested vertices, None for an unknown vertex."""

    ranks: list[float | None]


class TopRanks(Published):
    ranks: list[RankedVertex]


class PersonalizedQuery(TypedDict, total=False):
    """A query; `seeds` with their weights are required."""

    seeds: dict[Key, float]
    k: int
    method: str
    target_error: float
    target: str


class PersonalizedAnswer(TypedDict):
    """settled: number of first places that are proven correct."""

    ranks: list[RankedVertex]
    error_bound: float
    settled: int
    method: str
    iterations: int


class PersonalizedRanks(PersonalizedAnswer):
    vertex: Key
    version: int
    revision: int


class PersonalizedAnswers(TypedDict):
    """answers: in the order of the queries, all of one version."""

    version: int
    revision: int
    answers: list[PersonalizedAnswer]


class WatchedRanks(PersonalizedAnswer):
    """The answer to a watched query for the newest version."""

    name: str
    version: int
    revision: int
    k: int
    target_error: float
    seeds: dict[str, float]
