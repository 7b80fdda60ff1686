"""What costs as much as it touches: the residual under local changes, pushes, sets of vertices.

Additions to r come in any order on ``cuda``: results can differ in the last bits from run to run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from liverank_gpu.operations.csr import GraphView, Operation, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import EdgeChanges

# ---- the residual under local changes, and push by rounds of work-lists ----

PushEnd = Literal["goal", "floor", "work", "rounds"]
PUSH_ENDS: tuple[PushEnd, ...] = ("goal", "floor", "work", "rounds")
"""How a push can end (see PushResult), in the numbering of the kernels."""

LISTED, QUEUED = 1, 2
"""Bits of Residual.marks; the bits above hold the number of the solve that last pushed v."""

SOLVE_SHIFT = 2
SOLVES = 1 << 28
"""Solves are numbered modulo this."""


SPARED_GROWTH = 4.0
"""See Perturb."""


@dataclass(slots=True)
class Residual:
    """r = β·b + αP̄ᵀy - y, and the list of its large entries.

    values      values[n], r
    marks       int32[n]: LISTED, QUEUED and the last solve that pushed v; QUEUED only inside a Push
    candidates  int32[capacity]: the first `listed` are every v with |r[v]| > floor, each once, and
                perhaps some others
    floor       infinite if there are no candidates; negative to list every v whose r[v] was added
                to
    solve       number of the current solve
    """

    values: Array
    marks: Array
    candidates: Array
    listed: int
    floor: float
    solve: int


class ResidualDelta(NamedTuple):
    """What an operation changed, and what bounds its rounding.

    residual_l1, residual_sum  change of ‖r‖₁ and of Σr
    mass       change of Σy
    moved      Σ of the absolute values of what was pushed or added
    magnitude  Σ|r[v]| over all additions to an r[v], after each
    additions  number of additions
    """

    residual_l1: float = 0.0
    residual_sum: float = 0.0
    mass: float = 0.0
    moved: float = 0.0
    magnitude: float = 0.0
    additions: int = 0


class PushLimits(NamedTuple):
    """When a Push ends, apart from having nothing left above the floor.

    residual_l1, residual_sum, mass  ‖r‖₁, Σr and Σy at its start
    goal            met when ‖r‖₁ + |Σr| ≤ goal · Σy
    threshold       the first θ
    edge_weight     a vertex with out-degree l is above θ when |r| > θ·(1 + edge_weight·l)
    round_edges     the most out-edges of one work-list
    edges           the most edges in all
    rounds          the most rounds
    """

    residual_l1: float
    residual_sum: float
    mass: float
    goal: float
    threshold: float
    edge_weight: float
    round_edges: int
    edges: int
    rounds: int


class PushResult(NamedTuple):
    """What a Push did.

    end        ``goal``: met; ``floor``: nothing is above the floor; ``work``: the next work-list,
               or all so far, or the candidates, exceed their limit, or sweeps gain more;
               ``rounds``: the most rounds ran
    threshold  the last θ
    rounds     work-lists propagated
    vertices   distinct vertices pushed for the first time in this solve
    entries    of the work-lists: a vertex counts once a list
    delta      see ResidualDelta
    below_zero whether a y that it changed may be negative
    """

    end: PushEnd
    threshold: float
    rounds: int
    vertices: int
    entries: int
    delta: ResidualDelta
    below_zero: bool = True


@dataclass(slots=True, eq=False)
class RecomputeRows(Operation[ResidualDelta]):
    """Computes r from y for the vertices first … last-1 and the right-hand side β·1, dividing for
    each edge.

    edges      upper bound on the lengths of their in-lists together
    values     values[n], y
    rhs_scale  β
    """

    graph: GraphView
    first: int
    last: int
    edges: int
    values: Array
    rhs_scale: float
    damping: float
    residual: Residual


@dataclass(slots=True, eq=False)
class Perturb(Operation["ResidualDelta | None"]):
    """Makes r the residual of y in the graph after a batch that touched at least one source. None,
    and nothing is done, if that takes more than `edge_limit` additions.

    Of a touched source u all out-neighbours change: each old one loses α·y[u]/d_old, each new one
    gains α·y[u]/d_new. Over the new list that is their difference; removed and added edges correct
    for what the old list had or lacked.

    Weighted: α·y[u]·(w_new/W_new - w_old/W_old). Over the new list
    α·y[u]·w_new·(1/W_new - 1/W_old), and for removed and added edges α·y[u]·w/W_old. An edge with
    another weight is both. Where a strength grows by more than SPARED_GROWTH, these two would
    cancel: there added edges are left out of the first, and get α·y[u]·w/W_new.

    values  values[n], y
    """

    graph: GraphView
    changes: EdgeChanges
    values: Array
    damping: float
    residual: Residual
    edge_limit: int


@dataclass(slots=True, eq=False)
class Scatter(Operation[ResidualDelta]):
    """Adds contributions[i] (times the weight of the edge) to r[w] for every w in the out-list of
    sources[i] (loops are in no list), and amounts[j] to r[targets[j]].

    sources, contributions  int32[s], distinct; float64[s]
    targets, amounts        int32[t]; float64[t]
    """

    graph: GraphView
    residual: Residual
    sources: Array
    contributions: Array
    targets: Array
    amounts: Array


@dataclass(slots=True, eq=False)
class Push(Operation[PushResult]):
    """The sparse phase: rounds of work-lists at a falling threshold θ.

    A round takes x = r[u] / (1 - αℓ/d) of every u on the list that is above θ, before anything is
    scattered: y[u] += x, and r[u] keeps what rounding of y left. Then r[v] += α·x/d(u), times the
    weight of the edge, over the out-lists; a vertex that this lifts above θ joins the next list.
    When a list is empty, θ is halved, or falls to the largest remaining entry, and the list is
    selected from the candidates. A backend on which a short list takes as long as a longer one may
    lower θ earlier, and further, and end at the floor before the list is empty.
    The cost is the out-edges of the lists and the candidates, never all n.

    A push takes at least (1-α)·|x| from ‖r‖₁ and its cost grows with the out-list, so θ is scaled
    by the length of the list (PushLimits.edge_weight): cheap vertices go first, and mass can gather
    and cancel at hubs.

    A backend may end it too where sweeps gain more for what they take: a whole number of them
    leads to the goal, so it ends where `sweep_edges` would not bring ‖r‖₁ + |Σr| to the next size
    from which fewer do, at the rate of the last round.

    values       values[n], y
    left         what a sweep leaves of ‖r‖₁ + |Σr|; 0 if that is not known: then this is left out
    sweep_edges  that many more edges would be worth a sweep, at this rate
    meanwhile    called while it runs, where that is on a device; it may change neither the graph
                 nor y and r
    """

    graph: GraphView
    values: Array
    damping: float
    residual: Residual
    limits: PushLimits
    left: float = 0.0
    sweep_edges: float = 0.0
    meanwhile: Callable[[], object] | None = None


@dataclass(slots=True, eq=False)
class SelectCandidates(Operation[None]):
    """Lists the candidates: every v with |r[v]| > floor, a pass over all n. If they exceed their
    array, there are none and the floor is infinite.
    """

    residual: Residual
    floor: float


# ---- the parts of a round of a push, for shards, which exchange data between them ----
#
# They work on the candidates of a Residual whose floor is finite. A vertex with out-degree l is
# above a threshold θ when |r| / (1 + edge_weight·l) > θ. What they did is told once a round:
# nothing waits for it in between.

LEVELS = 4
"""Thresholds of AddReceived."""


class RoundNumbers(NamedTuple):
    """What a round did on one shard, float64; behind them, how many candidates are above each of
    LEVELS thresholds, and how many out-edges these have.

    residual_l1 … additions  see ResidualDelta; additions of amounts that arrived are left out
    vertices    pushed for the first time in this solve
    below_zero  whose y is negative now
    left        columns whose sums found no room in the messages
    undone      whether this shard gave up
    listed      candidates
    floor       infinite if these are more than their array holds
    kept        candidates above the floor
    """

    residual_l1: float
    residual_sum: float
    mass: float
    moved: float
    magnitude: float
    additions: float
    vertices: float
    below_zero: float
    left: float
    undone: float
    listed: float
    floor: float
    kept: float


ROUND_NUMBERS = len(RoundNumbers._fields) + 2 * LEVELS


MESSAGE_HEADER = 2
"""Words of a message before its pairs."""


@dataclass(slots=True)
class Outbox:
    """Sums on their way to the shards that own their columns (liverank_gpu.sharded.columns).

    sums       r of a Residual over columns that lists every column with a sum; zero elsewhere
    rest       int32[…], as many as its candidates: columns whose sums found no room in a message
    sent, received  int64[size, MESSAGE_HEADER + 2·most]: row k is for, or from, shard k. It begins
               with the number of pairs that there are for it; behind the header are as many of them
               as `capacity`: a row of the owner, and the bits of an amount. What this shard has for
               itself stays in `sent`
    capacity   at most `most`
    rank, room see liverank_gpu.sharded.columns.Numbering
    kept       what a backend keeps
    """

    sums: Residual
    rest: Array
    sent: Array
    received: Array
    capacity: int
    rank: int
    room: int
    kept: Any = None


@dataclass(slots=True, eq=False)
class PushRound(Operation[Any]):
    """Pushes the candidates above θ: moves r to y, but for what rounding of y leaves, and adds
    α·x/d, times the weight of the edge, to the sums of their out-neighbours, which go to messages;
    or, for own ones, to r at once. Candidates that are not above the floor are none any more. The
    result is for AddReceived.

    values    values[n], y
    count, edges  candidates above θ, and their out-edges
    kept      candidates above the floor
    """

    graph: GraphView
    values: Array
    damping: float
    residual: Residual
    threshold: float
    edge_weight: float
    count: int
    edges: int
    kept: int
    outbox: Outbox


@dataclass(slots=True, eq=False)
class SendSums(Operation[Any]):
    """Moves sums to messages, as many as find room. The result is for AddReceived.

    done  what adding them up did
    """

    outbox: Outbox
    done: ResidualDelta


@dataclass(slots=True, eq=False)
class AddReceived(Operation[Array]):
    """Adds the pairs of all messages to r, and counts the candidates. The result is RoundNumbers
    and what is behind them, float64[ROUND_NUMBERS] on the device.

    sent        result of PushRound or SendSums; None if there are no messages
    thresholds  LEVELS of them, descending, none below the floor
    undone      for RoundNumbers
    """

    graph: GraphView
    residual: Residual
    outbox: Outbox
    sent: Any
    thresholds: Sequence[float]
    edge_weight: float
    undone: bool = False


# ---- sets of vertices, how they grow along edges, and Jacobi steps over them ----


@dataclass(slots=True, eq=False)
class ExpandForward(Operation[Array]):
    """Sets flags[w] for every out-neighbour w of the vertices, loops included (a top-down step).
    The result is int32[…], those whose flag was 0, in any order.

    vertices  integer[k]
    flags     int32[n]
    """

    graph: GraphView
    vertices: Array
    flags: Array


@dataclass(slots=True, eq=False)
class ExpandBackward(Operation[Array]):
    """`ExpandForward` for the vertices flagged in `frontier` (uint8[n]) from the other end (a
    bottom-up step): every vertex without a flag looks for an in-neighbour in the frontier. Cheaper
    if the frontier has a good part of all out-edges. (Beamer, Asanović and Patterson,
    "Direction-optimizing breadth-first search", SC 2012.)

    rows  all in-lists
    """

    in_rows = True

    graph: GraphView
    rows: Rows
    frontier: Array
    flags: Array


@dataclass(frozen=True, slots=True)
class Frontier:
    """What `JacobiStep` does to the affected set (Sahu, algorithm 3, lines 24-29).

    affected            int32[n]: cleared where a vertex's relative change is ≤ prune_tolerance
    expanding           uint8[n], all 0 before and after a step: vertices above frontier_tolerance
    prune_tolerance     τ_p, or a negative number for no pruning
    frontier_tolerance  τ_f, infinite if the affected set does not grow
    """

    affected: Array
    expanding: Array
    prune_tolerance: float
    frontier_tolerance: float


@dataclass(frozen=True, slots=True)
class JacobiResult:
    """What one `JacobiStep` did.

    largest_change  max |y' - y|
    expanding       int32[…], rows whose relative change is > frontier_tolerance, in any order
    remaining       int32[…], rows that stay affected, in any order
    """

    largest_change: float
    expanding: Array
    remaining: Array


@dataclass(slots=True, eq=False)
class JacobiStep(Operation[JacobiResult]):
    """One Jacobi step for the vertices in `rows`, all from the same y, loops in closed form (Sahu,
    equation 2). With r as of ComputeResidual:

        y' = y[v] + r / (1 - αℓ/d)

    Only for affected vertices in a list: there is none where Costs.sparse_part is 0, as these are
    kept as states of all vertices (liverank_gpu.operations.published).

    values         values[n], y; y' at these rows afterwards
    contributions  float64[n], those of y, and of y' afterwards; None to divide for each edge,
                   cheaper than a pass over n if rows are few
    new_values     values[n], scratch
    """

    in_rows = True

    graph: GraphView
    rows: Rows
    values: Array
    contributions: Array | None
    rhs_scale: float
    damping: float
    new_values: Array
    frontier: Frontier


class FrontierOperations(ABC):
    """What a backend says of sets of rows."""

    @abstractmethod
    def rows_of(self, vertices: Array, row_lengths: Array) -> Rows:
        """The rows of these distinct vertices (int32[k]): for k small against n."""
