"""The real application behind a real socket, in this process or in one of its own."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from liverank_service.app import create_app, server_of
from liverank_service.catalog import Catalog
from liverank_service.http.schemas import Receipt
from liverank_service.settings import Settings

_names = itertools.count()


def _briefly(_seconds: float) -> Any:
    return asyncio.sleep(0.005)


# uvicorn looks every 0.1 s whether it should end, and then waits for as long
_asyncio = SimpleNamespace(**vars(asyncio) | {"sleep": _briefly})
pytest.MonkeyPatch().setattr("uvicorn.server.asyncio", _asyncio)

PATIENCE = 180.0
"""Seconds for a response, on a busy machine."""

DEFAULT_OPTIONS: dict[str, Any] = {
    "damping": 0.85,
    "dangling": "uniform",
    "strategy": "auto",
    "target_error": 1e-6,
    "storage": "float64",
    "keys": "string",
    "weighted": False,
    "directed": True,
    "form": "accelerated",
    "tolerance": 1e-10,
    "frontier_tolerance": 1e-6,
    "prune_tolerance": 1e-6,
    "max_iterations": 500,
    "half_life": None,
    "window": None,
    "clock": "wall",
    "forget_vertices": False,
    "max_time_ahead": None,
}
"""Of a graph, as the server shows them."""


@dataclass
class Server:
    app: FastAPI
    http: httpx.Client

    @property
    def catalog(self) -> Catalog:
        catalog: Catalog = self.app.state.catalog
        return catalog

    def url(self, path: str) -> str:
        """The URL of `path`, which has no leading slash."""
        return str(self.http.base_url.join("/" + path))

    def new_graph(self, **options: Any) -> str:
        """The path of a new graph."""
        path = f"/graphs/test-{next(_names)}"
        answer = self.http.put(path, json=options)
        assert answer.status_code == 201, answer.text
        return path

    def post(self, path: str, **request: Any) -> dict[str, Any]:
        """Sends a batch to the graph of this path: its receipt."""
        answer = self.http.post(f"{path}/batches", **request)
        assert answer.status_code == 200, answer.text
        Receipt.model_validate_json(answer.content)
        receipt: dict[str, Any] = answer.json()
        return receipt

    def ranks(self, path: str) -> dict[str, float]:
        """Of all vertices of a small graph."""
        places = self.http.get(f"{path}/top", params={"k": 1000}).json()["ranks"]
        return {place["vertex"]: place["rank"] for place in places}


@cache
def openapi() -> dict[str, Any]:
    """Of every app: a fifth of a second."""
    return create_app(Settings()).openapi()


@contextmanager
def running(data: Path, *, wait_until_ready: bool = True, **settings: Any) -> Iterator[Server]:
    chosen = Settings(data=data, backend="cpu", port=0, **settings)
    app = create_app(chosen)
    app.openapi_schema = openapi()
    server = server_of(app, log_level="error")
    thread = threading.Thread(target=server.run, name="test-server")
    thread.start()
    try:
        wait_for(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as http:
            if wait_until_ready:
                wait_for(lambda: http.get("/readyz").status_code == 200)
            yield Server(app, http)
    finally:
        server.should_exit = True
        thread.join()


@dataclass
class ServerProcess:
    """`liverank serve` in a process of its own, whose memory is that of the server alone."""

    pid: int
    http: httpx.Client

    def memory(self) -> int:
        """Resident bytes."""
        return self._status("VmRSS")

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def peak(self) -> int:
        """The most resident bytes since `forget_peak`."""
        return self._status("VmHWM")

    def _status(self, name: str) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


@contextmanager
def started(data: Path, **settings: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of a ready server, which is killed in the end, and its URL."""
    environment = {f"LIVERANK_{name.upper()}": str(value) for name, value in settings.items()}
    command = [sys.executable, "-m", "liverank_service.cli", "serve", "--data", str(data)]
    with subprocess.Popen(
        [*command, "--backend", "cpu", "--port", "0"],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            urls = (re.findall(r"http://127.0.0.1:\d+", line) for line in process.stderr)
            url = next(found for found in urls if found)[0]
            wait_for(lambda: is_ready(url))
            yield process, url
        finally:
            process.kill()


def end_of(process: subprocess.Popen[str]) -> str:
    """Stops a server: the rest of its log."""
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    log = process.stderr.read()
    assert process.wait(PATIENCE) in (0, -signal.SIGTERM)
    return log


@contextmanager
def serving(data: Path, **settings: Any) -> Iterator[ServerProcess]:
    """A ready server without keys in a process of its own."""
    with (
        started(data, **settings) as (process, url),
        httpx.Client(base_url=url, timeout=PATIENCE) as http,
    ):
        assert process.stderr is not None
        threading.Thread(target=process.stderr.read, daemon=True).start()
        try:
            yield ServerProcess(process.pid, http)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def is_ready(url: str) -> bool:
    """The server says its address before it listens there."""
    with suppress(httpx.TransportError):
        return httpx.get(f"{url}/readyz", timeout=PATIENCE).status_code == 200
    return False


def wait_for(condition: Any, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.01)


@contextmanager
def connection_to(server: Server) -> Iterator[socket.socket]:
    url = server.http.base_url
    assert url.port is not None
    with socket.create_connection((url.host, url.port), timeout=PATIENCE) as connection:
        yield connection


def head(path: str, length: int) -> bytes:
    """The head of a POST with a body of `length` bytes."""
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode()
