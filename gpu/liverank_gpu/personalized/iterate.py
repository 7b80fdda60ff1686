"""The personalized iterate of some seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue
from liverank_gpu.graph.ranked_graph import RankedGraph
from liverank_gpu.graph.vertices import NO_IDS, looked_up
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.residual import PushResult, ResidualDelta, Scatter
from liverank_gpu.operations.sweeps import ComputeContributions, ComputeResidual, SubtractAt
from liverank_gpu.pagerank.certificate import UNIT_ROUNDOFF, Certificate
from liverank_gpu.pagerank.iterate import (
    ContributionBuffers,
    Deflation,
    Iterate,
    Workspace,
    candidate_room,
    transition_error,
)
from liverank_gpu.pagerank.places import GraphVertices
from liverank_gpu.types import Options, Ranking

# The seeds of a personalized query: the distribution that its random walk restarts from.


@dataclass(frozen=True, slots=True)
class Seeds:
    """s, the teleport distribution.

    vertices  int64[s], distinct ids, ascending; at least one
    weights   float64[s], above 0, sum 1
    given     the ids as they were given, and their order, where they had to be sorted and all are
              seeds
    """

    vertices: NDArray[np.int64]
    weights: Ranking
    given: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    @classmethod
    def of(
        cls,
        count: int,
        vertices: NDArray[np.integer[Any]],
        weights: Ranking | None = None,
        known: Seeds | None = None,
    ) -> Seeds:
        """The seeds of a query on a graph of `count` vertices.

        vertices  integer[s], ids below `count`; the weights of repeats add up
        weights   float64[s], finite and not negative, normalised to sum 1; vertices of weight 0 are
                  dropped; None for equal weights
        known     others, for which the same ids were given: they are not checked and sorted again
        Raises InvalidValue, which names the index.
        """
        vertices = np.asarray(vertices, np.int64)
        given = np.ones(len(vertices)) if weights is None else np.asarray(weights, np.float64)
        if len(vertices) == 0:
            raise InvalidValue("seeds", [], "at least one vertex")
        outside = np.flatnonzero((vertices < 0) | (vertices >= count)) if known is None else NO_IDS
        if len(outside):
            place = int(outside[0])
            raise InvalidValue(f"seeds[{place}]", int(vertices[place]), f"an id below {count}")
        if len(given) != len(vertices):
            raise InvalidValue("weights", f"length {len(given)}", f"{len(vertices)} long, as seeds")
        wrong = np.flatnonzero(~(np.isfinite(given) & (given >= 0.0)))
        if len(wrong):
            place = int(wrong[0])
            raise InvalidValue(
                f"weights[{place}]", float(given[place]), "a finite number that is not negative"
            )
        if not given.any():
            raise InvalidValue("weights", given.tolist(), "not all 0")
        # scaled by the largest first: neither huge nor tiny weights may leave float64
        given = given / given.max()
        if known is not None and known.given is not None and given.all():
            given = given[known.given[1]]
            return cls(known.vertices, given / given.sum(), known.given)
        distinct: NDArray[np.int64] = np.asarray(vertices, np.int64)
        summed, of = given, None
        if not (vertices[1:] > vertices[:-1]).all():
            order = np.asarray(np.argsort(distinct), np.int64)
            of, distinct, summed = (distinct.copy(), order), distinct[order], given[order]
        if (distinct[1:] == distinct[:-1]).any():
            distinct, place_of = np.unique(vertices, return_inverse=True)
            summed, of = np.bincount(place_of, weights=given), None
        kept = summed > 0.0
        if of is not None and kept.all():
            return cls(distinct, summed / summed.sum(), of)
        return cls(distinct[kept], summed[kept] / summed.sum())

    def were_given(self, vertices: NDArray[np.int64]) -> bool:
        """Whether these are the ids that were given for them, in this order."""
        return self.given is not None and np.array_equal(self.given[0], vertices)

    def without(self, removed: NDArray[np.int64]) -> Seeds | None:
        """The seeds but for these ids (ascending): itself if none is a seed, None if all are."""
        left = ~np.isin(self.vertices, removed)
        if left.all():
            return self
        if not left.any():
            return None
        weights = self.weights[left]
        return Seeds(self.vertices[left], weights / weights.sum())

    def weights_at(self, vertices: NDArray[np.int64]) -> Ranking:
        """float64[k]: the weights of these ids, 0 for those that are no seeds."""
        return looked_up(self.vertices, self.weights, vertices, 0.0)


# ---- arrays that the personalized iterates of one graph share ----

_KEPT = 2
"""Free workspaces of a kind that are kept: for as many queries as usually run at once."""


class WorkspacePool:
    """Workspaces and contribution buffers, kept from query to query, since new ones cost a pass
    over n.
    """

    def __init__(self, graph: RankedGraph) -> None:
        self.graph = graph
        self._free: list[Workspace] = []
        self._lists: tuple[Array, Array] | None = None
        self._buffers: ContributionBuffers | None = None

    def take(self, list_every_vertex: bool = False) -> Workspace:
        """A workspace of zeros. Raises OutOfMemory.

        list_every_vertex  whether its candidate list has room for every vertex
        """
        fitting = [free for free in self._free if free.list_every_vertex == list_every_vertex]
        if fitting:
            workspace = fitting[-1]
            self._free.remove(workspace)
        else:
            workspace = Workspace(
                self.graph.backend,
                "a personalized vector",
                list_every_vertex=list_every_vertex,
            )
        workspace.extend(self.graph.vertices)
        return workspace

    def give_back(self, workspace: Workspace) -> None:
        """Clears a workspace and keeps it for the next query, unless there are enough."""
        workspace.clear()
        like = [
            free for free in self._free if free.list_every_vertex == workspace.list_every_vertex
        ]
        if len(like) < _KEPT:
            self._free.append(workspace)

    def keep_lists(self, workspace: Workspace) -> None:
        """Takes the marks and the candidate list of a workspace that others may use meanwhile."""
        if workspace.has_lists:
            lists = workspace.give_lists()
            if self._lists is None or _least(self._lists) < _least(lists):
                self._lists = lists

    def lend_lists(self, workspace: Workspace) -> None:
        """Gives a workspace its marks and candidate list back, or others. Raises OutOfMemory."""
        if workspace.has_lists:
            return
        lists, self._lists, room = self._lists, None, workspace.room
        if lists is None or _least(lists) < room:
            lists = None  # freed before others are allocated
            allocate = self.graph.backend.device.allocate
            purpose = "a personalized vector"
            lists = allocate(purpose, room, np.int32), allocate(purpose, room, np.int32)
        lists[0].fill(0)
        workspace.take_lists(*lists)

    def buffers(self) -> ContributionBuffers:
        """Contribution buffers over all columns, for one sweep at a time."""
        columns = self.graph.columns
        if self._buffers is None or self._buffers.room < columns:
            self._buffers = None  # frees the old ones before new ones are allocated
            room = columns + columns // 8
            self._buffers = ContributionBuffers.allocate(self.graph.backend, room)
        return self._buffers

    @property
    def nbytes(self) -> int:
        kept = sum(workspace.nbytes for workspace in self._free)
        kept += sum(int(array.nbytes) for array in self._lists or ())
        return kept + (self._buffers.nbytes if self._buffers else 0)


def _least(arrays: tuple[Array, Array]) -> int:
    return min(map(len, arrays))


def query_bytes(vertices: int) -> int:
    """Bytes of a workspace that lists every vertex, and of what a push needs beside it."""
    return (8 + 8 + 4 + 4 + 28) * vertices


# ---- the personalized iterate of some seeds: b = s ----
#
# It begins at y = 0, r = β·s, and proceeds by the same two phases as global ranks: push over
# work-lists and sweeps over all vertices. While it stays near its seeds, each vertex that it
# touched is on the candidate list, so that neither solving nor clearing costs a pass over n. The
# list is dropped when it exceeds its array or a sweep begins; then the iterate is `dense`.

SEED_CORRECTION = Deflation(image_sum=1.0)
"""Deflation along the right-hand side s."""

_PAIRWISE_DEPTH = 64.0
"""More additions than any term goes through when entries are summed in pairs or by threads."""


class PersonalizedIterate(Iterate):
    """y for b = s in a workspace of its own, which must be zero.

    vertices   those of the graph, or of a shard
    positions  int32[s], the rows of the seeds that are here
    """

    of_query: ClassVar[bool] = True

    def __init__(
        self,
        graph: RankedGraph,
        workspace: Workspace,
        options: Options,
        seeds: Seeds,
        vertices: GraphVertices | None = None,
    ) -> None:
        super().__init__(graph, options, Certificate(options.damping))
        self.workspace = workspace
        self.seeds = seeds
        self.vertices = vertices or GraphVertices(graph)
        self._packed: tuple[Array, Array, Array] | None = None
        self._begin()

    def _place_seeds(self, stay: bool = False) -> None:
        """stay: whether they are where they were"""
        if not stay:
            self.positions, self._here = self.vertices.rows_of(self.seeds.vertices)
        self._weights = self.graph.backend.device.to_device(self.seeds.weights)[self._here]

    def _begin(self) -> None:
        """y = 0, r = β·s."""
        # positions may be others at each restart: a batch may permute the graph
        self._place_seeds()
        self.residual_id = object()
        self.rhs_scale = 1.0 - self.options.damping
        self.certificate.transition_error = transition_error(self.graph)
        self.certificate.start(self.rhs_scale)
        self.workspace.residual.values[self.positions] = self.rhs_scale * self._weights
        self._list_all(self.positions)

    def _list_all(self, rows: Array) -> None:
        self.workspace.list_all(rows)
        if self.vertices.highest(self.workspace.residual.floor) == np.inf:
            self.workspace.drop_list()

    def restart(self) -> None:
        """Starts again from nothing."""
        self.workspace.clear()
        self.workspace.extend(self.graph.vertices)
        self._begin()

    def change_seeds(self, seeds: Seeds) -> None:
        """Makes b = s', other seeds: r += β'·s' - β·s, at the vertices where that is not 0."""
        device, before = self.graph.backend.device, self.seeds
        self.seeds = seeds
        if self.rhs_scale <= 0.0:
            self.restart()
            return
        stay = before.vertices is seeds.vertices
        if stay or np.array_equal(before.vertices, seeds.vertices):
            vertices, old, weights = seeds.vertices, before.weights, seeds.weights
        else:
            # both ascend: np.union1d would hash them
            vertices = np.sort(np.concatenate([before.vertices, seeds.vertices]), kind="stable")
            vertices = vertices[np.append(True, vertices[1:] > vertices[:-1])]
            old, weights = before.weights_at(vertices), seeds.weights_at(vertices)
        old = self.rhs_scale * old
        scale = _scale_that_stays(old, weights, self.rhs_scale)
        new = scale * weights
        largest = np.maximum(old, new)
        # weights that were given as before differ by rounding of the normalised ones
        changed = np.flatnonzero(np.abs(new - old) > 8.0 * UNIT_ROUNDOFF * largest)
        rows, here = self.vertices.rows_of(vertices[changed])
        steps = device.to_device(new[changed] - old[changed])[here]
        none, nothing = self.positions[:0], steps[:0]
        self._place_seeds(stay)
        self.rhs_scale = scale
        if len(changed):
            residual = self.workspace.residual
            scatter = Scatter(self.graph.view, residual, none, nothing, rows, steps)
            self.add(self.graph.backend.run(scatter))
        self.certificate.add_error(8.0 * UNIT_ROUNDOFF * float(largest.sum()))
        self.residual_id = object()

    def _extend(self) -> None:
        self.workspace.extend(self.graph.vertices)

    def _invalidate(self) -> None:
        self.restart()

    def _drop_candidates(self) -> None:
        self.workspace.drop_list()

    @property
    def dense(self) -> bool:
        """Whether it is unknown which vertices have been touched."""
        return not self.workspace.lists_all

    @property
    def touched(self) -> Array | None:
        """int32[…]: all vertices where y or r may not be 0; None if it is dense, or if they are so
        many that to look at all is faster than to copy them to the host.
        """
        if self.dense:
            return None
        sizes = self.graph.backend.sizes
        most = min(candidate_room(self.graph.vertices, sizes), sizes.copied)
        excess = len(self.workspace.listed) - most
        # all shards look at all, or none does
        if self.vertices.highest(excess) > 0:
            return None
        return self.workspace.listed

    def push_to(
        self, target: float, threshold: float, round_edges: int, edges: int
    ) -> PushResult | None:
        """Pushes until `error_bound` is at most `target`, a limit is met, or the list is full
        (then the iterate is dense). None, and nothing is done, if rounding alone exceeds the
        target. See PushLimits.
        """
        goal = self.certificate.residual_goal(target)
        if goal <= 0.5 * target * (1.0 - self.options.damping):
            self._sum_again()
            goal = self.certificate.residual_goal(target)
        if goal <= 0.0:
            return None
        return self.push(goal, threshold, round_edges, edges, self.options.max_iterations)

    def resume(self, values: Array, rhs_scale: float) -> None:
        """Continues from another y and β, and is dense.

        values  float64[n]
        """
        self.workspace.drop_list()
        self.workspace.values[:] = values
        self.rhs_scale = rhs_scale
        device, columns = self.graph.backend.device, self.graph.columns
        self.recompute_residual(device.allocate("contributions", columns, np.float64))

    def recompute_residual(self, contributions: Array) -> None:
        """Computes r from y at every vertex, whether or not it was maintained; the iterate
        must be dense.

        contributions  float64[n], scratch
        """
        graph, workspace, certificate = self.graph, self.workspace, self.certificate
        run, residuals = graph.backend.run, workspace.residual.values
        (mass,) = self.vertices.sums([float(workspace.values.sum())])
        run(ComputeContributions(graph.view, workspace.values, contributions))
        # of the right-hand side 0: the seeds are added
        arrays = (workspace.values, contributions, 0.0, self.options.damping, residuals)
        _, residual_sum = run(ComputeResidual(graph.view, graph.in_rows(), *arrays))
        residuals[self.positions] += self.rhs_scale * self._weights
        certificate.evaluation = self.gather_roundoff
        certificate.recompute(self.rhs_scale, residual_sum + self.rhs_scale, mass)
        certificate.add_error(4.0 * UNIT_ROUNDOFF * self.rhs_scale)
        self._sum_again()
        self.residual_id = object()

    def _sum_again(self) -> None:
        """Sums ‖r‖₁ and Σr over r, because the maintained sums have accumulated too much error."""
        residuals = self.workspace.residual.values
        if not self.dense:
            residuals = residuals[self.workspace.listed]
        xp = self.graph.backend.xp
        residual_l1, residual_sum = self.vertices.sums(
            [float(xp.abs(residuals).sum()), float(residuals.sum())]
        )
        self.certificate.set_sums(residual_l1, residual_sum, _PAIRWISE_DEPTH)

    def _lower_rhs(self, amount: float) -> float:
        certificate = self.certificate
        error = 2.0 * UNIT_ROUNDOFF * (certificate.residual_l1 + abs(amount))
        if amount != 0.0:
            certificate.add_error(error)
            residuals = self.workspace.residual.values
            self.graph.backend.run(SubtractAt(residuals, self.positions, self._weights, amount))
            self.rhs_scale -= amount
        return 0.0

    def correct_at_seeds(self) -> None:
        """Makes Σr = 0 by lowering β: r -= s·Σr. y must not be zero."""
        device, residuals = self.graph.backend.device, self.workspace.residual.values
        amount = float(self.certificate.residual_sum)
        before = device.to_host(residuals[self.positions])
        after = before - amount * device.to_host(self._weights)
        residuals[self.positions] = device.to_device(after)
        self.rhs_scale -= amount
        change = float((np.abs(after) - np.abs(before)).sum())
        change, magnitude = self.vertices.sums([change, float(np.abs(after).sum())])
        self.add(
            ResidualDelta(
                residual_l1=change,
                residual_sum=-amount,
                moved=abs(amount),
                magnitude=magnitude,
                additions=len(self.seeds.vertices),
            )
        )

    # ---- storage between batches ----

    def pack(self) -> Workspace:
        """Takes y and r out of the workspace, which can be given back; not of a dense iterate."""
        touched = self.workspace.listed.copy()
        values, residuals = self.workspace.values, self.workspace.residual.values
        self._packed = (touched, values[touched], residuals[touched])
        return self.workspace

    def unpack(self, workspace: Workspace) -> None:
        """Puts what was packed into a workspace of zeros, and continues there."""
        assert self._packed is not None
        touched, values, residuals = self._packed
        self._packed = None
        self.workspace = workspace
        self.residual_id = object()
        # a workspace of another size may have room for fewer
        self._list_all(touched)
        workspace.values[touched] = values
        workspace.residual.values[touched] = residuals

    @property
    def packed(self) -> bool:
        return self._packed is not None

    @property
    def nbytes(self) -> int:
        """Bytes on the device: of what was packed, or of the workspace."""
        if self._packed is not None:
            return sum(int(array.nbytes) for array in self._packed)
        return self.workspace.nbytes


_SAMPLED = 1000
"""Quotients that are looked at first."""


def _scale_that_stays(old: Ranking, weights: Ranking, scale: float) -> float:
    """β' for other seeds: what makes Σ|β'·s' - β·s| least, so that what is given the same weights
    as before keeps its part of r; the weighted median of the quotients. As before, where that is
    far from it: Σy would be, too.

    old      float64[k], β·s; weights  float64[k], s'
    """
    given = weights > 0.0
    if not given.all():
        old, weights = old[given], weights[given]
    quotients, shares = old / weights, weights
    # where most weights are as before it is the quotient of most, also of a part of them, and
    # sorting them is not needed
    some = quotients[:: 1 + len(quotients) // _SAMPLED]
    median = float(np.partition(some, len(some) // 2)[len(some) // 2])
    rounding = 8.0 * UNIT_ROUNDOFF * median
    half = 0.5 * float(shares.sum())
    below, above = quotients < median - rounding, quotients > median + rounding
    if max(shares[below].sum(), shares[above].sum()) > half:
        order = np.argsort(quotients)
        reached = np.cumsum(shares[order])
        median = float(quotients[order[np.searchsorted(reached, 0.5 * reached[-1])]])
    return median if 0.5 * scale <= median <= 2.0 * scale else scale
