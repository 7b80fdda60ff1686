"""The states of analyses that run, from which they go on after a restart.

GRAPH/running/<id>.state  see liverank_gpu.SavedRun; its note has the seconds that were spent
GRAPH/running/<id>.taken  the same, from which a run has gone on that has not been saved since

A file is there while its analysis runs, once a state was saved; it is replaced as a whole. One that
cannot be read is as good as none: the analysis begins again. A run that goes on and ends the server
once more, as one that is out of memory may, does not go on a second time.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import perf_counter

from liverank_gpu import DeviceLost, ProgramRun, SavedRun, ShardLost, VertexProgram
from liverank_service.storage.files import make_directory

log = logging.getLogger("liverank.analyses")

DIRECTORY = "running"

SECONDS = 30.0
"""Of a run between two states, unless its request says otherwise."""

_PART = 0.05
"""Of the seconds of a run that may be spent on its states."""


@dataclass(slots=True)
class Pace:
    """When a run is to be saved.

    supersteps  between two states; 0: never; None: by seconds
    spent       seconds that were spent before the run went on
    """

    supersteps: int | None
    spent: float = 0.0
    _superstep: int = 0
    _seconds: float = SECONDS

    def resume(self, state: SavedRun) -> None:
        """The run begins with this state."""
        spent = float(state.note.get("seconds", 0.0))
        self._superstep, self.spent = int(state.supersteps), spent

    def left(self, job: ProgramRun) -> int | None:
        """Supersteps to do before it is to be saved; None: any number."""
        return self.supersteps and max(1, self._superstep + self.supersteps - job.supersteps)

    def is_due(self, job: ProgramRun) -> bool:
        if job.done or not isinstance(job.program, VertexProgram):
            return False
        if self.supersteps is None:
            return job.seconds >= self._seconds
        return self.supersteps > 0 and job.supersteps - self._superstep >= self.supersteps

    def saved(self, job: ProgramRun, took: float) -> None:
        """took: seconds of the writer"""
        self._superstep = job.supersteps
        self._seconds = job.seconds + max(SECONDS, took / _PART)

    def stop(self) -> None:
        """Saves no more."""
        self.supersteps, self._seconds = 0, inf


class SavedRuns:
    """Of one graph; for the writer's thread. Files are written on another.

    waiting  analyses of which there were files when the graph was opened, until they run
    """

    def __init__(self, directory: Path, known: Collection[str]) -> None:
        """known: the graph's analyses; files of others are removed"""
        self._directory = directory / DIRECTORY
        self.waiting: set[str] = set()
        self._present: set[str] = set()
        self._taken: set[str] = set()
        self._writing: dict[str, Future[None]] = {}
        self._writer = ThreadPoolExecutor(1, "analysis-states")
        with suppress(OSError):  # what cannot be read then begins again
            for path in list(self._directory.iterdir()):
                if path.suffix == ".state" and path.stem in known:
                    self.waiting.add(path.stem)
                else:
                    path.unlink()
        self._present |= self.waiting

    def take(self, identity: str, pace: Pace) -> SavedRun | None:
        """The state that is waiting, from which the pace goes on; None if it cannot be read. The
        run that begins with it compares the whole graph in one call: batches wait for that.
        """
        self.waiting.discard(identity)
        path = self._path(identity)
        try:
            path.replace(taken := self._path(identity, "taken"))
            self._taken.add(identity)
            state = SavedRun.load(taken)
            pace.resume(state)
            return state
        except Exception as error:  # whatever is in the file
            log.warning("analysis %s begins again: %s: %s", identity, path, error)
            return None

    def save(self, identity: str, job: ProgramRun, pace: Pace, seconds: float) -> None:
        """Saves the state of a run, unless its last one is still being written. The first of a
        run that began again takes several calls of about so many seconds if the graph is large.
        """
        if (writing := self._writing.get(identity)) is not None and not writing.done():
            return
        began = perf_counter()
        try:
            if not job.hash(seconds):
                return
            state = job.state({"seconds": pace.spent + job.seconds})
            self._present.add(identity)
            self._writing[identity] = self._writer.submit(self._write, identity, state, pace)
        except (DeviceLost, ShardLost):
            raise
        except Exception as error:  # such as OutOfMemory, or no thread: the run goes on
            self._failed(identity, pace, error)
            return
        pace.saved(job, perf_counter() - began)

    def forget(self, identity: str) -> None:
        """Removes the file of a run that has ended."""
        self.waiting.discard(identity)
        if identity in self._present:
            self._present.remove(identity)
            self._writing.pop(identity, None)
            try:
                self._writer.submit(self._remove, identity)
            except RuntimeError:  # no thread can be started
                self._remove(identity)

    def close(self) -> None:
        """Waits for what is written."""
        self._writer.shutdown()
        for identity in self._taken:  # its run did not end the server
            with suppress(OSError):
                self._path(identity, "taken").replace(self._path(identity))

    def _write(self, identity: str, state: SavedRun, pace: Pace) -> None:
        try:
            make_directory(self._directory)
            state.save(self._path(identity))
            self._forget_taken(identity)
        except Exception as error:  # such as a full disk
            self._failed(identity, pace, error)

    def _failed(self, identity: str, pace: Pace, error: Exception) -> None:
        pace.stop()
        log.warning("analysis %s is not saved any more: %s", identity, error)

    def _remove(self, identity: str) -> None:
        self._unlink(identity, "state")
        self._forget_taken(identity)

    def _forget_taken(self, identity: str) -> None:
        if identity in self._taken:
            self._taken.remove(identity)
            self._unlink(identity, "taken")

    def _unlink(self, identity: str, kind: str) -> None:
        try:
            self._path(identity, kind).unlink(missing_ok=True)
        except OSError as error:
            log.warning("analysis %s: its state was not removed: %s", identity, error)

    def _path(self, identity: str, kind: str = "state") -> Path:
        return self._directory / f"{identity}.{kind}"
