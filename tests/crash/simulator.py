"""A server, and what can happen to it: crashes, faults of the disk, short memory, wrong clocks.

    python -m tests.crash.simulator [--seeds 100] [--first 0] [--lives 4] [--shards 0]
                                    [--brokers redis nats kafka rabbitmq] [--directory DIR]
                                    [--results FOLDER]

A seed decides what happens. A server lives for a moment while clients write to several graphs, put
and remove views, create and drop graphs, read ranks and take checkpoints; meanwhile faults come and
go. Then it ends. Either it is killed and started again; or its disk becomes what it could have been
at any moment of that life, which was recorded: after a kill at that write, or after a loss of
power, with nothing or a part of what was not synced. Whatever clients had been told by then must be
there, once; what they had not been told there once or not at all. A model of each client knows. The
server goes on from there.

With --shards the graph is in worker processes, which are killed too. With --brokers consumers of
messages write, and consumers, brokers and server are killed (tests/crash/sources.py).

Prints progress, and records the sums in benchmarks/results/simulator-cpu.json. What fails names its
seed, with which the same is drawn again, and leaves the data.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, get_args

import httpx
import psutil

from benchmarks.harness import RESULTS, record
from liverank.choices import BrokerName
from liverank_service.storage.journal import KEPT_SECONDS
from tests.crash.control import Control
from tests.crash.disk import Event, RecordedDisk, compiled, read_events, torn
from tests.crash.nursery import PATIENCE, Nursery, Server, wait_until
from tests.crash.revisions import Revisions
from tests.crash.streams import (
    GRAPH,
    WEIGHTED,
    Client,
    Graphs,
    Stream,
    Views,
    Windowed,
    compare,
    create_weighted,
    run_together,
    streams,
)

Stop = threading.Event

DISK_FAULTS = (
    *("sync", "sync 0", "sync 1", "sync 2"),
    *("abort 0", "abort 1", "abort 2", "abort 3"),
    *("full", "read-only"),
)
"""See disk.c."""

CLOCK_STEPS = (-4e5, -3600.0, -1.0, 1.0, 3600.0, 1e5)
"""Seconds, within which no idempotency key is forgotten."""

JUMP = KEPT_SECONDS + CLOCK_STEPS[-1] - CLOCK_STEPS[0]
"""Seconds after which all of retired batches are. So much time passes before every second life,
except with shards.
"""

MOST_FAULTS = 3
"""Of a life."""

MOST_REQUESTS, MOST_IN_SHARDS = 60, 20
"""Of a life, and a few more."""

CHECKPOINT_BYTES = 4_000

GROUPS = ("sf", "r", "ud", "cm", "wt")
"""Kinds of events: a moment is as often at one of the few renames as at one of the many writes."""


class Simulation:
    """The lives of one seed.

    disk_lies  syncs do nothing: a loss of power loses what clients were told
    trace      what has happened
    counts     of it
    """

    def __init__(
        self,
        directory: Path,
        nursery: Nursery,
        seed: int,
        workers: Callable[[int], list[psutil.Process]] | None = None,
        **settings: Any,
    ) -> None:
        """
        nursery   with the library of disk.c
        workers   of the graph's shards, given the process of the server; None without shards
        settings  of the servers
        """
        self._directory, self._nursery, self._seed = directory, nursery, seed
        self._workers, self._settings = workers, settings
        self._choose = random.Random(seed)
        self._data = directory / "data"
        self._data.mkdir()
        self._control = Control(directory / "control")
        self._fault = directory / "fault"
        self._faults = ["disk", "clock"]
        self._groups: list[list[Stream]]
        self._others: list[Windowed | Graphs | Views] = []
        if workers is not None:
            create_weighted(self._data)
            self._groups = [streams(seed, weighted=True)]
            self._faults = ["worker", "disk"]
        else:
            # whoever waits for the commit alone is not told that a batch is rejected
            self._groups = [
                streams(seed, durable=not seed % 2),
                streams(seed, WEIGHTED, weighted=True, durable=not seed % 2),
            ]
            self._faults += ["memory"] * (seed % 2)
            self._others = [
                Windowed("w", random.Random(f"{seed} w")),
                Graphs("g", random.Random(f"{seed} g")),
                Views("v", random.Random(f"{seed} v")),
            ]
        self._revisions = Revisions(GRAPH)
        self._ahead = 0.0  # of the clock, when it does not step
        self.disk_lies = False
        self.trace: list[str] = []
        self.counts = Counter[str]()

    def run(self, lives: int, moments: int) -> Counter[str]:
        """moments: of each life, from each of which another server continues"""
        try:
            self._run(lives, moments)
        except BaseException as error:
            happened = "\n  ".join(self.trace)
            error.add_note(
                f"seed {self._seed}; data: {self._directory}; again: python -m "
                f"tests.crash.simulator --seeds 1 --first {self._seed} "
                f"--lives {lives} --moments {moments}\n  {happened}"
            )
            raise
        self.counts["requests"] += self._requests()
        self.counts["revisions"] += len(self._revisions.ranks)
        return self.counts

    def _run(self, lives: int, moments: int) -> None:
        for life in range(lives):
            begun = RecordedDisk.of(self._data)
            with self._serving(life) as server:
                self._compare(server, everything=False)
                if life % 2 and self._workers is None:
                    self._jump()
                work = [*(client.run for client in self._clients()), self._revisions.watch]
                work += [self._take_checkpoints, self._disturb]
                run_together(server.url, PATIENCE, work)
            self._end(life, begun, moments)
        if self._seed % 2:
            self._settings = {}  # without shards
        with self._serving(lives) as server:
            self._compare(server, everything=True)

    def _clients(self) -> list[Client]:
        return [*(client for group in self._groups for client in group), *self._others]

    @contextmanager
    def _serving(self, life: int) -> Iterator[Server]:
        """A server of the data, which is killed."""
        environment = {
            "DISK_DIRECTORY": str(self._data),
            "DISK_RECORD": str(self._record(life)),
            "DISK_FAULT": str(self._fault),
        }
        server = self._nursery.start(
            self._data,
            self._directory / "control",
            environment,
            checkpoint_bytes=CHECKPOINT_BYTES,
            **(self._settings | self._shards()),
        )
        self._server = server
        try:
            assert server.wait_until_ready(), "the server ended"
            yield server
        finally:
            server.kill()
            server.wait()

    def _shards(self) -> dict[str, int]:
        """Of the next server, which may have another number of them."""
        most = self._settings.get("shards", 0)
        return {"shards": self._choose.randrange(1, most + 1)} if most else {}

    def _record(self, life: int) -> Path:
        return self._directory / f"record-{life}"

    def _compare(self, server: Server, everything: bool) -> None:
        """Compares the server with the models."""
        with httpx.Client(base_url=server.url, timeout=PATIENCE) as http:
            clients = self._clients()
            for client in clients:
                client.settle(http)
            for group in self._groups:
                if any(stream.sent for stream in group):
                    self.counts["sent again"] += compare(http, group, everything)
            for other in self._others:
                if other.sent:
                    other.compare(http, self._data)
                    self.counts["sent again"] += other.repeat(http, everything)
        assert not self._revisions.twice, f"revisions with other ranks: {self._revisions.twice}"
        self.counts["comparisons"] += 1

    def _disturb(self, url: str, stop: Stop) -> None:  # noqa: ARG002
        """Faults that come and go, until enough requests have been sent."""
        choose, begun = self._choose, self._requests()
        most = choose.randrange(MOST_IN_SHARDS if self._workers else MOST_REQUESTS)
        faults = range(choose.randrange(MOST_FAULTS + 1))
        places = sorted(choose.randrange(most + 1) for _ in faults)
        for place in [*places, most]:
            while self._requests() < begun + place and not stop.is_set():
                time.sleep(0.002)
            if place == most or stop.is_set():
                break
            self._fail(choose.choice(self._faults), stop)
        stop.set()

    def _fail(self, kind: str, stop: Stop) -> None:
        choose = self._choose
        if kind == "clock":
            step = choose.choice(CLOCK_STEPS)
            self._control.set(ahead=self._ahead + step)
            self._happens(kind, f"the clock is {step:+} s wrong")
            return
        if kind == "worker":
            assert self._workers is not None
            if workers := self._workers(self._server.pid):
                with suppress(psutil.NoSuchProcess):
                    choose.choice(sorted(workers, key=lambda worker: worker.pid)).kill()
                    self._happens(kind, "a worker is killed")
            return
        try:
            if kind == "memory":
                self._control.set(short=True)
                self._happens(kind, "memory is short")
                rejected = self._requests() + choose.randrange(1, 20)
                wait_until(lambda: self._requests() >= rejected or stop.is_set(), PATIENCE)
            else:
                fault = "lying" if self.disk_lies else choose.choice(DISK_FAULTS)
                self._fault.write_text(fault)
                self._happens(kind, f"fault of the disk: {fault}")
                time.sleep(choose.uniform(0.0, 0.1))
        finally:
            self._control.set(short=False)
            self._fault.unlink(missing_ok=True)

    def _jump(self) -> None:
        """So much time passes that what was sent before is not sent again."""
        self._ahead += JUMP
        self._control.set(ahead=self._ahead)
        self._happens("jump", f"the clock jumps by {JUMP:+} s")
        for client in self._clients():
            client.forgotten = len(client.sent)

    def _requests(self) -> int:
        return sum(len(client.sent) for client in self._clients())

    def _happens(self, kind: str, what: str) -> None:
        self.counts[kind] += 1
        self.trace.append(what)

    def _take_checkpoints(self, url: str, stop: Stop) -> None:
        with httpx.Client(base_url=url, timeout=PATIENCE) as http, suppress(httpx.TransportError):
            while not stop.wait(0.02):
                answer = http.post(f"{GRAPH}/checkpoint")
                assert answer.status_code in (200, 503, 507), answer.text
                self.counts["checkpoints"] += answer.status_code == 200

    def _end(self, life: int, begun: RecordedDisk, moments: int) -> None:
        """The data becomes what it was at a moment of the life; or stays, as a kill leaves it."""
        if self._choose.random() < 0.2:
            self._happens("kill", f"life {life}: killed")
            return
        events = read_events(self._record(life))
        places = sorted(self._moment(events) for _ in range(moments))
        clients = (self._groups, self._others, self._revisions)
        at = 0
        for number, place in enumerate(places):
            for event in events[at:place]:
                begun.apply(event)
            at = place
            self._groups, self._others, self._revisions = clients
            self._become(life, begun, events[: place + 1])
            if number < len(places) - 1:
                with self._serving(life + 1) as server:
                    self._compare(server, everything=False)
                self._record(life + 1).unlink()

    def _moment(self, events: Sequence[Event]) -> int:
        groups = [
            found
            for kinds in GROUPS
            if (found := [place for place, event in enumerate(events) if event.kind in kinds])
        ]
        return self._choose.choice(self._choose.choice(groups))

    def _become(self, life: int, disk: RecordedDisk, events: Sequence[Event]) -> None:
        """The data and the clients become those before the last of the events."""
        last, choose = events[-1], self._choose
        killed = choose.random() < 0.4
        loses_all = not killed and choose.random() < 0.4
        end = "a kill" if killed else "a loss of power"
        self._happens(end, f"life {life}: {end} at event {len(events)}, {last.kind!r}")
        if last.kind == "w":
            disk.apply(torn(last, choose))
        shutil.rmtree(self._data)
        disk.write_state(self._data, killed=killed, choose=None if loses_all else choose)
        if last.kind == "w":
            disk.apply(last)
        moment = last.nanoseconds
        self._groups = [
            [stream.as_of(moment, not killed) for stream in group] for group in self._groups
        ]
        self._others = [client.as_of(moment, not killed) for client in self._others]
        self._revisions = self._revisions.as_of(moment)


def workers_below(server: int) -> list[psutil.Process]:
    """The processes of shards that a process has started."""
    with suppress(psutil.NoSuchProcess):
        return [one for one in psutil.Process(server).children(recursive=True) if is_worker(one)]
    return []


def is_worker(process: psutil.Process) -> bool:
    """Whether it is one of the processes that Dask has spawned."""
    with suppress(psutil.Error):
        return "spawn_main" in " ".join(process.cmdline())
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--lives", type=int, default=4, help="of each seed")
    parser.add_argument("--moments", type=int, default=3, help="of each life, to go on from")
    parser.add_argument("--shards", type=int, default=0)
    parser.add_argument("--brokers", nargs="+", choices=get_args(BrokerName))
    parser.add_argument("--directory", type=Path, help="of the data, one for each seed")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="liverank-simulator-"))
    directory.mkdir(parents=True, exist_ok=True)
    begin, counts = time.monotonic(), Counter[str]()
    with Nursery(directory / "servers.log", library=compiled(directory)) as nursery:
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            folder = directory / str(seed)
            folder.mkdir()
            if arguments.brokers:
                from tests.crash.sources import Consumers

                with Consumers(folder, seed, arguments.brokers) as consumers:
                    counts += consumers.run(10 * arguments.lives)
            else:
                workers = workers_below if arguments.shards else None
                simulation = Simulation(folder, nursery, seed, workers, shards=arguments.shards)
                counts += simulation.run(arguments.lives, arguments.moments)
            shutil.rmtree(folder)
            print(f"seed {seed}: {dict(counts)}", flush=True)
    figures = {
        "seeds": arguments.seeds,
        "shards": arguments.shards,
        "brokers": arguments.brokers or [],
        "counts": dict(sorted(counts.items())),
        "seconds": round(time.monotonic() - begin, 1),
    }
    print(record("simulator", "cpu", figures, arguments.results))


if __name__ == "__main__":
    main()
