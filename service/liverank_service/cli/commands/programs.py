"""`liverank program`: programs of users on a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liverank_service.cli.commands.options import DEFAULT_URL, Json, Url, client_of

program_app = typer.Typer(
    help="Programs of users, which a server checks and runs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app = typer.Typer(rich_markup_mode=None)
app.add_typer(program_app, name="program")

ProgramName = Annotated[str, typer.Argument(metavar="NAME", help="The program's name.")]


@program_app.command("put")
def put_program(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="The source.")
    ],
    name: Annotated[
        str | None, typer.Option(help="That analyses call it by. Default: the file's.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Has a server check, compile and keep the program in a file.

    The server needs LIVERANK_PROGRAMS=1, and the API key, if there are any, the scope admin.

    \b
    Examples:
      liverank program put widest.py
      liverank program put widest.py --name widest-2
    """
    from liverank_service.cli import display

    with client_of(url) as client:
        put = client.put_program(file.read_text("utf-8"), name or file.stem)
    display.show(put, display.program_table([put]), as_json)


@program_app.command("list")
def list_programs(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Lists the programs of users."""
    from liverank_service.cli import display

    with client_of(url) as client:
        listed = client.programs()
    display.show(listed, display.program_table(listed), as_json)


@program_app.command("show")
def show_program(name: ProgramName, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Prints the source of a program."""
    from liverank_service.cli import display

    with client_of(url) as client:
        found = client.program(name)
    if as_json:
        display.print_json(display.document_of(found))
    else:
        print(found.source.rstrip("\n"))


@program_app.command("drop")
def drop_program(name: ProgramName, url: Url = DEFAULT_URL) -> None:
    """Removes a program; runs of it end as they are."""
    with client_of(url) as client:
        client.drop_program(name)
