"""Every hot kernel under Nsight Compute: what it moves beside what it must move, and how fast.

    python -m benchmarks.profile --scale 24

Needs `ncu` on the path and the right to read the device's counters. It runs the operations below,
on R-MAT with 16 edges a vertex, in a process under `ncu`. Each is run three times: first so that
all is compiled; then with an event before and after every launch, which says how often each kernel
is launched, what part of the operation's time it takes and which launches are its longest; then
some of those launches are profiled, and nothing else. A row of the figures is one launch: of those
that take about as long as the longest, the one of median time. Kernels below 0.5 % of the time of
an operation are left out, and so are those of CuPy: its sorts, prefix sums and sums.

The counters are those of the memory, the L2 cache and the multiprocessors' schedulers, few enough
to be read together, so that a kernel seldom has to run again from what it found. No instructions
are counted, for which kernels would be patched. Caches are left as the launch before left them, as
it is without a profiler; so what a launch leaves in the L2 cache, 50 MB at most, is written on
another's account. What must be moved says benchmarks/traffic.py.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from benchmarks import harness
from benchmarks.residual import batches_of, rmat
from benchmarks.traffic import NEEDED, Arguments, Sizes
from gpu import EdgeBatch, Engine, Options
from gpu.backends import backend_named
from gpu.backends.base import Backend
from gpu.backends.cuda import CudaBackend
from gpu.block import Asked, Block
from gpu.edit import Counts
from gpu.graph import Graph
from gpu.kernels import COUNTERS
from gpu.seeds import Seeds
from gpu.sweeps import Way, sweep_to_target

SECONDS = "gpu__time_duration.sum"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
L2_SECTORS = "lts__t_sectors.sum"
L2_PERCENT = "lts__t_sectors.avg.pct_of_peak_sustained_elapsed"
WARPS_PERCENT = "sm__warps_active.avg.pct_of_peak_sustained_active"
ISSUE_PERCENT = "smsp__issue_active.avg.pct_of_peak_sustained_active"

METRICS = (SECONDS, READ, WRITTEN, L2_SECTORS, L2_PERCENT, WARPS_PERCENT, ISSUE_PERCENT)
"""Time; bytes from and to memory; sectors that pass the L2 cache, and of the most that could; warps
on a multiprocessor, of the most; cycles in which a scheduler issues, of all.
"""

SECTOR = 32
"""Bytes."""

COPY_RATE = 4.3e12
"""Bytes a second, read and written, of a copy on an H200: what can be achieved."""

FEW, LONGEST = 5, 3
"""All launches of a kernel in an operation are profiled where there are no more than FEW, else so
many of the longest.
"""

ALIKE = 0.8
"""Launches that take so much of the time of the longest count as long as it."""

NEGLIGIBLE = 0.005
"""Of the time of an operation."""

BATCHES = (1_000, 100_000, 26_000, 10_000_000)
"""Edges of batches: two for `auto`, one that a frontier follows, one that lies on the device."""

ACCELERATED_SWEEPS, BLOCK_SWEEPS, QUERIES = 4, 3, 32

_UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BASE_UNITS = {"second", "s", "byte", "sector", "%", ""}


Prepared = TypeVar("Prepared")


@dataclass
class Operation:
    """What was seen of one operation: milliseconds of the second run, by the host's clock; launches
    and milliseconds by kernel.
    """

    operation: str
    milliseconds: float
    launches: dict[str, int] = field(default_factory=dict)
    kernel_milliseconds: dict[str, float] = field(default_factory=dict)
    profiled: list[dict[str, Any]] = field(default_factory=list)


class Launches:
    """Runs operations and times or profiles the launches of a backend's kernels; on another backend
    than `cuda` there are none.

    profiled  a context in which launches are profiled
    """

    def __init__(
        self, backend: Backend, profiled: Callable[[], AbstractContextManager[Any]] = nullcontext
    ) -> None:
        self.operations: list[Operation] = []
        self._backend = backend
        self._profiled = profiled
        self._launched: Callable[[str, Callable[..., None], Arguments], None] | None = None
        if isinstance(backend, CudaBackend):
            for file, kernels in backend._kernels.items():
                for expression, launch in kernels.items():
                    kernels[expression] = self._watched(f"{file}: {expression}", launch)

    def _watched(self, kernel: str, launch: Callable[..., None]) -> Callable[..., None]:
        def run(grid: tuple[int, ...], block: tuple[int, ...], arguments: Arguments) -> None:
            def go() -> None:
                launch(grid, block, arguments)

            if self._launched is None:
                go()
            else:
                self._launched(kernel, go, arguments)

        return run

    def run(
        self,
        operation: str,
        graph: Callable[[], Graph],
        prepare: Callable[[], Prepared],
        work: Callable[[Prepared], object],
    ) -> None:
        """Three times, each with what is prepared for it.

        graph  what the kernels work on, asked for when all is prepared
        """
        work(prepare())
        seen, times = self._timed(operation, partial(work, prepare()))
        prepared = prepare()
        self._profile(seen, times, Sizes.of(graph()), partial(work, prepared))
        self.operations.append(seen)
        print(f"{operation}: {seen.milliseconds:.2f} ms", flush=True)

    def _timed(
        self, operation: str, work: Callable[[], object]
    ) -> tuple[Operation, dict[str, list[float]]]:
        backend, events = self._backend, dict[str, list[tuple[Any, Any]]]()

        def timed(kernel: str, launch: Callable[[], None], _: Arguments) -> None:
            before, after = backend.event(), backend.event()
            before.record()
            launch()
            after.record()
            events.setdefault(kernel, []).append((before, after))

        backend.synchronize()
        begin = perf_counter()
        self._launched = timed
        work()
        self._launched = None
        backend.synchronize()
        seen = Operation(operation, 1e3 * (perf_counter() - begin))
        times: dict[str, list[float]] = {}
        for kernel, pairs in events.items():
            for pair in pairs:
                pair[1].synchronize()
            times[kernel] = [1e3 * backend.seconds_between(*pair) for pair in pairs]
            seen.launches[kernel] = len(pairs)
            seen.kernel_milliseconds[kernel] = sum(times[kernel])
        return seen, times

    def _profile(
        self,
        seen: Operation,
        times: dict[str, list[float]],
        sizes: Sizes,
        work: Callable[[], object],
    ) -> None:
        chosen = {kernel: _to_profile(times[kernel]) for kernel in _hot(asdict(seen))}
        launched = dict.fromkeys(times, 0)

        def profiled(kernel: str, launch: Callable[[], None], arguments: Arguments) -> None:
            place = launched.get(kernel, 0)
            launched[kernel] = place + 1
            if place not in chosen.get(kernel, ()):
                launch()
                return
            with self._profiled():
                launch()
            needed = NEEDED[kernel](sizes, arguments) if kernel in NEEDED else None
            seen.profiled.append({"kernel": kernel, "needed": needed})

        self._backend.synchronize()
        self._launched = profiled
        work()
        self._launched = None
        self._backend.synchronize()


def _to_profile(times: Sequence[float]) -> set[int]:
    """The places of the launches to be profiled."""
    places = sorted(range(len(times)), key=times.__getitem__, reverse=True)
    # where there are few, there may be fewer the next time
    return set(places if len(places) <= FEW else places[:LONGEST])


def _hot(operation: dict[str, Any]) -> list[str]:
    """The kernels that count in an operation, those that take most of its time first."""
    milliseconds: dict[str, float] = operation["kernel_milliseconds"]
    ordered = sorted(milliseconds, key=milliseconds.__getitem__, reverse=True)
    least = NEGLIGIBLE * operation["milliseconds"]
    return [kernel for kernel in ordered if milliseconds[kernel] >= least]


class Workload:
    """One of each operation, on R-MAT of 2^scale vertices.

    batches  as BATCHES
    """

    def __init__(
        self, backend: Backend, scale: int, batches: Sequence[int], launches: Launches
    ) -> None:
        xp = backend.xp
        self._backend = backend
        self._launches = launches
        self._vertices = 1 << scale
        self._sizes = batches
        self._random, self._scale = xp.random.default_rng(7), scale
        self._generator = np.random.default_rng(7)
        self._sources, self._targets = self._draw(16 * self._vertices)
        self.engine = Engine(Options(), backend)

    def _draw(self, count: int) -> tuple[Any, Any]:
        sources, targets = rmat(self._backend.xp, self._random, self._scale, count)
        return sources.astype(np.int32), targets.astype(np.int32)

    def _graph(self) -> Graph:
        return self.engine._graph

    def _batches(self, size: int, *, on_device: bool = False) -> Iterator[EdgeBatch]:
        host = (lambda ids: ids) if on_device else self._backend.to_host
        return batches_of(host, self._generator, size, self._draw, self._sources, self._targets)

    def run(self) -> Sizes:
        """All operations; returns the sizes of the graph as it was loaded."""
        small, middle, followed, large = self._sizes
        self._load()
        sizes = Sizes.of(self._graph())
        self._solve("solve from nothing")
        self._accelerated()
        for size in (small, middle):
            self._batch(size, "auto")
        self._batch(followed, "dynamic-frontier-prune")
        self._query()
        self._block()
        ranks = self.engine.publish()
        self._run("top 100", lambda: ranks.top(100))
        self._classes()
        self._run("one direction laid out anew", self._pack_incoming)
        self._large_batch(large)
        self.engine = Engine(Options(storage="float32"), self._backend)
        self._apply_all(self.engine)
        self._solve("solve from nothing, float32")
        return sizes

    def _run(self, operation: str, work: Callable[[], object]) -> None:
        """What needs nothing prepared."""
        self._launches.run(operation, self._graph, lambda: None, lambda _: work())

    def _apply_all(self, engine: Engine) -> None:
        engine.apply(EdgeBatch(self._sources, self._targets, vertices=self._vertices))

    def _load(self) -> None:
        def anew() -> Engine:
            self.engine = Engine(Options(), self._backend)
            return self.engine

        self._launches.run("load", self._graph, anew, self._apply_all)

    def _solve(self, operation: str) -> None:
        state = self.engine._state

        def work() -> None:
            state.start_anew()
            sweep_to_target(state, 500)

        self._run(operation, work)

    def _accelerated(self) -> None:
        """Which R-MAT is not offered; other graphs are."""
        state = self.engine._state
        ways = [Way(balanced=True, accelerated=True)]

        def work(_: None) -> None:
            sweep_to_target(state, ACCELERATED_SWEEPS, ways)

        self._launches.run("accelerated sweeps", self._graph, state.start_anew, work)

    def _batch(self, size: int, strategy: str) -> None:
        batches = self._batches(size)
        self.engine.update("auto")

        def work(batch: EdgeBatch) -> None:
            self.engine.apply(batch)
            self.engine.update(strategy)

        name = f"batch of {size:,}, {strategy}"
        self._launches.run(name, self._graph, lambda: next(batches), work)

    def _seeds(self, count: int) -> list[int]:
        """Ids of vertices with out-edges."""
        graph = self._graph()
        lengths = graph.numbering.by_id(graph.outgoing.length)
        among = np.flatnonzero(self._backend.to_host(lengths) > 0)
        return [int(v) for v in self._generator.choice(among, count, replace=False)]

    def _query(self) -> None:
        seeds = np.array(self._seeds(1))
        ask = partial(self.engine.personalized, seeds, k=100, target_error=1e-6)
        self._run("query", ask)

    def _block(self) -> None:
        graph = self._graph()
        asked = [
            Asked(Seeds.of(graph.vertices, np.array([seed])), k=100, target_error=1e-6)
            for seed in self._seeds(Block.size(graph, QUERIES))
        ]

        def work(block: Block) -> None:
            for _ in range(BLOCK_SWEEPS):
                block.step()
            block.answers()

        name = f"{len(asked)} queries, {BLOCK_SWEEPS} sweeps"
        spaces = self.engine._spaces
        self._launches.run(name, self._graph, lambda: Block(spaces, Options(), asked), work)

    def _classes(self) -> None:
        incoming = self._graph().incoming

        def forget() -> None:
            incoming._partitioned = False

        self._launches.run(
            "one direction by length of rows", self._graph, forget, lambda _: incoming.rows
        )

    def _pack_incoming(self) -> None:
        self._graph().incoming.pack(_NOTHING)

    def _large_batch(self, size: int) -> None:
        """Between layouts: each begins with all the room that a layout leaves."""
        batches = self._batches(size, on_device=True)

        def prepare() -> EdgeBatch:
            self._pack_incoming()
            self._graph().outgoing.pack(_NOTHING)
            return next(batches)

        def work(batch: EdgeBatch) -> None:
            self.engine.apply(batch)

        self._launches.run(f"batch of {size:,}, mutation", self._graph, prepare, work)


_NOTHING = Counts(*[0] * len(COUNTERS))
"""What a batch of no edges needs."""


def parsed(log: str) -> list[dict[str, Any]]:
    """The rows of a log with a raw page as CSV: `kernel`, the name without parameters, and every
    metric of METRICS in seconds, bytes, sectors or percent; None where it was not measured. Raises
    ValueError where the log has no page.
    """
    lines = log.splitlines()
    heads = [at for at, line in enumerate(lines) if line.startswith('"ID"')]
    if not heads:
        raise ValueError("Nsight Compute profiled nothing:\n" + "\n".join(lines[-20:]))
    # messages may stand among the rows
    table = [line for line in lines[heads[0] :] if line.startswith('"')]
    units, *rows = csv.DictReader(table)
    return [
        {
            "kernel": re.split(r"[<(]", row["Kernel Name"])[0].split()[-1].split("::")[-1],
            **{name: _number(row.get(name), units.get(name)) for name in METRICS},
        }
        for row in rows
    ]


def _number(text: str | None, unit: str | None) -> float | None:
    try:
        number = float((text or "").replace(",", ""))
    except ValueError:
        return None
    if not np.isfinite(number):
        return None
    return number * _scale(unit or "")


def _scale(unit: str) -> float:
    """What a unit is of the base unit."""
    if unit in _BASE_UNITS:
        return 1.0
    if unit[1:] in _BASE_UNITS and unit[0] in _UNITS:
        return _UNITS[unit[0]]
    raise ValueError(f"an unknown unit: {unit}")


def combined(operations: Sequence[dict[str, Any]], launches: list[dict[str, Any]]) -> list[Any]:
    """The rows of the figures.

    operations  as Operation
    launches    those in the log, in order; kernels that cannot be profiled are missing
    """
    found, rows = iter(launches), []
    pending = next(found, None)
    for operation in operations:
        by_kernel: dict[str, list[dict[str, Any]]] = {}
        for launch in operation["profiled"]:
            name = re.split(r"[: <]+", launch["kernel"])[1]
            if pending is None or pending["kernel"] != name:
                continue
            by_kernel.setdefault(launch["kernel"], []).append({**pending, **launch})
            pending = next(found, None)
        rows += list(_rows(operation, by_kernel))
    if pending is not None:
        raise ValueError(f"a launch of {pending['kernel']} that was not to be profiled")
    return rows


def _rows(
    operation: dict[str, Any], by_kernel: dict[str, list[dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """Of one operation; `not_profiled` says why there are no figures."""
    again = {launch["kernel"] for launch in operation["profiled"]}
    for kernel in _hot(operation):
        row = {
            "operation": operation["operation"],
            "kernel": kernel,
            "launches": operation["launches"][kernel],
            "share": operation["kernel_milliseconds"][kernel] / operation["milliseconds"],
        }
        measured = [
            launch
            for launch in by_kernel.get(kernel, [])
            if all(launch[name] is not None for name in (SECONDS, READ, WRITTEN))
        ]
        if measured:
            measured.sort(key=lambda launch: float(launch[SECONDS]))
            longest = measured[-1][SECONDS]
            alike = [launch for launch in measured if launch[SECONDS] >= ALIKE * longest]
            row |= _figures(alike[len(alike) // 2])
        else:
            refused = "the profiler has no figures" if kernel in again else "not launched again"
            row["not_profiled"] = refused
        yield row


def _figures(launch: dict[str, Any]) -> dict[str, Any]:
    sectors = launch[L2_SECTORS]
    return {
        "milliseconds": 1e3 * launch[SECONDS],
        "needed_bytes": launch["needed"],
        "read_bytes": launch[READ],
        "written_bytes": launch[WRITTEN],
        "l2_bytes": None if sectors is None else SECTOR * sectors,
        "l2_percent": launch[L2_PERCENT],
        "warps_percent": launch[WARPS_PERCENT],
        "issue_percent": launch[ISSUE_PERCENT],
    }


def profiler(log: Path) -> list[str]:
    """The command before that of the process to be profiled."""
    return [
        "ncu",
        *("--metrics", ",".join(METRICS)),
        *("--replay-mode", "kernel"),
        *("--profile-from-start", "off"),
        *("--clock-control", "none"),
        *("--cache-control", "none"),
        *("--csv", "--page", "raw"),
        *("--print-units", "base"),
        *("--log-file", str(log)),
    ]


def _run_profiled(arguments: argparse.Namespace) -> None:
    """What runs under the profiler: leaves a list of the operations in a file."""
    import cupyx.profiler

    backend = backend_named("cuda")
    launches = Launches(backend, cupyx.profiler.profile)
    sizes = Workload(backend, arguments.scale, arguments.batches, launches).run()
    document = {
        "graph": f"R-MAT {arguments.scale}",
        "sizes": asdict(sizes),
        "operations": list(map(asdict, launches.operations)),
    }
    arguments.profiled.write_text(json.dumps(document))


def main() -> None:
    parser = argparse.ArgumentParser(description="the kernels under Nsight Compute")
    parser.add_argument("--scale", type=int, default=24)
    parser.add_argument("--batches", type=int, nargs=4, default=BATCHES, help="edges of each")
    parser.add_argument("--results", type=Path, default=harness.RESULTS)
    parser.add_argument("--logs", type=Path, help="folder that keeps the log; read if it is there")
    parser.add_argument("--profiled", type=Path, help="of the process under ncu: its own file")
    arguments = parser.parse_args()
    if arguments.profiled:
        _run_profiled(arguments)
        return
    with TemporaryDirectory() as temporary:
        folder = (arguments.logs or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        log, listed = folder / "ncu.log", folder / "operations.json"
        if not listed.exists():
            own = [sys.executable, "-m", "benchmarks.profile", "--profiled", str(listed)]
            own += ["--scale", str(arguments.scale), "--batches", *map(str, arguments.batches)]
            ended = subprocess.run([*profiler(log), *own], cwd=harness.ROOT)
            if ended.returncode or not listed.exists():
                said = log.read_text().splitlines()[-20:] if log.exists() else []
                raise SystemExit("\n".join(["the profiled process failed", *said]))
        text, document = log.read_text(), json.loads(listed.read_text())
    rows = combined(document["operations"], parsed(text))
    for row in rows:
        print(row)
    figures = {
        "graph": document["graph"],
        **document["sizes"],
        "copy_rate": COPY_RATE,
        "rows": rows,
    }
    print(harness.record("profile", "cuda", figures, arguments.results))


if __name__ == "__main__":
    main()
