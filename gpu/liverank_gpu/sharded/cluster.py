"""Where the workers of shards come from: a Dask cluster on this machine, or an existing one.

A local cluster uses TLS with certificates made at its start, as a worker runs what any peer sends.
Dask's dashboard and its other pages are off. Scripts that start one need the guard
``if __name__ == "__main__"``, as with multiprocessing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from liverank_gpu.errors import BackendUnavailable, ClusterUnavailable, InvalidValue
from liverank_gpu.sharded.dask_shard import (
    PARTS,
    THREADS,
    Capability,
    Parts,
    capability,
    own_version,
)
from liverank_gpu.sharded.dask_workers import DaskWorkers, Workers
from liverank_gpu.types import BackendName, Options

CONNECT_SECONDS = 10.0
"""For the scheduler of an existing cluster to accept a connection."""

WORKERS_SECONDS = 30.0
"""For an existing cluster to have as many workers as shards."""

_ANSWER_SECONDS = 120.0
"""For the workers to say what they offer, for which they import the engine and start their device.
"""

_NO_PAGES: dict[str, list[str]] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Dask always listens for HTTP, without TLS. With these settings it serves nothing there."""


@dataclass(frozen=True)
class Cluster:
    """An existing Dask cluster, whose scheduler and workers have the same version of liverank.

    address        of its scheduler: tls://HOST:PORT
    ca, cert, key  PEM files: the authority that signed the certificates of the cluster, and the
                   certificate and key of this client. What is None is read from Dask's
                   configuration, ``distributed.comm.tls``
    insecure       whether tcp://HOST:PORT is accepted. Without TLS, whoever can connect to the
                   scheduler or a worker runs code there

    Raises InvalidValue for another address, and for a key without a certificate.
    """

    address: str
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        schemes = ("tls://", "tcp://") if self.insecure else ("tls://",)
        if not self.address.startswith(schemes):
            accepted = " or ".join(f"{scheme}HOST:PORT" for scheme in schemes)
            raise InvalidValue("cluster", self.address, accepted)
        if self.key and not self.cert:
            raise InvalidValue("key", self.key, "given with cert, the certificate that it is of")


def started_workers(
    options: Options,
    shards: int,
    backend: BackendName,
    cluster: Cluster | None,
    device_memory: int | None,
) -> Workers:
    """`existing_workers` of a cluster; without one, `local_workers`."""
    if cluster is None:
        return local_workers(options, shards, backend, device_memory)
    return existing_workers(cluster, options, shards, backend, device_memory)


def local_workers(
    options: Options,
    shards: int,
    backend: BackendName = "cpu",
    device_memory: int | None = None,
    parts: Parts = PARTS,
) -> DaskWorkers:
    """Starts a cluster on this machine, with a worker process for each shard; on ``cuda`` each has
    a GPU of its own. Raises BackendUnavailable without Dask, and with fewer GPUs than shards.

    device_memory  see liverank_gpu.limit_device_memory, which raises InvalidValue
    """
    devices = _devices_for(shards, backend)
    on: BackendName = "cuda" if devices else "cpu" if backend == "auto" else backend
    try:
        import dask
        from distributed import Client, Nanny, Scheduler, SpecCluster
        from distributed.security import Security

        security = Security.temporary()
    except ImportError as error:
        raise _no_dask(on, error) from error
    listening = {"host": "127.0.0.1", "protocol": "tls://", "security": security}
    no_dashboard = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    threads = max(1, len(os.sched_getaffinity(0)) // shards)

    def worker(rank: int) -> dict[str, Any]:
        # its own first, which is the one it uses
        visible = ",".join(devices[rank:] + devices[:rank])
        own = {"CUDA_VISIBLE_DEVICES": visible} if devices else {}
        process = {"nthreads": 1, "memory_limit": 0, "silence_logs": logging.ERROR, "env": own}
        process["resources"] = {THREADS: threads}
        return {"cls": Nanny, "options": {**listening, **no_dashboard, **process}}

    with dask.config.set(_NO_PAGES):
        cluster = SpecCluster(
            scheduler={"cls": Scheduler, "options": {**listening, **no_dashboard, "port": 0}},
            workers={rank: worker(rank) for rank in range(shards)},
            security=security,
            silence_logs=logging.ERROR,
        )
    client = None
    try:
        client = Client(cluster, set_as_default=False)
        client.wait_for_workers(shards, timeout=120)
        addresses = sorted(client.nthreads())
        given = (client, addresses, options, on, device_memory)
        return DaskWorkers(*given, parts=parts, precompile=on == "cuda")
    except BaseException:
        if client is not None:
            client.close()
        cluster.close()
        raise


def existing_workers(
    cluster: Cluster,
    options: Options,
    shards: int,
    backend: BackendName = "auto",
    device_memory: int | None = None,
    parts: Parts = PARTS,
    patience: float = WORKERS_SECONDS,
) -> DaskWorkers:
    """Places shards on the workers of a cluster: those with the fewest shards, and on ``cuda``
    those with GPUs, one a GPU. ``auto`` is ``cuda`` if a worker has a GPU.

    Raises BackendUnavailable without Dask; ClusterUnavailable, within seconds, if the scheduler
    cannot be reached or refuses the connection, if certificates cannot be used, or if there are too
    few workers.

    device_memory  see liverank_gpu.limit_device_memory, which raises InvalidValue
    patience       seconds for the scheduler to accept a connection, of which it has CONNECT_SECONDS
                   at most, and for the cluster to have as many workers as shards
    """
    client = _client_of(cluster, min(patience, CONNECT_SECONDS))
    try:
        try:
            client.wait_for_workers(shards, timeout=patience)
        except TimeoutError:
            found = len(client.nthreads())
            raise _too_few(cluster, found, "workers", shards) from None
        offered = _within(
            client,
            _ANSWER_SECONDS,
            lambda: client.run(capability, backend, parts, on_error="return"),
        )
        addresses, on = placed(cluster, offered, shards, backend)
        if not (cluster.insecure or all(each.startswith("tls://") for each in addresses)):
            without = f"has workers without TLS: {', '.join(addresses)}"
            raise ClusterUnavailable(cluster.address, without)
        given = (client, addresses, options, on, device_memory)
        return DaskWorkers(*given, parts=parts, precompile=True)
    except (OSError, TimeoutError) as error:
        client.close()
        raise ClusterUnavailable(cluster.address, f"does not answer: {_reasons(error)}") from error
    except BaseException:
        client.close()
        raise


def placed(
    cluster: Cluster,
    offered: Mapping[str, Capability | Exception],
    shards: int,
    backend: BackendName,
) -> tuple[list[str], BackendName]:
    """The addresses of the workers that hold the shards, by rank, and the backend. Raises
    ClusterUnavailable if there are too few.

    offered  what each worker offers, by its address; or the error that it raised instead
    """
    usable: dict[str, Capability] = {}
    unusable: dict[str, str] = {}
    for address, each in sorted(offered.items()):
        if isinstance(each, Exception):
            unusable[address] = repr(each)
        elif each.version != own_version():
            unusable[address] = f"liverank {each.version}, expected {own_version()}"
        else:
            usable[address] = each
    by_load = sorted(usable, key=lambda address: usable[address].shards)
    on: BackendName = backend
    if backend == "auto":
        on = "cuda" if any(each.device for each in usable.values()) else "cpu"
    what = "workers"
    if on == "cuda":
        # NCCL accepts a GPU once
        by_device = {usable[each].device: each for each in reversed(by_load)}
        by_load = [each for each in by_load if by_device.get(usable[each].device or "") == each]
        what = "workers with a GPU of their own"
    if len(by_load) < shards:
        raise _too_few(cluster, len(by_load), what, shards, unusable)
    return sorted(by_load[:shards]), on


def _too_few(
    cluster: Cluster, found: int, what: str, shards: int, unusable: Mapping[str, str] | None = None
) -> ClusterUnavailable:
    reasons = "".join(f"; {address}: {reason}" for address, reason in (unusable or {}).items())
    return ClusterUnavailable(
        cluster.address, f"has {found} {what}, and {shards} shards need one each{reasons}"
    )


def _client_of(cluster: Cluster, timeout: float) -> Any:
    try:
        from distributed import Client
        from distributed.security import Security
    except ImportError as error:
        raise _no_dask("cpu", error) from error
    given: dict[str, str | None] = {"tls_ca_file": cluster.ca} if cluster.ca else {}
    if cluster.cert:  # with the key, or in one file
        given |= {"tls_client_cert": cluster.cert, "tls_client_key": cluster.key}
    security = Security(require_encryption=not cluster.insecure, **given)
    if cluster.address.startswith("tls://"):
        _check_certificates(cluster.address, security)
    try:
        return Client(cluster.address, security=security, timeout=timeout, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        reasons = _reasons(error)
        if cluster.address.startswith("tls://") and "Timed out" not in reasons:
            # a scheduler that refuses a certificate often only closes the connection
            reasons += "; see whether it accepts the certificate of this client"
        raise ClusterUnavailable(cluster.address, f"cannot be reached: {reasons}") from error


_SETTINGS = ("LIVERANK_CLUSTER_CA", "LIVERANK_CLUSTER_CERT", "LIVERANK_CLUSTER_KEY")
"""Of a server: where it has the authority, the certificate and the key."""


def _check_certificates(address: str, security: Any) -> None:
    """Raises ClusterUnavailable: the files are read at each recovery, maybe while they are being
    replaced.
    """
    files = {
        "the authority": security.tls_ca_file,
        "the certificate": security.tls_client_cert,
        "the key": security.tls_client_key or security.tls_client_cert,
    }
    try:
        for name, path in files.items():
            if not path:
                raise FileNotFoundError(f"{name} is not given")
            if "\n" not in path and not os.access(path, os.R_OK):
                raise FileNotFoundError(f"{name} cannot be read")
        security.get_connection_args("client")
        _check_date(security.tls_client_cert)
    except (OSError, ssl.SSLError, ValueError) as error:
        named = ", ".join(
            f"{name}, {setting}: {path}"
            for (name, path), setting in zip(files.items(), _SETTINGS, strict=True)
            if "\n" not in str(path)
        )
        reason = f"cannot be reached: this client's certificates cannot be used: {error} ({named})"
        raise ClusterUnavailable(address, reason) from error


def _check_date(certificate: str) -> None:
    """Raises ValueError if a certificate, a PEM file or its text, has expired: a scheduler only
    closes the connection then.
    """
    from cryptography import x509

    text = certificate if "\n" in certificate else Path(certificate).read_text()
    until = x509.load_pem_x509_certificates(text.encode())[0].not_valid_after_utc
    if until < datetime.now(UTC):
        raise ValueError(f"the certificate has expired: it was valid until {until:%Y-%m-%d}")


def _reasons(error: BaseException | None) -> str:
    """The messages of an error and of its causes, each once."""
    messages = []
    while error is not None:
        if (message := str(error)) and message not in messages:
            messages.append(message)
        error = error.__cause__
    return ": ".join(messages) or "the connection was refused"


def _within(client: Any, seconds: float, call: Any) -> Any:
    """The result of an asynchronous method of the client. Raises TimeoutError after so long."""

    async def answer() -> Any:
        return await asyncio.wait_for(call(), seconds)

    return asyncio.run_coroutine_threadsafe(answer(), client.loop.asyncio_loop).result()


def _devices_for(shards: int, backend: BackendName) -> list[str]:
    """The GPU of each shard, as CUDA_VISIBLE_DEVICES names it; empty if the shards are on the CPU.
    Raises BackendUnavailable.
    """
    if backend not in ("cuda", "auto"):
        return []
    devices = visible_devices()
    if len(devices) < shards and (devices or backend == "cuda"):
        raise BackendUnavailable(
            "cuda", f"{shards} shards need a GPU each, and {len(devices)} are visible"
        )
    return devices[:shards]


def visible_devices() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them. This starts none."""
    try:
        import cupy

        count = cupy.cuda.runtime.getDeviceCount()
    except ImportError:
        return []
    except cupy.cuda.runtime.CUDARuntimeError:
        return []
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = map(str, range(count)) if given is None else given.split(",")
    return [name.strip() for name in names][:count]


def _no_dask(backend: str, error: ImportError) -> BackendUnavailable:
    return BackendUnavailable(
        backend, f"shards need Dask: pip install -e '.[cluster]' in the clone of liverank ({error})"
    )
