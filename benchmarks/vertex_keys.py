"""The key table: memory of 10⁷ distinct keys, and the time that keys take in a batch of 10⁶ edges.

    python -m benchmarks.vertex_keys [--keys N] [--edges N]

`resident_bytes` is the growth of the process beyond the keys as they came in. Times are in seconds;
those of a batch are medians of seven calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import harness
from benchmarks.server import resident_bytes
from liverank.choices import KeyKind
from liverank_service.vertex_keys import KeyTable

REPEATS = 7
BATCH = 1_000_000
KINDS: tuple[KeyKind, ...] = ("string", "integer")


def measured(kind: KeyKind, keys: int, edges: int) -> dict[str, Any]:
    """Figures of a table with this many keys of one kind."""
    generator = np.random.default_rng(1)
    column = pa.array(generator.permutation(keys) * 7919)
    if kind == "string":
        column = pc.binary_join_element_wise("user-", column.cast(pa.string()), "")

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
        "batch_assign_seconds": median_seconds(lambda: table.assign(known)),
        "batch_lookup_seconds": median_seconds(lambda: table.lookup(known)),
        "batch_keys_seconds": median_seconds(lambda: table.keys(ids)),
    }


def median_seconds(call: Callable[[], object]) -> float:
    """The median of some calls."""
    durations = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        durations.append(time.perf_counter() - began)
    return round(median(durations), 4)


def of_kinds(keys: int, edges: int) -> dict[str, Any]:
    found: dict[str, Any] = {str(kind): measured(kind, keys, edges) for kind in KINDS}
    return {"keys": keys, "edges": edges, **found}


if __name__ == "__main__":
    harness.run(__doc__, {"vertex-keys": (of_kinds, {"keys": 10_000_000, "edges": 1_000_000})})
