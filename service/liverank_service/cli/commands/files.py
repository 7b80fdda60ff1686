"""`liverank load`, `replay` and `rank`: edge lists in files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from liverank.choices import Strategy
from liverank.options import GraphKeywords, GraphOptions, SolveOptions
from liverank_service.cli import CommandError
from liverank_service.cli.commands.options import (
    IN_PROCESS,
    NEW_GRAPH,
    REPLAYED,
    EdgesFile,
    Json,
    LoadingServer,
    Of,
    Place,
    Plot,
    RanksFile,
    Sending,
    TimedFile,
    check_plot_out,
    grouped,
    read_edges,
    send_batches,
    starting,
    weights_of,
)

if TYPE_CHECKING:
    from liverank.client import Client
    from liverank_service.formats.edge_list import EdgeList
    from liverank_service.formats.seeds import SeedColumns

app = typer.Typer(rich_markup_mode=None)


@app.command()
@grouped
def load(
    source: TimedFile,
    options: Annotated[GraphKeywords, NEW_GRAPH],
    server: LoadingServer,
    as_json: Json = False,
) -> None:
    """Sends an edge list to a server and waits until it is ranked.

    The graph is created if there is none, with the kind of the file's keys and these options; one
    that exists must have them.

    \b
    Examples:
      liverank load edges.parquet --graph papers
      liverank load calls.csv --time when --half-life 86400 --graph calls
      curl -s https://example.org/edges.csv.gz | liverank load -
    """
    from liverank_service.cli import display

    with starting():
        from liverank_service.cli import ingest

    edges, timed = source.read(), source.time is not None
    with server.client() as client:
        present = ingest.prepare_graph(client, server.graph, edges, options, timed)
        receipt, loaded = _load(client, server.graph, ingest.as_in_graph(edges, present), timed)
    display.notice_left_out(loaded.unused_columns, **loaded.not_new)
    figures = [
        ("edges sent", f"{len(edges):,}"),
        *display.counts(
            inserted=loaded.inserted,
            deleted=loaded.deleted,
            **loaded.not_new,
            expired=loaded.expired,
            new_vertices=loaded.new_vertices,
        ),
        *display.unused(loaded.unused_columns),
        ("version", f"{receipt.version:,}"),
        ("error bound", f"{receipt.error_bound:.1e}"),
        ("last batch", display.milliseconds(receipt.seconds["total"])),
    ]
    display.show({**display.document_of(receipt), "load": loaded}, figures, as_json)


@dataclass(frozen=True)
class _Stream(EdgesFile):
    """A file as a stream of batches."""

    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Edges per batch; optional for files with operations.")
    ] = None
    batches: Annotated[int, typer.Option(min=1, help="Maximum number of batches.")] = 100
    time_column: Annotated[
        str | None,
        typer.Option(help="Column of the times: its name in the header, or its number from 1."),
    ] = None


@dataclass(frozen=True)
class _Shown:
    """What a replay shows."""

    plot: Plot = None
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line per batch.")] = False

    def __post_init__(self) -> None:
        check_plot_out(self.plot)


@app.command()
@grouped
def replay(
    stream: _Stream,
    sending: Sending,
    options: Annotated[GraphKeywords, REPLAYED],
    server: LoadingServer,
    shown: _Shown,
) -> None:
    """Sends a temporal edge list as a stream of batches.

    The first 90 % are one batch, the rest follows batch after batch. A file with insertions and
    deletions starts with the events of its first time. --plot draws the latency, the time of the
    solve and the error bound of each batch. Times are sent to a graph with a half-life or a window.

    \b
    Examples:
      liverank replay wiki-talk.txt.gz --batch-size 1000
      liverank replay events.csv --time-column when --strategy residual --plot replay.svg
    """
    from liverank_service.cli import display

    with starting():
        from liverank_service.cli import ingest

    edges, graph = read_edges(stream.file, stream.wanted(stream.time_column)), server.graph
    display.notice_left_out(edges.unread)
    with display.working("planning batches"):
        plan = ingest.plan_replay(edges, stream.batch_size, stream.batches)
    with server.client() as client:
        present_options = ingest.prepare_graph(client, graph, plan.initial, options)
        timed = present_options.timed
        later = [ingest.as_in_graph(batch, present_options) for batch in plan.batches]
        information = client.graph(graph)
        if information.edges:
            display.notices().print(
                f"graph {graph!r} already has {information.edges:,} edges: the figures are for "
                "the union"
            )
        _, loaded = _load(client, graph, ingest.as_in_graph(plan.initial, present_options), timed)
        display.notice_left_out((), **loaded.not_new)
        sent = send_batches(client, graph, later, len(later), sending, shown.as_json, timed)
    if shown.plot is not None:
        from liverank_service.cli.plots import plot_replay

        plot_replay(shown.plot, sent)


@dataclass(frozen=True)
class _Output(RanksFile):
    """What becomes of the ranks of a file."""

    top: Annotated[
        int, typer.Option("--top", "--k", "-k", min=1, help="Number of places to print.")
    ] = 10
    plot: Plot = None
    as_json: Json = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_plot_out(self.plot)


@dataclass(frozen=True)
class _RankedFile(TimedFile):
    """A file of edges, and where walks on them restart; the default is everywhere."""

    seed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VERTEX[=WEIGHT]",
            help="Walks restart at this vertex, not everywhere (default weight: 1). Repeatable.",
        ),
    ] = None
    teleport: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Or at the vertices of this file, in its first column, with the weights in its "
            "second, if it has one: CSV with a header, Parquet or Arrow.",
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.seed and self.teleport is not None:
            raise CommandError("--seed and --teleport exclude each other")

    @property
    def seeds(self) -> SeedColumns | None:
        from liverank_service.cli.table_files import read_weights
        from liverank_service.formats.seeds import SeedColumns

        if self.seed:
            return SeedColumns.of(weights_of(self.seed))
        return None if self.teleport is None else SeedColumns.of(read_weights(self.teleport))


@app.command()
@grouped
def rank(
    *,
    source: _RankedFile,
    strategy: Annotated[Strategy, typer.Option(help="Strategy of the solve.")] = "static",
    solve: Annotated[dict[str, Any], Of(SolveOptions, without=("strategy",))],
    options: Annotated[dict[str, Any], IN_PROCESS],
    place: Place,
    output: _Output,
) -> None:
    """Ranks the vertices of a file; needs no server.

    --out writes the ranks of all vertices, --plot draws them by place.

    \b
    Examples:
      liverank rank web-Google.txt.gz
      liverank rank edges.parquet --out ranks.parquet --plot ranks.svg
      zcat edges.gz | liverank rank - --out - | head
      liverank rank crawl.parquet --memory 8GiB --scratch /mnt/fast --out ranks.parquet
      liverank rank links.csv --seed example.org=2 --seed example.net
    """
    from liverank_service.cli import display

    with starting():
        from liverank_gpu import Options, Solve
        from liverank_service.cli.rank import rank_edges, rank_file

    if (source.time is None) == GraphOptions(**options).decays:
        raise CommandError("--time and --half-life need each other")
    seeds = source.seeds
    # from nothing, which is all there is here, views are solved by one strategy
    strategy = "auto" if seeds is not None and strategy == "static" else strategy
    how = Options(**options), Solve(strategy, **solve), place.backend
    places = None if output.out or output.plot else output.top
    if place.memory is None:
        edges = source.read()
        with display.working("ranking"):
            ranking = rank_edges(edges, *how, places, seeds)
    else:
        if source.time is not None:
            raise CommandError("--half-life cannot be used with --memory")
        with display.working("ranking"):
            where = (source.wanted(), place.memory, place.scratch)
            ranking = rank_file(source.file, *where, *how, places, seeds)
    left_out = {"duplicates": ranking.duplicates, "superseded": ranking.superseded}
    display.notice_left_out(ranking.unused_columns, **left_out)
    if output.plot is not None:
        from liverank_service.cli.plots import plot_ranks

        ranks = ranking.table["rank"].to_numpy()
        plot_ranks(output.plot, ranks, f"{source.file.name}: {strategy}")
    if output.write(ranking.to_arrow):
        return
    if output.as_json:
        display.print_json(ranking.document(output.top))
        return
    console = display.output()
    console.print(display.rank_table(ranking.places(output.top)))
    console.print()
    figures = [
        ("vertices", f"{ranking.vertices:,}"),
        ("edges", f"{ranking.edges:,}"),
        *display.counts(**left_out),
        *display.unused(ranking.unused_columns),
        ("error bound", f"{ranking.error_bound:.1e}"),
        ("iterations", f"{ranking.iterations:,}"),
        ("backend", ranking.backend),
        ("build", f"{ranking.build_seconds:.3f} s"),
        ("solve", f"{ranking.solve_seconds:.3f} s"),
        *([("streamed", str(ranking.streaming))] if ranking.streaming else []),
    ]
    console.print(display.figures(figures))
    if ranking.trace is not None:
        console.print()
        console.print(display.trace_table(ranking.trace))


def _load(client: Client, graph: str, edges: EdgeList, timed: bool) -> Any:
    """Loads with a progress bar, which is full once all edges are sent."""
    from liverank_service.cli import display, ingest

    with display.edge_progress(len(edges)) as sent:
        return ingest.load(client, graph, edges, sent, timed)
