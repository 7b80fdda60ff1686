"""Edges from what people have: pairs, frames, sparse matrices and graphs.

    pairs            an iterable of (source, target), or all of (source, target, weight) or
                     (source, target, weight, time), where all weights may be None
    frames           anything with `__arrow_c_stream__`, `__arrow_c_array__` or `__dataframe__`:
                     pandas, Polars, PyArrow, DuckDB, cuDF; a lazy frame of Polars, which is
                     collected; a mapping of columns, or a pair of them: (sources, targets); or a
                     list of mappings that have the same names, `source` and `target` among them
    arrays           NumPy, integers of shape (edges, 2)
    sparse matrices  SciPy: the entry in row i and column j is an edge from i to j
    graphs           NetworkX and igraph, whose vertices have their names as keys if all have one

Frames, matrices and graphs have weights if `weight` names them: a column, an attribute of edges, or
the `data` of a matrix. The weights of parallel edges of a graph, and of repeated entries of a
matrix, add up there, so they do here. To be ranked, the edges of a graph are what they are to its
library: without weights, each of several parallel edges counts one; an edge of weight 0 is none;
igraph follows an undirected loop twice. Frames have times if `time` names a column.

Nothing here needs NumPy or PyArrow for pairs and for graphs.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

from liverank.choices import named_ends
from liverank.errors import InvalidInput, needs

if TYPE_CHECKING:
    import pyarrow as pa

WEIGHT = "weight"
"""The attribute that NetworkX reads weights from unless another is named."""

EXPECTED = "expected pairs, a frame, a sparse matrix or a graph"

_ROWS = {
    2: "a pair",
    3: "(source, target, weight), as the first",
    4: "(source, target, weight, time), as the first",
}


class Columns(NamedTuple):
    """The names of columns. None for the ends: see liverank.choices.named_ends, or the only two."""

    source: str | None = None
    target: str | None = None
    weight: str | None = None
    time: str | None = None


NO_NAMES = Columns()


@dataclass(frozen=True, slots=True)
class EdgeColumns:
    """Edges by their ends, each once.

    sources, targets  the keys: both Arrow columns of strings or int64, both NumPy arrays of
                      integers, or both lists
    vertices          all vertices in their order, if the data has more than its edges
    weights           numbers, in a column of the same kind; None for an unweighted graph
    times             Unix seconds, in a column of the same kind; None without times
    directed          whether an edge leads from its source to its target only
    unused_weight     the column or attribute that is named like weights, and was not asked for
    """

    sources: Any
    targets: Any
    vertices: Sequence[Any] | None = None
    weights: Any = None
    times: Any = None
    directed: bool = True
    unused_weight: str | None = None

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def is_arrow(self) -> bool:
        return hasattr(self.sources, "to_pylist")

    def isolated(self) -> list[Any]:
        """The vertices that no edge has, in their order."""
        if self.vertices is None:
            return []
        ends = set(as_list(self.sources)) | set(as_list(self.targets))
        return [vertex for vertex in self.vertices if vertex not in ends]

    def rows(self) -> list[tuple[Any, ...]]:
        """Pairs, triples with weights, or (source, target, weight or None, time)."""
        columns = [self.sources, self.targets]
        if self.weights is not None:
            columns.append(self.weights)
        if self.times is not None:
            if self.weights is None:
                columns.append([None] * len(self))
            columns.append(self.times)
        return list(zip(*map(as_list, columns), strict=True))

    def table(self) -> pa.Table:
        import pyarrow as pa

        columns = {"source": self.sources, "target": self.targets}
        if self.weights is not None:
            columns["weight"] = self.weights
        if self.times is not None:
            columns["time"] = self.times
        return pa.table(columns)


def read_edges(
    data: Any,
    columns: Columns = NO_NAMES,
    directed: bool | None = None,
    to_rank: bool = False,
) -> EdgeColumns:
    """The edges of `data`.

    columns   of a frame; `weight` also of a matrix or a graph, and `time` of nothing else
    directed  None: as a graph says itself, and True for everything else
    to_rank   whether the edges of a graph are to be what its library ranks: see above

    Raises InvalidInput for data without edges, for keys or weights of another type, for weights and
    times that are not finite, and for an undirected graph as a directed one; MissingPackage if a
    frame needs PyArrow.
    """
    edges = _columns(data, columns, to_rank)
    _check_finite(edges.weights, columns.weight or "weight")
    _check_finite(edges.times, columns.time or "time")
    if directed and not edges.directed:
        raise InvalidInput("directed", "expected False or None, since the graph is undirected")
    return edges if directed is None else replace(edges, directed=directed)


def _check_finite(column: Any, field: str) -> None:
    """Raises InvalidInput: JSON has no NaN and no infinity."""
    if column is None:
        return
    if isinstance(column, list):
        wrong = next((index for index, value in enumerate(column) if not _is_finite(value)), None)
    else:
        import numpy as np

        infinite = np.flatnonzero(~np.isfinite(np.asarray(column)))
        wrong = int(infinite[0]) if len(infinite) else None
    if wrong is not None:
        got = as_list(column[wrong : wrong + 1])[0]
        raise InvalidInput(field, f"edge {wrong}: expected a finite number, got {got!r}")


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except (TypeError, OverflowError):
        return False


def as_list(column: Any) -> list[Any]:
    """A column as a list of Python objects."""
    for name in ("to_pylist", "tolist"):
        if hasattr(column, name):
            values: list[Any] = getattr(column, name)()
            return values
    return list(column)


def is_networkx(data: Any) -> bool:
    """Whether it is a graph of NetworkX, or is used like one."""
    return all(hasattr(data, name) for name in ("nodes", "edges", "is_directed"))


def _is_column(data: Any) -> bool:
    """Whether it is a series or an array of one dimension."""
    is_array = hasattr(data, "to_arrow") or hasattr(data, "__array__")
    return is_array and hasattr(data, "__len__") and len(getattr(data, "shape", (0,))) == 1


def _on_host(data: Any) -> Any:
    """A tensor as an array of NumPy; others as they are."""
    if hasattr(data, "__array_interface__") or hasattr(data, "__arrow_c_stream__"):
        return data
    try:
        return data.__array__()
    except (TypeError, RuntimeError) as error:
        raise InvalidInput("edges", f"expected arrays on the host: {error}") from error


def _understood(data: Any) -> Any:
    """Pairs of columns, lists of mappings and lazy frames, as frames; others as they are."""
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):
        return data.collect()
    if not isinstance(data, list | tuple) or not data:
        return data
    # a list of two short arrays may be two edges
    is_pair = len(data) == 2 and all(map(_is_column, data))
    if is_pair and (isinstance(data, tuple) or len(data[0]) != 2):
        if len(data[0]) != len(data[1]):
            message = f"expected as many sources as targets, got {len(data[0])} and {len(data[1])}"
            raise InvalidInput("edges", message)
        ends = (each.to_arrow() if hasattr(each, "to_arrow") else _on_host(each) for each in data)
        return dict(zip(("source", "target"), ends, strict=True))
    if all(isinstance(row, Mapping) for row in data):
        for index, row in enumerate(data):
            if row.keys() != data[0].keys():
                expected = ", ".join(map(str, data[0]))
                message = f"edge {index}: expected members {expected}, as the first, got {row!r}"
                raise InvalidInput("edges", message)
        return {name: [row[name] for row in data] for name in data[0]}
    return data


def _columns(data: Any, columns: Columns, to_rank: bool) -> EdgeColumns:
    if isinstance(data, str | bytes | PathLike):
        advice = "read a file first, as by pandas.read_parquet"
        raise InvalidInput("edges", f"{EXPECTED}, got {reprlib.repr(data)}: {advice}")
    data = _understood(data)
    is_frame = isinstance(data, Mapping) or _is_frame(data)
    if columns.time is not None and not is_frame and not _is_empty(data):
        message = "expected None, since only frames have it: give (source, target, weight, time)"
        raise InvalidInput("time", message)
    for field, name in zip(("source", "target"), columns, strict=False):
        if name is not None and data is not None and not is_frame and not _is_empty(data):
            message = f"expected None, since only frames have columns, got {name!r}"
            raise InvalidInput(field, message)
    if hasattr(data, "tocoo"):
        return _from_sparse(data, columns.weight)
    if hasattr(data, "get_edgelist"):
        return _from_igraph(data, columns.weight, to_rank)
    if is_networkx(data):
        return _from_networkx(data, columns.weight, to_rank)
    if is_frame:
        return _from_frame(data, columns)
    if columns.weight is not None and data is not None and not _is_empty(data):
        message = "expected None, since pairs have no columns: give (source, target, weight)"
        raise InvalidInput("weight", message)
    if hasattr(data, "__array__") and len(getattr(data, "shape", ())) == 2:
        data = _on_host(data)
    if hasattr(data, "__array_interface__"):
        if data.ndim != 2 or data.shape[1] != 2 or data.dtype.kind not in "iu":
            got = f"{data.dtype}{list(data.shape)}"
            is_index = data.ndim == 2 and data.shape[0] == 2 and data.dtype.kind in "iu"
            advice = "; of rows sources and targets, give edges.T" if is_index else ""
            message = f"expected integers of shape [edges, 2], got {got}{advice}"
            raise InvalidInput("edges", message)
        if data.dtype == "uint64" and (wrong := (data >= 2**63).any(axis=1)).any():
            index = int(wrong.argmax())
            message = f"edge {index}: expected integers below 2**63, got {data[index].tolist()}"
            raise InvalidInput("edges", message)
        return EdgeColumns(data[:, 0].astype("int64"), data[:, 1].astype("int64"))
    if not isinstance(data, Iterable):
        raise InvalidInput("edges", f"{EXPECTED}, got {type(data).__name__}")
    return _from_rows(data)


def _is_empty(data: Any) -> bool:
    return hasattr(data, "__len__") and len(data) == 0


def _from_rows(rows: Iterable[Any]) -> EdgeColumns:
    """Edges of pairs, or with weights, or with weights or None and times."""
    found = list(rows)
    size = 2
    if found and isinstance(found[0], Sequence) and len(found[0]) in (3, 4):
        size = len(found[0])
    expected = _ROWS[size]
    for index, row in enumerate(found):
        if isinstance(row, str | bytes) or not isinstance(row, Sequence) or len(row) != size:
            raise InvalidInput("edges", f"edge {index}: expected {expected}, got {row!r}")
        if row[0] is None or row[1] is None:
            raise InvalidInput("edges", f"edge {index}: expected two keys, got {row!r}")
        is_unweighted = size == 4 and found[0][2] is None
        if size > 2 and (isinstance(row[2], str | bytes) or (row[2] is None) != is_unweighted):
            raise InvalidInput("edges", f"edge {index}: expected a number as weight, got {row!r}")
        if size == 4 and (isinstance(row[3], str | bytes) or row[3] is None):
            raise InvalidInput("edges", f"edge {index}: expected a number as time, got {row!r}")
    sources, targets, *others = ([row[item] for row in found] for item in range(size))
    weights = others[0] if others and others[0][0] is not None else None
    times = others[1] if size == 4 else None
    return EdgeColumns(sources, targets, weights=weights, times=times)


def _from_sparse(matrix: Any, weight: str | None) -> EdgeColumns:
    if weight not in (None, "data"):
        raise InvalidInput("weight", f"expected 'data', the entries of the matrix, got {weight!r}")
    entries = matrix.tocoo() if weight is None else matrix.tocsr().tocoo()  # adds repeated entries
    if entries.shape[0] != entries.shape[1]:
        raise InvalidInput("edges", f"expected a square matrix, got shape {entries.shape}")
    present = entries.data != 0
    if weight is None and not (entries.data[present] == 1).all():
        raise InvalidInput("edges", "expected entries of 0 and 1, or weight='data'")
    rows, columns = entries.row[present].astype("int64"), entries.col[present].astype("int64")
    weights = None if weight is None else entries.data[present]
    return EdgeColumns(rows, columns, range(entries.shape[0]), weights)


def _from_networkx(graph: Any, weight: str | None, to_rank: bool) -> EdgeColumns:
    if weight is None and not to_rank:
        edges = _from_rows([pair[:2] for pair in graph.edges()])
    else:  # no edge has an attribute None
        edges = _from_rows(list(graph.edges(data=weight, default=1)))
        edges = _summed(edges, weight) if graph.is_multigraph() else edges
    edges = _followed(edges, weight) if to_rank else edges
    return replace(edges, vertices=list(graph.nodes()), directed=graph.is_directed())


def _from_igraph(graph: Any, weight: str | None, to_rank: bool) -> EdgeColumns:
    edges, attributes = _from_rows(graph.get_edgelist()), graph.es.attributes()
    if weight is not None:
        if weight not in attributes:
            got = ", ".join(attributes) or "none"
            message = f"expected an attribute of edges, got {weight!r}; they are: {got}"
            raise InvalidInput("weight", message)
        edges = replace(edges, weights=graph.es[weight])
    elif to_rank:
        edges = replace(edges, weights=[1] * len(edges))
    if edges.weights is not None and graph.has_multiple():
        edges = _summed(edges, weight)
    if to_rank:
        edges = _followed(edges, weight, not graph.is_directed())
    if weight is None and WEIGHT in attributes:
        edges = replace(edges, unused_weight=WEIGHT)
    names = list(range(graph.vcount()))
    if "name" in graph.vs.attributes() and all(name is not None for name in graph.vs["name"]):
        names = graph.vs["name"]
        sources, targets = ([names[end] for end in ends] for ends in (edges.sources, edges.targets))
        edges = replace(edges, sources=sources, targets=targets)
    return replace(edges, vertices=names, directed=graph.is_directed())


def _followed(edges: EdgeColumns, weight: str | None, twice: bool = False) -> EdgeColumns:
    """The edges whose weight is not 0; without weights if these are equal, which is the same.

    twice  whether a loop is followed twice
    """
    _check_finite(edges.weights, weight or WEIGHT)
    rows = [row for row in edges.rows() if row[2] != 0]
    if twice:
        rows = [(*ends, 2 * own if ends[0] == ends[1] else own) for *ends, own in rows]
    edges = _from_rows(rows)
    weights = edges.weights
    if weights is not None and 0 < min(weights) == max(weights):
        return replace(edges, weights=None)
    return edges


def _summed(edges: EdgeColumns, weight: str | None) -> EdgeColumns:
    """Each pair once, with the sum of the weights of its edges."""
    _check_finite(edges.weights, weight or WEIGHT)
    sums: dict[tuple[Any, Any], float] = {}
    for source, target, own in edges.rows():
        sums[source, target] = sums.get((source, target), 0.0) + own
    return _from_rows([(*pair, own) for pair, own in sums.items()])


def _is_frame(data: Any) -> bool:
    names = ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__")
    return any(hasattr(data, name) for name in names)


def read_table(data: Any, field: str, named: Sequence[str] = ()) -> pa.Table:
    """A frame, or a mapping of columns, without the index that pandas adds.

    named  columns of which others need not be convertible; none: all
    Raises InvalidInput for the `field`, MissingPackage.
    """
    library = type(data).__module__.split(".")[0]
    with needs(library if library in ("pandas", "polars") else "engine"):
        import pyarrow as pa
        from pyarrow.interchange import from_dataframe

    if library == "pandas" and named and set(named) <= set(data):
        data = data[list(named)]
    try:
        is_arrow = hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")
        is_arrow = is_arrow or isinstance(data, Mapping)
        table = pa.table(data) if is_arrow else from_dataframe(data)
    except (ValueError, TypeError, KeyError, OverflowError, pa.ArrowNotImplementedError) as error:
        raise InvalidInput(field, f"the frame cannot be read: {error}") from error
    names = [name for name in table.column_names if not name.startswith("__index_level_")]
    return table.select(names)


def _from_frame(data: Any, columns: Columns) -> EdgeColumns:
    named = list(dict.fromkeys(name for name in columns if name is not None))
    both = columns.source and columns.target
    table = read_table(data, "edges", named if both else ())
    names = table.column_names
    chosen = _chosen(names, columns)
    sources, targets = (key_column(table[name], name) for name in chosen)
    if sources.type != targets.type:
        message = (
            f"expected the type of the keys in {chosen[0]}, {sources.type}, got {targets.type}"
        )
        raise InvalidInput(chosen[1], message)
    name, time = columns.weight, columns.time
    weights = None if name is None else _number_column(table[name], name, "a weight")
    times = None if time is None else _time_column(table[time], time)
    # of pandas, the table has the named columns alone
    names = data.columns if hasattr(data, "iloc") else names
    unused = WEIGHT if WEIGHT in names and WEIGHT not in (*chosen, *columns) else None
    return EdgeColumns(sources, targets, None, weights, times, unused_weight=unused)


def _time_column(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Unix seconds, from numbers or timestamps."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_timestamp(column.type):
        return _number_column(column, name, "a time")
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[column.type.unit]
    units = column.cast(pa.int64())
    # whole seconds first: nanoseconds since 1970 exceed the precision of a float64
    whole = pc.divide(units, per_second)
    part = pc.subtract(units, pc.multiply(whole, per_second)).cast(pa.float64())
    seconds = pc.add(whole.cast(pa.float64()), pc.divide(part, float(per_second)))
    return _number_column(seconds, name, "a time")


def _number_column(column: pa.ChunkedArray, name: str, expected: str) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise InvalidInput(name, f"expected a column of numbers, got {column.type}")
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise InvalidInput(name, f"row {row}: expected {expected}, got null")
    return column


def _chosen(names: list[str], columns: Columns) -> tuple[str, str]:
    """The columns of the ends. Raises InvalidInput."""
    source, target, *attributes = columns
    for field, name in zip(columns._fields, columns, strict=True):
        if name is not None and names.count(name) != 1:
            got = ", ".join(names) or "no columns"
            raise InvalidInput(field, f"expected a column {name!r}, got {got}")
    ends = [name for name in names if name not in attributes]
    if source is None and target is None and not {"source", "target"} <= set(ends):
        if (found := named_ends(ends)) is not None:
            return ends[found[0]], ends[found[1]]
        if len(ends) == 2 and "source" not in ends:
            return ends[0], ends[1]
    chosen = source or "source", target or "target"
    if chosen[0] == chosen[1]:
        raise InvalidInput("target", f"expected another column than source, got {chosen[1]!r}")
    if not set(chosen) <= set(names):
        got = ", ".join(names) or "none"
        raise InvalidInput("edges", f"name the columns with source= and target=; they are: {got}")
    return chosen


def key_column(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """The column as int64 or string. Raises InvalidInput for other types and for nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise InvalidInput(name, f"row {row}: expected a key, got null")
    texts = (pa.string(), pa.large_string(), pa.string_view())
    if not (pa.types.is_integer(kind) or kind in texts or len(column) == 0):
        expected = "expected a column of strings or integers below 2**63"
        raise InvalidInput(name, f"{expected}, got {kind}")
    try:
        return column.cast(pa.int64() if pa.types.is_integer(kind) else pa.string())
    except pa.ArrowInvalid as error:
        raise InvalidInput(name, f"the keys do not fit: {error}") from error
