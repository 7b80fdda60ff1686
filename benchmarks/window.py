"""Memory of a graph whose edges leave by age, through an hour's worth of batches.

    python -m benchmarks.window
    python -m benchmarks.window --edges 100000 --vertices 20000 --minutes 6

A batch for each second of the event clock, of new edges between vertices drawn uniformly; the
window has 100 batches, so that the graph turns over every 100 seconds. Nothing waits: an hour takes
minutes. Memory is read each time that the window has turned over, after a ranking and the release
of free memory to the system; its growth is from the fourth turn to the last.
"""

from __future__ import annotations

import ctypes
import gc
import os
import tempfile
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import harness
from liverank_gpu import Options, Solve
from liverank_service.errors import NotReady
from liverank_service.formats.columns import EdgeColumns
from liverank_service.pipeline.batch import Batch
from liverank_service.pipeline.checkpointer import CheckpointLimits
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.pipeline.window import WindowOptions
from liverank_service.settings import Settings
from liverank_service.storage.journal import Journal

WINDOW_SECONDS = 100
SETTLED_TURNS = 4
"""Turns after which memory should no longer grow: two checkpoints are taken by then."""


def measured(edges: int, vertices: int, minutes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="liverank-window-") as folder:
        return turn_over(Path(folder), edges, vertices, 60 * minutes)


def turn_over(directory: Path, edges: int, vertices: int, seconds: int) -> dict[str, Any]:
    """Sends a batch for each second, and reads memory after each turn of the window."""
    Journal.create(directory / "journal.db")
    settings = Settings()
    pipeline = Pipeline(
        "window",
        directory,
        Options(),
        "integer",
        "cpu",
        CheckpointLimits(settings.checkpoint_bytes, settings.checkpoint_seconds),
        window=WindowOptions(WINDOW_SECONDS, "event"),
    )
    pipeline.recover()
    pipeline.wait_until_open()
    generator = np.random.default_rng(1)
    parts: list[dict[str, int]] = []
    began = time.perf_counter()
    try:
        for second in range(seconds):
            ends = generator.integers(0, vertices, (2, edges // WINDOW_SECONDS))
            is_turned = (second + 1) % WINDOW_SECONDS == 0
            _send(pipeline, ends, float(second), not is_turned)
            if is_turned:
                parts.append({**pipeline.view.memory, "process": _resident()})
                print(second + 1, pipeline.view.edges, parts[-1], flush=True)
        elapsed = time.perf_counter() - began
        present, versions = pipeline.view.edges, pipeline.view.version
    finally:
        pipeline.close(NotReady("the benchmark ends"))
    settled, last = parts[SETTLED_TURNS - 1], parts[-1]
    return {
        "edges in the window": present,
        "edges inserted": edges // WINDOW_SECONDS * seconds,
        "batches, expiries included": versions,
        "turns of the window": len(parts),
        "milliseconds per batch": round(1e3 * elapsed / seconds, 1),
        "times of the edges, at the end, bytes": last["times"],
        **_growth("the graph", *(sum(each.values()) - each["process"] for each in (settled, last))),
        **_growth("the process", settled["process"], last["process"]),
    }


def _growth(name: str, before: int, after: int) -> dict[str, Any]:
    return {
        f"{name}, after {SETTLED_TURNS} turns, bytes": before,
        f"{name}, at the end, bytes": after,
        f"{name}, growth, %": round(100 * (after / before - 1), 2),
    }


def _send(pipeline: Pipeline, ends: np.ndarray[Any, Any], at: float, rank_later: bool) -> None:
    sources, targets = (pa.array(column) for column in ends)
    nothing = sources.slice(0, 0)
    times = pa.array(np.full(len(sources), at))
    columns = EdgeColumns(sources, targets, nothing, nothing, nothing, times=times)
    batch = Batch.of(columns, b"", Solve("auto"), rank_later=rank_later)
    durable: Future[int] = Future()
    ranked: Future[bytes] = Future()
    if rank_later:
        pipeline.submit(batch, durable=durable)
        durable.result()
    else:
        pipeline.submit(batch, ranked=ranked)
        ranked.result()


def _resident() -> int:
    """Resident bytes of this process, without memory that is free."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    options = {"edges": 1_000_000, "vertices": 100_000, "minutes": 60}
    harness.run(__doc__, {"window": (measured, options)})
