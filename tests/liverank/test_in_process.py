"""liverank.pagerank: every kind of input, compared with NetworkX."""

from __future__ import annotations

import inspect
import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path
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
from liverank import InvalidInput, NotConverged
from liverank.client.responses import RankList

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
def test_undirected_edges_are_followed_either_way(kind: str) -> None:
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
    assert (ranking.edges, ranking.duplicates) == (4, 0)


def test_an_undirected_edge_that_is_named_either_way_is_a_duplicate() -> None:
    ranking = liverank.pagerank([*PAIRS, PAIRS[0][::-1]], directed=False, target_error=1e-9)
    check(ranking, nx.Graph(PAIRS))
    assert (ranking.edges, ranking.duplicates) == (5, 1)


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


def test_the_columns_may_be_named_by_place() -> None:
    frame = pd.DataFrame({"year": 1843, "from": COLUMNS["source"], "to": COLUMNS["target"]})
    ranking = liverank.pagerank(frame, "from", "to")
    assert ranking.to_dict() == liverank.pagerank(PAIRS).to_dict()


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("alpha", "damping"),
        ("max_iter", "max_iterations"),
        ("tol", "target_error"),
        ("weights", "weight"),
    ],
)
def test_names_of_other_libraries_are_answered_with_ours(name: str, own: str) -> None:
    options: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError, match=rf"pagerank\(\) has no argument '{name}': .* '{own}'$"):
        liverank.pagerank(PAIRS, **options)
    assert own in inspect.signature(liverank.pagerank).parameters


def test_a_damping_by_place_as_in_networkx_is_refused() -> None:
    place: Any = 0.5
    with pytest.raises(InvalidInput, match=r"source: expected the name of a column, got 0\.5;"):
        liverank.pagerank(nx.DiGraph(PAIRS), place)
    columns: Any = pd.DataFrame(COLUMNS)
    with pytest.raises(InvalidInput, match=r"got Series; .* columns as a pair or in one frame"):
        liverank.pagerank(columns["source"], columns["target"])


def test_a_warning_is_of_the_line_that_calls() -> None:
    with pytest.warns(NotConverged) as warned:
        liverank.pagerank(PAIRS, max_iterations=1)
    assert warned[0].filename == __file__


def test_options_are_those_of_the_engine() -> None:
    graph = nx.DiGraph(PAIRS)
    graph.add_edges_from((vertex, vertex) for vertex in "abcde")
    ranking = liverank.pagerank(PAIRS, damping=0.5, dangling="self-loop", target_error=1e-9)
    check(ranking, graph, alpha=0.5)


@pytest.mark.parametrize("seeds", [None, {0: 1.0}])
def test_too_few_iterations_are_told(seeds: dict[int, float] | None) -> None:
    graph = nx.gnp_random_graph(200, 0.05, seed=1)
    few: dict[str, Any] = {"max_iterations": 1, "damping": 0.99, "personalization": seeds}
    with pytest.warns(NotConverged, match=r"target_error is 1\.0e-06") as told:
        rough = liverank.pagerank(graph, **few)
    assert told[0].filename == __file__
    assert not rough.converged
    assert rough.error_bound > 1e-6
    with pytest.raises(NotConverged) as raised:
        liverank.pagerank(graph, **few, unconverged="raise")
    assert raised.value.error_bound == rough.error_bound
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not liverank.pagerank(graph, **few, unconverged="ignore").converged
        assert liverank.pagerank(graph).converged


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"damping": 2}, "damping: expected a number above 0 and below 1, got 2"),
        ({"target_error": float("nan")}, "target_error: expected .*, got nan"),
        ({"unconverged": "no"}, "unconverged: expected 'warn', 'raise' or 'ignore', got 'no'"),
        ({"backend": "tpu"}, "backend: expected 'auto', 'cpu', 'cuda' or 'reference', got 'tpu'"),
    ],
)
def test_options_that_cannot_be_used_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        liverank.pagerank(PAIRS, **options)


def test_a_graph_without_vertices_has_no_ranks() -> None:
    inputs: list[Any] = [[], nx.DiGraph(), pa.table({"source": [], "target": []})]
    for empty in inputs:
        assert liverank.pagerank(empty).to_dict() == {}
        assert liverank.pagerank(empty, directed=False).to_dict() == {}


@pytest.mark.parametrize("kind", ["mapping", "arrow", "pandas", "polars", "networkx", "igraph"])
def test_a_weighted_undirected_graph_without_edges_has_no_ranks(kind: str) -> None:
    columns: Any = {
        "source": pa.array([], "string"),
        "target": pa.array([], "string"),
        "w": pa.array([], "double"),
    }
    table, edgeless = pa.table(columns), igraph.Graph()
    edgeless.es["w"] = []
    inputs = {
        "mapping": columns,
        "arrow": table,
        "pandas": table.to_pandas(),
        "polars": pl.DataFrame(table),
        "networkx": nx.Graph(),
        "igraph": edgeless,
    }
    ranking = liverank.pagerank(inputs[kind], weight="w", directed=False)
    assert (ranking.to_dict(), ranking.edges) == ({}, 0)


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
        (
            "edges.parquet",
            {"source": "a", "target": "b"},
            "edges: expected pairs, a frame, a sparse matrix or a graph, got 'edges.parquet': "
            "read a file first, as by pandas.read_parquet",
        ),
        (Path("edges.csv"), {}, r"got PosixPath\('edges.csv'\): read a file first"),
        (
            [("a", "b", "c")],
            {},
            r"edges: edge 0: expected a number as weight, got \('a'",
        ),
        ([("a", "b"), ("a", "b", 1)], {}, r"edges: edge 1: expected a pair, got \('a', 'b', 1\)"),
        ([("a", "b", 1), ("a", "b")], {}, r"edges: edge 1: expected \(source, target, weight\)"),
        (["ab"], {}, "edges: edge 0: expected a pair, got 'ab'"),
        (
            nx.Graph(PAIRS),
            {"directed": True},
            "directed: expected False or None, since the graph is",
        ),
        (PAIRS, {"weight": "w"}, "weight: expected None, since pairs have no columns"),
        (np.array(NUMBERS), {"weight": "w"}, "weight: expected None, since pairs have no columns"),
        (pa.table(COLUMNS), {"weight": "w"}, "weight: expected a column 'w', got source, target"),
        (
            pa.table({**COLUMNS, "w": ["heavy"] * 5}),
            {"weight": "w"},
            "w: expected a column of numbers, got string",
        ),
        (
            pa.table({**COLUMNS, "w": [1.0, None, 1.0, 1.0, 1.0]}),
            {"weight": "w"},
            "w: row 1: expected a weight, got null",
        ),
        (scipy.sparse.eye_array(3), {"weight": "w"}, "weight: expected 'data', the entries of the"),
        (igraph.Graph([(0, 1)]), {"weight": "w"}, "expected an attribute of edges, got 'w'; they"),
        (nx.Graph(PAIRS), {"source": "a"}, "source: .* only frames have columns, got 'a'"),
        (PAIRS, {"target": "a"}, "target: expected None, since only frames have columns, got 'a'"),
        (pd.DataFrame(COLUMNS), {"source": "target"}, "target: expected another column than"),
        (
            pd.DataFrame(COLUMNS),
            {"source": "source", "target": "target", "weight": "target"},
            "target: expected a column of numbers, got ",
        ),
        (np.eye(3), {}, r"expected integers of shape \[edges, 2\], got float64\[3, 3\]"),
        (scipy.sparse.eye_array(3) * 2, {}, "expected entries of 0 and 1, or weight='data'"),
        (scipy.sparse.eye_array(3, 4), {}, r"expected a square matrix, got shape \(3, 4\)"),
        (pa.table({"a": [1], "b": [1], "c": [1]}), {}, "name the columns .* they are: a, b, c"),
        (pa.table({"a": [1]}), {"source": "x"}, "source: expected a column 'x', got a"),
        (
            pa.table({"a": [1.5], "b": [1]}),
            {},
            r"a: expected a column of strings or integers below 2\*\*63, got",
        ),
        (pa.table({"a": [1, None], "b": [1, 2]}), {}, "a: row 1: expected a key, got null"),
        (pa.table({"a": ["x"], "b": [1]}), {}, "b: expected the type of the keys in a, string"),
        (pd.DataFrame({"a": [object()], "b": [1]}), {}, "edges: the frame cannot be read"),
        ([("a", "b"), ("a", None)], {}, r"edges: edge 1: expected two keys, got \('a', None\)"),
        (PAIRS, {"personalization": {"z": 1}}, "personalization: 'z' is not a vertex"),
        (PAIRS, {"personalization": {"a": -1}}, "that is not negative for 'a', got -1"),
        (PAIRS, {"personalization": {"a": float("nan")}}, "for 'a', got nan"),
        (PAIRS, {"personalization": {"a": "1"}}, "for 'a', got '1'"),
        (PAIRS, {"personalization": {"a": 0}}, "above 0 for one vertex at least"),
        (PAIRS, {"personalization": ["a"]}, "expected a mapping or a frame, got list"),
    ],
)
def test_what_cannot_be_used_is_named(edges: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        liverank.pagerank(edges, **options)


def test_the_top_has_no_negative_number_of_places() -> None:
    ranking = liverank.pagerank(PAIRS, backend="cpu")
    assert ranking.top(0) == {}
    with pytest.raises(InvalidInput, match="k: expected a number of at least 0, got -1"):
        ranking.top(-1)


TRIPLES = [("a", "b", 2.0), ("b", "c", 0.5), ("c", "a", 1.0), ("d", "a", 7.0), ("a", "e", 0.125)]
WEIGHTED = {
    "source": [one for one, _, _ in TRIPLES],
    "target": [two for _, two, _ in TRIPLES],
    "w": [weight for *_, weight in TRIPLES],
}


def weighted_graph(kind: type[nx.Graph] = nx.DiGraph, edges: Any = None) -> nx.Graph:
    graph = kind()
    graph.add_weighted_edges_from(TRIPLES if edges is None else edges, weight="w")
    return graph


WEIGHTED_INPUTS: dict[str, Any] = {
    "mapping": lambda: WEIGHTED,
    "pandas": lambda: pd.DataFrame({**WEIGHTED, "other": [object()] * 5}),
    "pandas, integers": lambda: pd.DataFrame(WEIGHTED).assign(w=lambda frame: frame.w * 8),
    "polars": lambda: pl.DataFrame(WEIGHTED),
    "arrow": lambda: pa.table(WEIGHTED),
    "arrow, chunks": lambda: pa.concat_tables([pa.table(WEIGHTED)[:2], pa.table(WEIGHTED)[2:]]),
    "duckdb": lambda: duckdb.connect().sql(
        "SELECT * FROM (VALUES " + str(TRIPLES)[1:-1] + ") AS t(source, target, w)"
    ),
    "interchange": lambda: Interchange(pa.table(WEIGHTED)),
    "networkx": lambda: weighted_graph(),
    "igraph": lambda: igraph.Graph.TupleList(TRIPLES, directed=True, edge_attrs=["w"]),
}


@pytest.mark.parametrize("kind", WEIGHTED_INPUTS)
def test_weights_are_read_from(kind: str) -> None:
    names: dict[str, Any] = (
        {"source": "source", "target": "target"} if kind.startswith("pandas") else {}
    )
    ranking = liverank.pagerank(
        WEIGHTED_INPUTS[kind](), **names, weight="w", target_error=1e-9, backend="cpu"
    )
    check(ranking, weighted_graph(), weight="w")


def test_triples_have_weights() -> None:
    check(liverank.pagerank(TRIPLES, target_error=1e-9), weighted_graph(), weight="w")
    repeated = liverank.pagerank([("a", "b", 9.0), *TRIPLES], target_error=1e-9)
    check(repeated, weighted_graph(), weight="w")
    assert (repeated.edges, repeated.duplicates) == (5, 1)


@pytest.mark.parametrize("layout", ["csr", "coo"])
def test_the_entries_of_a_matrix_are_weights(layout: str) -> None:
    matrix = scipy.sparse.random_array((40, 40), density=0.05, rng=3, format=layout)
    matrix = (matrix.astype(np.float32)).astype(np.float64)
    graph = nx.from_scipy_sparse_array(matrix, create_using=nx.DiGraph)
    check(liverank.pagerank(matrix, weight="data", target_error=1e-9), graph, weight="weight")
    repeated = scipy.sparse.coo_array(([1, 2, 1.0], ([0, 0, 1], [1, 1, 0])), (2, 2))
    summed = weighted_graph(edges=[(0, 1, 3.0), (1, 0, 1.0)])
    check(liverank.pagerank(repeated, weight="data", target_error=1e-9), summed, weight="w")


@pytest.mark.parametrize("kind", ["networkx", "igraph", "pairs", "arrow", "sparse"])
def test_weighted_edges_are_followed_either_way(kind: str) -> None:
    rows = [(0, 1, 2.0), (1, 2, 0.5), (3, 3, 4.0), (1, 4, 8.0), (1, 0, 3.0)]
    sources, targets, weights = (list(column) for column in zip(*rows, strict=True))
    undirected = weighted_graph(nx.Graph, rows)  # the last weight of an edge counts
    distinct = list(undirected.edges(data="w"))
    upper = tuple(zip(*((one, two) for one, two, _ in distinct), strict=True))
    given: dict[str, tuple[Any, bool | None, str | None]] = {
        "networkx": (undirected, None, "w"),
        "igraph": (igraph.Graph.from_networkx(undirected), None, "w"),
        "pairs": (rows, False, None),
        "arrow": (pa.table({"source": sources, "target": targets, "w": weights}), False, "w"),
        "sparse": (
            scipy.sparse.coo_array(([weight for *_, weight in distinct], upper), (5, 5)),
            False,
            "data",
        ),
    }
    data, directed, weight = given[kind]
    ranking = liverank.pagerank(data, directed=directed, weight=weight, target_error=1e-9)
    exact = expected(undirected, weight="w")
    found = ranking.to_dict()
    if kind == "igraph":
        found = {int(graph_key): rank for graph_key, rank in found.items()}
        names = igraph.Graph.from_networkx(undirected).vs["_nx_name"]
        found = {names[key]: rank for key, rank in found.items()}
    assert sum(abs(found[vertex] - exact[vertex]) for vertex in exact) < 1e-8
    assert ranking.edges == 4


@pytest.mark.parametrize("kind", ["networkx", "igraph"])
def test_the_weights_of_parallel_edges_of_a_graph_add_up(kind: str) -> None:
    rows = [(0, 1, 2.0), (0, 1, 3.0), (1, 0, 1.0), (0, 2, 1.0)]
    graph = weighted_graph(nx.MultiDiGraph, rows)
    data: Any = graph
    if kind == "igraph":
        data = igraph.Graph([row[:2] for row in rows], directed=True)
        data.es["w"] = [row[2] for row in rows]
    check(liverank.pagerank(data, weight="w", target_error=1e-9), graph, weight="w")


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_a_graph_of_networkx_has_the_weights_that_it_has_there(kind: type[nx.Graph]) -> None:
    rows = [(0, 1, 2.0), (0, 1, 3.0), (1, 0, 1.0), (0, 2, 8.0), (2, 2, 4.0), (1, 3, 0.0)]
    graph = kind()
    graph.add_weighted_edges_from(rows)
    graph.add_edge(2, 0)  # counts 1
    check(liverank.pagerank(graph, target_error=1e-9), graph)
    check(liverank.pagerank(graph, weight="weight", target_error=1e-9), graph)
    check(liverank.pagerank(graph, weight=None, target_error=1e-9), graph, weight=None)
    check(liverank.pagerank(graph, weight="w", target_error=1e-9), graph, weight=None)
    graph.add_edge(0, 3, weight=-1.0)
    with pytest.raises(InvalidInput, match=r"expected a finite number above 0.*, got -1\.0"):
        liverank.pagerank(graph)
    graph.add_edge(0, 3, weight="heavy")
    with pytest.raises(InvalidInput, match="expected a number as weight"):
        liverank.pagerank(graph)


def test_the_karate_club_is_ranked_as_by_networkx() -> None:
    graph = nx.karate_club_graph()
    check(liverank.pagerank(graph, target_error=1e-9), graph)


def test_the_weights_of_a_graph_may_be_as_small_as_those_of_networkx() -> None:
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([(0, 1, 3e-200), (0, 2, 1e-200), (1, 0, 1e-190), (2, 0, 1e-200)])
    found, exact = liverank.pagerank(graph).to_dict(), expected(graph)
    assert sum(abs(found[vertex] - exact[vertex]) for vertex in exact) < 2e-6
    graph.add_edge(0, 2, weight=1.0)
    with pytest.raises(InvalidInput, match=r"expected a finite number above 0.*, got 3e-200"):
        liverank.pagerank(graph)


WITH_WEIGHT = {**COLUMNS, "weight": [1.0, 2.0, 3.0, 4.0, 5.0]}


@pytest.mark.parametrize(
    ("edges", "ends"),
    [
        (WITH_WEIGHT, {}),
        (pd.DataFrame(WITH_WEIGHT), {}),
        (pd.DataFrame(WITH_WEIGHT), {"source": "source", "target": "target"}),
        (pl.DataFrame(WITH_WEIGHT), {"source": "source", "target": "target"}),
        (pa.table(WITH_WEIGHT), {}),
        (Interchange(pa.table(WITH_WEIGHT)), {}),
        (igraph.Graph.DataFrame(pd.DataFrame(WITH_WEIGHT), use_vids=False), None),
    ],
    ids=["mapping", "pandas", "pandas, named", "polars", "arrow", "interchange", "igraph"],
)
def test_weights_that_are_not_used_are_said_once(edges: Any, ends: dict[str, str] | None) -> None:
    named: dict[str, Any] = ends or {}
    weighted = nx.DiGraph()
    weighted.add_weighted_edges_from(zip(*WITH_WEIGHT.values(), strict=True))
    said = "'weight' is not used: weight='weight' ranks by it, weight=None without it"
    with pytest.warns(liverank.UnusedWeights, match=f"^{said}$") as issued:
        ranking = liverank.pagerank(edges, **named, target_error=1e-9)
    check(ranking, nx.DiGraph(PAIRS))
    assert [each.filename for each in issued] == [__file__]
    check(liverank.pagerank(edges, **named, weight=None, target_error=1e-9), nx.DiGraph(PAIRS))
    check(liverank.pagerank(edges, **named, weight="weight", target_error=1e-9), weighted)


def test_an_end_that_is_called_weight_is_used() -> None:
    edges = {"item": COLUMNS["source"], "weight": COLUMNS["target"]}
    check(liverank.pagerank(edges, target_error=1e-9), nx.DiGraph(PAIRS))


@pytest.mark.parametrize("kind", [nx.MultiGraph, nx.MultiDiGraph])
@pytest.mark.parametrize("weight", [{}, {"weight": None}])
def test_each_of_parallel_edges_of_networkx_counts(
    kind: type[nx.Graph], weight: dict[str, Any]
) -> None:
    graph = kind([(0, 1), (0, 1), (0, 2), (1, 0), (2, 0), (2, 2)])
    ranking = liverank.pagerank(graph, target_error=1e-9, **weight)
    check(ranking, graph)
    assert (ranking.edges, ranking.duplicates) == (len(set(graph.edges())), 0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_parallel_edges_and_loops_of_igraph_count_as_there(directed: bool, weighted: bool) -> None:
    graph = igraph.Graph([(0, 1), (1, 0), (0, 2), (2, 2), (2, 3), (3, 0)], directed=directed)
    options: dict[str, Any] = {"weight": "w"} if weighted else {}
    graph.es["w"] = [1.0, 2.0, 4.0, 0.5, 0.0, 3.0]
    exact = graph.pagerank(weights="w" if weighted else None)
    found = liverank.pagerank(graph, target_error=1e-12, **options).ranks
    assert np.abs(found - exact).sum() < 1e-9


def test_a_pool_of_forked_processes_ranks() -> None:
    program = """
import multiprocessing
import numpy as np
import liverank

def rank(seed):
    edges = np.random.default_rng(seed).integers(0, 20_000, (100_000, 2))
    return liverank.pagerank(edges, backend="cpu").top(3)

here = [rank(seed) for seed in range(3)]
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(rank, range(3)) == here == [rank(seed) for seed in range(3)])
"""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.stdout == "True\n"


@pytest.mark.parametrize("wrong", [0.0, -1.0, 1e-40])
def test_a_wrong_weight_is_named(wrong: float) -> None:
    message = rf"weights\[1\]: expected a finite number above 0.*, got {wrong}"
    with pytest.raises(InvalidInput, match=message):
        liverank.pagerank([("a", "b", 1.0), ("b", "c", wrong)])


@pytest.mark.parametrize("edges", [PAIRS, pa.table(COLUMNS), nx.DiGraph(PAIRS)])
def test_a_ranking_is_shown_by_its_first_places(edges: Any) -> None:
    assert re.fullmatch(
        r"<Ranking vertices=5 edges=5 error_bound=\d\.\de-\d\d "
        r"top=\{'a': 0\.3132, 'c': 0\.2304, 'b': 0\.1965, …\}>",
        repr(liverank.pagerank(edges)),
    )
    empty = repr(liverank.pagerank([]))
    assert empty == "<Ranking vertices=0 edges=0 error_bound=0.0e+00 top={}>"


@pytest.mark.parametrize("edges", [PAIRS, pa.table(COLUMNS), nx.DiGraph(PAIRS)])
def test_a_ranking_has_the_rank_of_a_vertex(edges: Any) -> None:
    ranking = liverank.pagerank(edges)
    assert {vertex: ranking[vertex] for vertex in "abcde"} == ranking.to_dict() == dict(ranking)
    assert ("a" in ranking, "x" in ranking, len(ranking)) == (True, False, 5)
    with pytest.raises(KeyError, match="x"):
        ranking["x"]
    assert pickle.loads(pickle.dumps(ranking))["a"] == ranking["a"]


def test_a_notebook_shows_the_first_places() -> None:
    star = liverank.pagerank([(f"<{leaf}>", "&") for leaf in range(12)])
    shown = star._repr_html_()
    assert shown.count("<tr>") == 1 + 10 + 1
    assert f"<tbody><tr><td>&amp;</td><td>{star['&']:.6g}</td></tr>" in shown
    assert "<td>&lt;0&gt;</td>" in shown
    assert "<td>… 3 more</td>" in shown
    assert f"<p>13 ranks, error bound {star.error_bound:.1e}</p>" in shown


SERIES = (["ada", "alan"], ["grace", "grace"])


@pytest.mark.parametrize(
    "edges",
    [
        tuple(map(pd.Series, SERIES)),
        tuple(map(pl.Series, SERIES)),
        tuple(map(np.array, SERIES)),
        pd.MultiIndex.from_arrays(SERIES),
        tuple(map(pa.array, SERIES)),
        pl.LazyFrame({"source": SERIES[0], "target": SERIES[1]}),
        [{"source": "ada", "target": "grace"}, {"source": "alan", "target": "grace"}],
    ],
    ids=["pandas", "Polars", "NumPy", "rows", "Arrow", "lazy", "mappings"],
)
def test_what_people_type_is_understood(edges: Any) -> None:
    expected = liverank.pagerank(list(zip(*SERIES, strict=True))).to_dict()
    assert liverank.pagerank(edges).to_dict() == pytest.approx(expected)


@pytest.mark.parametrize(
    "names", [("target", "source"), ("to", "from"), ("dst", "src"), ("To_ID", "row", "From_ID")]
)
def test_ends_are_columns_by_their_names_not_their_places(names: tuple[str, ...]) -> None:
    sources, targets = SERIES
    columns = [targets, [1.0] * len(sources), sources] if len(names) == 3 else [targets, sources]
    found = liverank.pagerank(pa.table(dict(zip(names, columns, strict=True))))
    expected = liverank.pagerank(list(zip(*SERIES, strict=True))).to_dict()
    assert found.to_dict() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (
            np.zeros((2, 5), np.int64),
            r"got int64\[2, 5\]; of rows sources and targets, give edges.T",
        ),
        ((np.arange(3), np.arange(2)), "expected as many sources as targets, got 3 and 2"),
        ([{"source": 1, "target": 2}, {"source": 1}], "edge 1: expected members source, target"),
        # two columns, or two edges
        ([np.array([0, 1]), np.array([5, 6])], "edge 0"),
        (np.array(5), r"got int64\[\]$"),
        (np.zeros((2, 2)), r"got float64\[2, 2\]$"),
    ],
)
def test_what_nearly_is_is_refused_with_what_to_do(edges: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        liverank.pagerank(edges)


def test_a_ranking_is_plotted() -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="it is the extra `plot`")
    matplotlib.use("Agg")
    axes = liverank.pagerank([("ada", "grace"), ("alan", "grace")]).plot(k=2)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["grace", "ada"]
    assert len(axes.patches) == 2
    asked = RankList(1, 0, 0.0, [0.1, None, 0.9], ["low", "unknown", "high"])
    assert [label.get_text() for label in asked.plot().get_yticklabels()] == ["high", "low"]
    matplotlib.pyplot.close("all")
