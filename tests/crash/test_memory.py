"""A batch that needs more memory than estimated: the process is killed, and not again for ever."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from liverank_service.errors import StorageFailed
from liverank_service.storage.journal import Journal
from tests.crash.nursery import Nursery
from tests.service.graphs import batch, opened, send, working

PROGRAM = """
import os, signal, sys
from pathlib import Path
from liverank_gpu import Engine
from liverank_gpu.backends.cpu.device import CpuDevice
from tests.service.graphs import batch, opened, submit, send

directory, room, where, what = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
CpuDevice.memory_available = lambda self: room
large = []

def killing(original):
    def kill(self, *arguments):
        if where == "apply" and len(arguments[0].batch.insert_sources) >= 100_000:
            os.kill(os.getpid(), signal.SIGKILL)
        if where == "update" and self.edges >= 100_000:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, *arguments)
    return kill

if where != "nowhere":
    setattr(Engine, where, killing(getattr(Engine, where)))
pipeline = opened(directory)
if what == "send":
    one = batch([(f"s{i}", f"t{i % 999}") for i in range(100_000)])
    submit(pipeline, one)
    (one.ranked if where == "nowhere" else one.durable).result()
    if where != "nowhere":
        one.ranked.result()
print(pipeline.view.version, pipeline.view.edges)
"""


TIGHT, AMPLE = 90 << 20, 1 << 40
"""The batch is estimated to need 30 to 70 MB."""


@pytest.mark.parametrize("where", ["apply", "update"])
def test_a_batch_over_which_two_replays_were_killed_is_rejected(
    nursery: Nursery, tmp_path: Path, where: str
) -> None:
    with working(tmp_path) as pipeline:
        send(pipeline, batch([("a", "b")]))
    assert nursery.run(PROGRAM, tmp_path, TIGHT, where, "send").returncode == -signal.SIGKILL
    for _ in range(2):
        assert nursery.run(PROGRAM, tmp_path, TIGHT, where, "recover").returncode == -signal.SIGKILL
    ended = nursery.run(PROGRAM, tmp_path, TIGHT, where, "recover")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["2", "1"]
    journal = Journal(tmp_path / "journal.db")
    outcome = journal.outcome(2)
    journal.close()
    assert outcome is not None
    assert outcome.status == "rejected"
    assert b"out-of-memory" in outcome.body
    assert b"a batch of 100,000 edges" in outcome.body
    assert b"over which the process ended twice, needs" in outcome.body
    assert not (tmp_path / "journal.replaying").exists()
    with working(tmp_path) as again:
        assert send(again, batch([("g", "h")]))["version"] == 3


def test_a_batch_is_not_rejected_for_kills_where_memory_is_ample(
    nursery: Nursery, tmp_path: Path
) -> None:
    Journal.create(tmp_path / "journal.db")
    for what in ("send", "recover", "recover", "recover"):
        assert nursery.run(PROGRAM, tmp_path, AMPLE, "apply", what).returncode == -signal.SIGKILL
    with working(tmp_path) as again:
        assert (again.view.version, again.view.edges) == (1, 100_000)


def test_more_memory_rescues_a_batch_that_killed_two_replays(
    nursery: Nursery, tmp_path: Path
) -> None:
    Journal.create(tmp_path / "journal.db")
    for what in ("send", "recover", "recover"):
        assert nursery.run(PROGRAM, tmp_path, TIGHT, "apply", what).returncode == -signal.SIGKILL
    with working(tmp_path) as again:
        assert (again.view.version, again.view.edges) == (1, 100_000)


def test_an_answered_batch_that_kills_replays_is_not_rejected_but_named(
    nursery: Nursery, tmp_path: Path
) -> None:
    Journal.create(tmp_path / "journal.db")
    assert nursery.run(PROGRAM, tmp_path, TIGHT, "nowhere", "send").returncode == 0
    for _ in range(2):
        assert (
            nursery.run(PROGRAM, tmp_path, TIGHT, "apply", "recover").returncode == -signal.SIGKILL
        )
    ended = nursery.run(PROGRAM, tmp_path, TIGHT, "apply", "recover")
    assert ended.returncode == 1
    assert "batch 1 was applied before, but not now: a batch of 100,000 edges" in ended.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "liverank_gpu.backends.cpu.device.CpuDevice.memory_available", lambda _: TIGHT
        )
        with pytest.raises(StorageFailed, match="was applied before"):
            opened(tmp_path)
    with working(tmp_path) as again:
        assert again.view.edges == 100_000
