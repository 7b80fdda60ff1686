"""Sweeps and batches by each layout, beside the product's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any, Protocol

import numpy as np

from benchmarks.gather.hubs import MOST_HUBS, Hubs
from benchmarks.gather.kernels import Vectors, after_a_sweep, product_sweep
from benchmarks.inputs import Drawn
from benchmarks.timing import timed
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.graph.in_pages import InPages
from liverank_gpu.operations.backend import Backend, PageRule
from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.graph import EdgeChanges
from liverank_gpu.operations.sweeps import SweepResult

BATCHES: tuple[float, ...] = (1000, 1e-3)
"""Edges, or parts of all edges."""

MOST_ERROR = 1e-9
"""How far y and r may be from those of the sweep by rows, in L1, relative to its ‖r‖₁: pages round
the smallest contributions, and their vertices keep the rest.
"""


class Layout(Protocol):
    """A layout of the in-lists that follows the graph."""

    @property
    def nbytes(self) -> int: ...

    def apply(self, changes: EdgeChanges) -> None: ...


@dataclass(slots=True)
class Pages:
    """The product's pages of a graph.

    sources  of all pages: contributions that a sweep reads
    """

    graph: DynamicGraph
    sources: int = field(init=False)
    _pages: InPages = field(init=False)

    def __post_init__(self) -> None:
        """Raises RuntimeError if there are none."""
        backend = self.graph.backend
        always = replace(backend.costs, pages=PageRule(1, 0.0, 0.0))
        self._pages = InPages(replace(backend, costs=always))
        self._pages.want()
        if not (lists := self.view(1.0).pages):
            raise RuntimeError("expected pages, got none: too little memory")
        self.sources = int(lists.lists.page_sources.sum(dtype=np.int64))

    def view(self, residual_l1: float) -> GraphView:
        """The graph for a sweep from such a residual."""
        return self._pages.view(self.graph.view, 8.0 * residual_l1)

    def sweep(self, vectors: Vectors) -> SweepResult:
        """A sweep, in place."""
        return product_sweep(self.graph, vectors, self.view(vectors.residual_l1))

    @property
    def nbytes(self) -> int:
        return sum(self._pages.memory().values())

    def apply(self, changes: EdgeChanges) -> None:
        """Follows a batch. Raises RuntimeError if pages were given up."""
        self._pages.follow(changes, self.graph.vertices)
        if not self._pages.memory():
            raise RuntimeError("pages found no room for a batch")


@dataclass(frozen=True, slots=True)
class Way:
    """A way to sweep.

    needed      bytes that have to be read and written once, as in benchmarks.traffic
    random      contributions read at random places, of 2 bytes
    follows     whether all of it follows batches
    """

    name: str
    sweep: Callable[[Vectors], SweepResult]
    needed: int
    random: int
    layout: Layout | None = None
    follows: bool = True


def ways_of(graph: DynamicGraph, hubs: int, threads: int) -> Iterator[Way]:
    """The product's ways, and that of the other layout, which is built here."""
    n, m = graph.vertices, graph.edges
    yield Way("rows", partial(product_sweep, graph), 4 * m + 57 * n, m)
    pages = Pages(graph)
    yield Way("pages", pages.sweep, 2 * m + 4 * pages.sources + 61 * n, pages.sources, pages)
    divided = Hubs(graph, hubs, threads)
    others = m - divided.hub_edges
    needed = 2 * divided.hub_edges + 4 * others + 61 * n
    hub_name = f"{len(divided.hub_ids):,} hubs"
    yield Way(hub_name, divided.sweep, needed, others, divided, follows=False)


def measured(
    name: str,
    drawn: Drawn,
    backend: Backend,
    turns: int,
    *,
    hubs: int = MOST_HUBS,
    threads: int = 1024,
    batches: tuple[float, ...] = BATCHES,
) -> list[dict[str, Any]]:
    """A row for each way. Raises RuntimeError if a sweep differs from that by rows."""
    graph = DynamicGraph(backend, "uniform")
    graph.apply(drawn.load)
    built: dict[str, float] = {}
    ways: list[Way] = []
    found = ways_of(graph, hubs, threads)
    while True:
        milliseconds, way = timed(backend.device, lambda: next(found, None))
        if way is None:
            break
        ways.append(way)
        built[way.name] = milliseconds
    vectors = after_a_sweep(graph)
    errors = {way.name: error_of(way, graph, vectors) for way in ways}
    times: dict[str, list[float]] = {way.name: [] for way in ways}
    own = vectors.copy()
    for _ in range(turns):
        for way in ways:
            times[way.name].append(timed(backend.device, partial(way.sweep, own))[0])
    print(name, {way: median(each) for way, each in times.items()}, flush=True)
    changed = changes_of(graph, drawn, ways, batches, turns)
    vectors = after_a_sweep(graph)
    rows = []
    for way in ways:
        layout = way.layout
        rows.append(
            {
                "graph": name,
                "vertices": graph.vertices,
                "edges": graph.edges,
                "way": way.name,
                "sweep_ms": median(times[way.name]),
                "least_ms": min(times[way.name]),
                "needed_bytes": way.needed,
                "random_reads": way.random,
                "error": errors[way.name],
                "error_after_batches": error_of(way, graph, vectors) if way.follows else None,
                "built_ms": built[way.name] if layout else None,
                "bytes": layout.nbytes if layout else None,
                "batches_ms": changed.get(way.name),
            }
        )
    return rows


def error_of(way: Way, graph: DynamicGraph, vectors: Vectors) -> float:
    """See MOST_ERROR, from the same vectors. Raises RuntimeError if it is too large."""
    xp, theirs, ours = graph.backend.xp, vectors.copy(), vectors.copy()
    product_sweep(graph, theirs)
    ours.following.fill(0xFFFF)
    way.sweep(ours)
    difference = float(xp.abs(theirs.residual - ours.residual).sum())
    difference += float(xp.abs(theirs.values - ours.values).sum())
    error = difference / float(xp.abs(theirs.residual).sum())
    if not error <= MOST_ERROR:
        raise RuntimeError(f"{way.name}: a sweep differs by {error:.3g} of r")
    return error


def changes_of(
    graph: DynamicGraph,
    drawn: Drawn,
    ways: list[Way],
    batches: tuple[float, ...],
    turns: int,
) -> dict[str, dict[str, float]]:
    """Milliseconds of a batch of each size, by way: of the whole mutation by the product, and what
    each layout adds.
    """
    device, medians = graph.backend.device, {way.name: dict[str, float]() for way in ways}
    for size in batches:
        edges = int(size if size >= 1 else size * graph.edges)
        random = np.random.default_rng(3)
        times: dict[str, list[float]] = {}
        for turn, batch in zip(
            range(turns // 2 + 2), drawn.batches(random, edges, lambda column: column), strict=False
        ):
            milliseconds, update = timed(device, partial(graph.apply, batch))
            changes = update.changes
            if changes is None:
                raise RuntimeError(f"a batch of {edges} edges rebuilt the graph")
            spent = {"rows": milliseconds}
            for way in ways:
                if way.layout:
                    follow = partial(way.layout.apply, changes)
                    spent[way.name], _ = timed(device, follow)
            if turn:
                for way_name, own in spent.items():
                    times.setdefault(way_name, []).append(own)
        for way_name, each in times.items():
            medians[way_name][f"{size:g}"] = median(each)
    return {name: found for name, found in medians.items() if found}
