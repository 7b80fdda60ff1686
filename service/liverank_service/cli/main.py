"""The command `liverank`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from liverank_service.cli.commands import (
    agents,
    analyse,
    api_keys,
    consume,
    doctor,
    exports,
    files,
    generate,
    operations,
    programs,
    queries,
)

EPILOG = """
--install-completion completes commands and options in the shell that runs it.

LIVERANK_URL is the server of all commands that ask one, LIVERANK_API_KEY their API key.

Exit codes: 0 success; 1 failure, with one line on stderr; 2 wrong usage; 70 the server lost
its GPU; 130 interrupted by Ctrl-C.
"""

app = typer.Typer(
    help="PageRank that stays fresh on a changing graph.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from liverank import __version__

        print(f"liverank {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """PageRank that stays fresh on a changing graph."""


_COMMANDS = (
    operations,
    files,
    analyse,
    programs,
    generate,
    consume,
    queries,
    exports,
    api_keys,
    agents,
    doctor,
)

for commands in _COMMANDS:
    app.add_typer(commands.app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line. Exit codes: 0, 1 with one line on stderr, 2 for wrong usage."""
    try:
        app(args=arguments, prog_name="liverank")
    except Exception as error:
        message = str(error) if _is_expected(error) else f"unexpected {_place_of(error)}"
        if getattr(error, "status", None) == 401:  # the server names a header
            message += "; commands send the key of LIVERANK_API_KEY"
        _write_last_line(" ".join(message.split()))
        raise SystemExit(1) from None


def _write_last_line(message: str) -> None:
    if "liverank_service.logs" in sys.modules:  # a server, whose logs may be JSON
        sys.modules["liverank_service.logs"].write_last_line(message)
    else:
        print(f"liverank: {message}", file=sys.stderr)


_EXPECTED = {
    "liverank_gpu": "EngineError",
    "liverank_service.cli": "CommandError",
    "liverank.errors": "LiverankError",
    "liverank_service.errors": "ServiceError",
    "liverank_service.formats.edge_list": "EdgeListError",
    "liverank_service.settings": "InvalidSetting",
}
"""Errors reported by their message: class names by module, not imported for a fast start."""


def _is_expected(error: Exception) -> bool:
    return isinstance(error, OSError) or any(
        module in sys.modules and isinstance(error, getattr(sys.modules[module], name))
        for module, name in _EXPECTED.items()
    )


def _place_of(error: Exception) -> str:
    """The error and the line that raised it, for a bug report."""
    import traceback

    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {frame.filename}:{frame.lineno}: {error}"
