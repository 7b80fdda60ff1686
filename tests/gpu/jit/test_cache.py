"""Where compiled loops are kept: always somewhere, or nowhere and a warning says so."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from numba.core.compiler_lock import global_compiler_lock

from gpu import compiling_seconds
from gpu.jit.cache import _is_private

ROOT = Path(__file__).parents[3]

PROGRAM = """
import numpy as np
from gpu.backends.cpu import apply_kernels
from numba.core.dispatcher import Dispatcher
assert apply_kernels.__file__.startswith({site!r})
order, indices = np.arange(50_000), np.zeros(50_000, np.int32)
apply_kernels.fill_holes(len(order), order, order.astype(np.int32), indices, None, None)
assert np.array_equal(indices, order)
cells = [cell.cell_contents for cell in apply_kernels.fill_holes.__closure__]
print(sum(sum(cell.stats.cache_misses.values()) for cell in cells if isinstance(cell, Dispatcher)))
"""
"""Runs a loop, and prints how many functions were compiled for it: 2, or 0 from a cache."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine, in an installation that nobody can write, not even root."""
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "gpu", site / "gpu", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [path for path in site.rglob("*") if path.is_dir()]:
        (folder / "__pycache__").write_text("")  # where a folder is expected
    return site


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """The folder of temporary files."""
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary"


def compiled(site: Path, temporary: Path, **variables: str) -> tuple[int, str]:
    """How many functions a process without a home compiles for a loop, and what it says."""
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(temporary), "HOME": "/dev/null"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM.format(site=str(site))],
        capture_output=True,
        text=True,
        cwd=site,  # whose modules come first
        env=environment | variables,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout), done.stderr


def test_without_a_writable_installation_or_home_loops_are_kept_among_temporary_files(
    site: Path, temporary: Path
) -> None:
    assert [compiled(site, temporary) for _ in range(2)] == [(2, ""), (0, "")]
    (folder,) = temporary.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_they_are_kept_where_the_server_says(site: Path, temporary: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data" / ".cache" / "kernels"
    for misses in (2, 0):
        assert compiled(site, temporary, LIVERANK_CACHE_DIR=str(folder)) == (misses, "")
    assert list(temporary.iterdir()) == []
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_without_any_folder_loops_are_compiled_and_one_warning_says_so(
    site: Path, temporary: Path
) -> None:
    (temporary / f"liverank-{os.geteuid()}").write_text("")  # where a folder is expected
    misses, said = compiled(site, temporary)
    assert misses == 2
    assert said.startswith("compiled loops cannot be kept, so every start compiles them: ")
    assert said.count("\n") == 1


def test_only_a_folder_that_nobody_else_can_write_is_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, link, file = tmp_path / "new" / "folder", tmp_path / "link", tmp_path / "file"
    assert _is_private(folder)
    assert _is_private(folder)
    link.symlink_to(folder)
    file.write_text("")
    assert not _is_private(link)
    assert not _is_private(file)
    for mode in (0o770, 0o707, 0o750):
        folder.chmod(mode)
        assert not _is_private(folder)
    folder.chmod(0o700)
    assert _is_private(folder)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)  # it belongs to another user
    assert not _is_private(folder)


def test_a_thread_knows_how_long_it_compiled_or_waited_for_another_that_did() -> None:
    began, found = time.perf_counter(), dict[str, float]()
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        with global_compiler_lock, global_compiler_lock:  # which is held again inside of itself
            holding.set()
            time.sleep(0.3)
        found["holder"] = compiling_seconds(began)
        done.set()

    def wait() -> None:
        holding.wait()
        with global_compiler_lock:
            pass
        found["waiter"] = compiling_seconds(began)
        done.wait()
        found["later"] = compiling_seconds(time.perf_counter())

    threads = [threading.Thread(target=each) for each in (hold, wait)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0.3 <= found["holder"] < 5
    assert 0.2 <= found["waiter"] < 5
    assert found["later"] == 0
    assert compiling_seconds(began) == 0  # of this thread
    program = "import gpu\nassert gpu.loops_compiled() == 0"
    subprocess.run([sys.executable, "-c", program], check=True)
