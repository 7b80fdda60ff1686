"""The oracle is itself compared with NetworkX and with published reference values."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from liverank_gpu import verify
from liverank_gpu.types import Dangling
from tests.gpu.graphs import FAMILIES, networkx_ranks, random_graph


@pytest.mark.parametrize("dangling", get_args(Dangling))
@pytest.mark.parametrize("family", FAMILIES)
def test_the_oracle_agrees_with_networkx(family: str, dangling: Dangling) -> None:
    vertices, edges = FAMILIES[family]()
    ranks, bound = verify.pagerank(edges[:, 0], edges[:, 1], vertices, 0.85, dangling)
    assert bound < 1e-11
    assert np.abs(ranks - networkx_ranks((vertices, edges), dangling)).sum() <= 1e-9


def test_the_oracle_bounds_its_own_error() -> None:
    vertices, edges = random_graph(5)
    matrix = verify.GoogleMatrix(edges[:, 0], edges[:, 1], vertices)
    exact = matrix.stationary()
    generator = np.random.default_rng(0)
    for scale in (1e-2, 1e-6, 1e-10):
        ranks = exact * (1.0 + scale * generator.standard_normal(vertices))
        ranks /= ranks.sum()
        error = np.abs(ranks - exact).sum()
        assert error <= matrix.error_bound(ranks) <= 30 * error


def test_the_residual_of_the_exact_vector_is_zero() -> None:
    vertices, edges = random_graph(9)
    ranks, _ = verify.pagerank(edges[:, 0], edges[:, 1], vertices)
    degree = np.bincount(edges[:, 0], minlength=vertices)
    base = (0.85 * ranks[degree == 0].sum() + 0.15) / vertices
    residual = verify.residual(edges[:, 0], edges[:, 1], ranks, base)
    assert np.abs(residual).sum() < 1e-13
    assert np.abs(verify.residual(edges[:, 0], edges[:, 1], ranks, 2 * base)).sum() > 0.1


@pytest.mark.parametrize("name", ["dir", "undir"])
def test_the_oracle_agrees_with_graphalytics(name: str, data: Path) -> None:
    folder = data / "graphalytics-validation" / "pr"
    rows = [
        [int(word) for word in line.split()]
        for line in (folder / f"{name}-input").read_text().splitlines()
    ]
    keys = {key: place for place, key in enumerate(sorted({row[0] for row in rows}))}
    edges = np.array([(keys[row[0]], keys[target]) for row in rows for target in row[1:]])
    ranks, _ = verify.pagerank(edges[:, 0], edges[:, 1], len(keys))
    expected = dict(line.split() for line in (folder / f"{name}-output").read_text().splitlines())
    published = np.array([float(expected[str(key)]) for key in keys])
    # Graphalytics accepts a relative error of 1e-4
    assert np.max(np.abs(ranks - published) / published) < 1e-4
