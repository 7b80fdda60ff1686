"""Request and response bodies, as OpenAPI shows them.

Requests are parsed with these models. Responses are encoded without them (validating what the
server itself computed costs more than computing it); a test compares every answer with its model.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpu.types import Dangling

Key = str | int
LARGEST_K = 100_000


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class GraphRequest(_Body):
    """Options of a graph. What is omitted takes its default on creation, and is not compared."""

    damping: float = Field(0.85, description="probability of following an edge; above 0, below 1")
    dangling: Dangling = Field(
        "uniform", description="what a vertex without out-edges does with its rank"
    )
    strategy: str = Field("auto", description="for batches that name none")
    target_error: float = Field(
        1e-6, description="L1 error at which `auto` stops; above 0, at most 2"
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


class BatchRequest(_Body):
    """Deletions are made first. Keys are all strings or all integers, as the graph says."""

    insert: list[tuple[Key, Key]] = Field([], description="edges, each as [source, target]")
    delete: list[tuple[Key, Key]] = Field([], description="edges, each as [source, target]")
    vertices: list[Key] = Field([], description="vertices that exist after the batch")


class Seconds(_Body):
    queue: float
    journal: float
    keys: float
    mutate: float
    mark: float
    solve: float
    publish: float
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
    vertices: list[Key]


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


class PersonalizedAnswer(_Published):
    vertex: Key
    ranks: list[VertexRank] = Field(description="best first")
    settled: int = Field(description="first places that are proven to be the right vertex's")
    method: str
    iterations: int


class Status(_Body):
    status: Literal["alive", "ready"]
