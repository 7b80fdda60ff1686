"""Figures 1 to 5 and 9 to 13 of the DF-P paper (Sahu, 2024), in both forms of each strategy. Those
of 6 to 8, which are of both backends, follow from the records of these. And every strategy on real
networks that change.

    python -m benchmarks.sahu ../shared/data --small
    python -m benchmarks.sahu ../shared/data --backend cuda
    python -m benchmarks.sahu temporal ../shared/data --batches 20

Figures 3 and 9 to 13: real temporal networks. 90 % of the events are loaded, then come batches of
1e-5, 1e-4 and 1e-3 of them. Figures 4 and 5: graphs with random batches of 1e-7 to 0.1 of the
edges, 80 % insertions between vertices drawn uniformly and 20 % deletions of edges. Each strategy
keeps a graph and ranks of its own; it begins each batch size with converged ranks, and they take
turns at each batch. The error of a batch is the L1 distance to ranks of `static` with a tolerance
that nothing meets and 500 iterations, as in the paper. Times are of marking and solving; the
certificate is timed beside them. Figures 1 and 2: see benchmarks.sahu_programs.

Resumable: what is done is kept beside the record until all is, and read again by the next run of
the same commit and command.

temporal: the accelerated form with the batches of figures 3 and 9 to 13, each size from the first
graph. `auto` has a row for each of three targets; `residual` is what it runs, so it has no row.
Then, on two of the networks, each strategy runs at several tolerances: what accuracy costs. The
frontier and prune tolerances keep their ratio to the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any, get_args

import numpy as np

from benchmarks import harness
from benchmarks.inputs import GENERATED, generated, random_batches
from benchmarks.networks import GRAPHS, NETWORKS, read_graph, read_network
from benchmarks.sahu_programs import partitions, programs
from benchmarks.timing import warm_up
from liverank_gpu import STRATEGIES, BackendName, EdgeBatch, Engine, Form, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.types import Dangling, Ranking

TEMPORAL = ("sx-mathoverflow", "sx-askubuntu-a2q", "wikipedia", "npm", "rubygems")
FRACTIONS = (1e-5, 1e-4, 1e-3)
RANDOM_FRACTIONS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
REAL = ("cnr-2000", "dblp-2010", "seattle")
RANDOM = (*GENERATED, *REAL)
"""Graphs that get random batches."""

PUBLISHED = [name for name in STRATEGIES if name not in ("auto", "residual")]

FIGURES = ("1", "2", "3, 9-13", "4, 5")

Contender = tuple[str, Form, Options]
"""A strategy, its form, and the options of its graph."""

CONTENDERS: dict[str, tuple[str, Form]] = {
    **{f"{name}, published": (name, "published") for name in PUBLISHED},
    **{f"{name}, accelerated": (name, "accelerated") for name in PUBLISHED},
    "auto": ("auto", "accelerated"),
}


@dataclass(frozen=True)
class Stream:
    """A first graph, and the batches of each size."""

    figures: str
    graph: str
    first: EdgeBatch
    batches: dict[float, list[EdgeBatch]]


@dataclass(frozen=True)
class Sizes:
    """What a run measures."""

    temporal: Sequence[str]
    temporal_batches: int
    fractions: Sequence[float]
    random_fractions: Sequence[float]
    random_batches: int
    scale: int
    graphs: Sequence[str]
    policies: Sequence[Dangling]
    figures: Sequence[str] = FIGURES


FULL = Sizes(TEMPORAL, 100, FRACTIONS, RANDOM_FRACTIONS, 3, 24, RANDOM, get_args(Dangling))
SMALL = Sizes(
    ("sx-mathoverflow",), 5, (1e-4, 1e-3), (1e-4, 1e-2), 2, 12, ("R-MAT", "grid"), ("self-loop",)
)
PARTITIONED = 1e-4
"""The batches of figure 1, in edges of the graph, or the smallest ones if there are none."""


def temporal_stream(folder: Path, sizes: Sizes, name: str) -> Stream:
    """A network, all of whose vertices are there from the beginning, as in the paper."""
    network = read_network(folder / NETWORKS[name])
    batches = {
        fraction: network.batches(max(1, round(fraction * len(network))), sizes.temporal_batches)
        for fraction in sizes.fractions
    }
    return Stream("3, 9-13", name, replace(network.initial, vertices=network.vertices), batches)


def random_stream(folder: Path, sizes: Sizes, backend: BackendName, name: str) -> Stream:
    """A generated or real graph with random batches."""
    if name in REAL:
        first = read_graph(folder / GRAPHS[name])
    else:
        first = generated(name, sizes.scale, backend)
    generator, batches = np.random.default_rng(1), {}
    for fraction in sizes.random_fractions:
        size = max(5, round(fraction * len(first.insert_sources)))
        batches[fraction] = random_batches(first, size, sizes.random_batches, generator)
    return Stream("4, 5", name, first, batches)


def _replay(
    stream: Stream, contender: Contender, backend: BackendName
) -> Iterator[tuple[float, Ranking, dict[str, float]]]:
    """For each batch its fraction, the ranks after it and its times in milliseconds."""
    strategy, form, options = contender
    engine = Engine(options, backend)
    engine.apply(stream.first)
    for fraction, batches in stream.batches.items():
        engine.update("static", "published")
        for batch in batches:
            engine.apply(batch)
            result = engine.update(strategy, form)
            times = {
                "ms": 1e3 * (result.mark_seconds + result.solve_seconds),
                "certify_ms": 1e3 * result.certify_seconds,
                "iterations": result.iterations,
                "touched": result.touched_vertices,
                "error_bound": result.error_bound,
            }
            yield fraction, engine.publish().to_numpy(), times


def measure(
    stream: Stream, contenders: dict[str, Contender], dangling: Dangling, backend: BackendName
) -> list[dict[str, Any]]:
    """A row for each contender and size of a batch."""
    never = Options(dangling=dangling, form="published", tolerance=1e-300, max_iterations=500)
    reference = _replay(stream, ("static", "published", never), backend)
    replays = [_replay(stream, one, backend) for one in contenders.values()]
    rows: dict[tuple[str, float], list[dict[str, float]]] = {}
    # the contenders take turns at each batch
    for (fraction, exact, _), *found in zip(reference, *replays, strict=True):
        for name, (_, ranks, times) in zip(contenders, found, strict=True):
            error = float(np.abs(ranks - exact).sum())
            # the reference is as good as rounding lets it be
            assert error <= times["error_bound"] + 1e-9, (name, fraction, error, times)
            rows.setdefault((name, fraction), []).append(times | {"error": error})
    return [
        {
            "figures": stream.figures,
            "graph": stream.graph,
            "vertices": stream.first.vertices,
            "dangling": dangling,
            "fraction": fraction,
            "contender": name,
            "batches": len(series),
            "median_ms": harness.rounded(median(one["ms"] for one in series)),
            **{
                f"mean_{key}": harness.rounded(fmean(one[key] for one in series))
                for key in series[0]
            },
            # of each batch, in order
            "ms_of_each": " ".join(f"{one['ms']:.4g}" for one in series),
            "error_of_each": " ".join(f"{one['error']:.3g}" for one in series),
        }
        for (name, fraction), series in rows.items()
    ]


Rows = Iterable[dict[str, Any]]


def measurements(
    stream: Stream, sizes: Sizes, backend: BackendName
) -> Iterator[Callable[[], Rows]]:
    """What is measured of a stream."""
    name = stream.graph
    if stream.figures in sizes.figures:
        for dangling in sizes.policies:
            own = {each: (*of, Options(dangling=dangling)) for each, of in CONTENDERS.items()}
            yield partial(measure, stream, own, dangling, backend)
    if stream.figures == "4, 5" and "1" in sizes.figures and backend == "cuda":
        batches = stream.batches.get(PARTITIONED) or stream.batches[min(stream.batches)]
        given = (name, stream.first, batches, backend_named(backend))
        yield partial(partitions, *given)
    if stream.figures == "4, 5" and "2" in sizes.figures:
        yield partial(programs, name, stream.first, backend_named(backend))


def measured(
    backend: BackendName, folder: Path, results: Path, small: bool, **given: Any
) -> list[dict[str, Any]]:
    """`batches` of each size, of temporal networks; `small` takes minutes on a small machine."""
    fractions = given.pop("fractions")
    given |= {"fractions": fractions, "random_fractions": fractions}
    given |= {"temporal_batches": given.pop("batches"), "temporal": given.pop("networks")}
    sizes = harness.sized(FULL, SMALL, small, given)
    warm_up(backend)
    streams = {
        **{name: partial(temporal_stream, folder, sizes, name) for name in sizes.temporal},
        **{name: partial(random_stream, folder, sizes, backend, name) for name in sizes.graphs},
    }

    def rows(read: Callable[[], Stream]) -> Iterator[dict[str, Any]]:
        for measure in measurements(read(), sizes, backend):
            yield from measure()

    path = results / f".sahu-{backend}.partial"
    found = harness.resumed(path, sizes, {name: partial(rows, streams[name]) for name in streams})
    return [row for own in found.values() for row in own]


# ---- networks that change ----

PRECISE = (1e-8, 1e-9)
"""More targets of `auto`: about the accuracy that the published strategies reach."""

TRADED = ("sx-mathoverflow", "npm")
TRADED_FRACTION = 1e-4
TARGETS = tuple(10.0**-power for power in range(2, 11))
TOLERANCES = (1e-6, 1e-8, 1e-10, 1e-12)


def targets(options: Options) -> dict[str, Contender]:
    """The rows of a table."""
    own = {
        f"auto, {target:g}": _at("auto", options, target_error=target)
        for target in (options.target_error, *PRECISE)
    }
    return own | {name: _at(name, options) for name in PUBLISHED}


def traded(options: Options) -> dict[str, Contender]:
    """The points of a plot, in the order of each strategy's accuracy."""
    points = {f"auto {target:g}": _at("auto", options, target_error=target) for target in TARGETS}
    for name in PUBLISHED:
        for tolerance in TOLERANCES:
            scaled = {
                each: min(0.5, tolerance / options.tolerance * getattr(options, each))
                for each in ("frontier_tolerance", "prune_tolerance")
            }
            points[f"{name} {tolerance:g}"] = _at(name, options, tolerance=tolerance, **scaled)
    return points


def _at(name: str, options: Options, **others: Any) -> Contender:
    return name, "accelerated", replace(options, **others)


def temporal(
    backend: BackendName, folder: Path, batches: int, networks: list[str]
) -> Iterator[tuple[str, Any]]:
    """`batches` of each size."""
    warm_up(backend)
    read = {name: read_network(folder / NETWORKS[name]) for name in networks}
    yield from (("batches", batches), ("checks", batches))
    sizes = {name: {"vertices": each.vertices, "events": len(each)} for name, each in read.items()}
    yield "networks", sizes

    def rows(
        name: str, dangling: Dangling, fraction: float, of: Callable[..., dict[str, Contender]]
    ) -> Iterator[dict[str, Any]]:
        network = read[name]
        size = max(1, round(fraction * len(network)))
        followed = {fraction: network.batches(size, batches)}
        stream = Stream("temporal", name, network.initial, followed)
        for row in measure(stream, of(Options(dangling=dangling)), dangling, backend):
            facts = {"network": name, "batch_size": size, "median_solve_ms": row["median_ms"]}
            yield row | facts

    replays: list[dict[str, Any]] = []
    for name, dangling, fraction in product(networks, get_args(Dangling), FRACTIONS):
        replays += rows(name, dangling, fraction, targets)
        yield "replays", replays
    points = [
        row
        for name in TRADED
        if name in read
        for row in rows(name, "uniform", TRADED_FRACTION, traded)
    ]
    for row in points:
        row["strategy"], row["accuracy"] = row["contender"].split()
    yield "accuracies", points


def main() -> None:
    lists = dict.fromkeys(("networks", "graphs", "policies", "figures"), list[str] | None)
    options = {"folder": Path, "small": False, "scale": int | None, "batches": int | None}
    options |= {"fractions": list[float] | None, **lists}
    changing = {"folder": Path, "batches": 100, "networks": list(NETWORKS)}
    suites: harness.Suites = {"sahu": (measured, options), "temporal": (temporal, changing)}
    harness.run(__doc__, suites, backends=True)


if __name__ == "__main__":
    main()
