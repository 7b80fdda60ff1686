"""Graph families on which everything is compared, and a model of a graph in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import Change, EdgeBatch, Engine, Options, ShardedEngine, Snapshot, verify
from liverank_gpu.operations.backend import Backend
from liverank_gpu.types import Dangling
from tests.gpu.sharded.threads import ThreadWorkers

Pairs = tuple[int, NDArray[np.int64]]
"""Number of vertices, and int64[m, 2] of (source, target)."""

SHARDS = "shards"
"""The name of a backend whose engines are in shards: see tests/gpu/sharded/suite.py too."""


@dataclass(frozen=True, slots=True)
class InShards(Backend):
    """A backend whose engines, by `engine_on`, are in shards in threads of this process. An Engine
    has none of it: it lacks the operations of graphs.

    of  that of each shard
    """

    of: Backend | None = None
    shards: int = 3

    @property
    def alone(self) -> Backend:
        """That of each shard, on which exchanges cost nothing, so that small graphs are pushed."""
        assert self.of is not None
        own = {name: getattr(self, name) for name in _FIELDS if name not in ("name", "graph")}
        return replace(self.of, **own | {"costs": replace(self.costs, exchange=0.0)})


_FIELDS = [field.name for field in fields(Backend)]


def in_threads(backend: Backend) -> InShards:
    own: dict[str, Any] = {name: getattr(backend, name) for name in _FIELDS}
    return InShards(**own | {"name": SHARDS, "graph": None}, of=backend)


def engine_on(options: Options, backend: Backend) -> Engine:
    """In shards where the backend is, else on one device."""
    if not isinstance(backend, InShards):
        return Engine(options, backend)
    workers = ThreadWorkers(options, backend.shards, backend.alone)
    return ShardedEngine(options, workers=workers)


def _of(graph: nx.DiGraph) -> Pairs:
    return len(graph), np.array(list(graph.edges()), np.int64).reshape(-1, 2)


def random_graph(seed: int) -> Pairs:
    """A graph of 2 to 300 vertices: sparse or dense, skewed or even, with loops and dangling
    vertices."""
    generator = np.random.default_rng(seed)
    vertices = int(generator.integers(2, 300))
    edges = int(vertices * generator.choice([0.3, 1, 3, 10]))
    skew = generator.choice([1.0, 2.0, 4.0])
    pairs = (vertices * generator.random((edges, 2)) ** skew).astype(np.int64)
    return vertices, np.unique(pairs, axis=0)


def _star(leaves: int, inwards: bool) -> Pairs:
    hub = np.zeros(leaves, np.int64)
    tips = np.arange(1, leaves + 1, dtype=np.int64)
    return leaves + 1, np.stack([tips, hub] if inwards else [hub, tips], axis=1)


def _grid(side: int) -> Pairs:
    return _of(nx.convert_node_labels_to_integers(nx.grid_2d_graph(side, side).to_directed()))


FAMILIES: dict[str, Callable[[], Pairs]] = {
    "karate club": lambda: _of(nx.karate_club_graph().to_directed()),
    "all dangling": lambda: (50, np.empty((0, 2), np.int64)),
    "one vertex": lambda: (1, np.empty((0, 2), np.int64)),
    "one loop": lambda: (1, np.zeros((1, 2), np.int64)),
    "two vertices, one edge": lambda: (2, np.array([[0, 1]])),
    "disconnected parts": lambda: _of(
        nx.disjoint_union_all(
            [nx.gnp_random_graph(30, 0.1, seed=s, directed=True) for s in range(4)]
        )
    ),
    "star outwards": lambda: _star(10_000, inwards=False),
    "star inwards": lambda: _star(10_000, inwards=True),
    "3-cycles": lambda: _of(nx.disjoint_union_all([nx.cycle_graph(3, nx.DiGraph)] * 20)),
    "path": lambda: _of(nx.path_graph(200, nx.DiGraph)),
    "grid": lambda: _grid(20),
    "complete": lambda: _of(nx.complete_graph(40, nx.DiGraph)),
    "loops only": lambda: (30, np.repeat(np.arange(30, dtype=np.int64), 2).reshape(-1, 2)),
}


def networkx_ranks(
    pairs: Pairs,
    dangling: Dangling,
    damping: float = 0.85,
    weights: NDArray[np.float32] | None = None,
    personalization: dict[int, float] | None = None,
    directed: bool = True,
) -> NDArray[np.float64]:
    """float64[n] from ``networkx.pagerank``, which multiplies its tolerance by n; of repeats the
    last one counts.

    weights  float32[m], or None for equal ones
    """
    vertices, edges = pairs
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(range(vertices))
    each = np.ones(len(edges)) if weights is None else weights
    graph.add_weighted_edges_from(
        (source, target, weight)
        for (source, target), weight in zip(edges.tolist(), each.tolist(), strict=True)
    )
    if dangling == "self-loop":
        graph.add_weighted_edges_from((v, v, 1.0) for v in range(vertices))
    ranks = nx.pagerank(
        graph, damping, personalization, max_iter=2000, tol=1e-12 / vertices, weight="weight"
    )
    return np.array([ranks[v] for v in range(vertices)])


def arcs_of(engine: Engine) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The edges of an engine as directed ones."""
    sources, targets = engine.edge_list()
    if engine.options.directed:
        return sources, targets
    others = sources != targets
    return (
        np.concatenate([sources, targets[others]]),
        np.concatenate([targets, sources[others]]),
    )


def arc_weights_of(engine: Engine) -> NDArray[np.float32]:
    """The weights of `arcs_of`."""
    sources, targets = engine.edge_list()
    weights = engine.edge_weights()
    return weights if engine.options.directed else np.append(weights, weights[sources != targets])


def exact_ranks(
    engine: Engine, restarts: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.float64], float]:
    """float64[id_limit] by liverank_gpu.verify, 0 for free ids, and a bound on its error.

    restarts  float64[id_limit], where the walk restarts; None for all vertices
    """
    vertices = np.setdiff1d(np.arange(engine.id_limit), engine.free_ids())
    sources, targets = (np.searchsorted(vertices, column) for column in arcs_of(engine))
    exact, bound = verify.pagerank(
        sources,
        targets,
        len(vertices),
        engine.options.damping,
        engine.options.dangling,
        None if restarts is None else restarts[vertices],
        arc_weights_of(engine) if engine.options.weighted else None,
    )
    ranks = np.zeros(engine.id_limit)
    ranks[vertices] = exact
    return ranks, bound


def loaded(
    pairs: Pairs, options: Options, backend: Backend, weights: NDArray[np.float32] | None = None
) -> Engine:
    """An engine with these edges; of a weighted graph with random weights if none are given."""
    vertices, edges = pairs
    if options.weighted and weights is None:
        weights = some_weights(np.random.default_rng(2), len(edges))
    engine = engine_on(options, backend)
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices, weights=weights))
    return engine


def loaded_with_gaps(options: Options, backend: Backend, seed: int) -> Engine:
    """A random graph with loops, dangling vertices, vertices without edges and removed ones."""
    vertices, edges = random_graph(seed)
    engine = loaded((vertices + 7, edges), options, backend)
    engine.apply(EdgeBatch.of(remove=[0, vertices + 2]))
    return engine


def assert_certified(engine: Engine, error_bound: float, off_one: float = 1e-12) -> float:
    """The published ranks are a distribution, and their L1 error, which is returned, is within the
    bound.

    off_one  how far their sum may be from 1
    """
    exact, uncertain = exact_ranks(engine)
    ranks = engine.publish().to_numpy()
    assert uncertain < 1e-11
    assert abs(ranks.sum() - 1.0) < off_one or engine.vertices == 0
    error = float(np.abs(ranks - exact).sum())
    assert error <= error_bound + uncertain
    return error


def residual_error(engine: Engine) -> float:
    """How far the kept residual and its kept sums are from those of the kept ranks, by Σy."""
    host, iterate = engine.internals.backend.device.to_host, engine.internals.iterate
    values = host(iterate.values).astype(np.float64)
    positions = engine.internals.graph.permutation.positions_of
    sources, targets = (host(positions(column)) for column in arcs_of(engine))
    true = verify.residual(
        sources,
        targets,
        values,
        iterate.rhs_scale,
        engine.options.damping,
        engine.options.dangling,
        arc_weights_of(engine) if engine.options.weighted else None,
    )
    certificate = iterate.certificate
    errors = (
        np.abs(true - host(iterate.workspace.residual.values)).sum(),
        abs(np.abs(true).sum() - certificate.residual_l1),
        abs(true.sum() - certificate.residual_sum),
        abs(values.sum() - certificate.mass),
    )
    return float(max(errors) / values.sum())


def snapshot_of(engine: Engine) -> Snapshot:
    captured = engine.capture(engine.staging_buffer())
    snapshot, pieces = captured.snapshot(), captured.pieces()
    lists = {name: np.concatenate([piece() for piece in pieces[name]]) for name in pieces}
    captured.release()
    return Snapshot({**snapshot.arrays, **lists}, snapshot.numbers)


def restored(engine: Engine, backend: Backend) -> Engine:
    again = engine_on(engine.options, backend)
    again.restore(snapshot_of(engine))
    return again


def igraph_ranks(
    pairs: Pairs,
    dangling: Dangling,
    damping: float = 0.85,
    weights: NDArray[np.float32] | None = None,
    directed: bool = True,
) -> NDArray[np.float64]:
    """The same from igraph, where an undirected loop is followed twice: it gets half its weight."""
    # not on every machine with a device
    igraph = pytest.importorskip("igraph")
    vertices, edges = pairs
    each = np.ones(len(edges)) if weights is None else weights
    named = edges if directed else np.sort(edges, axis=1)
    of_edge = dict(zip(map(tuple, named.tolist()), each.tolist(), strict=True))
    if dangling == "self-loop":
        of_edge |= {(v, v): 1.0 for v in range(vertices)}
    graph = igraph.Graph(n=vertices, edges=list(of_edge), directed=directed)
    half = 1.0 if directed else 0.5
    shares = [
        weight * half if source == target else weight
        for (source, target), weight in of_edge.items()
    ]
    return np.array(graph.pagerank(damping=damping, weights=shares, implementation="prpack"))


class Model:
    """A graph as a Python set of edges, with the receipt's rules spelt out one edge at a time. An
    undirected edge has the lower id first. Ids are below `vertices`, and those that are `free` are
    no vertices.
    """

    def __init__(self, dangling: Dangling, directed: bool = True) -> None:
        self.dangling = dangling
        self.directed = directed
        self.vertices = 0
        self.free: set[int] = set()
        self.edges: set[tuple[int, int]] = set()

    def pairs(
        self, sources: NDArray[np.int64], targets: NDArray[np.int64]
    ) -> list[tuple[int, int]]:
        """The edges that two columns name."""
        pairs = list(zip(sources.tolist(), targets.tolist(), strict=True))
        return pairs if self.directed else [(min(pair), max(pair)) for pair in pairs]

    def arcs(self, edges: set[tuple[int, int]] | None = None) -> set[tuple[int, int]]:
        """The graph's edges, or others, as directed ones."""
        edges = self.edges if edges is None else edges
        return edges if self.directed else edges | {(target, source) for source, target in edges}

    def apply(self, batch: EdgeBatch) -> Change:
        deleted = inserted = 0
        before = self.vertices
        removed = set(batch.remove.tolist()) & (set(range(before)) - self.free)
        gone = {edge for edge in self.edges if removed & set(edge)}
        self.edges -= gone
        self.free |= removed
        free = len(self.free)
        for edge in self.pairs(batch.delete_sources, batch.delete_targets):
            if edge in self.edges:
                self.edges.remove(edge)
                deleted += 1
        for edge in self.pairs(batch.insert_sources, batch.insert_targets):
            self.vertices = max(self.vertices, edge[0] + 1, edge[1] + 1)
            policy_loop = self.dangling == "self-loop" and edge[0] == edge[1]
            if edge not in self.edges and not policy_loop:
                self.edges.add(edge)
                inserted += 1
        self.vertices = max(self.vertices, batch.vertices)
        named = (batch.insert_sources, batch.insert_targets, batch.add)
        self.free -= set(np.concatenate(named).tolist())
        return Change(
            inserted=inserted,
            already_present=len(batch.insert_sources) - inserted,
            deleted=deleted,
            not_found=len(batch.delete_sources) - deleted,
            new_vertices=self.vertices - before + free - len(self.free),
            seconds=0.0,
            removed=len(removed),
            removed_edges=len(gone),
            unknown=len(batch.remove) - len(removed),
        )


class WeightedModel(Model):
    """The same with a weight for each edge, float32 in a Python float."""

    def __init__(self, dangling: Dangling, directed: bool = True) -> None:
        super().__init__(dangling, directed)
        self.weights: dict[tuple[int, int], float] = {}

    def apply(self, batch: EdgeBatch) -> Change:
        removed = set(batch.remove.tolist())
        before = {edge: w for edge, w in self.weights.items() if not removed & set(edge)}
        given = np.ones(len(batch.insert_sources)) if batch.weights is None else batch.weights
        for edge in self.pairs(batch.delete_sources, batch.delete_targets):
            before.pop(edge, None)
        sums = dict(before)
        for edge, weight in zip(
            self.pairs(batch.insert_sources, batch.insert_targets), given.tolist(), strict=True
        ):
            added = batch.on_conflict == "add" and edge in sums
            sums[edge] = sums[edge] + weight if added else weight
        change = super().apply(batch)
        self.weights = {edge: float(np.float32(sums[edge])) for edge in self.edges}
        reweighted = sum(
            edge in before and before[edge] != weight for edge, weight in self.weights.items()
        )
        already_present = change.already_present - reweighted
        return replace(change, already_present=already_present, reweighted=reweighted)

    def arc_weights(self) -> dict[tuple[int, int], float]:
        """The weight of each of `arcs`."""
        return {
            (a, b): self.weights[self.pairs(np.array([a]), np.array([b]))[0]]
            for a, b in self.arcs()
        }

    def columns(self) -> tuple[Pairs, NDArray[np.float32]]:
        """The edges and their weights."""
        edges = np.array(sorted(self.weights), np.int64).reshape(-1, 2)
        weights = [self.weights[edge] for edge in sorted(self.weights)]
        return (self.vertices, edges), np.array(weights, np.float32)


def some_weights(generator: np.random.Generator, count: int) -> NDArray[np.float32]:
    """float32[count]: a few that are equal, others between 1e-3 and 1e3."""
    weights = 10.0 ** generator.uniform(-3.0, 3.0, count)
    return np.where(generator.random(count) < 0.3, 2.0, weights).astype(np.float32)


def weighted_batch(
    generator: np.random.Generator,
    model: WeightedModel,
    size: int,
    batch: EdgeBatch | None = None,
    removes: bool = False,
) -> EdgeBatch:
    """A random (or another) batch with weights, that also sends edges of the model again, with
    other weights and with their own.
    """
    batch = batch or random_batch(generator, model, size, removes)
    (_, edges), present = model.columns()
    again = generator.integers(0, max(1, len(edges)), min(size, len(edges)))
    weights = some_weights(generator, len(batch.insert_sources))
    others = some_weights(generator, len(again))
    others = np.where(generator.random(len(again)) < 0.3, present[again], others)
    return EdgeBatch(
        np.concatenate([batch.insert_sources, edges[again, 0]]),
        np.concatenate([batch.insert_targets, edges[again, 1]]),
        batch.delete_sources,
        batch.delete_targets,
        batch.vertices,
        np.concatenate([weights, others.astype(np.float32)]),
        "add" if generator.random() < 0.4 else "replace",
        batch.remove,
        batch.add,
    )


def is_emulated(backend: Backend) -> bool:
    """Whether kernels run on the CPU, some 20 times slower than the ``cpu`` backend."""
    return backend.name == "cuda" and not hasattr(backend.xp, "cuda")


def is_slow(backend: Backend) -> bool:
    """The same, or whether shards exchange data at every step."""
    return is_emulated(backend) or backend.name == SHARDS


def random_batch(
    generator: np.random.Generator, model: Model, size: int, removes: bool = False
) -> EdgeBatch:
    """Insertions and deletions with repeats, loops, unknown edges and ids, new vertices, and an
    edge that is deleted and inserted at once. If it `removes`, also a few vertices (at times all),
    of which some come back at once or later, and some ids twice.
    """
    known = max(model.vertices, 1)
    insert = generator.integers(0, known + 2, (size, 2))
    loops = generator.integers(0, known, 1)
    present = np.array(sorted(model.edges) or [(0, 0)], np.int64)
    chosen = present[generator.integers(0, len(present), size // 2)]
    unknown = generator.integers(-1, known + 3, (size // 4, 2))
    delete = np.concatenate([chosen, chosen[:1], unknown])
    insert = np.concatenate([insert, insert[:1], chosen[-1:], np.stack([loops, loops], axis=1)])
    remove = add = np.empty(0, np.int64)
    if removes:
        remove = generator.integers(-1, known + 3, int(generator.integers(0, 5)))
        remove = np.append(remove, remove[:1])
        if generator.random() < 0.1:
            remove = np.arange(known)
        elif generator.random() < 0.6:
            # or else all of them come back by the many random ids of insertions
            insert = insert[~np.isin(insert, [*remove, *model.free]).any(axis=1)]
        add = generator.integers(0, known, int(generator.random() < 0.3))
    return EdgeBatch(
        insert[:, 0],
        insert[:, 1],
        delete[:, 0],
        delete[:, 1],
        model.vertices + int(generator.integers(0, 2)),
        remove=remove,
        add=add,
    )


def batch_for(
    generator: np.random.Generator, model: Model, size: int, removes: bool = False
) -> EdgeBatch:
    """A random one, with weights where the model has some."""
    if isinstance(model, WeightedModel):
        return weighted_batch(generator, model, size, removes=removes)
    return random_batch(generator, model, size, removes)


def model_of(options: Options) -> Model:
    """Of a graph without edges."""
    return (WeightedModel if options.weighted else Model)(options.dangling, options.directed)
