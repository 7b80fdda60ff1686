"""`liverank generate`: graphs from a seed, written to files or sent to a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from liverank.choices import Strategy
from liverank.options import given
from liverank_service.cli.commands.options import (
    DEFAULT_URL,
    LOADING_WAIT,
    Backend,
    Json,
    Url,
    Wait,
    client_of,
    grouped,
    send_batches,
    starting,
)

if TYPE_CHECKING:
    from liverank_gpu import generate
    from liverank_service.cli.table_files import Edges

app = typer.Typer(rich_markup_mode=None)
group = typer.Typer(
    help="Generates a graph: the same seed gives the same graph.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(group, name="generate")

FORMATS = "File: .txt, .csv (also .gz, .zst, .bz2), .parquet or .arrow."

Seed = Annotated[int, typer.Option(help="The same seed gives the same graph.")]
Out = Annotated[Path, typer.Option(help=FORMATS)]
Events = Annotated[Path, typer.Option(help="File of events: .txt, also .gz, .zst or .bz2.")]
Vertices = Annotated[int, typer.Option(help="Number of vertices.")]
EdgesPerVertex = Annotated[int, typer.Option(min=1, help="Edges per vertex.")]


@group.command("rmat")
def rmat(
    out: Out,
    scale: Annotated[int, typer.Option(min=1, max=30, help="2^scale vertices.")] = 16,
    edges_per_vertex: EdgesPerVertex = 16,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """A graph with hubs, by R-MAT as in Graph500.

    Links between people or pages are like that.
    """
    with starting():
        from liverank_gpu import generate

    draw = partial(generate.rmat, scale, edges_per_vertex, seed=seed)
    _write(out, 2**scale, draw, as_json)


@group.command("grid")
def grid(
    out: Out,
    rows: Annotated[int, typer.Option(min=1)] = 256,
    columns: Annotated[int, typer.Option(min=1)] = 256,
    keep: Annotated[float, typer.Option(help="Fraction of the edges to keep.")] = 1.0,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """A grid of vertices, like streets.

    Each is connected to its four neighbours.
    """
    with starting():
        from liverank_gpu import generate

    draw = partial(generate.grid, rows, columns, keep=keep, seed=seed)
    _write(out, rows * columns, draw, as_json)


@dataclass(frozen=True)
class _Drawn:
    """How a graph is drawn."""

    seed: Seed = 0
    backend: Annotated[Backend, typer.Option(help="Where it is drawn; the graph is the same.")] = (
        "auto"
    )


@dataclass(frozen=True)
class _Sent:
    """The graph of a server to which edges are sent, and how."""

    graph: Annotated[
        str | None, typer.Option(help="A graph of a server, to send the edges to instead.")
    ] = None
    batch_size: Annotated[
        int, typer.Option(min=1, help="With --graph: vertices that arrive in a batch, in order.")
    ] = 1000
    strategy: Annotated[
        Strategy | None, typer.Option(help="With --graph. Default: the graph's.")
    ] = None
    url: Url = DEFAULT_URL
    wait: Wait = None
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON for machines; with --graph a line per batch.")
    ] = False


@group.command("preferential-attachment")
@grouped
def preferential_attachment(
    *,
    vertices: Vertices = 65_536,
    edges_per_vertex: EdgesPerVertex = 4,
    probability: Annotated[
        float, typer.Option(help="Of an edge to a uniformly chosen vertex; 0.5: Barabási-Albert.")
    ] = 0.5,
    drawn: _Drawn,
    out: Annotated[Path | None, typer.Option(help=FORMATS)] = None,
    sent: _Sent,
) -> None:
    """A scale-free graph, by the copy model.

    Each vertex links to earlier ones.
    """
    if (out is None) == (sent.graph is None):
        raise typer.BadParameter("expected either --out or --graph")
    with starting():
        from liverank_gpu import generate

    draw = partial(
        generate.preferential_attachment,
        vertices,
        edges_per_vertex,
        probability=probability,
        **vars(drawn),
    )
    if out is not None:
        _write(out, vertices, lambda: draw().edge_list(), sent.as_json)
    elif sent.graph is not None:
        from liverank_service.cli.display import working

        with working("generating"):
            attached = draw()
        _send(sent.graph, attached, sent)


@group.command("uniform")
@grouped
def uniform(
    *,
    out: Out,
    vertices: Vertices = 65_536,
    edges: Annotated[int, typer.Option(help="Number of edges, all distinct.")] = 1_048_576,
    drawn: _Drawn,
    as_json: Json = False,
) -> None:
    """Distinct edges, chosen uniformly: G(n, m)."""
    with starting():
        from liverank_gpu import generate

    def draw() -> Edges:
        columns = generate.uniform(vertices, edges, **vars(drawn))
        return generate.edge_list(columns, drawn.backend)

    _write(out, vertices, draw, as_json)


@dataclass(frozen=True)
class _Chains:
    length: Annotated[float, typer.Option(help="Mean vertices of a path.")] = 30.0
    branching: Annotated[float, typer.Option(help="Share of the ends that branch off.")] = 0.5
    shuffle: Annotated[bool, typer.Option(help="Relabel the vertices.")] = True


@group.command("chains")
@grouped
def chains(
    *,
    out: Out,
    vertices: Vertices = 65_536,
    shape: _Chains,
    drawn: _Drawn,
    as_json: Json = False,
) -> None:
    """Long paths with few branches.

    The k-mer graphs of genomes are like that.
    """
    with starting():
        from liverank_gpu import generate

    def draw() -> Edges:
        columns = generate.chains(vertices, **vars(shape), **vars(drawn))
        return generate.edge_list(columns, drawn.backend)

    _write(out, vertices, draw, as_json)


@dataclass(frozen=True)
class _Stream:
    arrivals: Annotated[int, typer.Option(help="Vertices that arrive in a batch.")] = 1000
    edges_per_vertex: EdgesPerVertex = 4
    lifetime: Annotated[float, typer.Option(help="Mean batches until a vertex leaves.")] = 20.0
    batches: Annotated[int, typer.Option(help="Number of batches.")] = 100
    seed: Seed = 0


@group.command("temporal")
@grouped
def temporal(out: Events, stream: _Stream, as_json: Json = False) -> None:
    """Events for `replay`: vertices arrive and leave.

    One that leaves loses its edges.
    """
    from liverank_service.cli import display

    with starting():
        from liverank_gpu import generate
        from liverank_service.cli.table_files import write_events

    with display.working("generating"):
        vertices, events = write_events(out, generate.temporal_stream(**vars(stream)))
    _print_written(out, vertices, "events", events, as_json)


def _write(out: Path, vertices: int, draw: Callable[[], Edges], as_json: bool) -> None:
    from liverank_service.cli import display
    from liverank_service.cli.table_files import write_edges

    with display.working("generating"):
        edges = write_edges(out, draw)
    _print_written(out, vertices, "edges", edges, as_json)


def _print_written(out: Path, vertices: int, counted: str, count: int, as_json: bool) -> None:
    from liverank_service.cli import display

    if as_json:
        display.print_json({"file": str(out), "vertices": vertices, counted: count})
    else:
        display.output().print(f"{out}: {vertices:,} vertices, {count:,} {counted}")


def _send(graph: str, drawn: generate.PreferentialAttachment, how: _Sent) -> None:
    import pyarrow as pa

    from liverank_service.cli import ingest
    from liverank_service.cli.table_files import arrivals
    from liverank_service.formats.edge_list import EdgeList

    total, batches = arrivals(drawn, how.batch_size)
    nothing = pa.array([], pa.int64())
    with client_of(how.url, how.wait, LOADING_WAIT) as client:
        options = ingest.prepare_graph(client, graph, EdgeList(nothing, nothing))
        keyed = (ingest.as_in_graph(batch, options) for batch in batches)
        send_batches(client, graph, keyed, total, given(strategy=how.strategy), how.as_json)
