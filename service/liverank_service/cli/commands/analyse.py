"""`liverank analyse`: programs on the graph of a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from liverank.choices import Program
from liverank.options import GraphOptions
from liverank_service.cli import CommandError
from liverank_service.cli.commands.options import (
    EdgesFile,
    Json,
    Of,
    Place,
    RanksFile,
    grouped,
    read_edges,
    starting,
)

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


@dataclass(frozen=True)
class _Parameters:
    """Those of the programs, beside the damping."""

    source: Annotated[
        str | None, typer.Option(help="Where paths begin, for levels, distances and paths.")
    ] = None
    tolerance: Annotated[float | None, typer.Option(help="Of pagerank [1e-10].")] = None
    iterations: Annotated[
        int | None, typer.Option(help="Of labels [10] and trussness [no limit].")
    ] = None
    epsilon: Annotated[float | None, typer.Option(help="Of densest [0.1].")] = None


@dataclass(frozen=True)
class _Output(RanksFile):
    """What becomes of the values."""

    out: ValuesOut = None
    top: Annotated[
        int, typer.Option("--top", "--k", "-k", min=1, help="Number of largest values to print.")
    ] = 10
    as_json: Json = False


@app.command()
@grouped
def analyse(
    source: EdgesFile,
    programs: Annotated[
        list[str],
        typer.Argument(metavar="PROGRAM...", callback=_known, help="What to compute."),
    ],
    options: Annotated[dict[str, Any], Of(GraphOptions, only=("damping", "directed"))],
    parameters: _Parameters,
    place: Place,
    output: _Output,
) -> None:
    """Runs programs on the graph of a file; needs no server.

    Programs: pagerank, levels, distances, paths, components, labels, cores, densest, triangles,
    clustering; support, trussness and dn-graphs have values of edges. Of components and labels,
    the values printed are the sizes of the largest groups, of dn-graphs the highest λ.

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

    if output.out is not None and len(programs) > 1:
        raise CommandError("--out needs one program: a file has the values of one")
    directed = options.pop("directed", True)
    given = options | {name: one for name, one in vars(parameters).items() if one is not None}
    check_source(programs, given)
    how = programs, given, Options(directed=directed), place.backend
    if place.memory is None:
        edges = read_edges(source.file, source.wanted())
        with display.working("analysing"):
            found = analyse_edges(edges, source.file.name, *how)
    else:
        with display.working("analysing"):
            found = analyse_file(source.file, source.wanted(), place.memory, place.scratch, *how)
    left_out = {"duplicates": found.duplicates, "superseded": found.superseded}
    display.notice_left_out(found.unused_columns, **left_out)
    if output.write(found.answers[0].table):
        return
    if output.as_json:
        display.print_json(found.document(output.top))
        return
    console = display.output()
    for answer in found.answers:
        console.print(display.value_table(answer.program, answer.top(output.top, "largest")))
        console.print()
        summary = [(name, display.number(number)) for name, number in answer.summary.items()]
        seconds = f"{answer.receipt['seconds']:.3f} s"
        streamed = found.streaming.get(answer.program)
        loaded = [("streamed", str(streamed))] if streamed else []
        console.print(display.figures([*summary, ("seconds", seconds), *loaded]))
        console.print()
    sizes = (("vertices", f"{found.vertices:,}"), ("edges", f"{found.edges:,}"))
    console.print(display.figures([*sizes, ("backend", found.backend)]))
