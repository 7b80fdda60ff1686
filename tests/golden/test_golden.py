"""What is computed on the CPU is what was recorded, to the last bit: see tests.golden.record.

Groups of streams run in a process of their own, in which NumPy and BLAS choose no instructions by
processor. The records prove that a rewritten kernel does what the old one did; a change that is
meant to give other bits records the streams again, and says so in its commit.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.golden.record import PINNED, RECORDS, first_difference, write
from tests.golden.records import difference, plain, recorded
from tests.golden.streams import DATA, GROUPS, REAL

ROOT = Path(__file__).parents[2]
FEATURES = {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}


def _missing_features() -> str:
    """What this processor lacks of x86-64-v3; empty if nothing."""
    if platform.machine() != "x86_64":
        return f"records are of x86-64, this is {platform.machine()}"
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return ""
    lines = cpuinfo.read_text().splitlines()
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    missing = sorted(FEATURES.difference(flags))
    return f"records are of x86-64-v3, this processor lacks {', '.join(missing)}" if missing else ""


OF_ENGINES = GROUPS.keys() - {"service", "shards"}


@pytest.mark.parametrize(
    "groups", [{"service"}, {"shards"}, OF_ENGINES], ids=["service", "shards", "engines"]
)
def test_nothing_has_changed_since_it_was_recorded(groups: set[str]) -> None:
    if reason := _missing_features():
        pytest.skip(reason)
    streams = {name: one for group in sorted(groups) for name, one in GROUPS[group].items()}
    real = {name for name, stream in streams.items() if stream.graph.split()[0] in REAL}
    names = [name for name in streams if DATA.is_dir() or name not in real]
    run = subprocess.run(
        [sys.executable, "-m", "tests.golden.record", "--check", *names],
        cwd=ROOT,
        env=os.environ | PINNED,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert run.returncode == 0, run.stdout + run.stderr[-4000:]


def test_every_stream_is_recorded_and_nothing_else() -> None:
    names = [name for streams in GROUPS.values() for name in streams]
    assert len(names) == len(set(names)) >= 40
    assert {path.stem for path in RECORDS.glob("*.json")} == set(names)
    assert sum(path.stat().st_size for path in RECORDS.glob("*.json")) < 1_600_000


# ---- a difference is found, and said where it is ----


def found(old: object, new: object) -> str | None:
    """The difference of a value from the record of another one."""
    return difference(recorded(plain(old)), plain(new), "it")


@pytest.mark.parametrize("size", [5, 1000])
def test_the_last_bit_of_one_rank_is_a_difference(size: int) -> None:
    ranks = np.linspace(0.1, 0.9, size)
    assert found(ranks, ranks.copy()) is None
    for place in (0, size // 3, size - 1):
        changed = ranks.copy()
        changed[place] = np.nextafter(changed[place], 1.0)
        text = found(ranks, changed)
        assert text is not None
        old, new = ranks[place].item(), changed[place].item()
        assert f"first at {place}: was {old!r}, is {new!r}, 1 ulps apart" in text
        if size == 1000:
            blocks = np.array_split(np.arange(size), 16)
            begin = next(block[0] for block in blocks if place in block)
            assert f" of 1 of 16 blocks that differ, the first {begin}…" in text


def test_figures_of_records_are_compared_and_times_are_not() -> None:
    receipt = {"iterations": 7, "error_bound": 1e-9, "seconds": 3.0, "trace": list(range(9))}
    assert found(receipt, receipt | {"seconds": 4.0, "new": 1}) is None
    assert found(receipt, receipt | {"iterations": 8}) == "it.iterations: was 7, is 8"
    text = found(receipt, receipt | {"error_bound": np.nextafter(1e-9, 1.0)})
    assert text is not None
    assert text.endswith("1 ulps")
    assert (
        found(receipt, {key: receipt[key] for key in ("iterations", "error_bound")})
        == "it.trace: is gone"
    )
    trace = [0, 1, 2, 3, 5, 5, 6, 7, 8]
    assert found(receipt, receipt | {"trace": trace}) == "it.trace[4]: was another one, is 5"
    assert (
        found(receipt, receipt | {"trace": trace[:4]})
        == "it.trace: was 9 items, is 4; those of both are equal"
    )
    assert found([1.0, None], [1.0, 0.0]) == "it[1]: was None, is 0.0"
    assert found({"a": True}, {"a": 1}) is not None
    assert found(np.zeros(3), np.zeros(3, np.float32)) == "it: was <f8[3], is <f4[3]"
    assert found(np.array([0.0]), np.array([-0.0])) is not None


def test_a_step_too_many_or_too_few_is_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.golden.record.RECORDS", tmp_path)
    steps = [("0 load", 1), ("1 update", np.arange(200.0))]
    write("some", iter(steps))
    assert first_difference("some", iter(steps)) is None
    assert (
        first_difference("some", iter(steps[:1]))
        == "some: step '1 update' was recorded, and not run"
    )
    assert (
        first_difference("some", iter(steps[1:]))
        == "some: step '0 load' was recorded, '1 update' was run"
    )
    assert (
        first_difference("some", iter([*steps, ("2", 0)]))
        == "some: step None was recorded, '2' was run"
    )
    assert first_difference("none", iter(steps)) == "none: was never recorded"
