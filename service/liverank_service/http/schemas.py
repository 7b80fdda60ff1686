"""Request and response bodies, as OpenAPI shows them.

Requests are parsed with these models. Responses are encoded without them, since validating them
would cost more than computing them; a test compares every response with its model.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from liverank_gpu import LARGEST_WEIGHT, LEAST_WEIGHT, STRATEGIES, Form
from liverank_service.http.schema_base import Body, like
from liverank_service.queries.model import KeyedQuery, Unknown
from liverank_service.storage.api_keys import Scope

Key = (
    Annotated[str, Field(json_schema_extra={"minLength": 1})]
    | Annotated[
        int,
        # FastAPI writes the limits as floating-point numbers, which the highest is not
        Field(json_schema_extra={"format": "int64", "minimum": -(2**63), "maximum": 2**63 - 1}),
    ]
)
Weight = Annotated[
    float, Field(json_schema_extra={"minimum": LEAST_WEIGHT, "maximum": LARGEST_WEIGHT})
]
MAX_QUERIES = 10_000

# For OpenAPI alone: the catalog and the engine check these values, with clearer messages.
ONE_OF_STRATEGIES: dict[str, Any] = {"enum": list(STRATEGIES)}


class ApiKeyRequest(Body):
    """An API key to create. The first one must have scope admin, for all graphs."""

    model_config = like({"name": "dashboard", "scope": "read", "graphs": ["papers"]})

    name: str = Field(
        description="its purpose; 1 to 100 printable characters",
        json_schema_extra={"minLength": 1, "maxLength": 100},
    )
    scope: Scope = Field(description="each includes the ones before it")
    graphs: list[str] | None = Field(
        None,
        description="the graphs that it is valid for; all if omitted",
        json_schema_extra={"minItems": 1},
    )


class ApiKeyInfo(Body):
    id: str
    name: str
    scope: Scope
    graphs: list[str] | None
    created: str


class NewApiKey(ApiKeyInfo):
    key: str = Field(description="the key itself, shown only in this response")


class ApiKeyList(Body):
    keys: list[ApiKeyInfo]


class SetRequest(Body):
    """Removed first, then added."""

    add: list[Key] = Field([], description="vertices")
    remove: list[Key] = Field([], description="vertices; others than those of the set are ignored")


class BatchRequest(Body):
    """Removals are applied first, then deletions. Keys are strings or integers, as the graph's
    options say.
    """

    model_config = like(
        {"insert": [["ada", "grace"], ["alan", "grace"]], "delete": [], "vertices": ["edsger"]}
    )

    insert: list[
        tuple[Key, Key] | tuple[Key, Key, Weight] | tuple[Key, Key, Weight | None, float]
    ] = Field(
        [],
        description="edges, each as [source, target] or, in a weighted graph, [source, target, "
        "weight]: all with a weight, or none, which means 1; in a graph with times, [source, "
        "target, weight, time], where all weights may be null",
    )
    delete: list[
        tuple[Key, Key]
        | tuple[Key, Key, Weight | None]
        | tuple[Key, Key, Weight | None, float | None]
    ] = Field(
        [],
        description="edges, each as [source, target]; with on_conflict=add, [source, target, "
        "weight] takes the weight away from that of the edge, which leaves at 0, and null takes "
        "all of it; where weights decay, [source, target, weight, time]",
    )
    vertices: list[Key] = Field([], description="vertices that exist after the batch")
    remove: list[Key] = Field(
        [], description="vertices that go with their edges; one that is also inserted is a new one"
    )
    sets: dict[str, SetRequest] = Field({}, description="changes of sets of vertices, by name")
    replace: dict[str, list[Key | tuple[Key, Weight] | tuple[Key, Weight | None, float]]] = Field(
        {},
        description="the new out-list of vertices, in an undirected graph all their edges: targets,"
        " or [target, weight] and [target, weight, time] as in `insert`",
    )


_ABSENT_IN_OLD = "absent in receipts that older releases wrote"


class Seconds(Body):
    queue: float
    journal: float
    keys: float
    mutate: float
    mark: float
    solve: float
    certify: float = Field(0.0, description=_ABSENT_IN_OLD)
    watched: float = Field(0.0, description=_ABSENT_IN_OLD)
    publish: float
    others: float = Field(0.0, description=_ABSENT_IN_OLD)
    total: float


class TraceStep(Body):
    """One step of a solve; null where a member does not apply."""

    kind: Literal["iteration", "sweep", "push", "components"]
    rounds: int = Field(
        description="1, or the rounds that a push or a solve by components traces together"
    )
    vertices: int = Field(description="recomputed, or pushed for the first time")
    edges: int = Field(description="edges read")
    joined: int | None = Field(description="vertices that became affected after it")
    pruned: int | None = Field(description="vertices that it removed from the affected set")
    largest_change: float | None = Field(description="the largest relative change of a rank")
    threshold: float | None = Field(description="of the residual, at the end of a push")
    error_bound: float | None = Field(description="after it")
    end: Literal["goal", "floor", "work", "rounds"] | None = Field(
        None, description=f"why a push ended; {_ABSENT_IN_OLD}"
    )
    deflation: Literal["seeds", "ranks"] | None = Field(
        None, description=f"direction of a personalized sweep; {_ABSENT_IN_OLD}"
    )
    mode: Literal["push", "pushopt", "pull"] | None = Field(
        None, description=f"of a published personalized query; {_ABSENT_IN_OLD}"
    )
    cost_difference: float | None = Field(
        None, description=f"Ψ before it, of such a query; {_ABSENT_IN_OLD}"
    )


class Trace(Body):
    affected: int = Field(description="initially affected vertices")
    pushes: int = Field(description="rounds of work-lists")
    sweeps: int = Field(description="iterations and sweeps")
    steps: list[TraceStep] = Field(description="the first 1,000")


class Receipt(Body):
    """The result of a batch or of a recomputation."""

    version: int
    ranked_version: int = Field(description="the version published with this batch's ranks")
    revision: int = Field(description="names the published ranks")
    inserted: int
    already_present: int
    reweighted: int = Field(0, description=f"edges with another weight; {_ABSENT_IN_OLD}")
    deleted: int
    not_found: int
    lowered: int = Field(
        0, description=f"deletions that took a weight and left the edge; {_ABSENT_IN_OLD}"
    )
    new_vertices: int
    removed: int = Field(0, description=f"vertices; {_ABSENT_IN_OLD}")
    unknown: int = Field(0, description=f"keys to remove of no vertex; {_ABSENT_IN_OLD}")
    removed_edges: int = Field(0, description=f"of the removed vertices; {_ABSENT_IN_OLD}")
    expired: int = Field(0, description=f"edges that left because of their age; {_ABSENT_IN_OLD}")
    strategy: str
    form: Form = Field("accelerated", description=_ABSENT_IN_OLD)
    iterations: int = Field(description="dense sweeps plus work-list rounds")
    touched_vertices: int = Field(description="distinct vertices recomputed")
    error_bound: float = Field(description="proven upper bound on the L1 error of the ranks")
    converged: bool
    seconds: Seconds
    views: dict[str, float | None] = Field(
        {}, description="the error bound of each view for this version; null: it has no ranks"
    )
    settled: int | None = Field(None, description="first places that are proven, if asked for")
    settled_set: bool | None = Field(
        None,
        description="whether it is proven which vertices have the first k places, in any order;"
        " if asked for",
    )
    fallback: Literal["static", "equal", "kept"] | None = Field(
        None,
        description="what is published in place of ranks that were no distribution: those of a"
        " static solve, equal ranks, or the ranks before, which are kept; else absent",
    )
    refused: str | None = Field(None, description="why the ranks were refused; else absent")
    trace: Trace | None = Field(None, description="what the solve did, if it was asked for")


class Durable(Body):
    version: int
    status: Literal["durable"]


class Pending(Body):
    version: int
    status: Literal["pending"]


class Problem(BaseModel):
    """A problem document (RFC 9457), `application/problem+json`."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = Field(None, description="the path of the request")
    field: str | None = Field(None, description="the field that is wrong")
    index: int | None = Field(None, description="the item of the field, from 0")
    value: Any = Field(None, description="the value given")
    accepted: list[str] | None = Field(None, description="the values accepted")
    version: int | None = Field(None, description="the version of a rejected batch")


class Rejected(Body):
    """`lost`: the batch was damaged on disk and is not in the graph."""

    version: int
    status: Literal["rejected", "lost"]
    problem: Problem


class VerticesRequest(Body):
    model_config = like({"vertices": ["ada", "grace"]})

    vertices: list[Key]


class _Published(Body):
    version: int
    revision: int
    error_bound: float


class VertexRank(Body):
    vertex: Key
    rank: float


class RankAnswer(_Published, VertexRank):
    """The rank of one vertex."""


class RanksAnswer(_Published):
    ranks: list[float | None] = Field(
        description="in the order of the vertices; null for an unknown one"
    )


_SETTLED_SET = "whether it is proven that these vertices have these places, in any order"
_GROUPS = (
    "numbers of places one after the other: the order of the groups is proven, the order within a "
    "group of several is not"
)

_TIES = (
    "numbers of the groups, from 0 on, whose vertices have equal ranks, because their in-edges are "
    "the same: their order, that in which they were added, counts as proven"
)


class TopAnswer(_Published):
    ranks: list[VertexRank] = Field(description="best first")
    rank_error: float = Field(description="proven: no single rank is off by more")
    settled: int = Field(description="how many of the first places are proven to be theirs")
    settled_set: bool = Field(description=_SETTLED_SET)
    groups: list[int] = Field(description=_GROUPS)
    ties: list[int] = Field(description=_TIES)


class Neighbor(Body):
    vertex: Key
    weight: float = Field(1.0, description="only of a weighted graph")


class NeighborsAnswer(Body):
    """Neighbours of a vertex, itself included if it has a loop, in no particular order."""

    vertex: Key
    version: int
    direction: Literal["out", "in"]
    degree: int = Field(description="number of all neighbours")
    neighbors: list[Neighbor]


class Contribution(Body):
    vertex: Key
    contribution: float


class ExplainedAnswer(_Published, VertexRank):
    """A rank and its parts, which add up to it within `error_bound`."""

    teleport: float = Field(
        description="from teleports and, with dangling uniform, from vertices without out-edges: "
        "the same for every vertex"
    )
    degree: int = Field(description="number of in-neighbours; the vertex itself if it has a loop")
    contributions: list[Contribution] = Field(
        description="of the in-neighbours that give the most, largest first: damping times their "
        "rank, times the share of the edge in the weight of their out-edges"
    )
    rest: float = Field(description="from all other in-neighbours")


class SubgraphAnswer(Body):
    """Vertices and the edges among them."""

    version: int
    vertices: list[Key] = Field(description="those that the graph has, each once")
    unknown: list[Key] = Field(description="those that it does not have")
    edges: list[tuple[Key, Key]] = Field(description="edges, each as [source, target]")
    weights: list[float] | None = Field(
        None, description="in the order of the edges; only of a weighted graph"
    )


class PersonalizedRequest(Body):
    """Queries that share passes over the graph."""

    model_config = like({"queries": [{"seeds": {"ada": 2.0, "alan": 1.0}, "k": 5}]})

    queries: list[KeyedQuery] = Field(min_length=1, max_length=MAX_QUERIES)


class PersonalizedAnswer(Body):
    ranks: list[VertexRank] = Field(description="best first")
    error_bound: float
    settled: int = Field(description="number of first places that are proven correct")
    settled_set: bool = Field(description=_SETTLED_SET)
    groups: list[int] = Field(description=_GROUPS)
    ties: list[int] = Field(description=_TIES)
    method: str
    iterations: int
    ignored: list[Key] = Field(description="unknown seeds that were left out")
    trace: Trace | None = Field(None, description="what each step did, if it was asked for")
    refused: str | None = Field(
        None, description="why what was found first was no answer, so that this is of plain sweeps"
    )


class PersonalizedRanks(PersonalizedAnswer):
    vertex: Key
    version: int
    revision: int


class PersonalizedAnswers(Body):
    version: int
    revision: int
    answers: list[PersonalizedAnswer] = Field(description="in the order of the queries")


class SetAnswer(Body):
    name: str
    size: int = Field(description="number of vertices")
    version: int
    revision: int


class SetMembers(SetAnswer):
    vertices: list[Key] = Field(description="in order of first appearance")


class WatchedAnswer(PersonalizedAnswer):
    name: str
    version: int
    revision: int
    k: int
    target_error: float
    seeds: dict[str, float]
    unknown: Unknown
    damping: float = Field(description="the graph's unless the query has another")
    among: str | list[Key] | None = Field(description="of the query; null for all vertices")
    zeros: bool = Field(description="of the query: whether vertices of rank 0 are answered too")


class ViewDescription(Body):
    name: str
    teleport: Literal["uniform", "set", "weights"]
    set: str | None = Field(description="name of the set")
    weights: int | None = Field(description="number of weights")
    ignored: list[Key] = Field(description="keys of weights that are no vertices")
    unknown: Unknown
    damping: float = Field(description="the graph's unless the view has another")
    direction: Literal["forward"]
    target_error: float
    refresh: Literal["batch", "read"] | float
    error_bound: float | None = Field(
        description="proven upper bound on the L1 error of its ranks, for this version; null if it"
        " has none"
    )
    problem: str | None = Field(description="why it has no ranks")


class ViewAnswer(ViewDescription):
    version: int
    revision: int


class ViewsAnswer(Body):
    version: int
    revision: int
    views: list[ViewDescription] = Field(description="by name")


class Alive(Body):
    status: Literal["alive"]
