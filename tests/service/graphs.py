"""A graph's directory and its pipeline, without a server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from liverank_gpu import Engine, OnConflict, Options, Solve
from liverank_service.errors import NotReady
from liverank_service.formats.columns import EdgeColumns
from liverank_service.formats.edge_list import EdgeList
from liverank_service.pipeline.batch import Batch
from liverank_service.pipeline.checkpointer import CheckpointLimits
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.pipeline.window import WindowOptions
from liverank_service.pipeline.writer import Writer
from liverank_service.storage.journal import Journal

Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Sent:
    """A batch, and futures for its version and its receipt."""

    batch: Batch
    durable: Future[int] = field(default_factory=Future)
    ranked: Future[bytes] = field(default_factory=Future)


def columns(
    insert: Pairs | None = None, delete: Pairs | None = None, vertices: list[str] | None = None
) -> EdgeColumns:
    def column(values: list[str]) -> pa.Array:
        return pa.array(values, pa.string())

    inserted, deleted = insert or [], delete or []
    return EdgeColumns(
        insert_sources=column([source for source, _ in inserted]),
        insert_targets=column([target for _, target in inserted]),
        delete_sources=column([source for source, _ in deleted]),
        delete_targets=column([target for _, target in deleted]),
        vertices=column(vertices or []),
    )


def batch(
    insert: Pairs | None = None,
    delete: Pairs | None = None,
    *,
    strategy: str = "auto",
    key: str | None = None,
) -> Sent:
    body = repr((insert, delete)).encode()
    return Sent(Batch.of(columns(insert, delete), body, Solve(strategy), key))


def weighted_batch(
    insert: list[tuple[str, str, float]],
    delete: Pairs | None = None,
    *,
    on_conflict: OnConflict = "replace",
    taken: list[float | None] | None = None,
) -> Sent:
    """taken: what deletions take away"""
    pairs = columns([(source, target) for source, target, _ in insert], delete)
    weights = pa.array([weight for *_, weight in insert], pa.float32())
    amounts = None if taken is None else pa.array(taken, pa.float32())
    body = repr((insert, delete, on_conflict, taken)).encode()
    pairs = replace(pairs, weights=weights, on_conflict=on_conflict, delete_weights=amounts)
    return Sent(Batch.of(pairs, body, Solve()))


def timed_batch(
    insert: list[tuple[str, str, float]] | None = None,
    delete: Pairs | None = None,
    *,
    weights: list[float] | None = None,
    key: str | None = None,
    strategy: str = "auto",
    rank_later: bool = False,
    remove: list[str] | None = None,
    vertices: list[str] | None = None,
) -> Sent:
    """Insertions as (source, target, time)."""
    rows = insert or []
    pairs = columns([(source, target) for source, target, _ in rows], delete, vertices)
    if remove:
        pairs = replace(pairs, remove=pa.array(remove, pa.string()))
    timed = replace(
        pairs,
        times=pa.array([time for *_, time in rows], pa.float64()) if rows else None,
        weights=None if weights is None else pa.array(weights, pa.float32()),
    )
    body = repr((insert, delete, weights, remove, vertices)).encode()
    return Sent(Batch.of(timed, body, Solve(strategy), key, rank_later))


def edges_of(pipeline: Pipeline) -> set[tuple[str, str]]:
    """The edges of an open pipeline, by their keys."""

    def read(writer: Writer) -> set[tuple[str, str]]:
        sources, targets = writer.ranking._engine.edge_list()
        keys = writer.keyed.keys
        ends = (keys.keys(column).to_pylist() for column in (sources, targets))
        return set(zip(*ends, strict=True))

    return pipeline.call(read).result(60)


def vertices_of(pipeline: Pipeline) -> set[str]:
    """The vertices of an open pipeline, by their keys."""

    def read(writer: Writer) -> set[str]:
        keys = writer.keyed.keys
        return set(keys.keys(keys.vertices(0, keys.limit)).to_pylist())

    return pipeline.call(read).result(60)


def submit(pipeline: Pipeline, *batches: Sent) -> None:
    for one in batches:
        pipeline.submit(one.batch, durable=one.durable, ranked=one.ranked)


def receipt(of: Sent) -> dict[str, Any]:
    answer: dict[str, Any] = orjson.loads(of.ranked.result(60))
    return answer


def send(pipeline: Pipeline, one: Sent) -> dict[str, Any]:
    submit(pipeline, one)
    return receipt(one)


def writer_of(pipeline: Pipeline) -> Writer:
    """The writer of an open pipeline."""
    return pipeline._writer.result(0)


def engine_of(pipeline: Pipeline) -> Engine:
    return writer_of(pipeline).ranking._engine


def started(
    directory: Path,
    checkpoint_bytes: int = 1 << 30,
    checkpoint_seconds: float = 3600.0,
    window: WindowOptions | None = None,
    shards: int = 0,
    device_memory: int | None = None,
    **options: Any,
) -> Pipeline:
    """The pipeline of the directory, before recovery."""
    if not (directory / "journal.db").exists():
        Journal.create(directory / "journal.db")
    limits = CheckpointLimits(checkpoint_bytes, checkpoint_seconds)
    chosen = Options(**options)
    return Pipeline(
        "test",
        directory,
        chosen,
        "string",
        "cpu",
        limits,
        window=window,
        shards=shards,
        device_memory=device_memory,
    )


def opened(directory: Path, **limits: Any) -> Pipeline:
    pipeline = started(directory, **limits)
    pipeline.recover()
    pipeline.wait_until_open()
    return pipeline


@contextmanager
def working(directory: Path, **limits: Any) -> Iterator[Pipeline]:
    pipeline = opened(directory, **limits)
    try:
        yield pipeline
    finally:
        pipeline.close(NotReady("the test ends"))


def together(pipeline: Pipeline, batches: list[Sent]) -> None:
    """Submits `batches` so that they wait together."""
    gate = threading.Event()
    pipeline.call(lambda _: gate.wait(60))
    submit(pipeline, *batches)
    gate.set()


def stages_of(answer: dict[str, Any]) -> dict[str, float]:
    """The stages of a receipt without the total, to which they add up."""
    seconds: dict[str, float] = dict(answer["seconds"])
    total = seconds.pop("total")
    # `others` is the rest of the total, but not below 0: overlapping stages would show here
    assert sum(seconds.values()) == pytest.approx(total, rel=1e-9)
    assert min(seconds.values()) >= 0.0
    return seconds


def edge_list(
    sources: list[Any],
    targets: list[Any],
    times: list[float] | None = None,
    operations: list[bool] | None = None,
) -> EdgeList:
    return EdgeList(
        sources=pa.array(sources),
        targets=pa.array(targets),
        times=None if times is None else np.array(times, np.float64),
        operations=None if operations is None else np.array(operations, np.bool_),
    )
