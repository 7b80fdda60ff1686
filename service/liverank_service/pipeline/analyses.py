"""The analyses of one graph: programs that run in time slices between batches, on the writer's
thread.

A run reads the live graph until a batch comes, and then a copy of it (liverank_gpu.graph.reading),
so its answer is that of the version at which it began. Several run at once, in turns; the others
wait in the order of their requests. One whose state was saved goes on after a restart if the graph
is as it was, and begins again otherwise.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from math import inf
from pathlib import Path
from time import perf_counter

from liverank.choices import Mode
from liverank.client.responses import AnalysisProgress
from liverank_gpu import (
    PROGRAMS,
    Algorithm,
    Answer,
    DeviceLost,
    InvalidValue,
    ProgramRun,
    ShardLost,
)
from liverank_service.errors import LimitExceeded, TooManyAnalyses, UnknownAnalysis
from liverank_service.pipeline.batch import Observer
from liverank_service.pipeline.keyed_graph import KeyedGraph
from liverank_service.pipeline.waiting import Waiters
from liverank_service.problems import problem_of
from liverank_service.queries.analyses import (
    NO_LIMITS,
    NOT_BEGUN,
    Analysis,
    AnalysisAnswer,
    AnyProgram,
    Parameters,
    RunLimits,
    built_in,
    parameters_by_id,
    tie_order,
)
from liverank_service.queries.scheduler import SLICE_SECONDS
from liverank_service.storage.kept_files import ANALYSES_FILE, write_analyses
from liverank_service.storage.saved_runs import Pace, SavedRuns
from liverank_service.vertex_keys import VertexKeys

log = logging.getLogger("liverank.analyses")

OF_USER = "(of a user)"
"""What metrics call every program that is not built in: their names may be many."""


@dataclass(frozen=True, slots=True)
class AnalysisLimits:
    """Of one graph.

    running  analyses that run at once; more are queued
    kept     analyses in any state; more are refused
    seconds  of a run of a user's program, at most
    named    a program by its name; raises ServiceError or InvalidValue
    """

    running: int = 2
    kept: int = 16
    seconds: float = inf
    named: Callable[[str], AnyProgram] = built_in


@dataclass(eq=False, slots=True)
class _Run:
    """An analysis that runs, on one version.

    resumed  the superstep from which it went on after a restart; 0: it began again; None: there was
             no restart
    """

    id: str
    job: ProgramRun
    version: int
    keys: VertexKeys
    pace: Pace
    resumed: int | None

    @property
    def seconds(self) -> float:
        """Spent, before a restart too."""
        return self.pace.spent + self.job.seconds


class Analyses:
    """Any thread may call `get`, `all`, `memory`, `ends` and `next_end`; everything else is for the
    writer's thread.

    ends  how often one has ended
    """

    def __init__(
        self,
        keyed: KeyedGraph,
        committed: Callable[[], int],
        published: Callable[[], int],
        stored: Sequence[Analysis],
        directory: Path,
        limits: AnalysisLimits,
        observer: Observer,
    ) -> None:
        """committed, published: the newest versions; stored: those in the file of the directory"""
        self._graph, self._engine = keyed.graph, keyed.engine
        self._keyed = keyed
        self._committed, self._published = committed, published
        self._file = directory / ANALYSES_FILE
        self._limits = limits
        self._observer = observer
        self._saved = SavedRuns(directory, {one.id for one in stored})
        goes_on = self._saved.waiting
        self._all = {
            one.id: replace(one, state="queued") if one.id in goes_on else one for one in stored
        }
        self._queued = deque(one.id for one in self._all.values() if one.state == "queued")
        self._running: deque[_Run] = deque()
        # of analyses that are kept fresh: the version of the last run, and what the next continues
        self._begun: dict[str, int] = {}
        self._last: dict[str, Answer] = {}
        self._endings = Waiters[int]()
        self.ends = 0

    def __bool__(self) -> bool:
        """Whether one is queued or runs, or is to run again."""
        return bool(self._queued or self._running or self._outdated())

    def get(self, identity: str) -> Analysis:
        """Raises UnknownAnalysis."""
        if (found := self._all.get(identity)) is None:
            raise UnknownAnalysis(self._graph, identity)
        return found

    def all(self) -> list[Analysis]:
        """In the order of their requests."""
        return list(self._all.values())

    def memory(self) -> dict[str, int]:
        """Bytes held now: copies of the graph, and answers in host memory."""
        answers = sum(one.answer.nbytes for one in self.all() if one.answer is not None)
        return {"programs": self._engine.programs.nbytes, "analyses": answers}

    def next_end(self, ends: int) -> Future[int]:
        """Done when `self.ends` exceeds `ends`; it may be cancelled."""
        return self._endings.first(lambda reached: reached > ends)

    def start(
        self,
        program: str,
        parameters: Parameters,
        fresh: bool,
        mode: Mode = "synchronous",
        limits: RunLimits = NO_LIMITS,
        save_every: int | None = None,
    ) -> str:
        """Begins to run a program, or queues it; returns the id.

        parameters  checked
        save_every  see Analysis

        Raises TooManyAnalyses, UnknownVertex, InvalidValue, OutOfMemory, StorageFailed; nothing is
        then kept.
        """
        if len(self._all) >= self._limits.kept:
            unfinished = len(self._queued) + len(self._running)
            raise TooManyAnalyses(self._graph, self._limits.kept, unfinished)
        named = self._limits.named(program)
        limits = limits.checked(named, mode, self._limits.seconds)
        if save_every and isinstance(named, Algorithm):
            raise InvalidValue("save_every", save_every, f"left out for {program}")
        new = Analysis(
            secrets.token_hex(8),
            program,
            parameters,
            fresh,
            time.time(),
            mode=mode,
            limits=limits,
            save_every=save_every,
        )
        run: _Run | None = None
        if len(self._running) < self._limits.running and not self._queued:
            run = self._begun_run(new)
        else:
            parameters_by_id(self._graph, parameters, self._keyed.keys)
        try:
            self._store([*self.all(), new])
        except BaseException:
            if run is not None:
                self._engine.programs.close(run.job)
            raise
        if run is None:
            self._queued.append(new.id)
        else:
            self._running.append(run)
            self._begun[new.id] = run.version
        self._put(replace(new, state="running" if run else "queued"))
        return new.id

    def remove(self, identity: str) -> None:
        """Cancels one that is queued or runs; forgets one that has ended.

        Raises UnknownAnalysis, StorageFailed.
        """
        found = self.get(identity)
        self._store([one for one in self.all() if one.id != identity])
        self._forget_run(identity)
        if found.is_unfinished:
            self._end(replace(found, state="cancelled", answer=None))
            return
        self._all = {one.id: one for one in self.all() if one.id != identity}

    def advance(self, seconds: float = SLICE_SECONDS) -> None:
        """Works for about `seconds`, for at least one step."""
        end = perf_counter() + seconds
        while self:
            for one in self._outdated():
                self._put(replace(one, state="queued"))
                self._queued.append(one.id)
            while self._queued and len(self._running) < self._limits.running:
                self._begin(self._queued.popleft())
            if self._running:
                self._step(seconds)
            if perf_counter() >= end:
                return

    def refuse(self, reason: Exception) -> None:
        """Ends all runs: the graph is closed."""
        self._queued.clear()
        while self._running:
            self._engine.programs.close(self._running.popleft().job)
        self._saved.close()
        self._endings.close(reason)

    def _store(self, analyses: Sequence[Analysis]) -> None:
        """Cancelled ones are left out: after a restart those that are kept fresh would run again.

        Raises StorageFailed.
        """
        write_analyses(self._file, [one for one in analyses if one.state != "cancelled"])

    def _outdated(self) -> list[Analysis]:
        """Those that are kept fresh and have ended, of which a later version is published."""
        ended = [one for one in self.all() if one.fresh and one.state in ("finished", "failed")]
        if not ended:
            return []
        published = self._published()
        return [one for one in ended if self._begun.get(one.id, -1) < published]

    def _begin(self, identity: str) -> None:
        queued = self.get(identity)
        self._begun[identity] = self._committed()
        try:
            self._running.append(self._begun_run(queued))
        except (DeviceLost, ShardLost):
            raise
        except Exception as error:
            self._fail(identity, error)
        else:
            self._put(replace(queued, state="running", progress=NOT_BEGUN, problem=None))

    def _begun_run(self, analysis: Analysis) -> _Run:
        keys, version = self._keyed.keys, self._committed()
        parameters = parameters_by_id(self._graph, analysis.parameters, keys)
        program = self._limits.named(analysis.program)
        last = self._last.get(analysis.id)
        if last is not None and (last.program is not program or last.parameters != parameters):
            last = None  # the key has another id now, or the name another program
        try:
            order, limits = tie_order(program, keys), analysis.limits.of_engine
            begin = partial(
                self._engine.programs.begin,
                program,
                last,
                analysis.mode,
                parameters,
                order,
                limits=limits,
            )
            if analysis.id in self._saved.waiting:
                return self._resumed_run(analysis, begin, version, keys)
            job = begin()
        except InvalidValue as error:
            if error.field not in parameters:
                raise
            field = f"parameters.{error.field}"
            raise type(error)(field, error.value, error.requirement) from None
        return _Run(analysis.id, job, version, keys, Pace(analysis.save_every), None)

    def _resumed_run(
        self,
        analysis: Analysis,
        begin: Callable[..., ProgramRun],
        version: int,
        keys: VertexKeys,
    ) -> _Run:
        """Goes on from the state in the file if it is one of this graph, else begins again."""
        pace = Pace(analysis.save_every)
        state = self._saved.take(analysis.id, pace)
        try:
            job = begin(resume=state)
        except InvalidValue as error:
            if error.field != "resume":
                raise
            log.info("analysis %s begins again: %s", analysis.id, error)
            job, state, pace = begin(), None, Pace(analysis.save_every)
        return _Run(analysis.id, job, version, keys, pace, state.supersteps if state else 0)

    def _step(self, seconds: float) -> None:
        run = self._running[0]
        self._running.rotate(-1)
        job = run.job
        try:
            left = run.pace.left(job)
            job.step(seconds, *([left] if left else []))
            progress = AnalysisProgress(job.supersteps, job.edges, run.seconds)
            self._put(replace(self.get(run.id), progress=progress))
            found = self.get(run.id)
            limit = found.limits.seconds
            if found.program not in PROGRAMS:  # which may be lower since the request was stored
                limit = min(limit or inf, self._limits.seconds)
            if job.done:
                self._finish(run)
            elif limit is not None and run.seconds > limit:
                raise LimitExceeded("limits.seconds", limit, f"{run.seconds:.3g} seconds")
            elif run.pace.is_due(job):
                self._saved.save(run.id, job, run.pace, seconds)
        except (DeviceLost, ShardLost):
            raise
        except Exception as error:
            self._fail(run.id, error)

    def _finish(self, run: _Run) -> None:
        """Raises the error with which the run ended."""
        answer = run.job.answer()
        found = self.get(run.id)
        values = AnalysisAnswer.of(answer, run.version, run.keys)
        about = {"seconds": run.seconds, "resumed": run.resumed}
        values = replace(values, receipt={**values.receipt, **about})
        self._forget_run(run.id)
        if found.fresh:
            self._begun[run.id] = run.version
            if answer.may_continue:
                self._last[run.id] = answer
        self._end(replace(found, state="finished", answer=values))

    def _fail(self, identity: str, error: Exception) -> None:
        problem = problem_of(error)
        fault = error if problem["status"] == HTTPStatus.INTERNAL_SERVER_ERROR else None
        log.warning(
            "graph %s: analysis %s failed: %s",
            self._graph,
            identity,
            problem["title"],
            exc_info=fault,
        )
        begun = self._begun.get(identity, 0)
        self._forget_run(identity)
        self._begun[identity] = begun
        self._end(replace(self.get(identity), state="failed", problem=problem))

    def _end(self, ended: Analysis) -> None:
        self._put(ended)
        program = ended.program if ended.program in PROGRAMS else OF_USER
        self._observer.analysed(program, ended.state, ended.progress.seconds)
        self.ends += 1
        self._endings.reach(self.ends)

    def _forget_run(self, identity: str) -> None:
        """Ends its run, if it has one."""
        if identity in self._queued:
            self._queued.remove(identity)
        for run in [run for run in self._running if run.id == identity]:
            self._running.remove(run)
            self._engine.programs.close(run.job)
        self._saved.forget(identity)
        self._last.pop(identity, None)
        self._begun.pop(identity, None)

    def _put(self, analysis: Analysis) -> None:
        self._all = {**self._all, analysis.id: analysis}
