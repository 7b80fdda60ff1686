"""Limits on the work that waits for a graph."""

from __future__ import annotations

import contextlib
import threading

import pytest

from liverank_service.errors import QueueFull
from liverank_service.pipeline.writer import Admission, QueueLimits
from liverank_service.problems import headers_of


def test_jobs_count_until_they_end_and_then_others_are_admitted() -> None:
    admission = Admission("g", QueueLimits(jobs=2, bytes=100))
    end_first = admission.admit(60)
    end_second = admission.admit(40)
    assert (admission.jobs, admission.bytes) == (2, 100)
    with pytest.raises(QueueFull) as caught:
        admission.admit(0)
    assert str(caught.value) == (
        "the queue of graph 'g' is full: it holds 2 batches and computations, 100 bytes; "
        "retry after 1 s"
    )
    end_first()
    end_third = admission.admit(60)
    with pytest.raises(QueueFull):
        admission.check(1)
    assert admission.refused == 2
    end_second()
    end_third()
    assert (admission.jobs, admission.bytes) == (0, 0)


def test_a_job_larger_than_the_queue_is_admitted_when_it_is_alone() -> None:
    admission = Admission("g", QueueLimits(jobs=2, bytes=100))
    end_large = admission.admit(1000)
    with pytest.raises(QueueFull):
        admission.check(0)
    end_large()
    admission.check(1000)


def test_retry_after_is_the_time_that_the_last_job_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("liverank_service.pipeline.writer.monotonic", lambda: now[0])
    admission = Admission("g", QueueLimits(jobs=1))
    for taken, expected in ((7.2, 8), (0.1, 1), (1000.0, 60)):
        end_job = admission.admit(0)
        now[0] += taken
        end_job()
        end_waiting = admission.admit(0)
        with pytest.raises(QueueFull) as caught:
            admission.check(0)
        assert caught.value.retry_after == expected
        assert headers_of(caught.value) == {"Retry-After": str(expected)}
        now[0] += taken
        end_waiting()


def test_many_threads_leave_the_count_as_it_was() -> None:
    admission = Admission("g", QueueLimits(jobs=50))

    def work() -> None:
        for size in range(500):
            with contextlib.suppress(QueueFull):
                admission.admit(size)()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (admission.jobs, admission.bytes) == (0, 0)
