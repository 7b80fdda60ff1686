"""Records: a graph in compressed sparse rows, as kernels read it."""

from __future__ import annotations

from collections.abc import Callable, Collection, KeysView
from dataclasses import dataclass, replace
from inspect import signature
from types import ModuleType
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.device import Array

ALIGNMENT = 4
"""Slots. Row starts and capacities are multiples of it, so that kernels read 16 bytes at once."""


class Csr(NamedTuple):
    """Neighbour lists of one direction: row v is
    ``column_indices[row_starts[v] : row_starts[v] + row_lengths[v]]``. No loops, no repeats.

    row_starts      int64[n], multiples of ALIGNMENT
    row_lengths     int32[n]
    column_indices  int32[slots]; slots outside all rows are undefined
    weights         float32[slots], of the edges in these slots; None for an unweighted graph
    """

    row_starts: Array
    row_lengths: Array
    column_indices: Array
    weights: Array | None = None

    def at(self, rows: Array) -> Csr:
        """Some rows, integer[k], in this order."""
        return self._replace(row_starts=self.row_starts[rows], row_lengths=self.row_lengths[rows])


class SlackCsr(NamedTuple):
    """A Csr whose rows have room to grow.

    csr          see above
    capacities   int32[n], slots reserved for each row; multiples of ALIGNMENT
    degree_bins  uint8[n], the bin of each row at the last `partition`
    end          first slot behind all reserved ones
    """

    csr: Csr
    capacities: Array
    degree_bins: Array
    end: int


@dataclass(slots=True)
class PagedLists:
    """The in-lists of a graph a second time, in pages by tiles of consecutive targets, for kernels
    of one backend.

    cells         uint16[pages · cells of a page]: the edges; see pages.cu
    page_edges, page_sources  int32[pages]: edges of each page, and distinct sources of these
    first_keys    int64[pages]: the first key that each page may hold
    following     int32[pages]: the page that a full one has given edges to, or -1
    built         pages in the order of their keys; others follow them
    used          pages in use, at most
    counts        int32[…] on the device: see PAGE_COUNTS of the kernels
    items         int32[items, 4]: the work of a sweep
    divided       int32[…]: tiles that several items add to
    sums          int64[room]: a sum for each vertex that there is room for
    weights       float32[pages · edges of a page at most], or None
    """

    cells: Array
    page_edges: Array
    page_sources: Array
    first_keys: Array
    following: Array
    built: int
    used: int
    counts: Array
    items: Array
    divided: Array
    sums: Array
    weights: Array | None = None

    @property
    def room(self) -> int:
        """Vertices that there is room for."""
        return len(self.sums)

    @property
    def nbytes(self) -> int:
        arrays = (self.cells, self.page_edges, self.page_sources, self.first_keys)
        others = (self.following, self.items, self.divided, self.sums, self.counts)
        held = sum(int(array.nbytes) for array in (*arrays, *others))
        return held + (0 if self.weights is None else int(self.weights.nbytes))


class PagedView(NamedTuple):
    """PagedLists for one sweep, whose sums are multiples of a unit.

    unit  a power of two from 2⁻¹⁰⁰ on. No sum of sizes of contributions exceeds 2⁶² units
    """

    lists: PagedLists
    unit: float

    @property
    def weighted(self) -> bool:
        """Whether what arrives along an edge is rounded to the unit, and not the contribution."""
        return self.lists.weights is not None


class GraphView(NamedTuple):
    """A directed graph and its transpose at one moment.

    An unweighted edge u → v has the probability 1/d(u), a weighted one w(u,v)/W(u). In formulas
    W(u) takes the place of d(u), and the weight of a loop that of ℓ, which is 1 or 0. So both kinds
    of graph have them in the same two arrays, and kernels differ by dtype alone.

    vertices     n
    edges        number of arcs, loops included: an undirected edge is two
    outgoing     out-lists
    incoming     in-lists
    loop         uint8[n], 1 where the vertex has a self-loop; weighted: float32[n], its weight or 0
    degree       int32[n], out-degree, the loop counted once; weighted: float64[n], the strength W,
                 the sum of the weights of the out-edges and the loop. It equals `loop` if and only
                 if there is no other out-edge
    longest_row  upper bound on the length of the in-lists
    pages        the in-lists in pages, by which Sweep and OrthominProducts sum contributions; None
                 if they take `incoming`
    """

    vertices: int
    edges: int
    outgoing: Csr
    incoming: Csr
    loop: Array
    degree: Array
    longest_row: int
    pages: PagedView | None = None

    @property
    def weighted(self) -> bool:
        """Whether edges have weights."""
        return self.incoming.weights is not None


def loop_dtype(weighted: bool) -> type[np.generic]:
    """The dtype of GraphView.loop."""
    return np.float32 if weighted else np.uint8


def strength_dtype(weighted: bool) -> type[np.generic]:
    """The dtype of GraphView.degree."""
    return np.float64 if weighted else np.int32


@dataclass(frozen=True, slots=True)
class Rows:
    """A set of rows of one Csr, grouped for the kernels of one backend.

    order   int32[k] on the device: row ids, ascending inside each group
    groups  int64[g+1] on the host: group i is order[groups[i] : groups[i+1]]. On ``cuda`` a group
            is a degree bin, the longest rows first; on ``cpu`` a chunk of about equal work
    parts   the same rows in several parts, for an operation to take one after the other; empty if
            they are in one. If it does that, it calls
    issued  with the number of each, from 0, when the work on it has been issued
    """

    order: Array
    groups: NDArray[np.int64]
    parts: tuple[RowPart, ...] = ()
    issued: Callable[[int], None] | None = None

    @property
    def count(self) -> int:
        return len(self.order)


class RowPart(NamedTuple):
    """A part of all rows of a Csr.

    rows  of the part
    span  (first, end): they are the rows from `first` to before `end`, or to the last one
    """

    rows: Rows
    span: tuple[int, int]


# ---- an operation is a record: the arrays and numbers of one pass, which a backend runs ----
#
# What the record says of itself is what has to happen where a graph is in several parts: a shard
# runs it on its own rows, exchanges what it wrote, and adds up the sums of all
# (liverank_gpu.sharded); out of core it is run window by window (liverank_gpu.out_of_core). So an
# operation is declared once.

Result = TypeVar("Result")


_KINDS: dict[str, type[Operation[Any]]] = {}
"""Those of liverank_gpu.operations, by name."""


@dataclass(slots=True, eq=False)
class Operation(Generic[Result]):
    """A pass. Its result is sums of numbers over the rows, on the host or on the device, or None.

    writes   the array over columns which it writes for its rows, and which the next pass reads for
             all: shards exchange it
    in_rows  whether it reads in-lists: those of `rows` of a `graph`, unless it says otherwise in
             `over`
    divides  whether it can be run for one part of these rows after the other
    maxima   the numbers of its result that are maxima, not sums
    local    whether it is about the lists of one device: each shard runs it for itself
    """

    writes: ClassVar[str | None] = None
    in_rows: ClassVar[bool] = False
    divides: ClassVar[bool] = False
    maxima: ClassVar[frozenset[str]] = frozenset()
    local: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if cls.__module__.startswith(f"{__package__}."):
            _KINDS[cls.__qualname__] = cls  # a dataclass with slots is made twice

    def over(self, graph: GraphView, rows: Rows) -> Self:
        """The same pass over other lists; only if it `divides`."""
        return replace(self, graph=graph, rows=rows)  # type: ignore[call-arg]


class Run(Protocol):
    """Runs operations of every kind."""

    def __call__(self, operation: Operation[Result], /) -> Result:
        """Raises NotImplementedError where there is no such operation."""


_Function = TypeVar("_Function", bound=Callable[..., Any])

_RUNNING: dict[str, dict[type[Operation[Any]], str]] = {}
"""By module or class, the name of what runs each kind."""


def runs(function: _Function) -> _Function:
    """Says of a function of a module, or of a method, that it runs operations of one kind: that of
    its last argument. Raises TypeError, naming both, if that is no operation, or another runs it.
    """
    scope, _, name = f"{function.__module__}.{function.__qualname__}".rpartition(".")
    *_, argument = signature(function).parameters
    kind = get_type_hints(function).get(argument)
    if not (isinstance(kind, type) and issubclass(kind, Operation)):
        raise TypeError(f"{scope}.{name} is to run {kind}, which is no operation")
    other = _RUNNING.setdefault(scope, {}).setdefault(kind, name)
    if other != name:
        raise TypeError(f"{kind.__name__} is run by {other} and by {name} of {scope}")
    return function


class Kernels:
    """Runs operations, each by what `runs` it."""

    def __init__(self, *owners: Any, lacks: Collection[type[Operation[Any]]] | None = None) -> None:
        """owners  modules and objects
        lacks   the kinds that none of them runs, where each other one has to be run; None: any may
                be missing. Raises TypeError, naming it and the owners, if another one is
        """
        self._table: dict[type[Operation[Any]], Callable[[Any], Any]] = {}
        for owner in owners:
            self.add(owner)
        if lacks is not None and (missing := {*_KINDS.values()} - {*lacks} - self.operations):
            names = ", ".join(sorted(each.__name__ for each in missing))
            raise TypeError(f"{names}: run by none of {', '.join(map(_scope_of, owners))}")

    def add(self, owner: Any) -> None:
        """Adds what a module or an object runs. Raises TypeError, naming both, if it runs nothing,
        or what another runs already.
        """
        bases = [owner] if isinstance(owner, ModuleType) else type(owner).__mro__
        known = [table for each in bases if (table := _RUNNING.get(_scope_of(each)))]
        if not known:
            raise TypeError(f"{_scope_of(bases[0])} runs no operation")
        for kind, name in (each for table in known for each in table.items()):
            run = getattr(owner, name)
            other = self._table.setdefault(kind, run)
            if other != run:
                names = (f"{each.__module__}.{each.__qualname__}" for each in (other, run))
                raise TypeError(f"{kind.__name__} is run by {' and by '.join(names)}")

    @property
    def operations(self) -> KeysView[type[Operation[Any]]]:
        """The kinds that there are."""
        return self._table.keys()

    def __call__(self, operation: Operation[Result], /) -> Result:
        run = self._table.get(type(operation))
        if run is None:
            raise NotImplementedError(f"no {type(operation).__name__} on this backend")
        result: Result = run(operation)
        return result


def _scope_of(owner: Any) -> str:
    """That of a module or a class, or of the class of an object."""
    if isinstance(owner, ModuleType):
        return owner.__name__
    kind = owner if isinstance(owner, type) else type(owner)
    return f"{kind.__module__}.{kind.__qualname__}"


def combined(
    operation: Operation[Result],
    results: list[Any],
    add: Callable[[list[float]], float],
) -> Any:
    """The result of an operation from those of its parts, which are at least one and NamedTuples
    of numbers of one kind.

    add  the sum of the numbers of all parts
    """
    kind = type(results[0])
    return kind(
        *(
            max(numbers) if name in operation.maxima else add(list(numbers))
            for name, *numbers in zip(kind._fields, *results, strict=True)
        )
    )
