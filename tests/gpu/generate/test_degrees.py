"""Degrees of preferential attachment are those of the sequential models.

Degrees of one graph depend on each other, so what is compared is drawn from many seeds: the number
of vertices in each class of degrees, by Welch's test.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.attachment_models import DegreeDistribution, barabasi_albert, copy_model
from liverank_gpu.generate import preferential_attachment, published
from liverank_gpu.operations.backend import Backend

Draw = Callable[[int], NDArray[np.int32]]
"""seed → int32[n - d, d]."""

N, D, SEEDS = 400, 3, 200
CLASSES = np.array([D, D + 1, D + 2, D + 3, D + 5, D + 8, D + 15, D + 30, 2 * N])
"""The first degree of each class, and the end of the last one."""

MOST_DEVIATIONS = 4.5
"""Exceeded with probability 7e-6 by each of some 60 statistics, if the models are equal."""


def ours(probability: float, seed: int) -> NDArray[np.int32]:
    links: NDArray[np.int32] = preferential_attachment(
        N, D, probability=probability, seed=seed
    ).links
    return links


def class_sizes(draw: Draw) -> NDArray[np.int64]:
    """int64[SEEDS, classes + 1]: vertices of each class, and the largest degree."""
    rows = []
    for seed in range(SEEDS):
        found = DegreeDistribution.of_links(np, draw(seed))
        sizes = [
            int(found.counts[(found.degrees >= first) & (found.degrees < end)].sum())
            for first, end in pairwise(CLASSES.tolist())
        ]
        rows.append([*sizes, int(found.degrees[-1])])
    return np.array(rows)


def deviations(first: Draw, second: Draw) -> NDArray[np.float64]:
    """Welch's statistic of each class; infinite where two constants differ."""
    a, b = class_sizes(first), class_sizes(second)
    difference = a.mean(0) - b.mean(0)
    error = np.sqrt((a.var(0, ddof=1) + b.var(0, ddof=1)) / SEEDS)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(difference == 0.0, 0.0, np.abs(difference) / error)


@pytest.mark.parametrize("probability", [0.0, 0.05, 0.25, 0.5, 0.75, 1.0])
def test_degrees_are_those_of_the_sequential_copy_model(probability: float) -> None:
    found = deviations(
        lambda seed: ours(probability, seed), lambda seed: copy_model(N, D, probability, 999 + seed)
    )
    assert found.max() < MOST_DEVIATIONS


@pytest.mark.any_thread_order
@pytest.mark.parametrize("scheme", get_args(published.Scheme))
@pytest.mark.parametrize("probability", [0.05, 0.5])
def test_degrees_of_the_published_algorithm_are_those_of_the_sequential_copy_model(
    backend: Backend, probability: float, scheme: published.Scheme
) -> None:
    queued = []

    def draw(seed: int) -> NDArray[np.int32]:
        drawn = published.preferential_attachment(
            N, D, probability=probability, seed=seed, scheme=scheme, threads=64, backend=backend
        )
        queued.append(int(drawn.rounds.queued.sum()))
        return backend.device.to_host(drawn.graph.links)

    found = deviations(draw, lambda seed: copy_model(N, D, probability, 999 + seed))
    assert found.max() < MOST_DEVIATIONS
    # order matters: edges wait while later ones of their vertex are drawn
    assert np.median(queued) > 0.02 * N * D


@pytest.mark.parametrize("other", [0.45, 0.55])
def test_the_comparison_notices_another_probability(other: float) -> None:
    found = deviations(lambda seed: ours(0.5, seed), lambda seed: copy_model(N, D, other, seed))
    assert found.max() > 2 * MOST_DEVIATIONS


def test_the_comparison_notices_another_model() -> None:
    found = deviations(lambda seed: ours(0.75, seed), lambda seed: barabasi_albert(N, D, seed))
    assert found.max() > 2 * MOST_DEVIATIONS


@pytest.mark.parametrize("model", [barabasi_albert, lambda n, d, seed: copy_model(n, d, 0.3, seed)])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_the_sequential_models_make_no_parallel_edges(
    model: Callable[[int, int, int], NDArray[np.int32]], d: int
) -> None:
    links = np.sort(model(500, d, 1), axis=1)
    assert links.shape == (500 - d, d)
    assert links.min() >= 0
    assert np.all(links < np.arange(d, 500)[:, None])
    assert np.all(links[:, 1:] != links[:, :-1])
    assert not np.array_equal(links, np.sort(model(500, d, 2), axis=1))


def test_degrees_count_both_ends() -> None:
    # the triangle 0, 1, 2; then 3 links to 0, 1, 2 and 4 to 0, 1, 3
    found = DegreeDistribution.of_links(np, np.array([[0, 1, 2], [3, 1, 0]], np.int32))
    assert found.degrees.tolist() == [3, 4]
    assert found.counts.tolist() == [2, 3]


def test_the_exponent_of_a_power_law_is_found() -> None:
    random = np.random.default_rng(1).random(200_000)
    for exponent in (2.2, 3.0):
        # rounded down from a continuous law with a cut-off of 9.5: that of degrees from 10 on
        sample = np.floor(9.5 * (1 - random) ** (-1 / (exponent - 1)) + 0.5).astype(np.int64)
        found = DegreeDistribution(*np.unique(sample, return_counts=True))
        assert found.exponent(10) == pytest.approx(exponent, abs=0.02)
    assert np.isnan(found.exponent(10**9))


def test_exponents_are_those_of_both_sequential_models() -> None:
    """At n = 200,000, d = 4, p = 1/2, where theory gives 3 for the tail of an infinite graph."""
    drawn = (
        preferential_attachment(200_000, 4, seed=1).links,
        copy_model(200_000, 4, 0.5, 2),
        barabasi_albert(200_000, 4, 3),
    )
    for least, spread in ((4, 0.01), (10, 0.02), (50, 0.12)):
        found = [DegreeDistribution.of_links(np, links).exponent(least) for links in drawn]
        # four standard errors (γ - 1)/√N of the estimate
        assert max(found) - min(found) < spread
        assert 2.6 < min(found) < max(found) < 3.1


@pytest.mark.parametrize(("probability", "theory"), [(0.3, 1 + 1 / 0.7), (0.5, 3.0)])
def test_the_tail_has_the_exponent_of_the_theory(probability: float, theory: float) -> None:
    links = preferential_attachment(500_000, 4, probability=probability, seed=6).links
    found = DegreeDistribution.of_links(np, links).exponent(50)
    assert found == pytest.approx(theory, abs=0.15)
