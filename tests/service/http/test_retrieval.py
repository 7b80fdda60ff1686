"""Retrieval as libraries for it ask igraph, and the same over HTTP."""

from __future__ import annotations

from typing import Literal

import igraph
import numpy as np
import pyarrow as pa
import pytest

from liverank.client import Client, PersonalizedQuery
from tests.service.server import Server

VERTICES, EDGES, PASSAGES, SEEDS, K = 1000, 5000, 200, 300, 20


@pytest.mark.parametrize("damping", [0.5, 0.85])
def test_places_among_passages_from_many_seeds_are_those_of_igraph(
    server: Server, damping: float
) -> None:
    random = np.random.default_rng(int(100 * damping))
    pairs = np.unique(np.sort(random.integers(0, VERTICES, (EDGES, 2)), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    weights = (random.integers(1, 100, len(pairs)) / 16).astype(np.float32)
    keys = np.array([f"v{number}" for number in range(VERTICES)])
    graph = igraph.Graph(VERTICES, pairs.tolist(), directed=False)
    graph.es["weight"] = weights.tolist()
    name = f"retrieval-{damping}"
    with Client(str(server.http.base_url)) as client:
        client.create(name, weighted=True, directed=False, target_error=1e-9)
        ends = {"source": keys[pairs[:, 0]], "target": keys[pairs[:, 1]]}
        for first in range(0, len(pairs), 1000):
            rows = slice(first, first + 1000)
            table = {column: values[rows] for column, values in ends.items()}
            client.send(name, pa.table({**table, "weight": weights[rows]}), weight="weight")
        client.send(name, vertices=keys)  # isolated ones too
        client.put_set(name, "passages", keys[:PASSAGES])
        for _ in range(5):
            seeds, reset = random.permutation(VERTICES)[:SEEDS], np.zeros(VERTICES)
            reset[seeds] = random.random(SEEDS)
            ranks = np.array(
                graph.personalized_pagerank(
                    damping=damping, directed=False, weights="weight", reset=reset
                )
            )
            best = np.argsort(-ranks[:PASSAGES], kind="stable")[:K]
            given = dict(zip(keys[seeds].tolist(), reset[seeds].tolist(), strict=True))
            query = PersonalizedQuery(given, K, damping=damping, among="passages")
            (answer,) = client.personalized_many(name, [query]).answers
            columns = {"seed": keys[seeds], "weight": reset[seeds]}
            table = client.personalized_table(
                name, columns, K, damping=damping, among="passages"
            ).to_arrow()
            for vertices, found in (
                ([place.vertex for place in answer.ranks], [p.rank for p in answer.ranks]),
                (table["vertex"].to_pylist(), table["rank"].to_pylist()),
            ):
                assert vertices == keys[best].tolist()
                np.testing.assert_allclose(found, ranks[best], atol=1e-8)


@pytest.mark.parametrize("target", ["settled-set", "settled-top-k"])
def test_which_vertices_are_first_is_proven_before_their_order(
    server: Server, target: Literal["settled-set", "settled-top-k"]
) -> None:
    graph = server.new_graph().rsplit("/", 1)[1]
    # b and c are equal by symmetry, and have no source in common; z is behind them
    edges = ["ap", "aq", "pb", "qc", "ba", "ca", "bz", "cz"]
    with Client(str(server.http.base_url)) as client:
        client.send(graph, insert=[(edge[0], edge[1]) for edge in edges])
        client.put_set(graph, "some", [*"abcz"])
        for k, among, is_set in (
            (5, None, True),
            (4, None, False),
            (3, "some", True),
            (2, "some", False),
        ):
            query = PersonalizedQuery({"a": 1.0}, k, target=target, target_error=1e-9, among=among)
            (one,) = client.personalized_many(graph, [query]).answers
            other = client.personalized(
                graph, "a", k, target=target, target_error=1e-9, among=among
            )
            (row,) = client.personalized_table(
                graph, {"seed": ["a"]}, k, target=target, target_error=1e-9, among=among
            ).answers
            assert one.settled_set == other.settled_set == row.settled_set == is_set
            for error_bound in (one.error_bound, other.error_bound, row.error_bound):
                assert (error_bound > 1e-9) == (is_set and target == "settled-set")
