"""The personalized iterate of some seeds: b = s.

It begins at y = 0, r = β·s, and proceeds by the same two phases as global ranks: push over
work-lists and sweeps over all vertices. While it stays near its seeds, each vertex that it touched
is on the candidate list, so that neither solving nor clearing costs a pass over n. The list is
dropped when it exceeds its array or a sweep begins; then the iterate is `dense`.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.residual import PushResult, ResidualDelta
from liverank_gpu.operations.sweeps import ComputeContributions, ComputeResidual, SubtractAt
from liverank_gpu.pagerank.certificate import UNIT_ROUNDOFF, Certificate
from liverank_gpu.pagerank.deflation import Deflation
from liverank_gpu.pagerank.iterate import Iterate, transition_error
from liverank_gpu.pagerank.vertices import GraphVertices
from liverank_gpu.pagerank.workspace import Workspace, candidate_room
from liverank_gpu.personalized.seeds import Seeds
from liverank_gpu.types import Options

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
        graph: DynamicGraph,
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

    def _begin(self) -> None:
        """y = 0, r = β·s."""
        # positions may be others at each restart: a batch may permute the graph
        self.positions, here = self.vertices.rows_of(self.seeds.vertices)
        self._weights = self.graph.backend.device.to_device(self.seeds.weights)[here]
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
        """int32[…], by ascending id: all vertices where y or r may not be 0; None if it is dense,
        or if they are so many that to look at all is faster than to sort them.
        """
        if self.dense:
            return None
        excess = len(self.workspace.listed) - candidate_room(self.graph.vertices)
        # all shards look at all, or none does
        if self.vertices.highest(excess) > 0:
            return None
        return self.vertices.sorted_by_id(self.workspace.listed)

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
