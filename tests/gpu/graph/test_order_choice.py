"""Which order of vertices `auto` chooses, and how it counts the lines that sweeps read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from liverank_gpu.generate import rmat
from liverank_gpu.graph.vertices import (
    VertexPermutation,
    cache_lines_of_chunks,
    cache_lines_per_edge,
    choose_permutation,
)
from liverank_gpu.operations.backend import Backend, Sizes
from liverank_gpu.types import VertexOrder

Edges = tuple[NDArray[np.int64], NDArray[np.int64]]


def _grid(side: int) -> Edges:
    vertex = np.arange(side * side).reshape(side, side)
    pairs = [(vertex[:, :-1], vertex[:, 1:]), (vertex[:-1], vertex[1:])]
    first = np.concatenate([one.ravel() for one, _ in pairs])
    second = np.concatenate([other.ravel() for _, other in pairs])
    return np.concatenate([first, second]), np.concatenate([second, first])


def _shuffled(edges: Edges) -> Edges:
    labels = np.random.default_rng(5).permutation(max(ids.max() for ids in edges) + 1)
    return labels[edges[0]], labels[edges[1]]


def _check_choice(
    edges: Edges, given: float, by_degree: float, chosen: VertexOrder, backend: Backend
) -> None:
    """The lines that a sweep reads per edge, and what `auto` makes of it."""
    vertices = int(max(ids.max() for ids in edges)) + 1
    sources, targets = backend.graph.columns(*edges)
    in_degree = backend.xp.bincount(targets, minlength=vertices)
    found = [
        cache_lines_per_edge(
            backend,
            choose_permutation(backend, order, sources, targets, vertices),
            sources,
            targets,
            in_degree,
        )
        for order in ("given", "degree")
    ]
    assert [round(lines, 3) for lines in found] == [given, by_degree]
    auto = choose_permutation(backend, "auto", sources, targets, vertices)
    assert auto.is_identity == (chosen == "given")


SYNTHETIC: dict[str, tuple[Callable[[], Edges], float, float, VertexOrder]] = {
    "shuffled R-MAT": (lambda: rmat(17, 16, seed=3), 0.115, 0.059, "degree"),
    "R-MAT": (lambda: rmat(17, 16, seed=3, shuffle=False), 0.073, 0.059, "degree"),
    "grid": (lambda: _grid(400), 0.016, 0.016, "given"),
    "shuffled grid": (lambda: _shuffled(_grid(400)), 0.152, 0.152, "given"),
}


@pytest.mark.parametrize("name", SYNTHETIC)
def test_auto_takes_the_order_of_which_sweeps_read_fewer_lines(name: str, backend: Backend) -> None:
    edges, given, by_degree, chosen = SYNTHETIC[name]
    _check_choice(edges(), given, by_degree, chosen, backend)


REAL: dict[str, tuple[str, float, float, VertexOrder]] = {
    "a web graph sorted by address": ("cnr-2000/cnr-2000.txt.zst", 0.016, 0.024, "given"),
    "co-authors": ("dblp-2010/dblp-2010.txt.zst", 0.081, 0.097, "given"),
}


@pytest.mark.parametrize("name", REAL)
def test_auto_keeps_an_order_that_says_who_is_linked_to_whom(
    name: str, backend: Backend, data: Path
) -> None:
    file, given, by_degree, chosen = REAL[name]
    edges = _read(data / file)
    _check_choice(edges, given, by_degree, chosen, backend)


def _read(path: Path) -> Edges:
    with pa.input_stream(path, compression="zstd") as stream:
        rows = np.array(stream.read().split(), np.int64)
    return rows[0::2].copy(), rows[1::2].copy()


@pytest.mark.parametrize("renumbered", [False, True])
def test_lines_are_counted_once_in_a_stretch_of_rows(renumbered: bool, backend: Backend) -> None:
    generator = np.random.default_rng(4)
    edges = (400 * generator.random((2, 3_000)) ** 2).astype(np.int64)
    ids = generator.permutation(400 if renumbered else 0).astype(np.int32)
    position = {int(vertex): place for place, vertex in enumerate(ids)}
    rows: list[list[int]] = [[] for _ in range(400)]
    for source, target in edges.T.tolist():
        rows[position.get(target, target)].append(position.get(source, source))
    # eight stretches, from the row with the edge that begins it to that with the edge behind it
    shares = []
    ends = np.cumsum([len(row) for row in rows])
    for begin in range(0, 3_000, 375):
        first, last = (int((ends <= edge).sum()) for edge in (begin, begin + 100))
        read = [neighbour for row in rows[first : last + 1] for neighbour in row]
        shares.append(len({neighbour // 16 for neighbour in read}) / len(read))
    sources, targets = backend.graph.columns(*edges)
    given = VertexPermutation(backend, backend.device.to_device(ids))
    in_degree = backend.xp.bincount(targets, minlength=400)
    pieces = (
        (sources[first : first + 700], targets[first : first + 700])
        for first in range(0, 3_000, 700)
    )
    lines = cache_lines_of_chunks(backend, given, pieces, 3_000, in_degree, longest=100)
    assert lines == pytest.approx(np.mean(shares), rel=1e-12)
    at_once, by_pieces = (
        cache_lines_per_edge(replace(backend, sizes=sizes), given, sources, targets, in_degree)
        for sizes in (Sizes(), Sizes(entries=700))
    )
    assert by_pieces == at_once


def test_small_graphs_keep_the_order_given(backend: Backend) -> None:
    sources, targets = backend.graph.columns(*rmat(12, 16, seed=3))
    assert choose_permutation(backend, "auto", sources, targets, 1 << 12).is_identity
    assert not choose_permutation(backend, "degree", sources, targets, 1 << 12).is_identity
