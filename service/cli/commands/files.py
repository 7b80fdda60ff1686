"""`liverank load`, `replay` and `rank`: edge lists in files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.commands.options import (
    DEFAULT_URL,
    Backend,
    Damping,
    Dangling,
    File,
    Form,
    FrontierTolerance,
    Graph,
    Json,
    MaxIterations,
    PruneTolerance,
    RanksOut,
    Storage,
    Strategy,
    TargetError,
    Tolerance,
    Trace,
    Url,
    check_ranks_out,
    client_of,
    given,
    read_edges,
    send_batches,
    write_ranks,
)

if TYPE_CHECKING:
    from liverank.client import Client
    from service.formats.edge_list import EdgeList

app = typer.Typer(rich_markup_mode=None)


@app.command()
def load(
    file: File,
    graph: Graph = "default",
    damping: Damping = None,
    dangling: Dangling = None,
    target_error: TargetError = None,
    storage: Storage = None,
    tolerance: Tolerance = None,
    frontier_tolerance: FrontierTolerance = None,
    prune_tolerance: PruneTolerance = None,
    max_iterations: MaxIterations = None,
    form: Form = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Sends an edge list to a server and waits until it is ranked.

    Options are those of a new graph; one that exists must have them.
    """
    from service.cli import display, ingest

    options = given(
        damping=damping,
        dangling=dangling,
        target_error=target_error,
        storage=storage,
        tolerance=tolerance,
        frontier_tolerance=frontier_tolerance,
        prune_tolerance=prune_tolerance,
        max_iterations=max_iterations,
        form=form,
    )
    edges = read_edges(file)
    with client_of(url) as client:
        edges = ingest.with_keys(edges, ingest.prepare_graph(client, graph, edges, options))
        receipt, loaded = _load(client, graph, edges)
    if as_json:
        display.print_json({**display.document_of(receipt), "load": loaded})
        return
    display.output().print(
        display.figures(
            [
                ("edges sent", f"{len(edges):,}"),
                *display.counts(
                    inserted=loaded.inserted,
                    already_present=loaded.already_present,
                    deleted=loaded.deleted,
                    not_found=loaded.not_found,
                    superseded=loaded.superseded,
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
    graph: Graph = "default",
    url: Url = DEFAULT_URL,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line per batch.")] = False,
) -> None:
    """Sends a temporal edge list as a stream: 90 % first, then batch after batch.

    A file with insertions and deletions starts with the events of its first time.
    """
    from service.cli import display, ingest

    options = given(
        damping=damping,
        dangling=dangling,
        target_error=target_error,
        storage=storage,
        tolerance=tolerance,
        frontier_tolerance=frontier_tolerance,
        prune_tolerance=prune_tolerance,
        max_iterations=max_iterations,
    )
    solve = given(strategy=strategy, form=form, trace=trace or None)
    plan = ingest.plan_replay(read_edges(file, time_column), batch_size, batches)
    with client_of(url) as client:
        kind = ingest.prepare_graph(client, graph, plan.initial, options)
        later = [ingest.with_keys(batch, kind) for batch in plan.batches]
        present = client.graph(graph).edges
        if present:
            display.notices().print(
                f"graph {graph!r} already has {present:,} edges: the figures are for the union"
            )
        _load(client, graph, ingest.with_keys(plan.initial, kind))
        send_batches(client, graph, later, len(later), solve, as_json)


@app.command()
def rank(
    file: File,
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
    backend: Annotated[Backend, typer.Option(help="auto: CUDA if there is a device.")] = "auto",
    out: RanksOut = None,
    as_json: Json = False,
) -> None:
    """Ranks the vertices of a file; needs no server.

    --out writes the ranks of all vertices.
    """
    from gpu import Options, Solve
    from service.cli import display
    from service.cli.rank import rank_edges

    options = Options(
        **given(
            damping=damping,
            dangling=dangling,
            target_error=target_error,
            storage=storage,
            tolerance=tolerance,
            frontier_tolerance=frontier_tolerance,
            prune_tolerance=prune_tolerance,
            max_iterations=max_iterations,
        )
    )
    check_ranks_out(out)
    edges = read_edges(file)
    with display.working("ranking"):
        ranking = rank_edges(
            edges, options, Solve(strategy, form, trace), backend, None if out else top
        )
    write_ranks(out, ranking)
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
                *display.counts(duplicates=ranking.duplicates, superseded=ranking.superseded),
                *display.unused(ranking.unused_columns),
                ("error bound", f"{ranking.error_bound:.1e}"),
                ("iterations", f"{ranking.iterations:,}"),
                ("backend", ranking.backend),
                ("build", f"{ranking.build_seconds:.3f} s"),
                ("solve", f"{ranking.solve_seconds:.3f} s"),
            ]
        )
    )
    if ranking.trace is not None:
        console.print()
        console.print(display.trace_table(ranking.trace))


def _load(client: Client, graph: str, edges: EdgeList) -> Any:
    """Loads with a progress bar, which is full once all edges are sent."""
    from service.cli import display, ingest

    with display.edge_progress() as progress:
        task = progress.add_task("edges", total=len(edges))
        return ingest.load(client, graph, edges, lambda count: progress.advance(task, count))
