"""Processes that run blocks. If one dies or hangs, the case that it was running has failed."""

from __future__ import annotations

import multiprocessing
import queue
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from typing import Any

from tests.fuzz import blocks
from tests.fuzz.blocks import Outcome

PATIENCE = 60.0
"""Timeout of one case in seconds."""

# a fresh interpreter each: one that runs threads is not forked
_processes = multiprocessing.get_context("spawn")


def _work(seed: int, mine: list[int], outcomes: Any, place: Any) -> None:
    for block in mine:
        place[:] = [block, 0]

        def began(index: int) -> None:
            place[1] = index

        outcomes.put(blocks.run(seed, block, began))


class _Worker:
    """One process and its remaining blocks."""

    def __init__(self, seed: int, mine: list[int], outcomes: Any) -> None:
        self._seed = seed
        self._outcomes = outcomes
        self._place = _processes.Array("q", 2, lock=False)
        self._begin(mine)

    def _begin(self, mine: list[int]) -> None:
        self.left = mine
        self._place[:] = [mine[0] if mine else 0, -1]
        self._seen: list[int] = []
        self._since = time.monotonic()
        arguments = (self._seed, mine, self._outcomes, self._place)
        self._process: BaseProcess = _processes.Process(target=_work, args=arguments, daemon=True)
        self._process.start()

    def failure(self) -> Outcome | None:
        """The failure of the block in which the process died or hangs; another one continues."""
        place = list(self._place)
        if place != self._seen or place[1] < 0:  # its start has no timeout
            self._seen, self._since = place, time.monotonic()
        hangs = time.monotonic() - self._since > PATIENCE
        dead = not self._process.is_alive() and bool(self.left)
        if not (hangs or dead):
            return None
        block, index = place
        what = f"took more than {PATIENCE:.0f} s" if hangs else "ended the process"
        self._process.kill()
        self._process.join()
        what += f" (exit code {self._process.exitcode})"
        case = blocks.case_of(self._seed, block, index) if index >= 0 else "none: it did not start"
        self._begin([other for other in self.left if other != block])
        return Outcome(block, failures=[f"case {index}: {case!r} {what}"])

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def run(seed: int, count: int, processes: int, seconds: float) -> Iterator[Outcome]:
    """The outcomes of the blocks, in the order in which they end; fewer if the time is over."""
    outcomes: Any = _processes.Queue()
    workers = [
        _Worker(seed, list(range(first, count, processes)), outcomes) for first in range(processes)
    ]
    end = time.monotonic() + seconds
    done = 0
    try:
        while done < count and time.monotonic() < end:
            try:
                outcome: Outcome | None = outcomes.get(timeout=1.0)
            except queue.Empty:
                outcome = next((found for one in workers if (found := one.failure())), None)
            if outcome is None:
                continue
            done += 1
            for worker in workers:
                if outcome.block in worker.left:
                    worker.left.remove(outcome.block)
            yield outcome
    finally:
        for worker in workers:
            worker.end()
