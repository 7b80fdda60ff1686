"""An existing Dask cluster, as `liverank serve --cluster` uses it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Nanny, Scheduler, SpecCluster
from distributed.security import Security


@contextmanager
def workers_here(count: int) -> Iterator[SpecCluster]:
    """A scheduler in this process, and worker processes, which are started again when they end."""
    common = {"host": "127.0.0.1", "protocol": "tls://", "security": Security.temporary()}
    common |= {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    process: dict[str, Any] = {"nthreads": 1, "memory_limit": 0, "silence_logs": logging.ERROR}
    process["env"] = {"LIVERANK_THREADS": "1"}
    worker = {"cls": Nanny, "options": {**common, **process}}
    with SpecCluster(
        scheduler={"cls": Scheduler, "options": {**common, "port": 0}},
        workers=dict.fromkeys(range(count), worker),
        security=common["security"],
        silence_logs=logging.ERROR,
    ) as cluster:
        yield cluster


def settings_for(cluster: SpecCluster, folder: Path) -> dict[str, Any]:
    """The settings of a server that uses the cluster. Its certificates are written to `folder`."""
    settings = {"cluster": cluster.scheduler_address}
    for name, file in {"ca": "ca_file", "cert": "client_cert", "key": "client_key"}.items():
        path = folder / f"{name}.pem"
        path.write_text(getattr(cluster.security, f"tls_{file}"))
        settings[f"cluster_{name}"] = str(path)
    return settings
