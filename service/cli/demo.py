"""`liverank demo`: a service, a changing graph, its ranks as they move; one machine, one minute.

The service runs in a thread of this process, on a real socket and in a directory of its own that
is removed at the end. The made graph is R-MAT with string keys; its batches insert edges of a
second R-MAT graph whose hubs are other vertices, and delete edges of the first at random:
attention shifts, and the places with it.
"""

from __future__ import annotations

import json
import shlex
import signal
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpu.generate import rmat, update_stream
from service.app import create_app
from service.cli import display
from service.cli import ingest as streaming
from service.cli.errors import CommandError
from service.client.client import Client, Key, RankedVertex
from service.formats.edge_files import read_edge_list
from service.formats.edge_list import EdgeList
from service.http.server import server_of
from service.settings import Settings

HOST = "127.0.0.1"
USUAL_PORT = 8080
GRAPH = "default"
PLACES = 10
RECENT_BATCHES = 8

SCALE = 14
EDGES_PER_VERTEX = 16
BATCH_EDGES = 2_000
FILE_BATCH_SHARE = 1e-3
"""Of the edges of a file: the size of each batch of its replay."""
SEED = 8

READY_SECONDS = 300.0
"""The first start on a machine compiles the kernels."""

VIEWING_SECONDS = 0.4
"""How long a terminal shows each batch: the service is done with it too soon to be watched."""

STAGES = ("journal", "mutate", "solve")


def run_demo(*, file: Path | None, batches: int, port: int | None, stay: bool) -> None:
    """Runs the demo; with `stay` it leaves the service up until it is interrupted.

    port  None: 8080, or any free one where that is taken; 0: any free one.
    Raises CommandError where the service does not come up, or the port is taken.
    """
    console = display.output()
    with display.working("making a graph" if file is None else f"reading {file.name}"):
        plan = made_replay(batches) if file is None else file_replay(file, batches)
    with (
        tempfile.TemporaryDirectory(prefix="liverank-demo-") as directory,
        _stoppable(),
        running_service(Path(directory), port) as url,
        Client(url) as client,
    ):
        console.print(f"liverank is up at {url}")
        edges = len(plan.initial)
        started = time.perf_counter()
        with display.working(f"loading {edges:,} edges"):
            kind = streaming.prepare_graph(client, GRAPH, plan.initial)
            initial = streaming.with_keys(plan.initial, kind)
            streaming.load(client, GRAPH, initial, sent=lambda _: None)
        information = client.graph(GRAPH)
        console.print(
            f"loaded {information['vertices']:,} vertices, {information['edges']:,} edges "
            f"and ranked them in {time.perf_counter() - started:.1f} s "
            f"on backend {information['backend']}"
        )
        later = [streaming.with_keys(batch, kind) for batch in plan.batches]
        with Board(len(later), client.top(GRAPH, PLACES)["ranks"]) as board:
            for batch in streaming.replay(client, GRAPH, later, None):
                board.add(batch, client.top(GRAPH, PLACES)["ranks"])
        board.print_summary()
        if stay:
            _print_farewell(url, client.top(GRAPH, 1)["ranks"][0]["vertex"])
            _wait_for_interrupt()


def made_replay(batches: int) -> streaming.Replay:
    """A graph of 2^14 vertices and about 228,000 edges, and batches that shift its hubs."""
    sources, targets = rmat(SCALE, EDGES_PER_VERTEX, seed=SEED)
    needed = max(1, -(-batches * BATCH_EDGES // (2**SCALE)))
    arrivals = rmat(SCALE, needed, seed=SEED + 1)
    stream = update_stream(
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
    return streaming.Replay(initial, changes)


def file_replay(file: Path, batches: int) -> streaming.Replay:
    """The temporal edge list: the replay of `liverank replay`, its size made to fit the file."""
    edges = read_edge_list(file)
    size = max(1, round(len(edges) * FILE_BATCH_SHARE))
    return streaming.plan_replay(edges, size, batches)


@contextmanager
def running_service(directory: Path, port: int | None = 0) -> Iterator[str]:
    """The service on a thread of its own, ready for requests; its address.

    port  None: 8080, or any free one where that is taken; 0: any free one.
    Raises CommandError where the port is taken or the service does not become ready.
    """
    listener = _listen(port)
    url = f"http://{HOST}:{listener.getsockname()[1]}"
    settings = Settings(
        data=directory,
        host=HOST,
        port=listener.getsockname()[1],
        # what a batch costs is on the screen anyway
        slow_batch_seconds=3600.0,
    )
    server = server_of(create_app(settings), settings, log_level="warning")
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="demo-service", daemon=True
    )
    thread.start()
    try:
        with display.working("starting the service (the first time, kernels are compiled)"):
            _wait_until_ready(url, thread)
        yield url
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def _listen(port: int | None) -> socket.socket:
    for candidate in (USUAL_PORT, 0) if port is None else (port,):
        # The protocol is named because asyncio sets TCP_NODELAY only then: without it, each answer
        # waits 40 ms for a delayed acknowledgement.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, candidate))
            return listener
        except OSError as error:
            listener.close()
            refusal = error
    raise CommandError(
        f"port {port} of {HOST} cannot be used: {refusal.strerror}; --port 0 finds a free one"
    )


def _wait_until_ready(url: str, thread: threading.Thread) -> None:
    deadline = time.monotonic() + READY_SECONDS
    with Client(url) as client:
        while time.monotonic() < deadline:
            if not thread.is_alive():
                raise CommandError("the service stopped while starting; its log is above")
            if client.ready():
                return
            time.sleep(0.05)
    raise CommandError(f"the service was not ready within {READY_SECONDS:.0f} s")


@contextmanager
def _stoppable() -> Iterator[None]:
    """Within, SIGTERM ends the program as Ctrl-C does: the service stops, its directory goes."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _wait_for_interrupt() -> None:
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        display.output().print("stopping")


def _print_farewell(url: str, vertex: Key) -> None:
    console = display.output()
    graph = f"{url}/graphs/{GRAPH}"
    insertion = json.dumps({"insert": [["you", vertex]]}, ensure_ascii=False)
    console.print(f"\nThe service is still up: {url}/docs")
    console.print("Ask it, from another terminal:\n")
    console.print(f"    curl '{graph}/top?k=3'")
    console.print(f"    curl '{graph}/ranks/{quote(str(vertex), safe='')}'")
    header = "-H 'Content-Type: application/json'"
    console.print(f"    curl '{graph}/batches' {header} -d {shlex.quote(insertion)}")
    console.print("\nCtrl-C stops it and removes its data.")


class Board:
    """The first places as they move, and the newest batches: live, or lines without a terminal."""

    def __init__(self, total: int, places: list[RankedVertex]) -> None:
        self._total = total
        self._places = places
        self._before: dict[Key, int] = {}
        self._batches: deque[streaming.ReplayedBatch] = deque(maxlen=RECENT_BATCHES)
        self._latencies: list[float] = []
        self._bounds: list[float] = []
        self._console = display.output()
        self._live = Live(console=self._console) if self._console.is_terminal else None

    def __enter__(self) -> Board:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def add(self, batch: streaming.ReplayedBatch, places: list[RankedVertex]) -> None:
        """Shows the batch and the places that its receipt stands for."""
        self._before = {entry["vertex"]: place for place, entry in enumerate(self._places)}
        self._places = places
        self._batches.append(batch)
        self._latencies.append(batch.latency)
        self._bounds.append(batch.receipt["error_bound"])
        if self._live:
            self._live.update(Group(self._place_table(), Text(), self._batch_table()), refresh=True)
            time.sleep(VIEWING_SECONDS)
        else:
            self._print_line(batch)

    def print_summary(self) -> None:
        """The figures over all batches."""
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
        """How the vertex at this place (from 0) came there: ↑2, ↓1, new, or nothing."""
        before = self._before.get(self._places[place]["vertex"])
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
                Text(display.printable(entry["vertex"])),
                f"{entry['rank']:.6f}",
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
                f"{receipt['inserted']:,}",
                f"{receipt['deleted']:,}",
                display.milliseconds(batch.latency),
                *(display.milliseconds(receipt["seconds"][stage]) for stage in STAGES),
                f"{receipt['touched_vertices']:,}",
                f"{receipt['error_bound']:.1e}",
            )
        return table

    def _print_line(self, batch: streaming.ReplayedBatch) -> None:
        receipt = batch.receipt
        stages = ", ".join(
            f"{stage} {display.milliseconds(receipt['seconds'][stage])}" for stage in STAGES
        )
        moved = ", ".join(
            f"{entry['vertex']} {self.movement(place)} to {place + 1}"
            for place, entry in enumerate(self._places)
            if self.movement(place).startswith(("↑", "new"))
        )
        print(
            f"batch {batch.number}/{self._total}: "
            f"+{receipt['inserted']:,} -{receipt['deleted']:,} edges, "
            f"latency {display.milliseconds(batch.latency)} ({stages}), "
            f"error bound {receipt['error_bound']:.1e}" + (f"; {moved}" if moved else ""),
            flush=True,
        )
