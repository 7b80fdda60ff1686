"""Two hundred small faults in the engine and the service, and whether the tests see them.

    python -m pytest --cov=gpu --cov=service --cov-context=test tests/gpu tests/service
    python -m tests.mutation.campaign --processes 2     the figures of docs/operations.md
    python -m tests.mutation.campaign --only 17         one fault again

Each process has its own copy of the tree. A fault is drawn by the seed, put into the copy, and
tests run until one fails: those that pass through the changed line, as the first command recorded,
or for compiled code, which it does not see, those of the folders that use it. A fault that ends the
tests by their time limit is seen too. All tests have to pass without a fault.
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
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from coverage import CoverageData

from benchmarks.harness import RESULTS, ROOT, record
from tests.mutation.faults import Fault, faults_of

SECONDS = 240
"""Limit for the tests of one stage."""

_CPU = "--backend=cpu"
_EMULATED = "--backend=emulated"
_ENGINE = "tests/gpu"
_SERVICE = ["tests/service/pipeline", "tests/service/queries", "tests/service/http"]

STAGES: dict[str, list[list[str]]] = {
    "gpu/backends/cuda": [[_ENGINE, "tests/cuda_emulator", _EMULATED]],
    "gpu/backends": [[_ENGINE, _CPU]],
    "gpu/jit": [["tests/gpu/jit", _CPU], [_ENGINE, _CPU]],
    "gpu/graph": [["tests/gpu/graph", _CPU], [_ENGINE, _CPU], [_ENGINE, _EMULATED]],
    "gpu/pagerank": [["tests/gpu/pagerank", _CPU], [_ENGINE, _CPU], [_ENGINE, _EMULATED]],
    "gpu/personalized": [["tests/gpu/personalized", _CPU], [_ENGINE, _EMULATED], _SERVICE],
    "gpu": [[_ENGINE, _CPU], [_ENGINE, _EMULATED], _SERVICE],
    "service/http": [["tests/service/http"], ["tests/service", "tests/fuzz"]],
    "service/pipeline": [["tests/service/pipeline"], ["tests/service"], ["tests/crash"]],
    "service/storage": [
        ["tests/service/storage"],
        ["tests/service/pipeline", "tests/crash"],
        ["tests/service"],
    ],
    "service/queries": [["tests/service/queries"], ["tests/service"]],
    "service/formats": [["tests/service/formats", "tests/fuzz"], ["tests/service"]],
    "service/vertex_keys": [["tests/service/vertex_keys"], ["tests/service", "tests/fuzz"]],
    "service/client": [["tests/service/client"], ["tests/service"]],
    "service/cli": [["tests/service/cli"]],
    "service": [["tests/service/http", "tests/service/test_settings.py"], ["tests/service"]],
}
"""Arguments of pytest for each stage, by the longest folder that a changed file is in."""

COMPILED = ("gpu/backends/cpu", "gpu/jit", "service/vertex_keys", "gpu/generate/")
"""Numba keeps the callers of a changed function: here its caches are removed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """caught_by  the first test that failed, "time limit", or None"""

    number: int
    fault: Fault
    caught_by: str | None
    seconds: float


def stages_of(path: str) -> list[list[str]]:
    """The stages for a changed file."""
    folders = [folder for folder in STAGES if path.startswith(f"{folder}/")]
    return STAGES[max(folders, key=len)]


def drawn(seed: int, count: int) -> list[Fault]:
    """Faults drawn from both packages: files weigh as much as they offer faults, and no two are on
    one line.
    """
    files = [
        file
        for package in ("gpu", "service")
        for suffix in ("py", "cu", "cuh")
        for file in sorted((ROOT / package).rglob(f"*.{suffix}"))
    ]
    offered = [fault for file in files for fault in faults_of(ROOT, file)]
    random.Random(seed).shuffle(offered)
    chosen: dict[tuple[str, int], Fault] = {}
    for fault in offered:
        if len(chosen) == count:
            break
        chosen.setdefault((fault.path, fault.line), fault)
    return list(chosen.values())


class Workplace:
    """A copy of the tree in which one fault at a time is tried.

    coverage  the tests that pass through each line, if they were recorded
    """

    def __init__(self, folder: Path, coverage: CoverageData | None) -> None:
        self._folder = folder
        self._coverage = coverage
        shutil.copytree(ROOT, folder, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_COPIED))

    def try_fault(self, number: int, fault: Fault) -> Verdict:
        begin = time.monotonic()
        file = self._folder / fault.path
        before = file.with_name(f"{file.name}.before")
        shutil.copy2(file, before)
        compiled = fault.path.startswith(COMPILED)
        caches = list(self._folder.rglob("*.nb[ci]")) if compiled else []
        for cache in caches:
            cache.rename(cache.with_suffix(f"{cache.suffix}.before"))
        try:
            fault.put_into(self._folder)
            caught_by = None
            for tests in self._tests_for(fault):
                caught_by = self.run(tests)
                if caught_by is not None:
                    break
        finally:
            shutil.copy2(before, file)
            before.unlink()
            if compiled:
                for made in self._folder.rglob("*.nb[ci]"):
                    made.unlink()
            for cache in caches:
                cache.with_suffix(f"{cache.suffix}.before").rename(cache)
        return Verdict(number, fault, caught_by, round(time.monotonic() - begin, 1))

    def _tests_for(self, fault: Fault) -> list[list[str]]:
        """Arguments of pytest, one list after the other."""
        if self._coverage is None or fault.path.endswith((".cu", ".cuh")):
            return stages_of(fault.path)
        contexts = self._coverage.contexts_by_lineno(str(ROOT / fault.path))
        last = fault.line + fault.old.count("\n")
        tests = {
            context.split("|")[0]
            for line in range(fault.line, last + 1)
            for context in contexts.get(line, [])
            if "|" in context
        }
        if not tests:
            return stages_of(fault.path)
        room = "/".join(fault.path.split("/")[:2])
        ordered = sorted(tests, key=lambda test: (not test.startswith(f"tests/{room}"), test))
        # of many tests of one function with different parameters, a few first
        function = Counter[str]()
        first: list[str] = []
        later: list[str] = []
        for test in ordered:
            name = test.split("[")[0]
            function[name] += 1
            (first if function[name] <= 3 else later).append(test)
        return [part for part in (first[:120], [*first[120:], *later][:400]) if part]

    def run(self, arguments: list[str]) -> str | None:
        """The first test that fails, or that the time limit was exceeded."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        command += ["-p", "no:benchmark", "-p", "no:randomly", *arguments]
        threads = {"NUMBA_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "CI": ""}
        search = os.pathsep.join([str(self._folder), *_search_path()])
        with subprocess.Popen(
            command,
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | threads | {"PYTHONPATH": search},
            start_new_session=True,
        ) as process:
            try:
                out, _ = process.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.communicate()
                return "time limit"
        if process.returncode in (0, 5):
            return None
        failed = [line for line in out.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return failed[0].split(" - ")[0] if failed else f"exit status {process.returncode}"


_NOT_COPIED = (".git", ".venv", ".scratch", ".whl", "results", "node_modules")


def _search_path() -> list[str]:
    return [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]


def run(
    faults: list[Fault], processes: int, seconds: float, coverage: CoverageData | None
) -> list[Verdict]:
    """Tries the faults that time allows."""
    deadline = time.monotonic() + seconds
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="liverank-mutation-") as folder:
        places: SimpleQueue[Workplace] = SimpleQueue()
        for number in range(processes):
            places.put(Workplace(Path(folder, str(number), "tree"), coverage))

        def one(number: int) -> Verdict | None:
            if time.monotonic() > deadline:
                return None
            place = places.get()
            try:
                return place.try_fault(number, faults[number])
            finally:
                places.put(place)

        with ThreadPoolExecutor(processes) as pool:
            for future in as_completed([pool.submit(one, number) for number in range(len(faults))]):
                verdict = future.result()
                if verdict is not None:
                    verdicts.append(verdict)
                    _tell(verdict)
    return sorted(verdicts, key=lambda verdict: verdict.number)


def _tell(verdict: Verdict) -> None:
    fault = verdict.fault
    print(
        f"{verdict.number} {verdict.seconds} s {fault.path}:{fault.line} {fault.kind}: "
        f"{fault.old!r} -> {fault.new!r}: {verdict.caught_by or 'SURVIVED'}",
        flush=True,
    )


def figures_of(verdicts: list[Verdict]) -> dict[str, Any]:
    """What the record has."""
    kinds = Counter(verdict.fault.kind for verdict in verdicts)
    caught = Counter(v.fault.kind for v in verdicts if v.caught_by is not None)
    return {
        "faults": len(verdicts),
        "caught": caught.total(),
        "by kind": {kind: [caught[kind], kinds[kind]] for kind in sorted(kinds)},
        "survivors": [asdict(v.fault) for v in verdicts if v.caught_by is None],
        "seconds": round(sum(verdict.seconds for verdict in verdicts), 1),
    }


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin none later")
    parser.add_argument("--coverage", type=Path, default=ROOT / ".coverage")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the faults to try")
    parser.add_argument("--list", action="store_true", help="print the faults and end")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    faults = drawn(arguments.seed, arguments.faults)
    if arguments.only:
        faults = [faults[number] for number in arguments.only]
    if arguments.list:
        for number, fault in enumerate(faults):
            print(
                f"{number} {fault.path}:{fault.line} {fault.kind}: {fault.old!r} -> {fault.new!r}"
            )
        return
    coverage = None
    if arguments.coverage.is_file():
        coverage = CoverageData(str(arguments.coverage))
        coverage.read()
    verdicts = run(faults, arguments.processes, arguments.seconds, coverage)
    figures = figures_of(verdicts)
    print(json.dumps(figures["by kind"]))
    print(record("mutation", "cpu", figures, arguments.results))


if __name__ == "__main__":
    main()
