"""Contract: dense sweeps over the transpose, of one vector and of several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.csr import GraphView, Operation, Rows
from liverank_gpu.operations.device import Array

# ---- dense sweeps over the transpose ----
#
# d and ℓ are GraphView.degree and loop: of a weighted graph, the strength and the weight of the
# loop. There "Σ contributions of the in-neighbours" is a sum of contributions times the weight of
# the edge. A product of a quantized contribution and a weight is exact, but contribution·d is
# rounded. A contribution that exceeds float32 is bounded; the rest of its residual stays.
#
# Reductions have a fixed shape, so the same input gives the same bits. `rows` are always all
# in-lists that are here.


class SweepResult(NamedTuple):
    """What one pass over y and r left.

    residual_l1, residual_sum  ‖r‖₁ and Σr
    mass               change of Σy
    next_residual_sum  what Σr will be after a `Sweep` without a shift
    largest_step       max |Δy|
    """

    residual_l1: float
    residual_sum: float
    mass: float
    next_residual_sum: float
    largest_step: float


class DeflationVector(NamedTuple):
    """A vector z with a known image A·z = rhs_scale·1 - residual, A = I - αP̄ᵀ.

    values, residual  float64[n]
    """

    values: Array
    residual: Array
    rhs_scale: float


@dataclass(frozen=True, slots=True)
class OrthominStep:
    """The coefficients of one step of Orthomin(1) (Saad, section 6.9): p = z - β·p', y += α·p."""

    alpha: float
    beta: float

    @classmethod
    def of(cls, products: Sequence[float], has_previous: bool) -> OrthominStep:
        """From ⟨Wq̂,q̂⟩, ⟨Wq̂,r⟩, ⟨Wq̂,q'⟩, ⟨Wq',q'⟩, ⟨Wq',r⟩; alpha is 0 if no direction is left."""
        new_new, new_r, new_last, last_last, last_r = products
        # the image of the last direction can be so small that its square is 0
        beta = new_last / last_last if has_previous and last_last > 0.0 else 0.0
        squared = new_new - beta * (2.0 * new_last - beta * last_last)
        return cls((new_r - beta * last_r) / squared if squared > 0.0 else 0.0, beta)


@dataclass(frozen=True, slots=True)
class OrthominState:
    """Vectors that Orthomin(1) keeps between steps (see liverank_gpu.pagerank.sweeps).

    direction   float64[n], p
    last_image  float64[n], q: the image of p under A = I - αP̄ᵀ, less its mean
    image       float64[n], q̂ from OrthominProducts to OrthominUpdate
    weights     float32[n], W
    """

    direction: Array
    last_image: Array
    image: Array
    weights: Array


GAIN_SWEEPS = 4
"""The gain of a kind of sweep is taken from its last sweeps: single ones differ by half."""


@dataclass(frozen=True, slots=True)
class FusedRun:
    """What fused sweeps start from, and when they end, at the latest after `most`.

    residual_l1, residual_sum, mass, next_residual_sum  as they are before: see SweepResult
    image_sum      each sweep lowers the right-hand side by what Σr will be / image_sum; 0: it stays
    free_mass      what Σy gains when the right-hand side is lowered by 1, as free ids are not
                   part of it
    residual_goal  they end when ‖r‖₁ - |Σr| ≤ residual_goal·Σy
    step_goal      or when max |Δy| ≤ step_goal·Σy
    least_gain     or when log((‖r‖₁ + |Σr|) / Σy) fell by less than this a sweep in the last
                   GAIN_SWEEPS, or since `bounds` begin,
    least_bounds   if there are at least this many earlier ones, of these and of `bounds`
    bounds         (‖r‖₁ + |Σr|) / Σy after earlier sweeps of this kind
    """

    residual_l1: float
    residual_sum: float
    mass: float
    next_residual_sum: float
    image_sum: float
    free_mass: float
    residual_goal: float
    step_goal: float
    least_gain: float
    least_bounds: int
    bounds: tuple[float, ...]
    most: int


class ResidualSums(NamedTuple):
    """‖r‖₁ and Σr."""

    residual_l1: float
    residual_sum: float


@dataclass(slots=True, eq=False)
class ComputeContributions(Operation[None]):
    """What each vertex sends along an edge: y/d, and 0 where d = 0.

    values         float64[n], y
    contributions  float64[columns]; the first n are written
    """

    writes = "contributions"

    graph: GraphView
    values: Array
    contributions: Array


@dataclass(slots=True, eq=False)
class ComputeResidual(Operation[ResidualSums]):
    """The residual of ``y = αP̄ᵀy + β·1`` at every vertex. With c the sum of contributions over the
    in-neighbours of v (its own loop excluded), ℓ its loop flag and d its out-degree:

        r = β + α·c - (1 - αℓ/d)·y[v]

    values         values[n], y
    contributions  float64[columns] of ComputeContributions
    residual       values[n], receives r
    """

    in_rows = True
    divides = True

    graph: GraphView
    rows: Rows
    values: Array
    contributions: Array
    rhs_scale: float
    damping: float
    residual: Array


@dataclass(slots=True, eq=False)
class QuantizeContributions(Operation[SweepResult]):
    """Lowers every r by the shift and computes the contributions with which a sweep begins.
    Vertices without edges take their residual at once, as in `Sweep`.

    values, residual  values[n], y and r
    contributions     of the dtype contribution_dtype; the first n are written: r / (1 - αℓ/d) / d,
                      rounded, and 0 where d = 0
    """

    writes = "contributions"
    maxima = frozenset({"largest_step"})

    graph: GraphView
    values: Array
    residual: Array
    contributions: Array
    damping: float
    shift: float


@dataclass(slots=True, eq=False)
class SumInDegrees(Operation[Array]):
    """float64[k] on the device: sums over the vertices, of what StartFromInDegrees needs to know of
    all of them.
    """

    graph: GraphView
    damping: float


@dataclass(slots=True, eq=False)
class StartFromInDegrees(Operation[SweepResult]):
    """y = 0 and r = β·1, with contributions that are not those of r: those of the guess

        (β + α·c·i) / (1 - αℓ/d),  i the length of the in-list,

    where c is what such values send along an edge in the mean. A `Sweep` without a shift then makes
    y the guess, 0 and β where the vertex dangles, and r its residual. Vertices without edges are
    solved at once. The result is as of a step from y = 0 and r = β·1.

    in_degrees        of SumInDegrees
    values, residual  float64[n], written: y and r
    contributions     of the dtype contribution_dtype; the first n are written
    """

    writes = "contributions"
    maxima = frozenset({"largest_step"})

    graph: GraphView
    in_degrees: Array
    values: Array
    residual: Array
    contributions: Array
    damping: float
    rhs_scale: float


@dataclass(slots=True, eq=False)
class Sweep(Operation[SweepResult]):
    """Pushes the residual of every vertex at once, as a pull over the in-lists:

        δ = contribution·d,  y += δ,
        r = α·Σ contributions of the in-neighbours + what is left of r - shift

    The step is what the quantized contributions stand for, so r stays the residual of y for a
    right-hand side lowered by the shift; what contributions or y cannot represent stays in r. A
    vertex without edges, whose loop does not count, takes its residual and the shift at once:
    y = β / (1 - αℓ/d) there, always. With `graph.pages`, which are for a y in float64,
    contributions are rounded to their unit, the step of their own vertex too: sums are exact.

    values, residual                  values[n], y and r, updated
    contributions, new_contributions  of r before and after; different arrays
    deflation, coefficient            y += coefficient·z and r -= coefficient·A·z at vertices with
                                      edges; only for a y in float64
    fresh, kept                       what is left in `new_contributions`: fresh·those of r +
                                      kept·`contributions`, rounded. So may `contributions` be, from
                                      the sweep before: y takes the step that they stand for. Other
                                      values only if `takes_momentum`, without a deflation
    """

    writes = "new_contributions"
    in_rows = True
    divides = True
    maxima = frozenset({"largest_step"})

    graph: GraphView
    rows: Rows
    values: Array
    residual: Array
    contributions: Array
    new_contributions: Array
    damping: float
    shift: float
    deflation: DeflationVector | None = None
    coefficient: float = 0.0
    fresh: float = 1.0
    kept: float = 0.0


@dataclass(slots=True, eq=False)
class FusedSweeps(Operation[list[tuple[SweepResult, float]]]):
    """At least one `Sweep`, without a host between them; only if `most_fused` exceeds 1. Returns
    the result of each, and its shift.

    contributions, new_contributions  take turns: after an even number of sweeps the first ones are
                                      those of r
    """

    in_rows = True

    graph: GraphView
    rows: Rows
    values: Array
    residual: Array
    contributions: Array
    new_contributions: Array
    damping: float
    run: FusedRun


@dataclass(slots=True, eq=False)
class OrthominProducts(Operation[Array]):
    """The first part of a step of Orthomin(1), for a y in float64. With δ what the contributions
    stand for:

        q̂ = A·δ - mean, p = δ - β·p', q = q̂ - β·q', y += α·p, r -= α·q

    and the contributions of the new r (α and β here are those of OrthominStep). p and q replace p'
    and q' in `state`. A vertex without edges has q = 0 and the p that follows the right-hand side.
    This part leaves q̂ in `state` and returns the arguments of OrthominStep.of, float64[5] on the
    device.

    mean          of A·δ over the vertices with edges, or 0
    floor         weights are recomputed, W = 1 / (1 - αℓ/d) / max(y, floor); 0 to keep them
    has_previous  whether `state` holds a p' and q'
    """

    in_rows = True

    graph: GraphView
    rows: Rows
    values: Array
    residual: Array
    contributions: Array
    state: OrthominState
    damping: float
    mean: float
    floor: float
    has_previous: bool


@dataclass(slots=True, eq=False)
class OrthominUpdate(Operation[tuple[OrthominStep, SweepResult]]):
    """The second part of the step.

    products  of the first part
    """

    writes = "contributions"
    maxima = frozenset({"largest_step"})

    graph: GraphView
    values: Array
    residual: Array
    contributions: Array
    state: OrthominState
    damping: float
    mean: float
    products: Array
    has_previous: bool


@dataclass(slots=True, eq=False)
class FusedOrthomin(Operation[list[tuple[OrthominStep, SweepResult, float]]]):
    """At least one step of Orthomin, as FusedSweeps. They end also after a step that leaves more
    than the damping of ‖r‖₁ / Σy, and one whose alpha is 0. Returns the coefficients, the result
    and the mean of each.

    image_mean           of q' in `state`, if there is one
    floor, has_previous  of the first step; the others keep the weights, and have a p' and q'
    """

    in_rows = True

    graph: GraphView
    rows: Rows
    values: Array
    residual: Array
    contributions: Array
    state: OrthominState
    damping: float
    image_mean: float
    floor: float
    has_previous: bool
    run: FusedRun


@dataclass(slots=True, eq=False)
class SubtractAt(Operation[None]):
    """residual[places[i]] -= amount·weights[i].

    residual  float64[n]; places  int32[k], distinct; weights  float64[k]
    """

    residual: Array
    places: Array
    weights: Array
    amount: float


class SweepOperations(ABC):
    """What a backend says of its sweeps.

    contribution_dtype  what they quantize contributions to
    takes_momentum      whether they keep a part of the contributions before
    """

    contribution_dtype: ClassVar[type[np.generic]]
    takes_momentum: ClassVar[bool] = False

    def most_fused(self, graph: GraphView) -> int:  # noqa: ARG002
        """The most sweeps that FusedSweeps or FusedOrthomin should run: 1, if single sweeps are as
        fast.
        """
        return 1

    @abstractmethod
    def sum_depth(self, longest_row: int) -> int:
        """The most additions that any term of a row sum goes through: L in the rounding bound."""


class PartialSweeps(SweepOperations):
    """Those of a backend that is given a part of the rows at a time: a sweep is a launch."""

    def __init__(self, local: SweepOperations) -> None:
        """local  those of the backend"""
        self._local = local
        self.contribution_dtype = local.contribution_dtype  # type: ignore[misc]

    def sum_depth(self, longest_row: int) -> int:
        return self._local.sum_depth(longest_row)


# ---- several personalized vectors as the columns of one matrix ----


@dataclass(slots=True, eq=False)
class SweepMany(Operation[NDArray[np.float64]]):
    """A `Sweep` for several vectors in one pass over the graph, staggered by a step: the residual
    of y is ``remainder + α·Σ contributions`` over the in-neighbours, not yet added up.

        r = remainder + α·Σ contributions
        contribution' = r / ((1 - αℓ/d)·d), rounded;  y += contribution'·d

    and the rounding error stays in the remainder. The result is float64[3, columns] of the
    remaining residual: an upper bound on ‖r‖₁, and Σr; and the change of Σy.

    rows               in-lists: all, or as many as can receive anything
    values             float64[n, columns], y, updated
    remainder          float32[n, columns], updated
    contributions      contribution_dtype[n, columns], read
    new_contributions  contribution_dtype[n, columns], written; another array. Both are 0 before the
                       first pass
    seeded             uint8[n], not 0 where the remainder may be nonzero though nothing arrives:
                       vertices without in-edges that have 0 here are skipped
    deflation          y += coefficient·z, r -= coefficient·A·z at all vertices that are not
                       skipped, before contributions are computed
    coefficients       float64[k] on the host, k ≤ columns: of the first columns, those of the
                       others are 0; ignored without a deflation vector
    """

    writes = "new_contributions"
    in_rows = True

    graph: GraphView
    rows: Rows
    values: Array
    remainder: Array
    contributions: Array
    new_contributions: Array
    seeded: Array
    damping: float
    deflation: DeflationVector | None
    coefficients: NDArray[np.float64]


@dataclass(slots=True, eq=False)
class AddCompensated(Operation[None]):
    """Adds to some elements of a float32 array; what it cannot represent is carried over to the
    next one.

    remainder       float32[…], updated
    places          int64[k], distinct
    amounts, carry  float64[k]; carry is updated
    """

    remainder: Array
    places: Array
    amounts: Array
    carry: Array


class MultivectorOperations(ABC):
    """What a backend says of matrices with one column a vector.

    contribution_dtype  dtype of the contributions of SweepMany
    min_columns         fewer vectors are faster one by one
    """

    contribution_dtype: type[np.generic]
    min_columns: int

    @abstractmethod
    def column_count(self, wanted: int) -> int:
        """Columns of the matrices for SweepMany if `wanted` (at least one) vectors are to be
        solved: possibly more, or fewer, in which case the rest takes another block.
        """

    @abstractmethod
    def column_depth(self, graph: GraphView) -> int:
        """The most additions that any term of a sum of SweepMany goes through."""
