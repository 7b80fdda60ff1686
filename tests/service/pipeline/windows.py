"""Graphs whose edges leave by age, a clock to set, and a model of what is left."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

import orjson

from liverank_service.formats.payload import decode_payload
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.pipeline.window import WindowOptions
from liverank_service.storage.journal import Journal

SECONDS = 5.0
EVENT = WindowOptions(SECONDS, "event")
WALL = WindowOptions(SECONDS, "wall")
FORGETTING = replace(EVENT, forget_vertices=True)

Rows = list[tuple[str, str, float]]
Pairs = list[tuple[str, str]]


@dataclass
class Clock:
    """Stands still until it is set."""

    now: float = 1_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return monotonic()


@dataclass
class RunningClock(Clock):
    """A clock that runs, and jumps when `ahead` is changed; time passes when `passed` is."""

    ahead: float = 0.0
    passed: float = 0.0

    def time(self) -> float:
        return self.monotonic() + self.ahead

    def monotonic(self) -> float:
        return monotonic() + self.passed


@dataclass
class Model:
    """The edges that a graph with a window has."""

    directed: bool = True
    edges: dict[tuple[str, str], float] = field(default_factory=dict)
    newest: float = float("-inf")
    vertices: set[str] = field(default_factory=set)
    forgets: bool = False

    def edge(self, source: str, target: str) -> tuple[str, str]:
        return (source, target) if self.directed or source < target else (target, source)

    def expire(self, now: float) -> None:
        old = {one for one, at in self.edges.items() if at < now - SECONDS}
        self.edges = {one: at for one, at in self.edges.items() if one not in old}
        if self.forgets:
            left = {end for one in old for end in one}
            self.vertices -= left - {end for one in self.edges for end in one}

    def apply(self, insert: Rows, delete: Pairs, remove: Sequence[str] = ()) -> None:
        for vertex in remove:
            self.vertices.discard(vertex)
            self.edges = {one: at for one, at in self.edges.items() if vertex not in one}
        for source, target in delete:
            self.edges.pop(self.edge(source, target), None)
        for source, target, at in insert:
            self.edges[self.edge(source, target)] = at
            self.vertices |= {source, target}

    def apply_by_event(self, insert: Rows, delete: Pairs, remove: Sequence[str] = ()) -> None:
        self.apply(insert, delete, remove)
        self.newest = max([self.newest, *(at for *_, at in insert)])
        self.expire(self.newest)

    def has(self, found: set[tuple[str, str]]) -> bool:
        return {self.edge(*one) for one in found} == set(self.edges)


def random_batches(seed: int, count: int, keys: int = 12) -> Iterator[tuple[Rows, Pairs]]:
    """Batches whose times advance by about half a second each, some of them late or repeated."""
    choice = random.Random(seed)
    names = [f"k{number}" for number in range(keys)]
    for number in range(count):
        now = 1_000.0 + number / 2
        insert = [
            (choice.choice(names), choice.choice(names), now - choice.choice([0.0, 0.5, 3.0, 7.0]))
            for _ in range(choice.randrange(6))
        ]
        delete = [(choice.choice(names), choice.choice(names)) for _ in range(choice.randrange(3))]
        yield insert, delete


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def receipts(pipeline: Pipeline, first: int = 1) -> list[dict[str, Any]]:
    """Of all versions from `first` on."""
    found = [pipeline.outcome(version) for version in range(first, pipeline.committed + 1)]
    return [orjson.loads(outcome.body) for outcome in found if outcome is not None]


def journalled(directory: Path) -> list[tuple[bool, int]]:
    """Whether each batch is an expiry, and how many edges it deletes."""
    journal = Journal(directory / "journal.db")
    batches = [decode_payload(record.payload) for _, _, record, _ in journal.batches(0)]
    journal.close()
    return [(batch.expiry, len(batch.delete_sources)) for batch in batches]
