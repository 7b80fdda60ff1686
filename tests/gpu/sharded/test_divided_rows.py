"""Sweeps in three parts, each of which is sent while the next is computed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Options, ShardedEngine
from liverank_gpu.backends import backend_named
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.backend import Backend, Sizes
from liverank_gpu.operations.csr import RowPart, Rows
from liverank_gpu.operations.sweeps import (
    DeflationVector,
    QuantizeContributions,
    Sweep,
    SweepResult,
)
from liverank_gpu.sharded.columns import Columns
from liverank_gpu.sharded.communicator import NcclCommunicator, SingleCommunicator, unique_id
from liverank_gpu.sharded.member import Member
from liverank_gpu.sharded.operations import DividedRows
from tests.gpu.graph.test_pages import ALWAYS, paging, skewed
from tests.gpu.graphs import Model, WeightedModel, batch_for
from tests.gpu.pagerank.test_paged_sweeps import Paged
from tests.gpu.sharded import emulated_nccl
from tests.gpu.sharded.test_shards import assert_ranks
from tests.gpu.sharded.threads import ThreadCommunicator, ThreadWorkers

CPU = backend_named("cpu")

VERTICES = 1_400
"""Two shards have room for 704 rows each."""

SPANS = [slice(320, 704), slice(64, 320), slice(0, 64)]
"""Their parts."""


Sent = list[tuple[slice, NDArray[Any]]]


class SendsBeside(ThreadCommunicator):
    """Sends beside what is computed: nothing arrives before it is waited for.

    sent  the parts that this shard sends, and a copy of what there is of its contributions then
    """

    sends_beside = True

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.sent: Sent = []
        self.arriving: list[tuple[Any, Any, slice]] = []

    def start_gather(self, own: Any, gathered: Any, part: slice) -> None:
        self.sent.append((part, own.copy()))  # as it is now, after what has been issued
        later = gathered.copy()
        super().start_gather(own, later, part)
        self.arriving.append((gathered, later, part))

    def wait_for_gathers(self) -> None:
        for gathered, later, part in self.arriving:
            gathered.reshape(self.size, -1)[:, part] = later.reshape(self.size, -1)[:, part]
        self.arriving.clear()


def workers_beside(options: Options, shards: int, backend: Backend) -> tuple[ThreadWorkers, Sent]:
    """Shards that send in parts however small they are, and what the first one sends."""
    backend = replace(backend, sizes=Sizes(least_part=0))
    workers = ThreadWorkers(options, shards, backend, SendsBeside)
    first = workers.communicators[0]
    assert isinstance(first, SendsBeside)
    return workers, first.sent


@pytest.mark.parametrize("shards", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_batches_have_the_ranks_of_the_model(
    backend: Backend, shards: int, *, weighted: bool
) -> None:
    beside = run_stream(backend, shards, weighted)
    *others, first = (beside[part::3] for part in range(3))
    assert all(span.start > 0 for part in others for span, _ in part)
    assert all(span.start == 0 for span, _ in first)


def test_batches_have_the_ranks_of_the_model_by_pages() -> None:
    backend = paging()
    swept = Paged(backend)
    run_stream(backend, 2, weighted=False)
    assert swept.sums > 0


def run_stream(backend: Backend, shards: int, weighted: bool) -> Sent:
    generator = np.random.default_rng(shards)
    options = Options(target_error=1e-9, weighted=weighted)
    model = WeightedModel(options.dangling) if weighted else Model(options.dangling)
    workers, sent = workers_beside(options, shards, backend)
    with ShardedEngine(options, workers=workers) as engine:
        for vertices in (2_400, 2_400, 2_400, 2_500):  # the last one adds rows
            batch = batch_for(generator, model, 400)
            batch = replace(batch, vertices=vertices)
            assert replace(engine.apply(batch), seconds=0.0) == model.apply(batch)
            for strategy in ("static", "auto"):
                assert_ranks(engine, model, engine.update(strategy).error_bound)
    return sent


def graph() -> EdgeBatch:
    generator = np.random.default_rng(4)
    sources, targets = (VERTICES * generator.random((2, 9_000)) ** 3).astype(np.int64)
    return EdgeBatch(sources, targets, vertices=VERTICES)


def sweep(shard: Member, written: Any) -> tuple[list[NDArray[Any]], Any]:
    """The vectors after one sweep from random ones, and its sums. written: the new contributions"""
    graph, generator = shard.graph, np.random.default_rng(shard.rank)
    run, view = graph.backend.run, graph.sweep_view(8.0 * VERTICES)
    assert (view.pages is not None) == (graph.backend.costs.pages == ALWAYS)
    device, xp = graph.backend.device, graph.backend.xp
    values, residual = map(device.to_device, generator.random((2, graph.vertices)))
    contributions = xp.zeros_like(written)
    run(QuantizeContributions(view, values, residual, contributions, 0.85, 0.0))
    arrays = (values, residual, contributions, written)
    result = run(Sweep(view, graph.in_rows(), *arrays, 0.85, 1e-4))
    return [device.to_host(values), device.to_host(residual)], result


OPTIONS = Options(vertex_order="degree")


def on_shards(workers: ThreadWorkers, run: Callable[[Member], Any]) -> list[Any]:
    with ShardedEngine(OPTIONS, workers=workers) as engine:
        engine.apply(graph())
        # pages are built before the first sweep that follows a batch
        engine.apply(EdgeBatch.of(insert=[(0, 1)], delete=[(2, 3)]))
        engine.update()
        return workers.together([run] * 2, [(shard,) for shard in workers.shards])


def test_a_sweep_in_parts_has_the_bits_of_one_in_one_part(backend: Backend) -> None:
    assert_same_bits(backend)


def test_so_has_a_sweep_by_pages() -> None:
    assert_same_bits(paging())


def assert_same_bits(backend: Backend) -> None:
    dtype = backend.sweeps.contribution_dtype

    def run(shard: Member) -> Any:
        written = backend.xp.zeros(shard.graph.columns, dtype)
        vectors, result = sweep(shard, written)
        of_shards = backend.device.to_host(written).reshape(3, -1)
        other = of_shards[2 - shard.rank]
        return [*vectors, of_shards[0], other], result

    whole = on_shards(ThreadWorkers(OPTIONS, 2, backend), run)
    parts = on_shards(workers_beside(OPTIONS, 2, backend)[0], run)
    for (expected, before), (vectors, result) in zip(whole, parts, strict=True):
        for one, other in zip(expected, vectors, strict=True):
            assert one.tobytes() == other.tobytes()
        assert before.residual_l1 == pytest.approx(result.residual_l1, rel=1e-14)
        assert before.largest_step == result.largest_step
    # each shard has what the other computed, and the same sums
    (first, of_first), (second, of_second) = parts
    assert of_first == of_second
    assert first[3].tolist() == second[2].tolist()
    assert second[3].tolist() == first[2].tolist()


def test_a_part_is_sent_before_the_next_one_is_computed(backend: Backend) -> None:
    sentinel = backend.sweeps.contribution_dtype(77)

    def run(shard: Member) -> Any:
        written = backend.xp.full(shard.graph.columns, sentinel)
        sweep(shard, written)
        return backend.device.to_host(written[: shard.graph.vertices])

    workers, sent = workers_beside(OPTIONS, 2, backend)
    final, _ = on_shards(workers, run)
    beside = sent[-3:]
    assert [span for span, _ in beside] == SPANS
    for span, copied in beside:
        first, seen = span.start, backend.device.to_host(copied)
        assert seen[first : len(final)].tolist() == final[first:].tolist()
        # kernels of the CPU compute all rows in one call
        assert (seen[:first] == sentinel).all() == (backend.name == "cuda" or first == 0)


@pytest.mark.parametrize("deflated", [False, True])
def test_a_sweep_by_pages_is_finished_in_parts_to_the_same_bits(*, deflated: bool) -> None:
    generator = np.random.default_rng(8)
    graph = DynamicGraph(paging(), "uniform", "given")
    graph.apply(skewed(generator, 6_000, VERTICES))
    graph.in_pages.want()
    view, rows, run = graph.sweep_view(1.0), graph.in_rows(), graph.backend.run
    assert view.pages is not None
    first = generator.random((2, VERTICES))
    z, z_residual = generator.random((2, VERTICES))
    vector = DeflationVector(z, z_residual, 0.3) if deflated else None
    contributions, sentinel = np.zeros(VERTICES, np.uint16), np.uint16(77)
    run(QuantizeContributions(view, first[0], first[1], contributions, 0.85, 0.0))

    def swept(rows: Rows, written: NDArray[np.uint16]) -> tuple[NDArray[Any], SweepResult]:
        values, residual = first.copy()
        arrays = (values, residual, contributions, written)
        sweep = Sweep(view, rows, *arrays, 0.85, 1e-4, vector, 0.1 if vector else 0.0)
        result = run(sweep)
        return np.concatenate([values, residual]), result

    final = np.full(VERTICES, sentinel)
    expected, whole = swept(rows, final)
    written, seen = np.full(VERTICES, sentinel), list[NDArray[np.uint16]]()
    spans = [(700, VERTICES + 8), (100, 700), (0, 100)]
    parts = tuple(RowPart(rows, span) for span in spans)
    vectors, result = swept(
        replace(rows, parts=parts, issued=lambda _: seen.append(written.copy())), written
    )
    assert vectors.tobytes() == expected.tobytes()
    assert written.tolist() == final.tolist()
    assert result.residual_l1 == pytest.approx(whole.residual_l1, rel=1e-14)
    for (begin, _), copy in zip(spans, seen, strict=True):
        assert copy[begin:].tolist() == final[begin:].tolist()
        assert (copy[:begin] == sentinel).all()


class Beside(SingleCommunicator):
    sends_beside = True


def divided_of(communicator: SingleCommunicator, least_part: int) -> DividedRows:
    backend = replace(CPU, sizes=Sizes(least_part=least_part))
    return DividedRows(backend, Columns(backend, communicator))


def test_parts_have_all_rows_and_are_kept_until_rows_or_groups_change() -> None:
    generator = np.random.default_rng(3)
    divided = divided_of(Beside(), least_part=0)
    order = np.concatenate([np.sort(each) for each in np.split(generator.permutation(900), 3)])
    rows = Rows(order.astype(np.int32), np.array([0, 0, 300, 600, 900]))
    spans = divided.spans(np.zeros(2 * 960, np.float32))
    assert spans == ((448, 960), (64, 448), (0, 64))
    parts = divided.parts(rows, spans)
    assert tuple(part.span for part in parts) == spans
    for part, (first, end) in parts:
        for of_all, of_part in zip(pairwise(rows.groups), pairwise(part.groups), strict=True):
            group = order[slice(*of_all)]
            expected = group[(group >= first) & (group < end)]
            assert part.order[slice(*of_part)].tolist() == expected.tolist()
    assert divided.parts(Rows(rows.order, rows.groups), spans) is parts
    # a new row, in the last group; and another partition in the same array
    rows.groups[-1] = 901
    grown = Rows(np.append(rows.order, np.int32(900)), rows.groups)
    of_grown = divided.parts(grown, spans)
    assert sum(part.rows.count for part in of_grown) == 901
    assert divided.parts(Rows(grown.order, grown.groups.copy()), spans) is not of_grown


def test_few_rows_and_few_bytes_are_sent_at_once() -> None:
    def parts(rows: int, communicator: SingleCommunicator, least_part: int = 0) -> int:
        return len(divided_of(communicator, least_part).spans(np.zeros(2 * rows, np.float32)))

    beside, alone = Beside(), SingleCommunicator()
    assert (parts(448, beside), parts(512, beside), parts(512, alone)) == (1, 3, 1)
    least = Sizes().least_part
    assert least == 1 << 23
    assert (parts((1 << 21) - 64, beside, least), parts(1 << 21, beside, least)) == (1, 3)


def test_parts_are_sent_on_another_stream_and_each_waits_for_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emulated_nccl.install(monkeypatch)
    identity, size, room = unique_id(), 3, 128
    generator = np.random.default_rng(1)
    own = generator.integers(0, 1 << 16, (size, room)).astype(np.uint16)

    def run(rank: int) -> NDArray[np.uint16]:
        communicator = NcclCommunicator(rank, size, identity)
        columns = Columns(CPU, communicator)
        contributions = np.zeros((size + 1) * room, np.uint16)
        contributions[:room] = own[rank]
        columns.start_gather(contributions, slice(32, room))
        columns.start_gather(contributions, slice(0, 32))
        columns.wait_for_gathers()
        sent = np.arange(4 * size).reshape(size, 4) + 100 * rank
        received = np.full((size, 4), -1)
        # a part of each message
        communicator.swap(sent[:, :3], received[:, :3])
        assert (received[:, 3] == -1).all()
        assert (received[rank] == -1).all()
        for peer in set(range(size)) - {rank}:
            assert (received[peer, :3] == np.arange(3) + 4 * rank + 100 * peer).all()
        assert communicator.gather(np.array([rank, 2.5])).tolist() == [
            [each, 2.5] for each in range(size)
        ]
        return contributions.reshape(size + 1, room)[1:]

    with ThreadPoolExecutor(size) as threads:
        found = list(threads.map(run, range(size)))
    for rank, gathered in enumerate(found):
        others = np.arange(size) != rank
        assert (gathered[others] == own[others]).all()
        assert (gathered[rank] == 0).all()
    streams = {number for each in emulated_nccl.Communicator.created for number in each.streams}
    assert emulated_nccl.CURRENT.ptr in streams  # of what is swapped
    streams.remove(emulated_nccl.CURRENT.ptr)
    assert len(streams) == size
    for number in streams:
        # each part was computed in the current stream, which waits before it goes on
        assert emulated_nccl.Stream.created[number].waited == [0, 0]
        assert number in emulated_nccl.CURRENT.waited
