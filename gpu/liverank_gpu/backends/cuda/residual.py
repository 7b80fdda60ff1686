"""The residual under local changes, pushes, and sets of vertices, on ``cuda``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cuda.kernels import loader as cu
from liverank_gpu.backends.cuda.launcher import OnDevice, blocks_for
from liverank_gpu.operations import residual as op
from liverank_gpu.operations.csr import GraphView, Rows, runs
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import SCAN_TILE

# ---- the residual under local changes, and push by rounds of work-lists, on ``cuda`` ----

_FILL = 1 << 16
"""Out-edges of a work-list below which a round takes the same time, however short it is."""


class CudaResidual(OnDevice):
    """The operations on the residual of one device."""

    @runs
    def _recompute_rows(self, do: op.RecomputeRows) -> op.ResidualDelta:
        graph, residual, xp = do.graph, do.residual, self._xp
        # of long rows, which have more than one chunk each
        chunks = 2 * do.edges // cu.ROW_CHUNK + 2
        told = self._launch.ask(
            "perturb",
            "recompute_rows",
            do.first,
            do.last,
            graph.incoming,
            _graph(graph),
            do.values,
            do.rhs_scale,
            do.damping,
            xp.empty(chunks, np.int64),
            xp.empty(chunks, np.int64),
            xp.empty(chunks),
            *lists_of(residual),
            weighted=graph.weighted,
        )
        return delta_of(residual, told)

    @runs
    def _perturb(self, do: op.Perturb) -> op.ResidualDelta | None:
        graph, changes, residual = do.graph, do.changes, do.residual
        sources = changes.sources
        count, removed, added = map(len, (sources, changes.removed_targets, changes.added_targets))
        words = perturbation_words(count, removed + added)
        told = self._launch.ask(
            "perturb",
            "perturb",
            changes,
            count,
            removed,
            added,
            _graph(graph),
            do.values,
            do.damping,
            self._xp.empty(words, np.int64),
            do.edge_limit,
            *lists_of(residual),
            weighted=graph.weighted,
        )
        return perturbed(residual, told)

    @runs
    def _scatter(self, do: op.Scatter) -> op.ResidualDelta:
        graph, sources, residual = do.graph, do.sources, do.residual
        ends = self._launch.chunk_ends(graph.outgoing.row_lengths[sources])
        told = self._launch.ask(
            "perturb",
            "scatter",
            sources,
            len(sources),
            len(do.targets),
            (do.contributions, ends, do.amounts, do.targets, None),
            graph.outgoing,
            *lists_of(residual),
            weighted=graph.weighted,
        )
        return delta_of(residual, told)

    @runs
    def _push(self, do: op.Push) -> op.PushResult:
        graph, residual, limits = do.graph, do.residual, do.limits
        xp, capacity = self._xp, len(residual.candidates)
        # a selection copies the candidates from one array to the other
        other_candidates = xp.empty_like(residual.candidates)
        lists, listed = lists_of(residual)
        told = self._launch.ask(
            "push",
            "push",
            *_graph(graph),
            do.values,
            lists,
            other_candidates,
            xp.empty_like(residual.candidates),
            xp.empty_like(residual.candidates),
            xp.empty(capacity),
            xp.empty(capacity + limits.round_edges // cu.EDGE_CHUNK + 1, np.int64),
            residual.solve % op.SOLVES,
            do.damping,
            limits,
            do.left,
            do.sweep_edges,
            _FILL,
            listed,
            weighted=graph.weighted,
            meanwhile=do.meanwhile,
        )
        if told[cu.TALLY["SELECTIONS"]] % 2:
            residual.candidates = other_candidates
        told[cu.TALLY["LISTED_COUNT"]] = told[cu.TALLY["FINAL_LISTED"]]
        return op.PushResult(
            op.PUSH_ENDS[told[cu.TALLY["END"]]],
            float(told.view(np.float64)[cu.TALLY["THRESHOLD"]]),
            int(told[cu.TALLY["ROUNDS"]]),
            int(told[cu.TALLY["VERTICES"]]),
            int(told[cu.TALLY["ENTRIES"]]),
            delta_of(residual, told),
            bool(told[cu.TALLY["BELOW_ZERO"]]),
        )

    @runs
    def _select_candidates(self, do: op.SelectCandidates) -> None:
        residual, vertices = do.residual, len(do.residual.values)
        residual.listed, residual.floor = 0, do.floor
        lists, _ = lists_of(residual)
        delta_of(residual, self._launch.ask("perturb", "select_candidates", lists, vertices))

    # ---- the parts of a round of a push: lists and pairs are in any order. What PushRound and
    # SendSums return is memory in which the device finds what they did. Nothing is waited for. ----

    @runs
    def _push_round(self, do: op.PushRound) -> Array:
        graph, residual, outbox = do.graph, do.residual, do.outbox
        xp, kept = self._xp, self._xp.empty_like(residual.candidates)
        sent, _ = self._answers(outbox)
        self._launch(
            "rounds",
            "push_round",
            self._launch.resident,
            _graph(graph),
            do.values,
            *lists_of(residual),
            do.threshold,
            do.edge_weight,
            residual.solve % op.SOLVES,
            do.damping,
            kept,
            xp.empty(do.count, np.int32),
            xp.empty(do.count),
            xp.empty(do.count + do.edges // cu.EDGE_CHUNK, np.int64),
            lists_of(outbox.sums)[0],
            _messages(outbox),
            sent,
            weighted=graph.weighted,
        )
        residual.candidates, residual.listed = kept, do.kept
        return sent[1]

    @runs
    def _send_sums(self, do: op.SendSums) -> Array:
        outbox, done, (sent, _) = do.outbox, do.done, self._answers(do.outbox)
        lists, listed = lists_of(outbox.sums)
        if outbox.sums.floor == np.inf:  # more than the list holds
            listed = len(outbox.sums.candidates) + 1
        numbers = (done.moved, done.magnitude, done.additions)
        self._launch(
            "rounds",
            "send_sums",
            self._launch.resident,
            lists,
            listed,
            _messages(outbox),
            *numbers,
            sent,
        )
        return sent[1]

    @runs
    def _add_received(self, do: op.AddReceived) -> Array:
        numbers, (_, added) = self._xp.empty(op.ROUND_NUMBERS), self._answers(do.outbox)
        self._launch(
            "rounds",
            "add_received",
            self._launch.resident,
            *lists_of(do.residual),
            _messages(do.outbox),
            do.sent,
            do.graph.outgoing.row_lengths,
            *do.thresholds,
            do.edge_weight,
            do.undone,
            numbers,
            added,
        )
        return numbers

    def _answers(self, outbox: op.Outbox) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Answers of one shard, for messages sent and for those received, that nobody waits for:
        both are on the device.
        """
        if outbox.kept is None:
            empty = self._xp.zeros
            outbox.kept = [
                (empty(cu.ANSWER, np.int64), empty(cu.ANSWER, np.int64)) for _ in range(2)
            ]
        first, second = outbox.kept
        return first, second


def _graph(graph: GraphView) -> tuple[Any, ...]:
    """GraphLists of work_lists.cuh."""
    return graph.outgoing, graph.loop, graph.degree


def lists_of(residual: op.Residual) -> tuple[tuple[Any, ...], int]:
    """Candidates of work_lists.cuh, and how many are listed."""
    candidates, capacity = residual.candidates, len(residual.candidates)
    arrays = (residual.values, residual.marks, residual.floor, candidates, capacity)
    return arrays, residual.listed


def perturbation_words(sources: int, edges: int) -> int:
    """Words of a Perturbation of perturb.cuh; edges: those that are gone or new."""
    return 5 * sources + 2 * edges + 3 + sources // SCAN_TILE


def perturbed(residual: op.Residual, tally: NDArray[np.int64]) -> op.ResidualDelta | None:
    """What Perturb returns."""
    return None if tally[cu.TALLY["END"]] else delta_of(residual, tally)


def delta_of(residual: op.Residual, tally: NDArray[np.int64]) -> op.ResidualDelta:
    """What a tally says; the list of candidates is as long as it says too."""
    residual.listed = int(tally[cu.TALLY["LISTED_COUNT"]])
    if residual.listed > len(residual.candidates):
        # if there are more candidates than their array holds, there are none
        residual.marks &= ~(op.LISTED | op.QUEUED)
        residual.listed, residual.floor = 0, np.inf
    first = cu.TALLY["SUMS"]
    residual_l1, residual_sum, mass, moved, magnitude = tally.view(np.float64)[
        first : first + 5
    ].tolist()
    additions = int(tally[cu.TALLY["ADDITIONS"]])
    return op.ResidualDelta(residual_l1, residual_sum, mass, moved, magnitude, additions)


def _messages(outbox: op.Outbox) -> tuple[Any, ...]:
    """Messages of rounds.cu."""
    sent, columns = outbox.sent, len(outbox.sums.values)
    sizes = (sent.shape[1], outbox.capacity, columns, len(sent), outbox.rank, outbox.room)
    return (sent, outbox.received, outbox.rest, *sizes)


# ---- sets of vertices on ``cuda``, and their expansion along edges ----

_EXPANSION_BLOCKS = 2048
"""Blocks of an expansion, at most."""


class CudaFrontier(OnDevice, op.FrontierOperations):
    def rows_of(self, vertices: Array, row_lengths: Array) -> Rows:
        xp = self._xp
        vertices = xp.sort(vertices)
        bins = xp.searchsorted(xp.asarray(cu.BIN_LIMITS, np.int32), row_lengths[vertices])
        group = len(cu.BIN_LIMITS) - bins  # the longest rows come first
        order = vertices[xp.argsort(group, kind="stable")].astype(np.int32)
        sizes = self._device.to_host(xp.bincount(group, minlength=len(cu.BIN_LANES)))
        return Rows(order, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))

    @runs
    def _expand_forward(self, do: op.ExpandForward) -> Array:
        xp, graph, vertices = self._xp, do.graph, do.vertices
        if len(vertices) == 0:
            return xp.zeros(0, np.int32)
        ends = self._launch.chunk_ends(graph.outgoing.row_lengths[vertices])
        chunks = int(ends[-1])
        blocks = blocks_for(chunks * cu.WARP, most=_EXPANSION_BLOCKS)
        most = min(len(do.flags), chunks * (cu.EDGE_CHUNK + 1))
        lists = (vertices.astype(np.int32), ends, len(vertices), graph.outgoing, graph.loop)
        return self._expand("expand_forward", blocks, most, graph, *lists, do.flags)

    @runs
    def _expand_backward(self, do: op.ExpandBackward) -> Array:
        graph, most = do.graph, len(do.flags)
        blocks = blocks_for(most, most=_EXPANSION_BLOCKS)
        lists = (most, graph.incoming, graph.loop, do.frontier)
        return self._expand("expand_backward", blocks, most, graph, *lists, do.flags)

    def _expand(
        self, kernel: str, blocks: int, most: int, graph: GraphView, *arguments: Any
    ) -> Array:
        """Launches a kernel that finds this many vertices at most; returns them."""
        fresh, found = self._xp.empty(most, np.int32), self._xp.zeros(1, np.uint64)
        given = (*arguments, fresh, found)
        self._launch("frontier", kernel, blocks, *given, weighted=graph.weighted)
        return fresh[: int(found[0])]
