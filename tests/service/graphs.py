"""A graph's directory and its pipeline, without a server around."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from gpu import Options
from service.errors import NotReady
from service.formats.decode import EdgeColumns
from service.pipeline.batch import Batch
from service.pipeline.pipeline import Pipeline
from service.storage.journal import Journal

Pairs = list[tuple[str, str]]


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
) -> Batch:
    body = repr((insert, delete)).encode()
    return Batch.of(columns(insert, delete), body, strategy, key)


def receipt(of: Batch) -> dict[str, Any]:
    answer: dict[str, Any] = orjson.loads(of.ranked.result(60))
    return answer


def send(pipeline: Pipeline, one: Batch) -> dict[str, Any]:
    pipeline.submit(one)
    return receipt(one)


def started(
    directory: Path, checkpoint_bytes: int = 1 << 30, checkpoint_seconds: float = 3600.0
) -> Pipeline:
    """The pipeline of the directory, which has not begun to recover."""
    if not (directory / "journal.db").exists():
        Journal.create(directory / "journal.db")
    return Pipeline(
        "test", directory, Options(), "string", "cpu", checkpoint_bytes, checkpoint_seconds
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
