"""Algorithm 1 of cuPPA in plain Python, with threads that run in turns: an oracle that shares no
code with liverank_gpu.generate.published.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.gpu.generate.copy_model import GAMMA, MASK, mix, sequence


@dataclass
class Graph:
    """F of all vertices from d on; None is NULL."""

    vertices: int
    d: int
    p: float
    seed: int
    links: dict[int, list[int | None]] = field(default_factory=dict)
    attempts: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.links = {v: [None] * self.d for v in range(self.d, self.vertices)}

    def draw(self, v: int, edge: int, attempt: int) -> int | tuple[int, int]:
        """Lines 5 to 13: the vertex of a direct edge, or ⟨u, l⟩ of a copy."""
        own = sequence(mix((self.seed + 4 * GAMMA) & MASK))
        number = sequence(own(v * self.d + edge))
        u = number(3 * attempt) * v >> 64
        if (number(3 * attempt + 1) >> 11) * 2.0**-53 < self.p:
            return u
        if u >= self.d:
            return u, number(3 * attempt + 2) * self.d >> 64
        others = [other for other in range(self.d) if other != u]
        return others[number(3 * attempt + 2) * len(others) >> 64] if others else u

    def value(self, drawn: int | tuple[int, int]) -> int | None:
        """Where an edge that was so drawn leads, if that is known."""
        return drawn if isinstance(drawn, int) else self.links[drawn[0]][drawn[1]]

    def execute(self, v: int, edge: int) -> tuple[int, int] | None:
        """Lines 5 to 20; returns what the edge waits for."""
        while True:
            attempt = self.attempts.setdefault((v, edge), 0)
            drawn = self.draw(v, edge, attempt)
            value = self.value(drawn)
            if value is None:
                assert isinstance(drawn, tuple)
                return drawn
            if value not in self.links[v]:
                self.links[v][edge] = value
                return None
            self.attempts[v, edge] += 1


@dataclass
class Thread:
    """Executes its vertices and yields where it lets others run."""

    graph: Graph
    vertices: Iterable[int]
    room: float
    waiting: list[tuple[int, int, int, int]] = field(default_factory=list)
    queued: int = 0
    largest: int = 0
    passes: int = 0

    def run(self) -> Iterator[None]:
        for v in self.vertices:
            for edge in range(self.graph.d):
                while len(self.waiting) == self.room:
                    yield from self.resolve()
                origin = self.graph.execute(v, edge)
                if origin is None:
                    continue
                self.waiting.append((v, edge, *origin))
                self.queued += 1
                self.largest = max(self.largest, len(self.waiting))
        while self.waiting:
            yield from self.resolve()

    def resolve(self) -> Iterator[None]:
        yield
        self.passes += 1
        current, self.waiting = self.waiting, []
        for v, edge, u, of_u in current:
            if self.graph.links[u][of_u] is None:
                self.waiting.append((v, edge, u, of_u))
            elif (origin := self.graph.execute(v, edge)) is not None:
                self.waiting.append((v, edge, *origin))


def draw(
    graph: Graph, segments: Iterable[tuple[int, int, float]], *, last_begins: bool = False
) -> list[tuple[int, int, int]]:
    """Draws the graph, and returns of each segment what waited, at most at one thread, and the most
    passes.

    segments     vertices, threads and room of each
    last_begins  whether the last thread of a segment runs first; then the others in order
    """
    counts, first = [], graph.d
    for size, threads, room in segments:
        last = first + size
        order = [threads - 1, *range(threads - 1)] if last_begins else [*range(threads)]
        started = [Thread(graph, range(first + at, last, threads), room) for at in order]
        running = deque(thread.run() for thread in started)
        while running:
            thread = running.popleft()
            try:
                next(thread)
                running.append(thread)
            except StopIteration:
                pass
        first = last
        counts.append(
            (
                sum(thread.queued for thread in started),
                max(thread.largest for thread in started),
                max(thread.passes for thread in started),
            )
        )
    assert first == graph.vertices
    return counts


def check_outcome(links: list[list[int]], d: int, p: float, seed: int) -> int:
    """Asserts that each edge leads where its first attempt leads that is not another edge of its
    vertex, whatever the order in which edges became known. Returns how many attempts failed.
    """
    graph = Graph(len(links) + d, d, p, seed)
    graph.links = {v: [*row] for v, row in enumerate(links, start=d)}
    failed = 0
    for v, row in graph.links.items():
        assert len({*row}) == d
        for edge, end in enumerate(row):
            attempt = 0
            while (value := graph.value(graph.draw(v, edge, attempt))) != end:
                assert value in row
                attempt += 1
            assert end is not None
            assert 0 <= end < v
            failed += attempt
    return failed
