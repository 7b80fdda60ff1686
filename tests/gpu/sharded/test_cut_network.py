"""Workers that do not reach each other while the scheduler reaches all of them."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from time import monotonic, sleep
from typing import Any

import dask
import pytest

from liverank_gpu import (
    Cluster,
    ClusterUnavailable,
    EdgeBatch,
    Options,
    ShardedEngine,
    ShardLost,
)
from liverank_gpu.backends import backend_named
from liverank_gpu.sharded.cluster import existing_workers
from liverank_gpu.sharded.communicator import SingleCommunicator
from liverank_gpu.sharded.dask_shard import DaskCommunicator, HostedShard, Parts, Peers
from liverank_gpu.sharded.member import Member
from tests.gpu.sharded.test_existing_cluster import (
    GPUS,
    OPTIONS,
    engine_on,
    existing,
    nccl,
    shards_of,
    wait_until,
)

__all__ = ["existing", "nccl"]  # fixtures

pytestmark = pytest.mark.filterwarnings("default")
"""Dask's own warnings are not ours."""

EDGES = EdgeBatch.of(insert=[(0, 1), (1, 2)])
CUT = (
    r"the Dask cluster at tls://\S+ is cut: shard {} at tls://\S+ does not reach shard {} at tls://"
)


class Rules:
    """What the shards of a test do.

    before_update  called by a shard, with its rank
    hole     what the first shard reaches in place of the others when it asks; None: them
    loses    whether a message of a shard is lost, by its rank and what is sent
    asked    how often a shard asked another
    carried  the last message of each shard: its connection, and what was sent
    updated  ranks of shards, as their updates ended
    communicators, workers  of the shards
    """

    def __init__(self) -> None:
        self.before_update: Callable[[int], object] = lambda _: None
        self.hole: str | None = None
        self.loses: Callable[[int, dict[str, Any]], bool] = lambda *_: False
        self.asked = 0
        self.carried: dict[int, tuple[Any, dict[str, Any]]] = {}
        self.updated: list[int] = []
        self.communicators: dict[int, DaskCommunicator] = {}
        self.workers: dict[int, Wired] = {}


rules = Rules()


class Ruled(Member):
    def __init__(self, communicator: Any, *given: Any) -> None:
        super().__init__(communicator, *given)
        rules.communicators[self.rank] = communicator

    def update(self, *given: Any, **named: Any) -> Any:
        rules.before_update(self.rank)
        try:
            return super().update(*given, **named)
        finally:
            rules.updated.append(self.rank)


class _Seen:
    """All that something has, and what a test has in place of it."""

    def __init__(self, of: Any, rank: int) -> None:
        self.of, self.rank = of, rank

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of, name)


class _Connection(_Seen):
    async def write(self, message: Any, **options: Any) -> None:
        rules.carried[self.rank] = self.of, message
        if rules.loses(self.rank, message):
            self.of.abort()  # as the kernel does when nothing is acknowledged
        else:
            await self.of.write(message, **options)


class _Pool(_Seen):
    def __call__(self, address: str) -> Any:
        rules.asked += 1
        return self.of(rules.hole if rules.hole and self.rank == 0 else address)

    async def connect(self, address: str) -> _Connection:
        return _Connection(await self.of.connect(address), self.rank)

    def reuse(self, address: str, connection: _Connection) -> None:
        self.of.reuse(address, connection.of)


class Wired(_Seen):
    """A worker, as a shard reaches others by it."""

    def __init__(self, of: Any, rank: int) -> None:
        super().__init__(of, rank)
        rules.workers[rank] = self

    @property
    def rpc(self) -> _Pool:
        return _Pool(self.of.rpc, self.rank)


PARTS = Parts(member=Ruled, worker=Wired, ask_seconds=0.1)


@pytest.fixture
def cluster(existing: Cluster) -> Iterator[Cluster]:
    """Without rules yet. Its workers free the shards of a graph that was lost."""
    yield existing
    vars(rules).update(vars(Rules()))
    wait_until(lambda: shards_of(existing) == 0, 50.0)


@pytest.fixture
def hole() -> Iterator[str]:
    """The address of a worker that accepts a connection, and never says anything."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"tls://127.0.0.1:{server.getsockname()[1]}"


def assert_lost(engine: ShardedEngine, noticed: threading.Event, match: str) -> None:
    assert noticed.wait(10.0)
    for call in (engine.check_alive, engine.update):
        with pytest.raises(ClusterUnavailable, match=match):
            call()


@pytest.mark.parametrize("on", ["cpu", "cuda"])
def test_a_worker_that_another_does_not_reach_is_lost(
    cluster: Cluster, nccl: list[Any], hole: str, on: Any
) -> None:
    ending, noticed = threading.Event(), threading.Event()
    parts = replace(GPUS, member=Ruled, worker=Wired, ask_seconds=0.1) if on == "cuda" else PARTS
    with engine_on(cluster, backend=on, parts=parts) as engine:
        engine.apply(EDGES)
        engine.on_loss(noticed.set)
        rules.hole = hole
        rules.before_update = lambda rank: rank == 1 and ending.wait(60.0)
        threading.Timer(3.0, ending.set).start()
        soon, begun = dask.config.set({"distributed.comm.timeouts.connect": "1s"}), monotonic()
        with soon, pytest.raises(ClusterUnavailable, match=CUT.format(0, 1) + ".*imed out"):
            engine.update()
        assert monotonic() - begun < 30.0
        assert_lost(engine, noticed, CUT.format(0, 1))
    assert bool(nccl) == (on == "cuda")


def test_a_message_that_was_lost_with_its_connection_is_noticed(cluster: Cluster) -> None:
    lost, noticed = list[int](), threading.Event()

    def loses(rank: int, message: dict[str, Any]) -> bool:
        if rank == 1 and message["key"][1] == 2 and not lost:
            lost.append(rank)
            return True
        return False

    with engine_on(cluster, parts=PARTS) as engine:
        engine.apply(EDGES)
        engine.on_loss(noticed.set)
        rules.loses = loses
        with pytest.raises(ClusterUnavailable, match=CUT.format(0, 1) + ".* message was lost"):
            engine.update("static")
        assert lost
        assert_lost(engine, noticed, "message was lost")


def test_what_arrived_before_its_connection_ended_is_not_lost(cluster: Cluster) -> None:
    with engine_on(cluster, parts=PARTS) as engine:
        engine.apply(EDGES)
        connection, message = rules.carried[0]
        call, exchange, _ = message["key"]

        async def ask() -> None:
            connection.abort()
            assert rules.communicators[0].lost([[call, exchange, 0]], 1) == [(call, exchange, 0)]
            await rules.communicators[1].peers.ask()

        loop = rules.workers[1].loop.asyncio_loop
        asyncio.run_coroutine_threadsafe(ask(), loop).result(30.0)
        assert rules.asked


def test_a_shard_that_takes_long_is_waited_for(cluster: Cluster) -> None:
    with engine_on(cluster, parts=PARTS) as engine:
        engine.apply(EDGES)
        rules.before_update = lambda rank: sleep(1.0 * rank)
        assert engine.update().error_bound <= 1e-9
        assert rules.asked > 2
        engine.check_alive()


def test_a_shard_that_computes_when_its_call_is_ended_waits_for_no_other(
    cluster: Cluster, hole: str
) -> None:
    ending = threading.Event()
    with engine_on(cluster, parts=PARTS) as engine:
        engine.apply(EDGES)
        rules.hole = hole  # messages still arrive
        rules.before_update = lambda rank: rank == 0 and ending.wait(60.0)
        soon = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
        with soon, pytest.raises(ClusterUnavailable, match=CUT.format(0, 1)):
            engine.update()
        assert 0 not in rules.updated
        ending.set()
        wait_until(lambda: 0 in rules.updated)


def test_a_call_that_ends_while_a_question_fails_is_not_lost() -> None:
    ending = threading.Event()

    class Waits(Member):
        def order(self, ranked: bool) -> Any:  # noqa: ARG002
            return ending.wait(20.0)

    class Fails(Peers):
        async def ask(self) -> None:
            ending.set()
            sleep(0.5)  # the call ends
            raise ClusterUnavailable("tls://scheduler", "is cut")

    async def run() -> None:
        loop, peers = asyncio.get_running_loop(), Fails(None, "graph", 0, ["tls://here"])
        parts, cpu = Parts(member=Waits, ask_seconds=0.1), backend_named("cpu")
        given = (SingleCommunicator(), peers, loop, Options(), cpu)
        assert await HostedShard(*given, parts=parts).call(1, "order", (True,))

    asyncio.run(run())


def test_connections_that_the_caller_loses_are_a_loss(cluster: Cluster) -> None:
    workers = existing_workers(cluster, OPTIONS, 2, "cpu")
    with ShardedEngine(OPTIONS, workers=workers) as engine:
        connections = workers.client.rpc
        connect = connections.connect

        async def fails(address: str, *arguments: Any, **options: Any) -> Any:
            if address in workers.addresses:
                raise OSError(f"Timed out trying to connect to {address}")
            return await connect(address, *arguments, **options)

        connections.connect = fails
        with pytest.raises(
            ShardLost, match=r"the Dask cluster at \S+ is cut: Timed out"
        ) as failure:
            engine.apply(EDGES)
        assert isinstance(failure.value.__cause__, OSError)
        with pytest.raises(ShardLost, match="is cut"):
            engine.check_alive()


def test_an_error_of_a_shard_is_not_a_cut(cluster: Cluster) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with engine_on(cluster, parts=PARTS) as engine:
        engine.apply(EDGES)
        rules.before_update = full
        with pytest.raises(OSError, match="No space left on device") as failure:
            engine.update()
        assert failure.value.errno == errno.ENOSPC
        rules.before_update = lambda _: None
        engine.check_alive()
        assert engine.update().converged
