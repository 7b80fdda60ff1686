"""The published algorithm of preferential attachment: graphs, queues, segments and limits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pytest

from liverank_gpu.backends import backend_named
from liverank_gpu.errors import InvalidValue
from liverank_gpu.generate import preferential_attachment as ours
from liverank_gpu.generate.published import Drawn, Rounds, preferential_attachment
from liverank_gpu.native import kernels
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.generate import (
    ATTACHMENT_SEQUENCE,
    ExecuteCopyModel,
    Threads,
    sequence_start,
    threshold,
)
from tests.cuda_emulator.emulated import emulated_backend
from tests.gpu.generate import copy_model, cuppa

Options = dict[str, Any]

SCHEMES: tuple[Options, ...] = (
    {"scheme": "rrp"},
    {"scheme": "srrp", "segments": "fixed"},
    {"scheme": "srrp", "segments": "dynamic"},
)


def links_of(drawn: Drawn) -> list[list[int]]:
    links: list[list[int]] = drawn.graph.backend.device.to_host(drawn.graph.links).tolist()
    return links


def counts_of(rounds: Rounds) -> list[tuple[int, int, int]]:
    columns = (rounds.queued, rounds.largest, rounds.passes)
    return [*zip(*(column.tolist() for column in columns), strict=True)]


@pytest.fixture(scope="module")
def emulated() -> Backend:
    return emulated_backend()


@pytest.fixture
def one_core() -> Iterator[None]:
    kernels.set_threads(1)
    yield
    kernels.set_threads(0)


@pytest.mark.reference
@pytest.mark.any_thread_order
@pytest.mark.parametrize("options", SCHEMES, ids=lambda options: "-".join(options.values()))
@pytest.mark.parametrize(("d", "probability"), [(1, 0.0), (1, 0.4), (3, 1.0)])
def test_where_no_order_matters_the_graph_is_ours(
    backend: Backend, d: int, probability: float, options: Options
) -> None:
    drawn = preferential_attachment(
        700,
        d,
        probability=probability,
        seed=3,
        threads=40,
        capacity=160,
        backend=backend,
        **options,
    )
    assert links_of(drawn) == copy_model.links(700, d, probability, 3)


@pytest.mark.reference
@pytest.mark.parametrize("options", SCHEMES, ids=lambda options: "-".join(options.values()))
def test_one_thread_draws_our_graph_and_nothing_waits(backend: Backend, options: Options) -> None:
    drawn = preferential_attachment(
        700,
        4,
        probability=0.3,
        seed=5,
        blocks=1,
        threads=1,
        capacity=400,
        backend=backend,
        **options,
    )
    assert links_of(drawn) == ours(700, 4, probability=0.3, seed=5).links.tolist()
    assert counts_of(drawn.rounds) == [(0, 0, 0)] * len(drawn.rounds.vertices)
    assert drawn.rounds.vertices.sum() == 696


@pytest.mark.any_thread_order
@pytest.mark.parametrize("options", SCHEMES, ids=lambda options: "-".join(options.values()))
@pytest.mark.parametrize("probability", [0.0, 0.3, 0.8])
def test_each_edge_is_the_first_attempt_that_makes_no_parallel_edge(
    backend: Backend, probability: float, options: Options
) -> None:
    for d, n in ((2, 900), (7, 600)):
        drawn = preferential_attachment(
            n,
            d,
            probability=probability,
            seed=d,
            threads=60,
            capacity=480,
            backend=backend,
            **options,
        )
        links = links_of(drawn)
        assert np.shape(links) == (n - d, d)
        failed = cuppa.check_outcome(links, d, probability, d)
        assert failed > 0
        if probability == 0.0:
            assert {end for row in links for end in row} == {*range(d)}


@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize("where", ["cpu", "emulated"])
@pytest.mark.parametrize("probability", [0.0, 0.5])
@pytest.mark.parametrize(
    ("options", "threads", "capacity"),
    [
        ({"scheme": "rrp"}, 1, 6144),
        ({"scheme": "rrp"}, 60, 6144),
        ({"scheme": "srrp", "segments": "fixed"}, 60, 540),
        ({"scheme": "srrp", "segments": "dynamic"}, 60, 540),
        ({"scheme": "srrp", "segments": "dynamic"}, 40, 180),
    ],
)
def test_queues_hold_what_waits_when_threads_run_in_turns(
    emulated: Backend,
    where: str,
    options: Options,
    threads: int,
    capacity: int,
    probability: float,
) -> None:
    """On one core and on the emulated device it is known who runs when."""
    d, backend = 3, emulated if where == "emulated" else backend_named("cpu")
    drawn = preferential_attachment(
        800,
        d,
        probability=probability,
        seed=8,
        blocks=1,
        threads=threads,
        capacity=capacity,
        backend=backend,
        **options,
    )
    rounds = drawn.rounds
    limited = where == "emulated" and options["scheme"] == "srrp"
    segments = [
        (size, block, max(1, capacity // block) if limited else math.inf)
        for size, block in zip(rounds.vertices.tolist(), rounds.threads.tolist(), strict=True)
    ]
    graph = cuppa.Graph(800, d, probability, 8)
    assert cuppa.draw(graph, segments, last_begins=where == "emulated") == counts_of(rounds)
    assert links_of(drawn) == [*graph.links.values()]
    if threads > 1:
        assert rounds.queued.max() > 20


def test_a_fixed_segment_has_room_for_all_edges_of_its_vertices(backend: Backend) -> None:
    """Section 3.3: τ = min(C/d, θ) threads of a block, C/(dτ) vertices of a thread."""
    for d, threads, expected, block in ((4, 32, 192, 32), (40, 32, 19, 19), (1000, 32, 1, 1)):
        drawn = preferential_attachment(
            d + 2 * expected + 1,
            d,
            probability=0.5,
            segments="fixed",
            blocks=1,
            threads=threads,
            capacity=768,
            backend=backend,
        )
        assert drawn.rounds.vertices.tolist() == [expected, expected, 1]
        assert drawn.rounds.threads.tolist() == [block] * 3


def test_dynamic_segments_double_while_queues_are_less_than_half_full(backend: Backend) -> None:
    n, d, threads, capacity = 6000, 2, 50, 400
    drawn = preferential_attachment(
        n,
        d,
        probability=0.9,
        seed=1,
        segments="dynamic",
        blocks=1,
        threads=threads,
        capacity=capacity,
        backend=backend,
    )
    sizes, largest = drawn.rounds.vertices.tolist(), drawn.rounds.largest.tolist()
    expected, grown, left = [], capacity, n - d
    for each in largest:
        expected.append(min(threads * (grown // (d * threads)), left))
        left -= expected[-1]
        grown *= 2 if 2 * each < capacity // threads else 1
    assert sizes == expected
    assert sizes[0] == 200
    assert max(sizes) > 400


@pytest.mark.parametrize("order", ["forward", "shuffled"])
def test_a_full_queue_is_resolved_before_the_thread_goes_on(
    order: Literal["forward", "shuffled"],
) -> None:
    n, d, probability, threads = 1500, 2, 0.2, Threads(1, 70, 3)
    links = np.full((n - d, d), -1, np.int32)
    start, direct = sequence_start(4, ATTACHMENT_SEQUENCE), threshold(probability)
    execute = ExecuteCopyModel(links, d, n, start, direct, threads)
    counts = emulated_backend(order).run(execute)
    queued, largest, passes = counts.tolist()
    assert queued > 2 * threads.threads * threads.room
    assert largest == threads.room
    assert passes > 1
    cuppa.check_outcome(links.tolist(), d, probability, 4)
    if order == "forward":
        graph = cuppa.Graph(n, d, probability, 4)
        expected = cuppa.draw(graph, [(n - d, threads.threads, 3)], last_begins=True)
        assert [(queued, largest, passes)] == expected


def test_more_edges_than_shared_memory_holds_wait_in_that_of_the_device(emulated: Backend) -> None:
    drawn = preferential_attachment(
        3000, 4, probability=0.1, seed=2, scheme="rrp", threads=16, backend=emulated
    )
    # 16 threads, 188 vertices and 752 places each: 94 KiB
    assert drawn.rounds.largest.tolist() > [376]
    cuppa.check_outcome(links_of(drawn), 4, 0.1, 2)


def test_a_clique_has_no_rounds(backend: Backend) -> None:
    drawn = preferential_attachment(4, 4, backend=backend)
    assert drawn.graph.edges == 6
    assert len(drawn.rounds.vertices) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "rr"}, "scheme: 'rr' is not allowed; it must be 'rrp' or 'srrp'"),
        ({"segments": "all"}, "segments: 'all' is not allowed; it must be 'fixed' or 'dynamic'"),
        ({"threads": 1025}, "threads: 1025 is not allowed; it must be an integer from 1 to 1024"),
        ({"blocks": 0}, "blocks: 0 is not allowed; it must be an integer from 1 to 65536"),
        ({"capacity": 0}, "capacity: 0 is not allowed; it must be an integer from 1 to 2147483647"),
        ({"vertices": 3}, "vertices: 3 is not allowed; it must be at least edges_per_vertex, 4"),
        (
            {"vertices": 2**30 + 4},
            "vertices: 1073741828 is not allowed; it must be at most 2³² / edges_per_vertex: an"
            " edge that waits has places of 32 bits",
        ),
    ],
)
def test_bad_arguments_are_named(options: Options, message: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        preferential_attachment(**{"vertices": 50, "edges_per_vertex": 4, **options})
    assert str(refusal.value) == message


def test_more_blocks_than_multiprocessors_would_wait_for_each_other(emulated: Backend) -> None:
    with pytest.raises(InvalidValue) as refusal:
        preferential_attachment(50, 4, blocks=2, backend=emulated)
    assert str(refusal.value) == (
        "blocks: 2 is not allowed; it must be at most the multiprocessors of the device, 1"
    )
