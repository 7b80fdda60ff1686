"""The rows of the figures, from the operations and the log of the profiler."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.profile.launches import Operation
from benchmarks.profile.nsight import (
    ISSUE_PERCENT,
    L2_PERCENT,
    L2_SECTORS,
    READ,
    SECONDS,
    SECTOR,
    WARPS_PERCENT,
    WRITTEN,
)

ALIKE = 0.8
"""Launches that take at least this part of the time of the longest count as long as it."""


def combined(operations: Sequence[Operation], launches: list[dict[str, Any]]) -> list[Any]:
    """A row for each operation and kernel.

    launches  those of the log, in order; kernels that cannot be profiled are missing
    Raises ValueError for a launch in the log that was not to be profiled.
    """
    found, rows = iter(launches), []
    pending = next(found, None)
    for operation in operations:
        by_kernel: dict[str, list[dict[str, Any]]] = {}
        for launch in operation.profiled:
            name = re.split(r"[: <]+", launch["kernel"])[1]
            if pending is None or pending["kernel"] != name:
                continue
            by_kernel.setdefault(launch["kernel"], []).append({**pending, **launch})
            pending = next(found, None)
        rows += list(_rows(operation, by_kernel))
    if pending is not None:
        raise ValueError(f"a launch of {pending['kernel']} that was not to be profiled")
    return rows


def _rows(
    operation: Operation, by_kernel: dict[str, list[dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """Those of one operation; `not_profiled` says why a kernel has no figures."""
    again = {launch["kernel"] for launch in operation.profiled}
    for kernel in operation.hot_kernels:
        row = {
            "operation": operation.operation,
            "kernel": kernel,
            "launches": operation.launches[kernel],
            "share": operation.kernel_milliseconds[kernel] / operation.milliseconds,
        }
        measured = [
            launch
            for launch in by_kernel.get(kernel, [])
            if all(launch[name] is not None for name in (SECONDS, READ, WRITTEN))
        ]
        if measured:
            measured.sort(key=lambda launch: float(launch[SECONDS]))
            longest = measured[-1][SECONDS]
            alike = [launch for launch in measured if launch[SECONDS] >= ALIKE * longest]
            row |= _figures(alike[len(alike) // 2])
        else:
            refused = "the profiler has no figures" if kernel in again else "not launched again"
            row["not_profiled"] = refused
        yield row


def _figures(launch: dict[str, Any]) -> dict[str, Any]:
    sectors = launch[L2_SECTORS]
    return {
        "milliseconds": 1e3 * launch[SECONDS],
        "needed_bytes": launch["needed"],
        "read_bytes": launch[READ],
        "written_bytes": launch[WRITTEN],
        "l2_bytes": None if sectors is None else SECTOR * sectors,
        "l2_percent": launch[L2_PERCENT],
        "warps_percent": launch[WARPS_PERCENT],
        "issue_percent": launch[ISSUE_PERCENT],
    }
