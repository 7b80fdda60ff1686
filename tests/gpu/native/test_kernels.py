"""The extension: what a call may pass, and loops on threads, from any thread or process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu.native import kernels
from liverank_gpu.native.in_numpy import GOLDEN_GAMMA, mixed

START = np.uint64(2026)
MANY = 1_000_003
"""Numbers of a loop with many ranges."""


@pytest.fixture(autouse=True)
def _all_threads() -> Iterator[None]:
    yield
    kernels.set_threads(0)


def _expected(count: int, skipped: int = 0) -> NDArray[np.uint64]:
    indices = np.arange(skipped + 1, skipped + count + 1, dtype=np.uint64)
    return mixed(START + indices * GOLDEN_GAMMA)


def _filled(count: int, skipped: int = 0) -> NDArray[np.uint64]:
    numbers = np.zeros(count, np.uint64)
    kernels.fill_random(START, skipped, numbers)
    return numbers


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
@pytest.mark.parametrize("count", [0, 1, 1 << 14, (1 << 14) + 1, MANY])
def test_any_number_of_threads_does_the_same(threads: int, count: int) -> None:
    kernels.set_threads(threads)
    assert kernels.threads() == threads
    for _ in range(3):
        assert np.array_equal(_filled(count, 5), _expected(count, 5))


def test_threads_are_bounded_for_the_loops_of_one_thread_alone() -> None:
    found: list[int] = []
    unbounded = kernels.threads()
    kernels.set_threads(unbounded + 1)
    other = threading.Thread(target=lambda: found.append(kernels.threads()))
    other.start()
    other.join()
    assert (kernels.threads(), found) == (unbounded + 1, [unbounded])


def test_loops_run_from_several_threads_at_once() -> None:
    expected, wrong = _expected(MANY), list[int]()

    def fill_often(number: int) -> None:
        kernels.set_threads(1 + number)
        for _ in range(20):
            if not np.array_equal(_filled(MANY), expected):
                wrong.append(number)

    threads = [threading.Thread(target=fill_often, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_other_threads_of_python_run_beside_a_loop() -> None:
    numbers, ticks, done = np.zeros(30_000_000, np.uint64), 0, threading.Event()

    def fill() -> None:
        kernels.set_threads(1)
        kernels.fill_random(START, 0, numbers)
        done.set()

    filling = threading.Thread(target=fill)
    filling.start()
    while not done.is_set():
        ticks += 1
        time.sleep(0.0001)
    filling.join()
    assert ticks > 3


def test_a_child_of_fork_has_threads_of_its_own() -> None:
    program = (
        "import os, sys, threading\n"
        "import numpy as np\n"
        "from liverank_gpu.native import kernels\n"
        "def total():\n"
        "    numbers = np.zeros(1_000_003, np.uint64)\n"
        "    kernels.set_threads(4)\n"
        "    kernels.fill_random(np.uint64(1), 0, numbers)\n"
        "    return numbers.sum()\n"
        "expected, ended = total(), threading.Event()\n"
        "def loop():\n"
        "    while not ended.is_set(): total()\n"
        "busy = threading.Thread(target=loop)\n"
        "busy.start()\n"
        "for _ in range(20):\n"
        "    child = os.fork()\n"
        "    if not child: os._exit(0 if total() == expected else 1)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "ended.set(); busy.join()\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("threads", [None, "5"])
def test_the_environment_says_how_many_threads_there_are(threads: str | None) -> None:
    program = "from liverank_gpu.native import kernels; print(kernels.threads())"
    environment = {key: value for key, value in os.environ.items() if key != "LIVERANK_THREADS"}
    if threads is not None:
        environment["LIVERANK_THREADS"] = threads
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == int(threads or len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ((1, 2), "int, int"),
        ((1.0, 0, np.zeros(3, np.uint64)), "float, int, array L"),
        ((1, 0, np.zeros(3, np.int64)), "int, int, array l"),
        ((1, 0, None), "int, int, None"),
        ((1, 0, np.frombuffer(bytes(8), np.uint64)), "int, int, const array L"),
    ],
)
def test_a_call_with_other_types_is_refused(arguments: tuple[Any, ...], given: str) -> None:
    with pytest.raises(TypeError, match=rf"fill_random does not take \({given}\)"):
        kernels.fill_random(*arguments)


def test_arrays_have_to_be_contiguous() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        kernels.fill_random(1, 0, np.zeros(6, np.uint64)[::2])


def test_a_call_takes_numbers_of_numpy_and_of_python() -> None:
    for start in (START, int(START)):
        for skipped in (5, np.int64(5), np.int32(5), np.uint32(5), np.uint8(5)):
            numbers = np.zeros(3, np.uint64)
            kernels.fill_random(start, skipped, numbers)
            assert np.array_equal(numbers, _expected(3, 5))
