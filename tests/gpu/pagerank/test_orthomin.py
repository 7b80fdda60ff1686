"""Steps of Orthomin(1) against NumPy: what changes, and what each reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.sweeps import (
    OrthominProducts,
    OrthominStep,
    OrthominUpdate,
    SweepResult,
)
from liverank_gpu.pagerank.sweeps import SWEEP_KINDS, sweep_to_target
from tests.gpu.doubles import sweeping_singly
from tests.gpu.observed import observed

ACCELERATED = [kind for kind in SWEEP_KINDS if kind.accelerated]


def as_floats(contributions: NDArray[Any]) -> NDArray[np.float64]:
    """Contributions, also if they are the bits of bfloat16."""
    if contributions.dtype == np.uint16:
        contributions = (contributions.astype(np.uint32) << 16).view(np.float32)
    return contributions.astype(np.float64)


class Model:
    """The same steps on dense arrays."""

    def __init__(self, engine: Engine) -> None:
        graph = engine.internals.graph
        to_host = graph.backend.device.to_host
        rows, sources, weights = graph.backend.rebuild.entries(graph.incoming.csr)
        self.transposed = np.zeros((graph.vertices, graph.vertices))
        sent = 1.0 if weights is None else to_host(weights)
        self.transposed[to_host(rows), to_host(sources)] = sent
        self.degree = to_host(graph.degree).astype(np.float64)
        self.loop = to_host(graph.loop).astype(np.float64)
        self.damping = engine.options.damping
        divisor = np.where(self.degree > 0, self.degree, 1.0)
        self.diagonal = 1.0 - self.damping * self.loop / divisor
        self.isolated = (self.degree == self.loop) & ~self.transposed.any(axis=1)
        self.steps = 0

    def check(
        self,
        before: dict[str, NDArray[Any]],
        after: dict[str, NDArray[Any]],
        mean: float,
        has_previous: bool,
        step: OrthominStep,
        result: SweepResult,
    ) -> None:
        sent = as_floats(before["contributions"])
        delta = np.where(self.degree > 0, sent * self.degree, before["residual"])
        image = self.diagonal * delta - self.damping * (self.transposed @ sent) - mean
        p = np.where(self.isolated, mean / self.diagonal, delta)
        q = np.where(self.isolated, 0.0, image)
        if has_previous:
            p -= step.beta * before["direction"]
            q -= step.beta * before["last_image"]
        values = before["values"] + step.alpha * p
        change = values - before["values"]
        residual = before["residual"] - step.alpha * q
        for name, expected in (
            ("direction", p),
            ("last_image", q),
            ("values", values),
            ("residual", residual),
        ):
            assert np.abs(after[name] - expected).max() <= 1e-14, name
        follows = as_floats(after["contributions"])
        assert not follows[self.isolated | (self.degree == 0)].any()
        stays = after["residual"] - (1.0 - self.damping) * follows * self.degree
        stays[self.isolated | (self.degree == 0)] = 0.0
        size = np.abs(after["residual"]).sum()
        assert result.residual_l1 == pytest.approx(size, rel=1e-12)
        assert abs(result.residual_sum - after["residual"].sum()) <= 1e-12 * size
        assert abs(result.next_residual_sum - stays.sum()) <= 1e-12 * size
        assert abs(result.mass - change.sum()) <= 1e-14 * len(values)
        assert result.largest_step == pytest.approx(np.abs(change).max(), rel=1e-6, abs=1e-15)
        self.steps += 1


@pytest.mark.parametrize("vertices", [5, 256, 257, 700])
@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(dangling="self-loop"),
        Options(weighted=True),
        Options(dangling="self-loop", weighted=True, directed=False),
    ],
    ids=["uniform", "self-loop", "weighted", "undirected"],
)
def test_a_step_is_what_its_definition_says(
    backend: Backend, options: Options, vertices: int
) -> None:
    random = np.random.default_rng(vertices)
    # a fifth of the vertices have no edges
    sources, targets = random.integers(0, max(2, 4 * vertices // 5), (2, 2 * vertices))
    weights = (
        random.uniform(0.1, 5.0, len(sources)).astype(np.float32) if options.weighted else None
    )
    engine = Engine(options, sweeping_singly(backend))
    engine.apply(EdgeBatch(sources, targets, vertices=vertices, weights=weights))
    iterate, model = engine.internals.iterate, Model(engine)
    iterate.reset()
    kept: dict[str, NDArray[Any]] = {}

    def arrays(step: OrthominProducts | OrthominUpdate) -> dict[str, NDArray[Any]]:
        found = {
            "values": step.values,
            "residual": step.residual,
            "contributions": step.contributions,
            "direction": step.state.direction,
            "last_image": step.state.last_image,
        }
        return {name: backend.device.to_host(array).copy() for name, array in found.items()}

    def before(step: OrthominProducts, run: Callable[[], Any]) -> Any:
        kept.update(arrays(step))
        return run()

    def after(step: OrthominUpdate, run: Callable[[], Any]) -> Any:
        taken = run()
        model.check(kept, arrays(step), step.mean, step.has_previous, *taken)
        return taken

    with (
        observed(OrthominProducts, before),
        observed(OrthominUpdate, after),
    ):
        sweep_to_target(iterate, 12, ACCELERATED)
    assert model.steps >= 3
