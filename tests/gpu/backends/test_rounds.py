"""The parts of a round of a push, against plain loops over vertices."""

from __future__ import annotations

from collections import defaultdict
from math import fsum
from typing import Any

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.residual import (
    LEVELS,
    LISTED,
    MESSAGE_HEADER,
    SOLVE_SHIFT,
    AddReceived,
    Outbox,
    PushRound,
    Residual,
    ResidualDelta,
    RoundNumbers,
    Scatter,
    SelectCandidates,
    SendSums,
)

pytestmark = pytest.mark.reference

DAMPING, FLOOR, EDGE_WEIGHT = 0.75, 1e-3, 0.5
THRESHOLDS = (0.4, 0.05, 0.00625, FLOOR)
SOLVE = 7

ROOM, OWN, OTHER = 600, 1, 0
"""The 900 neighbours are columns of two shards: 600 of this one, and the first 300 of the other."""

MOST = 600


def engine_with(backend: Backend, weighted: bool, policy: str) -> tuple[Engine, Residual]:
    """A graph with loops, vertices without edges and a hub, whose r is random: some of it is below
    FLOOR and still listed, and some vertices were pushed in this solve.
    """
    generator = np.random.default_rng(3)
    sources, targets = generator.integers(0, 700, (2, 3000))
    sources[:900] = 5
    targets[900:1000] = sources[900:1000]
    weights = generator.integers(1, 9, 3000).astype(np.float32) if weighted else None
    options: Any = {"weighted": weighted, "dangling": policy}
    engine = Engine(Options(**options), backend)
    engine.apply(EdgeBatch(sources, targets, vertices=900, weights=weights))
    engine.update()
    residual = engine.internals.iterate.workspace.residual
    r = 10.0 ** generator.uniform(-5, 1, 900) * generator.choice([-1, 1], 900)
    r[5] = 40.0  # so that the hub is pushed
    residual.values[:] = backend.device.to_device(r)
    residual.marks[:] = 0
    residual.marks[100:200] = SOLVE << SOLVE_SHIFT
    residual.solve = SOLVE
    residual.candidates = backend.device.allocate("candidates", 900, np.int32)
    backend.run(SelectCandidates(residual, FLOOR / 4))
    residual.floor = FLOOR
    return engine, residual


def outbox_of(backend: Backend, capacity: int, listed: int = 900) -> Outbox:
    """capacity  pairs of a message; listed: columns that there is room for in lists"""
    made = backend.device.allocate
    sums, marks = made("sums", 1800, np.float64), made("sums", 1800, np.int32)
    sums[:], marks[:] = 0.0, 0
    lists = made("sums", listed, np.int32), made("sums", listed, np.int32)
    words = MESSAGE_HEADER + 2 * MOST
    messages = [made("messages", 2 * words, np.int64).reshape(2, words) for _ in range(2)]
    residual = Residual(sums, marks, lists[0], 0, -1.0, 0)
    return Outbox(residual, lists[1], messages[0], messages[1], capacity, OWN, ROOM)


def pairs_in(backend: Backend, outbox: Outbox) -> dict[int, float]:
    """The amounts of all messages to be sent, by column; no column is in them twice."""
    found: dict[int, float] = {}
    for shard, message in enumerate(backend.device.to_host(outbox.sent)):
        count = min(int(message[0]), outbox.capacity)
        rows, bits = message[MESSAGE_HEADER : MESSAGE_HEADER + 2 * count].reshape(-1, 2).T
        first = 0 if shard == OWN else ROOM
        amounts = np.ascontiguousarray(bits).view(np.float64).tolist()
        named = dict(zip((first + rows).tolist(), amounts, strict=True))
        assert len(named) == count
        assert not named.keys() & found.keys()
        found |= named
    return found


def numbers_of(backend: Backend, told: Any) -> tuple[RoundNumbers, list[int]]:
    every = backend.device.to_host(told).tolist()
    fields = len(RoundNumbers._fields)
    return RoundNumbers(*every[:fields]), [int(each) for each in every[fields:]]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("policy", ["uniform", "self-loop"])
def test_a_round_is_as_by_hand(weighted: bool, policy: str, backend: Backend) -> None:
    engine, residual = engine_with(backend, weighted, policy)
    to_host, graph = backend.device.to_host, engine.internals.graph.view
    values, outbox = engine.internals.iterate.values, outbox_of(backend, MOST)
    lengths = to_host(graph.outgoing.row_lengths).astype(np.int64)
    degree, loop = to_host(graph.degree), to_host(graph.loop)
    y, r, marks = (to_host(each).copy() for each in (values, residual.values, residual.marks))
    listed = to_host(residual.candidates[: residual.listed])
    reached = np.abs(r) / (1.0 + EDGE_WEIGHT * lengths)
    large = np.flatnonzero(np.abs(r) > FLOOR)
    assert len(large) < len(listed)

    def counted() -> list[int]:
        reached = np.abs(r) / (1.0 + EDGE_WEIGHT * lengths)
        above = [np.flatnonzero(reached > threshold) for threshold in THRESHOLDS]
        return [len(each) for each in above] + [int(lengths[each].sum()) for each in above]

    add = AddReceived(graph, residual, outbox, None, THRESHOLDS, EDGE_WEIGHT)
    numbers, counts = numbers_of(backend, backend.run(add))
    assert counts == counted()
    assert 0 < counts[1] < counts[LEVELS - 1] < len(large)
    assert numbers == (*[0.0] * 10, len(listed), FLOOR, len(large))

    sent = backend.run(
        PushRound(
            graph,
            values,
            DAMPING,
            residual,
            THRESHOLDS[1],
            EDGE_WEIGHT,
            counts[1],
            counts[LEVELS + 1],
            len(large),
            outbox,
        )
    )
    changes, sums, additions = [], defaultdict[int, list[float]](list), 0
    pushed = np.flatnonzero(reached > THRESHOLDS[1])
    assert 5 in pushed
    starts = to_host(graph.outgoing.row_starts)
    columns = to_host(graph.outgoing.column_indices)
    weights = to_host(graph.outgoing.weights) if weighted else np.ones(len(columns))
    for u in pushed.tolist():
        d, before = float(degree[u]), float(r[u])
        diagonal = 1.0 - (DAMPING * float(loop[u]) / d if d else 0.0)
        new = float(y[u]) + before / diagonal
        step = new - float(y[u])
        rest = before - diagonal * step
        for slot in range(starts[u], starts[u] + lengths[u]):
            sums[int(columns[slot])].append(DAMPING * step / d * float(weights[slot]))
            additions += 1
        changes.append((abs(rest) - abs(before), rest - before, step, abs(before)))
        y[u], r[u] = new, rest
    assert np.allclose(to_host(values), y, rtol=1e-12, atol=0.0)
    first = int((marks[pushed] >> SOLVE_SHIFT != SOLVE).sum())
    assert 0 < first < len(pushed)
    # the sums have gone to messages, or those of own rows to r
    expected = {column: fsum(amounts) for column, amounts in sums.items()}
    found = pairs_in(backend, outbox)
    own = [(row, amount) for row, amount in expected.items() if row < ROOM]
    at_once = not any(column < ROOM for column in found)
    assert found.keys() == expected.keys() - (dict(own).keys() if at_once else ())
    assert all(abs(found[column] - expected[column]) < 1e-13 for column in found)
    now = r.copy()
    for row, amount in own if at_once else ():
        now[row] += amount
    assert np.allclose(to_host(residual.values), now, rtol=1e-12, atol=1e-12)
    marks[listed] &= ~LISTED
    marks[large] |= LISTED
    marks[pushed] = LISTED | SOLVE << SOLVE_SHIFT
    marks[(now != r) & (np.abs(now) > FLOOR)] |= LISTED
    assert not (marks & ~to_host(residual.marks)).any()
    assert np.array_equal(marks & ~LISTED, to_host(residual.marks) & ~LISTED)
    kept = to_host(residual.candidates[: residual.listed])
    assert np.array_equal(np.sort(kept), large)
    assert not to_host(outbox.sums.values).any()
    assert not to_host(outbox.sums.marks).any()

    # what is for this shard is added, and what the other sent
    received = {3: -0.7, 599: 0.25, 5: 1e-9}
    message = np.zeros(MESSAGE_HEADER + 2 * MOST, np.int64)
    message[0] = len(received)
    pairs = message[MESSAGE_HEADER : MESSAGE_HEADER + 2 * len(received)].reshape(-1, 2)
    pairs[:, 0] = list(received)
    pairs[:, 1] = np.array(list(received.values())).view(np.int64)
    outbox.received[OTHER] = backend.device.to_device(message)
    arrived = [*own, *received.items()]
    before_l1, before_sum = fsum(np.abs(r)), fsum(r)
    magnitude, at = 0.0, r.copy()
    for row, amount in arrived:
        at[row] += amount
        magnitude += abs(at[row])
    r = at
    add = AddReceived(graph, residual, outbox, sent, THRESHOLDS, EDGE_WEIGHT, undone=True)
    numbers, counts = numbers_of(backend, backend.run(add))
    assert np.allclose(to_host(residual.values), r, rtol=1e-12, atol=1e-12)
    l1, change, mass, moved = (fsum(column) for column in zip(*changes, strict=True))
    assert numbers.residual_l1 == pytest.approx(l1 + fsum(np.abs(r)) - before_l1, rel=1e-9)
    assert numbers.residual_sum == pytest.approx(change + fsum(r) - before_sum, rel=1e-9)
    assert numbers.mass == pytest.approx(mass, rel=1e-9)
    spread = fsum(abs(amount) for amounts in sums.values() for amount in amounts)
    assert numbers.moved == pytest.approx(moved + spread, rel=1e-9)
    assert numbers.magnitude >= (magnitude + fsum(map(abs, found.values()))) * (1 - 1e-9)
    assert numbers.additions == additions + len(pushed)
    assert numbers.vertices == first
    assert numbers.below_zero == np.count_nonzero(y[pushed] < 0.0) > 0
    assert (numbers.left, numbers.undone, numbers.floor) == (0.0, 1.0, FLOOR)
    # what is listed has all that is large, but for what was not listed before and did not change
    large = np.flatnonzero(np.abs(r) > FLOOR)
    assert set(large.tolist()) <= set(to_host(residual.candidates[: int(numbers.listed)]).tolist())
    assert (counts, numbers.kept) == (counted(), len(large))


@pytest.mark.parametrize("listed", [900, 7])
def test_sums_without_room_go_with_the_next_messages(listed: int, backend: Backend) -> None:
    """Also those of columns that are more than the list of sums holds."""
    engine, _ = engine_with(backend, False, "uniform")
    graph, outbox = engine.internals.graph.view, outbox_of(backend, 40, listed)
    to_device = backend.device.to_device
    targets = np.unique(np.random.default_rng(9).integers(0, 900, 300)).astype(np.int32)
    amounts = np.random.default_rng(8).uniform(-1, 1, len(targets))
    none = to_device(np.empty(0, np.int32)), to_device(np.empty(0))
    done = backend.run(Scatter(graph, outbox.sums, *none, to_device(targets), to_device(amounts)))
    found: dict[int, float] = {}
    messages = left = 0
    delta = done
    while messages == 0 or left:
        sent = backend.run(SendSums(outbox, delta))
        some = pairs_in(backend, outbox)
        assert not found.keys() & some.keys()
        found |= some
        messages += 1
        nothing = Residual(
            to_device(np.zeros(900)),
            to_device(np.zeros(900, np.int32)),
            to_device(np.zeros(900, np.int32)),
            0,
            1e9,
            0,
        )
        outbox.received[OTHER, 0] = 0
        add = AddReceived(graph, nothing, outbox, sent, (1e9,) * LEVELS, 0.0)
        numbers, _ = numbers_of(backend, backend.run(add))
        assert (numbers.moved, numbers.additions) == (delta.moved, delta.additions)
        left, delta = int(numbers.left), ResidualDelta()
        assert left == len(targets) - len(found)
        sums = outbox.sums
        sums.candidates, outbox.rest = outbox.rest, sums.candidates
        sums.listed, sums.floor = (left, -1.0) if left <= listed else (0, np.inf)
    own = np.count_nonzero(targets < ROOM)
    assert messages == -(-own // 40) > 2
    assert found == dict(zip(targets.tolist(), amounts.tolist(), strict=True))
    assert not backend.device.to_host(outbox.sums.values).any()
    assert not backend.device.to_host(outbox.sums.marks).any()
