"""Workers that do not reach each other while the scheduler reaches all of them."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from time import monotonic, sleep
from typing import Any

import dask
import pytest

from liverank_gpu import Cluster, ClusterUnavailable, EdgeBatch, ShardedEngine, ShardLost
from liverank_gpu.sharded import dask_shard
from liverank_gpu.sharded.dask_shard import DaskCommunicator, HostedShard, Peers
from liverank_gpu.sharded.member import Member
from tests.gpu.sharded import emulated_nccl
from tests.gpu.sharded.test_existing_cluster import engine_on, existing, on_emulated_gpus

__all__ = ["existing"]  # a fixture

pytestmark = pytest.mark.filterwarnings("default")
"""Dask's own warnings are not ours."""

EDGES = EdgeBatch.of(insert=[(0, 1), (1, 2)])
CUT = (
    r"the Dask cluster at tls://\S+ is cut: shard {} at tls://\S+ does not reach shard {} at tls://"
)


@pytest.fixture(autouse=True)
def asked_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_shard, "ASK_SECONDS", 0.1)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Workers free the shards of a graph that was lost."""
    before, begun = set(dask_shard._shards), monotonic()
    yield
    while set(dask_shard._shards) - before and monotonic() - begun < 50.0:
        gc.collect()
        sleep(0.05)
    assert not set(dask_shard._shards) - before


@pytest.fixture
def hole() -> Iterator[str]:
    """The address of a worker that accepts a connection, and never says anything."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"tls://127.0.0.1:{server.getsockname()[1]}"


def hosted(engine: ShardedEngine, rank: int) -> HostedShard:
    """A shard of the engine, whose workers are in this process."""
    name = engine._workers._name  # type: ignore[attr-defined]
    return next(
        each
        for (_, graph), each in list(dask_shard._shards.items())
        if graph == name and each.communicator.rank == rank
    )


def assert_lost(engine: ShardedEngine, noticed: threading.Event, match: str) -> None:
    assert noticed.wait(10.0)
    for call in (engine.check_alive, engine.update):
        with pytest.raises(ClusterUnavailable, match=match):
            call()


@pytest.mark.parametrize("on", ["cpu", "cuda"])
def test_a_worker_that_another_does_not_reach_is_lost(
    existing: Cluster, monkeypatch: pytest.MonkeyPatch, hole: str, on: Any
) -> None:
    on_emulated_gpus(monkeypatch, ["first", "second"])
    ending, noticed = threading.Event(), threading.Event()
    update = Member.update

    def waits(shard: Any, *arguments: Any) -> Any:
        if shard.rank == 1:
            ending.wait(60.0)
        return update(shard, *arguments)

    with engine_on(existing, backend=on) as engine:
        engine.apply(EDGES)
        engine.on_loss(noticed.set)
        hosted(engine, 0)._peers._addresses[1] = hole
        monkeypatch.setattr(Member, "update", waits)
        threading.Timer(3.0, ending.set).start()
        soon, begun = dask.config.set({"distributed.comm.timeouts.connect": "1s"}), monotonic()
        with soon, pytest.raises(ClusterUnavailable, match=CUT.format(0, 1) + ".*imed out"):
            engine.update()
        assert monotonic() - begun < 30.0
        assert_lost(engine, noticed, CUT.format(0, 1))
    assert bool(emulated_nccl.Communicator.created) == (on == "cuda")


def test_a_message_that_was_lost_with_its_connection_is_noticed(
    existing: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, noticed = DaskCommunicator._send, threading.Event()
    lost: list[tuple[int, int]] = []

    async def loses(self: Any, peer: int, message: Any, part: Any) -> None:
        if self.rank == 1 and message[1] == 2 and not lost:
            connection = await self._worker.rpc.connect(self._addresses[peer])
            self._carriers[*message, peer] = connection
            connection.abort()  # as the kernel does when nothing is acknowledged
            self._worker.rpc.reuse(self._addresses[peer], connection)
            lost.append(message)
        else:
            await send(self, peer, message, part)

    with engine_on(existing) as engine:
        engine.apply(EDGES)
        engine.on_loss(noticed.set)
        monkeypatch.setattr(DaskCommunicator, "_send", loses)
        with pytest.raises(ClusterUnavailable, match=CUT.format(0, 1) + ".* message was lost"):
            engine.update("static")
        assert lost
        assert_lost(engine, noticed, "message was lost")


def test_what_arrived_before_its_connection_ended_is_not_lost(existing: Cluster) -> None:
    with engine_on(existing) as engine:
        engine.apply(EDGES)
        sender, receiver = hosted(engine, 0), hosted(engine, 1)
        communicator = sender.communicator
        assert isinstance(communicator, DaskCommunicator)
        message, carrier = max(communicator._carriers.items())

        async def ask() -> None:
            carrier.abort()
            assert communicator.lost([[*message[:2], 0]], 1) == [(*message[:2], 0)]
            await receiver._peers.ask()

        asyncio.run_coroutine_threadsafe(ask(), receiver._loop).result(30.0)


def test_a_shard_that_takes_long_is_waited_for(
    existing: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, ask = Member.update, Peers.ask
    asked: list[Peers] = []

    async def asks(peers: Any) -> None:
        asked.append(peers)
        await ask(peers)

    def slow(shard: Any, *arguments: Any) -> Any:
        if shard.rank == 1:
            sleep(1.0)
        return update(shard, *arguments)

    with engine_on(existing) as engine:
        engine.apply(EDGES)
        monkeypatch.setattr(Member, "update", slow)
        monkeypatch.setattr(Peers, "ask", asks)
        assert engine.update().error_bound <= 1e-9
        assert len(asked) > 2
        engine.check_alive()


def test_a_shard_that_computes_when_its_call_is_ended_waits_for_no_other(
    existing: Cluster, monkeypatch: pytest.MonkeyPatch, hole: str
) -> None:
    ending, update = threading.Event(), Member.update

    def waits(shard: Any, *arguments: Any) -> Any:
        if shard.rank == 0:
            ending.wait(60.0)
        return update(shard, *arguments)

    with engine_on(existing) as engine:
        engine.apply(EDGES)
        thread = hosted(engine, 0)._thread
        hosted(engine, 0)._peers._addresses[1] = hole  # messages still arrive
        monkeypatch.setattr(Member, "update", waits)
        soon = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
        with soon, pytest.raises(ClusterUnavailable, match=CUT.format(0, 1)):
            engine.update()
        ending.set()
        thread.submit(int).result(20.0)


def test_a_call_that_ends_while_a_question_fails_is_not_lost() -> None:
    async def run() -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        class Fails(Peers):
            async def ask(self) -> None:
                ended.set_result(None)
                raise ClusterUnavailable("tls://scheduler", "is cut")

        shard: Any = object.__new__(HostedShard)
        shard._peers = Fails(None, "graph", 0, ["tls://here"])
        await shard._wait_for(ended)

    asyncio.run(run())


def test_connections_that_the_caller_loses_are_a_loss(
    existing: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_on(existing) as engine:
        workers: Any = engine._workers
        connect = workers._client.rpc.connect

        async def fails(address: str, *arguments: Any, **options: Any) -> Any:
            if address in workers.addresses:
                raise OSError(f"Timed out trying to connect to {address}")
            return await connect(address, *arguments, **options)

        monkeypatch.setattr(workers._client.rpc, "connect", fails)
        with pytest.raises(
            ShardLost, match=r"the Dask cluster at \S+ is cut: Timed out"
        ) as failure:
            engine.apply(EDGES)
        assert isinstance(failure.value.__cause__, OSError)
        with pytest.raises(ShardLost, match="is cut"):
            engine.check_alive()


def test_an_error_of_a_shard_is_not_a_cut(
    existing: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with engine_on(existing) as engine:
        engine.apply(EDGES)
        with monkeypatch.context() as failing:
            failing.setattr(Member, "update", full)
            with pytest.raises(OSError, match="No space left on device") as failure:
                engine.update()
        assert failure.value.errno == errno.ENOSPC
        engine.check_alive()
        assert engine.update().converged
