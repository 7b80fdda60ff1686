"""Request and response bodies, as OpenAPI shows them, and parameters: made of the tables in
liverank.

Requests are parsed with these models. Responses are encoded without them, since validating them
would cost more than computing them; a test compares every response with its model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from fastapi import Depends, Query
from msgspec import Struct, defstruct
from msgspec.structs import fields
from pydantic import BaseModel, ConfigDict, Field, create_model

from liverank.choices import ConsumerState, Mode, Scope
from liverank.client import responses
from liverank.options import MAX_POSITION, GraphOptions, about
from liverank_gpu import LARGEST_WEIGHT
from liverank_service.problems import TYPE_PREFIX
from liverank_service.queries.analyses import LARGEST_COUNT, NO_LIMITS, RunLimits
from liverank_service.queries.model import KeyedQuery
from liverank_service.tables import default_of, named, said


class Body(BaseModel):
    """What the models of all bodies have in common."""

    model_config = ConfigDict(extra="forbid", strict=True)


def like(example: dict[str, Any]) -> ConfigDict:
    """The configuration of a body with an example."""
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [example]})


MODELS: dict[type[Struct], type[BaseModel]] = {}
"""By their tables: a member that has one of these has its model in OpenAPI."""


def parameter_of(table: type[Struct], name: str) -> Any:
    """What is said of a parameter of the query that is one option of a table."""
    return Query(**said(named(table, name).type)[1])


def query_of(
    table: type[Struct],
    make: Callable[..., Any] | None = None,
    changed: Mapping[str, Mapping[str, Any] | None] | None = None,
    optional: str = "",
) -> Any:
    """A dependency: what `make`, or the table, makes of options in the query of a request.

    changed   what is said of options instead: arguments of Query, and the type as `kind`; None: the
              query does not have the option
    optional  if only those are passed that are given: what their descriptions end with
    """
    parameters = []
    for member in fields(table):
        if (others := (changed or {}).get(member.name, {})) is None:
            continue
        kind, about = said(member.type)
        about |= others
        kind, default = about.pop("kind", kind), member.default
        if optional:
            kind, default, about["description"] = kind | None, None, about["description"] + optional
        read_from = Query(alias=member.encode_name, **about)
        parameter = inspect.Parameter(member.name, inspect.Parameter.KEYWORD_ONLY, default=default)
        parameters.append(parameter.replace(annotation=Annotated[kind, read_from]))

    def read(**given: Any) -> Any:
        if optional:
            given = {name: value for name, value in given.items() if value is not None}
        return (make or table)(**given)

    read.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    read.__annotations__ = {each.name: each.annotation for each in parameters}
    return Depends(read)


def model_of(
    table: type[Struct],
    name: str = "",
    description: str | None = None,
    *,
    example: dict[str, Any] | None = None,
    **changed: Any,
) -> Any:
    """The model of a body that has the members of a table: a class that no type checker sees.

    name         in OpenAPI; empty: the table's
    description  in OpenAPI; None: none
    changed      members that are others: their types, without a default; None: left out
    """
    members: dict[str, Any] = {}
    for each in fields(table):
        kind, about = said(each.type)
        default = {} if each.name in changed else default_of(each)
        kind = changed.get(each.name, kind)
        if kind is not None:
            members[each.name] = (_type(kind), Field(**default, **about))
    config = like(example) if example else Body.model_config
    title = name or table.__name__
    model: type[BaseModel] = create_model(title, __config__=config, __doc__=description, **members)
    MODELS[table] = model
    return model


def _type(annotation: Any) -> Any:
    """The same type with models in place of tables."""
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return MODELS[annotation] if annotation in MODELS else model_of(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is None or origin is Literal:
        return annotation
    if origin is Annotated:
        kind, about = said(annotation)
        return Annotated[_type(kind), Field(**about)]
    replaced = tuple(map(_type, arguments))
    return reduce(or_, replaced) if origin in (Union, UnionType) else origin[replaced]


GraphRequest = model_of(
    GraphOptions,
    "GraphRequest",
    "Options of a graph. Omitted ones have their defaults, and are not compared later.",
    example={"target_error": 1e-8, "keys": "integer"},
)


GraphInfo = model_of(responses.GraphInfo)
CheckpointTaken = model_of(responses.CheckpointTaken)
GraphList = model_of(defstruct("GraphList", [("graphs", list[responses.GraphInfo])]))


class ConsumerRequest(Body):
    """What a consumer of an external source reports of itself."""

    model_config = like(
        {"consumer": "host-1", "state": "retrying", "reason": "redis: refused", "seconds": 30}
    )

    consumer: str = Field(
        description="one of those of the source", min_length=1, max_length=MAX_POSITION
    )
    state: ConsumerState
    reason: str | None = Field(None, description="why it does not consume", max_length=1000)
    seconds: float = Field(
        60, description="until the report is dropped, unless another one follows", gt=0, le=86_400
    )


class _WaitingConsumer(responses.SourceConsumer, frozen=True):
    graph: str


class _SourceList(Struct):
    sources: list[responses.SourcePosition]
    consumers: Annotated[list[responses.SourceConsumer], about("that have reported lately")]


class RecoveringGraph(Struct):
    graph: str
    reason: str
    since: Annotated[float, about("when shards were lost, Unix seconds")]


class StoppedGraph(Struct):
    graph: str
    reason: str


class _Ready(Struct):
    status: Literal["ready"]
    stopped: Annotated[
        list[StoppedGraph],
        about("graphs that are not served, or take no more batches; omitted if none"),
    ] = []
    recovering: Annotated[
        list[RecoveringGraph],
        about("graphs whose shards were lost; omitted if there are none"),
    ] = []
    consumers: Annotated[
        list[_WaitingConsumer],
        about("those of external sources that do not consume; omitted if there are none"),
    ] = []


SourcePosition = model_of(responses.SourcePosition)
Consumer = model_of(responses.SourceConsumer, "Consumer")
SourceList = model_of(_SourceList, "SourceList")
WaitingConsumer = model_of(_WaitingConsumer, "WaitingConsumer")
Ready = model_of(_Ready, "Ready")


Key = (
    Annotated[str, Field(json_schema_extra={"minLength": 1})]
    | Annotated[
        int,
        # FastAPI writes the limits as floating-point numbers, which the highest is not
        Field(json_schema_extra={"format": "int64", "minimum": -(2**63), "maximum": 2**63 - 1}),
    ]
)
Weight = Annotated[
    float,
    Field(
        description="above 0, and in the normal range of float32",
        json_schema_extra={"exclusiveMinimum": 0, "maximum": LARGEST_WEIGHT},
    ),
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
    line: int | None = Field(None, description="of the source of a program, from 1")
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
NeighborsAnswer = model_of(responses.Neighbors, "NeighborsAnswer", responses.Neighbors.__doc__)
ExplainedAnswer = model_of(
    responses.ExplainedRank, "ExplainedAnswer", responses.ExplainedRank.__doc__
)
SubgraphAnswer = model_of(responses.Subgraph, "SubgraphAnswer", responses.Subgraph.__doc__)


class PersonalizedRequest(Body):
    """Queries that share passes over the graph."""

    model_config = like({"queries": [{"seeds": {"ada": 2.0, "alan": 1.0}, "k": 5}]})

    queries: list[KeyedQuery] = Field(min_length=1, max_length=MAX_QUERIES)


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
    mode: Mode = Field(
        "synchronous", description="`asynchronous`: values change in place; of monotone programs"
    )
    limits: RunLimits = Field(NO_LIMITS, description="of each run")
    save_every: int | None = Field(
        None,
        ge=0,
        le=LARGEST_COUNT,
        description="supersteps of a vertex program after which its state is saved, to go on from "
        "after a restart; 0: never. Left out: about every 30 seconds that it works",
    )


_HOPS = """\
class Hops:
    dtype = "int32"
    identity = 1000000
    merge = "min"
    parameters = {"source": 0}
    monotone = True

    def initial(vertex, source):
        return 0 if vertex == source else 1000000

    def gather(source_value):
        return source_value + 1

    def apply(old, gathered):
        return min(old, gathered)

    def scatter(old, new):
        return old != new
"""


class ProgramRequest(Body):
    """A program of a user."""

    model_config = like({"source": _HOPS})

    source: str = Field(
        description="a class in Python with the options and functions of a program: see "
        "docs/programs.md",
    )


ProgramInfo = model_of(responses.ProgramInfo)
ProgramList = model_of(defstruct("ProgramList", [("programs", list[responses.ProgramInfo])]))
AnalysisStarted = model_of(defstruct("AnalysisStarted", [("id", str)]))
AnalysisProgress = model_of(
    responses.AnalysisProgress, description=responses.AnalysisProgress.__doc__
)
AnalysisReceipt = model_of(responses.AnalysisReceipt, description=responses.AnalysisReceipt.__doc__)
AnalysisInfo = model_of(responses.AnalysisInfo, problem=Problem | None, mode=Mode, limits=RunLimits)
AnalysisList = model_of(defstruct("AnalysisList", [("analyses", list[responses.AnalysisInfo])]))
EdgeValue = model_of(responses.EdgeValue, description=responses.EdgeValue.__doc__)
ValueAnswer = model_of(responses.ValueOfVertex, "ValueAnswer")
TopValues = model_of(responses.TopValues)


class Alive(Body):
    status: Literal["alive"]
