"""The benchmark of killed workers: which batch counts."""

from __future__ import annotations

import threading

import pytest

from benchmarks import shard_recovery
from benchmarks.shard_recovery import Stream, summary


def test_time_runs_to_the_ranks_of_a_batch_that_was_sent_after_the_kill() -> None:
    stream = Stream("", 8, sent=[1.0, 2.0, 7.0, 9.0], ranked=[1.5, 6.0, 8.5, 9.5])
    # the second batch was in progress
    assert stream.seconds_after(3.0) == 5.5
    assert stream.seconds_after(0.5) == 1.0


def test_a_batch_that_is_not_ranked_yet_is_waited_for() -> None:
    stream = Stream("", 8, sent=[1.0, 3.5], ranked=[3.2])
    ranking = threading.Timer(0.1, stream.ranked.append, (4.5,))
    ranking.start()
    assert stream.seconds_after(3.0) == 1.5
    ranking.join()


def test_ranks_that_never_come_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_recovery, "PATIENCE", 0.05)
    with pytest.raises(TimeoutError, match="expected 1 ranked batches, got 0"):
        Stream("", 8, sent=[1.0]).wait_for(1)


def test_no_kill_is_no_figure() -> None:
    assert summary([]) == {"measured": 0}
    assert summary([3.0, 1.0, 2.126]) == {"measured": 3, "median": 2.13, "largest": 3.0}
