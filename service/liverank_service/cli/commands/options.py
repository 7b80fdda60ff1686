"""Options and steps that several commands share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from liverank.choices import Form as FormName
from liverank.choices import Target
from liverank_service.cli.errors import CommandError
from liverank_service.sizes import parse_size

if TYPE_CHECKING:
    from liverank.client import Client
    from liverank.client.call import Call, T
    from liverank.tables import Tabular
    from liverank_service.cli.ingest import ReplayedBatch
    from liverank_service.formats.edge_list import EdgeList, WantedColumns

Backend = Literal["auto", "cpu", "cuda", "reference"]

_NEGATIVE_KEY = re.compile(r"-\d+(=.*)?")


class KeysCommand(TyperCommand):
    """A command whose arguments are keys of vertices: `-5` is one, and no unknown option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = {
            name for each in self.get_params(ctx) for name in (*each.opts, *each.secondary_opts)
        }
        for before, text in pairwise(["", *takewhile(lambda text: text != "--", args)]):
            if (
                text.startswith("-")
                and not {text.partition("=")[0], text[:2], before} & options
                and not _NEGATIVE_KEY.fullmatch(text)
            ):
                super().parse_args(ctx, [text])  # says that there is no such option
        ctx.ignore_unknown_options = True
        rest: list[str] = super().parse_args(ctx, args)
        return rest


def _readable(file: Path) -> Path:
    # typer's own check of existence refuses - in some of its versions
    if str(file) != "-" and not file.is_file():
        kind = "is a directory" if file.is_dir() else "does not exist"
        raise typer.BadParameter(f"file '{file}' {kind}.")
    return file


File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        callback=_readable,
        help="An edge list, compressed or not; - reads stdin.",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of the weights: its name in the header, or its number from 1. Default: none.",
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="COLUMN",
        help="Column of the times: its name in the header, or its number from 1. Default: none.",
    ),
]
Url = Annotated[str, typer.Option(envvar="LIVERANK_URL", help="The server.")]
Wait = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Seconds to wait for a server that is starting [600], or that is not there yet [0].",
    ),
]
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
    str | None, typer.Option(help="Type of the numbers of a vertex: always float64.")
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
HalfLife = Annotated[
    float | None,
    typer.Option(help="Seconds after which a weight is worth half of a new one [never]."),
]
Window = Annotated[
    float | None, typer.Option(help="Seconds after which an edge leaves the graph [never].")
]
Clock = Annotated[
    Literal["wall", "event"] | None,
    typer.Option(help="event: the largest time that was sent counts as now [wall]."),
]
ForgetVertices = Annotated[
    bool, typer.Option("--forget-vertices", help="Vertices leave with their last edge by age.")
]
MaxTimeAhead = Annotated[
    float | None,
    typer.Option(help="Seconds that a time may be ahead of the server's clock [60; event: 86400]."),
]
MaxIterations = Annotated[int | None, typer.Option(help="Of one solve [500].")]
Undirected = Annotated[
    bool, typer.Option("--undirected", help="An edge is followed either way, and is one edge.")
]
Json = Annotated[bool, typer.Option("--json", help="JSON for machines.")]
Data = Annotated[
    str | None, typer.Option(metavar="<path>", help="Directory of the graphs [liverank-data].")
]


def size(text: str) -> int:
    """See parse_size. Raises typer.BadParameter."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Memory = Annotated[
    int | None,
    typer.Option(
        metavar="SIZE",
        parser=size,
        help="Read edges from files while ranking; keep arrays of the graph within SIZE (8GiB).",
    ),
]
Scratch = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="With --memory: folder of those files, 16 to 24 bytes an edge."
    ),
]

RANK_FILES = (".txt", ".csv", ".ndjson", ".parquet", ".arrow")
RanksOut = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="A file for the ranks: .txt, .csv, .ndjson (also .gz, .zst, .bz2), .parquet, .arrow; "
        "- writes csv to stdout, and nothing else.",
    ),
]
Format = Annotated[
    Literal["txt", "csv", "ndjson", "parquet", "arrow"] | None,
    typer.Option("--format", help="Format of the file; default: that of its suffix."),
]

Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="A figure: .svg or .png. Needs liverank[plot]."),
]

DEFAULT_URL = "http://127.0.0.1:8080"
LOADING_WAIT = 600.0
"""Of what loads a graph: a server may recover a large graph, or compile kernels for its GPU."""


@contextmanager
def starting() -> Iterator[None]:
    """While the engine is imported, for seconds."""
    from liverank_service.cli.display import working

    with working("starting", at_once=False):
        yield


def check_scratch(scratch: Path | None, memory: int | None) -> None:
    """Raises CommandError for a folder of files that are not written."""
    if memory is None and scratch is not None:
        raise CommandError("--scratch needs --memory")


def check_ranks_out(out: Path | None, format: Format) -> None:  # noqa: A002
    """Raises CommandError for a path that `write_ranks` cannot write, before there are ranks."""
    if out is None and format is not None:
        raise CommandError("--format is the format of --out, which is missing")
    if out is not None:
        from liverank_service.cli.table_files import check_path

        check_path(out, RANK_FILES, format)


def write_ranks(out: Path | None, format: Format, ranks: Tabular) -> bool:  # noqa: A002
    """Writes vertices and ranks, best first; returns whether to stdout, which then has nothing
    else. Raises CommandError, OSError.
    """
    if out is None:
        return False
    from liverank_service.cli.display import working
    from liverank_service.cli.table_files import STANDARD, write_table

    with working(f"writing {out.name}"):
        write_table(out, ranks.to_arrow(), format)
    return out == STANDARD


def check_plot_out(plot: Path | None) -> None:
    """Raises CommandError if the figure cannot be written, before there is anything to draw."""
    if plot is not None:
        from liverank_service.cli.plots import check_plot

        check_plot(plot)


def given(**options: Any) -> dict[str, Any]:
    """The options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


_GRAPH_OPTIONS = (
    *("damping", "dangling", "target_error", "storage", "tolerance", "frontier_tolerance"),
    *("prune_tolerance", "max_iterations"),
)


_TIME_OPTIONS = ("half_life", "window", "clock", "max_time_ahead")
"""Of the commands that take times."""


def graph_options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a graph that are given among the parameters of a command."""
    return given(
        directed=False if parameters["undirected"] else None,
        forget_vertices=parameters.get("forget_vertices") or None,
        **{name: parameters[name] for name in _GRAPH_OPTIONS},
        **{name: parameters.get(name) for name in _TIME_OPTIONS},
    )


def settled_target(order: object, members: object) -> Target | None:
    """The target of --settled and --settled-set; None without them. Raises CommandError."""
    if order and members:
        raise CommandError("expected --settled or --settled-set, got both")
    if order:
        return "settled-top-k"
    return "settled-set" if members else None


def client_of(url: str, wait: float | None = None, start_seconds: float | None = None) -> Client:
    """A client that says on stderr what its calls wait for.

    wait           see Wait; None: not for a server that is not there
    start_seconds  how long to wait for one that is starting, without `wait`; None: as the client
    """
    from liverank import Client
    from liverank_service.cli.display import notices, working

    told = set[str]()

    def tell(reason: str) -> None:
        if reason not in told:
            told.add(reason)
            notices().print(f"waiting for {url}: {reason}")

    class PatientClient(Client):
        def _run(self, call: Call[T]) -> T:
            with working(f"waiting for {url}", at_once=False):
                return super()._run(call)

    starting = given(start_seconds=start_seconds if wait is None else wait)
    return PatientClient(url, waiting=tell, connect_seconds=wait or 0.0, **starting)


def read_edges(file: Path, time_column: str | None = None, weights: str | None = None) -> EdgeList:
    from liverank_service.cli.display import working
    from liverank_service.formats.edge_files import read_edge_list

    with working(f"reading {file.name}"):
        edges = read_edge_list(file, wanted_columns(time_column, weights))
    if time_column is not None and edges.times is None:
        raise CommandError(f"{file}: a file of this format has no column of times")
    return edges


def wanted_columns(time: str | None = None, weights: str | None = None) -> WantedColumns:
    """The columns that are named on the command line."""
    from liverank_service.formats.edge_list import WantedColumns

    return WantedColumns(_column(time), _column(weights))


def _column(given: str | None) -> str | int | None:
    """A column's name, or its number."""
    return int(given) if given is not None and given.isdecimal() else given


def send_batches(
    client: Client,
    graph: str,
    batches: Iterable[EdgeList],
    total: int,
    solve: Mapping[str, Any],
    as_json: bool,
    timed: bool = False,
) -> list[ReplayedBatch]:
    """Sends batches in sequence, prints a row or a JSON line for each, and returns them.

    total  the number of batches
    solve  strategy, form and trace, as Client.send takes them
    timed  whether times are sent
    """
    from liverank_service.cli import display, ingest

    left_out = Counter[str]()
    sent = []

    def stream() -> Iterator[ingest.ReplayedBatch]:
        for batch in ingest.replay(client, graph, batches, solve, timed):
            left_out.update(batch.not_new)
            sent.append(batch)
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
    return sent
