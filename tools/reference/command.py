"""Every command with its arguments and options, from the help that it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from tools.reference.markdown import heading

_INTRODUCTION = """\
# The command, option by option

What `liverank COMMAND --help` prints. [The command](operations-reference.md#the-command) says what
they have in common: formats of files, exit codes, waits.

This page is written by `python -m tools.reference`.
"""

_COLUMNS = "100"


@cache
def help_of(*command: str) -> str:
    """What a command prints with --help, where a terminal is this wide."""
    done = subprocess.run(
        [sys.executable, "-m", "liverank_service.cli", *command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": _COLUMNS, "NO_COLOR": "1"},
    )
    return done.stdout


def commands(*above: str) -> list[str]:
    """The names of the commands below one."""
    _, _, listed = help_of(*above).partition("\nCommands:\n")
    return re.findall(r"^  (\S+) ", listed.split("\n\n")[0], re.MULTILINE)


def command() -> Iterator[str]:
    """The lines of the page."""
    yield _INTRODUCTION
    named: list[tuple[str, ...]] = [(name,) for name in commands()]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda each: help_of(*each), named))
    for name in named:
        below = commands(*name)
        for each in [(*name, sub) for sub in below] or [name]:
            yield from heading(2, " ".join(("liverank", *each)))
            yield from ("```text", *help_of(*each).strip().splitlines(), "```", "")
