"""Ranks of an edge list without a server: `liverank rank`."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from gpu import BackendName, EdgeBatch, Engine, Options
from liverank.client import RankedVertex
from service.cli.ingest import final_graph
from service.formats.edge_list import EdgeList
from service.vertex_keys import KeyTable


@dataclass(frozen=True)
class Ranking:
    """The first places of a file's graph, and figures of the computation.

    build_seconds   time for keys and graph
    solve_seconds   time of the solve and its certificate, with compiled kernels
    """

    places: list[RankedVertex]
    vertices: int
    edges: int
    strategy: str
    iterations: int
    error_bound: float
    backend: str
    build_seconds: float
    solve_seconds: float

    def document(self) -> dict[str, Any]:
        """The ranking as JSON, with the names of the server's responses."""
        document = asdict(self)
        return {"ranks": document.pop("places"), **document}


def rank_edges(
    edges: EdgeList, options: Options, strategy: str, backend: BackendName, top: int
) -> Ranking:
    """Ranks the graph of the edge list, after all its operations. Raises EngineError."""
    engine = Engine(options, backend)
    engine.warm_up()
    started = time.perf_counter()
    edges = final_graph(edges)
    keys = KeyTable("integer" if pa.types.is_integer(edges.sources.type) else "string")
    sources, targets = keys.assign(edges.sources), keys.assign(edges.targets)
    if edges.vertices is not None:
        keys.assign(edges.vertices)
    engine.apply(EdgeBatch(sources, targets, vertices=len(keys)))
    built = time.perf_counter()
    result = engine.update(strategy)
    ids, ranks = engine.publish().top(top)
    names = keys.keys(ids).to_pylist()
    places: list[RankedVertex] = [
        RankedVertex(name, rank) for name, rank in zip(names, ranks.tolist(), strict=True)
    ]
    return Ranking(
        places=places,
        vertices=engine.vertices,
        edges=engine.edges,
        strategy=result.strategy,
        iterations=result.iterations,
        error_bound=result.error_bound,
        backend=engine.backend,
        build_seconds=built - started,
        solve_seconds=result.mark_seconds + result.solve_seconds,
    )
