"""PageRank as seen from one vertex."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Response

from gpu.personalized import METHODS
from service.routes.common import OpenGraph, PublishedView, Vertex, json_answer, key_of, problems
from service.routes.ranks import K, ranked_vertices
from service.schemas import PersonalizedAnswer

router = APIRouter(tags=["personalized"])


@router.get(
    "/graphs/{graph}/personalized/{vertex:key}",
    response_model=PersonalizedAnswer,
    responses=problems(404, 422, 429, 504, 507),
)
async def personalized(
    graph: OpenGraph,
    vertex: Vertex,
    _view: PublishedView,
    k: K = 10,
    method: Annotated[str, Query(description="one of " + ", ".join(METHODS))] = "hybrid",
    target_error: Annotated[
        float | None, Query(description="L1 error to reach; the graph's own where omitted")
    ] = None,
) -> Response:
    """The vertices that rank highest when every walk restarts at this one, best first."""
    key = key_of(vertex, graph.options.keys)
    seed = key[0].as_py()
    version, revision, vertices, answer = await asyncio.wrap_future(
        graph.pipeline.personalized(seed, key, k, method, target_error)
    )
    return json_answer(
        {
            "vertex": seed,
            "version": version,
            "revision": revision,
            "error_bound": answer.error_bound,
            "ranks": ranked_vertices(vertices, answer.ranks.tolist()),
            "settled": answer.settled,
            "method": answer.method,
            "iterations": answer.iterations,
        }
    )
