"""Shards on an existing Dask cluster, whose scheduler and workers run in this process."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, NoReturn, get_args

import dask
import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from distributed import Client, LocalCluster
from distributed.security import Security

from liverank_gpu import (
    BackendName,
    BackendUnavailable,
    Cluster,
    ClusterUnavailable,
    EdgeBatch,
    InvalidValue,
    Options,
    ShardedEngine,
    ShardLost,
)
from liverank_gpu.backends import backend_named
from liverank_gpu.backends.cpu.device import CpuDevice
from liverank_gpu.operations.backend import Backend
from liverank_gpu.sharded.cluster import existing_workers, local_workers, placed, visible_devices
from liverank_gpu.sharded.dask_shard import PARTS, Capability, Parts, capability, own_version
from liverank_gpu.sharded.dask_workers import DaskWorkers
from liverank_gpu.sharded.member import Member
from tests.gpu.graphs import Model, random_batch
from tests.gpu.sharded import emulated_nccl
from tests.gpu.sharded.test_shards import assert_ranks

pytestmark = pytest.mark.filterwarnings("default")
"""Dask's own warnings are not ours."""

OPTIONS = Options(target_error=1e-9)


def certified(folder: Path, security: Security) -> dict[str, Any]:
    """The files of a client with these certificates."""
    files = {"ca": "ca_file", "cert": "client_cert", "key": "client_key"}
    paths = {name: folder / f"{name}.pem" for name in files}
    for name, path in paths.items():
        path.write_text(getattr(security, f"tls_{files[name]}"))
    return {name: str(path) for name, path in paths.items()}


def started(security: Security, workers: int) -> LocalCluster:
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=False,
        protocol="tls://",
        security=security,
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": False},
        memory_limit=0,
    )


@pytest.fixture(scope="module")
def existing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two workers."""
    security = Security.temporary()
    with started(security, 2) as cluster:
        yield Cluster(
            cluster.scheduler_address, **certified(tmp_path_factory.mktemp("tls"), security)
        )


def engine_on(
    cluster: Cluster, shards: int = 2, backend: BackendName = "cpu", parts: Parts | None = None
) -> ShardedEngine:
    if parts is None:
        return ShardedEngine(OPTIONS, shards, backend, cluster=cluster)
    workers = existing_workers(cluster, OPTIONS, shards, backend, parts=parts)
    return ShardedEngine(OPTIONS, workers=workers)


def shards_of(cluster: Cluster) -> int:
    """How many its workers hold."""
    security = Security(
        tls_ca_file=cluster.ca, tls_client_cert=cluster.cert, tls_client_key=cluster.key
    )
    with Client(cluster.address, security=security, set_as_default=False) as client:
        found: dict[str, Capability] = client.run(capability, "cpu", PARTS)
    return sum(each.shards for each in found.values())


def wait_until(held: Callable[[], bool], seconds: float = 20.0) -> None:
    begun = monotonic()
    while not held() and monotonic() - begun < seconds:
        gc.collect()
        sleep(0.05)
    assert held()


def update_for(engine: ShardedEngine, seconds: float) -> None:
    begun = monotonic()
    while monotonic() - begun < seconds:
        engine.update("static")


def run_stream(engine: ShardedEngine, seed: int, batches: int = 3) -> None:
    generator, model = np.random.default_rng(seed), Model("uniform")
    for _ in range(batches):
        batch = random_batch(generator, model, 100)
        assert replace(engine.apply(batch), seconds=0.0) == model.apply(batch)
        assert_ranks(engine, model, engine.update("residual").error_bound)


def test_graphs_share_workers_and_leave_nothing_there(existing: Cluster) -> None:
    with engine_on(existing) as first, engine_on(existing) as second:
        assert first.backend == "cpu"
        assert shards_of(existing) == 4
        # each worker has one thread for tasks, and shards wait for each other
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(run_stream, (first, second), (1, 2)))
    wait_until(lambda: shards_of(existing) == 0)


def test_workers_may_be_closed_twice(existing: Cluster) -> None:
    with engine_on(existing) as engine:
        engine.close()


def test_workers_with_the_client_of_others_free_their_shards_alone(existing: Cluster) -> None:
    own = existing_workers(existing, OPTIONS, 2, "cpu")
    others = DaskWorkers(own.client, own.addresses, OPTIONS, shared=True)
    assert shards_of(existing) == 4
    others.close()
    wait_until(lambda: shards_of(existing) == 2)
    own.check_alive()
    own.close()
    wait_until(lambda: shards_of(existing) == 0)


class Bounded(CpuDevice):
    """bounds: that were asked for"""

    bounds: ClassVar[list[int | None]] = []

    def limit_memory(self, most: int | None) -> None:
        self.bounds.append(most)


def emulated(name: BackendName) -> Backend:
    return replace(backend_named("cpu"), name=name, device=Bounded())


def other_device() -> str:
    return str(next(_devices))


_devices = count()

GPUS = Parts(backend=emulated, device=other_device)
"""Workers with a GPU of their own, whose kernels are those of the CPU."""


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch) -> list[emulated_nccl.Communicator]:
    """What is created meanwhile."""
    emulated_nccl.install(monkeypatch)
    return emulated_nccl.Communicator.created


def test_gpus_exchange_data_by_nccl(
    existing: Cluster, nccl: list[emulated_nccl.Communicator]
) -> None:
    with engine_on(existing, backend="auto", parts=GPUS) as engine:
        assert engine.backend == "cuda"
        run_stream(engine, 3)
        assert len(nccl) == 2


def test_a_group_of_gpus_is_freed_when_its_engine_is_closed(
    existing: Cluster, nccl: list[emulated_nccl.Communicator]
) -> None:
    gc.disable()  # NCCL would wait for the other members in the thread that collects
    try:
        for count in (1, 2):
            with engine_on(existing, backend="cuda", parts=GPUS) as engine:
                run_stream(engine, 4)
            begun = monotonic()
            while [each.group.destroyed for each in nccl] != [2] * 2 * count:
                assert monotonic() - begun < 20.0
                sleep(0.05)
    finally:
        gc.enable()


def test_the_bound_on_memory_reaches_each_worker(
    existing: Cluster, nccl: list[emulated_nccl.Communicator]
) -> None:
    assert not nccl
    Bounded.bounds.clear()
    existing_workers(existing, OPTIONS, 2, "cuda", 1 << 30, GPUS).close()
    assert Bounded.bounds == [1 << 30] * 2
    # a later server of these workers has its own
    existing_workers(existing, OPTIONS, 2, "cuda", parts=GPUS).close()
    assert Bounded.bounds == [1 << 30] * 2 + [None] * 2


def test_workers_without_gpus_refuse_a_bound_on_their_memory(existing: Cluster) -> None:
    # `auto` is `cuda` where there is a GPU
    for backend in get_args(BackendName):
        if backend == "cpu" or (backend == "auto" and not visible_devices()):
            with pytest.raises(InvalidValue, match=r"device_memory: 1024 .* unset on cpu"):
                ShardedEngine(OPTIONS, 2, backend, cluster=existing, device_memory=1024)


class FailsOnce(Member):
    """Whose first update fails in the second shard."""

    failed = False

    def update(self, *given: Any, **named: Any) -> Any:
        if self.rank == 1 and not self.failed:
            self.failed = True
            raise BackendUnavailable("cuda", "another shard")
        return super().update(*given, **named)


def test_a_group_of_gpus_is_formed_again_after_an_error_of_one(
    existing: Cluster, nccl: list[emulated_nccl.Communicator]
) -> None:
    with engine_on(existing, 2, "cuda", replace(GPUS, member=FailsOnce)) as engine:
        engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2)]))
        with pytest.raises(BackendUnavailable, match="another shard"):
            engine.update()
        assert [each.aborted for each in nccl] == [True, True]
        assert engine.update().error_bound <= 1e-9
        assert len(nccl) == 4
        assert engine.edges == 2


def test_shards_are_freed_after_an_error_without_a_search_for_garbage(existing: Cluster) -> None:
    gc.disable()
    try:
        with engine_on(existing, parts=Parts(member=FailsOnce)) as engine:
            engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2)]))
            with pytest.raises(BackendUnavailable, match="another shard"):
                engine.update()
        begun = monotonic()
        while shards_of(existing):
            assert monotonic() - begun < 20.0
            sleep(0.05)
    finally:
        gc.enable()


def test_joining_a_group_that_one_shard_does_not_join_ends(
    existing: Cluster, monkeypatch: pytest.MonkeyPatch, nccl: list[emulated_nccl.Communicator]
) -> None:
    late = threading.Event()

    def joins(size: int, identity: Any, rank: int) -> emulated_nccl.Communicator:
        if rank == 1:
            raise BackendUnavailable("cuda", "another shard")
        assert late.wait(60.0)
        return emulated_nccl.Communicator(size, identity, rank)

    with engine_on(existing, backend="cuda", parts=GPUS) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(sys.modules["cupy.cuda"].nccl, "NcclCommunicator", joins)
            with pytest.raises(BackendUnavailable, match="another shard"):
                engine.update()
        engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2)]))
        assert engine.update().error_bound <= 1e-9
        assert [each.aborted for each in nccl] == [False, False]
        # NCCL returns to the first shard, which has joined another group by now
        late.set()
        wait_until(lambda: [each.aborted for each in nccl] == [False, False, True])
        assert engine.update().error_bound <= 1e-9


def one_device() -> str:
    return "one"


def test_each_shard_needs_a_gpu_of_its_own(existing: Cluster) -> None:
    message = "has 1 workers with a GPU of their own, and 2 shards need one each"
    with pytest.raises(ClusterUnavailable, match=message):
        engine_on(existing, backend="cuda", parts=replace(GPUS, device=one_device))


def test_there_are_workers_for_all_shards(existing: Cluster) -> None:
    with pytest.raises(ClusterUnavailable, match="has 2 workers, and 3 shards need one each"):
        existing_workers(existing, OPTIONS, 3, patience=0.3)


def test_the_least_used_workers_are_chosen(existing: Cluster) -> None:
    mine = own_version()
    cpu = {f"tls://h:{at}": Capability(mine, 3 - at, None) for at in range(4)}
    assert placed(existing, cpu, 2, "auto") == (["tls://h:2", "tls://h:3"], "cpu")
    gpus = {
        "tls://g:0": Capability(mine, 0, "a"),
        "tls://g:1": Capability(mine, 1, "a"),
        "tls://g:2": Capability(mine, 5, "b"),
    }
    assert placed(existing, cpu | gpus, 2, "auto") == (["tls://g:0", "tls://g:2"], "cuda")
    assert placed(existing, cpu | gpus, 5, "cpu")[1] == "cpu"
    others: dict[str, Capability | Exception] = {
        "tls://o:1": Capability("0.0.1", 0, None),
        "tls://o:2": ModuleNotFoundError("No module named 'liverank_gpu'"),
    }
    with pytest.raises(ClusterUnavailable) as refused:
        placed(existing, others, 1, "cpu")
    for part in (
        "has 0 workers",
        f"liverank 0.0.1, expected {mine}",
        "No module named 'liverank_gpu'",
    ):
        assert part in str(refused.value)


def test_a_scheduler_that_is_not_there_is_an_error(existing: Cluster) -> None:
    begun = monotonic()
    with pytest.raises(
        ClusterUnavailable, match=r"tls://127\.0\.0\.1:9 cannot be reached: .*after 0\.5 s"
    ):
        existing_workers(replace(existing, address="tls://127.0.0.1:9"), OPTIONS, 2, patience=0.5)
    assert monotonic() - begun < 10.0


def test_certificates_of_another_authority_are_refused(existing: Cluster, tmp_path: Path) -> None:
    stranger = certified(tmp_path, Security.temporary())
    with pytest.raises(ClusterUnavailable, match=r"cannot be reached: .*certificate"):
        engine_on(replace(existing, **stranger))
    # a client that accepts the scheduler, but is not accepted
    with pytest.raises(ClusterUnavailable, match=r"cannot be reached: .* accepts the certificate"):
        engine_on(replace(existing, cert=stranger["cert"], key=stranger["key"]))


def test_a_certificate_and_its_key_may_be_in_one_file(existing: Cluster, tmp_path: Path) -> None:
    files = [Path(str(path)) for path in (existing.cert, existing.key)]
    both = tmp_path / "both.pem"
    both.write_text("".join(file.read_text() for file in files))
    with engine_on(replace(existing, cert=str(both), key=None)) as engine:
        assert engine.vertices == 0


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"ca": "missing.pem"}, "the authority cannot be read"),
        (
            {"cert": None, "key": None},
            "the certificate is not given .*the certificate, LIVERANK_CLUSTER_CERT: None",
        ),
        ({"key": "key-of-another"}, "KEY_VALUES_MISMATCH|key values mismatch"),
    ],
    ids=["missing", "none", "mismatch"],
)
def test_certificates_that_cannot_be_used_are_named(
    existing: Cluster, tmp_path: Path, change: dict[str, Any], what: str
) -> None:
    if change.get("key") == "key-of-another":
        change = {"key": certified(tmp_path, Security.temporary())["key"]}
    # not InvalidValue: a server that recovers while they are being replaced tries again
    with pytest.raises(ClusterUnavailable, match=f"cannot be reached: .*(?:{what})"):
        engine_on(replace(existing, **change))


def test_a_certificate_that_has_expired_is_named(existing: Cluster, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "liverank")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1)
    builder = builder.not_valid_before(datetime(2020, 1, 1)).not_valid_after(datetime(2020, 2, 3))
    kind = serialization.Encoding.PEM
    private = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "key.pem").write_bytes(key.private_bytes(kind, *private))
    (tmp_path / "cert.pem").write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(kind))
    own: dict[str, Any] = {each: str(tmp_path / f"{each}.pem") for each in ("cert", "key")}
    with pytest.raises(ClusterUnavailable, match=r"valid until 2020-02-03 \(.*cert\.pem"):
        engine_on(replace(existing, **own))


def test_a_cluster_without_tls_is_refused_by_name() -> None:
    with pytest.raises(InvalidValue, match=r"'tcp://h:1' is not allowed; it must be tls://HOST"):
        Cluster("tcp://h:1")
    assert Cluster("tcp://h:1", insecure=True).insecure
    with pytest.raises(InvalidValue, match=r"tls://HOST:PORT or tcp://HOST:PORT"):
        Cluster("h:1", insecure=True)


def test_a_key_needs_its_certificate() -> None:
    with pytest.raises(InvalidValue, match=r"key: .* must be given with cert"):
        Cluster("tls://h:1", key="/k.pem")


def test_local_shards_on_gpus_need_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy: Any = ModuleType("cupy")
    runtime = SimpleNamespace(getDeviceCount=lambda: 1, CUDARuntimeError=RuntimeError)
    cupy.cuda = SimpleNamespace(runtime=runtime)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    backends: list[BackendName] = ["cuda", "auto"]
    for backend in backends:
        with pytest.raises(BackendUnavailable, match="2 shards need a GPU each, and 1 are visible"):
            local_workers(OPTIONS, 2, backend)


def test_a_local_cluster_that_no_client_reaches_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    class Started:
        def __init__(self, **_: Any) -> None: ...

        def close(self) -> None:
            ended.append(self)

    def unreachable(*_: Any, **__: Any) -> NoReturn:
        raise OSError("no scheduler")

    monkeypatch.setattr("distributed.SpecCluster", Started)
    monkeypatch.setattr("distributed.Client", unreachable)
    with pytest.raises(OSError, match="no scheduler"):
        local_workers(Options(), 2, "cpu")
    assert len(ended) == 1


def test_a_lost_worker_is_noticed_between_calls(tmp_path: Path) -> None:
    security = Security.temporary()
    # at its end the cluster still connects to the scheduler
    soon = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    with soon, started(security, 2) as dask_cluster:
        cluster = Cluster(dask_cluster.scheduler_address, **certified(tmp_path, security))
        engine = engine_on(cluster)
        noticed = threading.Event()
        engine.on_loss(noticed.set)
        engine.check_alive()
        lost = dask_cluster.workers[1]
        dask_cluster.sync(lost.close)
        assert noticed.wait(10.0)
        with pytest.raises(ShardLost, match=rf"shard \d of 2 at {lost.address} is lost"):
            engine.check_alive()
        with pytest.raises(ShardLost, match=f"{lost.address} is lost"):
            engine.update()
        engine.close()

        # on what is left; then the scheduler ends during a call
        engine = engine_on(cluster, shards=1)
        engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2)]))
        ending = threading.Timer(0.3, dask_cluster.sync, (dask_cluster.scheduler.close,))
        ending.start()
        begun = monotonic()
        with pytest.raises(ShardLost):
            update_for(engine, 60.0)
        assert monotonic() - begun < 10.0
        ending.join()
        with pytest.raises(ShardLost, match=r"the Dask cluster at|shard 0 of 1"):
            engine.check_alive()
        engine.close()
