"""Output of the commands: tables or JSON on stdout, progress and notices on stderr."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import pyarrow as pa

    from liverank.client import ApiKeyInfo, GraphInfo, Key, RankedVertex
    from liverank.client.responses import PersonalizedAnswer, ProgramInfo, TopRanks, ViewInfo
    from liverank_service.cli.ingest import ReplayedBatch

LIVE_ROWS = 15
"""Maximum number of rows of the live table."""

UNBOUNDED_WIDTH = 10_000

FIRST_SECONDS, LINE_SECONDS = 2.0, 10.0
"""After so long a wait is said, and said again each time so long passes."""


def print_json(document: Any) -> None:
    """One JSON document, or a response of the client, on one line."""
    print(json.dumps(document_of(document), ensure_ascii=False), flush=True)


def document_of(response: Any) -> Any:
    """A response of the client as JSON has it."""
    return msgspec.to_builtins(response)


def printable(key: Key) -> str:
    """The key for a terminal, with control characters escaped."""
    text = str(key)
    return text if text.isprintable() else json.dumps(text)[1:-1]


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms"


def rank_table(
    places: Sequence[RankedVertex], offset: int = 0, entered: Container[Key] = ()
) -> Table:
    """Place, vertex and rank, best first; the first has place offset + 1. Vertices that entered are
    bold.
    """
    table = Table("place", "vertex", "rank", box=None)
    table.columns[1].overflow = "fold"
    for column in (table.columns[0], table.columns[2]):
        column.justify = "right"
    for place, entry in enumerate(places, start=offset + 1):
        style = "bold green" if entry.vertex in entered else ""
        vertex = Text(printable(entry.vertex), style=style)
        table.add_row(f"{place:,}", vertex, f"{entry.rank:.8f}")
    return table


def tie_lines(answer: PersonalizedAnswer | TopRanks, offset: int = 0) -> list[str]:
    """Which places are proven to have equal ranks; the first has place offset + 1."""
    ends = list(accumulate(answer.groups, initial=offset))
    return [
        f"proven equal: places {ends[group] + 1:,} to {ends[group + 1]:,}"
        for group in answer.ties
        if answer.groups[group] > 1
    ]


def value_table(program: str, top: pa.RecordBatch) -> Table:
    """Vertices or edges, and what a program says about them: see AnalysisAnswer.top."""
    *ends, _ = top.schema.names
    table = Table(*ends, program, box=None)
    for column in table.columns[:-1]:
        column.overflow = "fold"
    table.columns[-1].justify = "right"
    for place in top.to_pylist():
        keys = (Text(printable(place[end])) for end in ends)
        table.add_row(*keys, f"{place['value']:,.8g}")
    return table


def key_table(keys: Iterable[ApiKeyInfo]) -> Table:
    """API keys, one per row."""
    table = Table("id", "scope", "graphs", "created", "name", box=None)
    for key in keys:
        graphs = "all" if key.graphs is None else ", ".join(key.graphs)
        cells = (key.id, key.scope, graphs, key.created, key.name)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def program_table(programs: Iterable[ProgramInfo]) -> Table:
    """Programs of users, one per row."""
    table = Table("name", "values", "parameters", box=None)
    for each in programs:
        parameters = ", ".join(f"{name}={value:g}" for name, value in each.parameters.items())
        kinds = each.dtype
        if isinstance(kinds, dict):
            kinds = ", ".join(f"{kind} {name}" for name, kind in kinds.items())
        cells = (each.name, kinds or f"refused: {each.refusal}", parameters)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def figures(values: Iterable[tuple[str, str]]) -> Table:
    """Named figures, one per line."""
    table = Table.grid(padding=(0, 2))
    for name, value in values:
        table.add_row(Text(name, style="dim"), Text(value))
    return table


def show(document: Any, shown: Table | Iterable[tuple[str, str]], as_json: bool) -> None:
    """A response: a table or figures, or as JSON for machines."""
    if as_json:
        print_json(document)
    else:
        output().print(shown if isinstance(shown, Table) else figures(shown))


def counts(**numbers: int) -> list[tuple[str, str]]:
    """Named counts for `figures`, without those that are 0."""
    return [(name.replace("_", " "), f"{count:,}") for name, count in numbers.items() if count]


def number(value: float) -> str:
    """Of a summary: whole numbers, such as counts, with all of their digits."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,g}"


def unused(columns: Sequence[str]) -> list[tuple[str, str]]:
    """A row for `figures` that names the columns that did not count, if there are any."""
    return [("columns not used", ", ".join(map(printable, columns)))] if columns else []


def notice_left_out(columns: Sequence[str], **numbers: int) -> None:
    """Says on stderr which columns of a file were not used, and how many of its edges were not new,
    each number with its name.
    """
    parts = [f"{count} {name}" for name, count in counts(**numbers)]
    if columns:
        parts.append(f"columns not used: {', '.join(map(printable, columns))}")
    if parts:
        notices().print(f"note: {'; '.join(parts)}")


def graph_table(graphs: Iterable[GraphInfo]) -> Table:
    """Graphs, one per row."""
    table = Table("graph", "vertices", "edges", "version", "error bound", "backend", box=None)
    for column in table.columns[1:5]:
        column.justify = "right"
    for graph in graphs:
        numbers = (graph.vertices, graph.edges, graph.version)
        bound = f"{graph.error_bound:.1e}"
        table.add_row(graph.graph, *(f"{each:,}" for each in numbers), bound, graph.backend)
    return table


def view_table(views: Iterable[ViewInfo]) -> Table:
    """Views, one per row."""
    table = Table("view", "teleport", "damping", "refresh", "target", "error bound", box=None)
    for view in views:
        of = {"set": f"set {view.set}", "weights": f"{view.weights or 0:,} weights"}
        against = ", reversed" if view.direction == "reversed" else ""
        if view.within is not None:
            named = isinstance(view.within, str)
            against += f", within {view.within}" if named else f", within {view.within:,} vertices"
        refresh = view.refresh if isinstance(view.refresh, str) else f"{view.refresh:g} s"
        table.add_row(
            Text(printable(view.name)),
            Text(printable(of.get(view.teleport, view.teleport) + against)),
            f"{view.damping:g}",
            refresh,
            f"{view.target_error:.1e}",
            Text(printable(view.problem or "no ranks"))
            if view.error_bound is None
            else f"{view.error_bound:.1e}",
        )
    return table


def trace_table(trace: Any) -> Table:
    """The steps of a liverank_gpu.Trace, or of one in a response."""
    table = Table(title=f"{trace.affected:,} initially affected vertices", title_justify="left")
    table.add_column("step")
    columns = ("rounds", "vertices", "edges", "joined", "pruned", "change", "θ", "error bound", "Ψ")
    for column in columns:
        table.add_column(column, justify="right")
    for step in trace.steps:
        counts = (step.rounds, step.vertices, step.edges, step.joined, step.pruned)
        sizes = (step.largest_change, step.threshold, step.error_bound, step.cost_difference)
        detail = step.mode or step.deflation or step.end
        table.add_row(
            f"{step.kind} ({detail})" if detail else step.kind,
            *("" if each is None else f"{each:,}" for each in counts),
            *("" if each is None else f"{each:.1e}" for each in sizes),
        )
    return table


def output() -> Console:
    """The console for results. Nothing is truncated in a pipe or a file, which has no width."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = UNBOUNDED_WIDTH
    return console


def notices() -> Console:
    """The console for progress and errors."""
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def working(what: str, at_once: bool = True) -> Iterator[None]:
    """What is done and for how long, on stderr, for work of unknown length. at_once: as for
    `_progress`.
    """
    with _progress(TimeElapsedColumn(), at_once=at_once) as progress:
        progress.add_task(printable(what), total=None)
        yield


@contextmanager
def edge_progress(total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr with edges a second and the time left. Yields the function that
    counts edges.
    """
    with _progress(
        BarColumn(),
        TextColumn("{task.completed:,}/{task.total:,}"),
        _RateColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    ) as progress:
        task = progress.add_task("edges", total=total)
        yield lambda count: progress.advance(task, count)


@contextmanager
def byte_progress(what: str) -> Iterator[Callable[[int], None]]:
    """Bytes and bytes a second on stderr, for streams of unknown length."""
    columns = DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn()
    with _progress(*columns) as progress:
        task = progress.add_task(what, total=None, unit=" bytes")
        yield lambda count: progress.advance(task, count)


class _RateColumn(ProgressColumn):
    """Edges a second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="dim")


_shown = 0
"""How many of what shows progress are on the screen: what is inside of another adds nothing."""


@contextmanager
def _progress(*columns: ProgressColumn, at_once: bool = True) -> Iterator[Progress]:
    """Live on a terminal; elsewhere, what takes two seconds is said in a line, and then every ten.

    at_once  whether a terminal shows it before two seconds have passed
    """
    global _shown
    first = SpinnerColumn(), TextColumn("{task.description}", markup=False)
    console = notices()
    is_live = console.is_interactive and not _shown
    progress = Progress(*first, *columns, console=console, transient=True, disable=not is_live)
    if _shown:
        yield progress
        return

    def say(seconds: float) -> None:
        progress.start()
        for task in () if is_live else progress.tasks:
            parts = [task.description]
            if task.total is not None:
                parts.append(f"{task.completed:,.0f} of {task.total:,.0f}")
            elif task.completed:
                parts.append(f"{task.completed:,.0f}{task.fields.get('unit', '')}")
            notices().print(f"{', '.join(parts)} … {seconds:.0f} s")

    _shown += 1
    try:
        if at_once:
            progress.start()
        with repeatedly(say):
            yield progress
    finally:
        _shown -= 1
        progress.stop()


@contextmanager
def repeatedly(say: Callable[[float], object]) -> Iterator[None]:
    """Calls ``say(seconds)`` from a thread after two seconds, and then every ten."""
    ended, began = threading.Event(), time.monotonic()

    def run() -> None:
        pause = FIRST_SECONDS
        while not ended.wait(pause):
            say(time.monotonic() - began)
            pause = LINE_SECONDS

    thread = threading.Thread(target=run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Screen(Live):
    """A live display on a terminal, beside which no progress is shown."""

    def start(self, refresh: bool = False) -> None:
        global _shown
        _shown += 1
        super().start(refresh)

    def stop(self) -> None:
        global _shown
        _shown -= 1
        super().stop()


class ReplayTable:
    """The batches of a replay: a live table on a terminal, plain lines elsewhere."""

    HEADINGS = (
        "batch",
        "inserted",
        "deleted",
        "latency",
        "solve",
        "iterations",
        "touched",
        "error bound",
    )

    def __init__(self, total: int) -> None:
        self._total = total
        self._rows: deque[tuple[str, ...]] = deque(maxlen=LIVE_ROWS)
        self._console = output()
        self._live = Screen(console=self._console) if self._console.is_terminal else None

    def __enter__(self) -> ReplayTable:
        if self._live:
            self._live.start()
        else:
            self._print_row(self.HEADINGS)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def add(self, batch: ReplayedBatch) -> None:
        receipt = batch.receipt
        row = (
            f"{batch.number}/{self._total}",
            f"{receipt.inserted:,}",
            f"{receipt.deleted:,}",
            milliseconds(batch.latency),
            milliseconds(receipt.seconds["solve"]),
            f"{receipt.iterations:,}",
            f"{receipt.touched_vertices:,}",
            f"{receipt.error_bound:.1e}",
        )
        self._rows.append(row)
        if self._live:
            self._live.update(self._table())
        else:
            self._print_row(row)

    def _print_row(self, row: Sequence[str]) -> None:
        print("  ".join(f"{cell:>11}" for cell in row), flush=True)

    def _table(self) -> RenderableType:
        table = Table(*self.HEADINGS, box=None)
        for column in table.columns:
            column.justify = "right"
        for row in self._rows:
            table.add_row(*row)
        return Group(table)
