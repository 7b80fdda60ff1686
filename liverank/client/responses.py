"""Responses of the server, as the client returns them. docs/api.md explains every member.

A member that a newer server adds is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from liverank.choices import (
    Clock,
    Dangling,
    Direction,
    Form,
    Key,
    KeyKind,
    Method,
    Pair,
    Refresh,
    Scope,
    Target,
    Unknown,
    ViewDirection,
    ViewKind,
)
from liverank.tables import Ranks, ranks_table

if TYPE_CHECKING:
    import pyarrow as pa

# Graphs


class GraphOptions(msgspec.Struct, frozen=True):
    damping: float
    dangling: Dangling
    strategy: str
    target_error: float
    storage: str
    keys: KeyKind
    form: Form = "accelerated"
    tolerance: float = 1e-10
    frontier_tolerance: float = 1e-6
    prune_tolerance: float = 1e-6
    max_iterations: int = 500
    weighted: bool = False
    directed: bool = True
    half_life: float | None = None
    window: float | None = None
    clock: Clock = "wall"
    forget_vertices: bool = False
    max_time_ahead: float | None = None


class ShardsInfo(msgspec.Struct, frozen=True):
    """Worker processes that hold a graph.

    reason, since    why and since when (Unix seconds) they are started again; None while `serving`
    vertices, edges  of each; empty while `recovering`
    """

    count: int
    state: Literal["serving", "recovering"]
    reason: str | None
    since: float | None
    restarts: int
    vertices: list[int]
    edges: list[int]


class ExpiryDelay(msgspec.Struct, frozen=True):
    """Edges that are too old stay for now.

    reason, since  why, and since when (Unix seconds)
    """

    reason: str
    since: float


class GraphInfo(msgspec.Struct, frozen=True):
    """A graph.

    memory        bytes, by purpose
    shards        None for a graph on one device
    expiry_delay  None while edges leave when they are too old
    """

    graph: str
    version: int
    revision: int
    vertices: int
    edges: int
    error_bound: float
    backend: str
    options: GraphOptions
    memory: dict[str, int]
    shards: ShardsInfo | None = None
    expiry_delay: ExpiryDelay | None = None


class CheckpointTaken(msgspec.Struct, frozen=True):
    """pause_seconds: how long batches had to wait."""

    version: int
    revision: int
    bytes: int
    write_seconds: float
    pause_seconds: float


# API keys


class ApiKeyInfo(msgspec.Struct, frozen=True):
    """graphs: the graphs that the key is valid for; None: all."""

    id: str
    name: str
    scope: Scope
    graphs: list[str] | None
    created: str


class NewApiKey(ApiKeyInfo, frozen=True):
    """key: the key itself, which only this response has."""

    key: str


# Batches


class TraceStep(msgspec.Struct, frozen=True):
    """One step of a solve; None where a member does not apply."""

    kind: Literal["iteration", "sweep", "push", "components"]
    rounds: int
    vertices: int
    edges: int
    joined: int | None
    pruned: int | None
    largest_change: float | None
    threshold: float | None
    error_bound: float | None
    end: Literal["goal", "floor", "work", "rounds"] | None = None
    deflation: Literal["seeds", "ranks"] | None = None
    mode: Literal["push", "pushopt", "pull"] | None = None
    cost_difference: float | None = None


class Trace(msgspec.Struct, frozen=True):
    """What a solve did. affected: initially; pushes: rounds of work-lists."""

    affected: int
    pushes: int
    sweeps: int
    steps: list[TraceStep]


class Receipt(msgspec.Struct, frozen=True):
    """The result of a batch; docs/api.md explains the members. seconds: by stage; views: the error
    bound of each, None for one that has no ranks; settled and settled_set: of `recompute`, what is
    proven of the first places, if that was its target.
    """

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
    reweighted: int = 0
    removed: int = 0
    unknown: int = 0
    removed_edges: int = 0
    expired: int = 0
    lowered: int = 0
    form: Form = "accelerated"
    settled: int | None = None
    settled_set: bool | None = None
    fallback: Literal["static", "equal", "kept"] | None = None
    refused: str | None = None
    trace: Trace | None = None
    views: dict[str, float | None] = {}


class Accepted(msgspec.Struct, frozen=True):
    """The batch is on disk; its ranks follow."""

    version: int
    status: Literal["durable"]


class Pending(msgspec.Struct, frozen=True):
    """The batch is on disk and not yet ranked."""

    version: int
    status: Literal["pending"]


class Rejected(msgspec.Struct, frozen=True):
    """The batch is not in the graph: it could not be applied, or (`lost`) was damaged on disk."""

    version: int
    status: Literal["rejected", "lost"]
    problem: dict[str, Any]


Outcome = Receipt | Pending | Rejected


# Ranks


class RankedVertex(msgspec.Struct, frozen=True):
    vertex: Key
    rank: float


class _Places(Ranks):
    """ranks: best first."""

    __slots__ = ()
    ranks: list[RankedVertex]

    def to_dict(self) -> dict[Key, float]:
        """The rank of each vertex, best first."""
        return {place.vertex: place.rank for place in self.ranks}

    def to_arrow(self) -> pa.Table:
        return ranks_table(
            [place.vertex for place in self.ranks], [place.rank for place in self.ranks]
        )


class VertexRank(RankedVertex, frozen=True):
    version: int
    revision: int
    error_bound: float


class RankList(Ranks, msgspec.Struct, frozen=True):
    """The ranks of the requested vertices in their order; None for an unknown vertex."""

    version: int
    revision: int
    error_bound: float
    ranks: list[float | None]
    vertices: Sequence[Key] = ()

    def to_dict(self) -> dict[Key, float | None]:
        """The rank of each requested vertex."""
        return dict(zip(self.vertices, self.ranks, strict=True))

    def _best(self, count: int) -> list[tuple[Any, float]]:
        known = [(vertex, rank) for vertex, rank in self if rank is not None]
        return sorted(known, key=lambda each: -each[1])[:count]

    def to_arrow(self) -> pa.Table:
        return ranks_table(self.vertices, self.ranks)


class TopRanks(_Places, msgspec.Struct, frozen=True):
    """Best first. No rank is off by more than `rank_error`; the first `settled` places are proven,
    and with `settled_set` that no other vertex is among these. `groups` are numbers of places: the
    order of the groups is proven, the order within a group of several is not, unless its number,
    from 0 on, is in `ties`: then its vertices have equal ranks, and their order counts as proven.
    """

    version: int
    revision: int
    error_bound: float
    ranks: list[RankedVertex]
    rank_error: float
    settled: int
    settled_set: bool
    groups: list[int]
    ties: list[int]


# Edges


class Neighbor(msgspec.Struct, frozen=True):
    vertex: Key
    weight: float = 1.0


class Neighbors(msgspec.Struct, frozen=True):
    """degree: the number of all neighbours."""

    vertex: Key
    version: int
    direction: Direction
    degree: int
    neighbors: list[Neighbor]


class Contribution(msgspec.Struct, frozen=True):
    vertex: Key
    contribution: float


class ExplainedRank(VertexRank, frozen=True):
    """A rank and its parts, which add up to it within error_bound.

    teleport       from teleports and from vertices without out-edges: the same for every vertex
    degree         the number of all in-neighbours
    contributions  of those that give the most, largest first
    rest           from the others
    """

    teleport: float
    degree: int
    contributions: list[Contribution]
    rest: float


class Subgraph(msgspec.Struct, frozen=True):
    """Vertices and the edges among them: (source, target).

    unknown  keys that the graph does not have
    weights  of the edges; None for an unweighted graph
    """

    version: int
    vertices: list[Key]
    unknown: list[Key]
    edges: list[Pair]
    weights: list[float] | None = None


# Sets of vertices


class VertexSet(msgspec.Struct, frozen=True):
    """size: number of vertices."""

    name: str
    size: int
    version: int
    revision: int


class VertexSetMembers(VertexSet, frozen=True):
    """vertices: in order of first appearance."""

    vertices: list[Key]


# Personalized ranks


class PersonalizedQuery(msgspec.Struct, frozen=True, omit_defaults=True):
    """A query: docs/api.md explains its members.

    seeds         the weight of each seed; scaled to sum 1
    target_error  None: the graph's
    target        must be `error` for a query to watch
    unknown       `ignore`: unknown seeds are left out, and named in the answer
    damping       None: the graph's
    among         keys, or the name of a set: only these vertices are in the answer; None: all
    form          `published`: by published algorithms, to compare with; not of a query to watch
    trace         whether the answer says what each step did; not of a query to watch
    zeros         whether vertices of rank 0 are in the answer too, up to k: those that walks from
                  the seeds cannot reach
    """

    seeds: dict[Key, float]
    k: int = 10
    method: Method = "hybrid"
    target_error: float | None = None
    target: Target = "error"
    unknown: Unknown = "error"
    damping: float | None = None
    among: str | list[Key] | None = None
    form: Form = "accelerated"
    trace: bool = False
    zeros: bool = False


class _Traced(msgspec.Struct, frozen=True, kw_only=True):
    trace: Trace | None = None


class PersonalizedAnswer(_Places, _Traced, frozen=True, kw_only=True):
    """Best first; TopRanks says what `settled`, `settled_set`, `groups` and `ties` prove.
    `ignored` are the unknown seeds that were left out; `trace` is set if it was asked for;
    `refused` says why what was found first was no answer, so that this is of plain sweeps.
    """

    ranks: list[RankedVertex]
    error_bound: float
    settled: int
    settled_set: bool
    groups: list[int]
    ties: list[int]
    method: str
    iterations: int
    ignored: list[Key]
    refused: str | None = None


class PersonalizedRanks(PersonalizedAnswer, frozen=True):
    vertex: Key
    version: int
    revision: int


class PersonalizedAnswers(msgspec.Struct, frozen=True):
    """answers: in the order of the queries, all of one version."""

    version: int
    revision: int
    answers: list[PersonalizedAnswer]


class ViewInfo(msgspec.Struct, frozen=True):
    """A view: ranks of all vertices for a teleport distribution of its own.

    teleport     what its walks restart at: all vertices (`uniform`), a `set`, or `weights`
    set          name of the set
    weights      number of weights
    ignored      keys of weights that are no vertices
    refresh      `batch`, `read`, or seconds
    error_bound  proven upper bound on the L1 error of its ranks; None: it has none
    problem      why it has none
    """

    name: str
    teleport: ViewKind
    set: str | None
    weights: int | None
    ignored: list[Key]
    unknown: Unknown
    damping: float
    direction: ViewDirection
    target_error: float
    refresh: Refresh | float
    error_bound: float | None
    problem: str | None


class ViewState(ViewInfo, frozen=True):
    """A view for the newest version."""

    version: int
    revision: int


class WatchedRanks(PersonalizedAnswer, frozen=True):
    """The answer to a watched query for the newest version."""

    name: str
    version: int
    revision: int
    k: int
    target_error: float
    seeds: dict[str, float]
    unknown: Unknown
    damping: float
    among: str | list[Key] | None
    zeros: bool = False
