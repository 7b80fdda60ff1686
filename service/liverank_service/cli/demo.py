"""`liverank demo`: a service, a changing graph and its ranks, in one minute. Its screen has the
first places and the newest batches.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import sys
import tempfile
import threading
import time
import webbrowser
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from rich.console import Group
from rich.table import Table
from rich.text import Text

from liverank.client import Client, Key, RankedVertex
from liverank_gpu import generate
from liverank_service.app import create_app, server_of
from liverank_service.cli import CommandError, display, ingest
from liverank_service.cli.commands.options import client_of
from liverank_service.cli.ingest import ReplayedBatch
from liverank_service.cli.serve import bound_sockets, url_of
from liverank_service.formats.edge_files import read_edge_list
from liverank_service.formats.edge_list import EdgeList
from liverank_service.settings import Settings

RECENT_BATCHES = 8
STAGES = ("journal", "mutate", "solve")

VIEWING_SECONDS = 0.4
"""How long a terminal shows each batch: the service itself is too fast to follow."""


class Board:
    """Live on a terminal, plain lines elsewhere."""

    def __init__(self, total: int, places: list[RankedVertex]) -> None:
        self._total = total
        self._places = places
        self._before: dict[Key, int] = {}
        self._batches: deque[ReplayedBatch] = deque(maxlen=RECENT_BATCHES)
        self._latencies: list[float] = []
        self._bounds: list[float] = []
        self._console = display.output()
        self._live = display.Screen(console=self._console) if self._console.is_terminal else None

    def __enter__(self) -> Board:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def add(self, batch: ReplayedBatch, places: list[RankedVertex]) -> None:
        """Shows the batch and the first places after it."""
        self._before = {entry.vertex: place for place, entry in enumerate(self._places)}
        self._places = places
        self._batches.append(batch)
        self._latencies.append(batch.latency)
        self._bounds.append(batch.receipt.error_bound)
        if self._live:
            self._live.update(Group(self._place_table(), Text(), self._batch_table()), refresh=True)
            time.sleep(VIEWING_SECONDS)
        else:
            self._print_line(batch)

    def print_summary(self) -> None:
        """Prints the figures over all batches."""
        if not self._latencies:
            return
        median, slowest = np.median(self._latencies), max(self._latencies)
        self._console.print(
            f"{len(self._latencies)} batches: "
            f"median latency {display.milliseconds(float(median))}, "
            f"slowest {display.milliseconds(slowest)}; "
            f"L1 error proven at most {max(self._bounds):.1e}"
        )

    def movement(self, place: int) -> str:
        """The change of the vertex at this place (from 0): ↑2, ↓1, new, or nothing."""
        before = self._before.get(self._places[place].vertex)
        if before is None:
            return "new" if self._before else ""
        if before == place:
            return ""
        return f"↑{before - place}" if before > place else f"↓{place - before}"

    def _place_table(self) -> Table:
        table = Table("place", "", "vertex", "rank", box=None, title_justify="left")
        table.columns[0].justify = table.columns[3].justify = "right"
        for place, entry in enumerate(self._places):
            movement = self.movement(place)
            style = "red" if movement.startswith("↓") else "green"
            table.add_row(
                str(place + 1),
                Text(f"{movement:<3}", style=style),
                Text(display.printable(entry.vertex)),
                f"{entry.rank:.6f}",
            )
        return table

    def _batch_table(self) -> Table:
        table = Table("batch", "+", "−", "latency", *STAGES, "touched", "error bound", box=None)
        for column in table.columns:
            column.justify = "right"
        for batch in self._batches:
            receipt = batch.receipt
            table.add_row(
                f"{batch.number}/{self._total}",
                f"{receipt.inserted:,}",
                f"{receipt.deleted:,}",
                display.milliseconds(batch.latency),
                *(display.milliseconds(receipt.seconds[stage]) for stage in STAGES),
                f"{receipt.touched_vertices:,}",
                f"{receipt.error_bound:.1e}",
            )
        return table

    def _print_line(self, batch: ReplayedBatch) -> None:
        receipt = batch.receipt
        stages = ", ".join(
            f"{stage} {display.milliseconds(receipt.seconds[stage])}" for stage in STAGES
        )
        moved = ", ".join(
            f"{entry.vertex} {self.movement(place)} to {place + 1}"
            for place, entry in enumerate(self._places)
            if self.movement(place).startswith(("↑", "new"))
        )
        print(
            f"batch {batch.number}/{self._total}: "
            f"+{receipt.inserted:,} -{receipt.deleted:,} edges, "
            f"latency {display.milliseconds(batch.latency)} ({stages}), "
            f"error bound {receipt.error_bound:.1e}" + (f"; {moved}" if moved else ""),
            flush=True,
        )


HOST = "127.0.0.1"
USUAL_PORT = 8080
GRAPH = "default"
PLACES = 10

SCALE = 14
EDGES_PER_VERTEX = 16
BATCH_EDGES = 2_000
BATCH_SHARE = 1e-3
"""Size of a batch, as a fraction of the edges of a file."""
SEED = 8

SECONDS_BETWEEN = 1.0
"""Between two batches after the last one of the demo."""

READY_SECONDS = 300.0
"""The first start on a machine with a GPU may compile kernels."""


def run_demo(
    *, file: Path | None, batches: int, port: int | None, stay: bool, opens: bool | None = False
) -> None:
    """Runs the demo; with `stay` the graph keeps changing until it is interrupted.

    port   None: 8080, or a free one if that is in use; 0: a free one
    opens  whether to open the dashboard in a browser; None: on a desktop only
    Raises CommandError if the service does not start or the port is in use.
    """
    console = display.output()
    with display.working("generating a graph" if file is None else f"reading {file.name}"):
        plan = generated_replay(batches) if file is None else file_replay(file, batches)
    with (
        tempfile.TemporaryDirectory(prefix="liverank-demo-") as directory,
        _stoppable(),
        running_service(Path(directory), port) as url,
        client_of(url) as client,
    ):
        console.print(f"liverank is up at {url}")
        console.print(f"its dashboard, live: {url}/")
        edges = len(plan.initial)
        started = time.perf_counter()
        with display.working(f"loading {edges:,} edges"):
            options = ingest.prepare_graph(client, GRAPH, plan.initial)
            initial = ingest.as_in_graph(plan.initial, options)
            ingest.load(client, GRAPH, initial, sent=lambda _: None)
        information = client.graph(GRAPH)
        console.print(
            f"loaded {information.vertices:,} vertices, {information.edges:,} edges "
            f"and ranked them in {time.perf_counter() - started:.1f} s "
            f"on backend {information.backend}"
        )
        _open_dashboard(f"{url}/", opens)
        later = [ingest.as_in_graph(batch, options) for batch in plan.batches]
        with Board(len(later), client.top(GRAPH, PLACES).ranks) as board:
            for batch in ingest.replay(client, GRAPH, later, {}):
                board.add(batch, client.top(GRAPH, PLACES).ranks)
        board.print_summary()
        if stay:
            _print_farewell(url, client.top(GRAPH, 1).ranks[0].vertex)
            _change_until_interrupt(client, later)


def generated_replay(batches: int) -> ingest.Replay:
    """A graph of 2^14 vertices and about 228,000 edges, and batches that move its hubs."""
    sources, targets = generate.rmat(SCALE, EDGES_PER_VERTEX, seed=SEED)
    needed = max(1, -(-batches * BATCH_EDGES // (2**SCALE)))
    arrivals = generate.rmat(SCALE, needed, seed=SEED + 1)
    stream = generate.update_stream(
        sources,
        targets,
        2**SCALE,
        size=BATCH_EDGES,
        batches=batches,
        seed=SEED,
        arrivals=arrivals,
    )
    names = pa.array([f"page-{vertex:05d}" for vertex in range(2**SCALE)])
    changes = [
        EdgeList(
            names.take(pa.array(np.concatenate([batch.delete_sources, batch.insert_sources]))),
            names.take(pa.array(np.concatenate([batch.delete_targets, batch.insert_targets]))),
            operations=np.arange(BATCH_EDGES) >= len(batch.delete_sources),
        )
        for batch in stream
    ]
    initial = EdgeList(names.take(pa.array(sources)), names.take(pa.array(targets)))
    return ingest.Replay(initial, changes)


def file_replay(file: Path, batches: int) -> ingest.Replay:
    """The temporal edge list, as `liverank replay` does, with batches that fit its size."""
    edges = read_edge_list(file)
    size = max(1, round(len(edges) * BATCH_SHARE))
    return ingest.plan_replay(edges, size, batches)


@contextmanager
def running_service(directory: Path, port: int | None = 0) -> Iterator[str]:
    """Runs the service in a thread; the address, once it is ready.

    port  None: 8080, or a free one if that is in use; 0: a free one
    Raises CommandError if the port is in use or the service does not become ready.
    """
    listener = _listen(port)
    url = url_of(listener)
    settings = Settings(
        data=directory,
        host=HOST,
        port=listener.getsockname()[1],
        # the screen shows the time of each batch
        slow_batch_seconds=3600.0,
    )
    server = server_of(create_app(settings), log_level="warning")
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="demo-service", daemon=True
    )
    thread.start()
    try:
        with display.working("starting the service"):
            _wait_until_ready(url, thread)
        yield url
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def _listen(port: int | None) -> socket.socket:
    if port is not None:
        return bound_sockets(HOST, port)[0]
    with suppress(CommandError):
        return bound_sockets(HOST, USUAL_PORT)[0]
    return bound_sockets(HOST, 0)[0]


def _wait_until_ready(url: str, thread: threading.Thread) -> None:
    deadline = time.monotonic() + READY_SECONDS
    with Client(url) as client:
        while time.monotonic() < deadline:
            if not thread.is_alive():
                raise CommandError("the service stopped while starting, see the log above")
            if client.ready():
                return
            time.sleep(0.05)
    raise CommandError(f"the service was not ready within {READY_SECONDS:.0f} s")


@contextmanager
def _stoppable() -> Iterator[None]:
    """Handles SIGTERM like Ctrl-C: the service stops, and its directory is removed."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _open_dashboard(url: str, wanted: bool | None) -> None:
    """Opens a browser, if there is one."""
    if wanted is None:
        has_desktop = sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ)
        wanted = bool(has_desktop) and display.output().is_terminal
    if wanted and not webbrowser.open(url):
        display.output().print("no browser could be opened")


def _change_until_interrupt(client: Client, batches: list[EdgeList]) -> None:
    try:
        for _ in ingest.replay(client, GRAPH, back_and_forth(batches), {}):
            time.sleep(SECONDS_BETWEEN)
        signal.pause()  # there was no batch
    except KeyboardInterrupt:
        display.output().print("stopping")


def back_and_forth(batches: Sequence[EdgeList]) -> Iterator[EdgeList]:
    """Undoes the batches, last first, and repeats them, without end. What a batch did not change,
    such as an insertion of an edge that was present, is undone too.
    """
    while batches:
        for batch in reversed(batches):
            net = ingest.last_operations(batch)
            inserts = np.ones(len(net), bool) if net.operations is None else net.operations
            yield replace(net, operations=~inserts)
        yield from batches


def _print_farewell(url: str, vertex: Key) -> None:
    console = display.output()
    graph = f"{url}/graphs/{GRAPH}"
    insertion = json.dumps({"insert": [["you", vertex]]}, ensure_ascii=False)
    console.print(f"\nThe graph keeps changing: {url}/ shows it, {url}/docs lists the calls.")
    console.print("Try it from another terminal:\n")
    console.print(f"    curl '{graph}/top?k=3'")
    console.print(f"    curl -N '{graph}/changes?top=3'")
    console.print(f"    curl '{graph}/ranks/{quote(str(vertex), safe='')}'")
    header = "-H 'Content-Type: application/json'"
    console.print(f"    curl '{graph}/batches' {header} -d {shlex.quote(insertion)}")
    console.print("\nCtrl-C stops it and removes its data.")
