"""Bodies of the calls for graphs, as OpenAPI shows them: see liverank_service.http.schemas."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct, defstruct
from pydantic import Field

from liverank.choices import ConsumerState
from liverank.client import responses
from liverank.options import MAX_POSITION, GraphOptions, about
from liverank_service.http.tables import Body, like, model_of

GraphRequest = model_of(
    GraphOptions,
    "GraphRequest",
    "Options of a graph. Omitted ones have their defaults, and are not compared later.",
    example={"target_error": 1e-8, "keys": "integer"},
)


ShardsInfo = model_of(responses.ShardsInfo)
ExpiryDelay = model_of(responses.ExpiryDelay)
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
