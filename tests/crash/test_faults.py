"""Faults at every second call: the disk in the middle of a checkpoint, memory anywhere. The state
stays consistent.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from liverank_gpu import Solve
from liverank_gpu.backends.cpu.device import CpuDevice
from liverank_gpu.errors import OutOfMemory
from liverank_service.errors import ServiceError, StorageFailed, StorageFull
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.storage import checkpoint as checkpoints
from tests.service.graphs import Pairs, batch, send, submit, working, writer_of


class Fault:
    """Fails the call of that number, and all later ones if it `lasts`."""

    def __init__(self, number: int, error: Callable[[], Exception], lasts: bool) -> None:
        self.left, self.error, self.lasts, self.failed = number, error, lasts, 0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0 or (self.lasts and self.left < 0):
                self.failed += 1
                raise self.error()
            return function(*arguments, **named)

        return call


def disk_error(number: int) -> Callable[[], OSError]:
    return lambda: OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, StorageFull), (errno.EROFS, StorageFailed)]
)
def test_a_disk_that_fails_at_any_step_of_a_checkpoint_leaves_the_older_one(
    tmp_path: Path, number: int, kind: type[Exception]
) -> None:
    with working(tmp_path) as pipeline:
        send(pipeline, batch([("a", "b")]))
        assert pipeline.checkpoint().result(60).version == 1
        edges = 1
        for step in range(1, 100):
            send(pipeline, batch([("a", str(step))]))
            edges += 1
            before = [path.name for path in checkpoints.stored(tmp_path / "checkpoints")]
            fault = Fault(step, disk_error(number), lasts=True)
            with pytest.MonkeyPatch.context() as patch:
                for name in ("write_synced", "sync_directory", "rename_synced"):
                    patch.setattr(checkpoints, name, fault.around(getattr(checkpoints, name)))
                for name in ("mkdir", "rename"):
                    patch.setattr(Path, name, _unbound(fault, getattr(Path, name)))
                try:
                    pipeline.checkpoint().result(60)
                except kind:
                    failed = True
                else:
                    failed = False
            if not fault.failed:
                break
            after = [path.name for path in checkpoints.stored(tmp_path / "checkpoints")]
            if failed:
                # the new one may be complete; only its directory was not synced
                assert after in (before, [after[0], *before])
            assert pipeline.view.edges == edges
        assert step > 10
        assert pipeline.checkpoint().result(60).version == pipeline.view.version
        left = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
        assert len(left) == 2
    with working(tmp_path) as again:
        assert again.view.edges == edges


def _unbound(fault: Fault, method: Callable[..., Any]) -> Callable[..., Any]:
    inner = fault.around(method)
    return lambda *arguments, **named: inner(*arguments, **named)


STEP = 2
"""Every second allocation is tried; their number varies a little."""

RING: Pairs = [(str(number), str(number + 1)) for number in range(40)]


@contextmanager
def allocations(fault: Fault) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuDevice, "allocate", _unbound(fault, CpuDevice.allocate))
        yield


def test_memory_that_fails_at_any_allocation_leaves_a_graph_consistent(tmp_path: Path) -> None:
    def short() -> OutOfMemory:
        return OutOfMemory("a test", 10, 1)

    for step in range(1, 1000, STEP):
        directory = tmp_path / str(step)
        directory.mkdir()
        expected: set[tuple[str, str]] = set()
        with working(directory) as pipeline:
            fault = Fault(step, short, lasts=False)
            with allocations(fault):
                for first in (0, 20):
                    edges = RING[first : first + 20]
                    if _applied(pipeline, edges):
                        expected |= set(edges)
            send(pipeline, batch([("x", "y")]))
            expected.add(("x", "y"))
            assert pipeline.view.edges == len(expected)
            assert pipeline.view.error_bound <= 1e-6
            ranks = pipeline.view.ranks.to_numpy()
            assert abs(ranks.sum() - 1.0) < 1e-9
        with working(directory) as again:
            assert again.view.edges == len(expected)
        if not fault.failed:
            break
    assert not fault.failed
    assert step > 20


def _applied(pipeline: Pipeline, edges: Pairs) -> bool:
    """Whether the batch is in the graph, which every answer must say."""
    before = writer_of(pipeline).journal.version
    one = batch(edges)
    submit(pipeline, one)
    error = one.ranked.exception(60)
    if error is None:
        return True
    assert isinstance(error, ServiceError | OutOfMemory), repr(error)
    version = writer_of(pipeline).journal.version
    if version == before:  # refused before it was journalled
        return False
    pipeline.recompute(Solve("static")).result(60)
    outcome = pipeline.outcome(version)
    assert outcome is not None
    assert outcome.status in ("ranked", "rejected")
    return outcome.status == "ranked"
