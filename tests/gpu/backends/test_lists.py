"""Vertices with the same in-list, against sets of the edges."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.graph import Fingerprints
from liverank_gpu.types import Dangling
from tests.gpu.graphs import arc_weights_of, arcs_of

pytestmark = pytest.mark.reference

LONGEST = 1024
RANDOM = 150
"""Vertices with random edges; others have the lists that are planted."""

KINDS = [
    ("uniform", False),
    ("uniform", True),
    ("self-loop", False),
    ("self-loop", True),
]


def planted(backend: Backend, dangling: Dangling, weighted: bool) -> Engine:
    """A graph whose positions are ids."""
    generator = np.random.default_rng(9)
    weights = dict[tuple[int, int], float]()
    for u, v in generator.integers(0, RANDOM, (400, 2)).tolist():
        weights[u, v] = float(generator.choice([1.0, 2.5]))
    vertex = RANDOM

    def plant(sources: NDArray[np.int64], of_first: float = 1.0) -> int:
        nonlocal vertex
        for source in generator.permutation(sources).tolist():
            weights[source, vertex] = 1.0 + source % 3
        weights[int(sources[0]), vertex] = of_first
        vertex += 1
        return vertex - 1

    long = np.arange(RANDOM + 100, RANDOM + 100 + LONGEST + 2)
    for length in (1, 2, 31, 32, 33, 64, 100):
        sources = generator.permutation(RANDOM)[:length]
        for _ in range(3):
            plant(sources)
        # another weight, and another source
        plant(sources, float(np.nextafter(np.float32(1.0), np.float32(2.0))))
        plant(np.append(sources[:-1], RANDOM + 99))
        # the same share by a loop, another one, and all
        for leaving in ([], [5], [5, 6]):
            for _ in range(2):
                looped = plant(sources)
                weights[looped, looped] = 2.0
                weights |= {(looped, target): 1.0 for target in leaving}
    assert vertex <= RANDOM + 99
    vertex = int(long[-1]) + 1
    for length in (LONGEST, LONGEST, LONGEST + 1, LONGEST + 1):
        plant(long[:length])
    plant(long[1 : LONGEST + 1])
    engine = Engine(Options(dangling=dangling, weighted=weighted, vertex_order="given"), backend)
    pairs = generator.permutation(np.array(list(weights)))
    values = np.array([weights[u, v] for u, v in pairs.tolist()], np.float32)
    engine.apply(_batch(pairs, values, weighted, vertex + 4))
    # deletions leave holes, which the last entries of rows fill: rows differ in their order
    again = generator.permutation(len(pairs))[: len(pairs) // 3]
    engine.apply(EdgeBatch(delete_sources=pairs[again, 0], delete_targets=pairs[again, 1]))
    engine.apply(_batch(pairs[again], values[again], weighted, 0))
    engine.apply(EdgeBatch.of(remove=[3, RANDOM + 1]))
    return engine


def _batch(
    pairs: NDArray[np.int64], weights: NDArray[np.float32], weighted: bool, vertices: int
) -> EdgeBatch:
    columns = (pairs[:, 0], pairs[:, 1])
    return EdgeBatch(*columns, vertices=vertices, weights=weights if weighted else None)


def kinds_of(engine: Engine) -> tuple[list[set[tuple[int, float]]], list[Any]]:
    """The in-list of each vertex, with weights; and what its loop returns, None where that is not
    compared.
    """
    count, by_policy = engine.id_limit, engine.options.dangling == "self-loop"
    lists = [set[tuple[int, float]]() for _ in range(count)]
    loops, leaving = [by_policy] * count, [0] * count
    for u, v, weight in zip(
        *map(np.ndarray.tolist, arcs_of(engine)), arc_weights_of(engine).tolist(), strict=True
    ):
        if u == v:
            loops[v] = True
        else:
            lists[v].add((u, weight))
            leaving[u] += 1
    returned: list[Any] = [
        (None if engine.options.weighted else 1 / (1 + others)) if loop and others else float(loop)
        for loop, others in zip(loops, leaving, strict=True)
    ]
    return lists, returned


def asked(engine: Engine, backend: Backend, longest: int = LONGEST) -> Fingerprints:
    positions = np.random.default_rng(2).permutation(engine.id_limit)
    # as those of a permutation, or as ids are
    positions = positions.astype(np.int64 if longest == LONGEST else np.int32)
    graph, on_device = engine.internals.graph.view, backend.device.to_device(positions)
    return backend.lists.fingerprints(graph, on_device, longest)


@pytest.mark.any_thread_order
@pytest.mark.parametrize(("dangling", "weighted"), KINDS)
def test_fingerprints_are_those_of_the_lists(
    dangling: Dangling, weighted: bool, backend: Backend
) -> None:
    engine = planted(backend, dangling, weighted)
    lists, returned = kinds_of(engine)
    leaving = np.zeros(engine.id_limit, np.int64)
    for entries in lists:
        for source, _ in entries:
            leaving[source] += 1
    for longest in (LONGEST, 32):
        found = asked(engine, backend, longest)
        assert all(column.dtype == np.int64 for column in found)
        hashes, kinds = defaultdict[int, set[Any]](set), set[Any]()
        for vertex, length, hashed, source, out_edges in zip(*found, strict=True):
            entries = lists[vertex]
            if not 0 < len(entries) <= longest or returned[vertex] is None:
                assert length == 0
                continue
            assert length == len(entries)
            nearest = min((leaving[each], each) for each, _ in entries)
            assert (out_edges, source) == nearest
            kind = (frozenset(entries), returned[vertex])
            hashes[hashed].add(kind)
            kinds.add(kind)
        # a collision of so few would be a fault
        assert len(hashes) == len(kinds) > 10
        assert all(len(each) == 1 for each in hashes.values())
        assert sorted(found.positions) == list(range(engine.id_limit))


@pytest.mark.any_thread_order
@pytest.mark.parametrize(("dangling", "weighted"), KINDS)
def test_all_vertices_with_the_same_list_are_found(
    dangling: Dangling, weighted: bool, backend: Backend
) -> None:
    engine = planted(backend, dangling, weighted)
    graph = engine.internals.graph.view
    lists, returned = kinds_of(engine)
    found = asked(engine, backend)
    # the hashes of all of them are equal, which is no proof
    compared = found.at(found.lengths > 0)._replace(hashes=np.zeros_like(found.hashes))
    numbers, positions = backend.lists.with_same_list(graph, compared)
    with_kind = defaultdict[Any, list[int]](list)
    for vertex, (entries, part) in enumerate(zip(lists, returned, strict=True)):
        with_kind[frozenset(entries), part].append(vertex)
    expected = [
        (number, other)
        for number, vertex in enumerate(compared.positions.tolist())
        for other in with_kind[frozenset(lists[vertex]), returned[vertex]]
        if other != vertex
    ]
    assert sorted(zip(numbers.tolist(), positions.tolist(), strict=True)) == expected
    assert len(expected) > 10
    assert max(compared.lengths) == LONGEST


def test_rows_of_twins_are_in_different_orders(backend: Backend) -> None:
    engine = planted(backend, "uniform", True)
    incoming = engine.internals.graph.view.incoming
    starts, lengths, columns = (backend.device.to_host(each) for each in incoming[:3])
    orders = defaultdict[frozenset[int], set[tuple[int, ...]]](set)
    for start, length in zip(starts, lengths, strict=True):
        row = columns[start : start + length].tolist()
        orders[frozenset(row)].add(tuple(row))
    assert sum(len(each) > 1 for each in orders.values()) > 5


def test_more_vertices_than_are_copied_at_once(backend: Backend) -> None:
    leaves = 5_000
    engine = Engine(Options(vertex_order="given"), backend)
    engine.apply(EdgeBatch(np.zeros(leaves, np.int64), np.arange(1, leaves + 1)))
    engine.apply(EdgeBatch.of([(leaves + 1, 7), (8, 9)], delete=[(0, 9)]))
    graph = engine.internals.graph.view
    positions = backend.device.to_device(np.array([9, 5, 7, 0]))
    found = backend.lists.fingerprints(graph, positions, LONGEST)
    assert found.lengths.tolist() == [1, 1, 2, 0]
    numbers, others = backend.lists.with_same_list(graph, found.at(np.array([1, 0, 2])))
    of_leaf = np.sort(others[numbers == 0])
    assert of_leaf.tolist() == sorted(set(range(1, leaves + 1)) - {5, 7, 9})
    assert set(numbers.tolist()) == {0}
