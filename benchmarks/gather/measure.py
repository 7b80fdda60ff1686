"""Sweeps and batches by each layout, beside the product's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Protocol

import numpy as np

from benchmarks.gather.hubs import MOST_HUBS, Hubs
from benchmarks.gather.kernels import Vectors, after_a_sweep, product_sweep
from benchmarks.gather.pages import Pages, PageShape
from benchmarks.inputs import Drawn
from benchmarks.timing import timed
from gpu.graph.dynamic_graph import DynamicGraph
from gpu.operations.backend import Backend
from gpu.operations.sweeps import SweepResult
from gpu.operations.update import EdgeChanges

SHAPES = (PageShape(), PageShape(tile_bits=13, threads=512, resident=2))
"""Tiles of 16,384 and 8,192 vertices; as many threads and as much shared memory on each
multiprocessor.
"""

BATCHES: tuple[float, ...] = (1000, 1e-3)
"""Edges, or parts of all edges."""

MOST_ERROR, MOST_FLOAT_ERROR = 1e-10, 1e-4
"""‖r - r of the product‖₁ / ‖r of the product‖₁ after a sweep, at most: where sums are integers or
in float64, and in float32. The rounding of fixed-point sums grows with the number of vertices.
"""


class Layout(Protocol):
    """A layout of the in-lists that follows the graph."""

    @property
    def nbytes(self) -> int: ...

    def apply(self, changes: EdgeChanges) -> None: ...


@dataclass(frozen=True, slots=True)
class Way:
    """A way to sweep.

    needed      bytes that have to be read and written once, as in benchmarks.traffic
    random      contributions read at random places, of 2 bytes
    most_error  see MOST_ERROR; None if it is no whole sweep
    follows     whether all of it follows batches
    """

    name: str
    sweep: Callable[[Vectors], SweepResult]
    needed: int
    random: int
    layout: Layout | None = None
    most_error: float | None = MOST_ERROR
    follows: bool = True


def ways_of(
    graph: DynamicGraph, shapes: tuple[PageShape, ...], hubs: int, threads: int
) -> Iterator[Way]:
    """The product's way, and those of the other layouts, which are built here."""
    n, m = graph.vertices, graph.edges
    yield Way("product", lambda vectors: product_sweep(graph, vectors), 4 * m + 57 * n, m)
    for shape in shapes:
        pages = Pages(graph, shape)
        reads = pages.sources
        needed = 2 * m + 4 * reads + 61 * n
        name = f"pages, tiles of {1 << shape.tile_bits:,}"
        yield Way(name, pages.sweep, needed, reads, pages)
        if shape is not shapes[0]:
            continue
        for accumulator, most in (("one word", MOST_ERROR), ("float", MOST_FLOAT_ERROR)):
            swept = partial(pages.sweep, accumulator=accumulator)
            yield Way(f"{name}, {accumulator}", swept, needed, reads, most_error=most)
        binned = partial(pages.sweep, binned=True)
        yield Way(f"{name}, bins written first", binned, needed + 4 * reads, reads)
        yield Way(f"{name}, pass over vertices", pages.finish, 53 * n, 0, most_error=None)
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
    shapes: tuple[PageShape, ...] = SHAPES,
    hubs: int = MOST_HUBS,
    threads: int = 1024,
    batches: tuple[float, ...] = BATCHES,
) -> list[dict[str, Any]]:
    """A row for each way. Raises RuntimeError if a sweep differs from the product's."""
    graph = DynamicGraph(backend, "uniform")
    graph.apply(drawn.load)
    built: dict[str, float] = {}
    ways: list[Way] = []
    found = ways_of(graph, shapes, hubs, threads)
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


def error_of(way: Way, graph: DynamicGraph, vectors: Vectors) -> float | None:
    """‖r - r of the product‖₁ / ‖r of the product‖₁ after one sweep from the same vectors; None for
    what is no whole sweep. Raises RuntimeError if it is too large, or if y differs.
    """
    if way.most_error is None:
        return None
    xp, theirs, ours = graph.backend.xp, vectors.copy(), vectors.copy()
    product_sweep(graph, theirs)
    ours.following.fill(0xFFFF)
    way.sweep(ours)
    difference = float(xp.abs(theirs.residual - ours.residual).sum())
    error = difference / float(xp.abs(theirs.residual).sum())
    moved = float(xp.abs(theirs.values - ours.values).max())
    if not (error <= way.most_error and moved == 0.0):
        raise RuntimeError(f"{way.name}: a sweep differs by {error:.3g} in r, {moved:.3g} in y")
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
            spent = {"product": milliseconds}
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
