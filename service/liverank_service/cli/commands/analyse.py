"""`liverank analyse`: programs on the graph of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from liverank.choices import Program
from liverank_service.cli.commands.options import (
    Backend,
    Damping,
    File,
    Format,
    Json,
    Memory,
    Scratch,
    Undirected,
    Weights,
    check_ranks_out,
    check_scratch,
    given,
    read_edges,
    starting,
    wanted_columns,
)
from liverank_service.cli.errors import CommandError

app = typer.Typer(rich_markup_mode=None)


def _known(programs: list[str]) -> list[str]:
    for name in programs:
        if name not in get_args(Program):
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(get_args(Program))}.")
    return programs


ValuesOut = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="A file for all values, as rank writes ranks; of one program.",
    ),
]


@app.command()
def analyse(
    file: File,
    programs: Annotated[
        list[str],
        typer.Argument(metavar="PROGRAM...", callback=_known, help="What to compute."),
    ],
    weights: Weights = None,
    undirected: Undirected = False,
    source: Annotated[
        str | None, typer.Option(help="The vertex from which paths begin: levels, distances.")
    ] = None,
    damping: Damping = None,
    tolerance: Annotated[float | None, typer.Option(help="Of pagerank [1e-10].")] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Of labels [10] and trussness [no limit].")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Of densest [0.1].")] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of largest values to print.")] = 10,
    backend: Annotated[Backend, typer.Option(help="auto: CUDA if there is a device.")] = "auto",
    memory: Memory = None,
    scratch: Scratch = None,
    out: ValuesOut = None,
    format: Format = None,  # noqa: A002
    as_json: Json = False,
) -> None:
    """Runs programs on the graph of a file; needs no server.

    Programs: pagerank, levels, distances, components, labels, cores, densest, triangles,
    clustering; support and trussness have values of edges. Of components and labels, the values
    printed are the sizes of the largest groups.

    \b
    Examples:
      liverank analyse web-Google.txt.gz components triangles
      liverank analyse roads.csv distances --source Berlin --weights km --out distances.parquet
      liverank analyse edges.parquet cores --json
      liverank analyse crawl.parquet components pagerank --memory 8GiB
    """
    from liverank_service.cli import display

    with starting():
        from liverank_gpu import Options
        from liverank_service.cli.analyse import analyse_edges, analyse_file, check_source

    check_ranks_out(out, format)
    if out is not None and len(programs) > 1:
        raise CommandError("--out needs one program: a file has the values of one")
    check_scratch(scratch, memory)
    parameters = given(
        source=source, damping=damping, tolerance=tolerance, iterations=iterations, epsilon=epsilon
    )
    check_source(programs, parameters)
    options = Options(directed=not undirected)
    if memory is None:
        edges = read_edges(file, weights=weights)
        with display.working("analysing"):
            found = analyse_edges(edges, file.name, programs, parameters, options, backend)
    else:
        wanted = wanted_columns(weights=weights)
        with display.working("analysing"):
            found = analyse_file(
                file, wanted, memory, scratch, programs, parameters, options, backend
            )
    left_out = {"duplicates": found.duplicates, "superseded": found.superseded}
    display.notice_left_out(found.unused_columns, **left_out)
    if out is not None:
        from liverank_service.cli.table_files import STANDARD, write_table

        with display.working(f"writing {out.name}"):
            write_table(out, found.answers[0].table(), format)
        if out == STANDARD:
            return
    if as_json:
        display.print_json(found.document(top))
        return
    console = display.output()
    for answer in found.answers:
        console.print(display.value_table(answer.program, answer.top(top, "largest")))
        console.print()
        summary = [(name, f"{number:,g}") for name, number in answer.summary.items()]
        seconds = f"{answer.receipt['seconds']:.3f} s"
        streamed = found.streaming.get(answer.program)
        loaded = [("streamed", str(streamed))] if streamed else []
        console.print(display.figures([*summary, ("seconds", seconds), *loaded]))
        console.print()
    sizes = (("vertices", f"{found.vertices:,}"), ("edges", f"{found.edges:,}"))
    console.print(display.figures([*sizes, ("backend", found.backend)]))
