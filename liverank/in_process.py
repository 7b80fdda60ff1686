"""PageRank of a frame or a graph in this process: `liverank.pagerank`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as member
from functools import wraps
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from liverank.choices import Unset, check_names
from liverank.edges import (
    WEIGHT,
    Columns,
    EdgeColumns,
    as_list,
    is_networkx,
    key_column,
    read_edges,
)
from liverank.errors import InvalidInput, UnusedWeights, needs
from liverank.tables import Ranks

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from liverank_gpu import Engine

    Ids = NDArray[np.integer[Any]]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ranking(Ranks):
    """The ranks of all vertices of a graph; they sum to 1.

    vertices     their keys: in order of first appearance for pairs and frames, in the order of the
                 graph or matrix otherwise
    ranks        float64[len(vertices)]
    error_bound  proven upper bound on the L1 distance to the exact ranks
    converged    whether the error bound met target_error
    iterations   sweeps over all vertices plus rounds over a work list
    edges        number of distinct edges; an undirected one counts once
    duplicates   number of edges that repeat another and count once; the last weight counts
    backend      `cpu`, `cuda` or `reference`
    """

    vertices: Sequence[Any] | pa.Array
    ranks: NDArray[np.float64]
    error_bound: float
    converged: bool
    iterations: int
    edges: int
    duplicates: int
    backend: str
    _by_vertex: dict[Any, float] = member(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Made when a rank is looked up first."""

    def __len__(self) -> int:
        return len(self.vertices)

    def __bool__(self) -> bool:
        return len(self) > 0

    def __contains__(self, vertex: object) -> bool:
        return vertex in self._looked_up()

    def __getitem__(self, vertex: Any) -> float:
        return self._looked_up()[vertex]

    def _looked_up(self) -> dict[Any, float]:
        if not self._by_vertex:
            self._by_vertex.update(self.to_dict())
        return self._by_vertex

    def _first(self, count: int) -> Iterable[tuple[Any, float]]:
        return self.top(count).items()

    def __repr__(self) -> str:
        best = [f"{vertex!r}: {rank:.4g}" for vertex, rank in self.top(3).items()]
        top = ", ".join(best + ["…"] * (len(self) > len(best)))
        return (
            f"<Ranking vertices={len(self):,} edges={self.edges:,} "
            f"error_bound={self.error_bound:.1e} top={{{top}}}>"
        )

    def __iter__(self) -> Iterator[tuple[Any, float]]:
        return zip(as_list(self.vertices), self.ranks.tolist(), strict=True)

    def to_dict(self) -> dict[Any, float]:
        """The rank of each vertex."""
        return dict(iter(self))

    def to_arrow(self) -> pa.Table:
        """Columns `vertex` and `rank`, without a copy. Raises InvalidInput for vertices that Arrow
        cannot hold, such as objects of a NetworkX graph.
        """
        import pyarrow as pa

        try:
            vertices = self.vertices if isinstance(self.vertices, pa.Array) else None
            vertices = pa.array(self.vertices) if vertices is None else vertices
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            message = f"they do not fit into a column, use to_dict(): {error}"
            raise InvalidInput("vertices", message) from error
        return pa.table({"vertex": vertices, "rank": pa.array(self.ranks)})

    def top(self, k: int = 10) -> dict[Any, float]:
        """The k vertices of highest rank, best first; equal ranks in the order of `vertices`.

        Raises InvalidInput for a negative k.
        """
        import numpy as np

        if k < 0:
            raise InvalidInput("k", f"expected a number of at least 0, got {k}")
        best = np.argsort(-self.ranks, kind="stable")[:k]
        vertices = self.vertices
        if hasattr(vertices, "take"):
            names = vertices.take(best).to_pylist()
        else:
            names = [vertices[place] for place in best]
        return dict(zip(names, self.ranks[best].tolist(), strict=True))


def _names_arguments(function: Callable[P, T]) -> Callable[P, T]:
    """Answers the names that other libraries have for an argument with its own."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        check_names(function, kwargs)
        return function(*args, **kwargs)

    return called


_CALLER = 3
"""The stack level of who calls `pagerank`, which has a wrapper, in warnings."""


@_names_arguments
def pagerank(
    edges: Any,
    source: str | None = None,
    target: str | None = None,
    *,
    weight: str | Literal[Unset.UNSET] | None = Unset.UNSET,
    directed: bool | None = None,
    personalization: Any = None,
    damping: float = 0.85,
    dangling: Literal["uniform", "self-loop"] = "uniform",
    target_error: float = 1e-6,
    max_iterations: int = 500,
    backend: Literal["auto", "cpu", "cuda", "reference"] = "auto",
    unconverged: Literal["warn", "raise", "ignore"] = "warn",
) -> Ranking:
    """The PageRank of a frame of edges, pairs, a sparse matrix or a graph: see liverank.edges.

    source, target   the columns of a frame; None: columns of these names, or the only two
    weight           the column, the attribute of edges of a graph, or `data` for the entries of a
                     matrix: an edge is followed in proportion to its weight. None: unweighted,
                     unless the edges are (source, target, weight). Left out: the attribute `weight`
                     of a NetworkX graph, as there, otherwise None; UnusedWeights is issued then for
                     a frame or an igraph graph that has such a column or attribute
    directed         False: {a,b} is the same edge as {b,a}, and is followed either way; None: as a
                     graph says itself, and True for everything else
    personalization  where walks start and restart: the weight of each vertex, as a mapping or a
                     frame of two columns; None: everywhere
    damping          probability of following an edge instead of restarting; above 0, below 1
    dangling         a vertex without out-edges leads to all vertices, or (with personalization)
                     back to its vertices: `uniform`; or every vertex has a `self-loop`
    target_error     the proven L1 error at which the solve stops; above 0, at most 2
    max_iterations   the most sweeps over all vertices, or twice as many: see liverank_gpu.Options
    backend          auto: CUDA if there is a device
    unconverged      what to do if max_iterations, or rounding, leave an error bound above
                     target_error, which is true nevertheless: `warn` of NotConverged, `raise` it,
                     or `ignore` it, which `converged` of the result says too

    Raises InvalidInput for edges and options that cannot be used, liverank_gpu.EngineError for a
    lack of memory and for a backend that cannot run here, MissingPackage without the extra
    `engine`.
    """
    with needs("engine"):
        from liverank_gpu import InvalidValue, NotConverged
    for field, name in (("source", source), ("target", target)):
        if name is not None and not isinstance(name, str):
            got = repr(name) if isinstance(name, Real) else type(name).__name__
            advice = "options are given by name, and columns as a pair or in one frame"
            raise InvalidInput(field, f"expected the name of a column, got {got}; {advice}")
    if unconverged not in ("warn", "raise", "ignore"):
        message = f"expected 'warn', 'raise' or 'ignore', got {unconverged!r}"
        raise InvalidInput("unconverged", message)
    named = weight
    if isinstance(named, Unset):
        named = WEIGHT if is_networkx(edges) else None
    columns = read_edges(edges, Columns(source, target, named), directed, to_rank=True)
    if columns.unused_weight is not None and weight is Unset.UNSET:
        unused = repr(columns.unused_weight)
        message = f"{unused} is not used: weight={unused} ranks by it, weight=None without it"
        warnings.warn(message, UnusedWeights, stacklevel=_CALLER)
    try:
        found = _pagerank(
            columns,
            personalization,
            backend,
            damping=damping,
            dangling=dangling,
            target_error=target_error,
            max_iterations=max_iterations,
        )
    except InvalidValue as error:
        message = f"expected {error.requirement}, got {error.value!r}"
        raise InvalidInput(error.field, message) from error
    if not found.converged and unconverged != "ignore":
        goal = f"target_error is {target_error:.1e}"
        warning = NotConverged(found.iterations, found.error_bound, goal)
        if unconverged == "raise":
            raise warning
        warnings.warn(warning, stacklevel=_CALLER)
    return found


def _pagerank(
    columns: EdgeColumns,
    personalization: Any,
    backend: Literal["auto", "cpu", "cuda", "reference"],
    **options: Any,
) -> Ranking:
    """Raises InvalidInput, liverank_gpu.EngineError."""
    from liverank_gpu import Options, ViewQuery, rank_once

    if columns.times is not None:
        raise InvalidInput("edges", "expected edges without times, which need a graph of a server")
    weights = columns.weights
    vertices, sources, targets = indexed(columns)
    weighted = weights is not None
    chosen = Options(**options, weighted=weighted, directed=columns.directed)
    if weights is not None and len(weights):
        weights = weights.to_numpy() if hasattr(weights, "to_numpy") else as_list(weights)
        weights = weights if columns.vertices is None else in_range(weights)
    else:
        weights = None
    view = None
    if personalization is not None:
        view = ViewQuery(*_seed_ids(vertices, _weights(personalization)))
    found = rank_once(
        sources,
        targets,
        weights,
        vertices=len(vertices),
        options=chosen,
        backend=backend,
        unconverged="ignore",
        view=view,
    )
    error_bound = found.result.error_bound
    return Ranking(
        vertices,
        found.ranks.to_numpy(),
        error_bound,
        error_bound <= chosen.target_error,
        found.result.iterations,
        found.edges,
        found.duplicates,
        found.backend,
    )


def in_range(weights: Any) -> NDArray[np.float64]:
    """The weights of a graph, or a multiple of them that single precision can hold, if there is
    one: only their ratios matter.
    """
    import numpy as np

    from liverank_gpu import LARGEST_WEIGHT, LEAST_WEIGHT

    given = np.asarray(weights, np.float64)
    low, high = given.min(), given.max()
    if (low >= LEAST_WEIGHT and high <= LARGEST_WEIGHT) or not (low > 0 and high < math.inf):
        return given
    scaled = given * 2.0 ** -round((math.log2(low) + math.log2(high)) / 2)
    fits = scaled.min() >= LEAST_WEIGHT and scaled.max() <= LARGEST_WEIGHT
    return scaled if fits else given


def rank(
    engine: Engine,
    vertices: Sequence[Any] | pa.Array,
    seeds: Mapping[Any, float] | None = None,
) -> Ranking:
    """The ranks of an engine's graph, whose ids are the positions in `vertices`."""
    import numpy as np

    target_error = engine.options.target_error
    if seeds is None:
        result = engine.update("auto")
        ranks, error_bound, iterations = (
            engine.publish().to_numpy(),
            result.error_bound,
            result.iterations,
        )
    else:
        ids, weights = _seed_ids(vertices, seeds)
        answer = engine.personalized(ids, weights, k=max(1, len(vertices)))
        ranks = np.zeros(len(vertices), np.float64)
        ranks[answer.vertices] = answer.ranks
        error_bound, iterations = answer.error_bound, answer.iterations
    return Ranking(
        vertices,
        ranks,
        error_bound,
        error_bound <= target_error,
        iterations,
        engine.edges,
        0,
        engine.backend,
    )


def indexed(edges: EdgeColumns) -> tuple[Sequence[Any] | pa.Array, Ids, Ids]:
    """The vertices of the edges, and the ends of each edge as positions among them."""
    import numpy as np
    import pyarrow as pa

    if isinstance(edges.vertices, range):
        return edges.vertices, edges.sources, edges.targets
    if isinstance(edges.sources, list):
        place = {vertex: number for number, vertex in enumerate(edges.vertices or ())}
        ends = [
            np.fromiter((place.setdefault(key, len(place)) for key in column), np.int64)
            for column in (edges.sources, edges.targets)
        ]
        return list(place), ends[0], ends[1]
    columns = [
        column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
        for column in (edges.sources, edges.targets)
    ]
    both = pa.chunked_array([*columns[0].chunks, *columns[1].chunks], columns[0].type)
    codes = both.combine_chunks().dictionary_encode()
    ids = codes.indices.to_numpy()
    return codes.dictionary, ids[: len(edges)], ids[len(edges) :]


def _weights(personalization: Any) -> Mapping[Any, float]:
    if isinstance(personalization, Mapping):
        return personalization
    import pyarrow as pa

    if not hasattr(personalization, "__arrow_c_stream__"):
        got = type(personalization).__name__
        raise InvalidInput("personalization", f"expected a mapping or a frame, got {got}")
    table = pa.table(personalization)
    if table.num_columns != 2:
        got = ", ".join(table.column_names)
        raise InvalidInput("personalization", f"expected columns vertex and weight, got {got}")
    keys = key_column(table.column(0), table.column_names[0]).to_pylist()
    if len(set(keys)) < len(keys):
        raise InvalidInput("personalization", "expected each vertex once")
    return dict(zip(keys, table.column(1).to_pylist(), strict=True))


def _seed_ids(
    vertices: Sequence[Any] | pa.Array, seeds: Mapping[Any, float]
) -> tuple[Ids, NDArray[np.float64]]:
    """The positions of the seeds, and their weights. Raises InvalidInput for an unknown vertex and
    for a weight that cannot be used.
    """
    import numpy as np

    place = {vertex: number for number, vertex in enumerate(as_list(vertices)) if vertex in seeds}
    for vertex in seeds:
        if vertex not in place:
            raise InvalidInput("personalization", f"{vertex!r} is not a vertex of the graph")
    for vertex, weight in seeds.items():
        if not (isinstance(weight, Real) and 0 <= weight < math.inf):
            expected = "expected a finite number that is not negative"
            raise InvalidInput("personalization", f"{expected} for {vertex!r}, got {weight!r}")
    if not any(seeds.values()):
        raise InvalidInput("personalization", "expected a weight above 0 for one vertex at least")
    ids = np.array([place[vertex] for vertex in seeds], np.int64)
    return ids, np.array(list(seeds.values()), np.float64)
