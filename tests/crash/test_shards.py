"""A real server with shards, which are its threads, killed while they give and get checkpoints."""

from __future__ import annotations

import itertools
from pathlib import Path

import httpx

from service.storage import checkpoint as checkpoints
from tests.crash.nursery import Nursery
from tests.crash.points import SHARDED
from tests.crash.streams import GRAPH, check, run_until_killed, streams

SECONDS = 60.0


def test_checkpoints_of_shards_are_complete_or_absent(nursery: Nursery, tmp_path: Path) -> None:
    sending, numbers = streams(5), itertools.cycle([2, 0, 3])
    directory = tmp_path / "graphs" / "default" / "checkpoints"
    for passes, point in enumerate(SHARDED, 1):
        restores = "restored" in point
        server = nursery.start(tmp_path, point, 1 if restores else passes, shards=2)
        if server.wait_until_ready():
            assert not restores
            run_until_killed(sending, server.url, SECONDS)
        assert server.dies(), f"{point}: was not passed"
        server.wait()
        for path in checkpoints.stored(directory):
            checkpoints.read(path)
        again = nursery.start(tmp_path, shards=next(numbers))
        assert again.wait_until_ready()
        check(sending, again.url, everything=True)
        taken = httpx.post(f"{again.url}{GRAPH}/checkpoint", timeout=60).json()
        again.kill()
        again.wait()
        # what the killed one left is gone
        left = sorted(path.name for path in directory.iterdir())
        assert f"{taken['version']}-{taken['revision']}" in left
        assert left == sorted(path.name for path in checkpoints.stored(directory))
