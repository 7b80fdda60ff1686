"""Edges read from a file, and helpers shared by the readers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liverank.choices import named_ends
from liverank_service.formats.arrow import holds_strings
from liverank_service.formats.values import parsed_times, unix_seconds

_TIME_NAMES = ("t", "time", "timestamp")

ACCEPTED = (
    "expected a text edge list, CSV, NDJSON, event list, Matrix Market, Parquet, Arrow, .gr.bin or "
    ".links.bin file, plain or compressed as gzip, zstd, bzip2, xz or lz4"
)


class EdgeListError(ValueError):
    """The file cannot be read as edges.

    line     the line with the error, from 1; None if it is not in a single line
    message  what was found, and what is accepted
    """

    def __init__(self, path: Path, line: int | None, message: str) -> None:
        self.path = path
        self.line = line
        self.message = message
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {message}")


@dataclass(frozen=True)
class EdgeList:
    """The edges of a file, or of a piece of it, in its order, with repeats and self-loops.

    sources, targets  pa.int64() or pa.string(), one row per edge, without nulls
    times             float64[rows], finite, in the file's unit; None if there are no times
    operations        bool[rows], True to insert, False to delete; None if all are insertions
    vertices          keys of all vertices, including isolated ones, if the format states them
    unread            names of the file's columns that are not in it
    weights           float64[rows], as liverank_gpu.EdgeBatch takes them; None if the edges have
                      none
    directed          false: an operation on (a, b) is one on (b, a) too
    """

    sources: pa.Array
    targets: pa.Array
    times: NDArray[np.float64] | None = None
    operations: NDArray[np.bool_] | None = None
    vertices: pa.Array | None = None
    unread: tuple[str, ...] = ()
    weights: NDArray[np.float64] | None = None
    directed: bool = True

    def __len__(self) -> int:
        return len(self.sources)

    def by_time(self) -> EdgeList:
        """The same rows in order of time; rows of the same time keep their order.

        Raises ValueError if there are no times.
        """
        if self.times is None:
            raise ValueError("the edges have no times")
        return self.rows(np.argsort(self.times, kind="stable"))

    def rows(self, places: slice | NDArray[np.int64]) -> EdgeList:
        """The rows at these places; those of a slice share memory with these."""

        def taken(column: pa.Array) -> pa.Array:
            return column[places] if isinstance(places, slice) else column.take(pa.array(places))

        return replace(
            self,
            sources=taken(self.sources),
            targets=taken(self.targets),
            times=None if self.times is None else self.times[places],
            operations=None if self.operations is None else self.operations[places],
            weights=None if self.weights is None else self.weights[places],
        )


class Places(NamedTuple):
    """The numbers, from 0, of the columns of a file that are read; None: there is none."""

    source: int
    target: int
    time: int | None = None
    weight: int | None = None

    def unread(self, names: list[str]) -> tuple[str, ...]:
        """The names of the other columns."""
        return tuple(name for number, name in enumerate(names) if number not in self)


@dataclass(frozen=True, slots=True)
class WantedColumns:
    """The columns of times, weights and keys: names in the header, or numbers from 1. Without
    `time` the column is recognised, as those of keys are; without `weight` there is none.
    """

    time: str | int | None = None
    weight: str | int | None = None
    source: str | int | None = None
    target: str | int | None = None

    def are_named_in(self, row: list[str]) -> bool:
        """Whether a column is wanted by a name that is in this row."""
        names = {name.lower() for name in self._all.values() if isinstance(name, str)}
        return not names.isdisjoint(cell.strip().lower() for cell in row)

    @property
    def _all(self) -> dict[str, str | int | None]:
        return {
            "time": self.time,
            "weight": self.weight,
            "source": self.source,
            "target": self.target,
        }

    def places(self, path: Path, header: list[str] | None, columns: int) -> Places:
        """Where these columns and the keys are. Raises EdgeListError."""
        source = _place_of(path, header, columns, self.source, "the source")
        target = _place_of(path, header, columns, self.target, "the target")
        if source is None or target is None:
            if source != target:
                has, without = ("target", "source") if source is None else ("source", "target")
                column = f"the {has} is column {self._all[has]!r}"
                message = f"{column}, but no column is given for the {without}"
                raise EdgeListError(path, None, message)
            source, target = named_ends(header or []) or (0, 1)
        elif source == target:
            message = f"column {source + 1} is given for both the source and the target"
            raise EdgeListError(path, None, message)
        weight = _place_of(path, header, columns, self.weight, "the weight")
        time = _place_of(path, header, columns, self.time, "the time")
        if time is None:
            named = [n for n, name in enumerate(header or []) if name in _TIME_NAMES]
            time = named[-1] if named and named[-1] != weight else None
        return Places(source, target, time, weight)

    def refuse(
        self, path: Path, what: str, uses: tuple[str, ...] = ("source", "target", "weight")
    ) -> None:
        """Raises EdgeListError if a column is wanted for one of these uses, in a format without."""
        for use in uses:
            if (column := self._all[use]) is not None:
                message = f"there is no column {column!r} for the {use} in {what}"
                raise EdgeListError(path, None, message)


def _place_of(
    path: Path, header: list[str] | None, columns: int, wanted: str | int | None, use: str
) -> int | None:
    if isinstance(wanted, int):
        if not 1 <= wanted <= columns:
            message = f"there is no column {wanted} for {use}; the file has {columns}"
            raise EdgeListError(path, None, message)
        return wanted - 1
    if wanted is not None:
        if header is None or wanted.lower() not in header:
            named = f"the columns {', '.join(header or ())}"
            if header is None:
                named = f"no header: give the number of the column, from 1 to {columns}"
            message = f"there is no column {wanted!r} for {use}; the file has {named}"
            raise EdgeListError(path, None, message)
        return header.index(wanted.lower())
    return None


def has_empty(keys: pa.Array) -> bool:
    return bool(keys.type == pa.string() and pc.min(pc.binary_length(keys)).as_py() == 0)


def numbers_of(column: pa.Array) -> NDArray[np.float64] | None:
    """The column as finite numbers, timestamps as Unix seconds; None if that is impossible."""
    try:
        values = unix_seconds(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return values if np.isfinite(values).all() else None


def file_times(column: pa.Array) -> NDArray[np.float64] | None:
    """Numbers, timestamps, or texts of either, as finite numbers, timestamps in Unix seconds; None
    if that is impossible.
    """
    if holds_strings(column.type):
        column = parsed_times(column.cast(pa.string()))
    return None if column is None or column.null_count else numbers_of(column)
