"""Operations that run three times: to compile, to time their launches, and to profile some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from benchmarks.timing import timed
from benchmarks.traffic import needed_bytes
from benchmarks.traffic.model import Sizes
from liverank_gpu.backends.cuda import kernels_of
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.backend import Backend

FEW, LONGEST = 5, 3
"""Of a kernel in an operation, up to FEW launches are profiled; of more, the longest."""

NEGLIGIBLE = 0.005
"""Kernels below this part of the time of an operation are left out."""

Prepared = TypeVar("Prepared")
Arguments = tuple[Any, ...]
Launch = Callable[[], None]


@dataclass
class Operation:
    """What was measured of one operation.

    milliseconds         of the second run, by the host's clock
    launches             number of launches by kernel, in that run
    kernel_milliseconds  by kernel, in that run
    profiled             kernel and needed bytes of each launch that was profiled
    """

    operation: str
    milliseconds: float
    launches: dict[str, int] = field(default_factory=dict)
    kernel_milliseconds: dict[str, float] = field(default_factory=dict)
    profiled: list[dict[str, Any]] = field(default_factory=list)

    @property
    def hot_kernels(self) -> list[str]:
        """The kernels that are not negligible, by descending time."""
        times = self.kernel_milliseconds
        least = NEGLIGIBLE * self.milliseconds
        ordered = sorted(times, key=times.__getitem__, reverse=True)
        return [kernel for kernel in ordered if times[kernel] >= least]


class Launches:
    """Runs operations, and times or profiles the launches of a backend's kernels; ``cpu`` has none.

    operations  what was measured so far
    """

    def __init__(
        self, backend: Backend, profiled: Callable[[], AbstractContextManager[Any]] = nullcontext
    ) -> None:
        """`profiled` makes a context in which launches are profiled."""
        self.operations: list[Operation] = []
        self._device = backend.device
        self._profiled = profiled
        self._observe: Callable[[str, Launch, Arguments], None] | None = None
        if backend.name == "cuda":
            for file, kernels in kernels_of(backend).items():
                for expression, kernel in kernels.items():
                    kernels[expression] = self._observed(f"{file}: {expression}", kernel)

    def _observed(self, name: str, kernel: Callable[..., None]) -> Callable[..., None]:
        def run(
            grid: tuple[int, ...], block: tuple[int, ...], arguments: Arguments, **shared: int
        ) -> None:
            launch = partial(kernel, grid, block, arguments, **shared)
            if self._observe is None:
                launch()
            else:
                self._observe(name, launch, arguments)

        return run

    def run(
        self,
        operation: str,
        graph: Callable[[], DynamicGraph],
        prepare: Callable[[], Prepared],
        work: Callable[[Prepared], object],
    ) -> None:
        """Runs `work` three times, each with a new result of `prepare`.

        graph  the graph that kernels read, asked for once all is prepared
        """
        work(prepare())
        seen, times = self._time(operation, partial(work, prepare()))
        prepared = prepare()
        self._profile(seen, times, Sizes.of(graph()), partial(work, prepared))
        self.operations.append(seen)
        print(f"{operation}: {seen.milliseconds:.2f} ms", flush=True)

    def _time(
        self, operation: str, work: Callable[[], object]
    ) -> tuple[Operation, dict[str, list[float]]]:
        """The times of each kernel's launches, by an event before and after each."""
        device, events = self._device, dict[str, list[tuple[Any, Any]]]()

        def observe(kernel: str, launch: Launch, _: Arguments) -> None:
            before, after = device.event(), device.event()
            before.record()
            launch()
            after.record()
            events.setdefault(kernel, []).append((before, after))

        self._observe = observe
        milliseconds, _ = timed(device, work)
        self._observe = None
        seen = Operation(operation, milliseconds)
        times: dict[str, list[float]] = {}
        for kernel, pairs in events.items():
            for pair in pairs:
                pair[1].synchronize()
            times[kernel] = [1e3 * device.seconds_between(*pair) for pair in pairs]
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
        chosen = {kernel: to_profile(times[kernel]) for kernel in seen.hot_kernels}
        launched = dict.fromkeys(times, 0)

        def observe(kernel: str, launch: Launch, arguments: Arguments) -> None:
            place = launched.get(kernel, 0)
            launched[kernel] = place + 1
            if place not in chosen.get(kernel, ()):
                launch()
                return
            with self._profiled():
                launch()
            needed = needed_bytes(kernel, sizes, arguments)
            seen.profiled.append({"kernel": kernel, "needed": needed})

        self._device.synchronize()
        self._observe = observe
        work()
        self._observe = None
        self._device.synchronize()


def to_profile(times: Sequence[float]) -> set[int]:
    """Which launches of a kernel are profiled, by their places among them."""
    places = sorted(range(len(times)), key=times.__getitem__, reverse=True)
    # if there are few, the next run may have fewer
    return set(places if len(places) <= FEW else places[:LONGEST])
