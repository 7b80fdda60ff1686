"""Loading a file into a new graph of a server: `liverank load`, from its start to its last ranks.

    python -m benchmarks.load [--scale N]
    python -m benchmarks.load --backend cuda --scale 22 --keys integer
    python -m benchmarks.load vertex-keys

R-MAT edges (16 a vertex) in a Parquet file, with integer keys and with strings of the same numbers.
Server and command share the machine. Where others use it too, the processor time says more than the
time.

vertex-keys: memory of a key table, and the time that keys take in a batch. `resident_bytes` is the
growth of the process beyond the keys as they came in. Times are in seconds; those of a batch are
medians of seven calls.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from timeit import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from benchmarks import harness
from benchmarks.server import Server, resident_bytes
from liverank.choices import KeyKind
from liverank_gpu.generate import rmat
from liverank_service.vertex_keys import KeyTable

EDGES_PER_VERTEX = 16
KEYS: tuple[KeyKind, ...] = ("integer", "string")
ROUNDS = 2


def measured(backend: str, scale: int, keys: list[str]) -> dict[str, Any]:
    figures: dict[str, Any] = {"edges": EDGES_PER_VERTEX << scale}
    with TemporaryDirectory() as folder:
        for kind, file in written(Path(folder), scale, keys).items():
            walls, processors = zip(*(loaded(backend, file) for _ in range(ROUNDS)), strict=True)
            figures[kind] = {
                "this": {
                    "seconds": [round(wall, 2) for wall in walls],
                    "cpu_seconds": [round(each, 2) for each in processors],
                    "edges_per_second": round(figures["edges"] / median(walls)),
                }
            }
    return figures


def written(folder: Path, scale: int, kinds: Sequence[str]) -> dict[str, Path]:
    """The same edges with each kind of keys."""
    columns = rmat(scale, EDGES_PER_VERTEX, seed=1)
    files = {}
    for kind in kinds:
        keys = [pa.array(np.asarray(column, np.int64)) for column in columns]
        if kind == "string":
            keys = [pc.binary_join_element_wise("v", each.cast(pa.string()), "") for each in keys]
        files[kind] = folder / f"{kind}.parquet"
        pyarrow.parquet.write_table(pa.table(keys, names=["source", "target"]), files[kind])
    return files


def loaded(backend: str, file: Path) -> tuple[float, float]:
    """Seconds of the command, with a new server on an empty directory, and processor time of
    both.
    """
    with Server.temporary(backend=backend) as server:
        used = server.cpu_seconds + _cpu_seconds_of_children()
        wall = server.load(file, "loaded")
        return wall, server.cpu_seconds + _cpu_seconds_of_children() - used


def _cpu_seconds_of_children() -> float:
    """Of those that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


REPEATS = 7
BATCH = 1_000_000


def of_kind(kind: KeyKind, keys: int, edges: int) -> dict[str, Any]:
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
    return round(median(repeat(call, number=1, repeat=REPEATS)), 4)


def key_table(keys: int, edges: int) -> dict[str, Any]:
    found: dict[str, Any] = {str(kind): of_kind(kind, keys, edges) for kind in KEYS}
    return {"keys": keys, "edges": edges, **found}


if __name__ == "__main__":
    options = {"scale": 19, "keys": list(KEYS)}
    keys = {"keys": 10_000_000, "edges": 1_000_000}
    suites: harness.Suites = {"load": (measured, options), "vertex-keys": (key_table, keys)}
    harness.run(__doc__, suites, backends=True)
