"""What a backend offers. Strategies and solver are written once against these operations.

Arrays live where the backend computes: NumPy arrays for ``cpu``, CuPy arrays for ``cuda``; `xp` is
the module that makes them. Vectors over vertices are flags, or *values*: y, r and what is computed
in their place, all float64[n] or all float32[n] as the graph stores them. What a float32 cannot
hold stays in r or is part of what an operation reports, and sums are float64. Row sets are `Rows`.
The reductions of `find_residual`, `step` and `relax` have a fixed shape, so that the same input
gives the same bits; `spread` and `push` add to the residual in whatever order the device's threads
come.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from gpu.errors import OutOfMemory

if TYPE_CHECKING:
    from gpu.adjacency import Adjacency
    from gpu.edit import Counts, Edit
    from gpu.graph import Applied, Graph

Array = Any
"""A NumPy or CuPy array, as the backend has it."""


Ending = Literal["goal", "floor", "work", "rounds"]
ENDINGS: tuple[Ending, ...] = ("goal", "floor", "work", "rounds")
"""How a push can end (see Pushed), as kernels number it."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A set of rows of one adjacency, grouped for the kernels of one backend.

    order   int32[k] on the device: the row ids; ascending inside each group
    groups  int64[g+1] on the host: group i holds order[groups[i] : groups[i+1]]. On ``cuda`` a
            group is a class of lengths, the longest first; on ``cpu`` a chunk of about equal work
    """

    order: Array
    groups: NDArray[np.int64]

    @property
    def count(self) -> int:
        return len(self.order)


@dataclass(frozen=True, slots=True)
class Frontier:
    """What `step` does to the affected set (Sahu, algorithm 3, lines 24-29).

    affected            int32[n]: cleared where a vertex's relative change is ≤ prune_tolerance
    spreading           uint8[n], all 0, and left so
    prune_tolerance     τ_p, or a negative number for no pruning
    frontier_tolerance  τ_f; infinite where the affected set does not grow
    """

    affected: Array
    spreading: Array
    prune_tolerance: float
    frontier_tolerance: float


@dataclass(frozen=True, slots=True)
class Stepped:
    """What one `step` did.

    largest_change  max |y' - y|; float32 values that moved by no more than four of their steps are
                    taken not to have moved, since rounding alone can do that for ever
    spreading       int32[…], the rows whose relative change is > frontier_tolerance, in any order
    staying         int32[…], the rows that stay affected, in any order
    """

    largest_change: float
    spreading: Array
    staying: Array


LISTED, QUEUED = 1, 2
"""Bits of Residual.marks; the bits above them hold the number of the solve that last pushed v."""

SOLVE_SHIFT = 2
SOLVES = 1 << 28
"""Solves are numbered modulo this."""


@dataclass(slots=True)
class Residual:
    """r = β·1 + αP̄ᵀy - y, and what makes its large entries quick to find.

    values      values[n], r
    marks       int32[n], LISTED, QUEUED and the last solve that pushed v; QUEUED only inside `push`
    candidates  int32[capacity]: the first `listed` are every v with |r[v]| > floor, each once, and
                perhaps some others
    floor       infinite where there are no candidates; negative to list every v that r[v] was ever
                added to
    solve       number of the solve that runs
    """

    values: Array
    marks: Array
    candidates: Array
    listed: int
    floor: float
    solve: int


@dataclass(frozen=True, slots=True)
class Moved:
    """What an operation on the residual changed, and what bounds its rounding.

    l1, sum    change of ‖r‖₁ and of Σr
    total      change of Σy
    moved      Σ of the sizes of what was pushed or added
    magnitude  Σ|r[v]| over all additions to an r[v], after each
    edges      number of additions
    """

    l1: float = 0.0
    sum: float = 0.0
    total: float = 0.0
    moved: float = 0.0
    magnitude: float = 0.0
    edges: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """When `push` ends, beside having nothing left above the floor.

    l1, sum, total  ‖r‖₁, Σr and Σy at its start
    goal            it is met when ‖r‖₁ + |Σr| ≤ goal · Σy
    threshold       the first θ
    edge_weight     a vertex with l out-edges is above θ when |r| > θ·(1 + edge_weight·l)
    round_edges     the most out-edges of one work-list
    edges           the most edges in all
    rounds          the most rounds
    """

    l1: float
    sum: float
    total: float
    goal: float
    threshold: float
    edge_weight: float
    round_edges: int
    edges: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Pushed:
    """How a `push` ended.

    ended      ``goal``: met; ``floor``: nothing is above the floor; ``work``: the next work-list,
               or all so far, or the candidates, passed their limit; ``rounds``: so many ran
    threshold  the last θ
    rounds     work-lists propagated
    vertices   distinct vertices pushed for the first time in this solve
    change     see Moved
    """

    ended: Ending
    threshold: float
    rounds: int
    vertices: int
    change: Moved


@dataclass(frozen=True, slots=True)
class Relaxed:
    """What one dense pass over y and r left.

    l1, sum       ‖r‖₁ and Σr
    total         change of Σy
    arriving      what Σr will be after a `relax` without a shift
    largest_step  max |Δy|
    """

    l1: float
    sum: float
    total: float
    arriving: float
    largest_step: float


@dataclass(frozen=True, slots=True)
class Known:
    """A vector z whose image is known: (I - αP̄ᵀ)·z = base - residual.

    values, residual  float64[n]
    """

    values: Array
    residual: Array
    base: float


@dataclass(frozen=True, slots=True)
class Step:
    """One step of Orthomin(1): how long it was, and how much of the last direction was in it."""

    size: float
    mixed: float

    @classmethod
    def of(cls, products: Sequence[float], followed: bool) -> Step:
        """From <Wq̂,q̂>, <Wq̂,r>, <Wq̂,q'>, <Wq',q'> and <Wq',r>; of size 0 where no direction is
        left.
        """
        new_new, new_r, new_last, last_last, last_r = products
        mixed = new_last / last_last if followed else 0.0
        length = new_new - mixed * (2.0 * new_last - mixed * last_last)
        return cls((new_r - mixed * last_r) / length if length > 0.0 else 0.0, mixed)


@dataclass(frozen=True, slots=True)
class Descent:
    """Vectors over the vertices that Orthomin(1) keeps (see gpu.solver).

    direction   float64[n], p
    last_image  float64[n], q: the image of p under A = I - αP̄ᵀ, less its mean
    image       float64[n], the image of the newest step
    weights     float32[n], W
    """

    direction: Array
    last_image: Array
    image: Array
    weights: Array


class Event(Protocol):
    """A moment in the work of a backend, to measure time by: see gpu.stages."""

    def record(self) -> object:
        """Puts it behind all work given out so far; where it was before is forgotten."""

    def synchronize(self) -> object:
        """Returns when it is reached."""


def reach(
    xp: Any, residuals: Array, degree: Array, loop: Array, damping: float, mass: float
) -> Array:
    """float64[k]: the most that a residual can still add to some entries of a personalized vector
    (see gpu.settled): ``N·(r⁺(1-α) + α·mass)``.

    residuals     float64[k], r there
    degree, loop  integer[k]
    mass          Σr⁺ over all vertices
    """
    looping = loop / xp.maximum(degree, 1)
    returning = xp.where(degree > 0, damping * looping + damping * damping * (1.0 - looping), 0.0)
    return (xp.maximum(residuals, 0.0) * (1.0 - damping) + damping * mass) / (1.0 - returning)


_FEW_BYTES = 1 << 24


class Backend(ABC):
    """One kind of device and the kernels that run on it.

    push_cost       time of one pushed edge, in edges of a dense sweep: measured once, so that
                    decisions follow counted work and the same batches give the same ranks
    sweep_overhead  time of a sweep over hardly an edge, in the same unit
    share_dtypes    what `relax` rounds shares to, by the dtype of y
    column_share    dtype of the shares that `relax_columns` sends
    least_columns   fewer vectors than so many are quicker one by one than by `relax_columns`
    """

    name: str
    xp: Any
    push_cost: float
    sweep_overhead: float
    share_dtypes: ClassVar[dict[str, type[np.generic]]]
    column_share: type[np.generic]
    least_columns: int

    @abstractmethod
    def to_device(self, values: NDArray[Any]) -> Array:
        """A copy of a host array on the device."""

    @abstractmethod
    def to_host(self, values: Array) -> NDArray[Any]:
        """A copy of a device array on the host."""

    @abstractmethod
    def synchronize(self) -> None:
        """Returns when all work given to the device is done."""

    @abstractmethod
    def event(self) -> Event:
        """A new event, not recorded."""

    @abstractmethod
    def seconds_between(self, first: Any, last: Any) -> float:
        """The time from one of this backend's events to another, both of which are reached."""

    def reading(self) -> AbstractContextManager[None]:
        """Where a reader of published ranks works, beside the writer."""
        return nullcontext()

    def is_lost(self, error: Exception) -> bool:  # noqa: ARG002
        """Whether this error says that the device cannot be used any more in this process."""
        return False

    @abstractmethod
    def memory_available(self) -> int:
        """Bytes that can still be allocated."""

    def require(self, purpose: str, needed: int) -> None:
        """Raises OutOfMemory, with the figures, where so many bytes cannot be allocated. Of a few
        bytes the allocator itself says so.
        """
        if needed > _FEW_BYTES and needed > (available := self.memory_available()):
            raise OutOfMemory(purpose, needed, available)

    def allocate(self, purpose: str, count: int, dtype: type[np.generic]) -> Array:
        """An array of `count` elements, not initialised. Raises OutOfMemory."""
        try:
            return self.xp.empty(count, dtype)
        except MemoryError as error:
            needed = count * np.dtype(dtype).itemsize
            raise OutOfMemory(purpose, needed, self.memory_available()) from error

    @abstractmethod
    def columns(self, sources: Array, targets: Array) -> tuple[Array, Array]:
        """Two columns of ids as the backend's kernels take them: int32 or int64, both alike."""

    @abstractmethod
    def sorted_keys(
        self, columns: list[tuple[int, Array, Array]], vertices: tuple[int, int], positions: Array
    ) -> Array:
        """int64[…] on the device, ascending: one key for each row of the columns.

        columns    (operation, sources, targets): 0 deletes, 1 inserts; integer arrays of the host
                   or the device
        vertices   for each operation, the number of ids that mean anything; a key with another id
                   is no operation
        positions  int32[m], distinct and below m, of the ids below m; every other id is its own
        A key is ``source << 32 | target << 1 | operation``, of positions; no operation is above all
        keys.
        """

    @abstractmethod
    def sort(self, keys: Array) -> Array:
        """The int64[…] ascending, in their place or in another; the argument is spent."""

    @abstractmethod
    def resolve(
        self, adjacency: Adjacency, loop: Array, fixed_loops: bool, keys: Array, edit: Edit
    ) -> None:
        """Finds out what sorted keys change in one direction: fills `edit` but for its plan.

        Every touched row is read once; each entry is looked up among the edges named. The order of
        the changes is that of the keys.

        loop         uint8[n]
        fixed_loops  whether loops cannot be inserted or deleted
        """

    @abstractmethod
    def plan(self, adjacency: Adjacency, operations: int, edit: Edit) -> None:
        """The new length of each row named, and the place of those that outgrow theirs: fills the
        rest of `edit`. Nothing of the graph is written.
        """

    @abstractmethod
    def change(
        self,
        adjacency: Adjacency,
        edit: Edit,
        counts: Counts,
        loop: Array,
        degree: Array,
        report: tuple[Array, ...],
    ) -> None:
        """Does what was planned to one direction.

        Rows that outgrow their places move behind ``adjacency.end``. Additions take the slots of
        removed entries in order, then those behind the row's end; where more is removed, the
        entries behind the new end fill the slots that are left, in order.

        report  for the out-lists, whose loops and degrees are written too, what gpu.graph.Applied
                has, in its order; nothing for the in-lists
        """

    @abstractmethod
    def row_ranges(
        self, rows: Array, vertices: int, most: int, positions: Array
    ) -> list[tuple[int, int, int]]:
        """Cuts the rows of a column of ids into ranges, so that a load can sort one at a time.

        rows       integer[edges] of the host or the device, ids in 0 … vertices-1
        positions  see `sorted_keys`
        Returns (first row, row behind the last, number of ids in the range), at most `most` ids in
        each if no row and its near neighbours have more.
        """

    @abstractmethod
    def keys_of_range(
        self, rows: Array, neighbours: Array, chosen: tuple[int, int, int], positions: Array
    ) -> Array:
        """int64[ids in the range]: ascending keys of the insertions into one of `row_ranges`."""

    @abstractmethod
    def distinct(self, keys: Array, loop: Array) -> tuple[int, int]:
        """Drops repeats and loops from sorted insertions, in place.

        loop  uint8[n], set for each loop
        Returns how many keys are left and the number of distinct loops.
        """

    @abstractmethod
    def row_lengths(
        self, keys: Array, edges: int, low: int, first: Array, length: Array
    ) -> tuple[int, int]:
        """Counts the keys of each row of `edges` ascending ones, without repeats.

        low     the first row of the range
        first   int64[rows of the range], receives the place of each row's first key, if it has one
        length  int32[rows of the range] of zeros, receives the number of its keys
        Returns the slots that the rows take if packed tight, and the length of the longest row.
        """

    @abstractmethod
    def fill_rows(
        self, keys: Array, edges: int, low: int, first: Array, start: Array, pool: Array
    ) -> None:
        """Writes the neighbours of ascending keys into their rows, ascending.

        low, first  as `row_lengths` has them
        start       int64[rows of the range]
        """

    @abstractmethod
    def pack_rows(self, length: Array, begin: int, start: Array, capacity: Array) -> None:
        """The places of rows of these lengths, one after the other from `begin` on, without slack.

        start, capacity  int64[n] and int32[n], receive them: capacity is the length rounded up to
                         gpu.adjacency.ALIGNMENT
        """

    @abstractmethod
    def copy_rows(
        self,
        start: Array,
        length: Array,
        pool: Array,
        new_start: Array,
        new_end: int,
        new_pool: Array,
    ) -> None:
        """Copies all rows to the places that `pack_rows` gave them, which end at `new_end`."""

    @abstractmethod
    def entries(self, adjacency: Adjacency) -> tuple[Array, Array]:
        """int32[entries] each, on the device: row and neighbour of every entry, rows ascending."""

    @abstractmethod
    def partition(self, length: Array, order: Array, classes: Array) -> NDArray[np.int64]:
        """Groups all rows of an adjacency whose rows are `length` (int32[n]) long.

        order    int32[n], receives Rows.order
        classes  uint8[n], receives each row's class, where the backend has classes
        Returns Rows.groups; new vertices may be added to the last group.
        """

    @abstractmethod
    def unbalanced(self, adjacency: Adjacency) -> bool:
        """Whether so much changed since the last `partition` that sweeps would suffer."""

    @abstractmethod
    def compact(self, flags: Array, adjacency: Adjacency) -> Rows:
        """The rows of `adjacency` whose flag (int32[n]) is set: a pass over all n."""

    @abstractmethod
    def rows_of(self, vertices: Array, adjacency: Adjacency) -> Rows:
        """The rows of these distinct vertices (int32[k]): for k small against n."""

    @abstractmethod
    def find_residual(
        self,
        graph: Graph,
        values: Array,
        contributions: Array | None,
        base: float,
        damping: float,
        residual: Array,
    ) -> tuple[float, float]:
        """The residual of ``y = αP̄ᵀy + β·1`` at every vertex. With c the sum of contributions over
        the in-neighbours of v (its own loop left out), ℓ its loop flag and d its degree:

            r = β + α·c - (1 - αℓ/d)·y[v]

        values         values[n], y
        contributions  float64[n] of `contribute`; None: divided for each edge anew, which is the
                       only way where values are float32
        base, damping  β and α
        residual       values[n], receives r
        Returns Σ|r| and Σr.
        """

    @abstractmethod
    def step(
        self,
        graph: Graph,
        rows: Rows,
        values: Array,
        contributions: Array | None,
        base: float,
        damping: float,
        new_values: Array,
        frontier: Frontier,
    ) -> Stepped:
        """One Jacobi step for the vertices in `rows`, all from the same y, loops in closed form
        (Sahu, equation 2): with r as `find_residual` has it,

            y' = y[v] + r / (1 - αℓ/d)

        values         values[n], y, and y' at these rows afterwards
        contributions  as of `find_residual`, and those of y' afterwards; None is cheaper than a
                       pass over n where rows are few
        new_values     values[n], to compute in
        """

    def contribute(self, graph: Graph, values: Array, contributions: Array) -> None:
        """What `find_residual` and `step` sum: y/d, and 0 where d = 0.

        values         float64[n], y
        contributions  float64[n], overwritten
        """
        self.xp.divide(values, self.xp.maximum(graph.degree, 1), out=contributions)
        contributions[graph.degree == 0] = 0.0

    @abstractmethod
    def round_shares(
        self,
        graph: Graph,
        values: Array,
        residual: Array,
        shares: Array,
        damping: float,
        shift: float,
    ) -> Relaxed:
        """Lowers every r by the shift, and finds the shares with which a dense sweep begins.
        Vertices without edges take their residual at once, as in `relax`.

        values, residual  values[n], y and r
        shares            of the dtype that share_dtypes has for y; overwritten: r / (1 - αℓ/d) / d,
                          rounded; 0 where d = 0
        """

    def lower(self, residual: Array, places: Array, weights: Array, amount: float) -> None:
        """Takes amount·weights[i] from residual[places[i]].

        residual  float64[n]; places  int32[k], distinct; weights  float64[k]
        """
        residual[places] -= amount * weights

    @abstractmethod
    def relax(
        self,
        graph: Graph,
        values: Array,
        residual: Array,
        shares: Array,
        new_shares: Array,
        damping: float,
        shift: float,
        known: Known | None = None,
        amount: float = 0.0,
    ) -> Relaxed:
        """Pushes the residual of every vertex at once, as a pull over the in-lists.

        ``δ = share·d; y += δ; r = α·Σ shares of the in-neighbours + what is left of r - shift``.
        The step is what the rounded shares stand for, so that r stays the residual of y at a base
        that is lower by the shift: what the shares or y cannot take stays in r. A vertex without
        edges, whose loop does not count, takes its residual and the shift too: y = β / (1 - αℓ/d)
        there, always.

        values, residual    values[n], y and r, changed
        shares, new_shares  of r before and after; not the same array
        known, amount       y += amount·z, r -= amount·A·z at vertices with edges; only for a y in
                            float64
        """

    @abstractmethod
    def accelerate(
        self,
        graph: Graph,
        values: Array,
        residual: Array,
        shares: Array,
        descent: Descent,
        damping: float,
        mean: float,
        floor: float,
        followed: bool,
    ) -> tuple[Step, Relaxed]:
        """One step of Orthomin(1) (see gpu.sweeps), for a y in float64: with δ what the shares
        stand for,

            q̂ = A·δ - mean, p = δ - mixed·p', q = q̂ - mixed·q', y += size·p, r -= size·q

        and the shares of the new r. p and q replace p' and q' in `descent`. A vertex without edges
        has q = 0 and the p that follows β.

        mean      of A·δ over the vertices with edges, or 0
        floor     weights are made anew, W = 1 / (1 - αℓ/d) / max(y, floor); 0 to keep them
        followed  whether `descent` holds a p' and q'
        """

    @abstractmethod
    def refresh(
        self,
        graph: Graph,
        first: int,
        last: int,
        values: Array,
        base: float,
        damping: float,
        residual: Residual,
    ) -> Moved:
        """Computes r anew from y for the vertices first … last-1, dividing for each edge."""

    @abstractmethod
    def perturb(
        self,
        graph: Graph,
        applied: Applied,
        values: Array,
        damping: float,
        residual: Residual,
        most_edges: int,
    ) -> Moved | None:
        """Makes r the residual of y in the graph after a batch that touched at least one source;
        None, and nothing done, if that takes more than `most_edges` additions.

        Of a touched source u all out-neighbours change: each old one loses α·y[u]/d_old, each new
        one gets α·y[u]/d_new. Over the new list that is their difference, and the edges that were
        removed or added make up for what the old list had or had not.
        """

    @abstractmethod
    def spread(
        self,
        graph: Graph,
        residual: Residual,
        sources: Array,
        shares: Array,
        targets: Array,
        amounts: Array,
    ) -> Moved:
        """Adds shares[i] to r[w] for every w in the out-list of sources[i] (loops are in no list),
        and amounts[j] to r[targets[j]].

        sources  int64[s], distinct; shares float64[s]; targets int64[t]; amounts float64[t]
        """

    @abstractmethod
    def push(
        self, graph: Graph, values: Array, damping: float, residual: Residual, limits: Limits
    ) -> Pushed:
        """The sparse phase: rounds of work-lists at a falling threshold θ.

        A round takes x = r[u] / (1 - αℓ/d) of every u on the list that is above θ, before anything
        is spread: y[u] += x, and r[u] keeps what y could not take. Then r[v] += α·x/d(u) over the
        out-lists; a vertex that this lifts above θ joins the next list. When a list is empty θ is
        halved, or falls to where there is something, and the list is selected from the candidates.
        A backend on which a short list takes as long as a longer one may do so before it is empty.
        The cost is the out-edges of the lists and the candidates: never all n.

        What a push takes from ‖r‖₁ is (1-α)·|x| or more, what it costs grows with the out-list, so
        above θ is measured by the list's length (Limits.edge_weight): cheap vertices go first, and
        at hubs mass can gather and cancel.
        """

    @abstractmethod
    def collect(self, residual: Residual, floor: float) -> None:
        """Lists the candidates anew: every v with |r[v]| > floor, a pass over all n. Where they
        outgrow their array, there are none and the floor is infinite.
        """

    @abstractmethod
    def expand(self, graph: Graph, vertices: Array, flags: Array) -> Array:
        """Sets flags[w] (int32[n]) for every out-neighbour w of the vertices (integer[k]), loops
        included. Returns int32[…], those whose flag was 0, in any order.
        """

    @abstractmethod
    def reached(self, graph: Graph, frontier: Array, flags: Array) -> Array:
        """What `expand` does for the vertices flagged in `frontier` (uint8[n]), from the other end:
        every vertex without a flag looks for an in-neighbour in the frontier. Cheaper where the
        frontier's out-edges are a good part of all.
        """

    @abstractmethod
    def top_k(self, values: Array, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Ids and values of the k largest of values[n], on the host; ties by id. 0 ≤ k ≤ n."""

    @abstractmethod
    def column_count(self, wanted: int) -> int:
        """How many columns matrices for `relax_columns` have where at least one is wanted: perhaps
        more, or fewer, in which case the rest takes another block.
        """

    @abstractmethod
    def relax_columns(
        self,
        graph: Graph,
        rows: Rows,
        values: Array,
        left: Array,
        shares: Array,
        new_shares: Array,
        seeded: Array,
        damping: float,
        known: Known | None,
        amounts: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """What `relax` does, for several vectors in one pass over the graph, and one step apart:
        the residual of y is ``left + α·Σ shares`` over the in-neighbours, not yet added up.

        ``r = left + α·Σ shares; share' = r / ((1 - αℓ/d)·d), rounded; y += share'·d``, and what is
        rounded off stays in left.

        rows        of the in-lists: all, or as many as anything can arrive or be left at
        values      float64[n, columns], y, changed
        left        float32[n, columns], changed
        shares      column_share[n, columns], read
        new_shares  column_share[n, columns], overwritten; must not be `shares`. Both were 0
                    everywhere before the first pass
        seeded      uint8[n], not 0 where something may be left though nothing arrives: vertices
                    without in-edges that have 0 here are not looked at, nothing is there for ever
        known       what the columns lean on: y += amounts·z, r -= amounts·A·z, before the shares
                    are made, at all vertices that are looked at
        amounts     float64[columns], on the host; 0 where nothing is known
        Returns float64[3, columns] of the residual that is left: an upper bound on ‖r‖₁, then Σr;
        and what Σy changed by.
        """

    def column_depth(self, graph: Graph) -> int:
        """The most additions that any one term of a sum of `relax_columns` goes through."""
        return self.sum_depth(graph.incoming.longest)

    def add_carried(self, left: Array, places: Array, amounts: Array, carry: Array) -> None:
        """Adds to some elements of an array of float32; what it does not hold of a sum is carried
        to the next time.

        left            float32[…], changed
        places          int64[k], distinct
        amounts, carry  float64[k], carry changed
        """
        exact = left[places].astype(np.float64) + amounts + carry
        held = exact.astype(np.float32)
        left[places] = held
        carry[:] = exact - held

    @abstractmethod
    def top_columns(
        self, values: Array, places: NDArray[np.int64]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """`top_k` of each of the first len(places) columns of float64[n, columns]; 0 ≤ places ≤
        n.
        """

    def highest_bound(
        self,
        graph: Graph,
        vertices: Array | None,
        values: Array,
        residuals: Array,
        damping: float,
        rising: float,
        at_most: float,
    ) -> float:
        """The largest of what those y can still become that are no larger than `at_most`: see
        `reach`.

        vertices           int[k], or None for all
        values, residuals  float64[k], y and r there; at least one y is no larger
        rising             Σr⁺ over all vertices
        """
        degree, loop = graph.degree, graph.loop
        if vertices is not None:
            degree, loop = degree[vertices], loop[vertices]
        upper = values + reach(self.xp, residuals, degree, loop, damping, rising)
        return float(upper[values <= at_most].max())

    @abstractmethod
    def sum_depth(self, longest_row: int) -> int:
        """The most additions that any one term of a row sum goes through: L of the rounding
        term.
        """
