"""Edges from what people have: pairs, frames, sparse matrices and graphs.

    pairs            an iterable of (source, target)
    frames           anything with `__arrow_c_stream__`, `__arrow_c_array__` or `__dataframe__`:
                     pandas, Polars, PyArrow, DuckDB, cuDF; or a mapping of columns
    arrays           NumPy, integers of shape (edges, 2)
    sparse matrices  SciPy: the entry in row i and column j is an edge from i to j
    graphs           NetworkX and igraph, whose vertices have their names as keys if all have one

Nothing here needs NumPy or PyArrow for pairs and for graphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from liverank.errors import InvalidInput, needs

if TYPE_CHECKING:
    import pyarrow as pa

EXPECTED = "expected pairs, a frame, a sparse matrix or a graph"


@dataclass(frozen=True, slots=True)
class EdgeColumns:
    """Edges by their ends, all in one direction.

    sources, targets  the keys: both Arrow columns of strings or int64, both NumPy arrays of
                      integers, or both lists
    vertices          all vertices in their order, if the data has more than its edges
    """

    sources: Any
    targets: Any
    vertices: Sequence[Any] | None = None

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

    def pairs(self) -> list[tuple[Any, Any]]:
        return list(zip(as_list(self.sources), as_list(self.targets), strict=True))

    def table(self) -> pa.Table:
        import pyarrow as pa

        return pa.table({"source": self.sources, "target": self.targets})


def read_edges(
    data: Any, source: str | None = None, target: str | None = None, directed: bool | None = None
) -> EdgeColumns:
    """The edges of `data`.

    source, target  the columns of a frame; None: columns of these names, or the only two
    directed        False: each edge counts in both directions; None: as a graph says itself, and
                    True for everything else

    Raises InvalidInput for data without edges, for keys of another type, and for an undirected
    graph as a directed one; MissingPackage if a frame needs PyArrow.
    """
    edges, is_directed = _columns(data, source, target)
    if directed and not is_directed:
        raise InvalidInput("directed", "expected False or None, since the graph is undirected")
    if is_directed if directed is None else directed:
        return edges
    return _in_both_directions(edges)


def as_list(column: Any) -> list[Any]:
    """A column as a list of Python objects."""
    for name in ("to_pylist", "tolist"):
        if hasattr(column, name):
            values: list[Any] = getattr(column, name)()
            return values
    return list(column)


def _columns(data: Any, source: str | None, target: str | None) -> tuple[EdgeColumns, bool]:
    """The edges, and whether they are directed."""
    if hasattr(data, "tocoo"):
        return _from_sparse(data), True
    if hasattr(data, "get_edgelist"):
        return _from_igraph(data)
    if all(hasattr(data, name) for name in ("nodes", "edges", "is_directed")):
        sources, targets = _ends(pair[:2] for pair in data.edges())
        return EdgeColumns(sources, targets, list(data.nodes())), data.is_directed()
    if isinstance(data, Mapping) or _is_frame(data):
        return _from_frame(data, source, target), True
    if hasattr(data, "__array_interface__"):
        if data.ndim != 2 or data.shape[1] != 2 or data.dtype.kind not in "iu":
            got = f"{data.dtype}{list(data.shape)}"
            raise InvalidInput("edges", f"expected integers of shape [edges, 2], got {got}")
        return EdgeColumns(data[:, 0].astype("int64"), data[:, 1].astype("int64")), True
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise InvalidInput("edges", f"{EXPECTED}, got {type(data).__name__}")
    return EdgeColumns(*_ends(data)), True


def _ends(pairs: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    sources, targets = [], []
    for index, pair in enumerate(pairs):
        if isinstance(pair, str | bytes) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise InvalidInput("edges", f"edge {index}: expected a pair, got {pair!r}")
        sources.append(pair[0])
        targets.append(pair[1])
    return sources, targets


def _from_sparse(matrix: Any) -> EdgeColumns:
    entries = matrix.tocoo()
    if entries.shape[0] != entries.shape[1]:
        raise InvalidInput("edges", f"expected a square matrix, got shape {entries.shape}")
    present = entries.data != 0
    if not (entries.data[present] == 1).all():
        raise InvalidInput("edges", f"expected entries of 0 and 1: {NO_WEIGHTS}")
    rows, columns = entries.row[present], entries.col[present]
    vertices = range(entries.shape[0])
    return EdgeColumns(rows.astype("int64"), columns.astype("int64"), vertices)


NO_WEIGHTS = "weighted edges are not supported yet"


def _from_igraph(graph: Any) -> tuple[EdgeColumns, bool]:
    sources, targets = _ends(graph.get_edgelist())
    names = list(range(graph.vcount()))
    if "name" in graph.vs.attributes() and all(name is not None for name in graph.vs["name"]):
        names = graph.vs["name"]
        sources, targets = ([names[end] for end in ends] for ends in (sources, targets))
    return EdgeColumns(sources, targets, names), graph.is_directed()


def _is_frame(data: Any) -> bool:
    names = ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__")
    return any(hasattr(data, name) for name in names)


def _from_frame(data: Any, source: str | None, target: str | None) -> EdgeColumns:
    library = type(data).__module__.split(".")[0]
    with needs(library if library in ("pandas", "polars") else "engine"):
        import pyarrow as pa
        from pyarrow.interchange import from_dataframe

    if library == "pandas" and source is not None and target is not None:
        data = data[[source, target]]  # other columns need not be convertible
    try:
        is_arrow = hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")
        is_arrow = is_arrow or isinstance(data, Mapping)
        table = pa.table(data) if is_arrow else from_dataframe(data)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, KeyError) as error:
        raise InvalidInput("edges", f"the frame cannot be read: {error}") from error
    names = [name for name in table.column_names if not name.startswith("__index_level_")]
    chosen = _chosen(names, source, target)
    sources, targets = (key_column(table[name], name) for name in chosen)
    if sources.type != targets.type:
        message = (
            f"expected the type of the keys in {chosen[0]}, {sources.type}, got {targets.type}"
        )
        raise InvalidInput(chosen[1], message)
    return EdgeColumns(sources, targets)


def _chosen(names: list[str], source: str | None, target: str | None) -> tuple[str, str]:
    """The columns of the ends. Raises InvalidInput."""
    for field, name in (("source", source), ("target", target)):
        if name is not None and names.count(name) != 1:
            got = ", ".join(names) or "no columns"
            raise InvalidInput(field, f"expected a column {name!r}, got {got}")
    if source is None and target is None and len(names) == 2 and "source" not in names:
        return names[0], names[1]
    chosen = source or "source", target or "target"
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
        raise InvalidInput(name, f"expected a column of strings or integers, got {kind}")
    try:
        return column.cast(pa.int64() if pa.types.is_integer(kind) else pa.string())
    except pa.ArrowInvalid as error:
        raise InvalidInput(name, f"the keys do not fit: {error}") from error


def _in_both_directions(edges: EdgeColumns) -> EdgeColumns:
    """Each edge, and its reverse unless it is a self-loop."""
    sources, targets = edges.sources, edges.targets
    if edges.is_arrow:
        import pyarrow as pa
        import pyarrow.compute as pc

        different = pc.not_equal(sources, targets)
        return EdgeColumns(
            pa.chunked_array([*sources.chunks, *targets.filter(different).chunks], sources.type),
            pa.chunked_array([*targets.chunks, *sources.filter(different).chunks], targets.type),
        )
    if isinstance(sources, list):
        reverse = [pair for pair in edges.pairs() if pair[0] != pair[1]]
        sources = sources + [target for _, target in reverse]
        targets = targets + [source for source, _ in reverse]
        return replace(edges, sources=sources, targets=targets)
    import numpy as np

    different = sources != targets
    return replace(
        edges,
        sources=np.concatenate([sources, targets[different]]),
        targets=np.concatenate([targets, sources[different]]),
    )
