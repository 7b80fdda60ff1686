"""The command `liverank`: parse, call, print. What the commands do stands in service/commands.

Modules that take long to import are imported where a command needs them, so that `--help` is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from service.client.client import Client
    from service.formats.edge_list import EdgeList
    from service.storage.backup import Copied

app = typer.Typer(
    help="PageRank that stays fresh on a changing graph.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
generate = typer.Typer(
    help="Writes a graph made from a seed: the same seed, the same graph.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(generate, name="generate")
keys = typer.Typer(
    help="API keys: who may read, write and administer which graphs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(keys, name="keys")

Strategy = Literal[
    "auto",
    "static",
    "naive-dynamic",
    "dynamic-traversal",
    "dynamic-frontier",
    "dynamic-frontier-prune",
    "residual",
]
Backend = Literal["auto", "cpu", "cuda"]

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", exists=True, dir_okay=False, help="An edge list, compressed or not."
    ),
]
Url = Annotated[str, typer.Option(help="The server.")]
Graph = Annotated[str, typer.Option(help="The graph's name.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for machines.")]
Count = Annotated[int, typer.Option("--k", "-k", min=1, help="How many places.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same graph.")]
Out = Annotated[
    Path, typer.Option(help="Where to: .txt, .csv (also .gz, .zst, .bz2), .parquet or .arrow.")
]

DEFAULT_URL = "http://127.0.0.1:8080"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line. Exit codes: 0, 1 with one line on stderr, 2 for wrong usage."""
    try:
        app(args=arguments, prog_name="liverank")
    except Exception as error:
        message = str(error) if _is_foreseen(error) else f"unforeseen {_whereabouts(error)}"
        print(f"liverank: {' '.join(message.split())}", file=sys.stderr)
        raise SystemExit(1) from None


_FORESEEN = {
    "gpu.errors": "EngineError",
    "service.client.client": "ClientError",
    "service.cli.errors": "CommandError",
    "service.formats.edge_list": "EdgeListError",
    "service.errors": "ServiceError",
    "service.settings": "InvalidSetting",
}
"""What is told in one line: classes by their modules, which a command may never have imported."""


def _is_foreseen(error: Exception) -> bool:
    return isinstance(error, OSError) or any(
        module in sys.modules and isinstance(error, getattr(sys.modules[module], name))
        for module, name in _FORESEEN.items()
    )


def _whereabouts(error: Exception) -> str:
    """The error and the line that raised it: what a report of a fault needs."""
    import traceback

    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {frame.filename}:{frame.lineno}: {error}"


@app.command()
def serve(
    data: Annotated[
        str | None, typer.Option(metavar="<path>", help="Directory of the graphs.")
    ] = None,
    backend: Annotated[Backend | None, typer.Option(help="auto takes CUDA where it is.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65_535, help="Port to listen on.")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let other machines connect without API keys.")
    ] = False,
) -> None:
    """Starts the service.

    What is not given comes from the environment (LIVERANK_DATA and so on), else from the defaults.
    """
    import gc

    # What the imports make stays to the end: to look for garbage among it takes a fifth of their
    # time, and later holds up reads.
    gc.disable()
    from service.cli import serve as serving
    from service.settings import Settings

    gc.freeze()
    gc.enable()
    serving.serve(
        Settings(data=data, backend=backend, host=host, port=port, insecure=insecure or None)
    )


@app.command()
def load(
    file: File, graph: Graph = "default", url: Url = DEFAULT_URL, as_json: Json = False
) -> None:
    """Sends an edge list to a server, and waits until it is ranked."""
    from service.cli import display
    from service.cli import ingest as streaming

    edges = _read(file)
    with _client(url) as client:
        edges = streaming.with_keys(edges, streaming.prepare_graph(client, graph, edges))
        receipt = _load(client, graph, edges)
    if as_json:
        display.print_json(receipt)
        return
    display.output().print(
        display.figures(
            [
                ("edges sent", f"{len(edges):,}"),
                ("version", f"{receipt['version']:,}"),
                ("error bound", f"{receipt['error_bound']:.1e}"),
                ("last batch", display.milliseconds(receipt["seconds"]["total"])),
            ]
        )
    )


@app.command()
def replay(
    file: File,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Edges in a batch; files with operations need none.")
    ] = None,
    batches: Annotated[int, typer.Option(min=1, help="How many batches at most.")] = 100,
    time_column: Annotated[
        str | None,
        typer.Option(help="The column of the times: its name in the header, or its number from 1."),
    ] = None,
    strategy: Annotated[Strategy | None, typer.Option(help="Default: the graph's own.")] = None,
    graph: Graph = "default",
    url: Url = DEFAULT_URL,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line a batch.")] = False,
) -> None:
    """Sends a temporal edge list as a stream: 90 % first, then batch after batch.

    A file with insertions and deletions begins with the events of its first time.
    """
    from service.cli import display
    from service.cli import ingest as streaming

    plan = streaming.plan_replay(_read(file, time_column), batch_size, batches)
    with _client(url) as client:
        kind = streaming.prepare_graph(client, graph, plan.initial)
        batches_due = [streaming.with_keys(batch, kind) for batch in plan.batches]
        present = client.graph(graph)["edges"]
        if present:
            display.notices().print(
                f"graph {graph!r} has {present:,} edges already: the figures are those of the union"
            )
        _load(client, graph, streaming.with_keys(plan.initial, kind))
        stream = streaming.replay(client, graph, batches_due, strategy)
        if as_json:
            for batch in stream:
                display.print_json(
                    {"batch": batch.number, "latency_seconds": batch.latency, **batch.receipt}
                )
            return
        with display.ReplayTable(len(batches_due)) as table:
            for batch in stream:
                table.add(batch)


@app.command()
def rank(
    file: File,
    top: Annotated[int, typer.Option(min=1, help="How many places to print.")] = 10,
    strategy: Annotated[Strategy, typer.Option(help="How to solve.")] = "static",
    damping: Annotated[float, typer.Option(help="Probability of following an edge.")] = 0.85,
    dangling: Annotated[
        Literal["uniform", "self-loop"], typer.Option(help="Where vertices without out-edges lead.")
    ] = "uniform",
    target_error: Annotated[float, typer.Option(help="L1 error at which `auto` stops.")] = 1e-6,
    storage: Annotated[
        Literal["float64", "float32"], typer.Option(help="float32: half the memory a vertex.")
    ] = "float64",
    backend: Annotated[Backend, typer.Option(help="auto takes CUDA where it is.")] = "auto",
    as_json: Json = False,
) -> None:
    """Ranks the vertices of a file; needs no server."""
    from gpu.types import Options
    from service.cli import display
    from service.cli.rank import rank_edges

    options = Options(
        damping=damping, dangling=dangling, target_error=target_error, storage=storage
    )
    edges = _read(file)
    with display.working("ranking"):
        ranking = rank_edges(edges, options, strategy, backend, top)
    if as_json:
        display.print_json(ranking.document())
        return
    console = display.output()
    console.print(display.rank_table(ranking.places))
    console.print()
    console.print(
        display.figures(
            [
                ("vertices", f"{ranking.vertices:,}"),
                ("edges", f"{ranking.edges:,}"),
                ("error bound", f"{ranking.error_bound:.1e}"),
                ("iterations", f"{ranking.iterations:,}"),
                ("backend", ranking.backend),
                ("build", f"{ranking.build_seconds:.3f} s"),
                ("solve", f"{ranking.solve_seconds:.3f} s"),
            ]
        )
    )


@app.command()
def top(
    k: Count = 10,
    offset: Annotated[int, typer.Option(min=0, help="Places to leave out.")] = 0,
    graph: Graph = "default",
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Asks a server for the vertices of highest rank."""
    from service.cli import display

    with _client(url) as client:
        answer = client.top(graph, k, offset)
    if as_json:
        display.print_json(answer)
        return
    display.output().print(display.rank_table(answer["ranks"], offset))
    _print_provenance(answer)


@app.command()
def get(
    vertex: Annotated[str, typer.Argument(metavar="VERTEX", help="The vertex's key.")],
    graph: Graph = "default",
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Asks a server for the rank of a vertex."""
    from service.cli import display

    with _client(url) as client:
        answer = client.rank(graph, vertex)
    if as_json:
        display.print_json(answer)
        return
    console = display.output()
    console.print(
        display.figures(
            [("vertex", display.printable(answer["vertex"])), ("rank", f"{answer['rank']:.8f}")]
        )
    )
    _print_provenance(answer)


@app.command()
def ppr(
    vertices: Annotated[
        list[str],
        typer.Argument(
            metavar="VERTEX[=WEIGHT]...",
            help="The seeds' keys; with several, each may have a weight (1 unless given).",
        ),
    ],
    k: Count = 10,
    method: Annotated[
        Literal["hybrid", "push", "pull"], typer.Option(help="How it is solved.")
    ] = "hybrid",
    target_error: Annotated[
        float | None, typer.Option(help="L1 error to reach; the graph's own unless given.")
    ] = None,
    settled: Annotated[
        bool, typer.Option("--settled", help="End as soon as the places are proven.")
    ] = False,
    graph: Graph = "default",
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Asks a server for what matters most as seen from a few vertices: personalized PageRank."""
    from service.cli import display
    from service.cli import query as asking

    with _client(url) as client:
        answer = asking.personalized(
            client, graph, vertices, k, method, target_error, "settled-top-k" if settled else None
        )
    if as_json:
        display.print_json(answer)
        return
    display.output().print(display.rank_table(answer["ranks"]))
    _print_provenance(answer)


@app.command()
def checkpoint(graph: Graph = "default", url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Lets a server write all that is committed to a checkpoint."""
    from service.cli import display

    with _client(url) as client:
        taken = client.checkpoint(graph)
    if as_json:
        display.print_json(taken)
        return
    display.output().print(
        display.figures(
            [
                ("version", f"{taken['version']:,}"),
                ("bytes", f"{taken['bytes']:,}"),
                ("written in", display.milliseconds(taken["write_seconds"])),
                ("batches waited", display.milliseconds(taken["pause_seconds"])),
            ]
        )
    )


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A directory to be made.")],
    data: Annotated[
        str | None, typer.Option(metavar="<path>", help="Directory of the graphs.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Copies all graphs of a data directory, also while a server uses it, and checks the copy."""
    from service.storage.backup import backup as copy

    _print_copied(copy(_settings_data(data), target), target, as_json)


@app.command()
def restore(
    source: Annotated[
        Path, typer.Argument(metavar="BACKUP", exists=True, file_okay=False, help="A backup.")
    ],
    data: Annotated[
        str | None, typer.Option(metavar="<path>", help="Directory of the graphs: new or empty.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Puts a backup, which is checked first, into a new data directory."""
    from service.storage.backup import restore as copy

    directory = _settings_data(data)
    _print_copied(copy(source, directory), directory, as_json)


@generate.command("rmat")
def generate_rmat(
    out: Out,
    scale: Annotated[int, typer.Option(min=1, max=30, help="2^scale vertices.")] = 16,
    edges_per_vertex: Annotated[int, typer.Option(min=1, help="Edges for each vertex.")] = 16,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """A graph with hubs, like links between people or pages (R-MAT, as in Graph500)."""
    from service.cli import display
    from service.cli import generate as writing

    writing.check_suffix(out)
    with display.working("generating"):
        from gpu.generate import rmat

        sources, targets = rmat(scale, edges_per_vertex, seed=seed)
        writing.write_edge_list(out, sources, targets)
    _print_generated(out, 2**scale, len(sources), as_json)


@generate.command("grid")
def generate_grid(
    out: Out,
    rows: Annotated[int, typer.Option(min=1)] = 256,
    columns: Annotated[int, typer.Option(min=1)] = 256,
    keep: Annotated[float, typer.Option(help="Share of the joints to keep.")] = 1.0,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """A grid of vertices joined to their four neighbours, like streets."""
    from service.cli import display
    from service.cli import generate as writing

    writing.check_suffix(out)
    with display.working("generating"):
        from gpu.generate import grid

        sources, targets = grid(rows, columns, keep=keep, seed=seed)
        writing.write_edge_list(out, sources, targets)
    _print_generated(out, rows * columns, len(sources), as_json)


@keys.command("create")
def create_key(
    scope: Annotated[
        Literal["read", "write", "admin"], typer.Option(help="Each includes those before it.")
    ],
    name: Annotated[str, typer.Option(help="What the key is for.")] = "unnamed",
    graph: Annotated[
        list[str] | None, typer.Option(help="A graph that it is for, repeatable. Default: all.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="<path>", help="Directory of a stopped server, instead of a URL."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A new file for the key, instead of the terminal.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Makes an API key and shows it, this once.

    The first one needs --data, or a server that listens on this machine alone.
    """
    from contextlib import nullcontext

    from service.cli import api_keys as commands
    from service.cli import display

    with commands.file_for_key(out) if out else nullcontext() as file:
        if data is not None:
            made = commands.create_offline(data, name, scope, graph)
        else:
            with _client(url) as client:
                made = client.create_key(name, scope, graph)
        if file is not None:
            print(made.pop("key"), file=file)
    if as_json:
        display.print_json(made)
    else:
        print(made.get("key", f"key {made['id']} is in {out}"))


@keys.command("list")
def list_keys(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Lists a server's API keys, without their texts."""
    from service.cli import display

    with _client(url) as client:
        found = client.keys()
    if as_json:
        display.print_json(found)
        return
    display.output().print(display.key_table(found))


@keys.command("revoke")
def revoke_key(
    identity: Annotated[str, typer.Argument(metavar="ID", help="As `liverank keys list` has it.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Ends an API key at once."""
    with _client(url) as client:
        client.revoke_key(identity)


@app.command()
def demo(
    file: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="A temporal edge list instead of a made graph."
        ),
    ] = None,
    batches: Annotated[int, typer.Option(min=1, help="How many batches to send.")] = 20,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Port of the service; 0 takes any free one."),
    ] = None,
    leave: Annotated[
        bool, typer.Option("--exit", help="Stop at the end, instead of leaving the service up.")
    ] = False,
) -> None:
    """Shows the whole thing on one machine: a service, a changing graph, its ranks as they move."""
    from service.cli.demo import run_demo

    run_demo(file=file, batches=batches, port=port, stay=not leave)


def _read(file: Path, time_column: str | None = None) -> EdgeList:
    from service.cli import display
    from service.formats.edge_files import read_edge_list

    with display.working(f"reading {file.name}"):
        if time_column is not None and time_column.isdecimal():
            return read_edge_list(file, int(time_column))
        return read_edge_list(file, time_column)


def _client(url: str) -> Client:
    from service.client.client import Client

    return Client(url)


def _load(client: Client, graph: str, edges: EdgeList) -> Any:
    """Loads with a progress bar; after the last edge is sent it stands until they are ranked."""
    from service.cli import display
    from service.cli import ingest as streaming

    with display.edge_progress() as progress:
        task = progress.add_task("edges", total=len(edges))
        return streaming.load(client, graph, edges, lambda count: progress.advance(task, count))


def _settings_data(data: str | None) -> Path:
    from service.settings import Settings

    return Settings(data=data).data


def _print_copied(copied: Sequence[Copied], target: Path, as_json: bool) -> None:
    from dataclasses import asdict

    from service.cli import display

    if as_json:
        display.print_json({"directory": str(target), "graphs": [asdict(one) for one in copied]})
        return
    if not copied:
        display.output().print(f"{target}: no graph is there yet", soft_wrap=True)
    for one in copied:
        display.output().print(
            f"{target}: graph {one.graph}, version {one.version:,}, {one.bytes:,} bytes",
            soft_wrap=True,
        )


def _print_provenance(answer: Any) -> None:
    from service.cli import display

    display.output().print(
        f"version {answer['version']:,}, error bound {answer['error_bound']:.1e}", style="dim"
    )


def _print_generated(out: Path, vertices: int, edges: int, as_json: bool) -> None:
    from service.cli import display

    if as_json:
        display.print_json({"file": str(out), "vertices": vertices, "edges": edges})
    else:
        display.output().print(f"{out}: {vertices:,} vertices, {edges:,} edges")


if __name__ == "__main__":
    main()
