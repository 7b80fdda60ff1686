"""Recovery of a graph: the newest valid checkpoint, then the later batches of the journal, and the
writer that continues.

Ids follow from the order of the batches, so a replay through the same `apply` assigns every key the
same id. Rejected batches are skipped, and so are lost ones (see liverank_service.storage.salvage).
A batch without an outcome was committed but not answered, or a power loss took its receipt: it is
applied or rejected now, and gets its receipt with the next ranking. A batch with a receipt must
apply again; otherwise the graph would not be the one that was published, and recovery stops.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from liverank.choices import KeyKind
from liverank_gpu import (
    DeviceLost,
    Engine,
    EngineError,
    InvalidValue,
    OutOfMemory,
    ShardLost,
)
from liverank_service.errors import (
    FileDamaged,
    FormatError,
    GraphStopped,
    InvalidField,
    SourcePositionConflict,
    StorageFailed,
    UnknownSet,
    UnknownVertex,
)
from liverank_service.formats.payload import decode_payload
from liverank_service.pipeline.analyses import Analyses, AnalysisLimits
from liverank_service.pipeline.batch import AppliedBatch, Observer, StageSeconds
from liverank_service.pipeline.checkpointer import (
    Captured,
    Checkpointer,
    CheckpointLimits,
    StoredCheckpoint,
    keys_of,
    restore_window,
    sets_of,
    snapshot_of,
    source_positions_of,
    view_of,
    views_of,
)
from liverank_service.pipeline.keyed_graph import KeyedGraph, SourcePositions, VertexSets
from liverank_service.pipeline.published import PublishedViews
from liverank_service.pipeline.ranking import RECOVERY, Ranking
from liverank_service.pipeline.waiting import Waiters
from liverank_service.pipeline.window import Window, WindowOptions
from liverank_service.pipeline.writer import WorkQueue, Writer
from liverank_service.problems import encode_problem, problem_of
from liverank_service.queries.model import Members, Refusals
from liverank_service.queries.rank_views import RankViews
from liverank_service.queries.scheduler import QueryScheduler
from liverank_service.queries.view import View
from liverank_service.queries.watched import WatchedQueries
from liverank_service.storage import checkpoint as checkpoints
from liverank_service.storage import journal as journal_file
from liverank_service.storage.checkpoint import Checkpoint
from liverank_service.storage.journal import Journal, ReplayMark
from liverank_service.storage.kept_files import (
    ANALYSES_FILE,
    VIEWS_FILE,
    WATCHED_FILE,
    read_analyses,
    read_views,
    read_watched,
)
from liverank_service.storage.recovery import verified_journal, version_needed
from liverank_service.vertex_keys import VertexTable

log = logging.getLogger("liverank.recovery")

BATCH_ERRORS = (
    EngineError,
    MemoryError,
    InvalidField,
    SourcePositionConflict,
    UnknownSet,
    UnknownVertex,
)
"""What a batch without a receipt is rejected for. The writer, which can tell the client at once,
rejects it for every other error too.
"""

MAX_DEATHS = 2
"""A batch is rejected once the device was lost, or the process killed, over it this often."""


@dataclass(frozen=True, slots=True)
class MappedGraph:
    """A graph whose newest checkpoint is mapped, and whose journal is not replayed yet.

    checkpoint  None if there is none
    view        its view; None without it, and if its ranks are no distribution
    """

    engine: Engine
    keys: VertexTable
    checkpoint: Checkpoint | None
    view: View | None
    sets: Members


def map_checkpoint(graph: str, directory: Path, engine: Engine, kind: KeyKind) -> MappedGraph:
    """Maps the newest valid checkpoint of the graph in `directory`, for an engine without
    vertices.
    """
    needed = version_needed(directory / journal_file.FILE)
    checkpoint = checkpoints.newest_valid(directory / checkpoints.DIRECTORY, needed)
    if checkpoint is None:
        return MappedGraph(engine, VertexTable(kind), None, None, {})
    keys, view = keys_of(checkpoint, kind), None
    fault = snapshot_of(checkpoint).ranks_fault()
    if fault is None:
        view = view_of(graph, checkpoint, engine, keys)
    else:
        log.warning("%s: checkpoint %s is ranked again: %s", directory, checkpoint.name, fault)
    sets = sets_of(checkpoint)
    return MappedGraph(engine, VertexTable(kind, keys), checkpoint, view, sets)


def restored_journal(path: Path, graph: MappedGraph) -> Journal:
    """The journal at `path`, verified while the engine restores the checkpoint: independent steps,
    each of which takes seconds on one processor.
    """
    with ThreadPoolExecutor(1, "liverank-verify") as beside:
        journal = beside.submit(verified_journal, path, graph.checkpoint)
        try:
            if graph.checkpoint is not None:
                graph.engine.restore(snapshot_of(graph.checkpoint))
        except BaseException:
            journal.result().close()
            raise
        return journal.result()


def replayed(
    journal: Journal,
    after: int,
    keyed: KeyedGraph,
    positions: SourcePositions,
    engine: Engine,
    mark: ReplayMark,
) -> list[AppliedBatch]:
    """Applies every batch of `journal` after `after` that was not rejected, in order; returns those
    without a receipt.

    A batch over which the device may have been lost is ranked alone, so that it is identified if
    that happens again; one over which it was lost `MAX_DEATHS` times is rejected. So is one that
    may need too much memory, and during whose replay the process ended that often.

    Raises StorageFailed for a payload that cannot be read; GraphStopped for a batch with a receipt
    that no longer applies, and for an error that is none of a batch; DeviceLost, which is recorded
    in the journal; ShardLost.
    """
    unanswered: list[AppliedBatch] = []
    deaths = journal.deaths()
    for version, committed_at, record, _ in journal.batches(after):
        outcome = journal.outcome(version)
        if outcome is not None and outcome.status != "ranked":
            continue
        try:
            columns = decode_payload(record.payload)
        except (FormatError, pa.ArrowException, ValueError, KeyError) as error:
            raise StorageFailed(journal.path, f"batch {version} cannot be read: {error}") from error
        suspect = version in deaths
        try:
            if deaths.get(version, 0) >= MAX_DEATHS:
                raise DeviceLost(f"batch {version} has ended the process {deaths[version]} times")
            if (risk := keyed.memory_risk(columns)) is not None:
                if mark.deaths(version) >= MAX_DEATHS:
                    purpose = f"{risk.purpose}, over which the process ended twice,"
                    raise OutOfMemory(purpose, risk.needed, risk.available)
                suspect = suspect or mark.deaths(version) > 0
                mark.begin(version)
            try:
                positions.check(columns)
                change, _ = keyed.apply(columns)
                positions.advance(columns, version, committed_at)
                if suspect:
                    engine.update(*RECOVERY)
            except DeviceLost:
                journal.blame([version])
                raise
        except ShardLost:
            raise
        except BATCH_ERRORS as error:
            if isinstance(error, DeviceLost) and deaths.get(version, 0) < MAX_DEATHS:
                raise
            if outcome is not None:
                raise GraphStopped(
                    journal.path, f"batch {version} was applied before, but not now: {error}"
                ) from error
            journal.reject(version, encode_problem(problem_of(error)))
            log.warning("%s: batch %d is rejected: %s", journal.path, version, error)
            continue
        except StorageFailed:
            raise
        except Exception as error:  # a fault of this code
            raise GraphStopped(
                journal.path, f"batch {version} cannot be applied: {error!r}"
            ) from error
        if outcome is None:
            seconds = StageSeconds(mutate=change.seconds)
            unanswered.append(AppliedBatch(version, change, seconds))
    return unanswered


@contextmanager
def damage_stops(file: Path) -> Iterator[Path]:
    """The file; if it turns out to be damaged, raises GraphStopped."""
    try:
        yield file
    except (FileDamaged, InvalidValue) as error:
        reason = str(error).removeprefix(f"{file}: ")
        hint = "restore it from a backup or remove it"
        raise GraphStopped(file, f"{reason}; {hint}") from error


@dataclass(frozen=True, slots=True)
class Opening:
    """What remains the same however often the graph is opened.

    commits  the newest version on disk
    capture  has the writer capture the graph; called on the checkpointer's thread
    """

    graph: str
    directory: Path
    window: WindowOptions | None
    checkpoint_limits: CheckpointLimits
    analysis_limits: AnalysisLimits
    observer: Observer
    queue: WorkQueue
    views: PublishedViews
    commits: Waiters[int]
    capture: Callable[[], Captured]

    def writer(
        self, mapped: MappedGraph, journal: Journal, checkpointer: Checkpointer | None = None
    ) -> Writer:
        """Replays and ranks the batches after the checkpoint, which the engine has.

        checkpointer  of an earlier writer of the graph, which this one continues
        """
        engine, checkpoint = mapped.engine, mapped.checkpoint
        sets = VertexSets(self.graph, mapped.sets)
        window = None if self.window is None else Window(self.window, engine)
        if window is not None and checkpoint is not None:
            restore_window(checkpoint, window)
        keyed = KeyedGraph(self.graph, engine, mapped.keys, sets, window)
        stored = [] if checkpoint is None else source_positions_of(checkpoint)
        positions = SourcePositions(self.graph, stored)
        version = checkpoint.version if checkpoint is not None else 0
        mark = ReplayMark(journal.path)
        unranked = replayed(journal, version, keyed, positions, engine, mark)
        refusals = Refusals(self.graph, self.observer.query_refused)
        vertices = keyed.vertices
        with damage_stops(self.directory / WATCHED_FILE) as file:
            queries = read_watched(file, keyed.keys.kind)
            watched = WatchedQueries(refusals, engine, vertices, queries)
        with damage_stops(self.directory / VIEWS_FILE) as file:
            views = read_views(file, keyed.keys.kind)
        starts = {} if checkpoint is None else views_of(checkpoint)
        rank_views = RankViews(engine, vertices, views, starts)
        ranking = Ranking(
            keyed,
            positions,
            journal,
            watched,
            rank_views,
            self.directory,
            self.views,
            self.observer,
            unranked,
            checkpoint.revision if checkpoint is not None else 0,
        )
        if mapped.view is None or version < journal.version:
            ranking.rank(RECOVERY, journal.version)
        else:
            ranking.publish_watched()
        mark.end()
        if journal.deaths():
            journal.acquit()
        scheduler = QueryScheduler(
            self.queue.queries,
            engine,
            vertices,
            newest=ranking.newest,
            keep=ranking.watch,
            closing=lambda: self.queue.closed is not None,
            refusals=refusals,
        )
        with damage_stops(self.directory / ANALYSES_FILE) as file:
            requested = read_analyses(file)
        analyses = Analyses(
            keyed,
            lambda: journal.version,
            lambda: self.views.newest.version,
            requested,
            self.directory,
            self.analysis_limits,
            self.observer,
        )
        if checkpointer is None:
            checkpointer = Checkpointer(
                self.graph,
                self.directory / checkpoints.DIRECTORY,
                journal,
                self.checkpoint_limits,
                self.capture,
                None if checkpoint is None else StoredCheckpoint.of(checkpoint),
            )
        return Writer(
            self.queue,
            ranking,
            scheduler,
            analyses,
            checkpointer,
            self.observer,
            self.commits,
        )
