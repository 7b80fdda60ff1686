"""Ranks that are no distribution are not published: receipt, log and metrics say what is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from liverank_gpu import Snapshot, Solve
from liverank_gpu.pagerank import gate, solver
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.sweeps import Swept
from liverank_gpu.snapshot import Capture
from liverank_service.errors import NotReady, RankingFailed
from liverank_service.pipeline.pipeline import Pipeline
from tests.service.graphs import batch, opened, send, working


def spoil(monkeypatch: pytest.MonkeyPatch, *modules: Any) -> None:
    """Has sweeps of these modules leave NaN."""

    def sweep(iterate: GlobalIterate, *_: Any, **__: Any) -> Swept:
        iterate.values[:] = np.nan
        iterate.recompute_residual()
        return Swept(1, True)

    for module in modules:
        monkeypatch.setattr(module, "sweep_to_target", sweep)
    monkeypatch.setattr(solver, "push_to_target", lambda *_: (0, 0))


def test_a_static_solve_replaces_them(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send(pipeline, batch([("a", "b")]))
    spoil(monkeypatch, solver)
    receipt = send(pipeline, batch([("b", "c"), ("c", "a")]))
    assert (receipt["ranked_version"], receipt["converged"]) == (2, True)
    assert (receipt["fallback"], receipt["strategy"]) == ("static", "auto")
    assert "cannot be divided by their sum, nan" in receipt["refused"]
    assert pipeline.view.rank("a") == pytest.approx(1.0 / 3.0)
    assert "the ranks of version 2 by auto were refused" in caplog.text
    assert "those of a static solve are published" in caplog.text


def test_the_ranks_before_are_kept_if_that_fails_too(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = send(pipeline, batch([("a", "b")]))
    before = pipeline.view
    spoil(monkeypatch, solver, gate)
    receipt = send(pipeline, batch([("b", "c"), ("c", "a")]))
    assert (receipt["version"], receipt["ranked_version"]) == (2, 1)
    assert receipt["revision"] == first["revision"]
    assert (receipt["fallback"], receipt["converged"], receipt["error_bound"]) == ("kept", False, 2)
    assert pipeline.view is before
    assert pipeline.committed == 2
    assert pipeline.outcome(2).status == "ranked"  # type: ignore[union-attr]
    assert "the ranks published before are kept" in caplog.text
    # no checkpoint of ranks of an older graph
    with pytest.raises(RankingFailed, match="version 2 is committed and applied"):
        pipeline.checkpoint().result(60)
    monkeypatch.undo()
    again = orjson.loads(pipeline.recompute(Solve()).result(60))
    assert (again["version"], again["ranked_version"], "fallback" in again) == (2, 2, False)
    assert pipeline.view.rank("a") == pytest.approx(1.0 / 3.0)
    assert pipeline.checkpoint().result(60).version == 2


def test_a_first_solve_has_none_to_keep(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = opened(path.parent)
    send(pipeline, batch([("a", "b")]))
    pipeline.close(NotReady("the test restarts"))
    spoil(monkeypatch, solver, gate)
    with working(path.parent) as pipeline:
        assert (pipeline.view.version, pipeline.view.error_bound) == (1, 2.0)
        assert [pipeline.view.rank(key) for key in "ab"] == [0.5, 0.5]


@pytest.mark.parametrize("later", [False, True])
def test_a_checkpoint_without_ranks_is_ranked_anew(
    path: Path, later: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that an older version wrote, with NaN for ranks."""
    original = Capture.snapshot

    def snapshot(capture: Capture) -> Snapshot:
        found = original(capture)
        values = np.full_like(found.arrays["values"], np.nan)
        return Snapshot(found.arrays | {"values": values}, found.numbers | {"total": np.nan})

    with working(path.parent) as pipeline:
        send(pipeline, batch([("a", "b"), ("b", "c"), ("c", "a")]))
        with monkeypatch.context() as older:
            older.setattr(Capture, "snapshot", snapshot)
            assert pipeline.checkpoint().result(60).version == 1
        if later:
            send(pipeline, batch([("c", "d")]))
        version, revision = pipeline.view.version, pipeline.view.revision
        ranks = [pipeline.view.rank(key) for key in "abc"]
    with working(path.parent) as pipeline:
        assert "is ranked again: its total is nan" in caplog.text
        assert pipeline.view.version == version
        assert pipeline.view.revision > revision
        assert [pipeline.view.rank(key) for key in "abc"] == pytest.approx(ranks, abs=1e-6)
        assert pipeline.view.error_bound <= 1e-6
