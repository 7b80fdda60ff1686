"""The backend of NetworkX: `nx.pagerank(graph, backend="liverank")`.

NetworkX finds this module by its entry points. It keeps the converted graph until the graph
changes; then `convert_from_nx` applies the difference to the engine of the conversion before, so
that ranks follow without a solve from the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from liverank.errors import needs
from liverank.in_process import Ranking, rank

if TYPE_CHECKING:
    import networkx as nx
    import numpy as np
    from numpy.typing import NDArray

    from gpu import EdgeBatch, Engine

    Ids = NDArray[np.int64]

MIN_EDGES = 2_000
"""In a graph with fewer edges, NetworkX is as fast."""

ROUNDING = 1e-12
"""No smaller error is asked for than can be proven in double precision."""


class Graph:
    """A graph as the engine has it. It does not change.

    nodes  by their ids
    edges  int64, sorted: source · 2³² + target of each edge; undirected edges in both directions
    """

    __networkx_backend__ = "liverank"

    def __init__(self, nodes: list[Any], edges: Ids, directed: bool, multigraph: bool) -> None:
        self.nodes = nodes
        self.edges = edges
        self._directed = directed
        self._multigraph = multigraph
        self._engines: dict[tuple[float, float, int], Engine] = {}

    def __len__(self) -> int:
        return len(self.nodes)

    def is_directed(self) -> bool:
        return self._directed

    def is_multigraph(self) -> bool:
        return self._multigraph

    def take_engines(self, previous: Graph) -> None:
        """Takes the engines of the conversion before, and applies what changed since."""
        import numpy as np

        batch = _batch(
            np.setdiff1d(self.edges, previous.edges, assume_unique=True),
            np.setdiff1d(previous.edges, self.edges, assume_unique=True),
            len(self),
        )
        engines, previous._engines = previous._engines, {}
        for engine in engines.values():
            engine.apply(batch)
        self._engines = engines

    def rank(
        self,
        damping: float,
        target_error: float,
        max_iterations: int,
        seeds: Mapping[Any, float] | None,
    ) -> Ranking:
        """The ranks with these options, whose engine is kept for the next call."""
        from gpu import Engine, Options

        key = damping, target_error, max_iterations
        if key not in self._engines:
            options = Options(
                damping=damping, target_error=target_error, max_iterations=max_iterations
            )
            engine = Engine(options)
            engine.apply(_batch(self.edges, self.edges[:0], len(self)))
            self._engines = {key: engine}
        return rank(self._engines[key], self.nodes, seeds)


_converted: WeakKeyDictionary[Any, Graph] = WeakKeyDictionary()
"""The last conversion of each graph that still exists."""


def pagerank(
    G: Graph,  # noqa: N803
    alpha: float = 0.85,
    personalization: Mapping[Any, float] | None = None,
    max_iter: int = 100,
    tol: float = 1.0e-6,
    nstart: Mapping[Any, float] | None = None,  # noqa: ARG001
    weight: str | None = "weight",  # noqa: ARG001
    dangling: Mapping[Any, float] | None = None,
) -> dict[Any, float]:
    """networkx.pagerank. The L1 error is proven to be at most `tol` if `max_iter` sweeps are enough
    for that, and otherwise at most N·tol, at which NetworkX stops. The result does not depend on
    `nstart`; `weight` is the business of the conversion.

    Raises PowerIterationFailedConvergence if that is not reached either.
    """
    import networkx as nx

    assert dangling is None, "can_run"
    if not len(G):
        return {}
    if max_iter < 1 or not tol > 0:
        raise nx.PowerIterationFailedConvergence(max_iter)
    seeds = None
    if personalization is not None:
        known = set(G.nodes) & set(personalization)
        seeds = {node: float(personalization[node]) for node in known if personalization[node]}
        if not seeds:
            raise ZeroDivisionError
    found = G.rank(alpha, min(2.0, max(tol, ROUNDING)), max_iter, seeds)
    if found.error_bound > max(tol * len(G), ROUNDING):
        raise nx.PowerIterationFailedConvergence(max_iter)
    return found.to_dict()


def can_run(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | str:
    """Whether the arguments can be used, or why not."""
    given = _arguments(args, kwargs)
    if name != "pagerank":
        return f"{name} is not implemented"
    if given.get("dangling") is not None:
        return "dangling: only None is implemented"
    alpha = given.get("alpha", 0.85)
    return 0.0 < alpha < 1.0 or "alpha: expected a number above 0 and below 1"


def should_run(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | str:  # noqa: ARG001
    """Whether the graph is large enough to be worth its conversion, or why not."""
    graph = _arguments(args, kwargs)["G"]
    if isinstance(graph, Graph) or graph.number_of_edges() >= MIN_EDGES:
        return True
    return f"fewer than {MIN_EDGES} edges"


def convert_from_nx(graph: Any, *, edge_attrs: Mapping[str, Any] | None = None, **_: Any) -> Graph:
    """Raises NotImplementedError for a graph with weights or parallel edges."""
    if isinstance(graph, Graph):
        return graph
    with needs("networkx"):
        pass  # noqa: F401: checked here for a clear message
    previous = _converted.get(graph)
    kept = previous is not None and all(node in graph for node in previous.nodes)
    nodes = dict.fromkeys(previous.nodes) if previous is not None and kept else {}
    nodes.update(dict.fromkeys(graph))
    names = list(nodes)
    directed, multigraph = graph.is_directed(), graph.is_multigraph()
    converted = Graph(names, _edges_of(graph, names, edge_attrs), directed, multigraph)
    if previous is not None and kept and previous.is_directed() == directed:
        converted.take_engines(previous)
    _converted[graph] = converted
    return converted


def convert_to_nx(result: Any, **_: Any) -> Any:
    """Results other than graphs are those of NetworkX already; a graph loses its attributes."""
    if not isinstance(result, Graph):
        return result
    import networkx as nx

    kinds = {
        (False, False): nx.Graph,
        (True, False): nx.DiGraph,
        (False, True): nx.MultiGraph,
        (True, True): nx.MultiDiGraph,
    }
    graph: nx.Graph = kinds[result.is_directed(), result.is_multigraph()]()
    graph.add_nodes_from(result.nodes)
    sources, targets = (result.edges >> 32).tolist(), (result.edges & 0xFFFF_FFFF).tolist()
    for source, target in zip(sources, targets, strict=True):
        if result.is_directed() or source <= target:
            graph.add_edge(result.nodes[source], result.nodes[target])
    return graph


def get_info() -> dict[str, Any]:
    """What NetworkX shows in its documentation."""
    return {
        "backend_name": "liverank",
        "project": "liverank",
        "package": "liverank",
        "short_summary": "PageRank with a proven error bound, on all cores or on a GPU.",
        "functions": {
            "pagerank": {
                "additional_docs": "Unweighted graphs, with and without personalization. `nstart` "
                "does not matter; `dangling` must be None.",
            }
        },
    }


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = ("G", "alpha", "personalization", "max_iter", "tol", "nstart", "weight", "dangling")
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _edges_of(graph: Any, nodes: list[Any], edge_attrs: Mapping[str, Any] | None) -> Ids:
    import numpy as np

    place = {node: number for number, node in enumerate(nodes)}
    attribute, default = next(iter((edge_attrs or {}).items()), (None, 1))
    found = list(graph.edges(data=attribute, default=default) if attribute else graph.edges())
    weights = {edge[2] for edge in found} if attribute else set()
    if len(weights) > 1 or (weights and not min(weights) > 0):
        raise NotImplementedError("edges of different weights are not supported yet")
    one = np.fromiter((place[edge[0]] for edge in found), np.int64, len(found))
    two = np.fromiter((place[edge[1]] for edge in found), np.int64, len(found))
    edges = one << 32 | two
    if not graph.is_directed():
        edges = np.concatenate([edges, (two << 32 | one)[one != two]])
    distinct = np.unique(edges)
    if len(distinct) < len(edges):
        raise NotImplementedError("parallel edges are not supported yet")
    return distinct


def _batch(insert: Ids, delete: Ids, vertices: int) -> EdgeBatch:
    from gpu import EdgeBatch

    low = 0xFFFF_FFFF
    return EdgeBatch(insert >> 32, insert & low, delete >> 32, delete & low, vertices)
