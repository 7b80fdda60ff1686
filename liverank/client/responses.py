"""Responses of the server, each said once: OpenAPI has their schemas from here, and the client
returns them. A member that a newer server adds is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from liverank.choices import (
    ConsumerState,
    Direction,
    Form,
    Mode,
    Refresh,
    Scope,
    Unknown,
    ViewDirection,
    ViewKind,
)
from liverank.options import AnalysisLimits as AnalysisLimits
from liverank.options import GraphOptions as GraphOptions
from liverank.options import PersonalizedQuery as PersonalizedQuery
from liverank.options import about
from liverank.tables import Ranks, ranks_table

if TYPE_CHECKING:
    import pyarrow as pa

Key = (
    Annotated[str, msgspec.Meta(extra_json_schema={"minLength": 1})]
    | Annotated[
        int,
        msgspec.Meta(
            extra_json_schema={"format": "int64", "minimum": -(2**63), "maximum": 2**63 - 1}
        ),
    ]
)
"""liverank.choices.Key, with its limits."""

_ABSENT_IN_OLD = "absent in receipts that older releases wrote"

Proven = Annotated[
    bool, about("whether it is proven that these vertices have these places, in any order")
]
Groups = Annotated[
    list[int],
    about(
        "numbers of places one after the other: the order of the groups is proven, the order "
        "within a group of several is not"
    ),
]
Ties = Annotated[
    list[int],
    about(
        "numbers of the groups, from 0 on, whose vertices have equal ranks, because their "
        "in-edges are the same: their order, that in which they were added, counts as proven"
    ),
]

# Graphs


class ShardsInfo(msgspec.Struct, frozen=True):
    """Worker processes that hold a graph."""

    count: Annotated[int, about("number of worker processes")]
    state: Literal["serving", "recovering"]
    reason: Annotated[str | None, about("why it recovers")]
    since: Annotated[float | None, about("when shards were lost, Unix seconds")]
    restarts: Annotated[int, about("how often the workers were started again")]
    vertices: Annotated[list[int], about("of each shard; empty while it recovers")]
    edges: Annotated[
        list[int], about("entries of the out-lists of each shard; empty while it recovers")
    ]


class ExpiryDelay(msgspec.Struct, frozen=True):
    """Edges that are too old stay for now."""

    reason: Annotated[str, about("why edges that are too old stay")]
    since: Annotated[float, about("Unix seconds")]


class GraphInfo(msgspec.Struct, frozen=True):
    """A graph."""

    graph: str
    version: int
    revision: int
    vertices: int
    edges: int
    error_bound: float
    backend: str
    options: GraphOptions
    memory: Annotated[dict[str, int], about("bytes, by purpose")]
    shards: Annotated[ShardsInfo | None, about("omitted for a graph on one device")] = None
    expiry_delay: Annotated[
        ExpiryDelay | None, about("why edges that are too old stay for now; omitted if they do not")
    ] = None


class CheckpointTaken(msgspec.Struct, frozen=True):
    version: int
    revision: int
    bytes: int
    write_seconds: Annotated[float, about("from the request until the checkpoint was on disk")]
    pause_seconds: Annotated[float, about("how long the graph's writer was blocked")]


# API keys


class ApiKeyInfo(msgspec.Struct, frozen=True):
    """graphs: the graphs that the key is valid for; None: all."""

    id: str
    name: str
    scope: Scope
    graphs: list[str] | None
    created: str


class NewApiKey(ApiKeyInfo, frozen=True):
    key: Annotated[str, about("the key itself, shown only in this response")]


# Batches


class TraceStep(msgspec.Struct, frozen=True):
    """One step of a solve; null where a member does not apply."""

    kind: Literal["iteration", "sweep", "push", "components"]
    rounds: Annotated[
        int, about("1, or the rounds that a push or a solve by components traces together")
    ]
    vertices: Annotated[int, about("recomputed, or pushed for the first time")]
    edges: Annotated[int, about("edges read")]
    joined: Annotated[int | None, about("vertices that became affected after it")]
    pruned: Annotated[int | None, about("vertices that it removed from the affected set")]
    largest_change: Annotated[float | None, about("the largest relative change of a rank")]
    threshold: Annotated[float | None, about("of the residual, at the end of a push")]
    error_bound: Annotated[float | None, about("after it")]
    end: Annotated[
        Literal["goal", "floor", "work", "rounds"] | None,
        about(f"why a push ended; {_ABSENT_IN_OLD}"),
    ] = None
    deflation: Annotated[
        Literal["seeds", "ranks"] | None,
        about(f"direction of a personalized sweep; {_ABSENT_IN_OLD}"),
    ] = None
    mode: Annotated[
        Literal["push", "pushopt", "pull"] | None,
        about(f"of a published personalized query; {_ABSENT_IN_OLD}"),
    ] = None
    cost_difference: Annotated[
        float | None, about(f"Ψ before it, of such a query; {_ABSENT_IN_OLD}")
    ] = None


class Trace(msgspec.Struct, frozen=True):
    """What a solve did."""

    affected: Annotated[int, about("initially affected vertices")]
    pushes: Annotated[int, about("rounds of work-lists")]
    sweeps: Annotated[int, about("iterations and sweeps")]
    steps: Annotated[list[TraceStep], about("the first 1,000")]


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a batch or of a recomputation."""

    version: Annotated[
        int, about("the number of this batch in its graph: 1, 2, 3 …; the same after a restart")
    ]
    ranked_version: Annotated[
        int,
        about("the version published with this batch's ranks: higher if batches waited together"),
    ]
    revision: Annotated[
        int,
        about(
            "the number of the published ranks, never reused for others; a recomputation "
            "increases only this"
        ),
    ]
    inserted: Annotated[int, about("edges added to the graph")]
    already_present: Annotated[
        int,
        about("insertions of edges that were present, including repeats within the batch"),
    ]
    reweighted: Annotated[
        int, about(f"present edges that have another weight now; {_ABSENT_IN_OLD}")
    ] = 0
    deleted: Annotated[int, about("edges removed from the graph")]
    not_found: Annotated[int, about("deletions of edges that were absent")]
    lowered: Annotated[
        int, about(f"deletions that took a weight away and left the edge; {_ABSENT_IN_OLD}")
    ] = 0
    new_vertices: Annotated[int, about("vertices added to the graph")]
    removed: Annotated[int, about(f"vertices removed with their edges; {_ABSENT_IN_OLD}")] = 0
    unknown: Annotated[
        int,
        about(
            "keys to remove that were those of no vertex, including repeats within the batch; "
            + _ABSENT_IN_OLD
        ),
    ] = 0
    removed_edges: Annotated[
        int, about(f"edges that went with the removed vertices; {_ABSENT_IN_OLD}")
    ] = 0
    expired: Annotated[
        int,
        about("edges that left by age, or were too old when they were inserted; " + _ABSENT_IN_OLD),
    ] = 0
    strategy: Annotated[str, about("the strategy that was used")]
    form: Annotated[Form, about(f"`published`: the strategy as in its paper; {_ABSENT_IN_OLD}")] = (
        "accelerated"
    )
    iterations: Annotated[int, about("sweeps over all vertices plus rounds over a work list")]
    touched_vertices: Annotated[int, about("distinct vertices that were recomputed")]
    error_bound: Annotated[
        float,
        about(
            "proven bound on the L1 distance of the published ranks, which sum to 1, to the exact "
            "ones; 0 to 2"
        ),
    ]
    converged: Annotated[
        bool,
        about("whether the strategy met its stopping rule; if not, `error_bound` still holds"),
    ]
    seconds: Annotated[dict[str, float], about("the time by stage")]
    views: Annotated[
        dict[str, float | None],
        about(
            "the error bound of each view for this version; null: it has no ranks; absent "
            "if there are no views"
        ),
    ] = {}
    view_seconds: Annotated[
        dict[str, float],
        about("what each view that has ranks took of `seconds.watched`; absent if there are none"),
    ] = {}
    settled: Annotated[
        int | None,
        about("of a recomputation that was to prove places: how many of the first are proven"),
    ] = None
    settled_set: Annotated[
        bool | None,
        about(
            "of the same: whether it is proven which vertices have the first k places, in any order"
        ),
    ] = None
    fallback: Annotated[
        Literal["static", "equal", "kept"] | None,
        about(
            "what is published in place of ranks that were no distribution: those of a static "
            "solve, equal ranks, or the ranks before, which are kept; else absent"
        ),
    ] = None
    refused: Annotated[
        str | None, about("with `fallback`: why the ranks were refused; else absent")
    ] = None
    trace: Annotated[Trace | None, about("what each iteration did, if it was asked for")] = None


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
    ranks: Annotated[
        list[float | None], about("in the order of the vertices; null for an unknown one")
    ]
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
    ranks: Annotated[list[RankedVertex], about("best first")]
    rank_error: Annotated[float, about("proven: no single rank is off by more")]
    settled: Annotated[int, about("how many of the first places are proven to be theirs")]
    settled_set: Proven
    groups: Groups
    ties: Ties


# Edges


class Neighbor(msgspec.Struct, frozen=True):
    vertex: Key
    weight: Annotated[float, about("only of a weighted graph")] = 1.0


class Neighbors(msgspec.Struct, frozen=True):
    """Neighbours of a vertex, itself included if it has a loop, in no particular order."""

    vertex: Key
    version: int
    direction: Direction
    degree: Annotated[int, about("number of all neighbours")]
    neighbors: list[Neighbor]


class Contribution(msgspec.Struct, frozen=True):
    vertex: Key
    contribution: float


class ExplainedRank(VertexRank, frozen=True):
    """A rank and its parts, which add up to it within `error_bound`."""

    teleport: Annotated[
        float,
        about(
            "from teleports and, with dangling uniform, from vertices without out-edges: the same "
            "for every vertex"
        ),
    ]
    degree: Annotated[int, about("number of in-neighbours; the vertex itself if it has a loop")]
    contributions: Annotated[
        list[Contribution],
        about(
            "of the in-neighbours that give the most, largest first: damping times their rank, "
            "times the share of the edge in the weight of their out-edges"
        ),
    ]
    rest: Annotated[float, about("from all other in-neighbours")]


class Subgraph(msgspec.Struct, frozen=True):
    """Vertices and the edges among them."""

    version: int
    vertices: Annotated[list[Key], about("those that the graph has, each once")]
    unknown: Annotated[list[Key], about("those that it does not have")]
    edges: Annotated[list[tuple[Key, Key]], about("edges, each as [source, target]")]
    weights: Annotated[
        list[float] | None, about("in the order of the edges; only of a weighted graph")
    ] = None


# Sets of vertices


class VertexSet(msgspec.Struct, frozen=True):
    name: str
    size: Annotated[int, about("number of vertices")]
    version: int
    revision: int


class VertexSetMembers(VertexSet, frozen=True):
    vertices: Annotated[list[Key], about("in order of first appearance")]


# Personalized ranks


class PersonalizedAnswer(_Places, msgspec.Struct, frozen=True, kw_only=True):
    """Best first; TopRanks says what `settled`, `settled_set`, `groups` and `ties` prove."""

    ranks: Annotated[list[RankedVertex], about("best first")]
    error_bound: float
    settled: Annotated[int, about("number of first places that are proven correct")]
    settled_set: Proven
    groups: Groups
    ties: Ties
    method: str
    iterations: int
    ignored: Annotated[list[Key], about("unknown seeds that were left out")]
    trace: Annotated[Trace | None, about("what each step did, if it was asked for")] = None
    refused: Annotated[
        str | None, about("why what was found first was no answer, so that this is of plain sweeps")
    ] = None


class PersonalizedRanks(PersonalizedAnswer, frozen=True, kw_only=True):
    vertex: Key
    version: int
    revision: int


class PersonalizedAnswers(msgspec.Struct, frozen=True):
    """Answers of one version."""

    version: int
    revision: int
    answers: Annotated[list[PersonalizedAnswer], about("in the order of the queries")]


class ViewInfo(msgspec.Struct, frozen=True):
    """A view: ranks of all vertices for a teleport distribution of its own.

    teleport  what its walks restart at: all vertices (`uniform`), a `set`, or `weights`
    refresh   `batch`, `read`, or seconds
    """

    name: str
    teleport: ViewKind
    set: Annotated[str | None, about("name of the set")]
    weights: Annotated[int | None, about("number of weights")]
    ignored: Annotated[list[Key], about("keys of weights that are no vertices")]
    unknown: Unknown
    within: Annotated[
        str | int | None,
        about("the set that its walks stay in, or how many vertices; null: all of the graph"),
    ]
    damping: Annotated[float, about("the graph's unless the view has another")]
    direction: ViewDirection
    target_error: float
    refresh: Refresh | float
    error_bound: Annotated[
        float | None,
        about(
            "proven upper bound on the L1 error of its ranks, for this version; null if it has none"
        ),
    ]
    problem: Annotated[str | None, about("why it has no ranks")]


class ViewState(ViewInfo, frozen=True):
    """A view for the newest version."""

    version: int
    revision: int


class WatchedRanks(PersonalizedAnswer, frozen=True, kw_only=True):
    """The answer to a watched query for the newest version."""

    name: str
    version: int
    revision: int
    k: int
    target_error: float
    seeds: dict[str, float]
    unknown: Unknown
    damping: Annotated[float, about("the graph's unless the query has another")]
    among: Annotated[str | list[Key] | None, about("of the query; null for all vertices")]
    zeros: Annotated[bool, about("of the query: whether vertices of rank 0 are answered too")] = (
        False
    )


# Analyses


class AnalysisProgress(msgspec.Struct, frozen=True):
    """What the newest run has done so far."""

    supersteps: int
    edges: Annotated[int, about("edges read")]
    seconds: Annotated[float, about("spent, without the time of batches in between")]


class AnalysisReceipt(AnalysisProgress, frozen=True):
    """What the run did to which the answer belongs."""

    continued: Annotated[bool, about("whether it continued from the answer before")]
    finished: Annotated[bool, about("false if it was ended after its last superstep")]
    resumed: Annotated[
        int | None,
        about(
            "the superstep from which it went on after a restart; 0: it began again, as the graph "
            "had changed or the state could not be read; null: there was no restart"
        ),
    ] = None


class AnalysisInfo(msgspec.Struct, frozen=True):
    id: str
    program: str
    parameters: dict[str, str | int | float]
    fresh: bool
    created: Annotated[float, about("Unix seconds")]
    state: Literal["queued", "running", "finished", "failed", "cancelled", "interrupted"]
    progress: AnalysisProgress
    version: Annotated[int | None, about("of the answer; null if there is none")]
    receipt: Annotated[AnalysisReceipt | None, about("of the answer")]
    summary: Annotated[dict[str, float] | None, about("numbers about the whole graph")]
    problem: Annotated[dict[str, Any] | None, about("why it failed")]
    mode: Mode = "synchronous"
    limits: AnalysisLimits = AnalysisLimits()
    save_every: Annotated[
        int | None,
        about("supersteps after which its state is saved; 0: never; null: about every 30 seconds"),
    ] = None


class ProgramInfo(msgspec.Struct, frozen=True):
    """A program of a user."""

    name: str
    created: Annotated[float, about("Unix seconds")]
    source: str
    parameters: Annotated[dict[str, int | float], about("with their defaults")]
    refusal: Annotated[
        str | None, about("why the server, a later release, runs the program no more")
    ] = None
    dtype: Annotated[
        str | dict[str, str] | None, about("of the values; of records the types of fields by name")
    ] = None
    edge_dtype: Annotated[
        str | dict[str, str] | None, about("of the values of edges; null: they have none")
    ] = None
    limits: Annotated[
        dict[str, list[float | None]],
        about("the least and the largest value of parameters; null: none"),
    ] = {}
    monotone: Annotated[bool, about("whether `mode` may be `asynchronous`")] = False
    supersteps: Annotated[int | None, about("at most")] = None


class VertexValue(msgspec.Struct, frozen=True):
    vertex: Key
    value: Annotated[
        Key | float | None,
        about(
            "null for a vertex that has none; of `support` and `trussness` the largest of its "
            "edges; of `dn-graphs` the vertex that names its DN-graph"
        ),
    ]


class ValueOfVertex(VertexValue, frozen=True):
    version: int
    predecessor: Annotated[
        Key | None,
        about(
            "of `paths`, the vertex before it on a shortest path; null for the source and where no "
            "path leads. Omitted by other programs"
        ),
    ] = None
    others: Annotated[
        dict[str, int | float | None] | None,
        about("of a user's program of records, the numbers after the first. Omitted by others"),
    ] = None


class EdgeValue(msgspec.Struct, frozen=True):
    """Of `support` and `trussness` without direction: either end may be the source."""

    source: Key
    target: Key
    value: Annotated[int | float | None, about("null for one that is not finite")]


class TopValues(msgspec.Struct, frozen=True):
    version: int
    values: Annotated[
        list[VertexValue],
        about(
            "in order. Of `components` and `labels`: the groups, each by the vertex that names "
            "it, with its number of vertices. Of `dn-graphs`: the DN-graphs likewise, with λ"
        ),
    ]
    edges: Annotated[
        list[EdgeValue],
        about("of `support` and `trussness`, and of edges if asked for, in place of `values`"),
    ]


# External sources


class SourcePosition(msgspec.Struct, frozen=True):
    """What the committed batches have of a partition of an external source."""

    source: str
    partition: str
    position: Annotated[str, about("that the next batch of the partition begins `from`")]
    version: Annotated[int, about("of the batch that moved the position")]
    time: Annotated[float, about("of its commit, Unix seconds")]

    def __str__(self) -> str:
        """As `min_position` of a read, also of another server that consumes the source."""
        return f"{self.source}:{self.partition}:{self.position}"


class SourceConsumer(msgspec.Struct, frozen=True):
    """What a consumer of a source reported."""

    source: str
    consumer: str
    state: ConsumerState
    reason: str | None
    since: Annotated[float, about("when this state began, Unix seconds")]
    expires: Annotated[float, about("when the report is dropped, Unix seconds")]
