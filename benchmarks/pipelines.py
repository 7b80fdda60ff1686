"""Graphs of a data directory in this process, without a server."""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa

from liverank_gpu import Options, Solve
from liverank_service.formats.columns import EdgeColumns
from liverank_service.pipeline.batch import Batch
from liverank_service.pipeline.checkpointer import CheckpointLimits
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.storage.graph_store import MANIFEST_FORMAT
from liverank_service.storage.journal import Journal

_EDGES_A_BATCH = 10_000_000


def created(data: Path) -> Path:
    """The directory of a new graph ``default`` with integer keys."""
    directory = data / "graphs" / "default"
    directory.mkdir(parents=True)
    manifest = {"format": MANIFEST_FORMAT, "options": {"keys": "integer"}}
    (directory / "graph.json").write_text(json.dumps(manifest))
    Journal.create(directory / "journal.db")
    return directory


def opened(directory: Path, shards: int = 0) -> Pipeline:
    """The pipeline of the graph, recovered. It takes checkpoints on request alone."""
    limits = CheckpointLimits(1 << 40, 1e9)
    pipeline = Pipeline("default", directory, Options(), "integer", "cpu", limits, shards=shards)
    pipeline.recover()
    pipeline.wait_until_open()
    return pipeline


def load(pipeline: Pipeline, sources: Any, targets: Any) -> None:
    """Inserts the edges in large batches, and ranks them."""
    for first in range(0, len(sources), _EDGES_A_BATCH):
        part = slice(first, first + _EDGES_A_BATCH)
        durable, ranked = Future[int](), Future[bytes]()
        pipeline.submit(batch_of(sources[part], targets[part]), durable=durable, ranked=ranked)
        durable.result()
    ranked.result()


def send(pipeline: Pipeline, sources: Any, targets: Any, vertices: Any = ()) -> None:
    """Inserts the edges, and vertices that may have none, and ranks them."""
    ranked: Future[bytes] = Future()
    pipeline.submit(batch_of(sources, targets, vertices), ranked=ranked)
    ranked.result()


def batch_of(sources: Any, targets: Any, vertices: Any = ()) -> Batch:
    nothing = pa.array([], pa.int64())
    columns = EdgeColumns(
        pa.array(sources, pa.int64()),
        pa.array(targets, pa.int64()),
        nothing,
        nothing,
        pa.array(vertices, pa.int64()),
    )
    return Batch.of(columns, b"", Solve())
