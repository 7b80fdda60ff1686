"""The iterations of the published strategies on ``cpu``, of global and of personalized ranks."""

from __future__ import annotations

from sys import modules

import numpy as np

from liverank_gpu.backends.cpu.sweeps import NO_MARKS, STRIPE, in_lists
from liverank_gpu.native import kernels
from liverank_gpu.operations.csr import Kernels
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.published import (
    DetectListed,
    ExpandAffected,
    IterateRanks,
    PublishedResult,
    PullListed,
    PushInOnePass,
    PushListed,
    RankChanges,
    SendRanks,
    SentRanks,
    TakeListed,
    UpdateRanks,
    WorkList,
    iterate_ranks,
)

# ---- the iterations of the published strategies ----
#
# Byte arrays over all vertices, as in the paper, and a round over the chunks of all rows an
# iteration.

_SUMS = 5
"""Numbers of each chunk: the first of RankChanges."""


def _send(do: SendRanks | UpdateRanks, states: Array) -> float:
    """Contributions of the vertices that have been affected, or of all. Returns Σy over those of
    them that are dangling.
    """
    dangling = np.zeros(-(-do.graph.vertices // STRIPE))
    kernels.send(do.values, do.graph.degree, states, do.contributions, dangling)
    return float(dangling.sum())


def _send_ranks(do: SendRanks) -> SentRanks:
    return SentRanks(do.graph.vertices, _send(do, NO_MARKS))


def _update_ranks(do: UpdateRanks) -> RankChanges:
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
    return RankChanges(largest, largest_relative, recomputed, edges, pruned, dangling)


def _expand_affected(do: ExpandAffected) -> None:
    kernels.expand_affected(do.graph.outgoing, do.graph.loop, *do.marks)


def _iterate_ranks(do: IterateRanks) -> PublishedResult:
    return iterate_ranks(_RUN, np.sum, do)


# ---- the iterations of published personalized PageRank ----
#
# Pushes run on one core: adding to shared entries from several takes atomic operations. Pulls and
# tests run on all cores.


def _detect(do: DetectListed) -> WorkList:
    lengths, state = do.graph.outgoing.row_lengths, do.state
    return WorkList(*kernels.detect(state.residual, do.threshold, lengths, state.queue))


def _take(do: TakeListed) -> None:
    graph, state = do.graph, do.state
    vectors = (state.values, state.residual, state.contributions)
    kernels.take(do.listed, graph.loop, graph.degree, *vectors, do.damping)


def _push_in_one_pass(do: PushInOnePass) -> WorkList:
    state, lists = do.state, do.graph.outgoing
    _take(do)
    vectors = (state.residual, state.contributions, do.threshold)
    following = kernels.push_in_one_pass(do.listed, lists, *vectors, state.next_queue, state.queued)
    state.queue, state.next_queue = state.next_queue, state.queue
    return WorkList(*following)


def _push(do: PushListed) -> None:
    _take(do)
    kernels.push_listed(do.listed, do.graph.outgoing, do.state.residual, do.contributions)


def _pull(do: PullListed) -> None:
    vectors = (do.state.residual, do.state.contributions)
    kernels.pull_all(do.rows.groups, do.rows.order, do.graph.incoming, *vectors)


_RUN = Kernels(modules[__name__])
