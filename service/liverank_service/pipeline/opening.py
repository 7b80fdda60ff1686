"""Makes the writer of a graph from its checkpoint and its journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from liverank_service.pipeline.analyses import Analyses, AnalysisLimits, Versions
from liverank_service.pipeline.capture import Captured, source_positions_of
from liverank_service.pipeline.checkpointer import Checkpointer, CheckpointLimits, StoredCheckpoint
from liverank_service.pipeline.keyed_graph import KeyedGraph
from liverank_service.pipeline.observer import Observer
from liverank_service.pipeline.published import PublishedViews
from liverank_service.pipeline.ranking import RECOVERY, Ranking
from liverank_service.pipeline.recovery import (
    MappedGraph,
    replayed,
    restored_analyses,
    restored_views,
    restored_watched,
    restored_window,
)
from liverank_service.pipeline.shards import Shards
from liverank_service.pipeline.source_positions import SourcePositions
from liverank_service.pipeline.vertex_sets import VertexSets
from liverank_service.pipeline.waiters import Waiters
from liverank_service.pipeline.window import WindowOptions
from liverank_service.pipeline.work_queue import WorkQueue
from liverank_service.pipeline.writer import Writer
from liverank_service.queries.requests import Refusals
from liverank_service.queries.scheduler import QueryScheduler
from liverank_service.shard_errors import Unsupported
from liverank_service.storage import checkpoint as checkpoints
from liverank_service.storage.journal import Journal
from liverank_service.storage.replay_mark import ReplayMark


@dataclass(frozen=True, slots=True)
class Opening:
    """What remains the same however often the graph is opened.

    commits  the newest version on disk
    capture  has the writer capture the graph; called on the checkpointer's thread
    """

    graph: str
    directory: Path
    window: WindowOptions | None
    shards: Shards
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
        window = restored_window(self.window, engine, checkpoint)
        keyed = KeyedGraph(self.graph, engine, mapped.keys, sets, window)
        stored = [] if checkpoint is None else source_positions_of(checkpoint)
        positions = SourcePositions(self.graph, stored)
        version = checkpoint.version if checkpoint is not None else 0
        mark = ReplayMark(journal.path)
        unranked = replayed(journal, version, keyed, positions, engine, mark)
        refusals = Refusals(self.graph, self.observer.query_refused)
        watched = restored_watched(self.graph, engine, keyed, refusals, self.directory)
        rank_views = restored_views(self.graph, engine, keyed, self.directory, checkpoint)
        if rank_views.queries and self.shards.count:
            raise Unsupported("views", list(rank_views.queries), "a graph without views")
        ranking = Ranking(
            self.graph,
            engine,
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
            self.graph,
            self.queue.queries,
            engine,
            keys=lambda: keyed.keys,
            newest=ranking.newest,
            keep=ranking.watch,
            closing=lambda: self.queue.closed is not None,
            sets=lambda: keyed.sets.members,
            refusals=refusals,
        )
        versions = Versions(lambda: journal.version, lambda: self.views.newest.version)
        requested = restored_analyses(self.directory)
        if requested and self.shards.count:
            raise Unsupported("analyses", [one.id for one in requested], "a graph without analyses")
        kept = (self.analysis_limits, self.observer)
        analyses = Analyses(self.graph, engine, keyed, versions, requested, self.directory, *kept)
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
            self.graph,
            self.queue,
            journal,
            keyed,
            positions,
            ranking,
            scheduler,
            analyses,
            checkpointer,
            self.observer,
            self.commits,
        )
