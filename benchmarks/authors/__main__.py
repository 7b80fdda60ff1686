"""The record of authors' programs beside ours: see benchmarks.authors."""

from __future__ import annotations

import gc
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from shutil import disk_usage
from statistics import fmean, median
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.authors import build, ppr
from benchmarks.authors import web as web_graph
from benchmarks.authors.ours import DAMPING, EXACT, Ours, Run, at_most, from_nothing, row
from benchmarks.authors.theirs import Graph, Solved, logged, pairs, ranks_of, run, solves
from benchmarks.inputs import EDGES_PER_VERTEX, shuffled_rmat
from benchmarks.networks import Network, read_network
from benchmarks.timing import TimedEngine, warm_up
from liverank_gpu import EdgeBatch, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from liverank_gpu.types import Ranking

NETWORKS = {
    "sx-mathoverflow": "sx-mathoverflow/sx-mathoverflow.txt.gz",
    "sx-askubuntu-a2q": "sx-askubuntu-a2q/sx-askubuntu-a2q.txt.gz",
    "CollegeMsg": "CollegeMsg/CollegeMsg.txt.gz",
}
CRAWL = "cnr-2000/cnr-2000.txt.zst"
FRACTIONS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
ALL_METHODS = 1e-5
"""The batch that all their methods solve; others: naive-dynamic and DF-P."""
LARGE = 500_000_000
"""Edges from which on there is one batch, DF-P alone, and no repeat."""
GUNROCK = {"gunrock-float": ("1e-6",), "gunrock-double": ("1e-6", "1e-10")}
"""Tolerances: the first is their example's; with float32 1e-7 was not met within minutes."""
TEMPORAL_FRACTIONS = (1e-5, 1e-4, 1e-3)
GUO = (1e-7, 1e-9)
_ROOM = 20 << 30

Programs = dict[str, Path]
Rows = Iterable[dict[str, Any]]
Solver = Callable[[float], Run]


def named(backend: Backend, data: Path, name: str) -> tuple[Graph, dict[str, Any]]:
    """``rmat-SCALE`` or ``web-COPIES``, and what there is to say of it."""
    kind, _, size = name.partition("-")
    if kind == "rmat":
        vertices = 1 << int(size)
        columns = shuffled_rmat(backend, int(size), EDGES_PER_VERTEX * vertices)
        return Graph.of(backend, vertices, *columns), {}
    crawl = web_graph.crawl(data / CRAWL)
    base = 1 + int(max(ends.max() for ends in crawl))
    columns = web_graph.web(backend, crawl, int(size))
    like = web_graph.figures(backend.xp, base * int(size), *columns)
    like["the crawl"] = web_graph.figures(np, base, *crawl)
    return Graph.of(backend, base * int(size), *columns), like


def random_batch(graph: Graph, size: int) -> tuple[EdgeBatch, Graph]:
    """Of this many edges, 80 % new ones between vertices drawn uniformly and 20 % deleted ones,
    and the graph after it.
    """
    xp, generator = graph.backend.xp, np.random.default_rng(size)
    ends = generator.integers(0, graph.vertices, (2, 2 * size))
    new = np.unique((ends[0] * graph.vertices + ends[1])[ends[0] != ends[1]])
    drawn = xp.asarray(generator.permutation(new))
    place = xp.minimum(xp.searchsorted(graph.keys, drawn), len(graph) - 1)
    inserted = drawn[graph.keys[place] != drawn][: size * 4 // 5]
    gone = xp.asarray(np.unique(generator.integers(0, len(graph), size - size * 4 // 5)))
    deleted = graph.keys[gone]
    kept = xp.ones(len(graph), bool)
    kept[gone] = False
    keys = xp.sort(xp.concatenate([graph.keys[kept], inserted]))
    inserted, deleted = (graph.backend.device.to_host(each) for each in (inserted, deleted))
    batch = EdgeBatch(*np.divmod(inserted, graph.vertices), *np.divmod(deleted, graph.vertices))
    return batch, Graph(graph.backend, graph.vertices, keys)


def free(backend: Backend) -> None:
    """Memory of the device that nothing uses, for the program that runs next."""
    gc.collect()
    if backend.name == "cuda":
        backend.xp.get_default_memory_pool().free_all_blocks()


def beside_sahu(graph: Graph, name: str, program: Path, folder: Path) -> Rows:
    """Static, and batches of each size, with a loop at each vertex, as theirs needs it."""
    facts = {"graph": name, "vertices": graph.vertices, "edges": len(graph), "program": "Sahu"}
    ours = Ours(graph, "self-loop")
    ours.exact.tofile(folder / "first")
    large = len(graph) >= LARGE

    def theirs(changed: Graph, batch: EdgeBatch, methods: Sequence[str]) -> list[Solved]:
        looped = changed.with_loops()
        looped.write(folder, "out")
        looped.reversed().write(folder, "in")
        edges = len(looped)
        del looped
        pairs(folder / "inserted", batch.insert_sources, batch.insert_targets)
        pairs(folder / "deleted", batch.delete_sources, batch.delete_targets)
        free(graph.backend)
        return solves(run(program, folder, graph.vertices, edges, 1 if large else 3, *methods))

    def compared(
        fraction: float,
        changed: Graph,
        batch: EdgeBatch,
        methods: Sequence[str],
        exact: Ranking,
        solve: Solver,
    ) -> Rows:
        for solved in theirs(changed, batch, methods):
            found = ranks_of(folder / f"{solved.method}.ranks")
            error = float(np.abs(found - exact).sum())
            more = {"method": solved.method, "iterations": solved.iterations, "fraction": fraction}
            yield row(solved.ms, error, at_most(error, solve), **facts, **more)

    yield from compared(0.0, graph, EdgeBatch(), ["static"], ours.exact, ours.static)
    for fraction in (ALL_METHODS,) if large else FRACTIONS:
        batch, changed = random_batch(graph, max(5, round(fraction * len(graph))))
        methods = ["df-p"] if large else ["nd", "df-p"]
        if fraction == ALL_METHODS and not large:
            methods += ["dt", "df"]
        yield from compared(fraction, changed, batch, methods, *ours.after(batch, changed))


def beside_gunrock(graph: Graph, name: str, programs: Programs, folder: Path) -> Rows:
    """Static, with rank of vertices without out-edges to all."""
    facts = {"graph": name, "vertices": graph.vertices, "edges": len(graph), "program": "Gunrock"}
    ours = Ours(graph, "uniform")
    graph.write(folder, "out")
    for program, tolerances in GUNROCK.items():
        if program not in programs or (len(graph) >= LARGE and program != "gunrock-float"):
            continue
        free(graph.backend)
        printed = run(programs[program], folder, graph.vertices, len(graph), 3, *tolerances)
        for solved in solves(printed):
            found = ranks_of(folder / f"{solved.method}.ranks")
            error = float(np.abs(found - ours.exact).sum())
            more = {"method": f"{program[8:]}, tolerance {solved.method}", "fraction": 0.0}
            yield row(solved.ms, error, at_most(error, ours.static), **facts, **more)


class Temporal:
    """A temporal network, all of whose vertices are there from the beginning, and batches of it."""

    def __init__(self, backend: Backend, network: Network, size: int, count: int) -> None:
        self._backend, ends = backend, (network.sources, network.targets)
        self._vertices = 1 + int(max(each.max() for each in ends))
        limits = [0, *(network.first + size * place for place in range(count + 1))]
        self._loads = [
            EdgeBatch(ends[0][begin:end], ends[1][begin:end], vertices=self._vertices)
            for begin, end in pairwise(limits)
        ]
        self._exact = [ranks for _, _, ranks in self._solves(EXACT, False)][1:]

    def _solves(self, target: float, static: bool) -> Iterator[tuple[float, int, Ranking]]:
        options = Options(damping=DAMPING, dangling="self-loop", target_error=EXACT)
        bench = TimedEngine(options, self._backend)
        for batch in self._loads:
            solve = bench.batch(batch)
            ms, iterations = solve.milliseconds, solve.iterations
            if static:
                ms, iterations = from_nothing(bench)
            yield ms, iterations, bench.engine.publish().to_numpy()
            bench.set_target(target)

    def solve(self, target: float, static: bool) -> Run:
        """The median time of the batches, and their mean error. static: each from uniform ranks."""
        solves = list(self._solves(target, static))[1:]
        errors = [
            float(np.abs(ranks - exact).sum())
            for (_, _, ranks), exact in zip(solves, self._exact, strict=True)
        ]
        iterations = int(median(count for _, count, _ in solves))
        return Run(median(ms for ms, _, _ in solves), iterations, fmean(errors))


def beside_main(backend: Backend, name: str, path: Path, program: Path, folder: Path) -> Rows:
    """Sahu's own program, which loads nine tenths of a temporal network and then its batches, all
    with the partition by degree. Errors are those that it prints. Ours solves the same batches.
    """
    network = read_network(path)
    vertices = network.vertices
    np.savetxt(folder / "network", 1 + np.stack([network.sources, network.targets], axis=1), "%d")
    facts = {"graph": name, "vertices": vertices, "edges": len(network), "program": "Sahu, whole"}
    solved: set[str] = set()
    for fraction in TEMPORAL_FRACTIONS:
        if (size := int(fraction * len(network))) == 0:
            continue
        printed = run(program, folder / "network", vertices, len(network), 0, fraction)
        found = [each for each in logged(printed) if each.method.endswith("CudaPartition")]
        methods = list(dict.fromkeys(each.method for each in found))
        ours = Temporal(backend, network, size, len(found) // len(methods))
        for method in methods:
            static = "Static" in method
            if static and method in solved:
                continue
            solved.add(method)
            own = [each for each in found if each.method == method]
            error = fmean(each.error or 0.0 for each in own)
            more = {
                "method": method.removeprefix("pagerank").removesuffix("CudaPartition"),
                "iterations": median(each.iterations or 0 for each in own),
                "fraction": 0.0 if static else fraction,
            }
            matched = at_most(error, partial(ours.solve, static=static))
            yield row(median(each.ms for each in own), error, matched, **facts, **more)


def roomy() -> Path | None:
    """A folder in memory, if it holds the lists of a large graph; None: that of temporary files."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() and disk_usage(shared).free > _ROOM else None


def main() -> None:
    parser = harness.parser("programs of the papers' authors beside ours")
    parser.add_argument("data", type=Path, help="folder of real graphs")
    parser.add_argument("--folder", type=Path, required=True, help="of their checkouts")
    parser.add_argument("--graphs", nargs="*", default=["rmat-24", "web-160"])
    parser.add_argument("--networks", nargs="*", choices=NETWORKS, default=[*NETWORKS])
    parser.add_argument(
        "--push", type=int, default=20, help="scale of the undirected R-MAT; 0: none"
    )
    arguments = parser.parse_args()
    folder, data, backend = arguments.folder.resolve(), arguments.data, backend_named("cuda")
    programs = build.built(folder)
    warm_up("cuda")
    checkouts = {build.PROGRAMS[name].checkout for name in programs}
    figures: dict[str, Any] = {
        "commits": {name: build.commit_of(folder / name) for name in sorted(checkouts)},
        "changes": {name: list(each.changes) for name, each in build.PROGRAMS.items()},
        "web": {},
        "rows": [],
        "failed": [],
    }

    def stages(scratch: Path) -> Iterator[Rows]:
        for name in arguments.graphs:
            graph, like = named(backend, data, name)
            if like:
                figures["web"][name] = like
            free(backend)
            if "sahu" in programs:
                yield beside_sahu(graph, name, programs["sahu"], scratch)
                free(backend)
            yield beside_gunrock(graph, name, programs, scratch)
            del graph
        if "sahu-main" in programs:
            for name in arguments.networks:
                path = data / NETWORKS[name]
                yield beside_main(backend, name, path, programs["sahu-main"], scratch)
        if "guo" in programs and arguments.push:
            yield ppr.beside_guo(backend, programs["guo"], scratch, arguments.push, GUO)

    with tempfile.TemporaryDirectory(dir=roomy()) as scratch:
        for rows in stages(Path(scratch)):
            # what is done stays, whatever becomes of the rest
            try:
                for made in rows:
                    figures["rows"].append(made)
                    harness.record("authors", "cuda", figures, arguments.results)
            except (subprocess.SubprocessError, AssertionError, MemoryError) as error:
                ran = getattr(error, "cmd", ["liverank"])[0]
                figures["failed"].append(f"{Path(ran).name}: {type(error).__name__}")
                print(f"failed: {error!r}", flush=True)
    print(harness.record("authors", "cuda", figures, arguments.results))


if __name__ == "__main__":
    main()
