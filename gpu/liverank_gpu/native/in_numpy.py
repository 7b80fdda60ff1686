"""Kernels that more than the ``cpu`` backend calls, in NumPy: for installations without the
extension, which have the backend ``reference``. Arguments and results are those of the kernels.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)

Mixed = TypeVar("Mixed", np.uint64, NDArray[np.uint64])


def mixed(state: Mixed) -> Mixed:
    """The output function of SplitMix64, of a number or of each in an array."""
    state = (state ^ (state >> _30)) * _FIRST
    state = (state ^ (state >> _27)) * _SECOND
    return state ^ (state >> _31)


def fill_random(start: np.uint64, skipped: int, numbers: NDArray[np.uint64]) -> None:
    """See liverank_gpu.operations.generate."""
    first = skipped + 1
    counters = np.arange(first, first + len(numbers), dtype=np.uint64)
    numbers[:] = mixed(start + counters * GOLDEN_GAMMA)


def draw_rmat(
    start: np.uint64, scale: int, thresholds: Any, sources: NDArray[Any], targets: NDArray[Any]
) -> None:
    """See liverank_gpu.generate.graphs."""
    sources[:], targets[:] = 0, 0
    for level in range(scale):
        counters = np.arange(len(sources), dtype=np.uint64) * np.uint64(scale)
        numbers = mixed(start + (counters + np.uint64(level + 1)) * GOLDEN_GAMMA)
        quarter = np.searchsorted(thresholds, numbers, "right")
        sources[:] = 2 * sources + quarter // 2
        targets[:] = 2 * targets + quarter % 2


def pack_entries(
    starts: NDArray[Any], lengths: NDArray[Any], entries: NDArray[Any], packed: NDArray[Any]
) -> None:
    """See liverank_gpu.snapshot.Snapshot: the rows one after the other, each aligned."""
    ends = np.cumsum(lengths, dtype=np.int64)
    places = np.arange(int(ends[-1]) if len(ends) else 0)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    in_row = places - (ends - lengths)[rows]
    packed[_begins(lengths)[rows] + in_row] = entries[starts[rows] + in_row]


def extent(ids: NDArray[Any]) -> tuple[int, int]:
    """See liverank_gpu.columns."""
    return int(ids.min()), int(ids.max())


def narrow(ids: NDArray[Any], narrowed: NDArray[np.int32]) -> None:
    """See liverank_gpu.backends.cuda.device."""
    narrowed[:] = np.minimum(ids.astype(np.int64).view(np.uint64), 2**31 - 1)


def copy(source: NDArray[np.uint8], target: NDArray[np.uint8]) -> None:
    """See liverank_gpu.backends.cuda.device."""
    target[:] = source


def threads() -> int:
    return 1


def set_threads(most: int) -> None:
    """There is one."""


# ---- see liverank_gpu.backends.cpu.graph ----


def count_ends(keys: NDArray[Any], in_degree: NDArray[Any], out_degree: NDArray[Any]) -> int:
    targets, sources = keys >> 32, keys & 0xFFFFFFFF
    np.add.at(in_degree, targets, 1)
    np.add.at(out_degree, sources, 1)
    return int(in_degree[targets].max(initial=0))


def renumber(keys: NDArray[Any], positions: NDArray[Any]) -> None:
    keys[:] = positions[keys >> 32].astype(np.int64) << 32 | positions[keys & 0xFFFFFFFF]


def sort_by_bucket(
    keys: NDArray[Any],
    values: NDArray[Any] | None,
    first_keys: NDArray[Any],
    buckets: NDArray[Any],
    bounds: NDArray[Any],
    sorted_keys: NDArray[Any],
    sorted_values: NDArray[Any] | None,
) -> None:
    buckets[:] = np.searchsorted(first_keys, keys, "right") - 1
    bounds[1:-1] = np.cumsum(np.bincount(buckets, minlength=len(first_keys)))
    bounds[-1] = len(keys)
    _sort(buckets, keys, values, sorted_keys, sorted_values)


def sort_by_digit(
    keys: NDArray[Any],
    values: NDArray[Any],
    shift: int,
    places: NDArray[Any],
    sorted_keys: NDArray[Any],
    sorted_values: NDArray[Any],
) -> None:
    _sort(keys >> shift & len(places) - 2, keys, values, sorted_keys, sorted_values)


def _sort(
    by: NDArray[Any],
    keys: NDArray[Any],
    values: NDArray[Any] | None,
    sorted_keys: NDArray[Any],
    sorted_values: NDArray[Any] | None,
) -> None:
    order = np.argsort(by, kind="stable")
    sorted_keys[:] = keys[order]
    if values is not None and sorted_values is not None:
        sorted_values[:] = values[order]


def write_rows(
    keys: NDArray[Any],
    weights: NDArray[Any] | None,
    keep_repeats: bool,
    fixed_loops: bool,
    loop: NDArray[Any],
    row_lengths: NDArray[Any],
    out_lengths: NDArray[Any],
    sent: NDArray[Any],
    column_indices: NDArray[Any],
    row_weights: NDArray[Any] | None,
) -> tuple[int, int]:
    last = np.append(keys[1:] != keys[:-1], True)[: len(keys)] | keep_repeats
    targets, sources, loops = keys >> 32, keys & 0xFFFFFFFF, keys >> 32 == keys & 0xFFFFFFFF
    if not fixed_loops:
        loop[targets[last & loops]] = 1 if weights is None else weights[last & loops]
    kept = last & ~loops
    targets, sources = targets[kept], sources[kept]
    np.add.at(row_lengths, targets, 1)
    np.add.at(out_lengths, sources, 1)
    _, rows, counts = np.unique(targets, return_inverse=True, return_counts=True)
    begins, ends = _begins(counts), np.cumsum(counts)
    slots = begins[rows] + np.arange(len(targets)) - (ends - counts)[rows]
    capacities = _packed_slots(counts)
    # a row's last source also in the slots behind it
    column_indices[: capacities.sum()] = np.repeat(sources[ends - 1], capacities)
    column_indices[slots] = sources
    if weights is not None and row_weights is not None:
        np.add.at(sent, sources, weights[kept].astype(np.float64))
        row_weights[slots] = weights[kept]
    return int(capacities.sum()), len(targets)


def _packed_slots(lengths: NDArray[Any]) -> NDArray[np.int64]:
    return -(-lengths.astype(np.int64) // 4) * 4


def _begins(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Where rows begin that lie one after the other, aligned."""
    capacities = _packed_slots(lengths)
    return np.cumsum(capacities) - capacities
