"""What a backend offers. Strategies and solver are written once against these operations.

Arrays live where the backend computes: NumPy arrays for ``cpu``, CuPy arrays for ``cuda``; `xp` is
the module that makes them. Vectors over vertices are float64[n] or flags. Row sets are `Rows`.
The reductions of `pull` and `relax` have a fixed shape, so that the same input gives the same bits;
`spread` and `push` add to the residual in whatever order the device's threads come.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

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
class Mass:
    """Sums over a vector y: `total` over all vertices, `dangling` over those without out-edges."""

    total: float
    dangling: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one `pull` saw, summed over the rows it computed.

    residual_l1     Σ|r| of the vector that the sweep started from
    residual_sum    Σr of the same
    largest_change  max |y' - y|
    mass            of the new vector y', over the rows computed
    """

    residual_l1: float
    residual_sum: float
    largest_change: float
    mass: Mass


@dataclass(frozen=True, slots=True)
class Frontier:
    """What `pull` does to the affected set (Sahu, algorithm 3, lines 24-29).

    affected            int32[n]: cleared where a vertex's relative change is ≤ prune_tolerance
    spreading           uint8[n]: set where it is > frontier_tolerance
    prune_tolerance     τ_p, or a negative number for no pruning
    frontier_tolerance  τ_f
    """

    affected: Array
    spreading: Array
    prune_tolerance: float
    frontier_tolerance: float


LISTED, QUEUED = 1, 2
"""Bits of Residual.marks; the bits above them hold the number of the solve that last pushed v."""

SOLVE_SHIFT = 2
SOLVES = 1 << 28
"""Solves are numbered modulo this."""


@dataclass(slots=True)
class Residual:
    """r = β·1 + αP̄ᵀy - y, and what makes its large entries quick to find.

    values      float64[n], r
    marks       int32[n], LISTED, QUEUED and the last solve that pushed v; QUEUED only inside `push`
    candidates  int32[capacity]: the first `listed` are every v with |r[v]| > floor, each once, and
                perhaps some others
    floor       infinite where there are no candidates
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
    """What one `relax` did.

    l1, sum  ‖r‖₁ and Σr afterwards
    total    change of Σy
    shift    what β went down by
    """

    l1: float
    sum: float
    total: float
    shift: float


class Backend(ABC):
    """One kind of device and the kernels that run on it.

    push_cost  time of one pushed edge, in pulled edges: measured once, so that decisions follow
               counted work and the same batches give the same ranks
    """

    name: str
    xp: Any
    push_cost: float

    @abstractmethod
    def to_device(self, values: NDArray[Any]) -> Array:
        """A copy of a host array on the device."""

    @abstractmethod
    def to_host(self, values: Array) -> NDArray[Any]:
        """A copy of a device array on the host."""

    @abstractmethod
    def synchronize(self) -> None:
        """Returns when all work given to the device is done; for clocks."""

    def reading(self) -> AbstractContextManager[None]:
        """Where a reader of published ranks works, beside the writer."""
        return nullcontext()

    def is_lost(self, error: Exception) -> bool:  # noqa: ARG002
        """Whether this error says that the device cannot be used any more in this process."""
        return False

    @abstractmethod
    def memory_available(self) -> int:
        """Bytes that can still be allocated."""

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
        self, columns: list[tuple[int, Array, Array]], vertices: tuple[int, int]
    ) -> Array:
        """int64[…] on the device, ascending: one key for each row of the columns.

        columns   (operation, sources, targets): 0 deletes, 1 inserts; integer arrays of the host or
                  the device
        vertices  for each operation, the number of ids that mean anything; a key with another id is
                  no operation
        A key is ``source << 32 | target << 1 | operation``; no operation is above all keys.
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
    def row_ranges(self, rows: Array, vertices: int, most: int) -> list[tuple[int, int, int]]:
        """Cuts the rows of a column of ids into ranges, so that a load can sort one at a time.

        rows  integer[edges] of the host or the device, each in 0 … vertices-1
        Returns (first row, row behind the last, number of ids in the range), at most `most` ids in
        each if no row and its near neighbours have more.
        """

    @abstractmethod
    def keys_of_range(self, rows: Array, neighbours: Array, chosen: tuple[int, int, int]) -> Array:
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
    def pull(
        self,
        graph: Graph,
        rows: Rows,
        values: Array,
        contributions: Array | None,
        base: float,
        damping: float,
        new_values: Array,
        new_contributions: Array,
        residual: Array | None = None,
        frontier: Frontier | None = None,
    ) -> Sweep:
        """One Jacobi step of ``y = αP̄ᵀy + β·1`` for the vertices in `rows`, loops in closed form.

        With c the sum of contributions over the in-neighbours of v (its own loop left out), ℓ its
        loop flag and d its degree (Sahu, equation 2):

            r  = β + α·c - (1 - αℓ/d)·y[v]          the residual of y, before the step
            y' = y[v] + r / (1 - αℓ/d)

        values             float64[n], y; with β = 0 and y = 0 the step is the residual form, y' =
                           α·c/(1-αℓ/d)
        contributions      float64[n], y/d, and 0 where d = 0; None: divided for each edge anew,
                           which is cheaper than a pass over n where rows are few; frontier only
        base, damping      β and α
        new_values         float64[n], receives y' where v is in rows; must not be `values`
        new_contributions  float64[n], receives y'/d there, unless contributions is None; must not
                           be `contributions`
        residual           float64[n], receives r there, or None
        frontier           flags to set and clear, or None
        """

    @abstractmethod
    def relax(
        self,
        graph: Graph,
        values: Array,
        residual: Array,
        contributions: Array,
        damping: float,
        balance: bool,
    ) -> Relaxed:
        """Pushes the residual of every vertex at once, as a pull over the in-lists.

        ``δ = r / (1 - αℓ/d); y += δ; r = α·Σ δ/d over the in-neighbours``, then r and β go down by
        the shift; r stays the residual of y. What y cannot take for want of digits stays in r.

        values, residual  float64[n], y and r, changed
        contributions     float32[n], overwritten: δ/d is rounded to it, δ is made d times what it
                          holds, and the rest stays in r
        balance           whether the shift is that which makes Σr = 0, or none
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
        frontier's out-edges are a good part of all. Loops set no flag that is not set.
        """

    @abstractmethod
    def top_k(self, values: Array, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Ids and values of the k largest of float64[n], on the host; ties by id. 0 ≤ k ≤ n."""

    @abstractmethod
    def sum_depth(self, longest_row: int) -> int:
        """The most additions that any one term of a row sum goes through: L of the rounding
        term.
        """
