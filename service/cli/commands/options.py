"""Options and steps that several commands share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

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

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", exists=True, dir_okay=False, help="An edge list, compressed or not."
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of the weights: its name in the header, or its number from 1. Default: none.",
    ),
]
Url = Annotated[str, typer.Option(envvar="LIVERANK_URL", help="The server.")]
Graph = Annotated[str, typer.Option(help="The graph's name.")]
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


def client_of(url: str) -> Client:
    from liverank import Client

    return Client(url)


def read_edges(file: Path, time_column: str | None = None, weights: str | None = None) -> EdgeList:
    from service.cli.display import working
    from service.formats.edge_files import read_edge_list
    from service.formats.edge_list import WantedColumns

    with working(f"reading {file.name}"):
        return read_edge_list(file, WantedColumns(_column(time_column), _column(weights)))


def _column(given: str | None) -> str | int | None:
    """A column's name, or its number."""
    return int(given) if given is not None and given.isdecimal() else given


def send_batches(
    client: Client,
    graph: str,
    batches: Iterable[EdgeList],
    total: int,
    strategy: Strategy | None,
    as_json: bool,
) -> None:
    """Sends batches in sequence, and prints a row or a JSON line for each.

    total  the number of batches
    """
    from service.cli import display, ingest

    left_out = Counter[str]()

    def stream() -> Iterator[ingest.ReplayedBatch]:
        for batch in ingest.replay(client, graph, batches, strategy):
            left_out.update(batch.not_new)
            yield batch

    if as_json:
        for batch in stream():
            receipt = display.document_of(batch.receipt)
            display.print_json({"batch": batch.number, "latency_seconds": batch.latency, **receipt})
    else:
        with display.ReplayTable(total) as table:
            for batch in stream():
                table.add(batch)
    display.notice_left_out((), **left_out)
