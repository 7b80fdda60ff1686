"""The published versions of one graph, and its change feed: an event for each published revision,
on a thread of its own.

    writer ──▶ publish ──▶ compare, once for equal subscriptions ──▶ ring of events ──▶ subscribers

The writer only appends to a list. All subscribers of a subscription read from its ring, which holds
its newest events. One that falls behind the ring is dropped; one that reconnects in time continues.
An event's id is EPOCH-REVISION, or EPOCH-REVISION.NUMBER for ranks of a view or a watched query
that are published between two revisions. The epoch names the run of the graph and the ring: there
is another one after a restart, for another subscription, and once a ring was removed.

If comparing takes longer than ranking, ranks are skipped: the event of such a revision is
`deferred`, and the next one that is not has its changes.
"""

from __future__ import annotations

import logging
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import orjson

from liverank_service.errors import NotReady, ServiceError, SlowSubscriber, TooBusy
from liverank_service.pipeline.batch import StageSeconds
from liverank_service.pipeline.shards import device_loss_ends_process
from liverank_service.pipeline.waiting import Completions, Waiter, Waiters, weakly
from liverank_service.queries.changes import ChangeTracker, Subscription
from liverank_service.queries.view import MinPosition, Position, View, are_reached

log = logging.getLogger("liverank.changes")

MAX_SUBSCRIPTIONS = 16
"""Different subscriptions of a graph; each takes 8 bytes a vertex and one comparison a revision."""

RESUME_SECONDS = 60.0
"""A ring without subscribers is removed after this time."""

MAX_WAITING_VIEWS = 4
"""Published ranks that wait to be compared; each takes as much memory as the ranks."""

RECEIPTS_FIRST_SECONDS = 0.004
"""Before a comparison, which would compete for the interpreter with the receipts of its batches."""

_POSITION = re.compile(r"(\d{1,100})(?:\.(\d{1,100}))?", re.ASCII)

MAX_EVENTS = 1024
MAX_EVENT_BYTES = 8 << 20
"""Bounds on a ring; the newest event is always kept."""

NO_CHANGES: dict[str, Any] = {"entered": [], "left": [], "moved": [], "truncated": False}


@dataclass(frozen=True, eq=False, slots=True)
class Event:
    """An event as subscribers get it.

    name  ``change``, ``snapshot`` or ``gap``
    data  JSON
    """

    name: str
    id: str
    position: Position
    data: bytes

    @classmethod
    def of(cls, name: str, epoch: str, position: Position, members: dict[str, Any]) -> Event:
        revision, renewed = position
        number = f"{revision}.{renewed}" if renewed else revision
        return cls(name, f"{epoch}-{number}", position, orjson.dumps(members))


class EventRing:
    """The newest events of one subscription. Any thread may call any method."""

    def __init__(self, epoch: str, tracker: ChangeTracker) -> None:
        self.epoch = epoch
        self.tracker = tracker
        self.subscribers = 0
        self.idle_since = time.monotonic()
        self._changing = threading.Lock()
        self._events: deque[Event] = deque()
        self._bytes = 0
        self._removed = self._newest = tracker.view.position  # no event up to it is in the ring
        self._waiting: list[Waiter[None]] = []
        self._closed: Exception | None = None

    def append(self, event: Event) -> None:
        """Adds the newest event and wakes those who wait for it."""
        completions = Completions()
        with self._changing:
            self._events.append(event)
            self._bytes += len(event.data)
            self._newest = event.position
            while len(self._events) > MAX_EVENTS or (
                self._bytes > MAX_EVENT_BYTES and len(self._events) > 1
            ):
                removed = self._events.popleft()
                self._bytes -= len(removed.data)
                self._removed = removed.position
            self._wake(completions)
        completions.deliver()

    def read(self, after: Position, waiter: Waiter[None]) -> list[Event]:
        """The events after a position. If there are none, `waiter` gets a result once there is one.

        Raises SlowSubscriber if some are no longer in the ring, and the reason given to `close`.
        """
        with self._changing:
            if self._closed is not None:
                raise self._closed.with_traceback(None)
            if after < self._removed:
                raise SlowSubscriber(self._newest[0] - after[0])
            if after >= self._newest:
                self._waiting.append(waiter)
                return []
            return [event for event in self._events if event.position > after]

    def forget(self, waiter: Waiter[None]) -> None:
        """The waiter no longer waits."""
        with self._changing:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def position(self, last_event_id: str) -> Position | str:
        """The position after which a subscriber continues, or why it cannot: a ``reason`` of
        docs/api.md.
        """
        epoch, _, text = last_event_id.rpartition("-")
        parts = _POSITION.fullmatch(text)
        if epoch != self.epoch or parts is None:
            return "epoch"
        position = int(parts[1]), int(parts[2] or 0)
        with self._changing:
            if position < self._removed:
                return "too-old"
            return "future" if position > self._newest else position

    def close(self, reason: Exception) -> None:
        """Ends reading with `reason`."""
        completions = Completions()
        with self._changing:
            self._closed = reason
            self._wake(completions)
        completions.deliver()

    def _wake(self, completions: Completions) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            completions.set_result(waiter, None)


@dataclass(frozen=True, slots=True)
class Joined:
    """A subscriber's place in a ring.

    after  where it reads on
    first  a snapshot, or a gap with one; None if it continues
    """

    ring: EventRing
    after: Position
    first: Event | None


@dataclass(eq=False, slots=True)
class _Publication:
    """What is told of one revision, or of one that is published again.

    members  those of every event
    view     None once its ranks are skipped
    bounds   then the error bounds of its views and watched queries, by both names
    """

    position: Position
    members: dict[str, Any]
    view: View | None
    bounds: dict[tuple[str | None, str | None], float] = field(default_factory=dict)

    def skip(self) -> None:
        """Lets go of the ranks."""
        view, self.view = self.view, None
        assert view is not None
        self.bounds[None, None] = view.error_bound
        for name, found in (view.rank_views or {}).items():
            if found.ranks is not None:
                self.bounds[name, None] = found.ranks.error_bound
        for name, result in (view.watched or {}).items():
            if result.answer is not None:
                self.bounds[None, name] = result.answer.error_bound


@dataclass(frozen=True, eq=False, slots=True)
class _Join:
    subscription: Subscription
    last_event_id: str | None
    joined: Future[Joined]


@dataclass(frozen=True, eq=False, slots=True)
class _End:
    """Of the streams of these subscriptions."""

    of: Callable[[Subscription], bool]
    reason: Exception


class ChangeFeed:
    """The change events of one graph. Any thread may call any method.

    graph    its name
    dropped  subscribers that were dropped because they read too slowly
    """

    def __init__(self, graph: str, epoch: str, newest: Callable[[], View]) -> None:
        """epoch: of the graph's run; newest: the newest published view, raises NotReady before
        there is one
        """
        self.dropped = 0
        self.graph = graph
        self._newest = newest
        self._run_epoch = epoch
        self._made = 0
        self._changing = threading.Condition()
        self._work: deque[_Publication | _Join | _End] = deque()
        self._with_views: deque[_Publication] = deque()
        self._rings: dict[Subscription, EventRing] = {}
        self._thread: threading.Thread | None = None
        self._closed: Exception | None = None

    @property
    def subscribers(self) -> int:
        with self._changing:
            return sum(ring.subscribers for ring in self._rings.values())

    def publish(self, view: View, seconds: StageSeconds | None = None) -> None:
        """Makes an event of a new revision; never waits. Call it after publishing the view.

        seconds  None for a view that is published again: an event for those alone whose ranks are
                 others
        """
        with self._changing:
            if self._thread is None:
                return  # nobody has subscribed
            times: dict[str, Any] = {"time": time.time(), "seconds": seconds or {}}
            publication = _Publication(view.position, view.facts | times, view)
            self._work.append(publication)
            self._with_views.append(publication)
            if len(self._with_views) > MAX_WAITING_VIEWS:
                self._with_views.popleft().skip()
            self._changing.notify()

    def join(self, subscription: Subscription, last_event_id: str | None) -> Future[Joined]:
        """Adds a subscriber, until `leave`. Fails with TooBusy, NotReady, what ChangeTracker raises
        and the reason given to `close`.
        """
        joined: Future[Joined] = Future()
        with self._changing:
            if self._closed is not None:
                raise self._closed.with_traceback(None)
            self._work.append(_Join(subscription, last_event_id, joined))
            if self._thread is None:
                name = f"liverank-changes-{self.graph}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
            self._changing.notify()
        return joined

    def give_up(self, joining: Future[Joined]) -> None:
        """Removes a subscriber that no longer waits for the result of `join`."""

        def leave(joining: Future[Joined]) -> None:
            if not joining.cancelled() and joining.exception() is None:
                self.leave(joining.result().ring)

        joining.cancel()
        joining.add_done_callback(leave)

    def leave(self, ring: EventRing) -> None:
        """Removes a subscriber."""
        with self._changing:
            ring.subscribers -= 1
            ring.idle_since = time.monotonic()

    def end(self, of: Callable[[Subscription], bool], reason: Exception) -> None:
        """Ends the streams of some subscriptions with `reason`; later ones may join."""
        with self._changing:
            if self._thread is not None:
                self._work.append(_End(of, reason))
                self._changing.notify()

    def close(self, reason: Exception) -> None:
        """Ends all streams with `reason`, and refuses later subscribers with it."""
        with self._changing:
            self._closed = reason
            thread = self._thread
            self._changing.notify()
        if thread is not None:
            thread.join()

    # Everything below runs on the feed's thread.

    def _run(self) -> None:
        while (work := self._next()) is not None:
            if isinstance(work, _Join):
                self._join(work)
            elif isinstance(work, _End):
                for subscription in filter(work.of, list(self._rings)):
                    self._end_ring(subscription, work.reason)
            else:
                self._compare(work)
        with self._changing:
            if self._closed is None:
                return  # another thread has the rings of later subscribers
            rings = list(self._rings.values())
        for ring in rings:
            ring.close(self._closed)

    def _next(self) -> _Publication | _Join | _End | None:
        """The next work; None when the thread ends."""
        with self._changing:
            while self._closed is None:
                self._remove_idle_rings(RESUME_SECONDS)
                if self._work:
                    work = self._work.popleft()
                    if self._with_views and self._with_views[0] is work:
                        self._with_views.popleft()
                    return work
                if not self._rings:
                    self._thread = None
                    return None
                self._changing.wait(RESUME_SECONDS)
            for work in self._work:
                if isinstance(work, _Join) and work.joined.set_running_or_notify_cancel():
                    work.joined.set_exception(self._closed)
            return None

    def _remove_idle_rings(self, seconds: float) -> None:
        latest = time.monotonic() - seconds
        for subscription, ring in list(self._rings.items()):
            if not ring.subscribers and ring.idle_since <= latest:
                del self._rings[subscription]

    def _join(self, work: _Join) -> None:
        if not work.joined.set_running_or_notify_cancel():
            return
        try:
            with device_loss_ends_process():
                joined = self._joined(work.subscription, work.last_event_id)
        except Exception as error:
            work.joined.set_exception(error)
        else:
            work.joined.set_result(joined)

    def _joined(self, subscription: Subscription, last_event_id: str | None) -> Joined:
        ring = self._rings.get(subscription) or self._open_ring(subscription)
        position = None if last_event_id is None else ring.position(last_event_id)
        first = None
        if isinstance(position, tuple):
            after = position
        else:
            view = ring.tracker.view
            members: dict[str, Any] = {} if position is None else {"reason": position}
            members |= {
                "version": view.version,
                "revision": view.revision,
                "error_bound": ring.tracker.error_bound,
                "top": ring.tracker.snapshot(),
            }
            after = view.position
            name = "snapshot" if position is None else "gap"
            first = Event.of(name, ring.epoch, after, members)
        with self._changing:
            ring.subscribers += 1
        return Joined(ring, after, first)

    def _open_ring(self, subscription: Subscription) -> EventRing:
        with self._changing:
            if len(self._rings) >= MAX_SUBSCRIPTIONS:
                self._remove_idle_rings(0.0)
            if len(self._rings) >= MAX_SUBSCRIPTIONS:
                what = f"different subscriptions of graph {self.graph!r}"
                raise TooBusy(what, MAX_SUBSCRIPTIONS)
        tracker = ChangeTracker(subscription, self._newest())
        self._made += 1
        ring = EventRing(f"{self._run_epoch}.{self._made}", tracker)
        with self._changing:
            self._rings[subscription] = ring
        return ring

    def _end_ring(self, subscription: Subscription, reason: Exception) -> None:
        with self._changing:
            ring = self._rings.pop(subscription)
        ring.close(reason)

    def _compare(self, publication: _Publication) -> None:
        if not self._work:
            time.sleep(RECEIPTS_FIRST_SECONDS)
        for subscription, ring in list(self._rings.items()):
            if publication.position <= ring.tracker.view.position:
                continue  # the ring was made of this publication, or a later one
            view, is_again = publication.view, publication.position[1] > 0
            if view is None and is_again:
                continue  # one that waits has these ranks too
            try:
                with device_loss_ends_process():
                    if view is not None and is_again and not ring.tracker.differs(view):
                        continue
                    changes = NO_CHANGES if view is None else ring.tracker.advance(view)
            except Exception as error:
                if not isinstance(error, ServiceError):  # a set was dropped, a view has no ranks
                    log.exception("graph %s: a subscription has ended", self.graph)
                self._end_ring(subscription, error)
                continue
            bound = ring.tracker.error_bound
            if view is None:  # 2, which always holds, if there were no ranks to skip
                bound = publication.bounds.get((subscription.view, subscription.watched), 2.0)
            members = {**publication.members, "error_bound": bound, **changes}
            members["deferred"] = view is None
            ring.append(Event.of("change", ring.epoch, publication.position, members))


class PublishedViews:
    """The newest view, and readers waiting for a later one. Any thread may call any method.

    epoch    another one for each start, creation or restore of the graph: only within it does a
             revision identify the ranks
    changes  what changes with each revision
    """

    def __init__(self, graph: str) -> None:
        self._graph = graph
        self._newest: View | None = None
        self._waiting = Waiters[View]()
        self.epoch = secrets.token_hex(8)
        self.changes = ChangeFeed(graph, self.epoch, weakly(self._current))

    @property
    def newest(self) -> View:
        """Raises NotReady before the first publication."""
        if self._newest is None:
            raise NotReady(f"graph {self._graph!r} is being recovered")
        return self._newest

    @property
    def is_ready(self) -> bool:
        """Whether anything has been published."""
        return self._newest is not None

    def _current(self) -> View:
        return self.newest

    def publish(self, view: View) -> None:
        self._newest = view
        self._waiting.reach(view)

    def at_least(self, version: int, positions: Collection[MinPosition] = ()) -> Future[View]:
        """The first view with at least that version and these positions; the future may be
        cancelled.

        Raises NotReady before the first publication, and the reason given to `close`.
        """
        wanted = max(version, self.newest.version)
        return self._waiting.first(
            lambda view: view.version >= wanted and are_reached(positions, view.positions)
        )

    def close(self, reason: Exception) -> None:
        """Fails waiting readers, and later ones that would wait; ends the change feed."""
        self._waiting.close(reason)
        self.changes.close(reason)
