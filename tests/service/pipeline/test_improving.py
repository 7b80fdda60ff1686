"""What the writer of a graph does while nothing is to be done."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverank_gpu import Engine
from tests.service.graphs import batch, send, working
from tests.service.server import wait_for


def test_a_quiet_writer_improves_ranks_until_that_is_no_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each time that another call may help, and again after the next batch."""
    calls: list[int] = []

    def improve(engine: Engine) -> bool:
        calls.append(engine.edges)
        return len(calls) < 3

    monkeypatch.setattr(Engine, "improve", improve)
    with working(tmp_path) as pipeline:
        send(pipeline, batch([("a", "b"), ("b", "c")]))
        wait_for(lambda: len(calls) == 3)
        version = pipeline.view.version
        send(pipeline, batch([("c", "a")]))
        wait_for(lambda: len(calls) == 4)
        assert pipeline.view.version == version + 1
    assert calls == [2, 2, 2, 3]


def test_work_that_comes_is_done_between_two_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def improve(engine: Engine) -> bool:
        calls.append(engine.edges)
        return True

    monkeypatch.setattr(Engine, "improve", improve)
    with working(tmp_path) as pipeline:
        send(pipeline, batch([("a", "b")]))
        wait_for(lambda: len(calls) > 1)
        pipeline.call(lambda _: None).result(60)
        send(pipeline, batch([("b", "c")]))
        assert pipeline.view.edges == 2
        wait_for(lambda: calls[-1] == 2)
