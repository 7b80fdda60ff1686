"""One shard: what every process of a sharded graph runs. All shards make the same calls.

shard = Shard(NcclCommunicator(rank, 2, identity), Options(), backend_named("cuda"))
shard.apply(slice_of_batch)
result = shard.update("static")
"""

from __future__ import annotations

from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu.errors import Unsupported
from gpu.graph.warm_up import sample_batches
from gpu.operations.backend import Backend
from gpu.operations.device import Array
from gpu.pagerank.global_iterate import GlobalIterate
from gpu.pagerank.places import without
from gpu.pagerank.push import push_to_target
from gpu.pagerank.schedule import SWEEP_KINDS
from gpu.pagerank.solver import USELESS_BOUND, solve_all
from gpu.pagerank.strategies import TABLE, Solved, Strategy, strategy_named
from gpu.pagerank.sweeps import sweep_to_target
from gpu.sharded.communicator import Communicator, SingleCommunicator
from gpu.sharded.graph import ShardGraph, ShardUpdate
from gpu.types import Change, EdgeBatch, Options, Ranking, Result

SHARDED_STRATEGIES: tuple[str, ...] = tuple(
    name for name, strategy in TABLE.items() if strategy.affected in ("all", "residual")
)

_KINDS = [kind for kind in SWEEP_KINDS if not kind.accelerated]


class Leading(NamedTuple):
    """The highest ranks of one shard.

    ids     int64[k]
    values  float64[k], y: highest first, ties by id
    mass    Σy over all shards
    """

    ids: NDArray[np.int64]
    values: Ranking
    mass: float


class ShardRanks(NamedTuple):
    """The ranks of one shard, and its size.

    values  float64[rows], y of own vertices, on the host; -inf for free ids
    mass    Σy over all shards
    edges   entries and loops of own out-lists: of an undirected edge, one at each end
    nbytes  memory held, in bytes
    """

    values: Ranking
    mass: float
    edges: int
    nbytes: int


class ShardRows(NamedTuple):
    """The out-lists and ranks of one shard by row, on the host.

    lengths     int32[rows], of the out-lists
    neighbours  int32[…], positions, list after list
    weights     float32[…], those of `neighbours`; None for an unweighted graph
    loop        see GraphView.loop
    values      float64[rows], y
    rhs_scale   β
    mass        Σy over all shards
    """

    lengths: NDArray[np.int32]
    neighbours: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    loop: NDArray[Any]
    values: Ranking
    rhs_scale: float
    mass: float


def check_options(options: Options) -> None:
    """Raises Unsupported, naming the option."""
    for field, supported in (
        ("storage", "float64"),
        ("form", "accelerated"),
        ("half_life", None),
    ):
        value = getattr(options, field)
        if value != supported:
            raise Unsupported(field, value, repr(supported))


def sharded_strategy(name: str) -> Strategy:
    """The row of this name. Raises InvalidValue, Unsupported."""
    strategy = strategy_named(name)
    if name not in SHARDED_STRATEGIES:
        raise Unsupported("strategy", name, "one of " + ", ".join(SHARDED_STRATEGIES))
    return strategy


class Shard:
    """A part of a graph and of its ranks, on one backend. Not thread-safe.

    graph  the own rows
    Raises Unsupported for options that do not work sharded.
    """

    def __init__(self, communicator: Communicator, options: Options, backend: Backend) -> None:
        check_options(options)
        self._communicator = communicator
        self.graph = ShardGraph(backend, communicator, options)
        self._iterate = GlobalIterate(self.graph, options)
        self._update: ShardUpdate | None = None
        self._record_ranked()
        self._solving = self._following = False

    def apply(self, batch: EdgeBatch) -> Change:
        """Removes, deletes, then inserts what the slices of all shards name, and returns the counts
        of all; see ShardGraph.apply.
        """
        begun = perf_counter()
        self._follow()
        self._update = update = self.graph.apply(batch, reserve=self._iterate.reserve)
        self.graph.backend.device.synchronize()
        seconds = perf_counter() - begun
        return Change(**update.counts._asdict(), seconds=seconds, unknown=update.unknown)

    def _follow(self, needed: bool = True) -> bool:
        """Makes r the residual in the graph as the last batch left it. That is not part of the
        batch, which stands on all shards by then. Returns whether the last solve ended early.

        needed  whether r is used
        """
        # an error may have ended a call on other shards at another step
        solving, following = self._communicator.sums([self._solving, self._following])
        self._solving = solving > 0.0
        update, self._update, self._following = self._update, None, True
        if solving or following or not needed:
            self._iterate.invalidate()
        if update is not None:
            self._iterate.perturb(update)
        self._following = False
        return self._solving

    def update(self, strategy: str = "auto") -> Result:
        """Brings the ranks up to date; see Engine.update. Raises InvalidValue, Unsupported. If it
        raises any other error, there are no ranks until it succeeds.
        """
        begun, row = perf_counter(), sharded_strategy(strategy)
        self._ranked = 0
        ended_early = self._follow(needed=row.start == "previous")
        self._solving = True
        solved, error_bound = Solved(0, 0, True), 0.0
        if self.graph.ids.count:
            if ended_early:
                # with different right-hand sides, if shards ended at different steps
                self._iterate.reset()
                self._iterate.unguessable = 0
            else:
                self._iterate.exclude_free()
            solved = self._solve(row)
            error_bound = min(2.0, self._iterate.error_bound)
            ended_early = False
        self._solving = ended_early
        self._record_ranked()
        return Result(
            strategy=strategy,
            iterations=solved.iterations,
            touched_vertices=solved.touched_vertices,
            error_bound=error_bound,
            converged=solved.converged,
            mark_seconds=0.0,
            solve_seconds=perf_counter() - begun,
        )

    def _record_ranked(self) -> None:
        """What readers need, which the next batch may change."""
        self._ranked, self._permutation = self.graph.vertices, self.graph.permutation
        self._free = self.graph.free
        self._mass = float(self._iterate.certificate.mass)

    def _solve(self, strategy: Strategy) -> Solved:
        iterate = self._iterate
        if strategy.affected == "all":
            return solve_all(iterate, strategy)
        if iterate.stale:
            iterate.recompute_residual()
        iterate.workspace.residual.solve += 1
        rounds, touched, most = 0, 0, iterate.options.max_iterations
        if iterate.error_bound > USELESS_BOUND:
            swept = sweep_to_target(iterate, most, _KINDS, from_nothing=True)
        else:
            rounds, touched = push_to_target(iterate)
            swept = sweep_to_target(iterate, most - rounds, _KINDS)
        if swept.sweeps:
            touched = self.graph.ids.count
        return Solved(rounds + swept.sweeps, touched, swept.converged)

    def order(self) -> NDArray[np.int64]:
        """int64[m]: the id at each position below m at the last `update`; from m on, positions are
        ids.
        """
        return self._permutation.ids_of(np.arange(len(self._permutation.ids)))

    def values(self) -> ShardRanks:
        """The ranks of own vertices after the last `update`, -inf for free ids, and what they
        take.
        """
        graph, device = self.graph, self.graph.backend.device
        entries = int(device.sum(graph.outgoing.csr.row_lengths))
        loops = 0 if graph.fixed_loops else int(device.sum(graph.loop != 0))
        held = sum(graph.memory().values()) + self._iterate.nbytes
        values = self._iterate.values[: self._ranked]
        with without(values, self._free):
            values = device.to_host(values)
        return ShardRanks(values, self._mass, entries + loops, held)

    def rows(self) -> ShardRows:
        """What a snapshot has of own vertices, after an `update` of everything applied."""
        graph, xp = self.graph, self.graph.backend.xp
        to_host, csr = graph.backend.device.to_host, graph.outgoing.csr
        lengths = csr.row_lengths.astype(np.int64)
        skipped = csr.row_starts - (xp.cumsum(lengths) - lengths)
        slots = xp.arange(int(lengths.sum())) + xp.repeat(skipped, lengths)
        neighbours = graph.numbering.positions_in(csr.column_indices[slots], xp)
        return ShardRows(
            to_host(csr.row_lengths),
            to_host(neighbours).astype(np.int32),
            None if csr.weights is None else to_host(csr.weights[slots]),
            to_host(graph.loop),
            to_host(self._iterate.values),
            self._iterate.rhs_scale,
            self._mass,
        )

    def restore(self, values: Ranking, rhs_scale: float, mass: float) -> None:
        """Continues from ranks of the edges that were applied to an empty graph.

        values     float64[n], y by id, of all vertices
        rhs_scale  β
        mass       Σy
        """
        positions = self.graph.numbering.positions_of(np.arange(self.graph.vertices))
        own = values[self.graph.permutation.ids_of(positions)]
        self._update = None
        self._iterate.restore(own, rhs_scale, mass)
        self._record_ranked()

    def top(self, k: int) -> Leading:
        """The k own vertices with the highest ranks of the last `update`."""
        values = self._iterate.values[: self._ranked]
        with without(values, self._free):
            return self._top(values, min(k, len(values) - len(self._free)))

    def _top(self, values: Array, k: int) -> Leading:
        graph = self.graph
        rows, highest = graph.backend.select.top_k(values, k)
        if k:
            # of those that tie for the last place, the ones with the lowest ids
            above = rows[highest > highest[-1]]
            ties = graph.backend.device.to_host(graph.backend.xp.flatnonzero(values == highest[-1]))
            rows = np.concatenate([above, ties[np.argsort(self._ids_of(ties))[: k - len(above)]]])
        ids = self._ids_of(rows)
        order = np.lexsort((ids, -highest))
        return Leading(ids[order], highest[order], self._mass)

    def _ids_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._permutation.ids_of(self.graph.numbering.positions_of(rows))


def warm_up(options: Options, backend: Backend) -> None:
    """Compiles what shards run, so that processes which start together find it compiled."""
    for batches in sample_batches(options):
        shard = Shard(SingleCommunicator(), options, backend)
        for batch in batches:
            shard.apply(batch)
            shard.update("static")
            shard.update("residual")
        shard.top(1)
