"""Nsight Compute: what it is asked to measure, and the log that it writes."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np

SECONDS = "gpu__time_duration.sum"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
L2_SECTORS = "lts__t_sectors.sum"
L2_PERCENT = "lts__t_sectors.avg.pct_of_peak_sustained_elapsed"
WARPS_PERCENT = "sm__warps_active.avg.pct_of_peak_sustained_active"
ISSUE_PERCENT = "smsp__issue_active.avg.pct_of_peak_sustained_active"

METRICS = (SECONDS, READ, WRITTEN, L2_SECTORS, L2_PERCENT, WARPS_PERCENT, ISSUE_PERCENT)
"""Time; bytes from and to memory; sectors that pass the L2 cache, and their part of its peak; warps
on a multiprocessor, of the most; cycles in which a scheduler issues, of all.
"""

SECTOR = 32
"""Bytes."""

_UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BASE_UNITS = {"second", "s", "byte", "sector", "%", ""}


def profiler(log: Path) -> list[str]:
    """The command in front of that of the process to be profiled."""
    return [
        "ncu",
        *("--metrics", ",".join(METRICS)),
        *("--replay-mode", "kernel"),
        *("--profile-from-start", "off"),
        *("--clock-control", "none"),
        *("--cache-control", "none"),
        *("--csv", "--page", "raw"),
        *("--print-units", "base"),
        *("--log-file", str(log)),
    ]


def parsed(log: str) -> list[dict[str, Any]]:
    """The rows of a log with a raw page as CSV: `kernel`, the name without parameters, and every
    metric of METRICS in seconds, bytes, sectors or percent; None where it was not measured. Raises
    ValueError if the log has no page.
    """
    lines = log.splitlines()
    heads = [at for at, line in enumerate(lines) if line.startswith('"ID"')]
    if not heads:
        raise ValueError("Nsight Compute profiled nothing:\n" + "\n".join(lines[-20:]))
    # there may be messages among the rows
    table = [line for line in lines[heads[0] :] if line.startswith('"')]
    units, *rows = csv.DictReader(table)
    return [
        {
            "kernel": re.split(r"[<(]", row["Kernel Name"])[0].split()[-1].split("::")[-1],
            **{name: _number(row.get(name), units.get(name)) for name in METRICS},
        }
        for row in rows
    ]


def _number(text: str | None, unit: str | None) -> float | None:
    try:
        number = float((text or "").replace(",", ""))
    except ValueError:
        return None
    if not np.isfinite(number):
        return None
    return number * _scale(unit or "")


def _scale(unit: str) -> float:
    """A unit in its base unit."""
    if unit in _BASE_UNITS:
        return 1.0
    if unit[1:] in _BASE_UNITS and unit[0] in _UNITS:
        return _UNITS[unit[0]]
    raise ValueError(f"unknown unit: {unit}")
