"""Request and response bodies, as OpenAPI shows them.

Requests are parsed with these models. Responses are encoded without them, since validating them
would cost more than computing them; a test compares every response with its model.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import defstruct
from pydantic import BaseModel, Field

from liverank.choices import Scope
from liverank.client import responses
from liverank.options import about
from liverank_gpu import LARGEST_WEIGHT, LEAST_WEIGHT
from liverank_service.http.tables import Body, like, model_of
from liverank_service.problems import TYPE_PREFIX
from liverank_service.queries.model import KeyedQuery

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


ApiKeyInfo = model_of(responses.ApiKeyInfo)
NewApiKey = model_of(responses.NewApiKey)
ApiKeyList = model_of(defstruct("ApiKeyList", [("keys", list[responses.ApiKeyInfo])]))


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
    """Time spent in each stage. A shared stage, of batches that waited together, counts in full in
    the receipt of each.
    """

    queue: float = Field(
        description="waiting for earlier work, then checking for a repeat and for sufficient memory"
    )
    journal: float = Field(
        description="writing and syncing to disk, and responding to `wait=durable`; shared"
    )
    keys: float = Field(description="mapping keys to ids")
    mutate: float = Field(
        description="updating the graph, its transpose, and the residuals of the ranks and of "
        "personalized queries"
    )
    mark: float = Field(description="finding the vertices that the batch affects; shared")
    solve: float = Field(
        description="ranking, including the proof of the error bound of the accelerated form; "
        "shared"
    )
    certify: float = Field(
        0.0,
        description=f"proving the error bound of the published form; shared; {_ABSENT_IN_OLD}",
    )
    watched: float = Field(
        0.0,
        description="updating the watched queries and views; shared. `view_seconds` has it of "
        f"each view; {_ABSENT_IN_OLD}",
    )
    publish: float = Field(description="publishing the ranks; shared")
    others: float = Field(
        0.0,
        description="the rest, and while other batches of the same ranking are applied and "
        f"queries are solved; {_ABSENT_IN_OLD}",
    )
    total: float = Field(description="the sum: from the parsed request to published ranks")


class Problem(BaseModel):
    """A problem document (RFC 9457), `application/problem+json`."""

    type: str = Field(description=f"`{TYPE_PREFIX}` and the name of the type; use this in programs")
    title: str = Field(description="the type as text")
    status: int = Field(description="the HTTP status")
    detail: str = Field(description="what is wrong, for people")
    instance: str | None = Field(None, description="the path of the request")
    field: str | None = Field(None, description="the invalid field, if known")
    index: int | None = Field(None, description="the item of the field, from 0")
    value: Any = Field(None, description="the value given")
    accepted: list[str] | None = Field(None, description="the values accepted")
    version: int | None = Field(
        None,
        description="the version of the batch, if it was journalled: it was rejected, or its "
        "outcome follows",
    )
    stored: str | None = Field(
        None,
        description="of `source-position`: the position to continue from; absent if there is none",
    )


TraceStep = model_of(responses.TraceStep, description=responses.TraceStep.__doc__)
Trace = model_of(responses.Trace)
Receipt = model_of(responses.Receipt, description=responses.Receipt.__doc__, seconds=Seconds)
Durable = model_of(responses.Accepted, "Durable")
Pending = model_of(responses.Pending)
Rejected = model_of(
    responses.Rejected,
    description="`lost`: the batch was damaged on disk and is not in the graph.",
    problem=Problem,
)


class VerticesRequest(Body):
    model_config = like({"vertices": ["ada", "grace"]})

    vertices: list[Key]


VertexRank = model_of(responses.RankedVertex, "VertexRank")
RankAnswer = model_of(responses.VertexRank, "RankAnswer", "The rank of one vertex.")
RanksAnswer = model_of(responses.RankList, "RanksAnswer", vertices=None)
TopAnswer = model_of(responses.TopRanks, "TopAnswer")
Neighbor = model_of(responses.Neighbor)
NeighborsAnswer = model_of(responses.Neighbors, "NeighborsAnswer", responses.Neighbors.__doc__)
Contribution = model_of(responses.Contribution)
ExplainedAnswer = model_of(
    responses.ExplainedRank, "ExplainedAnswer", responses.ExplainedRank.__doc__
)
SubgraphAnswer = model_of(responses.Subgraph, "SubgraphAnswer", responses.Subgraph.__doc__)


class PersonalizedRequest(Body):
    """Queries that share passes over the graph."""

    model_config = like({"queries": [{"seeds": {"ada": 2.0, "alan": 1.0}, "k": 5}]})

    queries: list[KeyedQuery] = Field(min_length=1, max_length=MAX_QUERIES)


PersonalizedAnswer = model_of(responses.PersonalizedAnswer)
PersonalizedRanks = model_of(responses.PersonalizedRanks)
PersonalizedAnswers = model_of(responses.PersonalizedAnswers)
SetAnswer = model_of(responses.VertexSet, "SetAnswer")
SetMembers = model_of(responses.VertexSetMembers, "SetMembers")
WatchedAnswer = model_of(responses.WatchedRanks, "WatchedAnswer", zeros=bool)
ViewDescription = model_of(responses.ViewInfo, "ViewDescription")
ViewAnswer = model_of(responses.ViewState, "ViewAnswer")
ViewsAnswer = model_of(
    defstruct(
        "ViewsAnswer",
        [
            ("version", int),
            ("revision", int),
            ("views", Annotated[list[responses.ViewInfo], about("by name")]),
        ],
    )
)


class AnalysisRequest(Body):
    """A program to run. All members are optional, as far as the program's parameters are."""

    model_config = like({"parameters": {"source": "ada"}})

    parameters: dict[str, str | int | float] = Field(
        {}, description="by name; others have their defaults. `source` is the key of a vertex"
    )
    fresh: bool = Field(False, description="whether it runs again after each published version")


AnalysisStarted = model_of(defstruct("AnalysisStarted", [("id", str)]))
AnalysisProgress = model_of(
    responses.AnalysisProgress, description=responses.AnalysisProgress.__doc__
)
AnalysisReceipt = model_of(responses.AnalysisReceipt, description=responses.AnalysisReceipt.__doc__)
AnalysisInfo = model_of(responses.AnalysisInfo, problem=Problem | None)
AnalysisList = model_of(defstruct("AnalysisList", [("analyses", list[responses.AnalysisInfo])]))
VertexValue = model_of(responses.VertexValue)
EdgeValue = model_of(responses.EdgeValue, description=responses.EdgeValue.__doc__)
ValueAnswer = model_of(responses.ValueOfVertex, "ValueAnswer")
TopValues = model_of(responses.TopValues)


class Alive(Body):
    status: Literal["alive"]
