"""The backend of NetworkX: `nx.pagerank(graph, backend="liverank")`.

NetworkX finds this module by its entry points. It keeps the converted graph until the graph
changes; then `convert_from_nx` applies the difference to the engine of the conversion before, so
that ranks follow without a solve from the start.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from liverank.errors import needs
from liverank.in_process import Ranking, in_range, rank

if TYPE_CHECKING:
    import networkx as nx
    import numpy as np
    from numpy.typing import NDArray

    from liverank_gpu import EdgeBatch, Engine

    Ids = NDArray[np.int64]
    Ranks = NDArray[np.float64]
    Weights = NDArray[np.float64]

MIN_EDGES = 2_000
"""In a graph with fewer edges, NetworkX is as fast."""

ROUNDING = 1e-12
"""No smaller error is asked for than can be proven in double precision."""

WEIGHT_ROUNDING = 2.0**-24
"""The relative error of a weight, which the engine has in single precision."""

KEPT_ENGINES = 2
"""Engines of a graph: calls with two weights or two values of `alpha` may alternate. Each of them
has all edges.
"""


class Edges(NamedTuple):
    """The edges for one attribute.

    keys     int64, sorted: source · 2³² + target of each edge; of an undirected one, the source is
             the lower id
    weights  float64, above 0; None if they are equal
    """

    keys: Ids
    weights: Weights | None

    @property
    def rounding_error(self) -> float:
        """The largest relative error that the weights have in the engine, or 0."""
        exact = self.weights is None or (self.weights.astype("float32") == self.weights).all()
        return 0.0 if exact else WEIGHT_ROUNDING


class Asked(NamedTuple):
    """The options of a call; `weight` is the attribute, None without."""

    weight: str | None
    damping: float
    target_error: float
    max_iterations: int


class Graph:
    """A graph as the engine has it. It does not change, and threads may share it: they take turns
    with its engines.

    nodes  by their ids
    edges  by the attribute that has their weights; None: each of several parallel edges counts one.
           NetworkX also uses a conversion with an attribute for calls without one
    """

    __networkx_backend__ = "liverank"

    def __init__(
        self, nodes: list[Any], edges: dict[str | None, Edges], directed: bool, multigraph: bool
    ) -> None:
        self.nodes = nodes
        self.edges = edges
        self._directed = directed
        self._multigraph = multigraph
        self._engines: dict[Asked, Engine] = {}
        self._turn = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Without engines. NetworkX keeps a conversion in its graph, so it is pickled with that."""
        return {**vars(self), "_engines": {}, "_turn": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _turn=threading.Lock())

    def __len__(self) -> int:
        return len(self.nodes)

    def is_directed(self) -> bool:
        return self._directed

    def is_multigraph(self) -> bool:
        return self._multigraph

    def take_engines(self, previous: Graph) -> None:
        """Takes the engines of the conversion before, and applies what changed since."""
        with previous._turn:
            engines, previous._engines = previous._engines, {}
        for key, engine in engines.items():
            before, now = previous.edges[key.weight], self.edges.get(key.weight)
            if now is None or (before.weights is None) != (now.weights is None):
                continue  # it needs another kind of engine
            engine.apply(self._difference(before, now))
            self._engines[key] = engine

    def rank(self, asked: Asked, seeds: Mapping[Any, float] | None) -> Ranking:
        """The ranks with these options. The engines of the last KEPT_ENGINES options are kept."""
        from liverank_gpu import Engine, Options

        with self._turn:
            engine = self._engines.pop(asked, None)
            if engine is None:
                if len(self._engines) == KEPT_ENGINES:
                    del self._engines[next(iter(self._engines))]  # the least recently used
                edges = self.edges[asked.weight]
                options = Options(
                    damping=asked.damping,
                    target_error=asked.target_error,
                    max_iterations=asked.max_iterations,
                    weighted=edges.weights is not None,
                    directed=self._directed,
                )
                engine = Engine(options, unconverged="ignore")
                engine.apply(self._batch(edges, slice(None), edges.keys[:0]))
            found = rank(engine, self.nodes, seeds)
            self._engines[asked] = engine  # not if that failed: it may be in any state
            return found

    def refine(
        self, ranks: Ranks, asked: Asked, seeds: Mapping[Any, float] | None
    ) -> tuple[Ranks, float]:
        """Continues from ranks of rounded weights, by the power method x → F(x) with the weights in
        double precision, until a bound on the L1 error is at most `target_error`. Returns the ranks
        and the bound: damping · ‖F(x) - x‖₁ / (1 - damping), without the rounding of these sums,
        which is at most 2⁻⁵³ / (1 - damping) for each edge of the longest rows.
        """
        import numpy as np

        edges, size, damping = self.edges[asked.weight], len(self), asked.damping
        sources, targets, weights = edges.keys >> 32, edges.keys & 0xFFFF_FFFF, edges.weights
        assert weights is not None, "there are ranks of rounded weights"
        if not self._directed:
            other = sources != targets
            ends = sources, targets
            sources, targets = (
                np.concatenate([one, two[other]]) for one, two in (ends, ends[::-1])
            )
            weights = np.concatenate([weights, weights[other]])
        restart = np.full(size, 1 / size)
        if seeds is not None:
            restart = np.array([seeds.get(node, 0.0) for node in self.nodes])
            restart /= restart.sum()
        strengths = np.bincount(sources, weights, size)
        shares, dangling = weights / strengths[sources], strengths == 0
        for _ in range(asked.max_iterations):
            before, lost = ranks, ranks[dangling].sum()
            ranks = np.bincount(targets, shares * before[sources], size) + lost * restart
            ranks = damping * ranks + (1 - damping) * restart
            error_bound = damping * float(np.abs(ranks - before).sum()) / (1 - damping)
            if error_bound <= asked.target_error:
                break
        return ranks, error_bound

    def _difference(self, before: Edges, now: Edges) -> EdgeBatch:
        import numpy as np

        _, own, old = np.intersect1d(now.keys, before.keys, True, return_indices=True)
        changed = np.ones(len(now.keys), np.bool_)
        changed[own] = False
        if now.weights is not None and before.weights is not None:
            changed[own] = now.weights[own] != before.weights[old]
        return self._batch(now, changed, np.setdiff1d(before.keys, now.keys, True))

    def _batch(self, edges: Edges, chosen: Any, deleted: Ids) -> EdgeBatch:
        """The batch that inserts the chosen edges."""
        from liverank_gpu import EdgeBatch

        inserted, low = edges.keys[chosen], 0xFFFF_FFFF
        weights = None if edges.weights is None else edges.weights[chosen].astype("float32")
        return EdgeBatch(
            inserted >> 32, inserted & low, deleted >> 32, deleted & low, len(self), weights
        )


_converted: WeakKeyDictionary[Any, Graph] = WeakKeyDictionary()
"""The last conversion of each graph that still exists, and has a hash."""


def pagerank(
    G: Graph,  # noqa: N803
    alpha: float = 0.85,
    personalization: Mapping[Any, float] | None = None,
    max_iter: int = 100,
    tol: float = 1.0e-6,
    nstart: Mapping[Any, float] | None = None,  # noqa: ARG001
    weight: str | None = "weight",
    dangling: Mapping[Any, float] | None = None,
) -> dict[Any, float]:
    """networkx.pagerank. The L1 error is proven to be at most `tol` if `max_iter` sweeps are enough
    for that, and otherwise at most N·tol, at which NetworkX stops. The result does not depend on
    `nstart`.

    Raises PowerIterationFailedConvergence if that is not reached either.
    """
    import networkx as nx

    assert dangling is None or dangling == personalization, "can_run"
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
    weight = weight if weight in G.edges else None  # no edge has it
    # rounding changes each row of the walk by at most twice as much in L1
    rounding_error = 2 * G.edges[weight].rounding_error * alpha / (1 - alpha)
    target_error = min(2.0, max(tol, ROUNDING))
    of_engine = max(target_error - rounding_error, target_error / 16, ROUNDING)
    asked = Asked(weight, alpha, of_engine, max_iter)
    found = G.rank(asked, seeds)
    ranks, error_bound = found.ranks, found.error_bound + rounding_error
    if rounding_error and error_bound > target_error:
        ranks, error_bound = G.refine(ranks, asked._replace(target_error=target_error), seeds)
    if error_bound > max(tol * len(G), ROUNDING):
        raise nx.PowerIterationFailedConvergence(max_iter)
    return dict(zip(G.nodes, ranks.tolist(), strict=True))


def can_run(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | str:
    """Whether the arguments can be used, or why not."""
    given = _arguments(args, kwargs)
    if name != "pagerank":
        return f"{name} is not implemented"
    dangling = given.get("dangling")
    if dangling is not None and dangling != given.get("personalization"):
        return "dangling: only None and the same as personalization are implemented"
    alpha = given.get("alpha", 0.85)
    return 0.0 < alpha < 1.0 or "alpha: expected a number above 0 and below 1"


def should_run(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | str:  # noqa: ARG001
    """Whether the graph is large enough to be worth its conversion, or why not."""
    graph = _arguments(args, kwargs)["G"]
    if isinstance(graph, Graph) or graph.number_of_edges() >= MIN_EDGES:
        return True
    return f"fewer than {MIN_EDGES} edges"


def convert_from_nx(graph: Any, *, edge_attrs: Mapping[str, Any] | None = None, **_: Any) -> Graph:
    """Raises NotImplementedError for weights that are negative, not finite, or too far apart."""
    if isinstance(graph, Graph):
        return graph
    with needs("networkx"):
        import liverank_gpu  # noqa: F401
    hashable = isinstance(graph, Hashable)
    previous = _converted.get(graph) if hashable else None
    if previous is not None and not all(node in graph for node in previous.nodes):
        previous = None
    nodes = {} if previous is None else dict.fromkeys(previous.nodes)
    nodes.update(dict.fromkeys(graph))
    names = list(nodes)
    directed, multigraph = graph.is_directed(), graph.is_multigraph()
    converted = Graph(names, _edges_of(graph, names, edge_attrs), directed, multigraph)
    if previous is not None and previous.is_directed() == directed:
        converted.take_engines(previous)
    if hashable:
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
    keys = result.edges[None].keys
    sources, targets = (keys >> 32).tolist(), (keys & 0xFFFF_FFFF).tolist()
    for source, target in zip(sources, targets, strict=True):
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
                "additional_docs": "With and without weights and personalization. `nstart` does "
                "not matter; `dangling` must be None or equal to `personalization`.",
            }
        },
    }


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = ("G", "alpha", "personalization", "max_iter", "tol", "nstart", "weight", "dangling")
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _edges_of(
    graph: Any, nodes: list[Any], edge_attrs: Mapping[str, Any] | None
) -> dict[str | None, Edges]:
    import numpy as np

    place = {node: number for number, node in enumerate(nodes)}
    attribute, default = next(iter((edge_attrs or {}).items()), (None, 1))
    found = list(graph.edges(data=attribute, default=default) if attribute else graph.edges())
    one = np.fromiter((place[edge[0]] for edge in found), np.int64, len(found))
    two = np.fromiter((place[edge[1]] for edge in found), np.int64, len(found))
    weights: dict[str | None, Weights] = {None: np.ones(len(found))}
    if attribute:
        weights[attribute] = np.fromiter((edge[2] for edge in found), np.float64, len(found))
    if not graph.is_directed():
        one, two = np.minimum(one, two), np.maximum(one, two)
    keys, places = np.unique(one << 32 | two, return_inverse=True)
    return {
        name: _summed(keys, np.bincount(places, given, len(keys)).astype(np.float64))
        for name, given in weights.items()
    }


def _summed(keys: Ids, weights: Weights) -> Edges:
    """The edges, given the sums of the weights of parallel ones. An edge of weight 0 is none.

    Raises NotImplementedError.
    """
    import numpy as np

    from liverank_gpu import LARGEST_WEIGHT, LEAST_WEIGHT

    present = weights != 0
    if not present.all():
        keys, weights = keys[present], weights[present]
    if not len(weights) or weights.min() == weights.max() > 0:
        return Edges(keys, None)
    low, high = weights.min(), weights.max()
    if not low > 0 or not np.isfinite(high):
        raise NotImplementedError("expected weights that are finite and not negative")
    weights = in_range(weights)
    if weights.min() < LEAST_WEIGHT or weights.max() > LARGEST_WEIGHT:
        raise NotImplementedError(f"weights from {low:g} to {high:g} are too far apart")
    return Edges(keys, weights)
