"""`liverank load`, `replay` and `rank`: edge lists in files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from liverank.choices import Strategy
from liverank_service.cli.commands.options import (
    DEFAULT_URL,
    LOADING_WAIT,
    Backend,
    Clock,
    Damping,
    Dangling,
    File,
    ForgetVertices,
    Form,
    Format,
    FrontierTolerance,
    Graph,
    HalfLife,
    Json,
    MaxIterations,
    MaxTimeAhead,
    Memory,
    Plot,
    PruneTolerance,
    RanksOut,
    Scratch,
    Storage,
    TargetError,
    Time,
    Tolerance,
    Trace,
    Undirected,
    Url,
    Wait,
    Weights,
    Window,
    check_plot_out,
    check_ranks_out,
    check_scratch,
    client_of,
    given,
    graph_options,
    read_edges,
    send_batches,
    starting,
    wanted_columns,
    write_ranks,
)
from liverank_service.cli.errors import CommandError

if TYPE_CHECKING:
    from liverank.client import Client
    from liverank_service.formats.edge_list import EdgeList

app = typer.Typer(rich_markup_mode=None)


@app.command()
def load(
    file: File,
    weights: Weights = None,
    time: Time = None,
    graph: Graph = "default",
    damping: Damping = None,
    dangling: Dangling = None,
    target_error: TargetError = None,
    storage: Storage = None,
    tolerance: Tolerance = None,
    frontier_tolerance: FrontierTolerance = None,
    prune_tolerance: PruneTolerance = None,
    max_iterations: MaxIterations = None,
    half_life: HalfLife = None,
    window: Window = None,
    clock: Clock = None,
    forget_vertices: ForgetVertices = False,
    max_time_ahead: MaxTimeAhead = None,
    undirected: Undirected = False,
    strategy: Annotated[
        Strategy | None, typer.Option(help="Of the graph's batches [auto].")
    ] = None,
    form: Form = None,
    url: Url = DEFAULT_URL,
    wait: Wait = None,
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

    options = graph_options(locals()) | given(strategy=strategy, form=form)
    edges, timed = read_edges(file, time, weights), time is not None
    with client_of(url, wait, LOADING_WAIT) as client:
        present = ingest.prepare_graph(client, graph, edges, options, timed)
        receipt, loaded = _load(client, graph, ingest.as_in_graph(edges, present), timed)
    display.notice_left_out(loaded.unused_columns, **loaded.not_new)
    if as_json:
        display.print_json({**display.document_of(receipt), "load": loaded})
        return
    display.output().print(
        display.figures(
            [
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
        )
    )


@app.command()
def replay(
    file: File,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Edges per batch; optional for files with operations.")
    ] = None,
    batches: Annotated[int, typer.Option(min=1, help="Maximum number of batches.")] = 100,
    time_column: Annotated[
        str | None,
        typer.Option(help="Column of the times: its name in the header, or its number from 1."),
    ] = None,
    weights: Weights = None,
    strategy: Annotated[Strategy | None, typer.Option(help="Default: the graph's.")] = None,
    form: Form = None,
    trace: Trace = False,
    damping: Damping = None,
    dangling: Dangling = None,
    target_error: TargetError = None,
    storage: Storage = None,
    tolerance: Tolerance = None,
    frontier_tolerance: FrontierTolerance = None,
    prune_tolerance: PruneTolerance = None,
    max_iterations: MaxIterations = None,
    half_life: HalfLife = None,
    window: Window = None,
    clock: Clock = None,
    forget_vertices: ForgetVertices = False,
    max_time_ahead: MaxTimeAhead = None,
    undirected: Undirected = False,
    graph: Graph = "default",
    url: Url = DEFAULT_URL,
    wait: Wait = None,
    plot: Plot = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line per batch.")] = False,
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

    options = graph_options(locals())
    solve = given(strategy=strategy, form=form, trace=trace or None)
    check_plot_out(plot)
    edges = read_edges(file, time_column, weights)
    display.notice_left_out(edges.unread)
    with display.working("planning batches"):
        plan = ingest.plan_replay(edges, batch_size, batches)
    with client_of(url, wait, LOADING_WAIT) as client:
        present_options = ingest.prepare_graph(client, graph, plan.initial, options)
        timed = ingest.has_times(present_options)
        later = [ingest.as_in_graph(batch, present_options) for batch in plan.batches]
        information = client.graph(graph)
        if information.edges:
            display.notices().print(
                f"graph {graph!r} already has {information.edges:,} edges: the figures are for "
                "the union"
            )
        _, loaded = _load(client, graph, ingest.as_in_graph(plan.initial, present_options), timed)
        display.notice_left_out((), **loaded.not_new)
        sent = send_batches(client, graph, later, len(later), solve, as_json, timed)
    if plot is not None:
        from liverank_service.cli.plots import plot_replay

        plot_replay(plot, sent)


@app.command()
def rank(
    file: File,
    weights: Weights = None,
    time: Time = None,
    half_life: HalfLife = None,
    top: Annotated[int, typer.Option(min=1, help="Number of places to print.")] = 10,
    strategy: Annotated[Strategy, typer.Option(help="Strategy of the solve.")] = "static",
    form: Form = None,
    trace: Trace = False,
    damping: Damping = None,
    dangling: Dangling = None,
    target_error: TargetError = None,
    storage: Storage = None,
    tolerance: Tolerance = None,
    frontier_tolerance: FrontierTolerance = None,
    prune_tolerance: PruneTolerance = None,
    max_iterations: MaxIterations = None,
    undirected: Undirected = False,
    backend: Annotated[Backend, typer.Option(help="auto: CUDA if there is a device.")] = "auto",
    memory: Memory = None,
    scratch: Scratch = None,
    out: RanksOut = None,
    format: Format = None,  # noqa: A002
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Ranks the vertices of a file; needs no server.

    --out writes the ranks of all vertices, --plot draws them by place.

    \b
    Examples:
      liverank rank web-Google.txt.gz
      liverank rank edges.parquet --out ranks.parquet --plot ranks.svg
      zcat edges.gz | liverank rank - --out - | head
      liverank rank crawl.parquet --memory 8GiB --scratch /mnt/fast --out ranks.parquet
    """
    from liverank_service.cli import display

    with starting():
        from liverank_gpu import Options, Solve
        from liverank_service.cli.rank import rank_edges, rank_file

    options = Options(**graph_options(locals()))
    if (time is None) != (half_life is None):
        raise CommandError("--time and --half-life need each other")
    check_ranks_out(out, format)
    check_plot_out(plot)
    solve, places = Solve(strategy, form, trace), None if out or plot else top
    check_scratch(scratch, memory)
    if memory is None:
        edges = read_edges(file, time, weights)
        with display.working("ranking"):
            ranking = rank_edges(edges, options, solve, backend, places)
    else:
        if half_life is not None:
            raise CommandError("--half-life cannot be used with --memory")
        wanted = wanted_columns(weights=weights)
        with display.working("ranking"):
            ranking = rank_file(file, wanted, memory, scratch, options, solve, backend, places)
    left_out = {"duplicates": ranking.duplicates, "superseded": ranking.superseded}
    display.notice_left_out(ranking.unused_columns, **left_out)
    if plot is not None:
        from liverank_service.cli.plots import plot_ranks

        plot_ranks(plot, ranking.table["rank"].to_numpy(), f"{file.name}: {strategy}")
    if write_ranks(out, format, ranking):
        return
    if as_json:
        display.print_json(ranking.document(top))
        return
    console = display.output()
    console.print(display.rank_table(ranking.places(top)))
    console.print()
    console.print(
        display.figures(
            [
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
        )
    )
    if ranking.trace is not None:
        console.print()
        console.print(display.trace_table(ranking.trace))


def _load(client: Client, graph: str, edges: EdgeList, timed: bool) -> Any:
    """Loads with a progress bar, which is full once all edges are sent."""
    from liverank_service.cli import display, ingest

    with display.edge_progress(len(edges)) as sent:
        return ingest.load(client, graph, edges, sent, timed)
