"""Bodies of the calls for analyses, as OpenAPI shows them: see liverank_service.http.schemas."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from liverank_service.http.schema_base import Body, like
from liverank_service.http.schemas import Key, Problem

Value = Key | float | None


class AnalysisRequest(Body):
    """A program to run. All members are optional, as far as the program's parameters are."""

    model_config = like({"parameters": {"source": "ada"}})

    parameters: dict[str, str | int | float] = Field(
        {}, description="by name; others have their defaults. `source` is the key of a vertex"
    )
    fresh: bool = Field(False, description="whether it runs again after each published version")


class AnalysisStarted(Body):
    id: str


class AnalysisProgress(Body):
    """What the newest run has done so far."""

    supersteps: int
    edges: int = Field(description="edges read")
    seconds: float = Field(description="spent, without the time of batches in between")


class AnalysisReceipt(AnalysisProgress):
    """What the run did to which the answer belongs."""

    continued: bool = Field(description="whether it continued from the answer before")
    finished: bool = Field(description="false if it was ended after its last superstep")


class AnalysisInfo(Body):
    id: str
    program: str
    parameters: dict[str, str | int | float]
    fresh: bool
    created: float = Field(description="Unix seconds")
    state: Literal["queued", "running", "finished", "failed", "cancelled", "interrupted"]
    progress: AnalysisProgress
    version: int | None = Field(description="of the answer; null if there is none")
    receipt: AnalysisReceipt | None = Field(description="of the answer")
    summary: dict[str, float] | None = Field(description="numbers about the whole graph")
    problem: Problem | None = Field(description="why it failed")


class AnalysisList(Body):
    analyses: list[AnalysisInfo]


class VertexValue(Body):
    vertex: Key
    value: Value = Field(
        description="null for a vertex that has none; of `support` and `trussness` the largest of "
        "its edges"
    )


class EdgeValue(Body):
    """An edge without direction: either end may be the source."""

    source: Key
    target: Key
    value: int


class ValueAnswer(VertexValue):
    version: int


class TopValues(Body):
    version: int
    values: list[VertexValue] = Field(
        description="in order. Of `components` and `labels`: the groups, each by the vertex that "
        "names it, with its number of vertices"
    )
    edges: list[EdgeValue] = Field(
        description="of `support` and `trussness`, which have no `values`, in order"
    )
