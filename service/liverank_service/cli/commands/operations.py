"""`liverank serve`, `demo`, `checkpoint`, `recompute`, `backup` and `restore`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from liverank.options import SolveKeywords, SolveOptions
from liverank_service.cli import CommandError
from liverank_service.cli.commands.options import (
    Backend,
    Data,
    Json,
    Of,
    Server,
    grouped,
    settled_target,
    size,
    starting,
)

if TYPE_CHECKING:
    from liverank.client import Client, Key
    from liverank_service.storage.backup import CopiedGraph

app = typer.Typer(rich_markup_mode=None)


@dataclass(frozen=True)
class _Serving:
    """The settings that are options too."""

    data: Data = None
    backend: Annotated[
        Backend | None, typer.Option(help="auto: CUDA if there is a device [auto].")
    ] = None
    shards: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=64,
            help="Worker processes that hold each graph, each with a GPU on cuda; 0: none [0].",
        ),
    ] = None
    device_memory: Annotated[
        int | None,
        typer.Option(
            metavar="SIZE",
            parser=size,
            help="What arrays take on a GPU at most (8GiB); with shards, in each of the processes.",
        ),
    ] = None
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="<address>",
            help="Scheduler of an existing Dask cluster with these processes: tls://HOST:PORT.",
        ),
    ] = None
    host: Annotated[str | None, typer.Option(help="Address to listen on [127.0.0.1].")] = None
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Port to listen on; 0: a free one [8080]."),
    ] = None
    keys: Annotated[
        str | None,
        typer.Option(
            metavar="<path>",
            help="Directory for the keys `operator` and `prometheus`, made if they are missing.",
        ),
    ] = None
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Let other machines connect without API keys, and use a cluster without TLS.",
        ),
    ] = False


@app.command()
@grouped
def serve(settings: _Serving) -> None:
    """Starts the service.

    Options that are not given are read from the environment (LIVERANK_DATA and so on); the
    defaults in brackets come last.
    """
    import gc

    # Imported modules are never garbage: collecting would take a fifth of the time of the imports,
    # and later delay reads.
    gc.disable()
    from liverank_service.cli import serve as server
    from liverank_service.settings import Settings

    gc.freeze()
    gc.enable()
    given = vars(settings) | {"insecure": settings.insecure or None}
    server.serve(Settings(**given))


@app.command()
def demo(
    file: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="A temporal edge list instead of a generated graph."
        ),
    ] = None,
    batches: Annotated[int, typer.Option(min=1, help="Number of batches to send.")] = 20,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="Port of the service; 0: a free one [8080, or a free one if that is in use].",
        ),
    ] = None,
    leave: Annotated[
        bool, typer.Option("--exit", help="Stop at the end instead of leaving the service running.")
    ] = False,
    opens: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open",
            help="Open the dashboard in a browser; by default, on a desktop only.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Shows the service and the ranks of a changing graph.

    All of it runs here: in the terminal, and on the dashboard, whose address it prints.
    """
    with starting():
        from liverank_service.cli.demo import run_demo

    run_demo(file=file, batches=batches, port=port, stay=not leave, opens=opens)


@app.command()
@grouped
def checkpoint(server: Server, as_json: Json = False) -> None:
    """Has a server write a checkpoint of what is committed."""
    from liverank_service.cli import display

    with server.client() as client:
        taken = client.checkpoint(server.graph)
    figures = [
        ("version", f"{taken.version:,}"),
        ("bytes", f"{taken.bytes:,}"),
        ("written in", display.milliseconds(taken.write_seconds)),
        ("batches waited", display.milliseconds(taken.pause_seconds)),
    ]
    display.show(taken, figures, as_json)


@app.command()
@grouped
def remove(
    vertices: Annotated[list[str], typer.Argument(help="Keys of vertices.", metavar="VERTEX...")],
    server: Server,
    as_json: Json = False,
) -> None:
    """Removes vertices and their edges from a graph.

    Keys of no vertex are counted as unknown.
    """
    from liverank_service.cli import display

    with server.client() as client:
        receipt = client.remove(server.graph, _keys(client, server.graph, vertices))
    figures = [
        ("version", f"{receipt.version:,}"),
        ("removed", f"{receipt.removed:,}"),
        ("unknown", f"{receipt.unknown:,}"),
        ("edges", f"{receipt.removed_edges:,}"),
        ("error bound", f"{receipt.error_bound:.1e}"),
    ]
    display.show(receipt, figures, as_json)


@app.command()
@grouped
def replace(
    vertex: Annotated[str, typer.Argument(help="Key of a vertex.", metavar="VERTEX")],
    targets: Annotated[
        list[str] | None,
        typer.Argument(help="Its new targets; none: no edge.", metavar="TARGET..."),
    ] = None,
    *,
    server: Server,
    as_json: Json = False,
) -> None:
    """Replaces the out-list of a vertex (undirected: all its edges)."""
    from liverank_service.cli import display

    with server.client() as client:
        first, *others = _keys(client, server.graph, [vertex, *(targets or ())])
        receipt = client.replace(server.graph, {first: others})
    figures = [
        ("version", f"{receipt.version:,}"),
        ("inserted", f"{receipt.inserted:,}"),
        ("kept", f"{receipt.already_present + receipt.reweighted:,}"),
        ("deleted", f"{receipt.deleted:,}"),
        ("error bound", f"{receipt.error_bound:.1e}"),
    ]
    display.show(receipt, figures, as_json)


def _keys(client: Client, graph: str, texts: Sequence[str]) -> list[Key]:
    """The keys as the graph has them. Raises CommandError."""
    if client.graph(graph).options.keys == "string":
        return list(texts)
    keys: list[Key] = []
    for text in texts:
        try:
            keys.append(int(text))
        except ValueError:
            raise CommandError(f"{text}: the keys of this graph are integers") from None
    return keys


@app.command()
@grouped
def recompute(
    solve: Annotated[
        SolveKeywords,
        Of(
            SolveOptions,
            strategy="Strategy of the solve; default: static, or auto to prove places",
        ),
    ],
    server: Server,
    settled: Annotated[
        int | None,
        typer.Option(min=1, metavar="K", help="Go on until the first K places are proven."),
    ] = None,
    settled_set: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="K",
            help="Go on until it is proven which vertices have the first K places, in any order.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Has a server rank a graph again; its version does not change."""
    from liverank_service.cli import display

    target = settled_target(settled, settled_set)
    with server.client() as client:
        receipt = client.recompute(server.graph, target=target, k=settled or settled_set, **solve)
    figures = [
        ("version", f"{receipt.version:,}"),
        ("revision", f"{receipt.revision:,}"),
        ("iterations", f"{receipt.iterations:,}"),
        ("error bound", f"{receipt.error_bound:.1e}"),
        *([] if receipt.settled is None else [("proven places", f"{receipt.settled:,}")]),
        *([("proven set", "yes" if receipt.settled_set else "no")] if settled_set else []),
        ("time", display.milliseconds(receipt.seconds["total"])),
    ]
    display.show(receipt, figures, as_json)
    if receipt.trace is not None and not as_json:
        display.output().print(display.trace_table(receipt.trace))


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A directory: new or empty.")],
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Copies all graphs of a data directory and verifies the copy.

    A server may use the directory meanwhile.
    """
    from liverank_service.cli import display

    with starting():
        from liverank_service.settings import Settings
        from liverank_service.storage.backup import backup as copy

    source = Settings(data=data).data
    with display.working(f"copying {source}"):
        copied = copy(source, target)
    _print_copied(copied, target, as_json)


@app.command()
def restore(
    source: Annotated[
        Path, typer.Argument(metavar="BACKUP", exists=True, file_okay=False, help="A backup.")
    ],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="<path>", help="Directory of the graphs: new or empty [liverank-data]."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Verifies a backup and makes a data directory of it."""
    from liverank_service.cli import display

    with starting():
        from liverank_service.settings import Settings
        from liverank_service.storage.backup import restore as copy

    directory = Settings(data=data).data
    with display.working(f"restoring {directory}"):
        copied = copy(source, directory)
    _print_copied(copied, directory, as_json)


def _print_copied(copied: Sequence[CopiedGraph], target: Path, as_json: bool) -> None:
    from dataclasses import asdict

    from liverank_service.cli import display

    if as_json:
        display.print_json({"directory": str(target), "graphs": [asdict(one) for one in copied]})
        return
    if not copied:
        display.output().print(f"{target}: no graphs", soft_wrap=True)
    for one in copied:
        display.output().print(
            f"{target}: graph {one.graph}, version {one.version:,}, {one.bytes:,} bytes",
            soft_wrap=True,
        )
