"""Runs the tests of the engine with engines in shards: ``pytest tests/gpu --shards 3``.

Tests name `Engine`; in their modules it becomes `SuiteEngine`, whose shards are in worker processes
of one local Dask cluster, as in production: they exchange data by TCP, and have memory of their
own. A test that asks for what shards do not have sees NotInShards, and is reported as skipped with
that text; so is one that looks at parts of an engine, which are in other processes here.

A test that draws graphs or batches draws as many as on the emulated device; more with ``--all``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NoReturn

import numpy as np
import pytest

from liverank_gpu import (
    BackendName,
    Engine,
    InvalidValue,
    Options,
    QueryBatch,
    Registration,
    ShardedEngine,
    Snapshot,
    StagingBuffer,
)
from liverank_gpu.backends import backend_named
from liverank_gpu.native import kernels
from liverank_gpu.operations.backend import Backend
from liverank_gpu.programs.running import Programs
from liverank_gpu.sharded.cluster import local_workers
from liverank_gpu.sharded.dask_workers import DaskWorkers
from tests.gpu.graphs import SHARDS
from tests.gpu.sharded.threads import one_step

LEFT_OUT = {
    "backends": "operations of a backend",
    "generate": "generators",
    "graph/test_decay_scaling.py": "changes parts of the engine",
    "graph/test_dynamic_graph.py": "a graph without an engine",
    "graph/test_order_choice.py": "a graph without an engine",
    "out_of_core": "graphs out of core",
    "pagerank/test_components.py": "components, by which one device solves",
    "pagerank/test_start.py::test_the_bound_of_the_guess": "changes parts of the engine",
    "pagerank/test_residual.py::test_a_small_batch_touches": "pushes as they cost one device",
    "pagerank/test_trace.py::test_iterations_that_are_not": "changes parts of the engine",
    "pagerank/test_trace.py::test_a_solve_by_lists": "changes parts of the engine",
    "personalized/test_certified_top_k.py": "changes parts of the engine",
    "personalized/test_many.py::test_queries_that_stay_near": "pushes as they cost one device",
    "personalized/test_many.py::test_trials_end": "changes parts of the engine",
    "pagerank/test_published.py::test_sweeps_take_a_solve_over": "changes parts of the engine",
    "personalized/test_personalized.py::test_a_work_list_that_is_too": "records calls made here",
    "personalized/test_personalized.py::test_pushes_that_pay": "records calls made here",
    "personalized/test_published_personalized.py::test_a_hybrid_ch": "changes parts of the engine",
    "personalized/test_settled_set.py::test_a_block_ends_when": "changes parts of the engine",
    "personalized/test_ties.py::test_nothing_ties_without_memory": "changes parts of the engine",
    "personalized/test_views.py::test_a_solve_ends_at_the_target": "records calls made here",
    "personalized/test_views.py::test_when_a_view_is_solved": "changes parts of the engine",
    "personalized/test_views.py::test_what_cannot_be_a_view": "changes parts of the engine",
    "personalized/test_within.py::test_queries_with_and_without": "records calls made here",
    "personalized/test_within.py::test_the_cost_follows_the_set": "records calls made here",
    "programs/test_running.py::test_a_run_for_whose_copy": "changes parts of the engine",
    "programs/test_running.py::test_a_run_whose_step_fails": "changes parts of the engine",
    "sharded": "shards, which start their own",
    "test_concurrent_use.py": "threads and forks of this process",
    "test_device_errors.py": "errors of an emulated device",
    "test_warm_up.py": "compilation",
}
"""Folders, files and tests of tests/gpu that drive no engine which shards could replace. Changes to
parts of an engine would not reach the workers, and their calls are not seen here.
"""


@cache
def in_shards(name: BackendName) -> Backend:
    """The backend of the shards, by a name for which tests take as few cases as for slow ones."""
    return replace(backend_named(name), name=SHARDS)


class _SharedWorkers(DaskWorkers):
    """A graph on the workers of the cluster, which outlives it.

    hurried  whether a call ends with its first step, however short that is
    """

    hurried = False

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        return super().call(method, one_step(method, arguments) if self.hurried else arguments)


class NotInShards(Exception):
    """A test asks for what Engine has and shards have not."""


class Suite:
    """The workers of all tests of this process.

    backend   of the shards
    engines   of the test that runs
    refusals  that it has seen
    """

    def __init__(self, shards: int, backend: BackendName) -> None:
        self.backend = backend
        self.engines: list[SuiteEngine] = []
        self.refusals: list[str] = []
        self._shards = shards
        self._first: DaskWorkers | None = None

    def workers(self, options: Options) -> _SharedWorkers:
        """Of a new graph."""
        if self._first is None:
            self._first = local_workers(Options(), self._shards, self.backend)
        client, addresses = self._first.client, self._first.addresses
        return _SharedWorkers(client, addresses, options, self.backend, shared=True)

    def begin(self) -> None:
        """Before a test."""
        self.engines, self.refusals = [], []

    def end(self) -> None:
        """After a test: its graphs are freed."""
        for engine in self.engines:
            engine.close()

    def close(self) -> None:
        """Ends the workers."""
        if self._first is not None:
            self._first.close()

    def replace_engines(self) -> None:
        """Tests and their helpers find SuiteEngine where they had Engine."""
        left_out = tuple(f"tests.gpu.{folder}." for folder in LEFT_OUT if ".py" not in folder)
        for name, module in list(sys.modules.items()):
            if name.startswith("tests.gpu.") and not name.startswith(left_out):
                for attribute, value in list(vars(module).items()):
                    if value is Engine:
                        vars(module)[attribute] = _bound(self)


def take_own_cores() -> None:
    """Of the processes of pytest-xdist, each has a part of the cores, for its workers too."""
    if (name := os.environ.get("PYTEST_XDIST_WORKER")) is None:
        return
    number, count = int(name.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    own = part_of(sorted(os.sched_getaffinity(0)), number, count)
    os.sched_setaffinity(0, own)
    kernels.set_threads(min(len(own), kernels.threads()))


def part_of(cores: list[int], number: int, count: int) -> list[int]:
    """The cores of one of several processes: at least one."""
    first, end = (len(cores) * each // count for each in (number, number + 1))
    return cores[first : max(end, first + 1)]


@cache
def _bound(suite: Suite) -> type[SuiteEngine]:
    return type("Engine", (SuiteEngine,), {"suite": suite})


class SuiteEngine(ShardedEngine):
    """A ShardedEngine with the constructor of Engine, and what else tests use of that."""

    suite: Suite

    def __init__(
        self, options: Options | None = None, backend: BackendName | Backend = "auto"
    ) -> None:
        known = (backend_named(self.suite.backend), in_shards(self.suite.backend))
        if isinstance(backend, Backend) and not any(backend is each for each in known):
            pytest.skip("looks at parts: a backend of the test's own")
        options = options or Options()
        self.workers = self.suite.workers(options)
        super().__init__(options, workers=self.workers)
        self.suite.engines.append(self)
        self.programs: Any = _Programs(self.programs, self._refuse)

    @property
    def internals(self) -> NoReturn:
        pytest.skip("looks at parts: internals")

    def memory(self) -> NoReturn:
        self._refuse("memory by purpose")

    def check_memory(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse("estimates of their own memory")

    def apply_coalesced(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse("batches that are joined")

    def stage_seconds(self) -> NoReturn:
        self._refuse("stages of a solve")

    def _refuse(self, what: str) -> NoReturn:
        refusal = NotInShards(f"ShardedEngine has no {what}")
        self.suite.refusals.append(str(refusal))
        raise refusal

    def step(self, running: QueryBatch | Registration) -> None:
        """One step of the shards, as of one device, however short."""
        self.workers.hurried = True
        try:
            running.step()
        finally:
            self.workers.hurried = False

    def capture(self, buffer: StagingBuffer | None = None) -> Any:
        """All of it, at once."""
        captured = super().capture(buffer)
        arrays, numbers = captured.snapshot().arrays, captured.snapshot().numbers
        lists = {
            name: np.concatenate([piece() for piece in pieces])
            for name, pieces in captured.pieces().items()
        }
        captured.release()
        return _Captured(Snapshot(arrays | lists, numbers))


class _Captured:
    """What Engine.capture returns."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def pieces(self) -> dict[str, Any]:
        return {}

    def release(self) -> None: ...


class _Programs:
    """Those of an engine; what they refuse in shards is a refusal."""

    def __init__(self, programs: Programs, refuse: Callable[[str], NoReturn]) -> None:
        self._programs, self._refuse = programs, refuse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._programs, name)

    def run(self, *given: Any, **named: Any) -> Any:
        return self._called(self._programs.run, *given, **named)

    def begin(self, *given: Any, **named: Any) -> Any:
        return self._called(self._programs.begin, *given, **named)

    def _called(
        self, method: Callable[..., Any], program: Any, after: Any = None, *given: Any, **named: Any
    ) -> Any:
        try:
            found = method(program, after, *given, **named)
        except InvalidValue as error:
            if "on a graph in shards" in error.requirement:
                self._refuse(f"{error.field} {error.value}")
            raise
        if after is not None and found.program.continues:
            self._refuse("runs that continue")
        return found
