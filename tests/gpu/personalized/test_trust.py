"""Trust and its relatives by views, against the formulas of the papers: see docs/how-to/trust.md.

The references solve dense linear systems, or iterate as the papers do, and share no code with the
engine. Where a paper loses the rank of vertices without out-edges, the engine returns it to the
teleport distribution, which multiplies all ranks by one number: y / Σy with the y of the paper.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Engine, Options, ViewQuery
from liverank_gpu.backends import backend_named
from liverank_gpu.types import Dangling, Ranking, ViewDirection
from tests.gpu.graphs import random_graph

TARGET = 1e-10
CPU = backend_named("cpu")
Matrix = NDArray[np.float64]


def _engine(weights: Matrix, dangling: Dangling = "uniform") -> Engine:
    """Of the edges from row to column whose weight is not 0."""
    engine = Engine(Options(weighted=True, dangling=dangling), CPU)
    sources, targets = np.nonzero(weights)
    given = weights[sources, targets].astype(np.float32)
    engine.apply(EdgeBatch(sources, targets, vertices=len(weights), weights=given))
    engine.update()
    return engine


def _links(seed: int) -> Matrix:
    vertices, pairs = random_graph(seed)
    links = np.zeros((vertices, vertices))
    links[pairs[:, 0], pairs[:, 1]] = 1.0
    return links


def _stochastic(weights: Matrix) -> Matrix:
    """Rows that sum to 1, or to 0 where there is nothing to follow."""
    sums = weights.sum(axis=1, keepdims=True)
    return weights / np.where(sums > 0.0, sums, 1.0)


def _biased(links: Matrix, restarts: Ranking, damping: float = 0.85) -> Ranking:
    """t = α·Tᵀ·t + (1-α)·d of Gyöngyi et al. (2004), T = 0 in rows without links."""
    system = np.eye(len(links)) - damping * _stochastic(links).T
    return np.linalg.solve(system, (1.0 - damping) * restarts).astype(np.float64)


def _uniform_over(seeds: NDArray[np.int64], vertices: int) -> Ranking:
    return np.bincount(seeds, minlength=vertices) / float(len(seeds))


def _view(
    engine: Engine,
    restarts: Ranking | None,
    damping: float = 0.85,
    direction: ViewDirection = "forward",
) -> Ranking:
    seeds = None if restarts is None else np.arange(len(restarts))
    engine.put_view("v", ViewQuery(seeds, restarts, TARGET, damping, direction=direction))
    return engine.view("v").to_numpy()


def _l1(some: Ranking, others: Ranking) -> float:
    return float(np.abs(some - others).sum())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("direction", ["forward", "reversed"])
def test_trust_and_anti_trust_are_those_of_the_papers(seed: int, direction: ViewDirection) -> None:
    """TrustRank from good seeds; from spam, on the transposed links, that of Krishnan and Raj."""
    links = _links(seed)
    generator = np.random.default_rng(seed)
    count = int(generator.integers(1, 10))
    seeds = generator.choice(len(links), min(count, len(links)), replace=False)
    walked = links if direction == "forward" else links.T
    paper = _biased(walked, _uniform_over(seeds, len(links)))
    engine = _engine(links)
    engine.put_view("trust", ViewQuery(seeds, None, TARGET, direction=direction))
    found = engine.view("trust").to_numpy()
    assert _l1(found, paper / paper.sum()) <= 1e-9
    dangling = found[walked.sum(axis=1) == 0.0].sum()
    assert _l1(found, paper * (1.0 - 0.85 + 0.85 * dangling) / (1.0 - 0.85)) <= 1e-8


def _eigentrust(local: Matrix, trusted: Ranking, a: float) -> Ranking:
    """The basic algorithm of Kamvar et al. (2003): t ← (1-a)·Cᵀ·t + a·p until it stands, from p.
    A peer that trusts nobody trusts the pre-trusted ones, c_ij = p_j.
    """
    positive = np.maximum(local, 0.0)
    ratings = positive.sum(axis=1)
    matrix = np.tile(trusted, (len(local), 1))
    rates = ratings > 0.0
    matrix[rates] = positive[rates] / ratings[rates, None]
    trust = trusted
    for _ in range(2_000):
        before = trust
        trust = (1.0 - a) * (matrix.T @ before) + a * trusted
        if _l1(trust, before) < 1e-15:
            break
    return trust


@pytest.mark.parametrize("a", [0.1, 0.5])
def test_eigentrust_is_that_of_the_paper_and_stays_so(a: float) -> None:
    """Local trust s = sat - unsat that changes: a batch has those that are above 0 or no more."""
    generator = np.random.default_rng(3)
    peers = 200
    trusted = np.zeros(peers)
    trusted[[3, 50, 120]] = [0.5, 0.25, 0.25]
    rated = generator.random((peers, peers)) < 0.03
    rated[generator.choice(peers, 40, replace=False)] = False
    np.fill_diagonal(rated, False)
    local = np.where(rated, generator.integers(-5, 20, rated.shape), 0).astype(np.float64)
    assert (np.maximum(local, 0.0).sum(axis=1) == 0.0).sum() >= 40
    assert (local < 0.0).any()
    engine = _engine(np.maximum(local, 0.0))
    engine.put_view("peers", ViewQuery(np.arange(peers), trusted, TARGET, 1.0 - a))
    assert _l1(engine.view("peers").to_numpy(), _eigentrust(local, trusted, a)) <= 1e-9
    for _ in range(5):
        before = local
        changed = generator.random(rated.shape) < 0.002
        np.fill_diagonal(changed, False)
        local = np.where(changed, local + generator.integers(-9, 10, rated.shape), local)
        sources, targets = np.nonzero((local > 0.0) & (local != before))
        weights = local[sources, targets].astype(np.float32)
        gone, not_trusted = np.nonzero((local <= 0.0) & (before > 0.0))
        engine.apply(EdgeBatch(sources, targets, gone, not_trusted, weights=weights))
        engine.update()
        engine.refresh_views()
        found = engine.view("peers", solve=False)
        assert found.error_bound <= TARGET
        assert _l1(found.to_numpy(), _eigentrust(local, trusted, a)) <= 1e-9


def test_citerank_is_that_of_the_paper_but_for_a_factor() -> None:
    """T = ρ + (1-α)·W·ρ + (1-α)²·W²·ρ + … of Walker et al. (2007), ρ ∝ exp(-age/τ): their α is the
    probability of stopping. A view has T·(α + (1-α)·D), D the ranks of papers that cite none.
    """
    generator = np.random.default_rng(1)
    papers, stops, decay = 150, 0.5, 2.6
    ages = np.sort(generator.uniform(0.0, 20.0, papers))
    cites = np.triu(generator.random((papers, papers)) < 0.04, 1).astype(np.float64)
    restarts = np.exp(-ages / decay)
    restarts /= restarts.sum()
    traffic, term = np.zeros(papers), restarts
    for _ in range(200):
        traffic = traffic + term
        term = (1.0 - stops) * (_stochastic(cites).T @ term)
    engine = _engine(cites)
    found = _view(engine, np.exp(-ages / decay), damping=1.0 - stops)
    assert _l1(found, traffic / traffic.sum()) <= 1e-9
    # weights that need not change as papers age
    assert _l1(_view(engine, np.exp((5.0 - ages) / decay), damping=1.0 - stops), found) <= 1e-9
    factor = stops + (1.0 - stops) * found[cites.sum(axis=1) == 0.0].sum()
    assert _l1(found, traffic * factor) <= 1e-9


@pytest.mark.parametrize("dangling", ["uniform", "self-loop"])
def test_topics_are_mixed_by_linearity(dangling: Dangling) -> None:
    """Σ wᵢ·viewᵢ of Haveliwala (2002) is the view of Σ wᵢ·vᵢ, if no vertex dangles or each view is
    divided by 1 - α + α·D of its own before, and the sum is scaled to 1.
    """
    links = _links(4)
    vertices, damping = len(links), 0.75
    links[::3] = 0.0
    dangles = links.sum(axis=1) == 0.0
    engine = _engine(links, dangling)
    generator = np.random.default_rng(0)
    # vertices that dangle, others, and any
    groups = [np.flatnonzero(dangles)[:9], np.flatnonzero(~dangles)[:9], np.arange(vertices)]
    topics = [_uniform_over(group, vertices) for group in groups]
    weights = generator.dirichlet(np.ones(len(topics)))
    found = [_view(engine, topic, damping) for topic in topics]
    mixed = _view(engine, weights @ np.array(topics), damping)
    plain = weights @ np.array(found)
    if dangling == "self-loop":
        assert _l1(plain, mixed) <= 1e-9
        return
    assert _l1(plain, mixed) > 0.01
    lost = [1.0 - damping + damping * ranks[dangles].sum() for ranks in found]
    scaled = (weights / lost) @ np.array(found)
    assert _l1(scaled / scaled.sum(), mixed) <= 1e-9


def _with_a_farm(generator: np.random.Generator) -> tuple[Matrix, int, NDArray[np.int64]]:
    """Links of 400 good pages, a farm of 60 and its target; (links, target, good pages). The farm
    and the target link to one another, to good pages too, and 5 links of good pages are hijacked.
    """
    good, farm = 400, 60
    target = good + farm
    links = np.zeros((target + 1, target + 1))
    for page in range(good):
        # popular pages have low numbers
        links[page, (good * generator.random(6) ** 3).astype(np.int64)] = 1.0
    boosting = np.arange(good, target)
    links[boosting, target] = links[target, boosting] = 1.0
    links[boosting, generator.integers(0, good, farm)] = 1.0
    links[generator.choice(np.arange(100, good), 5, replace=False), target] = 1.0
    np.fill_diagonal(links, 0.0)
    return links, target, np.arange(good)


def test_spam_mass_is_that_of_the_paper() -> None:
    """m = 1 - p'/p of Gyöngyi et al. (2006), p' for the good core's share γ of the jumps. Both lose
    what dangles: a view has p·(1 - α + α·D)/(1 - α), D the ranks of pages without links.
    """
    links, target, good = _with_a_farm(np.random.default_rng(0))
    links[300:320] = 0.0
    core, share, damping, pages = good[::4], 0.85, 0.85, len(links)
    jumps = share * _uniform_over(core, pages)
    paper = 1.0 - _biased(links, jumps) / _biased(links, np.full(pages, 1.0 / pages))
    engine = _engine(links)
    everybody, trusted = _view(engine, None), _view(engine, jumps)
    dangles = links.sum(axis=1) == 0.0
    lost = [1.0 - damping + damping * ranks[dangles].sum() for ranks in (everybody, trusted)]
    mass = 1.0 - share * (trusted / lost[1]) / (everybody / lost[0])
    np.testing.assert_allclose(mass, paper, atol=1e-6)
    assert mass[target] > 0.7
    assert np.median(mass[good]) < 0.3
    plain = 1.0 - share * trusted / everybody
    assert np.argsort(plain).tolist() == np.argsort(mass).tolist()
