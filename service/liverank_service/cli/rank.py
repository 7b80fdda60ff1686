"""Ranks of an edge list without a server: `liverank rank`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa

from liverank.choices import KeyKind
from liverank.client import RankedVertex
from liverank.tables import Tabular
from liverank_gpu import (
    BackendName,
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    Solve,
    Trace,
    ViewQuery,
    rank_once,
)
from liverank_service.cli.ingest import final_graph, unused_columns
from liverank_service.formats.edge_files import NotIntegers, read_edge_pieces
from liverank_service.formats.edge_list import EdgeList, WantedColumns
from liverank_service.formats.seeds import SeedColumns
from liverank_service.vertex_keys import KeyTable, arrow_numbers, kind_of

if TYPE_CHECKING:
    from liverank_gpu import OutOfCorePrograms, OutOfCoreRanking

Graph = TypeVar("Graph", "OutOfCorePrograms", "OutOfCoreRanking")


@dataclass(frozen=True)
class Streaming:
    """How the edges of a file were ranked within a memory budget.

    memory        the budget, in bytes
    windows       number of parts in which a sweep read the edges
    passes        passes over all edges
    bytes_loaded  bytes of edges that all passes together loaded
    """

    memory: int
    windows: int
    passes: int
    bytes_loaded: int

    def __str__(self) -> str:
        loaded = f"{self.bytes_loaded / (1 << 20):,.1f} MiB"
        return f"{loaded} in {self.passes:,} passes, windows: {self.windows:,}"


@dataclass(frozen=True)
class Ranking(Tabular):
    """The first places of a file's graph, and figures of the computation.

    table           columns vertex and rank, best first
    duplicates      edges that repeat another, of which the last counts
    superseded      events that a later one on the same edge replaces, and deletions
    unused_columns  columns of the file that did not count
    build_seconds   time for keys and graph
    solve_seconds   time of the solve, with compiled kernels; the certificate is part of it, or in
                    the published form timed as certify_seconds
    streaming       how edges were streamed; None if all of them were in memory
    """

    table: pa.Table
    vertices: int
    edges: int
    duplicates: int
    superseded: int
    unused_columns: tuple[str, ...]
    strategy: str
    iterations: int
    error_bound: float
    backend: str
    build_seconds: float
    solve_seconds: float
    certify_seconds: float
    form: str
    trace: Trace | None
    streaming: Streaming | None = None

    def to_arrow(self) -> pa.Table:
        return self.table

    def places(self, count: int) -> list[RankedVertex]:
        """The first places."""
        return [RankedVertex(**row) for row in self.table[:count].to_pylist()]

    def document(self, count: int) -> dict[str, Any]:
        """The first places and the figures as JSON, with the names of the server's responses."""
        figures = {name: value for name, value in vars(self).items() if name != "table"}
        return {"ranks": self.places(count), **figures}


class LoadedEdges(NamedTuple):
    """What is left of an edge list, all its operations applied: insertions. superseded: see
    Ranking.
    """

    keys: KeyTable
    batch: EdgeBatch
    superseded: int


def loaded_edges(edges: EdgeList, options: Options) -> LoadedEdges:
    """The graph of the edge list, after all its operations, as one batch. Raises InvalidValue."""
    final = final_graph(replace(edges, directed=options.directed))
    keys = KeyTable(kind_of(final.sources))
    sources, targets = keys.assign(final.sources), keys.assign(final.targets)
    if final.vertices is not None:
        keys.assign(final.vertices)
    weights: Any = final.weights  # the batch checks them before they become float32
    times = final.times if options.decays else None
    batch = EdgeBatch(sources, targets, vertices=len(keys), weights=weights, times=times)
    return LoadedEdges(keys, batch, len(edges) - len(final))


def _teleport(seeds: SeedColumns | None, keys: KeyTable) -> ViewQuery | None:
    """Walks that restart at these seeds; None: everywhere. Raises InvalidValue."""
    if seeds is None:
        return None
    checked = seeds.checked(keys.kind, "seeds")
    ids = keys.lookup(checked.keys)
    if (ids < 0).any():
        unknown = checked.keys[int((ids < 0).argmax())].as_py()
        raise InvalidValue("seeds", unknown, "a vertex of the graph")
    return ViewQuery(ids, checked.weights)


def rank_edges(
    edges: EdgeList,
    options: Options,
    solve: Solve,
    backend: BackendName,
    top: int | None,
    seeds: SeedColumns | None = None,
) -> Ranking:
    """Ranks the graph of the edge list, after all its operations. Raises EngineError.

    top    how many places to return; None: all
    seeds  where walks restart; None: everywhere
    """
    decays = options.decays
    options = replace(options, weighted=decays or edges.weights is not None)
    Engine(options, backend, "ignore").warm_up_solve(solve)
    started = time.perf_counter()
    keys, batch, superseded = loaded_edges(edges, options)
    loaded = time.perf_counter()
    ranked = rank_once(
        batch.insert_sources,
        batch.insert_targets,
        batch.weights,
        vertices=batch.vertices,
        times=batch.times,
        options=options,
        backend=backend,
        solve=solve,
        unconverged="ignore",
        view=_teleport(seeds, keys),
    )
    result = ranked.result
    ids, ranks = ranked.ranks.top(ranked.vertices if top is None else top)
    return Ranking(
        table=pa.table({"vertex": keys.keys(ids), "rank": arrow_numbers(ranks)}),
        vertices=ranked.vertices,
        edges=ranked.edges,
        duplicates=ranked.duplicates,
        superseded=superseded,
        unused_columns=edges.unread if decays else unused_columns(edges),
        strategy=result.strategy,
        iterations=result.iterations,
        error_bound=result.error_bound,
        backend=ranked.backend,
        build_seconds=loaded - started + ranked.build_seconds,
        solve_seconds=result.mark_seconds + result.solve_seconds,
        certify_seconds=result.certify_seconds,
        form=result.form,
        trace=result.trace,
    )


def rank_file(
    path: Path,
    wanted: WantedColumns,
    memory: int,
    scratch: Path | None,
    options: Options,
    solve: Solve,
    backend: BackendName,
    top: int | None,
    seeds: SeedColumns | None = None,
) -> Ranking:
    """Ranks the graph of an edge file whose edges are not held in memory.

    wanted   the column of weights
    memory   bytes for the arrays of the graph: keys, values of vertices, and buffers of edges
    scratch  folder for files; None for the system's folder of temporary files
    top      how many places to return; None: all
    seeds    where walks restart; None: everywhere

    Raises EngineError, EdgeListError, OSError.
    """
    from liverank_gpu import OutOfCoreRanking

    options = replace(options, weighted=wanted.weight is not None)
    loaded = loaded_file(path, wanted, lambda: OutOfCoreRanking(memory, options, backend, scratch))
    with loaded as (graph, keys, unread, read_seconds):
        ranked = graph.rank(len(keys), solve, keys.nbytes(), _teleport(seeds, keys))
        ids, ranks = ranked.ranks.top(len(keys) if top is None else top)
        result = ranked.result
        return Ranking(
            table=pa.table({"vertex": keys.keys(ids), "rank": arrow_numbers(ranks)}),
            vertices=len(keys),
            edges=ranked.edges,
            duplicates=graph.added - ranked.edges,
            superseded=0,
            unused_columns=unread,
            strategy=result.strategy,
            iterations=result.iterations,
            error_bound=result.error_bound,
            backend=graph.backend.name,
            build_seconds=read_seconds + ranked.pack_seconds,
            solve_seconds=result.solve_seconds,
            certify_seconds=0.0,
            form=result.form,
            trace=result.trace,
            streaming=Streaming(memory, ranked.windows, ranked.passes, ranked.bytes_loaded),
        )


@contextmanager
def loaded_file(
    path: Path, wanted: WantedColumns, make: Callable[[], Graph]
) -> Iterator[tuple[Graph, KeyTable, tuple[str, ...], float]]:
    """The edges of a file in a graph that is not held in memory, and their keys: integers, or
    strings if it turns out to have others. With them come the names of the columns that do not
    count, and how long reading took, in seconds.

    Raises EdgeListError, InvalidValue, OSError.
    """
    kinds: tuple[KeyKind, ...] = ("integer", "string")
    for kind in kinds:
        keys, unread = KeyTable(kind), tuple[str, ...]()
        with make() as graph:
            started = time.perf_counter()
            try:
                for piece in read_edge_pieces(path, kind == "integer", wanted):
                    graph.add(keys.assign(piece.sources), keys.assign(piece.targets), piece.weights)
                    unread = piece.unread
            except NotIntegers:
                continue
            yield graph, keys, unread, time.perf_counter() - started
            return
