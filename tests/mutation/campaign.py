"""Two hundred small faults in the engine and the service, and whether the tests see them.

    python -m tests.mutation.campaign --processes 2        the figures of the notes
    python -m tests.mutation.campaign --survivors          again, with all tests that may see them
    python -m tests.mutation.campaign --only 17            one fault again
    python -m tests.mutation.campaign --only 17 --tests tests/gpu/test_types.py --backend=cpu

First every test file runs once without a fault, which tells how long it takes; tests that fail
here (a package is missing, say) are left out. Then faults are drawn by the seed, and each is put
into a copy of the tree, where tests run until one fails: those nearest to the changed file first,
and as many as `--budget` allows. A fault that ends the tests by the time limit is seen too.
Everything is logged as it happens, and continues there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from benchmarks.harness import RESULTS, ROOT, record
from tests.mutation.faults import Fault, faults_of

LOG = ROOT / ".mutation"
"""Folder of what has been found so far, which git ignores."""

FINDINGS = ROOT / "tests/mutation/findings.json"
"""What people found out about the faults of the recorded campaign, by number: `first run`, its
machine, command and count; `equivalent`, faults that change nothing, with the reasons; `new tests`,
faults for which a test was written or extended.
"""

TESTS: dict[str, tuple[str, ...]] = {
    "gpu": ("tests/gpu", "tests/service/queries", "tests/service/pipeline"),
    "service/liverank_service/cli": ("tests/service/cli", "tests/crash/test_syncs.py"),
    "service/liverank_service/formats": ("tests/service/formats", "tests/fuzz", "tests/service"),
    "service/liverank_service/pipeline": (
        "tests/service/test_locks.py",
        "tests/service/pipeline",
        "tests/crash",
        "tests/service",
    ),
    "service/liverank_service/storage": (
        "tests/service/test_locks.py",
        "tests/service/storage",
        "tests/crash",
        "tests/service/pipeline",
    ),
    "service": ("tests/service/test_locks.py", "tests/service", "tests/fuzz"),
}
"""Tests that may see a fault, the likeliest first, by the longest folder with the changed file."""

CPU_SUFFIXES = (".cpp", ".h")
"""Of files that are compiled for the CPU, into the extension of gpu/liverank_gpu/native."""

SUFFIXES = (".py", ".cu", ".cuh", *CPU_SUFFIXES)
"""Of files that faults are put into."""

RARE = ("lock not taken", "sync left out")
"""Kinds of which a tenth of the faults are, as far as there are so many."""

_NOT_COPIED = (
    *(".git", ".venv", ".scratch", ".whl", ".mutation", "results", "node_modules"),
    *(".mypy_cache", ".ruff_cache", ".hypothesis"),
)


@dataclass(frozen=True, slots=True)
class Baseline:
    """One file of tests without a fault.

    backend  its `--backend`
    failed   tests that fail without a fault; None if the file exceeded the time limit, or if pytest
             could not begin (a package that a conftest.py imports is missing, say)
    """

    file: str
    backend: str
    seconds: float
    failed: list[str] | None

    @property
    def is_usable(self) -> bool:
        """Whether it ended, and its tests could be collected."""
        return self.failed is not None and self.file not in self.failed


@dataclass(frozen=True, slots=True)
class Verdict:
    """caught_by  the first test that failed, "time limit", "compiler", or None"""

    number: int
    fault: Fault
    caught_by: str | None
    seconds: float


def drawn(seed: int, count: int) -> list[Fault]:
    """Faults drawn from both packages: first of the rare kinds, then of all, so that files weigh as
    much as they offer faults. No two are on one line.
    """
    offered = [fault for file in _sources(*SUFFIXES) for fault in faults_of(ROOT, file)]
    random.Random(seed).shuffle(offered)
    for kind in RARE:
        of_kind = [fault for fault in offered if fault.kind == kind]
        offered = [*of_kind[: count // 10], *offered]
    chosen: dict[tuple[str, int], Fault] = {}
    for fault in offered:
        if len(chosen) == count:
            break
        chosen.setdefault((fault.path, fault.line), fault)
    return list(chosen.values())


def _sources(*suffixes: str) -> Iterator[Path]:
    for package in ("gpu", "service"):
        for suffix in suffixes:
            yield from sorted((ROOT / package).rglob(f"*{suffix}"))


def _path(file: Path) -> str:
    return str(file.relative_to(ROOT))


def test_files(path: str) -> dict[str, tuple[bool, bool, int]]:
    """The files of tests that may see a fault in a file; those with the smallest values first."""
    folder = max((each for each in TESTS if path.startswith(f"{each}/")), key=len)
    stem = Path(path).stem.strip("_")
    folder_name, *inside = Path(path).parent.parts
    mirrored = str(Path("tests", folder_name, *inside[1:]))
    found: dict[str, tuple[bool, bool, int]] = {}
    for place, tests in enumerate(TESTS[folder]):
        files = [ROOT / tests] if tests.endswith(".py") else (ROOT / tests).rglob("test_*.py")
        for file in map(_path, files):
            near = (stem not in Path(file).stem, not file.startswith(f"{mirrored}/"))
            found.setdefault(file, (*near, place))
    return found


def backends(path: str, device: str) -> list[str]:
    """The `--backend`s that tests run on, one after the other."""
    if path.startswith("gpu/liverank_gpu/backends/cuda"):
        return [device]
    if path.startswith("gpu/liverank_gpu/backends/reference"):
        return ["reference"]
    if path.startswith(
        ("gpu/liverank_gpu/backends", "gpu/liverank_gpu/native")
    ) or not path.startswith("gpu"):
        return ["cpu"]
    return ["cpu", device]


class Workplace:
    """A copy of the tree, in which one process of tests runs at a time."""

    def __init__(self, folder: Path, gpu: int | None, longest: float) -> None:
        """gpu      the number of the only device that tests see; None: they see all
        longest  limit for one file of tests without a fault, in seconds
        """
        self._folder, self._longest = folder, longest
        self._environment = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": str(gpu)}
        shutil.copytree(ROOT, folder, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_COPIED))

    def baseline(self, file: str, backend: str) -> Baseline:
        begin = time.monotonic()
        status, failed = self._run([file, f"--backend={backend}"], self._longest)
        if status not in (0, 5) and not failed:
            failed = None
        return Baseline(file, backend, round(time.monotonic() - begin, 1), failed)

    def try_fault(
        self, number: int, fault: Fault, runs: list[list[Baseline]], tests: list[str]
    ) -> Verdict:
        """runs: the files of tests of each run, in their order
        tests: arguments of pytest in place of them
        """
        begin = time.monotonic()
        file = self._folder / fault.path
        before = file.with_name(f"{file.name}.before")
        shutil.copy2(file, before)
        try:
            fault.put_into(self._folder)
            caught_by = None if self._compiles(fault.path) else "compiler"
            if caught_by is None and tests:
                status, failed = self._run(["-x", *tests], self._longest)
                caught_by = _caught_by(status, failed)
            elif caught_by is None:
                for files in runs:
                    caught_by = caught_by or self._first_failure(files)
        finally:
            before.replace(file)
            self._compiles(fault.path)
        return Verdict(number, fault, caught_by, round(time.monotonic() - begin, 1))

    def _compiles(self, path: str) -> bool:
        """Compiles the CPU's kernels if the file is a part of them. Returns whether it could."""
        if not path.endswith(CPU_SUFFIXES):
            return True
        # -P: gpu/liverank_gpu/types.py is not the module types
        command = [sys.executable, "-P", "gpu/hatch_build.py"]
        return not subprocess.run(command, cwd=self._folder, capture_output=True).returncode

    def _first_failure(self, files: list[Baseline]) -> str | None:
        if not files:
            return None
        left_out = [f"--deselect={test}" for file in files for test in file.failed or ()]
        arguments = ["-x", f"--backend={files[0].backend}", *left_out]
        limit = 30 + 1.5 * sum(file.seconds for file in files)
        return _caught_by(*self._run([*arguments, *(file.file for file in files)], limit))

    def _run(self, arguments: list[str], seconds: float) -> tuple[int, list[str] | None]:
        """The exit status, and the tests that failed; None if they exceeded the time."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-p", "no:benchmark", "-p", "no:randomly", "-p", "no:xdist", *arguments]
        folders = [str(self._folder / name) for name in (".", "gpu", "service")]
        search = [*folders, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment = {
            "LIVERANK_THREADS": "2",
            "OMP_NUM_THREADS": "2",
            "PYTHONPATH": os.pathsep.join(filter(None, search)),
        }
        with subprocess.Popen(
            command,
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | environment | self._environment,
            start_new_session=True,
        ) as process:
            try:
                out, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.communicate()
                return -9, None
        lines = [line.split(" ", 1) for line in out.splitlines()]
        # lines of a captured log begin with ERROR too
        failed = [rest for word, *rest in lines if word in ("FAILED", "ERROR")]
        tests = [rest[0].split(" - ")[0] for rest in failed if rest]
        return process.returncode, [test for test in tests if test.startswith("tests/")]


def _caught_by(status: int, failed: list[str] | None) -> str | None:
    if failed is None:
        return "time limit"
    return next(iter(failed), None if status in (0, 5) else f"exit status {status}")


class Campaign:
    """What has been found so far, and workplaces to find out more."""

    def __init__(
        self, processes: int, deadline: float, device: str, gpus: int | None, log: Path
    ) -> None:
        """gpus: among which processes are divided"""
        self._processes = processes
        self._gpus = gpus
        self._deadline = deadline
        self._device = device
        self._log = log
        log.mkdir(exist_ok=True)
        found = self._logged("baseline.jsonl")
        self._baseline = {(each["file"], each["backend"]): Baseline(**each) for each in found}
        self.verdicts: dict[int, Verdict] = {}
        for each in self._logged("verdicts.jsonl"):
            verdict = Verdict(**each | {"fault": Fault(**each["fault"])})
            self.verdicts[verdict.number] = verdict

    def _logged(self, name: str) -> list[dict[str, Any]]:
        file = self._log / name
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def _note(self, name: str, found: Baseline | Verdict) -> None:
        with (self._log / name).open("a") as file:
            file.write(json.dumps(asdict(found)) + "\n")

    def run(
        self, faults: dict[int, Fault], budget: float, longest: float, tests: list[str]
    ) -> None:
        """Tries the faults that time allows, by their numbers. longest: see Workplace."""
        needed = (
            {}
            if tests
            else {
                (file, backend): None
                for fault in faults.values()
                for backend in backends(fault.path, self._device)
                for file in test_files(fault.path)
                if (file, backend) not in self._baseline
            }
        )
        with (
            tempfile.TemporaryDirectory(prefix="liverank-mutation-") as folder,
            ThreadPoolExecutor(self._processes) as pool,
        ):
            places: SimpleQueue[Workplace] = SimpleQueue()
            for place in pool.map(
                lambda number: Workplace(
                    Path(folder, str(number), "tree"), self._gpus and number % self._gpus, longest
                ),
                range(self._processes),
            ):
                places.put(place)

            def within_time(act: Any, *arguments: Any) -> Any:
                if time.monotonic() > self._deadline:
                    return None
                place = places.get()
                try:
                    return act(place, *arguments)
                finally:
                    places.put(place)

            for begun in as_completed(
                [pool.submit(within_time, Workplace.baseline, *each) for each in needed]
            ):
                if (baseline := begun.result()) is not None:
                    self._baseline[baseline.file, baseline.backend] = baseline
                    self._note("baseline.jsonl", baseline)
                    print(
                        f"{baseline.seconds} s {baseline.file} {baseline.backend}",
                        "not usable" if baseline.failed is None else baseline.failed or "",
                        flush=True,
                    )
            runs = {number: self._runs(fault, budget) for number, fault in faults.items()}
            if none := [n for n in faults if not (tests or any(runs[n]))]:
                print("no tests that pass without a fault, so not tried:", *none, flush=True)
            for tried in as_completed(
                [
                    pool.submit(
                        within_time, Workplace.try_fault, number, fault, runs[number], tests
                    )
                    for number, fault in faults.items()
                    if tests or any(runs[number])
                ]
            ):
                if (verdict := tried.result()) is not None:
                    self.verdicts[verdict.number] = verdict
                    self._note("verdicts.jsonl", verdict)
                    print(_line(verdict), flush=True)

    def _runs(self, fault: Fault, budget: float) -> list[list[Baseline]]:
        """The files of tests for a fault, within the seconds of the budget for each run."""
        runs = []
        for backend in backends(fault.path, self._device):
            order = test_files(fault.path)
            known = [self._baseline.get((file, backend)) for file in order]
            usable = [each for each in known if each is not None and each.is_usable]
            files: list[Baseline] = []
            seconds = 0.0
            for each in sorted(usable, key=lambda each: (order[each.file], each.seconds)):
                if not files or seconds + each.seconds <= budget:
                    files.append(each)
                    seconds += each.seconds
            runs.append(files)
        return runs


def _line(verdict: Verdict) -> str:
    fault = verdict.fault
    return (
        f"{verdict.number} {verdict.seconds} s {fault.path}:{fault.line} {fault.kind}: "
        f"{fault.old!r} -> {fault.new!r}: {verdict.caught_by or 'SURVIVED'}"
    )


def figures_of(verdicts: Iterable[Verdict], findings: dict[str, Any]) -> dict[str, Any]:
    """What the record has. findings: see FINDINGS."""
    verdicts = sorted(verdicts, key=lambda verdict: verdict.number)
    kinds = Counter(verdict.fault.kind for verdict in verdicts)
    caught = {verdict.number: verdict for verdict in verdicts if verdict.caught_by is not None}
    by_kind = Counter(verdict.fault.kind for verdict in caught.values())
    equivalent = findings["equivalent"]
    return {
        "faults": len(verdicts),
        "first run": findings["first run"],
        "caught without new tests": len(caught.keys() - set(findings["new tests"])),
        "caught": len(caught),
        "by kind": {kind: [by_kind[kind], kinds[kind]] for kind in sorted(kinds)},
        "survivors": [
            asdict(verdict.fault) | {"equivalent": equivalent.get(str(verdict.number))}
            for verdict in verdicts
            if verdict.number not in caught
        ],
    }


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin none later")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of tests for a fault")
    parser.add_argument(
        "--longest", type=float, default=300.0, help="leave out files of tests that take longer"
    )
    parser.add_argument("--device", default="emulated", choices=["emulated", "cuda"])
    parser.add_argument("--gpus", type=int, help="devices, each of which serves some processes")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the faults to try")
    parser.add_argument("--survivors", action="store_true", help="those again, with all tests")
    parser.add_argument("--list", action="store_true", help="print the faults and end")
    parser.add_argument("--tests", nargs="*", default=[], help="in place of the nearest")
    parser.add_argument("--log", type=Path, default=LOG)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments, pytest_arguments = parser.parse_known_args()
    for test in arguments.tests:
        if not (ROOT / test.split("::")[0]).exists():
            parser.error(f"{test} does not exist")
    faults = dict(enumerate(drawn(arguments.seed, arguments.faults)))
    campaign = Campaign(
        arguments.processes,
        time.monotonic() + arguments.seconds,
        arguments.device,
        arguments.gpus,
        arguments.log,
    )
    verdicts = campaign.verdicts
    for number in [n for n, verdict in verdicts.items() if verdict.fault != faults.get(n)]:
        del verdicts[number]  # of another state of the code
    if arguments.list:
        for number, fault in faults.items():
            print(_line(verdicts.get(number, Verdict(number, fault, "not tried", 0))))
        return
    if arguments.only is not None:
        chosen = {number: faults[number] for number in arguments.only}
    elif arguments.survivors:
        chosen = {n: faults[n] for n, verdict in verdicts.items() if verdict.caught_by is None}
    else:
        chosen = {n: fault for n, fault in faults.items() if n not in verdicts}
    budget = float("inf") if arguments.survivors else arguments.budget
    campaign.run(chosen, budget, arguments.longest, [*arguments.tests, *pytest_arguments])
    figures = figures_of(verdicts.values(), json.loads(FINDINGS.read_text("utf-8")))
    print(json.dumps(figures["by kind"]), figures["caught"], "of", figures["faults"])
    if len(verdicts) == len(faults):
        print(record("mutation", "cpu", figures, arguments.results))


if __name__ == "__main__":
    main()
