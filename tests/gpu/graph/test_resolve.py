"""Replacements and deletions with weights, against plain Python: dictionaries of weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from liverank_gpu import Change, EdgeBatch, Engine, InvalidValue, Options
from liverank_gpu.operations.backend import Backend
from tests.gpu.sharded.test_shards import sharded_engine

SECONDS = 40.0
"""The half-life, so short that weights of a stream differ by orders."""

Edge = tuple[int, int]


class Model:
    """Weights by edge; where they decay, as they are at time 0."""

    def __init__(self, directed: bool, decays: bool) -> None:
        self.directed, self.decays = directed, decays
        self.weights: dict[Edge, float] = {}

    def edge(self, source: int, target: int) -> Edge:
        return (source, target) if self.directed or source <= target else (target, source)

    def amount(self, weight: float, time: float) -> float:
        return weight * 2.0 ** (time / SECONDS) if self.decays else weight

    def touches(self, edge: Edge, vertex: int) -> bool:
        return vertex in (edge[:1] if self.directed else edge)

    def replace(self, lists: dict[int, list[tuple[int, float]]], time: float, adds: bool) -> Change:
        before, new = dict(self.weights), dict[Edge, float]()
        rows = [(self.edge(v, t), w) for v, row in lists.items() for t, w in row]
        for edge, weight in rows:
            amount = self.amount(weight, time)
            new[edge] = new.get(edge, 0.0) + amount if adds else amount
        old = {edge for edge in before if any(self.touches(edge, v) for v in lists)}
        self.weights = {edge: w for edge, w in before.items() if edge not in old} | new
        kept = old & new.keys()
        changed = kept if adds else {edge for edge in kept if before[edge] != new[edge]}
        inserted = len(new.keys() - old)
        present = len(rows) - inserted - len(changed)
        return Change(inserted, present, len(old - new.keys()), 0, 0, 0.0, len(changed))

    def add(self, rows: list[tuple[int, int, float]], time: float) -> None:
        for source, target, weight in rows:
            edge = self.edge(source, target)
            self.weights[edge] = self.weights.get(edge, 0.0) + self.amount(weight, time)

    def subtract(self, rows: list[tuple[int, int, float]], time: float) -> tuple[int, int, int]:
        """Deleted, not found, lowered."""
        named = [self.edge(*row[:2]) for row in rows]
        found = [edge for edge in named if edge in self.weights]
        present = dict.fromkeys(found)
        before = dict(self.weights)
        for edge, row in zip(named, rows, strict=True):
            if edge in present:
                self.weights[edge] -= self.amount(row[2], time)
        least = 1e-6 if self.decays else 0.0
        gone = [edge for edge in present if self.weights[edge] <= least * before[edge]]
        for edge in gone:
            del self.weights[edge]
        whole = [edge for edge, row in zip(named, rows, strict=True) if row[2] == np.inf]
        repeats = sum(edge in present for edge in whole) - len(present.keys() & set(whole))
        lowered = len(found) - len(gone) - repeats
        return len(gone), len(named) - len(found) + repeats, lowered


def _check(engine: Engine, model: Model, time: float) -> None:
    """The same edges, and the same shares of each vertex in its weights; then the ranks."""
    sources, targets = engine.edge_list()
    weights = engine.edge_weights()
    found = dict(zip(zip(sources.tolist(), targets.tolist(), strict=True), weights, strict=True))
    assert found.keys() == model.weights.keys(), time
    if not model.decays:
        assert found == model.weights
    if engine.edges == 0:
        return
    result = engine.update("auto")
    ranks = engine.publish().to_numpy()
    matrix = np.zeros((engine.id_limit, engine.id_limit))
    for (source, target), weight in model.weights.items():
        shown = weight / 2.0 ** (time / SECONDS) if model.decays else weight
        matrix[source, target] = shown
        if not model.directed:
            matrix[target, source] = shown
    sums = matrix.sum(axis=1)
    matrix[sums == 0] = 1.0
    walk = matrix / matrix.sum(axis=1, keepdims=True)
    exact = np.linalg.solve(np.eye(len(walk)) - 0.85 * walk.T, np.full(len(walk), 0.15 / len(walk)))
    rounding = 1e-5 if model.decays else 1e-12
    assert np.abs(ranks - exact / exact.sum()).sum() <= result.error_bound + rounding


@pytest.mark.parametrize("decays", [False, True])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_batches_leave_what_dictionaries_have(
    backend: Backend, directed: bool, decays: bool, seed: int
) -> None:
    options = options_of(directed, decays)
    check_stream(Engine(options, backend), Model(directed, decays), seed)


@pytest.mark.parametrize("decays", [False, True])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("shards", [1, 3])
def test_shards_have_what_dictionaries_have(
    backend: Backend, directed: bool, decays: bool, shards: int
) -> None:
    options = options_of(directed, decays)
    with sharded_engine(options, shards, backend) as engine:
        check_stream(engine, Model(directed, decays), seed=4 + shards)


def options_of(directed: bool, decays: bool) -> Options:
    half_life = SECONDS if decays else None
    return Options(weighted=True, directed=directed, half_life=half_life, target_error=1e-9)


def check_stream(engine: Engine, model: Model, seed: int) -> None:
    """Applies random batches of every kind to both."""
    random = np.random.default_rng(seed)
    vertices, decays = 9, model.decays

    def rows(count: int) -> list[tuple[int, int, float]]:
        ends = random.integers(0, vertices, (count, 2)).tolist()
        return [
            (a, b, float(w)) for (a, b), w in zip(ends, random.integers(1, 4, count), strict=True)
        ]

    def times(count: int) -> np.ndarray | None:
        return np.full(count, time) if decays else None

    engine.apply(EdgeBatch(vertices=vertices))
    for step in range(60):
        time = float(step)
        kind = random.choice(["replace", "replace-add", "add", "subtract", "whole"])
        if kind.startswith("replace"):
            chosen = random.choice(vertices, random.integers(1, 3), replace=False).tolist()
            lists = {v: [row[1:] for row in rows(int(random.integers(0, 6)))] for v in chosen}
            flat = [(v, t, w) for v, row in lists.items() for t, w in row]
            adds = kind == "replace-add"
            expected = model.replace(lists, time, adds)
        else:
            lists, adds = {}, True
            flat = rows(4)
        if kind == "whole":  # some of them take away all
            flat = [(a, b, np.inf if at % 2 else w) for at, (a, b, w) in enumerate(flat)]
            kind = "subtract"
        sources, targets, weights = np.array(flat).reshape(-1, 3).T
        named, nothing = (sources.astype(np.int64), targets.astype(np.int64)), np.empty(0, np.int64)
        inserted, deleted_ends = named, (nothing, nothing)
        if kind == "subtract":
            deleted, not_found, lowered = model.subtract(flat, time)
            inserted, deleted_ends = deleted_ends, inserted
        change = engine.apply(
            EdgeBatch(
                inserted[0],
                inserted[1],
                deleted_ends[0],
                deleted_ends[1],
                weights=None if kind == "subtract" else weights,
                times=None if kind == "subtract" else times(len(flat)),
                on_conflict="add" if adds else "replace",
                replace=np.array(list(lists), np.int64),
                delete_weights=weights if kind == "subtract" else None,
                delete_times=times(len(flat)) if kind == "subtract" else None,
            )
        )
        counts = (change.deleted, change.not_found, change.lowered)
        if kind == "subtract":
            assert counts == (deleted, not_found, lowered)
            assert (change.inserted, change.already_present, change.reweighted) == (0, 0, 0)
        elif kind == "add":
            model.add(flat, time)
        else:
            assert (change.inserted, change.deleted) == (expected.inserted, expected.deleted)
            kept = change.already_present + change.reweighted
            assert kept == expected.already_present + expected.reweighted
            if not decays:
                assert change.reweighted == expected.reweighted
        _check(engine, model, time)


def test_what_is_taken_and_given_in_one_batch_adds_up(backend: Backend) -> None:
    engine = Engine(Options(weighted=True), backend)
    engine.apply(EdgeBatch.of(insert=[(0, 1, 5.0), (0, 2, 3.0)]))
    change = engine.apply(
        EdgeBatch.of(
            insert=[(0, 1, 4.0), (0, 3, 1.0)],
            delete=[(0, 1, 2.0), (0, 2, 3.0), (0, 2, 1.0), (1, 0, 1.0)],
            on_conflict="add",
        )
    )
    assert (change.inserted, change.reweighted, change.already_present) == (1, 1, 0)
    assert (change.deleted, change.lowered, change.not_found) == (1, 2, 1)
    assert sorted(zip(engine.edge_list()[1], engine.edge_weights(), strict=True)) == [
        (1, 7),
        (3, 1),
    ]


def test_a_sum_that_is_too_large_names_the_insertion(backend: Backend) -> None:
    engine = Engine(Options(weighted=True), backend)
    engine.apply(EdgeBatch.of(insert=[(0, 1, 3e38), (0, 2, 2.0)]))
    batch = EdgeBatch.of(
        insert=[(3, 4, 1.0), (0, 1, 3e38)],
        delete=[(0, 2, 1.0), (0, 1, 1e38)],
        on_conflict="add",
    )
    with pytest.raises(InvalidValue) as refused:
        engine.apply(batch)
    assert (refused.value.field, refused.value.value) == ("weights[1]", np.float32(3e38))
    assert engine.edge_weights().tolist() == np.array([3e38, 2.0], np.float32).tolist()


def test_a_time_of_what_is_taken_is_named(backend: Backend) -> None:
    engine = Engine(Options(weighted=True, half_life=1.0), backend)
    batch = EdgeBatch(
        delete_sources=np.zeros(2, np.int64),
        delete_targets=np.ones(2, np.int64),
        on_conflict="add",
        delete_weights=np.ones(2, np.float32),
        delete_times=np.array([0.0, 1e30]),
    )
    with pytest.raises(InvalidValue) as refused:
        engine.apply(batch)
    assert refused.value.field == "delete_times[1]"


def test_a_replaced_vertex_that_is_removed_has_the_new_list_alone(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of(insert=[(0, 1), (0, 2), (1, 0), (3, 0)]))
    change = engine.apply(EdgeBatch.of(remove=[0], replace={0: [3], 1: [0]}))
    assert (change.removed_edges, change.inserted, change.deleted) == (4, 2, 0)
    assert sorted(zip(*map(np.ndarray.tolist, engine.edge_list()), strict=True)) == [(0, 3), (1, 0)]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"delete": [(0, 1, 1.0)]}, "delete[0]"),
        ({"delete": [(0, 1, 1.0)], "on_conflict": "add", "replace": {0: [1]}}, "replace"),
        ({"delete": [(0, 1, -1.0)], "on_conflict": "add"}, "delete_weights[0]"),
    ],
)
def test_what_a_batch_cannot_say_is_named(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        EdgeBatch.of(**given)
    assert refused.value.field == field


def test_an_unweighted_graph_refuses_weights_of_deletions(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    with pytest.raises(InvalidValue, match="unweighted"):
        engine.apply(EdgeBatch.of(delete=[(0, 1, 1.0)], on_conflict="add"))
