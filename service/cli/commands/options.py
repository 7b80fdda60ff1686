"""Options and steps that several commands share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from liverank.client import Client
    from liverank.tables import Tabular
    from service.formats.edge_list import EdgeList

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
FormName = Literal["accelerated", "published"]

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", exists=True, dir_okay=False, help="An edge list, compressed or not."
    ),
]
Url = Annotated[str, typer.Option(envvar="LIVERANK_URL", help="The server.")]
Graph = Annotated[str, typer.Option(help="The graph's name.")]
Form = Annotated[
    FormName | None,
    typer.Option(help="How a published strategy runs. Default: the graph's, or accelerated."),
]
Trace = Annotated[bool, typer.Option("--trace", help="What each iteration did.")]
Damping = Annotated[float | None, typer.Option(help="Probability of following an edge [0.85].")]
Dangling = Annotated[
    Literal["uniform", "self-loop"] | None,
    typer.Option(help="Where vertices without out-edges lead [uniform]."),
]
TargetError = Annotated[float | None, typer.Option(help="L1 error at which `auto` stops [1e-6].")]
Storage = Annotated[
    Literal["float64", "float32"] | None,
    typer.Option(help="float32: half the memory per vertex [float64]."),
]
Tolerance = Annotated[
    float | None,
    typer.Option(help="A published strategy stops when no rank moves by more [1e-10]."),
]
FrontierTolerance = Annotated[
    float | None,
    typer.Option(help="Relative change that makes the out-neighbours affected [1e-6]."),
]
PruneTolerance = Annotated[
    float | None,
    typer.Option(help="Relative change up to which a vertex is no longer affected [1e-6]."),
]
MaxIterations = Annotated[int | None, typer.Option(help="Of one solve [500].")]
Json = Annotated[bool, typer.Option("--json", help="JSON for machines.")]
Data = Annotated[str | None, typer.Option(metavar="<path>", help="Directory of the graphs.")]

RANK_FILES = (".txt", ".csv", ".ndjson", ".parquet", ".arrow")
RanksOut = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="A file for the ranks: .txt, .csv, .ndjson (also .gz, .zst, .bz2), .parquet, .arrow.",
    ),
]

DEFAULT_URL = "http://127.0.0.1:8080"


def check_ranks_out(out: Path | None) -> None:
    """Raises CommandError for a path that `write_ranks` cannot write, before there are ranks."""
    if out is not None:
        from service.cli.table_files import check_path

        check_path(out, RANK_FILES)


def write_ranks(out: Path | None, ranks: Tabular) -> None:
    """Writes vertices and ranks, best first. Raises CommandError, OSError."""
    if out is not None:
        from service.cli.table_files import write_table

        write_table(out, ranks.to_arrow())


def given(**options: Any) -> dict[str, Any]:
    """The options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def client_of(url: str) -> Client:
    from liverank import Client

    return Client(url)


def read_edges(file: Path, time_column: str | None = None) -> EdgeList:
    from service.cli.display import working
    from service.formats.edge_files import read_edge_list

    with working(f"reading {file.name}"):
        if time_column is not None and time_column.isdecimal():
            return read_edge_list(file, int(time_column))
        return read_edge_list(file, time_column)


def send_batches(
    client: Client,
    graph: str,
    batches: Iterable[EdgeList],
    total: int,
    solve: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Sends batches in sequence, and prints a row or a JSON line for each.

    total  the number of batches
    solve  strategy, form and trace, as Client.send takes them
    """
    from service.cli import display, ingest

    stream = ingest.replay(client, graph, batches, solve)
    if as_json:
        for batch in stream:
            receipt = display.document_of(batch.receipt)
            display.print_json({"batch": batch.number, "latency_seconds": batch.latency, **receipt})
        return
    with display.ReplayTable(total) as table:
        for batch in stream:
            table.add(batch)
