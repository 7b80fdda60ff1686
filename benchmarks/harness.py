"""What every benchmark shares: its options, the facts about a run, and the record of its figures.

A record is a JSON file in benchmarks/results/, named by suite and backend: see
benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = ROOT / "docs"
NOTES = ROOT / "benchmarks" / "notes"
BESIDE = {"--other": "../other", "--folder": "../authors"}
"""Options whose values are folders beside the project, and these."""


Answer = TypeVar("Answer")
Sizes = TypeVar("Sizes", bound=Any)
"""A dataclass."""

Suites = Mapping[str, tuple[Callable[..., Any], Mapping[str, Any]]]
"""See `run`."""


def parser(description: str, *, backends: bool = False) -> argparse.ArgumentParser:
    """A parser with the options that benchmarks have in common.

    backends  whether the benchmark runs on either backend
    """
    plain = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(description=description, formatter_class=plain)
    if backends:
        options.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    options.add_argument("--results", type=Path, default=RESULTS, help="folder of the record")
    return options


def run(
    description: str | None,
    suites: Suites,
    *,
    backends: bool = False,
    backend: str = "cpu",
) -> None:
    """The command of a script: measures, prints the figures and writes their record.

    suites    by name: what measures the figures, or yields them one by one (rows, or names and
              values), and its parameters, which are options of the command: by name the default, a
              list of them, or the type of one that has none, such as ``str``, or ``Path | None`` if
              it is not required. ``folder``, of real graphs, has a place of its own. The first word
              of the command may be the name of a suite; without it the first suite runs
    backends  whether it has the option `--backend`
    backend   that of the record, without the option
    """
    words = sys.argv[1:]
    suite = words.pop(0) if words and words[0] in suites else next(iter(suites))
    measure, defaults = suites[suite]
    named = f"\nsuites: {', '.join(suites)}" if len(suites) > 1 else ""
    options = parser(f"{description}{named}", backends=backends)
    for name, default in defaults.items():
        _add(options, f"--{name.replace('_', '-')}", default)
    given = vars(options.parse_args(words))
    results, backend = given.pop("results"), given.get("backend", backend)
    given |= {"results": results, "backend": backend}
    taken = signature(measure).parameters
    if "results" not in taken:
        del given["results"]
    if "backend" not in taken:
        del given["backend"]
    found = measure(**given)
    if not isinstance(found, Iterator):
        print(json.dumps(found, indent=1))
        print(record(suite, backend, found, results))
        return
    rows, figures = [], {}
    for each in found:  # what is done stays, whatever becomes of the rest
        print(each, flush=True)
        if isinstance(each, tuple):
            figures[each[0]] = each[1]
        else:
            rows.append(each)
        path = record(suite, backend, rows or figures, results)
    print(path)


def _add(options: argparse.ArgumentParser, name: str, default: Any) -> None:
    if isinstance(default, bool):
        options.add_argument(name, action="store_true")
    elif isinstance(default, list):
        options.add_argument(name, type=type(default[0]), nargs="+", default=default)
    elif name == "--folder":
        options.add_argument("folder", type=Path, help="of real graphs")
    elif isinstance(default, type):
        options.add_argument(name, type=default, required=True)
    elif isinstance(default, UnionType):
        kind = get_args(default)[0]
        if get_origin(kind) is list:
            options.add_argument(name, type=get_args(kind)[0], nargs="*")
        else:
            options.add_argument(name, type=kind)
    else:
        options.add_argument(name, type=type(default), default=default)


def resumed(
    path: Path, run: object, works: Mapping[str, Callable[[], Iterable[Any]]]
) -> dict[str, list[Any]]:
    """The rows of each of these, by name: what an interrupted run of the same commit and options
    had done is read from this file, which has what is done until all is.

    run  what else has to be the same
    """
    known, rows = f"{commit()} {run}", dict[str, list[Any]]()
    if path.exists() and (kept := json.loads(path.read_text()))["run"] == known:
        rows = kept["rows"]
    for name, work in works.items():
        if name not in rows:
            print(name, flush=True)
            rows[name] = list(work())
            path.parent.mkdir(parents=True, exist_ok=True)
            # an interrupted write leaves the file as it was
            beside = path.with_stem(f"{path.stem}-new")
            beside.write_text(json.dumps({"run": known, "rows": rows}))
            beside.replace(path)
    path.unlink(missing_ok=True)
    return rows


def sized(full: Sizes, small: Sizes, is_small: bool, given: Mapping[str, Any]) -> Sizes:
    """The sizes of a run: those of a small one or of a full one, but for what is given."""
    chosen = {name: value for name, value in given.items() if value is not None}
    return replace(small if is_small else full, **chosen)


def rounded(value: float) -> float:
    """To four digits, as records have times."""
    return float(f"{value:.4g}")


def machine(backend: str) -> dict[str, Any]:
    """The processor or device that a backend ran on, and the versions that matter."""
    facts: dict[str, Any] = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "numpy": np.__version__,
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
    """The measured commit; LIVERANK_COMMIT where the tree was copied without its history."""
    if "LIVERANK_COMMIT" in os.environ:
        return os.environ["LIVERANK_COMMIT"]
    described = _git("rev-parse", "--short=12", "HEAD")
    # records of earlier runs do not change what is measured
    changed = _git(
        "status", "--porcelain", "--untracked-files=no", "--", ":/", ":!/benchmarks/results"
    )
    return f"{described}-dirty" if changed else described


def _git(*arguments: str) -> str:
    answer = subprocess.run(
        ["git", *arguments], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return answer.stdout.strip()


def environment_of(tree: Path) -> dict[str, str]:
    """The environment of a process that imports the code of this checkout."""
    # earlier commits have the packages `gpu` and `service` in the root
    folders = [tree, *(tree / name for name in ("gpu", "service"))]
    packages = [tree / name / f"liverank_{name}" for name in ("gpu", "service")]
    found = folders if all(each.is_dir() for each in packages) else folders[:1]
    search = [*map(str, found), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(search)}


def figures_of(tree: Path, script: Path, *arguments: str) -> dict[str, Any]:
    """The figures that a script prints last, as JSON, in a process that imports the code of this
    checkout. Raises RuntimeError with what it wrote to its error stream.
    """
    # -P: modules beside the script are not those of the other checkout
    done = subprocess.run(
        [sys.executable, "-P", str(script), *arguments],
        env=environment_of(tree),
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def in_turns(other: Path, rounds: int, work: Callable[[Path], Answer]) -> dict[str, list[Answer]]:
    """What processes of the ``other`` checkout and of ``this`` one answer, in turns."""
    trees = {"other": other.resolve(), "this": ROOT}
    runs: dict[str, list[Answer]] = {which: [] for which in trees}
    for _ in range(rounds):
        for which, tree in trees.items():
            runs[which].append(work(tree))
    return runs


def compared(
    other: Path,
    rounds: int,
    work: Callable[[Path], dict[str, Any]],
    of_runs: Callable[[list[float]], float],
) -> dict[str, dict[str, float]]:
    """Of each figure that `work` has of a checkout, what `of_runs` makes of the processes of the
    other commit and of this one, in turns, and the ratio of this over the other.
    """
    runs = in_turns(other, rounds, work)
    rows = {}
    for name in runs["this"][0]:
        of, this = (of_runs([run[name] for run in runs[which]]) for which in runs)
        rows[name] = {"other": of, "this": this, "ratio": this / of}
        print(f"{name:48} {of:10.3f} {this:10.3f} {this / of:7.3f}", flush=True)
    return rows


def command(arguments: list[str]) -> str:
    """The command that repeats a run from the project's root: without the folders of its results,
    logs and data, and with the paths of graphs as they are on every machine. Another checkout, and
    those of others, are beside the project.
    """
    shown, given = [], iter(arguments[1:])
    for argument in given:
        if argument in ("--results", "--logs", "--directory"):
            next(given)
        elif argument in BESIDE:
            next(given)
            shown += [argument, BESIDE[argument]]
        elif Path(argument).is_file():
            shown.append(str(Path("../shared/data", *Path(argument).parts[-2:])))
        elif Path(argument).is_dir():
            shown.append("../shared/data")
        else:
            shown.append(argument)
    module = Path(arguments[0]).resolve().relative_to(ROOT).with_suffix("")
    parts = [part for part in module.parts if part != "__main__"]
    return shlex.join(["python", "-m", ".".join(parts), *shown])


def record(suite: str, backend: str, figures: Any, folder: Path = RESULTS) -> Path:
    """Writes the record of one run of a suite and returns its file."""
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
    """The record of a suite. Raises FileNotFoundError."""
    document: dict[str, Any] = json.loads((RESULTS / f"{suite}-{backend}.json").read_text())
    return document


def provenance(document: dict[str, Any]) -> str:
    """One line: the machine, the commit and the command of a record."""
    commit, command = document["commit"], document["command"]
    return f"Measured on {place(document)}, commit `{commit}`, by `{command}`."


def place(document: dict[str, Any]) -> str:
    """The device of a record, or the processor and its cores."""
    facts = document["machine"]
    where: str = facts.get("device", f"{facts['processor']}, {facts['cores']} cores")
    return where
