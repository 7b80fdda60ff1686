"""Other libraries answer the same question, and the engine is compared at no larger error."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import peers
from benchmarks.peer_solvers import CPU, DAMPING, PEERS, Peer, power_iteration
from liverank_gpu import verify

INSTALLED = [peer for peer in CPU if peer.installed]


def test_the_peers_of_the_test_extra_are_there() -> None:
    assert {"igraph", "SciPy", "NetworkX"} <= {peer.name for peer in INSTALLED}
    names = [peer.name for own in PEERS.values() for peer in own]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("peer", INSTALLED, ids=lambda peer: peer.name)
def test_a_peer_ranks_with_dangling_vertices(peer: Peer) -> None:
    edges = peers.edges_of("rmat-7")
    assert len(np.unique(edges.sources)) < edges.vertices
    exact, bound = verify.pagerank(edges.sources, edges.targets, edges.vertices, DAMPING, "uniform")
    solve = peer.prepare(edges, 1)
    for tolerance in peer.tolerances:
        # a step of at most the tolerance is at most α/(1-α) of it from the end
        allowed = tolerance * DAMPING / (1.0 - DAMPING) + 1e-10
        assert np.abs(solve(tolerance) - exact).sum() <= allowed + bound


def test_a_power_iteration_ends_when_ranks_stand_still() -> None:
    cycle = np.roll(np.eye(3), 1, axis=0)
    assert power_iteration(cycle, np.ones(3), np, 1e-12) == pytest.approx(np.full(3, 1 / 3))


def test_the_engine_is_compared_at_no_larger_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(
        PEERS,
        "cpu",
        (
            *(peer for peer in INSTALLED if peer.name in ("igraph", "SciPy")),
            Peer("absent", "no_such_module", CPU[0].prepare),
            Peer("small", "numpy", CPU[0].prepare, most_edges=10),
        ),
    )
    rows = list(peers.compared(peers.edges_of("grid-8"), "cpu", 2, 1))
    assert [row["peer"] for row in rows] == ["igraph", "SciPy", "SciPy"]
    assert all(row["own_error"] <= row["error"] for row in rows)
    printed = capsys.readouterr().out
    assert "absent     left out: not installed" in printed
    assert "small      left out: too many edges" in printed
