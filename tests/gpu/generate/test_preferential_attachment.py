"""Preferential attachment: the specified graph on every backend, and its limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from liverank_gpu import Engine, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.backends.cpu import generate as cpu_generate
from liverank_gpu.backends.cpu.device import CpuDevice
from liverank_gpu.backends.cuda.kernels.loader import WARP
from liverank_gpu.errors import InvalidValue, OutOfMemory
from liverank_gpu.generate import PreferentialAttachment, preferential_attachment, uniform
from liverank_gpu.operations.backend import Backend
from tests.gpu.doubles import instead
from tests.gpu.generate import copy_model

PROBABILITIES = (0.0, 0.25, 0.5, 0.9, 1.0)


@pytest.mark.any_thread_order
@pytest.mark.parametrize("probability", PROBABILITIES)
@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_graph_is_the_specified_one(backend: Backend, d: int, probability: float) -> None:
    for seed in (0, 2**64 - 1):
        graph = preferential_attachment(900, d, probability=probability, seed=seed, backend=backend)
        assert graph.links.shape == (900 - d, d)
        assert graph.links.dtype == np.int32
        assert graph.links.tolist() == copy_model.links(900, d, probability, seed)


def test_many_edges_a_vertex_fill_the_filter_of_known_links(backend: Backend) -> None:
    graph = preferential_attachment(250, 130, probability=0.3, seed=5, backend=backend)
    assert graph.links.tolist() == copy_model.links(250, 130, 0.3, 5)


@pytest.mark.any_thread_order
@pytest.mark.parametrize(("warps", "per_lane"), [(1, 1), (3, 1), (1, 8), (40, 2)])
def test_no_launch_shape_changes_it(backend: Backend, warps: int, per_lane: int) -> None:
    if backend.name != "cuda":
        pytest.skip("it launches nothing")
    expected = preferential_attachment(5000, 3, probability=0.1, seed=7)
    generate = instead(backend.generate, attachment_shape=lambda *_: (warps, WARP * per_lane))
    launched = replace(backend, generate=generate)
    graph = preferential_attachment(5000, 3, probability=0.1, seed=7, backend=launched)
    assert graph.links.tolist() == expected.links.tolist()


def test_segments_of_the_cpu_do_not_change_it() -> None:
    # more than 4,096 vertices, which are one
    graph = preferential_attachment(30_000, 4, probability=0.5, seed=3)
    assert graph.links.tolist() == copy_model.links(30_000, 4, 0.5, 3)


def test_a_seed_never_changes_its_graph(backend: Backend) -> None:
    graph = preferential_attachment(20_000, 4, probability=0.5, seed=11, backend=backend)
    assert graph.links[-1].tolist() == [38, 6968, 470, 18299]
    assert int(graph.links.sum(dtype=np.int64)) == 267_918_406


def test_no_vertex_has_parallel_edges_or_links_to_a_later_one(backend: Backend) -> None:
    for d, probability in ((7, 0.0), (7, 0.5), (3, 1.0)):
        graph = preferential_attachment(3000, d, probability=probability, seed=2, backend=backend)
        links = backend.device.to_host(graph.links)
        assert links.min() >= 0
        assert np.all(links < np.arange(d, 3000)[:, None])
        in_order = np.sort(links, axis=1)
        assert np.all(in_order[:, 1:] != in_order[:, :-1])


def test_without_direct_edges_every_vertex_links_to_the_clique(backend: Backend) -> None:
    graph = preferential_attachment(500, 4, probability=0.0, seed=9, backend=backend)
    links = backend.device.to_host(graph.links)
    assert np.array_equal(np.sort(links, axis=1), np.tile(np.arange(4), (496, 1)))
    star = preferential_attachment(500, 1, probability=0.0, seed=9, backend=backend)
    assert not star.links.any()


def test_with_direct_edges_alone_every_earlier_vertex_is_as_likely(backend: Backend) -> None:
    graph = preferential_attachment(4000, 1, probability=1.0, seed=4, backend=backend)
    part = backend.device.to_host(graph.links)[:, 0] / np.arange(1, 4000)
    # Kolmogorov-Smirnov: 1.95 / √3999 is exceeded by one sample in a thousand.
    highest = np.abs(np.sort(part) - np.arange(1, 4000) / 4000).max()
    assert highest < 1.95 / np.sqrt(3999)


def test_the_first_vertices_are_a_clique(backend: Backend) -> None:
    graph = preferential_attachment(4, 4, backend=backend)
    assert graph.links.shape == (0, 4)
    sources, targets = graph.edge_list()
    assert sources.dtype == targets.dtype == np.int64
    assert list(zip(sources.tolist(), targets.tolist(), strict=True)) == [
        (1, 0),
        (2, 0),
        (2, 1),
        (3, 0),
        (3, 1),
        (3, 2),
    ]
    assert graph.edges == len(sources) == 6
    assert preferential_attachment(1, 1, backend=backend).edges == 0


def test_columns_are_those_of_the_links(backend: Backend) -> None:
    graph = preferential_attachment(60, 3, seed=1, backend=backend)
    sources, targets = graph.edge_list()
    assert len(sources) == graph.edges == 3 + 57 * 3
    assert sources[3:].tolist() == np.repeat(np.arange(3, 60), 3).tolist()
    assert targets[3:].tolist() == graph.links.ravel().tolist()
    some = graph.columns(2, 10)
    assert some[0].dtype == some[1].dtype == np.int32
    assert some[0].tolist() == sources[1 : graph.edges_before(10)].tolist()
    assert some[1].tolist() == targets[1 : graph.edges_before(10)].tolist()
    for on_host, where_drawn in zip(graph.edge_list(2, 10), some, strict=True):
        assert on_host.dtype == np.int64
        assert on_host.tolist() == where_drawn.tolist()


@pytest.mark.parametrize("size", [1, 7, 60, 100])
def test_in_the_stream_vertices_arrive_in_order(backend: Backend, size: int) -> None:
    graph = preferential_attachment(60, 3, seed=1, backend=backend)
    engine = Engine(Options(), backend)
    seen = 0
    for batch in graph.stream(size):
        engine.apply(batch)
        seen = min(seen + size, 60)
        assert engine.vertices == seen
        assert engine.edges == graph.edges_before(seen)
    assert seen == 60
    expected = set(zip(*(ends.tolist() for ends in graph.edge_list()), strict=True))
    assert set(zip(*(ends.tolist() for ends in engine.edge_list()), strict=True)) == expected


def test_a_graph_without_memory_is_refused_before_it_is_drawn() -> None:
    with pytest.raises(OutOfMemory, match="the generated graph needs 8,589,934,5"):
        preferential_attachment(2**29, 4, backend=small_backend())
    with pytest.raises(OutOfMemory, match=f"the generated graph needs {8 * 2**27:,} bytes"):
        uniform(2**20, 2**27, backend=small_backend())


def small_backend() -> Backend:
    class Small(CpuDevice):
        def memory_available(self) -> int:
            return 10**9

    return replace(backend_named("cpu"), generate=cpu_generate.CpuGenerate(Small()))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: preferential_attachment(3, 4),
            "vertices: 3 is not allowed; it must be at least edges_per_vertex, 4",
        ),
        (
            lambda: preferential_attachment(0, 1),
            "vertices: 0 is not allowed; it must be an integer from 1 to 2147483647",
        ),
        (
            lambda: preferential_attachment(9, 0),
            "edges_per_vertex: 0 is not allowed; it must be an integer from 1 to 2147483647",
        ),
        (
            lambda: preferential_attachment(9, 2, probability=1.5),
            "probability: 1.5 is not allowed; it must be a number from 0 to 1",
        ),
        (
            lambda: preferential_attachment(9, 2, probability=float("nan")),
            "probability: nan is not allowed; it must be a number from 0 to 1",
        ),
        (
            lambda: next(preferential_attachment(9, 2).stream(0)),
            "size: 0 is not allowed; it must be an integer from 1 to 2147483647",
        ),
    ],
)
def test_bad_arguments_are_named(call: Callable[[], PreferentialAttachment], message: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        call()
    assert str(refusal.value) == message
