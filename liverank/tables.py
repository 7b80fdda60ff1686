"""Ranks as tables: what answers and in-process rankings have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any

from liverank.errors import needs

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


class Tabular:
    """Two columns, vertex and rank. Anything that reads Arrow streams accepts it as it is:
    `polars.DataFrame(answer)`, `pyarrow.table(answer)`, DuckDB.
    """

    __slots__ = ()

    def to_arrow(self) -> pa.Table:
        """Columns `vertex` (string or int64) and `rank` (float64)."""
        raise NotImplementedError

    def to_pandas(self) -> pd.DataFrame:
        """Columns `vertex` and `rank`."""
        with needs("pandas"):
            for name in ("pandas", "pyarrow"):
                import_module(name)
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Columns `vertex` and `rank`, without a copy of the ranks."""
        with needs("polars"):
            import polars as pl

            import_module("pyarrow")
        return pl.DataFrame(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)


class Ranks(Tabular):
    """Ranks by vertex: `ranks[vertex]`, which raises KeyError for another one, `vertex in ranks`,
    `len(ranks)`, and pairs of vertex and rank by iteration. A notebook shows the first ten.
    """

    __slots__ = ()

    error_bound: float

    def to_dict(self) -> dict[Any, Any]:
        """The rank of each vertex."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.to_dict())

    def __bool__(self) -> bool:
        return True  # an answer without ranks is one

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iter(self.to_dict().items())

    def __contains__(self, vertex: object) -> bool:
        return vertex in self.to_dict()

    def __getitem__(self, vertex: Any) -> Any:
        return self.to_dict()[vertex]

    def _first(self, count: int) -> Iterable[tuple[Any, Any]]:
        """The first ranks to show."""
        return islice(self, count)

    def _best(self, count: int) -> Iterable[tuple[Any, Any]]:
        """The first ranks, best first."""
        return self._first(count)

    def plot(self, k: int = 20) -> Any:
        """Bars of the first k ranks, best first: axes of matplotlib. Raises MissingPackage without
        the extra `plot`.
        """
        with needs("plot"):
            from matplotlib import pyplot
        known = [(str(vertex), rank) for vertex, rank in self._best(k) if rank is not None]
        _, axes = pyplot.subplots()
        axes.barh(range(len(known)), [rank for _, rank in known])
        axes.set_yticks(range(len(known)), [vertex for vertex, _ in known])
        axes.invert_yaxis()
        axes.set_xlabel(f"rank, error bound {self.error_bound:.1e}")
        return axes

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(str(vertex))}</td>"
            f"<td>{'unknown' if rank is None else f'{rank:.6g}'}</td></tr>"
            for vertex, rank in self._first(_SHOWN)
        )
        others = len(self) - _SHOWN
        left_out = f"<tr><td>… {others:,} more</td><td></td></tr>" if others > 0 else ""
        return (
            "<table><thead><tr><th>vertex</th><th>rank</th></tr></thead>"
            f"<tbody>{rows}{left_out}</tbody></table>"
            f"<p>{len(self):,} ranks, error bound {self.error_bound:.1e}</p>"
        )


_SHOWN = 10
"""Ranks in a notebook."""


def ranks_table(vertices: Sequence[str | int], ranks: Sequence[float | None]) -> pa.Table:
    """Columns `vertex` and `rank`. Raises MissingPackage."""
    with needs("engine"):
        import pyarrow as pa
    kind = pa.int64() if vertices and isinstance(vertices[0], int) else pa.string()
    return pa.table({"vertex": pa.array(vertices, kind), "rank": pa.array(ranks, pa.float64())})
