"""Every backend beside the reference: an operation gets the same arrays there, and has to leave and
return the same. Integers, lists and sets are equal; sums differ by rounding.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from liverank_gpu import PROGRAMS, EdgeBatch, Engine, Options, PersonalizedQuery, RankReference
from liverank_gpu.backends.reference import reference_backend, sets, solve
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr, Kernels, Operation, Run
from liverank_gpu.operations.graph import FillRows
from liverank_gpu.operations.published import ForwardState, WorkList
from liverank_gpu.operations.residual import Push, Residual, ResidualDelta
from liverank_gpu.operations.select import HighestBound
from liverank_gpu.operations.sweeps import OrthominState, SumInDegrees, Sweep, SweepResult
from liverank_gpu.pagerank.strategies import STRATEGIES
from liverank_gpu.pagerank.sweeps import SWEEP_KINDS, sweep_to_target

REFERENCE = reference_backend()

ROUNDING = 1e-12
"""Of sums of less than 2000 terms, of the largest: 2000 · 2⁻⁵³ is 2e-13, and a few sums are added
up in one operation.
"""

DIGIT = 2.0**-22
"""Where float32 is stored, a unit of its last digit besides, and in what follows from that in the
same operation: the last digits of y and r in SweepMany, and differences of contributions.
"""

COMPARED = {
    "sweeps": {"sum_depth"},
    "frontier": set[str](),
    "multivector": {"column_count", "column_depth"},
    "select": {"_largest"},  # there may be others
    "rebuild": {
        *("partition", "needs_partition", "row_ranges", "keys_of_range", "strength_depth", "merge"),
    },
    "lists": {"fingerprints"},  # hashes are a backend's own
}
"""Operations by contract, but for those that are a backend's own choice."""

RECORDS = Kernels(solve, sets).operations - {SumInDegrees, Push} | {FillRows, HighestBound}
"""Operations that are records, of which tests/test_structure.py knows that they are all there, but
for those of rounds (test_rounds.py). What SumInDegrees sums up, and when Push lowers θ, is a
backend's own choice.
"""

NOT_CALLED = {"Scatter", "copy_rows", "scale_rows", "with_same_list"}
NOT_CALLED |= {"SolveComponents", "SendRanks", "UpdateRanks", "ExpandAffected", "count_neighbours"}
"""But by other operations; or by none of these updates and queries."""

PUBLISHED = set(STRATEGIES) - {"auto", "residual"}

IN_ANY_ORDER = {"ExpandForward", "ExpandBackward", "JacobiStep", "list_changed"}


class _Beside:
    """Operations that are compared with those of the reference."""

    def __init__(self, contract: str, backend: Backend, seen: set[str]) -> None:
        self._own, self._reference = getattr(backend, contract), getattr(REFERENCE, contract)
        self._contract, self._left_out, self._seen = contract, COMPARED[contract], seen

    def __getattr__(self, name: str) -> Any:
        own = getattr(self._own, name)
        if not callable(own) or name in self._left_out or isinstance(own, type):
            return own

        def called(*given: Any) -> Any:
            copied = tuple(each if callable(each) else deepcopy(each) for each in given)
            found, expected = own(*given), getattr(self._reference, name)(*copied)
            self._seen.add(name)
            _assert_same(found, expected, name, name in IN_ANY_ORDER)
            _assert_same(given, copied, name)
            return found

        return called


def _run_beside(run: Run, seen: set[str]) -> Run:
    """Runs operations that are compared with those of the reference."""

    def called(operation: Operation[Any], /) -> Any:
        if type(operation) not in RECORDS:
            return run(operation)
        copied, name = deepcopy(operation), type(operation).__name__
        found, expected = run(operation), REFERENCE.run(copied)
        seen.add(name)
        name = "momentum" if isinstance(operation, Sweep) and operation.kept else name
        if isinstance(found, WorkList):
            listed: Any = (operation, copied)
            queues = [each.state.queue[: found.vertices] for each in listed]
            _assert_same(queues[0], queues[1], name, True)
        _assert_same(found, expected, name, name in IN_ANY_ORDER)
        _assert_same(operation, copied, name)
        return found

    return called


def _assert_same(found: Any, expected: Any, name: str, in_any_order: bool = False) -> None:
    if isinstance(found, Csr):
        for one, other in zip(
            REFERENCE.rebuild.entries(found), REFERENCE.rebuild.entries(expected), strict=True
        ):
            _assert_same(one, other, name)
    elif isinstance(found, Residual):
        assert (found.listed, found.floor) == (expected.listed, expected.floor), name
        for part in ("values", "marks"):
            _assert_same(getattr(found, part), getattr(expected, part), name)
        candidates = [set(each.candidates[: each.listed].tolist()) for each in (found, expected)]
        assert candidates[0] == candidates[1], name
    elif isinstance(found, ForwardState):
        for part in ("values", "residual"):
            _assert_same(getattr(found, part), getattr(expected, part), name)
    elif isinstance(found, ResidualDelta) and name == "Perturb":
        # of an edge that stays, a backend may add what a new one gets and correct for that
        assert (expected.additions, expected.moved) <= (found.additions, found.moved)
        for part in ("residual_l1", "residual_sum", "mass"):
            _assert_same(getattr(found, part), getattr(expected, part), name)
    elif isinstance(found, OrthominState):
        for part in ("direction", "last_image", "weights"):  # the other one is scratch
            _assert_same(getattr(found, part), getattr(expected, part), name)
    elif isinstance(found, SweepResult):
        # follows from contributions, whose last digits differ
        difference = abs(found.next_residual_sum - expected.next_residual_sum)
        assert difference <= DIGIT * expected.residual_l1 + ROUNDING, name
        for part in ("residual_l1", "residual_sum", "mass", "largest_step"):
            _assert_same(getattr(found, part), getattr(expected, part), name)
    elif is_dataclass(found) and not isinstance(found, type):
        for field in fields(found):
            if field.name not in ("groups", "parts", "issued"):
                parts = [getattr(each, field.name) for each in (found, expected)]
                _assert_same(parts[0], parts[1], name, in_any_order)
    elif isinstance(found, tuple | list):
        assert len(found) == len(expected), name
        for one, other in zip(found, expected, strict=True):
            _assert_same(one, other, name, in_any_order)
    elif isinstance(found, np.ndarray) and found.dtype.kind != "f":
        one, other = (np.sort(each) if in_any_order else each for each in (found, expected))
        assert np.array_equal(one, other), name
    elif isinstance(found, np.ndarray | float):
        found, expected = np.asarray(found), np.asarray(expected)
        finite = np.isfinite(expected)
        assert np.array_equal(found[~finite], expected[~finite], equal_nan=True), name
        size = np.abs(expected[finite]).max(initial=1.0)
        is_float32 = found.dtype == np.float32
        digits = {("SweepMany", False), ("SweepMany", True), ("momentum", True)}
        absolute = DIGIT if (name, is_float32) in digits else ROUNDING
        absolute *= 500 if name == "IterateRanks" else 1  # iterations
        np.testing.assert_allclose(
            found[finite],
            expected[finite],
            DIGIT if is_float32 else 0.0,
            absolute * size,
            err_msg=name,
        )
    elif isinstance(found, int | np.integer | str | None):
        assert found == expected, name
    else:
        assert callable(found), f"{name}: {type(found)} is not compared"


OPTIONS = {
    "plain": Options(),
    "weighted": Options(weighted=True, vertex_order="degree"),
    "loops": Options(dangling="self-loop", directed=False),
}


def _batches(options: Options, vertices: int, edges: int, count: int) -> list[EdgeBatch]:
    """Edges, and small batches that insert known and new ones, delete, and remove a vertex."""
    random = np.random.default_rng(8)
    batches, old = list[EdgeBatch](), random.integers(0, vertices, (2, edges))
    for number in range(count):
        ends = old if number == 0 else random.integers(0, vertices + 4, (2, 6))
        ends[:, :2] = old[:, :2]
        weights = np.asarray(0.1 + random.random(ends.shape[1]), np.float32)
        gone = old[:, random.integers(0, edges, 4 * (number > 0))]
        removed = random.integers(0, vertices, int(number == 3))
        batches.append(
            EdgeBatch(
                *(ends[0], ends[1], gone[0], gone[1]),
                weights=weights if options.weighted else None,
                remove=removed,
            )
        )
    return batches


def _abstract(operations: object) -> frozenset[str]:
    """The operations of a contract."""
    contract: Any = type(operations).__bases__[0]
    return frozenset(contract.__abstractmethods__)


@pytest.mark.parametrize("kind", OPTIONS)
def test_operations_are_those_of_the_reference(kind: str, backend: Backend) -> None:
    if backend.name != "cpu":
        pytest.skip("contributions are of another type on a device")
    seen, options = set[str](), OPTIONS[kind]
    parts: dict[str, Any] = {name: _Beside(name, backend, seen) for name in COMPARED}
    run = _run_beside(backend.run, seen)
    engine = Engine(options, replace(backend, run=run, **parts))
    reference = RankReference(engine.publish())
    solves = [*product(("auto", *STRATEGIES), ("accelerated", "published"))]
    for number, batch in enumerate(_batches(options, 300, 800, len(solves))):
        strategy, form = solves[number]
        engine.apply(batch)
        engine.update(
            strategy,
            form="published" if strategy in PUBLISHED and form == "published" else "accelerated",
        )
        ranks = engine.publish()
        reference.changes(ranks, 1e-3, 100)
        seeds = ranks.top(2)[0]
        for method in ("hybrid", "push", "pull"):
            engine.personalized(seeds, method=method, target_error=1e-4)
        if options.dangling == "uniform" and not number % 5:
            for method in ("push", "pushopt", "pull"):
                engine.personalized(seeds, method=method, form="published", target_error=1e-2)
    iterate = engine.internals.iterate
    for kind_of_sweep in SWEEP_KINDS:
        iterate.reset()
        sweep_to_target(iterate, 12, [kind_of_sweep])
    asked = [PersonalizedQuery(np.array([v]), method="pull") for v in range(9)]
    engine.personalized_many([replace(each, target="settled-top-k") for each in asked])
    expected = {each.__name__ for each in RECORDS} | {
        name
        for contract, left_out in COMPARED.items()
        for name in _abstract(getattr(backend, contract)) - left_out
    }
    # a graph with the loops of the policy has no published queries
    assert kind != "weighted" or expected - seen <= NOT_CALLED


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("kind", OPTIONS)
def test_batches_leave_the_graph_of_the_reference(kind: str, adds: bool, backend: Backend) -> None:
    options = OPTIONS[kind]
    if adds and not options.weighted:
        pytest.skip("there are no weights")
    engines = [Engine(options, each) for each in (backend, REFERENCE)]
    for batch in _batches(options, 200, 1000, 12):
        if adds:
            batch = replace(batch, on_conflict="add")
        changes = [replace(engine.apply(batch), seconds=0.0) for engine in engines]
        assert changes[0] == changes[1]
        for engine in engines:
            engine.update()
        found, expected = (each.internals.graph for each in engines)
        for name in ("outgoing", "incoming"):
            columns = []
            for graph in (found, expected):
                entries = graph.backend.rebuild.entries(getattr(graph, name).csr)
                rows = [graph.backend.device.to_host(each) for each in entries if each is not None]
                columns.append(np.stack(rows)[:, np.lexsort(rows[:2])])
            assert np.array_equal(columns[0], columns[1])
        for name in ("loop", "degree"):
            one, other = (
                each.backend.device.to_host(getattr(each, name)) for each in (found, expected)
            )
            _assert_same(one, other, name)
        ranks = [engine.publish().to_numpy() for engine in engines]
        assert np.abs(ranks[0] - ranks[1]).sum() <= 2 * options.target_error


@pytest.mark.parametrize("name", PROGRAMS)
def test_answers_are_those_of_the_reference(name: str, backend: Backend) -> None:
    options = OPTIONS["weighted"]
    answers = []
    for each in (backend, REFERENCE):
        engine = Engine(options, each)
        engine.apply(_batches(options, 100, 400, 1)[0])
        answers.append(engine.programs.run(name).values)
    for field in answers[0].dtype.names or (...,):
        np.testing.assert_allclose(answers[0][field], answers[1][field], rtol=1e-9)
