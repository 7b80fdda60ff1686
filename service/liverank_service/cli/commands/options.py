"""Options and steps that several commands share."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from functools import cache, cached_property, wraps
from itertools import pairwise, takewhile
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from msgspec import Meta, Struct
from msgspec.structs import FieldInfo, fields
from typer.core import TyperCommand

from liverank.choices import Target
from liverank.options import (
    OF_SOME_BATCHES,
    BatchKeywords,
    BatchOptions,
    GraphOptions,
    RanksKeywords,
    RanksOptions,
    described,
    given,
)
from liverank_service.cli import CommandError
from liverank_service.sizes import parse_size

if TYPE_CHECKING:
    import pyarrow as pa

    from liverank.client import Client
    from liverank.client.call import Call, T
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
        kind = "is no regular file; - reads stdin" if file.exists() else "does not exist"
        kind = "is a directory" if file.is_dir() else kind
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
Url = Annotated[str, typer.Option(envvar="LIVERANK_URL", help="The server.")]
Wait = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Seconds to wait for a server that is starting [600], or that is not there yet [0].",
    ),
]
Graph = Annotated[str, typer.Option(help="The graph's name.")]
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


RANK_FILES = (".txt", ".csv", ".ndjson", ".parquet", ".arrow")
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

# Groups of options: see `grouped`

_COLUMN = "its name in the header, or its number from 1"


@dataclass(frozen=True)
class Server:
    """The graph of a server."""

    graph: Graph = "default"
    url: Url = DEFAULT_URL

    def client(self) -> Client:
        return client_of(self.url)


@dataclass(frozen=True)
class LoadingServer(Server):
    """The graph of a server, for a command that loads one."""

    wait: Wait = None

    def client(self) -> Client:
        return client_of(self.url, self.wait, LOADING_WAIT)


@dataclass(frozen=True)
class EdgesFile:
    """A file of edges, and which of its columns are read beside the keys."""

    file: File
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help=f"Column of the weights: {_COLUMN}. Default: none.",
        ),
    ] = None
    source_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help=f"Column of the sources: {_COLUMN}. Default: source, src or from; else the first.",
        ),
    ] = None
    target_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help=f"Column of the targets: {_COLUMN}. Default: target, dst or to; else the second.",
        ),
    ] = None

    def wanted(self, time: str | None = None) -> WantedColumns:
        """time: the column of times"""
        from liverank_service.formats.edge_list import WantedColumns

        named = (time, self.weights, self.source_column, self.target_column)
        return WantedColumns(*map(_column, named))


@dataclass(frozen=True)
class TimedFile(EdgesFile):
    """A file of edges that may have times."""

    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="COLUMN",
            help=f"Column of the times: {_COLUMN}. Default: none.",
        ),
    ] = None

    def read(self) -> EdgeList:
        return read_edges(self.file, self.wanted(self.time))


@dataclass(frozen=True)
class Place:
    """Where the graph of a file is."""

    backend: Annotated[Backend, typer.Option(help="auto: CUDA if there is a device.")] = "auto"
    memory: Annotated[
        int | None,
        typer.Option(
            metavar="SIZE",
            parser=size,
            help="Read edges from files while ranking; keep arrays of the graph within SIZE "
            "(8GiB).",
        ),
    ] = None
    scratch: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="With --memory: folder of those files, 16 to 24 bytes an edge."
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.memory is None and self.scratch is not None:
            raise CommandError("--scratch needs --memory")


@dataclass(frozen=True)
class RanksFile:
    """A file for ranks. Raises CommandError for one that cannot be written."""

    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="A file for the ranks: .txt, .csv, .ndjson (also .gz, .zst, .bz2), .parquet, "
            ".arrow; - writes csv to stdout, and nothing else.",
        ),
    ] = None
    format: Format = None

    def __post_init__(self) -> None:
        if self.out is None and self.format is not None:
            raise CommandError("--format is the format of --out, which is missing")
        if self.out is not None:
            from liverank_service.cli.table_files import check_path

            check_path(self.out, RANK_FILES, self.format)

    def write(self, table: Callable[[], pa.Table]) -> bool:
        """Writes vertices and ranks, best first; returns whether to stdout, which then has nothing
        else. Raises CommandError, OSError.
        """
        if self.out is None:
            return False
        from liverank_service.cli.display import working
        from liverank_service.cli.table_files import STANDARD, write_table

        with working(f"writing {self.out.name}"):
            write_table(self.out, table(), self.format)
        return self.out == STANDARD


class Of:
    """Options of a table: a command gets those that are given, as keyword arguments.

    only, without  names of options: only these, or all but these
    told           help of options, where it differs from what the table says
    """

    def __init__(
        self,
        table: type[Struct],
        only: Collection[str] = (),
        without: Collection[str] = (),
        **told: str,
    ) -> None:
        self._told = told
        self._members = {
            each.name: each
            for each in fields(table)
            if each.name in only or not (only or each.name in without)
        }

    @cached_property
    def parameters(self) -> list[inspect.Parameter]:
        """Those of the command, as typer reads them. What is true or false is a flag for what is
        not its default.
        """
        parameters = []
        for name, member in self._members.items():
            kind, said = described(member.type)
            choices = (said.extra_json_schema or {}).get("enum", ())
            names, default = [], None
            if kind is bool:
                names = [("--un" if member.default else "--") + name.replace("_", "-")]
                default = False
            elif len(choices) > 1:
                kind = Literal[tuple(choices)]
            more: dict[str, Any] = {}
            if words := _words_of(kind):
                more = {"parser": _number_or_word, "metavar": "|".join([*words, "<float>"])}
                kind = str
            shown: Any = kind if kind is bool else kind | None
            option = Annotated[shown, typer.Option(*names, help=self._help(member, said), **more)]
            parameter = inspect.Parameter(name, _KEYWORD, default=default, annotation=option)
            parameters.append(parameter)
        return parameters

    def _help(self, member: FieldInfo, said: Meta) -> str:
        text = self._told.get(member.name) or (said.extra or {}).get("help")
        if text is None:
            text = re.sub("^(whether|false:) ", "", said.description or "")
            begin = text if text.startswith("`") else text[:1].upper() + text[1:]
            text = re.sub("`(.*?)`", self._named, begin)
        default = member.default
        shown = f"{default:g}".replace("e-0", "e-") if isinstance(default, float) else str(default)
        if not isinstance(default, bool | None) and shown not in text:
            text += f" [{shown}]"
        return f"{text}."

    def _named(self, quoted: re.Match[str]) -> str:
        """The option of the command of this name, or the word itself."""
        word = quoted[1]
        return f"--{word.replace('_', '-')}" if word in self._members else word

    def __call__(self, **given: Any) -> dict[str, Any]:
        return {
            name: not self._members[name].default if value is True else value
            for name, value in given.items()
            if value is not None and value is not False
        }


def _words_of(kind: Any) -> tuple[str, ...]:
    """The words that a value is if it is no number; none of another type."""
    literals = [each for each in get_args(kind) if get_origin(each) is Literal]
    return get_args(literals[0]) if float in get_args(kind) and literals else ()


def _number_or_word(text: str) -> float | str:
    """The server checks both."""
    try:
        return float(text)
    except ValueError:
        return text


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer reads it, with the members of a group in place of each parameter that is
    one: a dataclass of options, or annotated as options `Of` a table.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[Callable[..., Any], list[str]]] = {}
    for name, each in _parameters(command).items():
        group = next((one for one in get_args(each.annotation) if isinstance(one, Of)), None)
        if group is not None:
            members = group.parameters
        elif isinstance(each.annotation, type) and is_dataclass(each.annotation):
            members = list(_parameters(each.annotation).values())
        else:
            parameters.append(each)
            continue
        parameters += members
        groups[name] = group or each.annotation, [one.name for one in members]

    @wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: group(**{member: given.pop(member) for member in members})
            for name, (group, members) in groups.items()
        }
        command(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


@cache
def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Its parameters by name, with their types."""
    hints = get_type_hints(function, include_extras=True)
    return {
        name: each.replace(annotation=hints[name], kind=_KEYWORD)
        for name, each in inspect.signature(function).parameters.items()
    }


NEW_GRAPH = Of(GraphOptions, without=("keys", "weighted"))
REPLAYED = Of(GraphOptions, without=("keys", "weighted", "strategy", "form"))
OF_SERVICE = ("window", "clock", "forget_vertices", "max_time_ahead")
IN_PROCESS = Of(GraphOptions, without=("keys", "weighted", "strategy", "form", *OF_SERVICE))
Sending = Annotated[BatchKeywords, Of(BatchOptions, without=OF_SOME_BATCHES)]


(_VIEW,) = Of(RanksOptions).parameters


@dataclass(frozen=True)
class RanksServer(Server):
    """The graph of a server, and which of its ranks are read."""

    view: Annotated[str | None, *get_args(_VIEW.annotation)[1:]] = None

    @property
    def ranks(self) -> RanksKeywords:
        return {} if self.view is None else {"view": self.view}


@contextmanager
def starting() -> Iterator[None]:
    """While the engine is imported, for seconds."""
    from liverank_service.cli.display import working

    with working("starting", at_once=False):
        yield


def check_plot_out(plot: Path | None) -> None:
    """Raises CommandError if the figure cannot be written, before there is anything to draw."""
    if plot is not None:
        from liverank_service.cli.plots import check_plot

        check_plot(plot)


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


def read_edges(file: Path, wanted: WantedColumns) -> EdgeList:
    from liverank_service.cli.display import working
    from liverank_service.formats.edge_files import read_edge_list

    with working(f"reading {file.name}"):
        edges = read_edge_list(file, wanted)
    if wanted.time is not None and edges.times is None:
        raise CommandError(f"{file}: a file of this format has no column of times")
    return edges


def _column(given: str | None) -> str | int | None:
    """A column's name, or its number."""
    return int(given) if given is not None and given.isdecimal() else given


def send_batches(
    client: Client,
    graph: str,
    batches: Iterable[EdgeList],
    total: int,
    sending: Mapping[str, Any],
    as_json: bool,
    timed: bool = False,
) -> list[ReplayedBatch]:
    """Sends batches in sequence, prints a row or a JSON line for each, and returns them.

    total    the number of batches
    sending  options of each batch, as Client.send takes them
    timed    whether times are sent
    """
    from liverank_service.cli import display, ingest

    left_out = Counter[str]()
    sent = []

    def stream() -> Iterator[ingest.ReplayedBatch]:
        for batch in ingest.replay(client, graph, batches, sending, timed):
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


def weights_of(texts: Sequence[str]) -> dict[Any, float]:
    """The weight of each vertex in VERTEX[=WEIGHT]; those of repeats add up."""
    seeds: dict[str, float] = {}
    for text in texts:
        key, weight = _weight_of(text)
        seeds[key] = seeds.get(key, 0.0) + weight
    return seeds


def _weight_of(text: str) -> tuple[str, float]:
    key, separator, weight = text.rpartition("=")
    if not separator:
        return text, 1.0
    try:
        return key, float(weight)
    except ValueError:
        raise CommandError(f"{text}: the weight {weight!r} is not a number") from None
