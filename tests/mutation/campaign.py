"""Two hundred small faults in the engine and the service, and whether the tests see them.

    python -m tests.mutation.campaign --processes 2         the figures of docs/operations.md
    python -m tests.mutation.campaign --only 17       one fault again

Each process has its own copy of the tree. A fault is drawn by the seed, put into the copy, and the
tests nearest to the changed file run until one fails; if none does, those of everything that uses
it. A fault that ends the tests by their time limit is seen too. Tests that fail without a fault are
left out, and named.
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

COMPILED = ("gpu/backends/cpu", "gpu/jit", "service/vertex_keys", "gpu/generate")
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

    failing  tests that fail without a fault
    stages   how many are run at most
    """

    def __init__(self, folder: Path, failing: list[str], stages: int) -> None:
        self._folder = folder
        self._failing = failing
        self._stages = stages
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
            for stage in stages_of(fault.path)[: self._stages]:
                caught_by = self.run(stage)
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

    def run(self, arguments: list[str]) -> str | None:
        """The first test that fails, or that the time limit was exceeded."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        command += ["-p", "no:benchmark", "-p", "no:randomly", *arguments]
        command += [f"--deselect={test}" for test in self._failing]
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


def failing_without_fault(processes: int) -> list[str]:
    """Tests that fail on this machine without a fault; compiles and keeps all kernels."""
    search = os.pathsep.join([str(ROOT), *_search_path()])
    environment = os.environ | {"PYTHONPATH": search, "NUMBA_NUM_THREADS": "2"}
    warm = "from gpu import Engine, Options\n"
    warm += "for s in ('float64', 'float32'): Engine(Options(storage=s), 'cpu').warm_up()\n"
    warm += "from service.catalog import warm_up_keys\nwarm_up_keys()\n"
    subprocess.run([sys.executable, "-c", warm], cwd=ROOT, env=environment, check=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(processes), "-p", "no:cacheprovider"]
    command += ["-p", "no:benchmark", _ENGINE, "tests/cuda_emulator", "tests/service"]
    command += ["tests/crash", "tests/fuzz"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    print("\n".join(done.stdout.splitlines()[-25:]), flush=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return [line.split(" - ")[0].split(" ", 1)[1] for line in lines]


def run(
    faults: list[Fault], processes: int, seconds: float, stages: int
) -> tuple[list[Verdict], list[str]]:
    """Tries the faults that time allows."""
    failing = failing_without_fault(processes)
    deadline = time.monotonic() + seconds
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="liverank-mutation-") as folder:
        places: SimpleQueue[Workplace] = SimpleQueue()
        for number in range(processes):
            places.put(Workplace(Path(folder, str(number), "tree"), failing, stages))

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
    return sorted(verdicts, key=lambda verdict: verdict.number), failing


def _tell(verdict: Verdict) -> None:
    fault = verdict.fault
    print(
        f"{verdict.number} {verdict.seconds} s {fault.path}:{fault.line} {fault.kind}: "
        f"{fault.old!r} -> {fault.new!r}: {verdict.caught_by or 'SURVIVED'}",
        flush=True,
    )


def figures_of(verdicts: list[Verdict], failing: list[str]) -> dict[str, Any]:
    """What the record has."""
    kinds = Counter(verdict.fault.kind for verdict in verdicts)
    caught = Counter(v.fault.kind for v in verdicts if v.caught_by is not None)
    return {
        "faults": len(verdicts),
        "caught": caught.total(),
        "by kind": {kind: [caught[kind], kinds[kind]] for kind in sorted(kinds)},
        "survivors": [asdict(v.fault) for v in verdicts if v.caught_by is None],
        "failing without a fault": failing,
        "seconds": round(sum(verdict.seconds for verdict in verdicts), 1),
    }


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin none later")
    parser.add_argument("--stages", type=int, default=9, help="how many of the stages to run")
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
    verdicts, failing = run(faults, arguments.processes, arguments.seconds, arguments.stages)
    figures = figures_of(verdicts, failing)
    print(json.dumps(figures["by kind"]))
    print(record("mutation", "cpu", figures, arguments.results))


if __name__ == "__main__":
    main()
