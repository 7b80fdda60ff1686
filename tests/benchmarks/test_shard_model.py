"""The simulated sweeps of benchmarks.shard_model, and what they send against what shards send."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from benchmarks.shard_balance import Edges, star
from benchmarks.shard_model import (
    EDGE_SECONDS,
    SMALLER_PARTS,
    received_bytes,
    shares,
    simulated,
    sweep,
)
from liverank_gpu import EdgeBatch, Options, ShardedEngine
from liverank_gpu.backends import backend_named
from tests.gpu.sharded.threads import ThreadWorkers


@pytest.mark.parametrize("shards", [2, 3, 5])
def test_shards_receive_what_the_model_says(shards: int) -> None:
    options, vertices = Options(), 3_000
    workers = ThreadWorkers(options, shards, backend_named("cpu"))
    gathered: list[int] = []
    first = workers.communicators[0]
    all_gather = first.all_gather

    def counted(own: Any, of_all: Any) -> None:
        gathered.append(int(of_all.nbytes - own.nbytes))
        all_gather(own, of_all)

    with ShardedEngine(options, workers=workers) as engine:
        engine.apply(EdgeBatch(*np.random.default_rng(1).integers(0, vertices, (2, 20_000))))
        with patch.object(first, "all_gather", counted):
            sweeps = engine.update("static").iterations
    assert sweeps <= len(gathered) <= sweeps + 2
    assert set(gathered) == {received_bytes(engine.vertices, shards, itemsize=4)}


def test_a_part_is_sent_beside_the_next_one() -> None:
    spans = ((50, 100), (0, 50))
    seconds = np.array([[1.0, 2.0], [5.0, 3.0]])
    # sent from 2 to 3, and from 6 to 7
    assert simulated(seconds, spans, received=200.0, bandwidth=100.0) == 7.0
    # the second part waits for the first: from 2 to 7, and from 7 to 12
    assert simulated(seconds, spans, received=1_000.0, bandwidth=100.0) == 12.0
    assert simulated(seconds.sum(axis=0, keepdims=True), ((0, 100),), 200.0, 100.0) == 8.0


def test_edges_are_those_of_the_parts_of_each_shard() -> None:
    # by degree: 0, 1, 2, 3; shard 0 owns 0 and 2
    edges = Edges.of("some", 4, [1, 2, 3, 0, 2, 1], [0, 0, 0, 1, 1, 2])
    assert shares(edges, 2, ((1, 2), (0, 1))).tolist() == [[1 / 6, 0.0], [0.5, 1 / 3]]


def test_one_device_sends_nothing_and_a_long_list_is_on_one_shard() -> None:
    edges, graph = star(1_000), (1 << 24, 10**9)
    alone = sweep(edges, 1, 1e9, graph)
    assert alone == (10**9 * EDGE_SECONDS, 0.0, alone.rows, alone.rows)
    several = sweep(edges, 4, 1e11, graph)
    assert several.rows == pytest.approx(alone.rows * SMALLER_PARTS)
    assert several.rows < several.in_parts < several.in_turn == several.rows + several.gather
