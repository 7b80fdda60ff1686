"""The iterations of the published strategies on ``cpu``, of global and of personalized ranks."""

from __future__ import annotations

from sys import modules

import numpy as np

from liverank_gpu.backends.cpu.sweeps import NO_MARKS, STRIPE, in_lists
from liverank_gpu.native import kernels
from liverank_gpu.operations import published as op
from liverank_gpu.operations.csr import Kernels, runs
from liverank_gpu.operations.device import Array

# ---- the iterations of the published strategies ----
#
# Byte arrays over all vertices, as in the paper, and a round over the chunks of all rows an
# iteration.

_SUMS = 5
"""Numbers of each chunk: the first of RankChanges."""


def _send(do: op.SendRanks | op.UpdateRanks, states: Array) -> float:
    """Contributions of the vertices that have been affected, or of all. Returns Σy over those of
    them that are dangling.
    """
    dangling = np.zeros(-(-do.graph.vertices // STRIPE))
    kernels.send(do.values, do.graph.degree, states, do.contributions, dangling)
    return float(dangling.sum())


@runs
def _send_ranks(do: op.SendRanks) -> op.SentRanks:
    return op.SentRanks(do.graph.vertices, _send(do, NO_MARKS))


@runs
def _update_ranks(do: op.UpdateRanks) -> op.RankChanges:
    rule = do.rule
    states, expanding = do.marks or (NO_MARKS, NO_MARKS)
    sums = np.zeros((len(do.rows.groups) - 1, _SUMS))
    kernels.update_ranks(
        *in_lists(do.graph, do.rows),
        do.values,
        do.contributions,
        states,
        expanding,
        do.rhs_scale,
        rule.damping,
        rule.closed_form,
        rule.prune_tolerance,
        rule.frontier_tolerance,
        sums,
    )
    largest, largest_relative = sums[:, :2].max(axis=0, initial=0.0).tolist()
    recomputed, edges, pruned = map(int, sums[:, 2:].sum(axis=0))
    dangling = _send(do, states)
    return op.RankChanges(largest, largest_relative, recomputed, edges, pruned, dangling)


@runs
def _expand_affected(do: op.ExpandAffected) -> None:
    kernels.expand_affected(do.graph.outgoing, do.graph.loop, *do.marks)


@runs
def _iterate_ranks(do: op.IterateRanks) -> op.PublishedResult:
    return op.iterate_ranks(_RUN, np.sum, do)


# ---- the iterations of published personalized PageRank ----
#
# Pushes run on one core: adding to shared entries from several takes atomic operations. Pulls and
# tests run on all cores.


@runs
def _detect(do: op.DetectListed) -> op.WorkList:
    lengths, state = do.graph.outgoing.row_lengths, do.state
    return op.WorkList(*kernels.detect(state.residual, do.threshold, lengths, state.queue))


@runs
def _take(do: op.TakeListed) -> None:
    graph, state = do.graph, do.state
    vectors = (state.values, state.residual, state.contributions)
    kernels.take(do.listed, graph.loop, graph.degree, *vectors, do.damping)


@runs
def _push_in_one_pass(do: op.PushInOnePass) -> op.WorkList:
    state, lists = do.state, do.graph.outgoing
    _take(do)
    vectors = (state.residual, state.contributions, do.threshold)
    following = kernels.push_in_one_pass(do.listed, lists, *vectors, state.next_queue, state.queued)
    state.queue, state.next_queue = state.next_queue, state.queue
    return op.WorkList(*following)


@runs
def _push(do: op.PushListed) -> None:
    _take(do)
    kernels.push_listed(do.listed, do.graph.outgoing, do.state.residual, do.contributions)


@runs
def _pull(do: op.PullListed) -> None:
    vectors = (do.state.residual, do.state.contributions)
    kernels.pull_all(do.rows.groups, do.rows.order, do.graph.incoming, *vectors)


_RUN = Kernels(modules[__name__])
