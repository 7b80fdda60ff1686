"""The streams of the golden records: what is drawn, and what is done, as data.

A stream is a graph, options and a list of steps. A step is a verb and its arguments, as
tests.golden.play runs them:

    load                     all edges of the graph, in one batch
    batch insert=9 delete=3  edges that are drawn: insertions of new and of present edges, loops
                             included; deletions of present and of absent ones. remove=, add=:
                             vertices; conflict=: what an insertion does to a present edge; grow=:
                             new vertices
    parts 5 3 8              as many small batches, applied as one
    update auto form=…       a solve
    personalized …           queries: count=, and members of liverank_gpu.PersonalizedQuery
    watch NAME …             a watched query, asked for after each update from then on
    program NAME …           a run of a program, which continues from the last one after a batch
    restore                  a snapshot, from which another engine goes on

Everything is drawn from the name of the stream by SplitMix64: neither Python's nor NumPy's
generators decide what a stream is. **A stream is never changed: a record proves something only as
long as the stream is what it was.**
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DATA = Path(os.environ.get("LIVERANK_GRAPHS", Path(__file__).parents[3] / "shared" / "data"))
"""Real graphs; LIVERANK_GRAPHS names another folder."""

Ids = NDArray[np.int64]
Steps = Sequence[str]


@dataclass(frozen=True)
class Stream:
    """A stream.

    graph    a family in GRAPHS and its size
    options  of liverank_gpu.Options; of a stream of the service, the body that creates the graph
    steps    see above
    shards   their number; 0 for an engine without
    """

    graph: str
    steps: Steps
    options: Mapping[str, Any] = field(default_factory=dict)
    shards: int = 0


class Draw:
    """Numbers drawn from a seed: number i is mix(seed + i·γ), SplitMix64."""

    def __init__(self, seed: str) -> None:
        self._state = int.from_bytes(sha256(seed.encode()).digest()[:8], "little")

    def numbers(self, count: int) -> NDArray[np.uint64]:
        """uint64[count], uniform."""
        gamma = 0x9E3779B97F4A7C15
        steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(gamma)
        state = np.uint64(self._state) + steps
        self._state = (self._state + count * gamma) % 2**64
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: NDArray[np.uint64] = state ^ (state >> np.uint64(31))
        return mixed

    def below(self, limit: int, count: int) -> Ids:
        """int64[count], from 0 to limit - 1."""
        return (self.numbers(count) % np.uint64(max(limit, 1))).astype(np.int64)

    def skewed(self, limit: int, count: int) -> Ids:
        """The same, low ones more often: of density 1 / √x."""
        unit = (self.numbers(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return (unit * unit * limit).astype(np.int64)

    def weights(self, count: int) -> NDArray[np.float32]:
        """float32[count], above 0 and at most 16, with all bits of the fraction. One in four is up
        to 2⁴⁰ times smaller: sums of the others alone are exact in float64, in any order.
        """
        numbers = self.numbers(count)
        fraction = (numbers >> np.uint64(40)).astype(np.float64) + 1.0
        smaller = (numbers % np.uint64(4) == 0) * (numbers // np.uint64(4) % np.uint64(41))
        weights: NDArray[np.float64] = np.ldexp(fraction, -20 - smaller.astype(np.int64))
        return weights.astype(np.float32)


def _skewed(draw: Draw, vertices: int, edges: int) -> tuple[Ids, Ids]:
    return draw.below(vertices, edges), draw.skewed(vertices, edges)


def _chain(draw: Draw, components: int, size: int) -> tuple[Ids, Ids]:
    """Cycles of `size`, each with edges to the following ones, in shuffled ids."""
    order = np.argsort(draw.numbers(components * size), kind="stable")
    place = np.arange(components * size)
    successor = place // size * size + (place % size + 1) % size
    further = place + size * (1 + draw.below(3, len(place)))
    ahead = further < len(place)
    sources = np.append(place, place[ahead])
    targets = np.append(successor, further[ahead])
    return order[sources], order[targets]


def _grid(_: Draw, width: int, height: int) -> tuple[Ids, Ids]:
    """Each vertex to the right, down, and the last row to the first."""
    place = np.arange(width * height)
    right, down = place % width < width - 1, place + width < width * height
    below = place[~down] % width
    sources = np.concatenate([place[right], place[down], place[~down]])
    return sources, np.concatenate([place[right] + 1, place[down] + width, below])


def _core(draw: Draw, vertices: int, edges: int) -> tuple[Ids, Ids]:
    """One strongly connected part of as many vertices and edges, and twice as many vertices behind
    it, with 1.5 times as many edges that lead on only.
    """
    sources, targets = _skewed(draw, vertices, edges)
    cycle = np.arange(vertices)
    one, other = draw.below(3 * vertices, 3 * edges // 2), draw.below(2 * vertices, 3 * edges // 2)
    other += vertices
    low, high = np.minimum(one, other), np.maximum(one, other)
    on = low < high
    return (
        np.concatenate([sources, cycle, low[on]]),
        np.concatenate([targets, (cycle + 1) % vertices, high[on]]),
    )


def _star(draw: Draw, leaves: int, hubs: int) -> tuple[Ids, Ids]:
    """Every leaf to every hub, and each hub to a few leaves."""
    leaf = np.arange(hubs, hubs + leaves)
    sources, targets = np.tile(leaf, hubs), np.repeat(np.arange(hubs), leaves)
    back = np.repeat(np.arange(hubs), 5)
    return np.append(sources, back), np.append(targets, hubs + draw.below(leaves, len(back)))


def _twins(draw: Draw, groups: int, size: int) -> tuple[Ids, Ids]:
    """Groups of vertices with equal in-lists, which link to the first vertex of other groups."""
    member = np.arange(groups * size)
    origins = draw.below(groups * size, groups * 3).reshape(groups, 3)
    sources = origins[member // size].ravel()
    return np.append(sources, member), np.append(
        np.repeat(member, 3), draw.below(groups, len(member)) * size
    )


def _college(_: Draw, edges: int, __: int) -> tuple[Ids, Ids]:
    """The first messages among students (SNAP's CollegeMsg)."""
    with gzip.open(DATA / "CollegeMsg" / "CollegeMsg.txt.gz", "rt") as file:
        rows = [line.split()[:2] for _, line in zip(range(edges), file, strict=False)]
    ends = np.array(rows, np.int64) - 1
    return ends[:, 0].copy(), ends[:, 1].copy()


def _karate(_: Draw, __: int, ___: int) -> tuple[Ids, Ids]:
    """Zachary's karate club."""
    lines = (DATA / "lagraph-small" / "karate.mtx").read_text().splitlines()
    rows = [line.split()[:2] for line in lines if line and not line.startswith("%")][1:]
    ends = np.array(rows, np.int64) - 1
    return ends[:, 0].copy(), ends[:, 1].copy()


GRAPHS: dict[str, Callable[[Draw, int, int], tuple[Ids, Ids]]] = {
    "skewed": _skewed,
    "chain": _chain,
    "grid": _grid,
    "core": _core,
    "star": _star,
    "twins": _twins,
    "college": _college,
    "karate": _karate,
}

REAL = {"college", "karate"}
"""Families that are read from DATA."""


def graph_of(stream: Stream, draw: Draw) -> tuple[Ids, Ids]:
    """The edges that ``load`` inserts."""
    family, *sizes = stream.graph.split()
    first, second = (*map(int, sizes), 0, 0)[:2]
    return GRAPHS[family](draw, first, second)


# ---- the streams ----

_MIXED = (
    "batch insert=1",
    "batch insert=12 delete=4",
    "batch delete=6",
    "batch insert=150 delete=60 grow=5",
)


def _each(then: Steps, batches: Steps = _MIXED, first: Steps = ("load",)) -> tuple[str, ...]:
    """`then` after the load and after each batch."""
    return (*first, *then, *(step for batch in batches for step in (batch, *then)))


AUTO = _each(("update auto",))
_REMOVALS = (
    "batch insert=10 remove=3",
    "batch delete=4 add=2",
    "batch insert=40 delete=20 remove=8 add=4",
    "batch insert=30 grow=4",
    "batch remove=40",
    "batch insert=200 add=12",
)
_AGES = (
    "batch insert=20 delete=5",
    "batch insert=20 later=3",
    "batch insert=100 delete=40 later=30",
    "batch insert=15 later=70 remove=3",
    "batch insert=30 later=600",
    "batch insert=40 later=60000",
)

_WEIGHTED: dict[str, Any] = {"weighted": True}
_UNDIRECTED: dict[str, Any] = {"directed": False}
_BOTH = _WEIGHTED | _UNDIRECTED

RANKS: dict[str, Stream] = {
    "directed": Stream("skewed 300 1800", (*AUTO, "restore", "batch insert=30", "update auto")),
    "self-loops": Stream("skewed 300 1500", AUTO, {"dangling": "self-loop"}),
    "undirected": Stream("skewed 250 900", (*AUTO, "restore", "update auto"), _UNDIRECTED),
    "weighted": Stream(
        "skewed 300 1800", (*AUTO, "restore", "batch delete=9", "update auto"), _WEIGHTED
    ),
    "weighted-self-loops": Stream("skewed 200 1000", AUTO, _WEIGHTED | {"dangling": "self-loop"}),
    "weighted-undirected": Stream("skewed 250 900", AUTO, _BOTH),
    "weights-add": Stream(
        "skewed 60 400",
        _each(
            ("update auto",),
            (
                "batch insert=60 conflict=add",
                "batch insert=60 delete=20 conflict=add",
                "batch insert=60",
            ),
        ),
        _WEIGHTED,
    ),
    "removal": Stream(
        "skewed 200 1000",
        (*_each(("update auto",), _REMOVALS), "restore", "batch insert=9 add=2", "update auto"),
    ),
    "removal-undirected-weighted": Stream(
        "skewed 200 700", _each(("update auto",), _REMOVALS), _BOTH
    ),
    "removal-self-loops": Stream(
        "skewed 200 700",
        _each(("update auto", "update dynamic-frontier-prune"), _REMOVALS),
        {"dangling": "self-loop"},
    ),
    "decay": Stream(
        "skewed 200 800",
        (*_each(("update auto",), _AGES), "restore", "batch insert=9", "update auto"),
        {"half_life": 10.0},
    ),
    "decay-undirected": Stream(
        "skewed 150 500", _each(("update auto",), _AGES), {"half_life": 10.0, "directed": False}
    ),
    "decay-strategies": Stream(
        "skewed 200 800",
        _each(("update dynamic-frontier", "update static"), _AGES[:4]),
        {"half_life": 25.0},
    ),
    "small-error": Stream("skewed 300 1800", AUTO, {"target_error": 1e-13, "damping": 0.95}),
    "slow-grid": Stream(
        "grid 30 40",
        _each(("update auto",), ("batch insert=5", "batch insert=60 delete=60")),
        {"damping": 0.999, "target_error": 1e-10, "max_iterations": 4000},
    ),
    "slow-grid-weighted": Stream(
        "grid 25 30",
        _each(("update auto",), ("batch insert=5", "batch insert=60 delete=60")),
        _WEIGHTED | {"damping": 0.999, "target_error": 1e-9, "max_iterations": 4000},
    ),
    "slow-undirected": Stream(
        "grid 20 40",
        _each(("update auto",), ("batch insert=5", "batch insert=40 delete=40")),
        _UNDIRECTED | {"damping": 0.995, "target_error": 1e-11},
    ),
    "chains": Stream(
        "chain 120 4",
        _each(("update auto",), ("batch insert=3", "batch insert=30 delete=30")),
        {"target_error": 1e-12},
    ),
    "chains-weighted": Stream(
        "chain 300 2",
        _each(("update auto",), ("batch insert=3", "batch delete=30")),
        _WEIGHTED | {"target_error": 1e-11, "damping": 0.99, "max_iterations": 4000},
    ),
    "long-rows": Stream(
        "star 2500 2",
        _each(
            ("update auto", "update naive-dynamic"),
            ("batch insert=20 delete=20", "batch delete=900"),
        ),
        {"target_error": 1e-9},
    ),
    "long-rows-weighted": Stream(
        "star 2500 2",
        _each(
            ("update auto", "update naive-dynamic"),
            ("batch insert=20 delete=20", "batch delete=900"),
        ),
        _WEIGHTED | {"target_error": 1e-9},
    ),
    "many-chunks": Stream(
        "skewed 12000 110000",
        _each(
            ("update auto", "update static", "update dynamic-frontier"),
            ("batch insert=500 delete=300", "batch insert=30000 delete=10000"),
        ),
        {"target_error": 1e-10},
    ),
    "many-chunks-weighted": Stream(
        "skewed 9000 90000",
        _each(
            ("update auto", "update dynamic-frontier-prune form=published"),
            ("batch insert=500 delete=300",),
        ),
        _WEIGHTED | {"vertex_order": "degree"},
    ),
    "large-pushes": Stream(
        "skewed 20000 260000",
        _each(("update auto",), ("batch insert=20000 delete=9000", "batch insert=2000")),
        {"target_error": 1e-9},
    ),
    "large-components": Stream(
        "core 2500 60000",
        _each(("update auto",), ("batch insert=1", "batch delete=20")),
        {"target_error": 1e-9, "damping": 0.99},
    ),
    "large-components-weighted": Stream(
        "core 2500 60000",
        _each(("update auto",), ("batch delete=20",)),
        _WEIGHTED | {"target_error": 1e-9, "damping": 0.99},
    ),
    "messages": Stream(
        "college 6000",
        (
            *_each(
                ("update auto", "update static"), ("batch insert=1", "batch insert=1000 delete=100")
            ),
            "restore",
            "update auto",
        ),
    ),
    "joined-batches": Stream(
        "skewed 300 1500",
        _each(("update auto",), ("parts 1 2 3 4", "parts 9 0 20", "parts 3 3 3 3 3 3")),
    ),
    "joined-weighted": Stream(
        "skewed 300 1500",
        _each(("update auto",), ("parts 1 2 3 4", "parts 9 0 20")),
        _WEIGHTED | {"vertex_order": "given"},
    ),
    "nothing": Stream(
        "skewed 5 0",
        (
            "update auto",
            "batch insert=0",
            "update auto",
            "batch grow=7 insert=0",
            "update static",
            "batch insert=2",
            "update auto",
            "batch delete=2",
            "update auto",
        ),
    ),
    "settled-places": Stream(
        "skewed 300 1500",
        _each(("update auto settle=10", "update auto settle=25 target=settled-set")),
    ),
    "settled-ties": Stream(
        "twins 40 6",
        _each(("update auto settle=30",), ("batch insert=4", "batch delete=5")),
        {"target_error": 1e-4},
    ),
    "settled-weighted": Stream(
        "twins 40 6",
        _each(
            ("update auto settle=20", "update residual settle=9 target=settled-set"),
            ("batch insert=4", "batch delete=5"),
        ),
        _WEIGHTED,
    ),
}
"""Ranks by ``auto``."""

_STRATEGY_OPTIONS: dict[str, dict[str, Any]] = {
    "static": {"dangling": "self-loop"},
    "naive-dynamic": _WEIGHTED,
    "dynamic-traversal": {},
    "dynamic-frontier": _UNDIRECTED,
    "dynamic-frontier-prune": {"frontier_tolerance": 1e-5, "prune_tolerance": 1e-5},
}
_FORMS = ("form=accelerated", "form=published")
STRATEGIES: dict[str, Stream] = {
    "residual": Stream("skewed 300 1500", _each(("update residual",))),
    "published-graph": Stream(
        "skewed 300 1500", _each(("update auto", "update dynamic-frontier")), {"form": "published"}
    ),
    "karate": Stream(
        "karate",
        _each(
            (
                "update static form=published",
                "update static",
                "update naive-dynamic form=published",
            ),
            ("batch insert=2", "batch delete=3"),
        ),
        _UNDIRECTED,
    ),
    **{
        f"{strategy}{'-published' if 'published' in form else ''}": Stream(
            "skewed 300 1500",
            _each((f"update {strategy} {form} trace=1",)),
            options,
        )
        for strategy, options in _STRATEGY_OPTIONS.items()
        for form in _FORMS
    },
    **{
        f"weighted-{strategy}": Stream(
            "skewed 250 1200",
            _each(
                tuple(f"update {strategy} {form}" for form in _FORMS),
                _MIXED[1:],
                ("load", "update auto"),
            ),
            _WEIGHTED | {"dangling": "self-loop"},
        )
        for strategy in (
            "static",
            "dynamic-traversal",
            "dynamic-frontier",
            "dynamic-frontier-prune",
        )
    },
}
"""Every strategy in both forms."""

_METHODS = tuple(
    f"personalized count=2 method={method} target_error={error}"
    for method in ("hybrid", "push", "pull")
    for error in ("1e-3", "1e-8")
)
_PUBLISHED = tuple(
    f"personalized count=1 form=published method={method} target_error=1e-5 trace=1"
    for method in ("hybrid", "push", "pushopt", "pull")
)
_TARGETS = (
    "personalized count=3 target=settled-top-k k=8 target_error=1e-9",
    "personalized count=3 target=settled-set k=12 target_error=1e-9",
    "personalized count=2 target=settled-top-k k=6 target_error=1e-9 among=60",
    "personalized count=1 target_error=1e-6 trace=1",
    "personalized count=1 damping=0.99 target_error=1e-9 method=pull trace=1",
)
_BLOCKS = (
    "personalized count=20 target_error=1e-7 method=pull",
    "personalized count=9 target=settled-top-k k=5 method=pull",
    "personalized count=12 damping=0.5 target_error=1e-6",
)
_QUERIES = (*_METHODS, *_TARGETS, *_BLOCKS)
_WATCH = (
    "load",
    "update auto",
    "watch one",
    "watch few seeds=4 target_error=1e-9 k=25",
    "watch among among=50 damping=0.6",
    "watch wide seeds=60 method=pull",
)

PERSONALIZED: dict[str, Stream] = {
    "queries": Stream(
        "skewed 400 2500",
        ("load", "update auto", *_QUERIES, *_PUBLISHED, "batch insert=60 delete=30", *_BLOCKS),
    ),
    "queries-weighted": Stream("skewed 400 2500", ("load", *_QUERIES, *_PUBLISHED), _WEIGHTED),
    "queries-undirected": Stream("skewed 300 900", ("load", "update auto", *_QUERIES), _UNDIRECTED),
    "queries-self-loops": Stream(
        "skewed 300 1500",
        ("load", "update auto", *_QUERIES, *_PUBLISHED),
        {"dangling": "self-loop"},
    ),
    "queries-weighted-undirected": Stream(
        "skewed 300 900",
        ("load", "update auto", *_QUERIES, "batch insert=9 remove=5", *_BLOCKS),
        _BOTH,
    ),
    "queries-ties": Stream("twins 50 6", ("load", "update auto", *_TARGETS, *_BLOCKS[1:2])),
    "queries-decay": Stream(
        "skewed 300 1500",
        ("load", "update auto", *_TARGETS[:3], "batch insert=90 later=30", *_METHODS[:2]),
        {"half_life": 20.0},
    ),
    "queries-large": Stream(
        "skewed 8000 70000",
        (
            "load",
            "update auto",
            *_BLOCKS[:2],
            _METHODS[0],
            _METHODS[4],
            _PUBLISHED[1],
            _PUBLISHED[3],
        ),
    ),
    "watched": Stream("skewed 300 1500", _each(("update auto",), _MIXED, _WATCH)),
    "watched-weighted": Stream(
        "skewed 300 1500", _each(("update auto",), _REMOVALS[:4], _WATCH), _WEIGHTED
    ),
    "watched-undirected": Stream(
        "skewed 300 900", _each(("update auto",), _REMOVALS[:3], _WATCH), _UNDIRECTED
    ),
    "watched-decay": Stream(
        "skewed 200 800", _each(("update auto",), _AGES[:4], _WATCH[:-1]), {"half_life": 10.0}
    ),
}
"""Personalized and watched queries."""

_BUILT_IN = tuple(
    f"program {name}"
    for name in (
        "pagerank",
        "components",
        "labels",
        "cores",
        "densest",
        "triangles",
        "clustering",
        "support",
        "trussness",
        "levels source=3",
        "distances source=3",
    )
)
_GLOBAL = (*_BUILT_IN, "program drift")
_CONTINUED = ("program components", "program levels source=3", "program distances source=3")
_ASYNCHRONOUS = tuple(f"{each} mode=asynchronous" for each in _CONTINUED)
PROGRAM_STEPS = (
    "load",
    *_GLOBAL,
    *_ASYNCHRONOUS,
    "batch insert=12",
    *_CONTINUED,
    "batch insert=20 delete=20",
    *_GLOBAL,
)

PROGRAMS: dict[str, Stream] = {
    "programs": Stream("skewed 300 1500", PROGRAM_STEPS),
    "programs-undirected": Stream("skewed 300 1200", PROGRAM_STEPS, _UNDIRECTED),
    "programs-weighted": Stream("skewed 300 1500", PROGRAM_STEPS, _WEIGHTED),
    "programs-removal": Stream(
        "skewed 200 900",
        ("load", "batch remove=20 insert=9", *_GLOBAL, "batch insert=40 add=5", *_GLOBAL),
        {"dangling": "self-loop"},
    ),
    "programs-messages": Stream("college 9000", ("load", *_GLOBAL), _UNDIRECTED),
    "programs-large": Stream("skewed 5000 60000", ("load", *_GLOBAL)),
}
"""Programs in memory. ``drift`` is a user's own."""

_OUT = ("rank static", "rank residual", "rank auto trace=1", "rank naive-dynamic")
OUT_OF_CORE: dict[str, Stream] = {
    "out-of-core": Stream("skewed 900 9000", (*_OUT, *_BUILT_IN)),
    "out-of-core-weighted": Stream("skewed 900 9000", (*_OUT, *_BUILT_IN), _WEIGHTED),
    "out-of-core-undirected": Stream("skewed 900 5000", (*_OUT, *_BUILT_IN), _UNDIRECTED),
    "out-of-core-weighted-undirected": Stream("skewed 900 5000", (*_OUT, *_BUILT_IN[-2:]), _BOTH),
    "out-of-core-self-loops": Stream(
        "skewed 900 9000", (*_OUT, *_BUILT_IN[:2]), {"dangling": "self-loop", "target_error": 1e-10}
    ),
}
"""Edges that are streamed, with the least memory."""

_SHARED = (
    *_each(("update auto",), (*_MIXED, _REMOVALS[0])),
    "update dynamic-frontier",
    "update static form=published",
    "update auto settle=8",
    *_METHODS[1:3],
    *_TARGETS[:2],
    *_BLOCKS[:1],
    "restore",
    "batch insert=20",
    "update auto",
)
SHARDS: dict[str, Stream] = {
    **{f"shards-{shards}": Stream("skewed 300 1800", _SHARED, shards=shards) for shards in (1, 3)},
    "shards-undirected": Stream("skewed 250 900", (*_WATCH[:4], *_SHARED[2:]), _BOTH, shards=2),
    "shards-decay": Stream(
        "skewed 150 600", _each(("update auto",), _AGES[:5]), {"half_life": 10.0}, shards=3
    ),
}
"""One to three shards."""

_READS = ("ranks", "top", "personalized")
_SERVED = (
    "load",
    "set some 20",
    *_READS,
    "watch one",
    "watch two seeds=3 among=some",
    "batch insert=30 delete=10",
    *_READS,
    "watched one",
    "watched two",
    "recompute static trace=true",
    "recompute auto target=settled-top-k k=5",
    "batch insert=9 remove=4",
    *_READS,
    "watched one",
    "watched two",
    "analysis components",
    "analysis triangles",
    "checkpoint",
    "restart",
    "batch insert=5 delete=5",
    *_READS,
    "watched one",
    "checkpoint",
)
_TIMED = (
    "load",
    *_READS,
    "batch insert=20 later=30",
    "batch insert=20 later=30 delete=5",
    *_READS,
    "checkpoint",
    "batch insert=20 later=400",
    *_READS,
    "restart",
    "batch insert=5 later=30",
    *_READS,
    "checkpoint",
)
SERVICE: dict[str, Stream] = {
    "served": Stream("skewed 200 900", _SERVED),
    "served-weighted": Stream("skewed 200 900", _SERVED, _BOTH),
    "served-strategies": Stream(
        "skewed 150 600",
        (
            "load",
            *(
                f"batch insert=12 delete=5 strategy={strategy} form={form} trace=true"
                for strategy in (
                    "static",
                    "naive-dynamic",
                    "dynamic-traversal",
                    "dynamic-frontier",
                    "dynamic-frontier-prune",
                )
                for form in ("accelerated", "published")
            ),
            "ranks",
        ),
    ),
    "served-window": Stream("skewed 150 400", _TIMED, {"window": 120.0, "clock": "event"}),
    "served-forgetting": Stream(
        "skewed 150 300",
        _TIMED,
        {"window": 120.0, "clock": "event", "forget_vertices": True, "weighted": True},
    ),
    "served-decay": Stream("skewed 150 400", _TIMED, {"half_life": 40.0, "clock": "event"}),
}
"""Over HTTP: receipts, sets, watched queries, windows, analyses, checkpoints."""

GENERATED: dict[str, Stream] = {"generators": Stream("skewed 1 0", ())}
"""The package's own generators of graphs."""

GROUPS: dict[str, dict[str, Stream]] = {
    "ranks": RANKS,
    "strategies": STRATEGIES,
    "personalized": PERSONALIZED,
    "programs": PROGRAMS,
    "out-of-core": OUT_OF_CORE,
    "shards": SHARDS,
    "service": SERVICE,
    "generated": GENERATED,
}
