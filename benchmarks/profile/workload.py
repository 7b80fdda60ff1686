"""The operations that are profiled, one after the other on one R-MAT graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from benchmarks.graph import fresh_partition
from benchmarks.inputs import NO_CHANGES, drawn_rmat
from benchmarks.profile.launches import Launches
from benchmarks.traffic.model import Sizes
from liverank_gpu import EdgeBatch, Engine, Options, PersonalizedQuery
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.backend import Backend
from liverank_gpu.pagerank.sweeps import SweepKind, sweep_to_target
from liverank_gpu.personalized.block import Block

BATCHES = (1_000, 100_000, 26_000, 10_000_000)
"""Edges of batches: two for `auto`, one for a frontier strategy, one that is on the device."""

MOST_SWEEPS, ACCELERATED_SWEEPS, BLOCK_SWEEPS, QUERIES = 500, 4, 3, 32


class Workload:
    """Each operation once, on R-MAT of 2^scale vertices.

    batches  as BATCHES
    """

    def __init__(
        self, backend: Backend, scale: int, batches: Sequence[int], launches: Launches
    ) -> None:
        self._backend = backend
        self._launches = launches
        self._sizes = batches
        self._generator = np.random.default_rng(7)
        self._drawn = drawn_rmat(backend.xp, backend.xp.random.default_rng(7), scale)
        self.engine = Engine(Options(), backend)

    @property
    def _graph(self) -> DynamicGraph:
        return self.engine.internals.graph

    def run(self) -> Sizes:
        """All operations; returns the sizes of the graph after the load."""
        small, middle, followed, large = self._sizes
        self._load()
        sizes = Sizes.of(self._graph)
        self._solve("cold solve")
        self._accelerated()
        for size in (small, middle):
            self._batch(size, "auto")
        self._batch(followed, "dynamic-frontier-prune")
        self._query()
        self._block()
        ranks = self.engine.publish()
        self._run("top 100", lambda: ranks.top(100))
        self._run("partition of one direction", lambda: fresh_partition(self._graph))
        self._run("packing one direction", lambda: self._graph.incoming.pack(NO_CHANGES))
        self._large_batch(large)
        return sizes

    def _run(self, operation: str, work: Callable[[], object]) -> None:
        """An operation for which nothing is prepared."""
        self._launches.run(operation, lambda: self._graph, lambda: None, lambda _: work())

    def _load(self) -> None:
        def prepare() -> Engine:
            self.engine = Engine(Options(), self._backend)
            return self.engine

        self._launches.run(
            "load", lambda: self._graph, prepare, lambda engine: engine.apply(self._drawn.load)
        )

    def _solve(self, operation: str) -> None:
        iterate = self.engine.internals.iterate

        def work() -> None:
            sweep_to_target(iterate, MOST_SWEEPS, from_nothing=True)

        self._run(operation, work)

    def _accelerated(self) -> None:
        """The schedule does not choose these sweeps on R-MAT, but on other graphs."""
        iterate = self.engine.internals.iterate
        kinds = [SweepKind(mean_corrected=True, accelerated=True)]
        self._launches.run(
            "accelerated sweeps",
            lambda: self._graph,
            iterate.reset,
            lambda _: sweep_to_target(iterate, ACCELERATED_SWEEPS, kinds),
        )

    def _batch(self, size: int, strategy: str) -> None:
        batches = self._drawn.batches(self._generator, size, self._backend.device.to_host)
        self.engine.update("auto")

        def work(batch: EdgeBatch) -> None:
            self.engine.apply(batch)
            self.engine.update(strategy)

        name = f"batch of {size:,}, {strategy}"
        self._launches.run(name, lambda: self._graph, lambda: next(batches), work)

    def _seeds(self, count: int) -> list[int]:
        """Ids of vertices with out-edges."""
        lengths = self._graph.permutation.by_id(self._graph.outgoing.csr.row_lengths)
        among = np.flatnonzero(self._backend.device.to_host(lengths) > 0)
        return [int(v) for v in self._generator.choice(among, count, replace=False)]

    def _query(self) -> None:
        seeds = np.array(self._seeds(1))
        ask = partial(self.engine.personalized, seeds, k=100)
        self._run("query", partial(ask, target_error=1e-6))
        self._run("query, pull", partial(ask, target_error=1e-6, method="pull"))
        self._run("query, 100 places", partial(ask, method="pull", target="settled-top-k"))

    def _block(self) -> None:
        seeds = self._seeds(Block.size(self._graph, QUERIES))
        queries = self.engine.resolve(
            [PersonalizedQuery(np.array([seed]), k=100, target_error=1e-6) for seed in seeds]
        )
        context = self.engine.internals.queries

        def work(block: Block) -> None:
            for _ in range(BLOCK_SWEEPS):
                block.step()
            block.answers()

        name = f"{len(queries)} queries, {BLOCK_SWEEPS} sweeps"
        self._launches.run(name, lambda: self._graph, lambda: Block(context, queries), work)

    def _large_batch(self, size: int) -> None:
        """Each begins with all the free slots that packing leaves."""
        batches = self._drawn.batches(self._generator, size, lambda ids: ids)

        def prepare() -> EdgeBatch:
            self._graph.incoming.pack(NO_CHANGES)
            self._graph.outgoing.pack(NO_CHANGES)
            return next(batches)

        name = f"batch of {size:,}, mutation"
        self._launches.run(name, lambda: self._graph, prepare, self.engine.apply)
