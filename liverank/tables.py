"""Ranks as tables: what answers and in-process rankings have in common."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
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


def ranks_table(vertices: Sequence[str | int], ranks: Sequence[float | None]) -> pa.Table:
    """Columns `vertex` and `rank`. Raises MissingPackage."""
    with needs("engine"):
        import pyarrow as pa
    kind = pa.int64() if vertices and isinstance(vertices[0], int) else pa.string()
    return pa.table({"vertex": pa.array(vertices, kind), "rank": pa.array(ranks, pa.float64())})
