"""`liverank keys`: API keys, over HTTP or in the data directory of a stopped server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from liverank.choices import Scope
from liverank_service.cli import CommandError
from liverank_service.cli.commands.options import DEFAULT_URL, Json, Url, client_of, grouped

keys = typer.Typer(
    help="API keys: who may read, write and administer which graphs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app = typer.Typer(rich_markup_mode=None)
app.add_typer(keys, name="keys")


@dataclass(frozen=True)
class _Key:
    """What a key is for."""

    scope: Annotated[Scope, typer.Option(help="Each includes the ones before it.")]
    name: Annotated[str, typer.Option(help="The purpose of the key.")] = "unnamed"
    graph: Annotated[
        list[str] | None,
        typer.Option(help="A graph that it is valid for; repeatable. Default: all."),
    ] = None


@keys.command("create")
@grouped
def create_key(
    wanted: _Key,
    data: Annotated[
        str | None,
        typer.Option(metavar="<path>", help="Directory of a stopped server, instead of a URL."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A new file for the key, instead of the terminal.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Creates an API key and shows it this once.

    The first one needs --data, or a server that listens on loopback alone.
    """
    from liverank_service.cli import display

    with _file_for_key(out) if out else nullcontext() as file:
        if data is not None:
            created = _create_offline(data, wanted.name, wanted.scope, wanted.graph)
        else:
            with client_of(url) as client:
                key = client.create_key(wanted.name, wanted.scope, wanted.graph)
            created = display.document_of(key)
        if file is not None:
            print(created.pop("key"), file=file)
    if as_json:
        display.print_json(created)
    else:
        print(created.get("key", f"key {created['id']} is in {out}"))


@keys.command("list")
def list_keys(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Lists a server's API keys, without their texts."""
    from liverank_service.cli import display

    with client_of(url) as client:
        listed = client.keys()
    display.show(listed, display.key_table(listed), as_json)


@keys.command("revoke")
def revoke_key(
    identity: Annotated[str, typer.Argument(metavar="ID", help="As shown by `keys list`.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Removes an API key; it takes effect at once."""
    with client_of(url) as client:
        client.revoke_key(identity)


@keys.command("reset")
def reset_keys(
    data: Annotated[
        Path, typer.Option(metavar="<path>", exists=True, help="Directory of a stopped server.")
    ],
) -> None:
    """Removes all API keys: the server then starts without.

    That works even if keys.json was lost.
    """
    from liverank_service.storage.api_keys import FILE, ApiKeyStore
    from liverank_service.storage.files import locked

    with locked(data):
        ApiKeyStore.reset(data)
    print(f"{data / FILE} is removed; the server starts without API keys")


def _create_offline(
    directory: str, name: str, scope: Scope, graphs: Sequence[str] | None
) -> dict[str, Any]:
    """Creates a key in a data directory that no server uses; returns what the server would.

    Raises InvalidValue, StorageFailed.
    """
    from liverank_service.settings import Settings
    from liverank_service.storage.api_keys import ApiKeyStore
    from liverank_service.storage.files import locked, make_directory

    data = Settings(data=directory).data
    make_directory(data)
    with locked(data):
        key, text = ApiKeyStore(data).create(name, scope, graphs)
    return {**key.document(), "key": text}


@contextmanager
def _file_for_key(path: Path) -> Iterator[TextIO]:
    """A new file that only its owner may read; removed if no key is written.

    Raises CommandError if the file exists, before a key is created that would be lost.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandError(f"{path} exists; a key does not overwrite a file") from None
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            yield file
    except BaseException:
        path.unlink()
        raise
