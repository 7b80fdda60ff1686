"""`liverank doctor`: what is installed, what works here, and what is wrong."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal, NamedTuple

import typer

from liverank_service.cli.commands.options import DEFAULT_URL, Data, Json, Url, client_of

app = typer.Typer(rich_markup_mode=None)

State = Literal["ok", "absent", "wrong"]

_EXTRAS = ("engine", "server", "cuda13", "cuda12", "programs", "mcp", "networkx", "cluster")
_OF_EXTRA = re.compile(r"(?P<package>[\w.-]+).*extra == ['\"](?P<extra>\w+)['\"]")


class Finding(NamedTuple):
    """What was looked at.

    state   ``absent``: not there, and nothing needs it; ``wrong``: what depends on it fails
    detail  what was found, or what to do
    """

    name: str
    state: State
    detail: str


@app.command()
def doctor(data: Data = None, url: Url = DEFAULT_URL, json: Json = False) -> None:
    """Says what is installed, what works here, and what is wrong.

    Exit code 1 if something is wrong. What is only absent, such as a GPU, is not.
    """
    from liverank_service.cli.display import figures, notices, print_json

    findings = [*_installed(), *_backends(), _data(data), _server(url)]
    if json:
        print_json([finding._asdict() for finding in findings])
    else:
        from rich.console import Console

        rows = [(each.name, f"{each.state:8}{each.detail}") for each in findings]
        Console(highlight=False, soft_wrap=True).print(figures(rows))
    wrong = [finding.name for finding in findings if finding.state == "wrong"]
    if wrong:
        notices().print(f"wrong: {', '.join(wrong)}")
        raise typer.Exit(1)


def _installed() -> Iterator[Finding]:
    """The version, the machine, and for each extra whether its packages are there."""
    from liverank import __version__

    cores, gibibytes = len(os.sched_getaffinity(0)), _memory() / 2**30
    yield Finding("liverank", "ok", f"{__version__}, Python {platform.python_version()}")
    machine = f"{platform.machine()}, {cores} cores, {gibibytes:.1f} GiB of memory free"
    yield Finding("machine", "ok", machine)
    extras: dict[str, list[str]] = {}
    for requirement in requires("liverank") or ():
        if (found := _OF_EXTRA.match(requirement)) and found["extra"] in _EXTRAS:
            extras.setdefault(found["extra"], []).append(found["package"])
    for extra in _EXTRAS:
        missing = [each for each in extras.get(extra, ()) if not _is_there(each)]
        name, lacks = f"extra {extra}", f"without {', '.join(missing)}"
        yield Finding(name, "absent", lacks) if missing else Finding(name, "ok", "is installed")


def _is_there(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def _backends() -> Iterator[Finding]:
    """Whether a graph of one edge is ranked by CUDA and by the CPU; if by neither, by NumPy."""
    try:
        from liverank_gpu import BackendUnavailable, EdgeBatch, Engine, Options
    except ImportError as error:
        yield Finding("backends", "absent", f"{error.name} is not installed (extra engine)")
        return
    for name in ("cuda", "cpu", "reference"):
        try:
            engine = Engine(Options(), name)
            engine.apply(EdgeBatch.of(insert=[(0, 1)]))
            engine.update()
        except BackendUnavailable as error:
            # any machine has a CPU, and few have a GPU
            yield Finding(f"backend {name}", "wrong" if name == "cpu" else "absent", error.reason)
        except Exception as error:  # what fails is what is looked for
            yield Finding(f"backend {name}", "wrong", f"{type(error).__name__}: {error}")
        else:
            yield Finding(f"backend {name}", "ok", "ranks a graph")
            if name != "cuda":
                break


def _data(given: str | None) -> Finding:
    """Whether `liverank serve` could write its data."""
    folder = Path(given or os.environ.get("LIVERANK_DATA") or "liverank-data")
    there = folder
    while not there.exists() and there != there.parent:
        there = there.absolute().parent
    name, free = f"data {folder}", shutil.disk_usage(there).free / 2**30
    if not there.is_dir():
        return Finding(name, "wrong", f"{there} is not a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        return Finding(name, "wrong", f"{there} cannot be written to")
    if there != folder.absolute() and there != folder:
        return Finding(name, "ok", f"is made at the first start; {free:.1f} GiB free")
    return Finding(name, "ok", f"can be written to; {free:.1f} GiB free")


def _server(url: str) -> Finding:
    """Whether a server answers."""
    from liverank import LiverankError

    with client_of(url) as client:
        try:
            ready = client.ready()
        except LiverankError as error:
            return Finding(f"server {url}", "absent", str(error))
    state: State = "ok" if ready else "absent"
    return Finding(f"server {url}", state, "is ready" if ready else "no server is ready there")


def _memory() -> int:
    """Bytes that are available."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
