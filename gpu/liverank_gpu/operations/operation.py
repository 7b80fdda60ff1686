"""An operation is a record: the arrays and numbers of one pass, which a backend runs.

What the record says of itself is what has to happen where a graph is in several parts: a shard runs
it on its own rows, exchanges what it wrote, and adds up the sums of all (liverank_gpu.sharded); out
of core it is run window by window (liverank_gpu.out_of_core). So an operation is declared once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from liverank_gpu.operations.csr import GraphView, Rows

Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class Operation(Generic[Result]):
    """A pass. Its result is sums of numbers over the rows, on the host or on the device, or None.

    writes   the array over columns which it writes for its rows, and which the next pass reads for
             all: shards exchange it
    in_rows  whether it reads the in-lists of `rows`: it has a `graph` and `rows`, and can be run
             for a part of them after the other
    maxima   the numbers of its result that are maxima, not sums
    """

    writes: ClassVar[str | None] = None
    in_rows: ClassVar[bool] = False
    maxima: ClassVar[frozenset[str]] = frozenset()

    def over(self, graph: GraphView, rows: Rows) -> Self:
        """The same pass over other lists; only if `in_rows`."""
        return replace(self, graph=graph, rows=rows)  # type: ignore[call-arg]


Table = Mapping[type[Operation[Any]], Callable[[Any], Any]]
"""What runs each kind of operation."""


class Run(Protocol):
    """Runs operations of every kind."""

    def __call__(self, operation: Operation[Result], /) -> Result:
        """Raises NotImplementedError where there is no such operation."""


class Kernels:
    """Runs operations by tables."""

    def __init__(self, *tables: Table) -> None:
        self._table = {kind: run for table in tables for kind, run in table.items()}

    def __call__(self, operation: Operation[Result], /) -> Result:
        run = self._table.get(type(operation))
        if run is None:
            raise NotImplementedError(f"no {type(operation).__name__} on this backend")
        result: Result = run(operation)
        return result


def combined(
    operation: Operation[Result],
    results: list[Any],
    add: Callable[[list[float]], float],
) -> Any:
    """The result of an operation from those of its parts, NamedTuples of numbers.

    add  the sum of the numbers of all parts
    """
    kind = type(results[0])
    return kind(
        *(
            max(numbers) if name in operation.maxima else add(list(numbers))
            for name, *numbers in zip(kind._fields, *results, strict=True)
        )
    )
