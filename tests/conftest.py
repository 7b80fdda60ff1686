"""Backends for the suite.

``pytest``                 runs what it can anywhere: ``cpu``, and ``emulated``, the ``cuda``
                           backend with NumPy arrays and its kernels compiled for the CPU
                           (``shuffled``: its threads and blocks in a random order);
                           marked tests on ``reference`` too, or with graphs in shards. These are
                           the tests of the default tier: see tests/tiers.py
``pytest -m deep``         runs the others, and ``pytest PATH`` both
``pytest --backend cuda``  runs the same on a CUDA device
``pytest --all``           runs every case of the engine's tests, with long streams of batches,
                           as ``--backend`` does. Otherwise ``emulated`` and ``shuffled`` run a part
                           of the cases of a test, and all run a few seeds, the same in each run;
                           the others are counted as deselected
"""

from __future__ import annotations

import gc
import os
import runpy
import shutil
import ssl
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

# a module is compiled once, not for each worker, tier and process that tests start
if sys.dont_write_bytecode:
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# what servers write through to a disk takes a third of the time of their tests: temporary files
# are in memory, if there is room and programs may run there
if "TMPDIR" not in os.environ and os.access(_memory := "/dev/shm", os.W_OK):
    may_run = not os.statvfs(_memory).f_flag & os.ST_NOEXEC
    if may_run and shutil.disk_usage(_memory).free >= 8 << 30:
        os.environ["TMPDIR"] = tempfile.tempdir = _memory

# read when NumPy is imported: for matrices as small as these its threads would only spin
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
if "PYTEST_XDIST_WORKER" not in os.environ:
    # before they are imported: the kernels of the CPU that have changed are compiled
    runpy.run_path(str(Path(__file__).parents[1] / "gpu" / "hatch_build.py"))["extensions"]()

from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from tests import tiers
from tests.crash.disk import compiled
from tests.crash.nursery import Nursery
from tests.gpu.observed import observable
from tests.tiers import IN_SHARDS

_create_context = ssl.create_default_context
_create_shared_context = cache(_create_context)


def _context(*purpose: Any, **named: Any) -> ssl.SSLContext:
    """Each client of HTTP loads the certificates of all authorities, which takes 20 ms."""
    is_that_of_clients = not purpose and named.keys() == {"cafile"}
    return (_create_shared_context if is_that_of_clients else _create_context)(*purpose, **named)


pytest.MonkeyPatch().setattr("ssl.create_default_context", _context)

ON_DEVICES = ("cpu", "emulated", "cuda")

DATA = Path(os.environ.get("LIVERANK_GRAPHS", Path(__file__).parents[2] / "shared" / "data"))
"""Real graphs; LIVERANK_GRAPHS names another folder."""


@cache
def _backend(name: str) -> Backend:
    if name.endswith(IN_SHARDS):
        from tests.gpu.graphs import in_threads

        return in_threads(_backend(name.removesuffix(IN_SHARDS)))
    if name in ("emulated", "shuffled"):
        from tests.cuda_emulator.emulated import emulated_backend

        return observable(emulated_backend("shuffled" if name == "shuffled" else "forward"))
    assert name in ("cpu", "cuda", "reference")
    return observable(backend_named(name))


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


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path.suffix != ".py" or _runs_everything(config) or _names_tests(config):
        return None
    needed = tiers.is_needed(collection_path, config.rootpath, config.option.markexpr)
    return None if needed else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers.mark(items)
    if _runs_everything(config):
        return
    left_out = tiers.beyond_the_sample(items)
    if not config.option.markexpr and not _names_tests(config):
        left_out |= {item for item in items if item.get_closest_marker("deep")}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """No garbage is searched for until all tests are collected, nor among what stays then."""
    gc.disable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each worker runs files in order, and takes tests of others at the end: what a file sets up
    for its tests is set up by one worker, rather than by all.
    """
    if config.getoption("dist") == "load":
        from xdist.scheduler import WorkStealingScheduling

        return WorkStealingScheduling(config, log)
    return None


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()


def _names_tests(config: pytest.Config) -> bool:
    """Whether files or folders are named, as opposed to all tests."""
    named = {Path(config.invocation_params.dir, each.split("::")[0]) for each in config.args}
    return named != {config.rootpath / each for each in config.getini("testpaths")}


def _runs_everything(config: pytest.Config) -> bool:
    on_one_device = config.getoption("--backend") and not config.getoption("--shards")
    return bool(config.getoption("--all") or on_one_device)


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
        in_both = metafunc.definition.get_closest_marker("in_shards")
        if in_both and not metafunc.config.getoption("--shards"):
            names = [*names, *(f"{name}{IN_SHARDS}" for name in names if name in ON_DEVICES)]
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
def library(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """Of tests/crash/disk.c; None without a compiler."""
    return compiled(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="session")
def nursery(library: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Starts servers and commands fast: one for all tests of a process."""
    with Nursery(tmp_path_factory.mktemp("log") / "servers.log", library=library) as started:
        yield started


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real graphs."""
    if not DATA.is_dir():
        pytest.skip(f"the real graphs are not at {DATA}")
    return DATA
