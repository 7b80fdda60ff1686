"""liverank.pagerank: every kind of input, compared with NetworkX."""

from __future__ import annotations

from typing import Any

import duckdb
import igraph
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

import liverank
from gpu import InvalidValue
from liverank import InvalidInput

PAIRS = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("a", "e")]
COLUMNS = {"source": [one for one, _ in PAIRS], "target": [two for _, two in PAIRS]}
NUMBERS = [(ord(one), ord(two)) for one, two in PAIRS]


class Interchange:
    """A frame with `__dataframe__` alone, as older libraries have it."""

    def __init__(self, frame: pa.Table) -> None:
        self._frame = frame

    def __dataframe__(self, **options: Any) -> Any:
        return self._frame.__dataframe__(**options)


INPUTS: dict[str, Any] = {
    "pairs": lambda: PAIRS,
    "generator": lambda: (pair for pair in PAIRS),
    "mapping": lambda: COLUMNS,
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "pandas, indexed": lambda: pd.DataFrame(COLUMNS, index=[5, 4, 3, 2, 1]),
    "pandas, categories": lambda: pd.DataFrame(COLUMNS, dtype="category"),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "arrow": lambda: pa.table(COLUMNS),
    "arrow, chunks": lambda: pa.concat_tables([pa.table(COLUMNS)[:2], pa.table(COLUMNS)[2:]]),
    "arrow, one batch": lambda: pa.RecordBatch.from_pydict(COLUMNS),
    "duckdb": lambda: duckdb.connect().sql(
        "SELECT * FROM (VALUES " + str(PAIRS)[1:-1] + ") AS t(source, target)"
    ),
    "interchange": lambda: Interchange(pa.table(COLUMNS)),
    "networkx": lambda: nx.DiGraph(PAIRS),
    "igraph": lambda: igraph.Graph.TupleList(PAIRS, directed=True),
}


def expected(graph: nx.Graph, **options: Any) -> dict[Any, float]:
    ranks: dict[Any, float] = nx.pagerank(graph, tol=1e-14, max_iter=1_000, **options)
    return ranks


def check(ranking: liverank.Ranking, graph: nx.Graph, **options: Any) -> None:
    """The ranks are those of NetworkX, within the proven error."""
    exact = expected(graph, **options)
    found = ranking.to_dict()
    assert set(found) == set(exact)
    error = sum(abs(found[vertex] - exact[vertex]) for vertex in exact)
    assert error <= ranking.error_bound + 1e-12
    assert ranking.error_bound <= 1e-9
    assert ranking.converged
    assert sum(found.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", INPUTS)
def test_edges_are_read_from(kind: str) -> None:
    ranking = liverank.pagerank(INPUTS[kind](), target_error=1e-9, backend="cpu")
    check(ranking, nx.DiGraph(PAIRS))
    assert (ranking.edges, ranking.duplicates, len(ranking)) == (5, 0, 5)
    assert (ranking.backend, next(iter(ranking.top(1)))) == ("cpu", "a")


@pytest.mark.parametrize(
    "edges",
    [
        np.array(NUMBERS),
        np.array(NUMBERS, np.uint8),
        pd.DataFrame(NUMBERS, columns=["from", "to"]),
        pa.table(
            {"x": pa.array([one for one, _ in NUMBERS], pa.int32()), "y": [t for _, t in NUMBERS]}
        ),
    ],
    ids=["numpy", "numpy of bytes", "pandas", "arrow of int32"],
)
def test_integers_are_keys_too(edges: Any) -> None:
    check(liverank.pagerank(edges, target_error=1e-9), nx.DiGraph(NUMBERS))


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "lil"])
def test_a_sparse_matrix_has_all_its_rows_as_vertices(layout: str) -> None:
    matrix = scipy.sparse.random_array((40, 40), density=0.05, rng=3, format=layout)
    present = (matrix != 0).astype(float).asformat(layout)
    graph = nx.from_scipy_sparse_array(present, create_using=nx.DiGraph)
    ranking = liverank.pagerank(present, target_error=1e-9)
    assert list(ranking.vertices) == list(range(40))
    check(ranking, graph)


@pytest.mark.parametrize("kind", ["networkx", "igraph", "pairs", "arrow", "numpy", "sparse"])
def test_undirected_edges_count_in_both_directions(kind: str) -> None:
    pairs = [(0, 1), (1, 2), (3, 3), (1, 4)]
    column = pa.table({"source": [one for one, _ in pairs], "target": [two for _, two in pairs]})
    undirected = nx.Graph(pairs)
    upper = scipy.sparse.coo_array(([1] * 4, tuple(zip(*pairs, strict=True))), (5, 5))
    edges: dict[str, tuple[Any, bool | None]] = {
        "networkx": (undirected, None),
        "igraph": (igraph.Graph(pairs), None),
        "pairs": (pairs, False),
        "arrow": (column, False),
        "numpy": (np.array(pairs), False),
        "sparse": (upper, False),
    }
    data, directed = edges[kind]
    ranking = liverank.pagerank(data, directed=directed, target_error=1e-9)
    check(ranking, undirected)
    assert (ranking.edges, ranking.duplicates) == (7, 0)


def test_vertices_without_edges_and_objects_as_vertices() -> None:
    graph = nx.DiGraph([((0, 0), "x"), ("x", 2.5)])
    graph.add_node(frozenset([1]))
    ranking = liverank.pagerank(graph, target_error=1e-9)
    check(ranking, graph)
    with pytest.raises(InvalidInput, match=r"use to_dict\(\)"):
        ranking.to_arrow()


def test_duplicates_count_once_and_are_counted() -> None:
    ranking = liverank.pagerank([*PAIRS, PAIRS[0], PAIRS[0]], target_error=1e-9)
    assert (ranking.edges, ranking.duplicates) == (5, 2)
    check(ranking, nx.DiGraph(PAIRS))


@pytest.mark.parametrize("seeds", [{"b": 3.0, "d": 1}, {"e": 1}])
def test_personalized_ranks(seeds: dict[str, float]) -> None:
    weights = pd.DataFrame({"vertex": list(seeds), "weight": list(seeds.values())})
    for personalization in (seeds, weights):
        ranking = liverank.pagerank(
            pd.DataFrame(COLUMNS), personalization=personalization, target_error=1e-9
        )
        check(ranking, nx.DiGraph(PAIRS), personalization=seeds)


def test_options_are_those_of_the_engine() -> None:
    graph = nx.DiGraph(PAIRS)
    graph.add_edges_from((vertex, vertex) for vertex in "abcde")
    ranking = liverank.pagerank(PAIRS, damping=0.5, dangling="self-loop", target_error=1e-9)
    check(ranking, graph, alpha=0.5)
    rough = liverank.pagerank(nx.gnp_random_graph(200, 0.05, seed=1), max_iterations=1)
    assert not rough.converged
    assert rough.error_bound > 1e-6
    with pytest.raises(InvalidValue, match="damping"):
        liverank.pagerank(PAIRS, damping=2)


def test_a_graph_without_vertices_has_no_ranks() -> None:
    inputs: list[Any] = [[], nx.DiGraph(), pa.table({"source": [], "target": []})]
    for empty in inputs:
        assert liverank.pagerank(empty).to_dict() == {}


def test_ranks_become_frames_without_a_copy() -> None:
    ranking = liverank.pagerank(pa.table(COLUMNS))
    table = ranking.to_arrow()
    address = ranking.ranks.ctypes.data
    assert table["rank"].chunk(0).buffers()[1].address == address
    assert ranking.to_polars()["rank"].to_numpy().ctypes.data == address
    assert pl.DataFrame(ranking).equals(ranking.to_polars())
    assert list(ranking.to_pandas().columns) == ["vertex", "rank"]
    assert duckdb.connect().execute("SELECT count(*) FROM ranking").fetchall() == [(5,)]
    assert pa.table(ranking).equals(table)
    assert ranking.to_pandas().set_index("vertex")["rank"].to_dict() == ranking.to_dict()


@pytest.mark.parametrize(
    ("edges", "options", "message"),
    [
        (5, {}, "edges: expected pairs, a frame, a sparse matrix or a graph, got int"),
        ("ab", {}, "edges: expected pairs, a frame, a sparse matrix or a graph, got str"),
        ([("a", "b", "c")], {}, r"edges: edge 0: expected a pair, got \('a', 'b', 'c'\)"),
        (["ab"], {}, "edges: edge 0: expected a pair, got 'ab'"),
        (
            nx.Graph(PAIRS),
            {"directed": True},
            "directed: expected False or None, since the graph is",
        ),
        (PAIRS, {"weight": "w"}, "weight: weighted edges are not supported yet"),
        (np.eye(3), {}, r"expected integers of shape \[edges, 2\], got float64\[3, 3\]"),
        (scipy.sparse.eye_array(3) * 2, {}, "entries of 0 and 1: weighted edges are not supported"),
        (scipy.sparse.eye_array(3, 4), {}, r"expected a square matrix, got shape \(3, 4\)"),
        (pa.table({"a": [1], "b": [1], "c": [1]}), {}, "name the columns .* they are: a, b, c"),
        (pa.table({"a": [1]}), {"source": "x"}, "source: expected a column 'x', got a"),
        (pa.table({"a": [1.5], "b": [1]}), {}, "a: expected a column of strings or integers, got"),
        (pa.table({"a": [1, None], "b": [1, 2]}), {}, "a: row 1: expected a key, got null"),
        (pa.table({"a": ["x"], "b": [1]}), {}, "b: expected the type of the keys in a, string"),
        (pd.DataFrame({"a": [object()], "b": [1]}), {}, "edges: the frame cannot be read"),
        (PAIRS, {"personalization": {"z": 1}}, "personalization: 'z' is not a vertex"),
        (PAIRS, {"personalization": ["a"]}, "expected a mapping or a frame, got list"),
    ],
)
def test_what_cannot_be_used_is_named(edges: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        liverank.pagerank(edges, **options)
