"""Key table: memory of 10⁷ distinct keys, and the time that a batch of 10⁶ edges spends on keys.

    python -m benchmarks.keys [--keys N] [--edges N]

Records and prints the figures as JSON. `resident_bytes` is what the process grew by beyond the keys
as they came in; times are in seconds, those of a batch the median of seven calls.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.harness import record
from service.vertex_keys import KeyKind, KeyTable

REPEATS = 7
BATCH = 1_000_000
KINDS: tuple[KeyKind, ...] = ("string", "integer")


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory and time of the key table.")
    parser.add_argument("--keys", type=int, default=10_000_000, help="distinct keys in the table")
    parser.add_argument("--edges", type=int, default=1_000_000, help="edges in a batch")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"keys": arguments.keys, "edges": arguments.edges}
    for kind in KINDS:
        figures[kind] = measure(kind, arguments.keys, arguments.edges)
    print(json.dumps(figures, indent=1))
    print(record("keys", "cpu", figures))


def measure(kind: KeyKind, keys: int, edges: int) -> dict[str, Any]:
    generator = np.random.default_rng(1)
    column = pa.array(generator.permutation(keys) * 7919)
    if kind == "string":
        column = pc.binary_join_element_wise("user-", column.cast(pa.string()), "")
    KeyTable(kind).assign(column.slice(0, 10))  # compiles

    table = KeyTable(kind)
    before = resident_bytes()
    began = time.perf_counter()
    for first in range(0, keys, BATCH):
        table.assign(column.slice(first, BATCH))
    build = time.perf_counter() - began
    grown = resident_bytes() - before

    known = column.take(pa.array(generator.integers(0, keys, 2 * edges)))
    ids = generator.integers(0, keys, 2 * edges)
    return {
        "key_bytes": column.nbytes,
        "table_bytes": table.nbytes(),
        "resident_bytes": grown,
        "build_seconds": round(build, 3),
        "batch_assign_seconds": timed(lambda: table.assign(known)),
        "batch_lookup_seconds": timed(lambda: table.lookup(known)),
        "batch_keys_seconds": timed(lambda: table.keys(ids)),
    }


def timed(call: Callable[[], object]) -> float:
    durations = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        durations.append(time.perf_counter() - began)
    return round(median(durations), 4)


def resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


if __name__ == "__main__":
    main()
