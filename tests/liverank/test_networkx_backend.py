"""The backend of NetworkX: its results, what it refuses, its cache, and NetworkX's own tests."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import networkx as nx
import pytest

from liverank import networkx_backend as backend
from liverank_gpu import Engine


@pytest.fixture(autouse=True)
def without_the_warning_about_the_cache() -> Iterator[None]:
    ignored = set(nx.config.warnings_to_ignore)
    nx.config.warnings_to_ignore = ignored | {"cache"}
    yield
    nx.config.warnings_to_ignore = ignored


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """The engines that were made."""
    made: list[Engine] = []
    original = Engine.__init__

    def remember(self: Engine, *args: Any, **kwargs: Any) -> None:
        made.append(self)
        original(self, *args, **kwargs)

    monkeypatch.setattr(Engine, "__init__", remember)
    return made


def graph(seed: int = 1) -> nx.DiGraph:
    return nx.gnp_random_graph(60, 0.05, seed=seed, directed=True)


def ours(given: nx.Graph, **options: Any) -> dict[Any, float]:
    ranks: dict[Any, float] = nx.pagerank(given, **options, backend="liverank")
    return ranks


def check(given: nx.Graph, **options: Any) -> None:
    found = ours(given, tol=1e-10, **options)
    exact = nx.pagerank(given, tol=1e-15, max_iter=2_000, **options, backend="networkx")
    assert list(found) == list(exact)
    assert sum(abs(found[node] - exact[node]) for node in exact) <= 1e-9
    assert {type(value) for value in found.values()} <= {float}


@pytest.mark.parametrize(
    "given",
    [
        graph(),
        graph().to_undirected(),
        nx.MultiDiGraph([("a", "b"), ("b", (1, 2)), ("c", "c")]),
        nx.MultiGraph([(0, 1), (1, 2), (2, 2)]),
        nx.empty_graph(3),
        nx.DiGraph(),
    ],
    ids=["directed", "undirected", "multi-directed", "multi", "no edges", "empty"],
)
def test_ranks_are_those_of_networkx(given: nx.Graph) -> None:
    check(given)
    if len(given) > 2:
        check(given, alpha=0.6, personalization=dict.fromkeys(list(given)[:2], 3))


def weigh(given: nx.Graph, seed: int) -> nx.Graph:
    """Gives every edge a weight that single precision can hold."""
    generator = random.Random(seed)
    for *_, attributes in given.edges(data=True):
        attributes["weight"] = generator.randrange(1, 1 << 20) / 16
    return given


@pytest.mark.parametrize(
    "given",
    [
        weigh(graph(), 1),
        weigh(graph().to_undirected(), 2),
        weigh(nx.MultiDiGraph([("a", "b"), ("a", "b"), ("b", "a"), ("c", "c"), ("c", "a")]), 3),
        weigh(nx.MultiGraph([(0, 1), (1, 2), (2, 2), (1, 0), (2, 2)]), 4),
        nx.MultiDiGraph([(0, 1), (0, 1), (0, 2), (2, 0)]),
    ],
    ids=["directed", "undirected", "multi-directed", "multi", "parallel without weights"],
)
def test_ranks_of_weighted_graphs_are_those_of_networkx(given: nx.Graph) -> None:
    check(given)
    check(given, alpha=0.6, personalization=dict.fromkeys(list(given)[:2], 3))
    check(given, weight=None)
    check(given, weight="another attribute")


def test_edges_of_weight_zero_are_none_and_negative_weights_are_refused() -> None:
    given = nx.DiGraph([(0, 1, {"weight": 2.5}), (1, 2, {"weight": 2.5}), (2, 1, {"weight": 0.0})])
    check(given)
    given.add_edge(2, 0, weight=1.0)
    check(given)
    for weight in (-1.0, float("nan"), float("inf")):
        given.add_edge(2, 0, weight=weight)
        with pytest.raises(NotImplementedError) as refused:
            ours(given)
        expected = "expected weights that are finite and not negative"
        assert str(refused.value.__cause__) == expected


def test_weights_beyond_single_precision_are_scaled() -> None:
    given = nx.DiGraph()
    given.add_weighted_edges_from([(0, 1, 3e200), (0, 2, 1e200), (1, 0, 1e190), (2, 0, 1e200)])
    found, exact = ours(given), nx.pagerank(given, tol=1e-12, max_iter=1000, backend="networkx")
    assert sum(abs(found[node] - exact[node]) for node in exact) < 2e-6
    given.add_edge(1, 2, weight=1e-200)
    with pytest.raises(NotImplementedError) as refused:
        ours(given)
    assert "are too far apart" in str(refused.value.__cause__)


def decimal(given: nx.Graph, seed: int) -> nx.Graph:
    """Gives every edge a weight that single precision cannot hold."""
    generator = random.Random(seed)
    for *_, attributes in given.edges(data=True):
        attributes["weight"] = generator.randrange(1, 100) / 10 + 0.01
    return given


@pytest.mark.parametrize("tol", [1e-6, 1e-15])
@pytest.mark.parametrize(
    "given",
    [
        nx.DiGraph([(0, 1, {"weight": 0.1}), (0, 2, {"weight": 0.3}), (1, 0), (2, 0)]),
        decimal(graph(), 8),
        decimal(graph().to_undirected(), 9),
        decimal(nx.MultiDiGraph([(0, 1), (0, 1), (1, 0), (2, 2), (2, 0)]), 10),
        decimal(nx.star_graph(3_000), 11),
    ],
    ids=["dangling", "directed", "undirected", "multi-directed", "star"],
)
@pytest.mark.parametrize(
    "options", [{}, {"alpha": 0.5}, {"personalization": {0: 2, 1: 1}}], ids=str
)
def test_weights_are_used_in_double_precision(
    given: nx.Graph, tol: float, options: dict[str, Any]
) -> None:
    exact = nx.pagerank(given, tol=1e-15, max_iter=2_000, **options, backend="networkx")
    found = ours(given, tol=tol, **options)
    assert sum(abs(found[node] - exact[node]) for node in exact) <= max(tol, 2e-12)


def test_ranks_of_rounded_weights_are_refined_within_max_iter() -> None:
    given = decimal(graph(), 12)
    with pytest.raises(nx.PowerIterationFailedConvergence):
        ours(given, tol=1e-12, max_iter=1)


def test_changed_weights_update_the_graph(engines: list[Engine]) -> None:
    for given in (weigh(graph(), 5), weigh(graph().to_undirected(), 6)):
        engines.clear()
        check(given)
        one, two, three = list(given.edges)[:3]
        given.edges[one]["weight"] *= 2
        given.edges[two]["weight"] /= 4
        given.remove_edge(*three)
        given.add_edge(0, "new", weight=3.0)
        nx._clear_cache(given)
        check(given)
        assert len(engines) == 1
        nx.set_edge_attributes(given, 1.0, "weight")
        nx._clear_cache(given)
        check(given)  # without weights: another engine
        assert len(engines) == 2


def test_arguments_that_are_not_implemented_are_refused() -> None:
    for options in ({"dangling": {0: 1}}, {"alpha": 1.0}):
        with pytest.raises(NotImplementedError):
            ours(graph(), **options)
    reason = backend.can_run("pagerank", (graph(), 0.85, None, 9, 1e-6, None, None, {0: 1}), {})
    assert reason == "dangling: only None and the same as personalization are implemented"


def test_vertices_without_out_edges_may_lead_to_the_personalization() -> None:
    given = graph()
    assert min(dict(given.out_degree()).values()) == 0
    check(given, personalization={0: 2, 1: 1, "unknown": 1}, dangling={1: 1, 0: 2, "unknown": 1})


def test_failures_are_those_of_networkx() -> None:
    for options in ({"max_iter": 0}, {"tol": 0}, {"max_iter": 1}):
        with pytest.raises(nx.PowerIterationFailedConvergence):
            ours(nx.DiGraph([(0, 1), (1, 2), (2, 1)]), **options)
    for personalization in ({0: 0}, {"unknown": 1}):
        with pytest.raises(ZeroDivisionError):
            ours(graph(), personalization=personalization)


def test_small_graphs_are_left_to_networkx() -> None:
    assert backend.should_run("pagerank", (graph(),), {}) == "fewer than 2000 edges"
    large = nx.gnm_random_graph(100, 3_000, seed=1, directed=True)
    assert backend.should_run("pagerank", (), {"G": large}) is True
    with nx.config(backend_priority=["liverank"]):
        assert sum(nx.pagerank(large).values()) == pytest.approx(1)
    assert large in backend._converted


def test_an_unchanged_graph_is_converted_and_loaded_once(engines: list[Engine]) -> None:
    given = graph()
    first = ours(given)
    converted = backend._converted[given]
    assert ours(given) == pytest.approx(first)
    assert backend._converted[given] is converted
    assert len(engines) == 1


def test_the_engines_of_alternating_calls_are_kept(engines: list[Engine]) -> None:
    given = weigh(graph(), 7)
    calls: list[dict[str, Any]] = [{}, {"weight": None}, {"alpha": 0.5}]

    def compare(number: int) -> None:
        exact = nx.pagerank(given, tol=1e-12, **calls[number], backend="networkx")
        assert ours(given, tol=1e-9, **calls[number]) == pytest.approx(exact, abs=1e-8)

    for number in (0, 1, 0, 1, 2, 1, 2):
        compare(number)
    assert len(engines) == 3
    given.add_edge(0, 59, weight=2.0)
    for number in (2, 1, 2):  # both follow the change
        compare(number)
    assert len(engines) == 3
    compare(0)
    assert len(engines) == 4


def test_a_changed_graph_is_updated(engines: list[Engine]) -> None:
    for given in (graph(), graph().to_undirected()):
        engines.clear()
        check(given)
        given.remove_edges_from(list(given.edges)[:5])
        given.add_edges_from([(0, 7), (1, 1), (2, "new")])
        given.add_node("alone")
        check(given)
        assert len(engines) == 1
        given.remove_node(3)
        check(given)  # ids are never freed: a new engine
        assert len(engines) == 2


def test_a_conversion_that_was_kept_does_not_change() -> None:
    given = graph()
    before = backend.convert_from_nx(given)
    ranks = backend.pagerank(before)
    given.add_edge(0, 59)
    given.remove_edge(*next(iter(given.edges)))
    ours(given)
    assert backend.pagerank(before) == pytest.approx(ranks)


def test_threads_may_share_a_graph() -> None:
    """Two of them with different options, and one after a change, while the engines are kept."""
    given = weigh(nx.gnm_random_graph(300, 3_000, seed=13, directed=True), 13)
    for _ in range(5):
        given.add_edge(*random.Random(14).sample(range(300), 2), weight=0.75)
        ours(given)  # NetworkX is not thread-safe where it converts a graph
        options: list[dict[str, Any]] = [{}, {"alpha": 0.6}, {}, {"personalization": {0: 1}}]
        exact = [nx.pagerank(given, tol=1e-13, max_iter=500, **each) for each in options]
        with ThreadPoolExecutor(4) as threads:
            calls = [
                (which, threads.submit(ours, given, tol=1e-9, **options[which]))
                for which in [0, 1, 2, 3] * 10
            ]
            for which, call in calls:
                assert call.result() == pytest.approx(exact[which], abs=1e-8)


def test_a_ranked_graph_can_be_pickled_and_copied(engines: list[Engine]) -> None:
    given = weigh(graph(), 15)
    before = ours(given)
    for again in (pickle.loads(pickle.dumps(given)), copy.deepcopy(given)):
        engines.clear()
        assert ours(again) == pytest.approx(before)
        assert len(engines) == 1
        again.add_edge(0, 59, weight=3.0)
        check(again)
    assert ours(given) == before


class Unhashable(nx.DiGraph):  # type: ignore[misc]
    """A graph with an equality of its own."""

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]


def test_a_graph_without_a_hash_is_ranked_and_not_kept() -> None:
    given, count = Unhashable(graph().edges), len(backend._converted)
    check(given)
    given.add_edge(0, 59)
    check(given)
    assert len(backend._converted) == count


def test_a_view_is_ranked_as_it_was_until_its_cache_is_cleared() -> None:
    given = graph()
    view = given.subgraph(range(30))
    before = ours(view)
    given.remove_edges_from(list(view.edges)[:5])
    assert ours(view) == before  # NetworkX tells the graph of a change, not its views
    nx._clear_cache(view)
    check(view)


def test_a_graph_that_is_gone_is_forgotten() -> None:
    given = graph()
    ours(given)
    gc.collect()
    count = len(backend._converted)
    del given
    gc.collect()
    assert len(backend._converted) == count - 1


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_a_conversion_there_and_back_has_the_same_edges(kind: type[nx.Graph]) -> None:
    given = kind(
        [("a", "b"), ("b", "a"), ("c", "c")] if kind is nx.DiGraph else [("a", "b"), (1, 1)]
    )
    given.add_node("alone")
    back = backend.convert_to_nx(backend.convert_from_nx(given))
    assert type(back) is kind
    assert list(back) == list(given)
    assert sorted(map(str, back.edges())) == sorted(map(str, given.edges()))


def networkx_tests(**environment: str) -> str:
    """What NetworkX's tests of pagerank print when they run on this backend, without a failure."""
    options = ["-q", "-rxsX", "-p", "no:cacheprovider", "-W", "default", "--pyargs"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *options),
            "networkx.algorithms.link_analysis.tests.test_pagerank",
        ],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "NETWORKX_TEST_BACKEND": "liverank", **environment},
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_tests_of_networkx_pass() -> None:
    """All with NetworkX for what is not claimed, and without it all that use what is claimed."""
    assert re.search(r"^\d+ passed in", networkx_tests(NETWORKX_FALLBACK_TO_NX="1"), re.MULTILINE)
    printed = networkx_tests()
    others = re.findall(
        r"^XFAIL .*::(\w+)(?!.*\[pagerank\]).* - '(\w+)' not impl", printed, re.MULTILINE
    )
    assert {name for _, name in others} == NOT_CLAIMED
    unclaimed = re.findall(r"^XFAIL .*::(\w+)\[pagerank\] - (.*)$", printed, re.MULTILINE)
    assert dict(unclaimed) == {
        "test_dangling_pagerank": "'pagerank' not implemented by liverank with the given arguments",
    }
    assert len(re.findall(r"^(XFAIL|SKIPPED|XPASS)", printed, re.MULTILINE)) == len(others) + len(
        unclaimed
    )


NOT_CLAIMED = {"google_matrix", "stochastic_graph", "to_scipy_sparse_array"}
"""Functions of NetworkX that its tests of pagerank call too."""
