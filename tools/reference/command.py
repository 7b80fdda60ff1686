"""Every command with its arguments and options, from the help that it prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from typer.testing import CliRunner

from liverank_service.cli.main import app
from tools.reference.markdown import heading

_INTRODUCTION = """\
# The command, option by option

What `liverank COMMAND --help` prints. [The command](operations-reference.md#the-command) says what
they have in common: formats of files, exit codes, waits.

This page is written by `python -m tools.reference`.
"""

_COLUMNS = 78
"""Of 80: the command leaves two free where a terminal has 80 columns or more."""


@cache
def help_of(*command: str) -> str:
    """What a command prints with --help, where a terminal is this wide."""
    done = CliRunner().invoke(
        app, [*command, "--help"], prog_name="liverank", terminal_width=_COLUMNS
    )
    if done.exit_code != 0:
        raise RuntimeError(f"{command}: {done.output}") from done.exception
    return done.stdout


def commands(*above: str) -> list[str]:
    """The names of the commands below one."""
    _, _, listed = help_of(*above).partition("\nCommands:\n")
    return re.findall(r"^  (\S+) ", listed.split("\n\n")[0], re.MULTILINE)


def command() -> Iterator[str]:
    """The lines of the page."""
    yield _INTRODUCTION
    named: list[tuple[str, ...]] = [(name,) for name in commands()]
    for name in named:
        below = commands(*name)
        for each in [(*name, sub) for sub in below] or [name]:
            yield from heading(2, " ".join(("liverank", *each)))
            yield from ("```text", *help_of(*each).strip().splitlines(), "```", "")
