"""Ranks applied batches: solves, writes receipts, publishes the view, and completes the futures."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from liverank_gpu import (
    Change,
    DeviceLost,
    Registration,
    Result,
    ShardLost,
    Solve,
    StagingBuffer,
)
from liverank_service.errors import (
    ExpiryFailed,
    OutcomeDelayed,
    RankingDelayed,
    RankingFailed,
    StorageFailed,
    UnknownView,
    UnknownWatched,
)
from liverank_service.pipeline.batch import (
    AppliedBatch,
    Observer,
    RankedBatch,
    RankedView,
    StageSeconds,
    receipt_of,
)
from liverank_service.pipeline.checkpointer import Captured
from liverank_service.pipeline.keyed_graph import KeyedGraph, SourcePositions
from liverank_service.pipeline.published import PublishedViews
from liverank_service.pipeline.shards import blame
from liverank_service.pipeline.waiting import Completions
from liverank_service.queries.model import QueryByIds
from liverank_service.queries.rank_views import RankViews, ViewRequest
from liverank_service.queries.scheduler import WatchRequest
from liverank_service.queries.view import View
from liverank_service.queries.watched import KeptQueries, WatchedQueries
from liverank_service.storage.journal import Journal
from liverank_service.storage.kept_files import VIEWS_FILE, WATCHED_FILE, write_views, write_watched

log = logging.getLogger("liverank.pipeline")

RECOVERY = Solve("auto")
"""How to rank without earlier ranks: only `auto` then guarantees the target error."""

_FALLBACKS = {
    "static": "those of a static solve are published",
    "equal": "equal ranks are published, with an error bound of 2",
    "kept": "the ranks published before are kept",
}


@dataclass(frozen=True, slots=True)
class UnrankedGroup:
    """Applied but unranked batches up to `version`, the first since `since` (`perf_counter`)."""

    solve: Solve
    version: int
    since: float


class Ranking:
    """The ranks of one graph. Only for the writer's thread.

    journal, keyed, positions  of the graph
    unranked  applied batches without a receipt
    rejected  batches whose rejection could not be stored, with the problem documents; nothing is
              committed or published before they are
    overdue   why what the last batch made too old is not deleted yet: no batch is committed and
              nothing is ranked before it is; None if it is
    group     the ones that `rank_group` ranks next

    If a solve leaves no distribution, and a static one neither (liverank_gpu.pagerank.gate), the
    view that is published stays, and so does its version, until a later ranking succeeds.
    """

    def __init__(
        self,
        keyed: KeyedGraph,
        positions: SourcePositions,
        journal: Journal,
        watched: WatchedQueries,
        rank_views: RankViews,
        directory: Path,
        views: PublishedViews,
        observer: Observer,
        unranked: list[AppliedBatch],
        revision: int,
    ) -> None:
        """directory  of the graph, for what it keeps
        revision   that of the checkpoint; no lower one is published
        """
        self._graph, self._engine = keyed.graph, keyed.engine
        self._improvable = False
        self.keyed = keyed
        self.positions = positions
        self.journal = journal
        self._watched = watched
        self._rank_views = rank_views
        self._directory = directory
        self._views = views
        self._observer = observer
        self._revision = max(journal.revision, revision)
        self.unranked = unranked
        self.rejected: list[tuple[int, bytes]] = []
        self.overdue: str | None = None
        self.group: UnrankedGroup | None = None
        self._kept: str | None = None

    def newest(self) -> tuple[int, int]:
        """The newest version, ranked or not, and the newest revision."""
        return self.journal.version, self._revision

    def add_group(self, solve: Solve, version: int, since: float) -> None:
        """Adds applied batches up to `version` to the group, which are ranked in the same way."""
        since = since if self.group is None else self.group.since
        self.group = UnrankedGroup(solve, version, since)

    def rank_group(self) -> None:
        """Ranks the group, if there is one."""
        group, self.group = self.group, None
        if group is None:
            return
        try:
            if not self.unranked and self._kept is None:  # all were rejected
                self.store_rejections()
                self._views.publish(replace(self._views.newest, version=group.version))
                return
            self.rank(group.solve, group.version)
        except ShardLost:
            raise
        except Exception as error:
            log.exception("graph %s: version %d is not ranked", self._graph, group.version)
            self.fail_unranked(error)

    def rank_committed(self) -> None:
        """Ranks all committed batches, so that the newest view is one of the current graph.

        Raises StorageFailed and ExpiryFailed; the batches then remain unranked. Raises
        RankingFailed if earlier ranks are kept.
        """
        self.rank_group()
        if self._views.newest.version < self.journal.version:
            # to be ranked later, or a ranking failed
            self.rank(RECOVERY, self.journal.version)
        if self._kept is not None:
            raise RankingFailed(self.journal.version, self._kept)

    def rank(self, solve: Solve, version: int) -> RankedView:
        """Ranks, writes all receipts, then publishes the view and completes the futures.

        Raises StorageFailed, ExpiryFailed; nothing is then published, and the batches remain
        unranked.
        """
        self.store_rejections()
        if self.overdue is not None:
            raise ExpiryFailed(self.overdue)
        revision = self._next_revision()
        ranked = self._solve(solve, version, revision)
        receipts = [receipt_of(one, ranked, one.submitted) for one in self.unranked]
        self.journal.add_receipts(
            (applied.version, receipt)
            for applied, receipt in zip(self.unranked, receipts, strict=True)
        )
        answered, self.unranked = self.unranked, []
        self._kept = ranked.result.refused if ranked.kept else None
        if not ranked.kept:
            self._views.publish(ranked.view)
        completions = Completions()
        for applied, receipt in zip(answered, receipts, strict=True):
            if applied.pending is not None:
                applied.pending.set_ranked(receipt, completions)
        completions.deliver()
        if not ranked.kept:
            self._views.changes.publish(ranked.view, ranked.slowest(answered))
        self._observer.ranked(
            [
                RankedBatch(
                    one.version,
                    one.change,
                    one.seconds,
                    one.submitted,
                    one.pending.context if one.pending else Context(),
                )
                for one in answered
                if one.pending is not None or one.deferred
            ],
            ranked.result,
        )
        return ranked

    def recompute(self, solve: Solve, submitted: float) -> bytes:
        """Ranks again; returns the receipt, with the same version and the next revision."""
        began = perf_counter()
        self.journal.reserve(1)  # here, so that its time counts as that of the journal
        seconds = StageSeconds(queue=began - submitted, journal=perf_counter() - began)
        version = self.journal.version
        ranked = self.rank(solve, version)
        nothing = Change(0, 0, 0, 0, 0, 0.0)
        return receipt_of(AppliedBatch(version, nothing, seconds), ranked, submitted)

    def capture(self, buffer: StagingBuffer, call: Callable[[Callable[[], Any]], Any]) -> Captured:
        """The current graph, for a checkpoint. call: see Captured"""
        begin = perf_counter()
        self.rank_committed()  # a checkpoint cannot hold unranked batches
        view = self._views.newest
        assert view.version == self.journal.version
        captured = self._engine.capture(buffer)
        seconds = perf_counter() - begin
        return Captured(
            view,
            self.journal.chain,
            captured,
            self.keyed.keys.capture(),
            self.keyed.sets.members,
            None if self.keyed.window is None else self.keyed.window.capture(),
            self.positions.newest,
            seconds,
            call,
        )

    def watch(
        self, request: WatchRequest, found: QueryByIds, registration: Registration | None
    ) -> tuple[bool, View]:
        """Stores a watched query or a view; returns whether its name is new, and what is published
        with its result.

        found, registration  see KeptQueries.keep

        Raises StorageFailed, ExpiryFailed; nothing is then changed.
        """
        # it was solved on the current graph, so it is published with ranks of the same graph
        self.rank_committed()
        name, (query,) = request.name, request.queries
        kept: KeptQueries[Any, Any] = self._watched
        if isinstance(query, ViewRequest):
            kept = self._rank_views
        is_new = name not in kept.queries
        queries = kept.with_query(name, query)
        self._write(kept, queries)
        kept.keep(queries, name, found, registration)
        self.publish_watched()
        return is_new, self._views.newest

    def _write(self, kept: KeptQueries[Any, Any], queries: Mapping[str, Any]) -> None:
        write = write_views if kept is self._rank_views else write_watched
        file = VIEWS_FILE if kept is self._rank_views else WATCHED_FILE
        write(self._directory / file, queries, self.keyed.keys.kind)

    def unwatch(self, name: str) -> None:
        """Raises UnknownWatched, StorageFailed."""
        self._remove(self._watched, name)
        reason = UnknownWatched(self._graph, name, "watched")
        self._views.changes.end(lambda subscription: subscription.watched == name, reason)

    def remove_view(self, name: str) -> None:
        """Raises UnknownView, StorageFailed."""
        self._remove(self._rank_views, name)
        reason = UnknownView(self._graph, name, list(self._rank_views.queries))
        self._views.changes.end(lambda subscription: subscription.view == name, reason)

    def _remove(self, kept: KeptQueries[Any, Any], name: str) -> None:
        queries = kept.without_query(name)
        self._write(kept, queries)
        kept.remove(queries, name)
        self.publish_watched()

    def bring_view(self, name: str) -> View:
        """What is published once a view is solved, if a read has to. Raises UnknownView,
        StorageFailed, ExpiryFailed and RankingFailed.
        """
        self.rank_committed()  # its bound is of what is applied, and so has the version to be
        self._rank_views.bring(name)
        self.publish_watched()
        return self._views.newest

    def publish_watched(self) -> None:
        """Publishes the newest view again, with the current watched queries and views."""
        newest = self._views.newest
        watched, rank_views = self._watched.results, self._rank_views.results
        again = newest.renewed + 1
        view = replace(newest, watched=watched, rank_views=rank_views, renewed=again)
        self._views.publish(view)
        self._views.changes.publish(view)

    def store_rejections(self) -> None:
        """Stores the rejections that could not be stored before. Raises StorageFailed."""
        while self.rejected:
            self.journal.reject(*self.rejected[0])
            del self.rejected[0]

    def _next_revision(self) -> int:
        """A revision that is reserved on disk. It is not used again, even if its ranks are not
        published. Raises StorageFailed.
        """
        revision = self._revision + 1
        if revision > self.journal.revision:
            self.journal.reserve(revision - self.journal.revision)
        self._revision = revision
        return revision

    def _solve(self, solve: Solve, version: int, revision: int) -> RankedView:
        try:
            result = self._engine.update(*solve)
            self._improvable = True
            kept = result.fallback == "equal" and self._views.is_ready
            self._watched.refresh()
            self._rank_views.refresh()
            self._engine.end_stage("watched")
            view = self._views.newest if kept else self._view(version, revision, result)
            self._engine.end_stage("publish")
            seconds = self._engine.stage_seconds()
            of_views = self._rank_views.seconds
            ranked = RankedView(result, view, seconds, perf_counter(), kept, of_views)
            self._report(ranked, version)
            return ranked
        except DeviceLost as error:
            blame(self.journal, [applied.version for applied in self.unranked], error)

    @property
    def improvable(self) -> bool:
        """Whether `improve` may help."""
        return self._improvable and not self.unranked

    def improve(self) -> None:
        """Brings the ranks nearer than the target error, by a few sweeps: see Engine.improve. The
        view stays as it is. Raises DeviceLost.
        """
        self._improvable = self._engine.improve()

    def _report(self, ranked: RankedView, version: int) -> None:
        """Says so if the ranks of a solve were refused."""
        if ranked.fallback is None:
            return
        log.warning(
            "graph %s: the ranks of version %d by %s were refused: %s; %s",
            self._graph,
            version,
            ranked.result.strategy,
            ranked.result.refused,
            _FALLBACKS[ranked.fallback],
        )
        self._observer.refused(ranked.fallback)

    def _view(self, version: int, revision: int, result: Result) -> View:
        ranks = self._engine.publish()  # first: the memory of shards is known with it
        return View(
            graph=self._graph,
            version=version,
            revision=revision,
            error_bound=result.error_bound,
            vertices=self._engine.vertices,
            edges=self._engine.edges,
            memory={**self._engine.memory(), **self.keyed.memory()},
            ranks=ranks,
            keys=self.keyed.keys,
            watched=self._watched.results,
            rank_views=self._rank_views.results,
            sets=self.keyed.sets.members,
            positions=self.positions.reached,
        )

    def fail_unranked(self, error: Exception) -> None:
        """Fails the futures; the batches are ranked, and get receipts, with the next ones, or when
        one of them is sent again.
        """
        completions = Completions()
        for applied in self.unranked:
            if applied.pending is not None:
                applied.pending.fail(_failure(applied.version, error), completions)
                applied.pending, applied.late = None, True
                self._observer.failed(1)
        completions.deliver()

    def refuse(self, reason: Exception) -> None:
        """Fails all pending futures: the graph is closed."""
        completions = Completions()
        for applied in self.unranked:
            if applied.pending is not None:
                applied.pending.fail(reason, completions)
        completions.deliver()


def _failure(version: int, error: Exception) -> Exception:
    """What the client of a batch is told that `error` left unranked."""
    if isinstance(error, ShardLost | ExpiryFailed):
        return RankingDelayed(version, error)
    kind = OutcomeDelayed if isinstance(error, StorageFailed) else RankingFailed
    return kind(version, str(error))
