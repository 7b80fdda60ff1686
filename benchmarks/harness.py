"""What every benchmark shares: the facts about a run, and where its figures go.

Results are JSON files in benchmarks/results/, named by suite and backend. Each says on what
machine, from what commit and by what command it was made.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def machine(backend: str) -> dict[str, Any]:
    """The processor or device that a backend ran on, and the versions that matter."""
    facts: dict[str, Any] = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
    }
    if backend == "cuda":
        import cupy

        facts["device"] = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        facts["driver"] = cupy.cuda.runtime.driverGetVersion()
        facts["cupy"] = cupy.__version__
    return facts


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def commit() -> str:
    """The commit that is measured; LIVERANK_COMMIT where the tree travelled without its history."""
    if "LIVERANK_COMMIT" in os.environ:
        return os.environ["LIVERANK_COMMIT"]
    described = _git("rev-parse", "--short=12", "HEAD")
    # figures of the run before this one are no change of what is measured
    changed = _git(
        "status", "--porcelain", "--untracked-files=no", "--", ":/", ":!/benchmarks/results"
    )
    return f"{described}-dirty" if changed else described


def _git(*arguments: str) -> str:
    answer = subprocess.run(
        ["git", *arguments], capture_output=True, text=True, check=True, cwd=RESULTS
    )
    return answer.stdout.strip()


def command(arguments: list[str]) -> str:
    """The command to repeat a run from the project's root: without the folders that its results and
    its logs went to, and with graphs named where every machine has them.
    """
    shown, given = [], iter(arguments[1:])
    for argument in given:
        if argument in ("--results", "--logs"):
            next(given)
        elif Path(argument).is_file():
            shown.append(str(Path("../shared/data", *Path(argument).parts[-2:])))
        elif Path(argument).is_dir():
            shown.append("../shared/data")
        else:
            shown.append(argument)
    module = Path(arguments[0]).resolve().relative_to(ROOT).with_suffix("")
    return shlex.join(["python", "-m", ".".join(module.parts), *shown])


def record(suite: str, backend: str, figures: Any, folder: Path = RESULTS) -> Path:
    """Writes the figures of one run of a suite and returns the file."""
    document = {
        "suite": suite,
        "backend": backend,
        "machine": machine(backend),
        "commit": commit(),
        "command": command(sys.argv),
        "figures": figures,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{suite}-{backend}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def load(suite: str, backend: str) -> dict[str, Any]:
    """The recorded document of a suite. Raises FileNotFoundError where there is none."""
    document: dict[str, Any] = json.loads((RESULTS / f"{suite}-{backend}.json").read_text())
    return document
