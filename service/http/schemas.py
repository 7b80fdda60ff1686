"""Request and response bodies, as OpenAPI shows them.

Requests are parsed with these models. Responses are encoded without them (validating what the
server itself computed costs more than computing it); a test compares every answer with its model.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from gpu.personalized import METHODS, TARGETS
from gpu.strategies import STRATEGIES
from gpu.types import Dangling, Storage
from service.storage.api_keys import Scope


def _whole(value: object) -> object:
    """JSON has one kind of number: 10.0 is as whole as 10."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Key = (
    Annotated[str, Field(json_schema_extra={"minLength": 1})]
    | Annotated[int, Field(json_schema_extra={"minimum": -(2**63), "maximum": 2**63 - 1})]
)
WholeNumber = Annotated[int, BeforeValidator(_whole)]
LARGEST_K = 100_000
MOST_QUERIES = 10_000

# What the catalog and the engine refuse, for OpenAPI: they know better words for it than pydantic.
ONE_OF_STRATEGIES: dict[str, Any] = {"enum": list(STRATEGIES)}
ONE_OF_METHODS: dict[str, Any] = {"enum": list(METHODS)}
ONE_OF_TARGETS: dict[str, Any] = {"enum": list(TARGETS)}
AN_ERROR: dict[str, Any] = {"exclusiveMinimum": 0, "maximum": 2}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class GraphRequest(_Body):
    """Options of a graph. What is omitted takes its default on creation, and is not compared."""

    damping: float = Field(
        0.85,
        description="probability of following an edge; above 0, below 1",
        json_schema_extra={"exclusiveMinimum": 0, "exclusiveMaximum": 1},
    )
    dangling: Dangling = Field(
        "uniform", description="what a vertex without out-edges does with its rank"
    )
    strategy: str = Field(
        "auto", description="for batches that name none", json_schema_extra=ONE_OF_STRATEGIES
    )
    target_error: float = Field(
        1e-6,
        description="L1 error at which `auto` stops; above 0, at most 2",
        json_schema_extra=AN_ERROR,
    )
    storage: Storage = Field(
        "float64",
        description="what numbers over the vertices are kept as; `float32` takes half the memory, "
        "with a `target_error` of 1e-6 or more",
    )
    keys: Literal["string", "integer"] = "string"


class GraphInfo(_Body):
    graph: str
    version: int
    revision: int
    vertices: int
    edges: int
    error_bound: float
    backend: str
    options: GraphRequest
    memory: dict[str, int] = Field(description="bytes, by purpose")


class GraphList(_Body):
    graphs: list[GraphInfo]


class CheckpointTaken(_Body):
    version: int
    revision: int
    bytes: int
    write_seconds: float = Field(description="until it was on disk")
    pause_seconds: float = Field(description="how long batches had to wait for it")


class KeyRequest(_Body):
    """An API key to be made. The first one has scope admin, and is for all graphs."""

    name: str = Field(
        description="what it is for; 1 to 100 printable characters",
        json_schema_extra={"minLength": 1, "maxLength": 100},
    )
    scope: Scope = Field(description="each includes those before it")
    graphs: list[str] | None = Field(
        None,
        description="the graphs it is for; left out: all",
        json_schema_extra={"minItems": 1},
    )


class KeyInfo(_Body):
    id: str
    name: str
    scope: Scope
    graphs: list[str] | None
    created: str


class NewKey(KeyInfo):
    key: str = Field(description="the key itself, which is shown only now")


class KeyList(_Body):
    keys: list[KeyInfo]


class BatchRequest(_Body):
    """Deletions are made first. Keys are all strings or all integers, as the graph says."""

    insert: list[tuple[Key, Key]] = Field([], description="edges, each as [source, target]")
    delete: list[tuple[Key, Key]] = Field([], description="edges, each as [source, target]")
    vertices: list[Key] = Field([], description="vertices that exist after the batch")


_NOT_ALWAYS = "not in receipts of versions that did not count it"


class Seconds(_Body):
    queue: float
    journal: float
    keys: float
    mutate: float
    mark: float
    solve: float
    watched: float = Field(0.0, description=_NOT_ALWAYS)
    publish: float
    others: float = Field(0.0, description=_NOT_ALWAYS)
    total: float


class Receipt(_Body):
    """What a batch, or a recomputation, did."""

    version: int
    ranked_version: int = Field(description="the version published with this batch's ranks")
    revision: int = Field(description="names the published ranks")
    inserted: int
    already_present: int
    deleted: int
    not_found: int
    new_vertices: int
    strategy: str
    iterations: int = Field(description="dense sweeps plus work-list rounds")
    touched_vertices: int = Field(description="distinct vertices recomputed")
    error_bound: float = Field(description="proven upper bound on the L1 error of the ranks")
    converged: bool
    seconds: Seconds


class Durable(_Body):
    version: int
    status: Literal["durable"]


class Pending(_Body):
    version: int
    status: Literal["pending"]


class Problem(BaseModel):
    """A problem document (RFC 9457), `application/problem+json`."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = Field(None, description="the path that was asked for")
    field: str | None = Field(None, description="what the problem is with")
    index: int | None = Field(None, description="which item of the field")
    value: Any = Field(None, description="what was given")
    accepted: list[str] | None = Field(None, description="what would be taken")
    version: int | None = Field(None, description="the version that a rejected batch has spent")


class Rejected(_Body):
    """`lost`: the disk damaged the batch, and it is not in the graph."""

    version: int
    status: Literal["rejected", "lost"]
    problem: Problem


class VerticesRequest(_Body):
    vertices: list[Key] = Field([], description="in the order in which ranks are answered")


class _Published(_Body):
    version: int
    revision: int
    error_bound: float


class VertexRank(_Body):
    vertex: Key
    rank: float


class RankAnswer(_Published, VertexRank):
    """The rank of one vertex."""


class RanksAnswer(_Published):
    ranks: list[float | None] = Field(description="in order; null for a vertex never seen")


class TopAnswer(_Published):
    ranks: list[VertexRank] = Field(description="best first")


class _Query(_Body):
    seeds: dict[str, float] = Field(
        description="the weight of each seed; they are scaled to sum 1, and 0 is no seed",
        json_schema_extra={
            "minProperties": 1,
            "propertyNames": {"minLength": 1},
            "additionalProperties": {"type": "number", "minimum": 0},
        },
    )
    k: WholeNumber = Field(
        10, ge=1, le=LARGEST_K, description="how many; fewer where the graph ends"
    )
    method: str = Field(
        "hybrid", description="`hybrid`, `push` or `pull`", json_schema_extra=ONE_OF_METHODS
    )
    target_error: float | None = Field(
        None,
        description="L1 error to reach; the graph's own where omitted",
        json_schema_extra=AN_ERROR,
    )


class PersonalizedQuery(_Query):
    target: str = Field(
        "error",
        description="`error`, or `settled-top-k`: end once the k places are proven",
        json_schema_extra=ONE_OF_TARGETS,
    )


class PersonalizedRequest(_Body):
    """Queries that are answered in the same passes over the graph."""

    queries: list[PersonalizedQuery] = Field(min_length=1, max_length=MOST_QUERIES)


class WatchedRequest(_Query):
    """A personalized query that is kept fresh."""


class _Answer(_Body):
    ranks: list[VertexRank] = Field(description="best first")
    error_bound: float
    settled: int = Field(description="first places that are proven to be the right vertex's")
    method: str
    iterations: int


class PersonalizedAnswer(_Answer):
    vertex: Key
    version: int
    revision: int


class PersonalizedAnswers(_Body):
    version: int
    revision: int
    answers: list[_Answer] = Field(description="in the order of the queries")


class WatchedAnswer(_Answer):
    name: str
    version: int
    revision: int
    k: int
    target_error: float
    seeds: dict[str, float]


class Status(_Body):
    status: Literal["alive", "ready"]
