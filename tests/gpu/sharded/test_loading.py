"""The first edges of a graph in shards: loaded a range of rows at a time if memory is short."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import count
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Options, OutOfMemory, ShardedEngine
from liverank_gpu.backends import backend_named
from liverank_gpu.graph.vertices import by_descending_degree
from liverank_gpu.operations.backend import DEFAULT_SIZES, Backend
from liverank_gpu.sharded.graph import ShardGraph
from liverank_gpu.sharded.loading import buckets_of, first_position, load_bytes
from liverank_gpu.types import VertexOrder
from tests.cuda_emulator.emulated import emulated_backend
from tests.gpu.doubles import instead, looked_after
from tests.gpu.graphs import Model, model_of
from tests.gpu.observed import traced
from tests.gpu.sharded.test_shards import assert_ranks, kind_of_graph, sharded_engine
from tests.gpu.sharded.threads import ThreadWorkers

AT_ONCE, CHUNK = 40, 25


def scarce(backend: Backend) -> Backend:
    """The same, whose memory `short_memory` can make short, with sizes of the test's own."""
    sizes: Any = SimpleNamespace(**asdict(DEFAULT_SIZES))
    device = backend.device

    def available() -> int:
        return 0 if sizes.least_load < DEFAULT_SIZES.least_load else device.memory_available()

    return replace(backend, sizes=sizes, device=instead(device, memory_available=available))


@contextmanager
def short_memory(backend: Backend, at_once: int = AT_ONCE, chunk: int = CHUNK) -> Iterator[None]:
    """As few edges on their way at once as can be. backend: of `scarce`"""
    with own_sizes(backend, least_load=at_once, chunk=chunk):
        yield


@contextmanager
def own_sizes(backend: Backend, **sizes: int) -> Iterator[None]:
    """How much is done at once. backend: of `scarce`"""
    vars(backend.sizes).update(sizes)
    try:
        yield
    finally:
        vars(backend.sizes).update({name: getattr(DEFAULT_SIZES, name) for name in sizes})


def moved_keys(workers: ThreadWorkers) -> list[tuple[int, int]]:
    """(sent, received) of each shard and range from here on."""
    found: list[tuple[int, int]] = []

    def after(*arrays: Sequence[NDArray[Any]]) -> None:
        if arrays[0][0].dtype == np.int64:
            sent, received = (sum(map(len, each)) for each in arrays)
            found.append((sent, received))

    for each in workers.communicators:
        each.after = after
    return found


@contextmanager
def short_at(workers: ThreadWorkers, number: int) -> Iterator[None]:
    """Memory runs out in the second shard when it has moved the keys of so many ranges."""
    numbers = count(1)

    def after(sent: Sequence[NDArray[Any]], _: Any) -> None:
        if sent[0].dtype == np.int64 and next(numbers) == number:
            raise MemoryError("of the device")

    workers.communicators[1].after = after
    try:
        yield
        assert next(numbers) == number + 1
    finally:
        del workers.communicators[1].after


def first_batch(options: Options, seed: int) -> tuple[EdgeBatch, Model]:
    """Edges with repeats, loops and deletions of nothing, among vertices some of which have many;
    and the graph that they make.
    """
    generator = np.random.default_rng(seed)
    sources, targets = (700 * generator.random((2, 900)) ** 2).astype(np.int64)
    gone_sources, gone_targets = generator.integers(0, 900, (2, 5))
    weights = generator.random(900).astype(np.float32) + 1 if options.weighted else None
    batch = EdgeBatch(
        sources,
        targets,
        gone_sources,
        gone_targets,
        vertices=720,
        weights=weights,
        on_conflict="add" if options.weighted and seed % 4 == 1 else "replace",
    )
    model = model_of(options)
    return batch, model


def lists_of(graph: ShardGraph) -> list[list[Any]]:
    """Everything that the shard holds of its rows."""
    arrays = [graph.loop, graph.degree]
    for direction in (graph.outgoing, graph.incoming):
        arrays += [*direction.arrays().values(), direction.capacities]
    return [graph.backend.device.to_host(array).tolist() for array in arrays]


@pytest.mark.parametrize("seed", range(8))
def test_a_load_in_ranges_gives_the_lists_of_one_at_once(seed: int, backend: Backend) -> None:
    options, shards, backend = kind_of_graph(seed), [2, 3, 1, 4][seed % 4], scarce(backend)
    batch, model = first_batch(options, seed)
    expected = model.apply(batch)
    lists = []
    for short in (False, True):
        workers = ThreadWorkers(options, shards, backend)
        moved = moved_keys(workers)
        with ShardedEngine(options, workers=workers) as engine:
            if short:
                with short_memory(backend):
                    change = engine.apply(batch)
                # all arcs of a few rows that are neighbours go together
                assert len(moved) > 8 * shards
                assert max(max(each) for each in moved) < AT_ONCE + 40
            else:
                change = engine.apply(batch)
                assert len(moved) == 2 * shards
            assert replace(change, seconds=0.0) == expected
            assert_ranks(engine, model, engine.update().error_bound)
        lists.append([lists_of(shard.graph) for shard in workers.shards])
    assert lists[0] == lists[1]


def test_memory_that_runs_out_at_a_later_range_leaves_all_shards_empty() -> None:
    options, backend = Options(target_error=1e-9), scarce(backend_named("cpu"))
    batch, model = first_batch(options, 3)
    workers = ThreadWorkers(options, 2, backend)
    with ShardedEngine(options, workers=workers) as engine:
        refused = pytest.raises(OutOfMemory, match="a batch of")
        with short_memory(backend), short_at(workers, 20), refused:
            engine.apply(batch)
        assert (engine.vertices, engine.edges) == (0, 0)
        assert replace(engine.apply(batch), seconds=0.0) == model.apply(batch)
        assert_ranks(engine, model, engine.update().error_bound)


@pytest.mark.parametrize(
    ("weighted", "edges", "vertices", "part"),
    [(False, 250_000, 5_000, 0.65), (True, 250_000, 5_000, 0.65), (False, 50_000, 200_000, 1.1)],
)
def test_a_load_takes_no_more_memory_than_is_said(
    weighted: bool, edges: int, vertices: int, part: float
) -> None:
    shards = 2
    generator, options = np.random.default_rng(4), Options(weighted=weighted)
    sources, targets = generator.integers(0, vertices, (2, edges))
    weights = np.ones(edges, np.float32) if weighted else None
    batch = EdgeBatch(sources, targets, weights=weights)
    backend, peaks = scarce(backend_named("cpu")), []
    with sharded_engine(options, shards, backend) as engine:
        engine.apply(batch)  # compiles
    for at_once in (10_000, edges):
        with sharded_engine(options, shards, backend) as engine:
            with short_memory(backend, at_once, chunk=10_000):
                operations, rows = edges // shards + 2_000, vertices // shards
                said = shards * load_bytes(backend.sizes, operations, rows, 12, weighted)
                with traced() as peak:
                    engine.apply(batch)
                peaks.append(peak.bytes)
            assert peaks[-1] <= said
    # lists, and in the second case also all edges on their way
    assert peaks[0] < part * peaks[1]


def test_the_shard_with_the_least_memory_decides() -> None:
    options, backends = Options(target_error=1e-9), [scarce(emulated_backend()) for _ in range(2)]
    backends[0] = replace(emulated_backend(), sizes=backends[1].sizes)  # has enough
    batch, model = first_batch(options, 2)
    workers = ThreadWorkers(options, 2, backends)
    with ShardedEngine(options, workers=workers) as engine:
        moved = moved_keys(workers)
        with short_memory(backends[1]):
            change = engine.apply(batch)
        assert len(moved) > 16
        assert replace(change, seconds=0.0) == model.apply(batch)
        assert_ranks(engine, model, engine.update().error_bound)


@pytest.mark.parametrize("limit", [1, 200, 512, 513, 5_000, 1 << 20, (1 << 31) - 1])
def test_buckets_are_consecutive_positions(limit: int) -> None:
    positions = np.unique(np.append(np.arange(min(limit, 3_000)), np.arange(0, limit, 9_973)))
    buckets = buckets_of(positions, np)
    assert (np.diff(buckets) >= 0).all()
    first = np.array([first_position(bucket) for bucket in buckets.tolist()])
    assert (first <= positions).all()
    assert (buckets_of(first, np) == buckets).all()
    before = first[first > 0] - 1
    assert (buckets_of(before, np) == buckets[first > 0] - 1).all()


def test_a_shard_that_owns_all_rows_receives_no_more_at_once(backend: Backend) -> None:
    generator, backend = np.random.default_rng(7), scarce(backend)
    sources, targets = 4 * generator.integers(0, 400, (2, 900))  # of positions, shard 0 has these
    options = Options(vertex_order="given", target_error=1e-9)
    workers = ThreadWorkers(options, 4, backend)
    with ShardedEngine(options, workers=workers) as engine, short_memory(backend):
        moved = moved_keys(workers)
        engine.apply(EdgeBatch(sources, targets))
        assert engine.edges == len(set(zip(sources.tolist(), targets.tolist(), strict=True)))
    assert sum(received for _, received in moved) > 1_700
    assert max(received for _, received in moved) <= AT_ONCE


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_the_order_is_that_of_the_degrees_in_all_slices(shards: int, backend: Backend) -> None:
    options = Options(vertex_order="degree", target_error=1e-9)
    batch, _ = first_batch(options, 4)
    workers = ThreadWorkers(options, shards, backend)
    with ShardedEngine(options, workers=workers) as engine:
        engine.apply(batch)
        engine.update()
        found = [shard.order(ranked=True).tolist() for shard in workers.shards]
    both = np.append(batch.insert_sources, batch.insert_targets)
    expected = by_descending_degree(np, np.bincount(both, minlength=batch.vertices)).tolist()
    assert found == [expected] * shards


@pytest.mark.parametrize("order", get_args(VertexOrder))
def test_first_edges_are_copied_to_the_device_once(order: VertexOrder) -> None:
    options, shards = Options(vertex_order=order, target_error=1e-9), 2
    batch, _ = first_batch(options, 4)
    copied: list[int] = []

    backends = [looked_after(emulated_backend()) for _ in range(shards)]
    workers = ThreadWorkers(options, shards, [backend for backend, _ in backends])
    with ShardedEngine(options, workers=workers) as engine:
        for _, device in backends:
            device.sending = lambda values: copied.append(int(values.nbytes))
        engine.apply(batch)
    # the ids of 32 bits of two columns, beside what is small
    assert 2 * 4 * 900 <= sum(copied) < 3 * 4 * 900
