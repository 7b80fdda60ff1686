"""Backends for the suite.

``pytest``                 runs what it can anywhere: ``cpu``, and ``emulated``, the ``cuda``
                           backend with NumPy arrays and its kernels compiled for the CPU
                           (``shuffled``: its threads and blocks in a random order);
                           marked tests on ``reference`` too
``pytest --backend cuda``  runs the same on a CUDA device
``pytest --all``           runs every case of the engine's tests, with long streams of batches,
                           as ``--backend`` does. Otherwise ``emulated`` and ``shuffled`` run a part
                           of the cases of a test, the same in each run; the others are counted as
                           deselected
"""

from __future__ import annotations

import os
import runpy
from collections import defaultdict
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:
    # read when NumPy is imported: the workers share the cores, where threads of BLAS would spin
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
else:
    # before they are imported: the kernels of the CPU that have changed are compiled
    runpy.run_path(str(Path(__file__).parents[1] / "gpu" / "hatch_build.py"))["extensions"]()

from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend

DATA = Path(os.environ.get("LIVERANK_GRAPHS", Path(__file__).parents[2] / "shared" / "data"))
"""Real graphs; LIVERANK_GRAPHS names another folder."""


@cache
def _backend(name: str) -> Backend:
    if name in ("emulated", "shuffled"):
        from tests.cuda_emulator.emulated import emulated_backend

        return emulated_backend("shuffled" if name == "shuffled" else "forward")
    assert name in ("cpu", "cuda", "reference")
    return backend_named(name)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend",
        action="append",
        choices=["cpu", "reference", "emulated", "shuffled", "cuda"],
        help="backend to test, repeatable; cpu and emulated (and others for some) unless given",
    )

    parser.addoption("--all", action="store_true", help="every case, and long streams")
    parser.addoption(
        "--shards",
        type=int,
        help="runs the engine's tests (tests/gpu) with engines in as many worker processes",
    )


MANY_CASES = 12
"""Of a test of the engine with more cases on ``emulated`` and ``shuffled`` an eighth is run; of the
others enough cases for each value of each parameter. These backends take most of the suite's time.
All cases run on ``cpu``, and on a CUDA device.
"""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _runs_everything(config):
        return
    cases = defaultdict[str, list[pytest.Function]](list)
    for item in items:
        if _is_slow(item) and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            cases[item.nodeid.split("[")[0]].append(item)
    left_out = {item for each in cases.values() for item in each if item not in _sample(each)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _runs_everything(config: pytest.Config) -> bool:
    on_one_device = config.getoption("--backend") and not config.getoption("--shards")
    return bool(config.getoption("--all") or on_one_device)


def _sample(cases: list[pytest.Function]) -> list[pytest.Function]:
    """The cases of one test that are run."""
    if len(cases) > MANY_CASES:
        return [case for case in cases if crc32(case.nodeid.encode()) % 8 == 0]
    rest = sorted(cases, key=lambda case: crc32(case.nodeid.encode()))
    values = {
        case: {(name, repr(value)) for name, value in case.callspec.params.items()} for case in rest
    }
    chosen: list[pytest.Function] = []
    while uncovered := set().union(*values.values()).difference(*(values[case] for case in chosen)):
        chosen.append(max(rest, key=lambda case: len(values[case] & uncovered)))
    return chosen


def _is_slow(item: pytest.Item) -> bool:
    return item.nodeid.startswith("tests/gpu") and (
        "emulated" in item.nodeid or "shuffled" in item.nodeid
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        anywhere = ["cpu", "emulated"]
        if metafunc.definition.get_closest_marker("reference"):
            anywhere.append("reference")
        if metafunc.definition.get_closest_marker("any_thread_order"):
            anywhere.append("shuffled")
        if metafunc.config.getoption("--shards"):
            anywhere = ["cpu"]
        names = metafunc.config.getoption("--backend") or anywhere
        metafunc.parametrize("backend", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.config.getoption("--shards"):
        from tests.gpu.sharded.suite import in_shards

        return in_shards(request.param)
    return _backend(request.param)


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    """Whether streams are as long as what they prove over time needs."""
    return _runs_everything(request.config)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real graphs."""
    if not DATA.is_dir():
        pytest.skip(f"the real graphs are not at {DATA}")
    return DATA
