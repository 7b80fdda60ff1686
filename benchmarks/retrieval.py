"""Retrieval over HTTP beside igraph in this process: thousands of seeds, ranks among passages.

    python -m benchmarks.retrieval --note "nothing else ran"

A weighted undirected graph of passages and entities, as libraries for graph retrieval build it.
Each query has 2,000 random seeds with weights of their own and a damping of 0.5, and asks for the
first 20 of the 2,000 passages. A server answers it over HTTP, through the client, in JSON and in
Arrow; igraph ranks all vertices in this process, and NumPy sorts those of the passages. The three
take turns with the same query, so that other work on the machine affects all of them alike, and
have to agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import md5
from typing import Any

import igraph
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.server import Server
from liverank.client import Client, PersonalizedQuery

VERTICES, EDGES, PASSAGES, SEEDS, K = 10_000, 60_000, 2_000, 2_000, 20
DAMPING = 0.5
WARM_UP = 20

Places = tuple[list[str], NDArray[np.float64]]
"""The first K passages, and their ranks."""


def keys() -> list[str]:
    """Keys as these libraries make them, the passages first."""
    kinds = ["chunk"] * PASSAGES + ["entity"] * (VERTICES - PASSAGES)
    return [f"{kind}-{md5(str(n).encode()).hexdigest()}" for n, kind in enumerate(kinds)]


def edges(random: np.random.Generator) -> NDArray[np.int64]:
    """int64[EDGES, 2], distinct pairs of different vertices."""
    drawn = np.sort(random.integers(0, VERTICES, (2 * EDGES, 2)), axis=1)
    distinct = np.unique(drawn[drawn[:, 0] != drawn[:, 1]], axis=0)
    return random.permutation(distinct)[:EDGES]


class Contenders:
    """The same graph in a server and in igraph, and the ways to ask for the first passages."""

    def __init__(self, client: Client, random: np.random.Generator) -> None:
        self._client = client
        self._keys = np.array(keys())
        pairs = edges(random)
        weights = random.random(EDGES).astype(np.float32) + np.float32(0.1)
        ends = {name: self._keys[pairs[:, end]] for end, name in enumerate(("source", "target"))}
        client.create("retrieval", weighted=True, directed=False)
        client.send("retrieval", pa.table({**ends, "weight": weights}), weight="weight")
        client.put_set("retrieval", "passages", self._keys[:PASSAGES])
        self.info = client.graph("retrieval")
        self._graph = igraph.Graph(VERTICES, pairs.tolist(), directed=False)
        self._graph.es["weight"] = weights.tolist()

    def ways(self) -> dict[str, Callable[[NDArray[np.int64], NDArray[np.float64]], Places]]:
        return {"json": self.in_json, "arrow": self.in_arrow, "igraph": self.by_igraph}

    def in_json(self, seeds: NDArray[np.int64], weights: NDArray[np.float64]) -> Places:
        given = dict(zip(self._keys[seeds].tolist(), weights.tolist(), strict=True))
        query = PersonalizedQuery(given, K, damping=DAMPING, among="passages")
        (answer,) = self._client.personalized_many("retrieval", [query]).answers
        found = answer.to_dict()
        return [str(key) for key in found], np.array([*found.values()])

    def in_arrow(self, seeds: NDArray[np.int64], weights: NDArray[np.float64]) -> Places:
        table = {"seed": self._keys[seeds], "weight": weights}
        answer = self._client.personalized_table(
            "retrieval", table, K, damping=DAMPING, among="passages"
        )
        found = answer.to_arrow()
        return found["vertex"].to_pylist(), found["rank"].to_numpy()

    def by_igraph(self, seeds: NDArray[np.int64], weights: NDArray[np.float64]) -> Places:
        reset = np.zeros(VERTICES)
        reset[seeds] = weights
        ranks = self._graph.personalized_pagerank(
            damping=DAMPING, directed=False, weights="weight", reset=reset
        )
        of_passages = np.array(ranks[:PASSAGES])
        best = np.argsort(-of_passages, kind="stable")[:K]
        return self._keys[best].tolist(), of_passages[best]


def check(found: Places, expected: Places) -> None:
    """Raises AssertionError unless they are the same places, but for ranks equal to an error."""
    np.testing.assert_allclose(found[1], expected[1], atol=1e-6)
    for place, key in enumerate(found[0]):
        if key != expected[0][place]:
            others = np.abs(expected[1] - found[1][place]) <= 2e-6
            assert others.sum() > 1 or place == K - 1, (place, found, expected)


def run(
    contenders: Contenders, server: Server, queries: int, random: np.random.Generator
) -> dict[str, list[tuple[float, float]]]:
    """Of each query by each way: seconds, and seconds of processor time here and in the server."""
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders.ways()}
    for number in range(WARM_UP + queries):
        seeds, weights = random.permutation(VERTICES)[:SEEDS], random.random(SEEDS)
        places: dict[str, Places] = {}
        for name, ask in contenders.ways().items():
            used = time.process_time() + server.cpu_seconds
            started = time.perf_counter()
            places[name] = ask(seeds, weights)
            seconds = time.perf_counter() - started
            used = time.process_time() + server.cpu_seconds - used
            if number >= WARM_UP:
                spent[name].append((seconds, used))
        for name in ("json", "arrow"):
            check(places[name], places["igraph"])
    return spent


def measured(queries: int, note: str) -> dict[str, Any]:
    random = np.random.default_rng(5)
    with Server.temporary() as server, Client(server.url) as client:
        contenders = Contenders(client, random)
        spent = run(contenders, server, queries, random)
    milliseconds = {name: 1e3 * np.array(each) for name, each in spent.items()}
    of_igraph = np.median(milliseconds["igraph"][:, 0])
    return {
        "vertices": contenders.info.vertices,
        "edges": contenders.info.edges,
        "seeds": SEEDS,
        "among": PASSAGES,
        "k": K,
        "damping": DAMPING,
        "target_error": contenders.info.options.target_error,
        "queries": queries,
        "note": note,
        "rows": [
            {
                "way": name,
                "p50": round(float(np.median(each[:, 0])), 3),
                "p99": round(float(np.quantile(each[:, 0], 0.99)), 3),
                "over_igraph": round(float(np.median(each[:, 0]) / of_igraph), 3),
                "mean_processor_ms": round(float(each[:, 1].mean()), 3),
            }
            for name, each in milliseconds.items()
        ],
    }


if __name__ == "__main__":
    harness.run(__doc__, {"retrieval": (measured, {"queries": 500, "note": ""})})
