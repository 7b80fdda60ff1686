"""States that cannot be written or removed: the analysis goes on, and the log says so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path

import pytest

from liverank_gpu import EdgeBatch, Engine, Options, ProgramRun
from liverank_service.storage.saved_runs import DIRECTORY, Pace, SavedRuns


def _run() -> ProgramRun:
    engine = Engine(Options(), "cpu")
    engine.apply(EdgeBatch.of([(n, n + 1) for n in range(9)]))
    run = engine.programs.begin("levels", given={"source": 0})
    run.step(0.0, most=1)
    return run


def test_a_run_goes_on_if_no_thread_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    run, pace, saved = _run(), Pace(1), SavedRuns(tmp_path, ())
    assert pace.is_due(run)
    with monkeypatch.context() as patched:
        patched.setattr(ThreadPoolExecutor, "submit", refuse)
        saved.save("a", run, pace, inf)
        assert not pace.is_due(run)
        saved.forget("a")
    saved.close()
    assert "analysis a is not saved any more: can't start new thread" in caplog.messages


def test_a_state_that_is_not_removed_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved = SavedRuns(tmp_path, ())
    saved.save("a", _run(), Pace(1), inf)
    saved.close()
    state = tmp_path / DIRECTORY / "a.state"
    assert state.is_file()
    again = SavedRuns(tmp_path, ["a"])
    assert again.waiting == {"a"}
    state.unlink()
    state.mkdir()  # which cannot be unlinked
    again.forget("a")
    again.close()
    (message,) = caplog.messages
    assert message.startswith("analysis a: its state was not removed: ")
