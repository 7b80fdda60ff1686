"""What benchmarks.shard_balance counts, against the shards of an engine."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.shard_balance import Edges, balance, star
from liverank_gpu import EdgeBatch, Options, ShardedEngine
from liverank_gpu.backends import backend_named
from tests.gpu.sharded.threads import ThreadWorkers


def test_counts_are_those_of_the_shards_of_an_engine() -> None:
    generator = np.random.default_rng(5)
    sources, targets = (300 * generator.random((2, 4_000)) ** 3).astype(np.int64)
    edges = Edges.of("skewed", 300, sources, targets)
    options = Options(vertex_order="degree")
    for shards in (2, 3, 5):
        workers = ThreadWorkers(options, shards, backend_named("cpu"))
        with ShardedEngine(options, workers=workers) as engine:
            engine.apply(EdgeBatch(edges.sources, edges.targets, vertices=300))
            graphs = [shard.graph for shard in workers.shards]
            for found, lists in zip(
                balance(edges, shards),
                ([g.incoming.csr for g in graphs], [g.outgoing.csr for g in graphs]),
                strict=True,
            ):
                owned = [int(csr.row_lengths.sum()) for csr in lists]
                longest = max(int(csr.row_lengths.max()) for csr in lists)
                assert sum(owned) == len(edges.sources)
                assert found.largest == pytest.approx(max(owned) / np.mean(owned))
                assert found.longest == pytest.approx(longest / np.mean(owned))


def test_one_shard_owns_the_list_of_a_star() -> None:
    into, out = balance(star(1_000), 4)
    assert into == (4.0, 4.0, 1.0)
    assert out.largest == pytest.approx(1.0, abs=0.01)
