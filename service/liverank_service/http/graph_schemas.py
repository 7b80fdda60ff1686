"""Bodies of the calls for graphs, as OpenAPI shows them: see liverank_service.http.schemas."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from liverank_gpu import Dangling, Form
from liverank_service.formats.source_ranges import MAX_LENGTH
from liverank_service.formats.times import Clock
from liverank_service.http.schema_base import Body, like
from liverank_service.http.schemas import ONE_OF_STRATEGIES
from liverank_service.pipeline.consumers import ConsumerState
from liverank_service.queries.model import BELOW_ONE, L1_ERROR

_ABOVE_ZERO: dict[str, Any] = {
    "anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}]
}


class GraphRequest(Body):
    """Options of a graph. Omitted ones have their defaults, and are not compared later."""

    model_config = like({"target_error": 1e-8, "keys": "integer"})

    damping: float = Field(
        0.85,
        description="probability of following an edge; above 0, below 1",
        json_schema_extra=BELOW_ONE,
    )
    dangling: Dangling = Field(
        "uniform", description="what a vertex without out-edges does with its rank"
    )
    strategy: str = Field(
        "auto", description="of batches that do not name one", json_schema_extra=ONE_OF_STRATEGIES
    )
    target_error: float = Field(
        1e-6,
        description="L1 error at which `auto` stops; above 0, at most 2",
        json_schema_extra=L1_ERROR,
    )
    storage: str = Field(
        "float64",
        description="type of the numbers stored for each vertex: always `float64`",
        json_schema_extra={"enum": ["float64"]},
    )
    keys: Literal["string", "integer"] = "string"
    weighted: bool = Field(
        False, description="whether edges have weights, in proportion to which they are followed"
    )
    directed: bool = Field(True, description="false: an edge is followed either way")
    form: Form = Field("accelerated", description="how the published strategies run")
    tolerance: float = Field(
        1e-10,
        description="L∞: a published strategy stops when no rank moves by more",
        json_schema_extra=BELOW_ONE,
    )
    frontier_tolerance: float = Field(
        1e-6,
        description="relative change of a rank above which the out-neighbours become affected",
        json_schema_extra=BELOW_ONE,
    )
    prune_tolerance: float = Field(
        1e-6,
        description="relative change of a rank up to which a vertex leaves the affected set",
        json_schema_extra=BELOW_ONE,
    )
    max_iterations: int = Field(
        500,
        description="of one solve, or twice as many where one has to start again",
        json_schema_extra={"minimum": 1, "maximum": 1_000_000},
    )
    half_life: float | None = Field(
        None,
        description="seconds after which a weight is worth half of a new one; needs `dangling` "
        "`uniform`, and makes the graph `weighted`",
        json_schema_extra=_ABOVE_ZERO,
    )
    window: float | None = Field(
        None,
        description="seconds after which an edge leaves the graph",
        json_schema_extra=_ABOVE_ZERO,
    )
    clock: Clock = Field(
        "wall",
        description="`event`: the largest time that was sent counts as now; only with `half_life` "
        "or `window`",
    )
    forget_vertices: bool = Field(
        False,
        description="whether vertices leave with their last edge by age; only with `window`",
    )
    max_time_ahead: float | None = Field(
        None,
        description="seconds that a time may be ahead of the server's clock; only with "
        "`half_life` or `window`, by default 60, and 86400 with the clock `event`",
        json_schema_extra=_ABOVE_ZERO,
    )


class ShardsInfo(Body):
    count: int = Field(description="number of worker processes")
    state: Literal["serving", "recovering"]
    reason: str | None = Field(description="why it recovers")
    since: float | None = Field(description="when shards were lost, Unix seconds")
    restarts: int = Field(description="how often the workers were started again")
    vertices: list[int] = Field(description="of each shard; empty while it recovers")
    edges: list[int] = Field(
        description="entries of the out-lists of each shard; empty while it recovers"
    )


class ExpiryDelay(Body):
    reason: str = Field(description="why edges that are too old stay")
    since: float = Field(description="Unix seconds")


class GraphInfo(Body):
    graph: str
    version: int
    revision: int
    vertices: int
    edges: int
    error_bound: float
    backend: str
    options: GraphRequest
    memory: dict[str, int] = Field(description="bytes, by purpose")
    shards: ShardsInfo | None = Field(None, description="omitted for a graph on one device")
    expiry_delay: ExpiryDelay | None = Field(
        None, description="why edges that are too old stay for now; omitted if they do not"
    )


class GraphList(Body):
    graphs: list[GraphInfo]


class SourcePosition(Body):
    source: str
    partition: str
    position: str = Field(description="that the next batch of the partition begins `from`")
    version: int = Field(description="of the batch that moved the position")
    time: float = Field(description="of its commit, Unix seconds")


class ConsumerRequest(Body):
    """What a consumer of an external source reports of itself."""

    model_config = like(
        {"consumer": "host-1", "state": "retrying", "reason": "redis: refused", "seconds": 30}
    )

    consumer: str = Field(
        description="one of those of the source", min_length=1, max_length=MAX_LENGTH
    )
    state: ConsumerState
    reason: str | None = Field(None, description="why it does not consume", max_length=1000)
    seconds: float = Field(
        60, description="until the report is dropped, unless another one follows", gt=0, le=86_400
    )


class Consumer(Body):
    source: str
    consumer: str
    state: ConsumerState
    reason: str | None
    since: float = Field(description="when this state began, Unix seconds")
    expires: float = Field(description="when the report is dropped, Unix seconds")


class SourceList(Body):
    sources: list[SourcePosition]
    consumers: list[Consumer] = Field(description="that have reported lately")


class CheckpointTaken(Body):
    version: int
    revision: int
    bytes: int
    write_seconds: float = Field(description="from the request until the checkpoint was on disk")
    pause_seconds: float = Field(description="how long the graph's writer was blocked")


class WaitingConsumer(Consumer):
    graph: str


class RecoveringGraph(Body):
    graph: str
    reason: str
    since: float = Field(description="when shards were lost, Unix seconds")


class StoppedGraph(Body):
    graph: str
    reason: str


class Ready(Body):
    status: Literal["ready"]
    stopped: list[StoppedGraph] = Field(
        [],
        description="graphs that are not served, or take no more batches; omitted if none",
    )
    recovering: list[RecoveringGraph] = Field(
        [], description="graphs whose shards were lost; omitted if there are none"
    )
    consumers: list[WaitingConsumer] = Field(
        [], description="those of external sources that do not consume; omitted if there are none"
    )
