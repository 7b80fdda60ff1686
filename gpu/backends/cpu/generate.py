"""Graphs drawn on ``cpu``."""

from __future__ import annotations

import numpy as np

from gpu.backends.cpu.device import CpuDevice
from gpu.jit.compile import helper, inlined, kernel, sequential
from gpu.jit.random_numbers import GOLDEN_GAMMA, below, fill, mix
from gpu.operations.device import Array
from gpu.operations.generate import FEISTEL_ROUNDS, GenerateOperations, feistel_bits

_LEAST_SEGMENT = 4096
_SEGMENT_SHIFT = 7
"""A segment has a 128th of the vertices before it, at least 4096."""

_COIN_SHIFT = np.uint64(11)
_ONE = np.uint64(1)


class CpuGenerate(GenerateOperations):
    """See GenerateOperations."""

    def __init__(self, device: CpuDevice) -> None:
        self._device = device

    def random_numbers(self, start: np.uint64, skipped: int, count: int) -> Array:
        numbers = np.empty(count, np.uint64)
        fill(count, start, skipped, numbers)
        return numbers

    def preferential_attachment(
        self, start: np.uint64, vertices: int, edges_per_vertex: int, threshold: np.uint64
    ) -> Array:
        # A segment's vertices run at the same time and link through vertices before the segment.
        # Few copy edges lead into the segment itself; their vertices follow, in order.
        d = edges_per_vertex
        count = (vertices - d) * d
        self._device.require("the generated graph", 4 * count)
        links = self._device.allocate("the generated graph", count, np.int32).reshape(-1, d)
        first = d
        while first < vertices:
            size = min(max(_LEAST_SEGMENT, first >> _SEGMENT_SHIFT), vertices - first)
            _attach_segment(size, first, links, start, threshold)
            _attach_rest(first, first + size, links, start, threshold)
            first += size
        return links

    def uniform(self, start: np.uint64, vertices: int, edges: int) -> tuple[Array, Array]:
        self._device.require("the generated graph", 8 * edges)
        columns = [
            self._device.allocate("the generated graph", edges, np.int32) for _ in ("from", "to")
        ]
        bits = np.uint64(feistel_bits(vertices))
        _permuted_pairs(edges, start, np.uint64(vertices), bits, *columns)
        return columns[0], columns[1]


@inlined
def _is_linked(links, row, edge, candidate):  # type: ignore[no-untyped-def]
    """Whether one of the first `edge` links of a row is `candidate`."""
    earlier = 0
    while earlier < edge and links[row, earlier] != candidate:
        earlier += 1
    return earlier < edge


@helper
def _attach(v, known, links, start, threshold):  # type: ignore[no-untyped-def]
    """Draws the edges of v. If a copy edge needs an edge of a vertex from `known` on, the last
    entry of the row is -1 instead.
    """
    d = links.shape[1]
    row = v - d
    for edge in range(d):
        key = mix(start + np.uint64(v * d + edge + 1) * GOLDEN_GAMMA)
        while True:
            key += GOLDEN_GAMMA
            candidate = np.int64(below(mix(key), np.uint64(v)))
            key += GOLDEN_GAMMA
            is_copy = (mix(key) >> _COIN_SHIFT) >= threshold
            key += GOLDEN_GAMMA
            if is_copy and candidate >= d:
                if candidate >= known:
                    links[row, d - 1] = -1
                    return
                candidate = np.int64(links[candidate - d, below(mix(key), np.uint64(d))])
            elif is_copy and d > 1:
                other = np.int64(below(mix(key), np.uint64(d - 1)))
                candidate = other + (1 if other >= candidate else 0)
            if not _is_linked(links, row, edge, candidate):
                links[row, edge] = candidate
                break


@kernel(grain=256)
def _attach_segment(first, last, segment, links, start, threshold):  # type: ignore[no-untyped-def]
    """Draws the edges of vertices from `segment` on that depend on none of them."""
    for item in range(first, last):
        _attach(segment + item, segment, links, start, threshold)


@sequential
def _attach_rest(first, last, links, start, threshold):  # type: ignore[no-untyped-def]
    """Draws the edges of the vertices that `_attach_segment` has left."""
    d = links.shape[1]
    for v in range(first, last):
        if links[v - d, d - 1] < 0:
            _attach(v, v, links, start, threshold)


@kernel(grain=1 << 12)
def _permuted_pairs(first, last, start, vertices, bits, sources, targets):  # type: ignore[no-untyped-def]
    """Pairs `first` to `last` of the permutation: a Feistel network over 2 · bits bits, applied
    again while the result is no pair (cycle walking).
    """
    pairs = vertices * (vertices - _ONE)
    mask = (_ONE << bits) - _ONE
    for edge in range(first, last):
        value = np.uint64(edge)
        while True:
            left = value >> bits
            right = value & mask
            for round_ in range(FEISTEL_ROUNDS):
                counter = (np.uint64(round_) << bits) + right + _ONE
                swapped = left ^ (mix(start + counter * GOLDEN_GAMMA) & mask)
                left = right
                right = swapped
            value = (left << bits) | right
            if value < pairs:
                break
        source = value // (vertices - _ONE)
        target = value - source * (vertices - _ONE)
        sources[edge] = np.int32(source)
        targets[edge] = np.int32(target + (_ONE if target >= source else np.uint64(0)))
