"""A `liverank serve` process that benchmarks send requests to, on the loopback."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from benchmarks.harness import ROOT, environment_of

_STOP_SECONDS = 60


def is_ok(answer: httpx.Response) -> bool:
    """Whether the answer has status 200."""
    return answer.status_code == 200


class Server:
    """A process that serves one data directory.

    started  when the process was started, on the clock of time.perf_counter
    """

    def __init__(
        self,
        data: Path,
        tree: Path = ROOT,
        backend: str = "cpu",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """
        tree         the checkout whose code it runs
        environment  variables beside those of this process
        """
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._tree = tree
        command = [sys.executable, "-m", "liverank", "serve", "--data", str(data)]
        command += ["--backend", backend, "--port", str(self.port)]
        # a file, since a full pipe would stop the server
        self._log = data.with_suffix(".log")
        self.started = time.perf_counter()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stderr=log, cwd=tree, env=environment_of(tree) | dict(environment or {})
            )

    @classmethod
    @contextmanager
    def temporary(cls, tree: Path = ROOT, backend: str = "cpu") -> Iterator[Server]:
        """A server that is ready, on an empty data directory."""
        with TemporaryDirectory() as folder:
            server = cls(Path(folder) / "data", tree, backend)
            try:
                server.wait_for("/readyz")
                yield server
            finally:
                server.stop()

    def wait_for(self, path: str, accept: Callable[[httpx.Response], bool] = is_ok) -> float:
        """Seconds from the start of the process to the first accepted answer."""
        with httpx.Client(base_url=self.url) as http:  # making one takes longer than a request
            while True:
                try:
                    if accept(http.get(path)):
                        return time.perf_counter() - self.started
                except httpx.TransportError:
                    pass
                if self._process.poll() is not None:
                    raise RuntimeError(f"the server ended: {self._log.read_text()}")
                time.sleep(0.01)

    def load(self, file: Path, graph: str) -> float:
        """Seconds of `liverank load` of a file into a graph, by the checkout of the server."""
        command = [sys.executable, "-m", "liverank", "load", str(file), "--url", self.url]
        began = time.perf_counter()
        subprocess.run(
            [*command, "--graph", graph],
            cwd=self._tree,
            env=environment_of(self._tree),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return time.perf_counter() - began

    def logged(self, message: str) -> dict[str, Any]:
        """The last record with this message in a log of JSON. Raises LookupError."""
        for line in reversed(self._log.read_text().splitlines()):
            try:
                record: dict[str, Any] = json.loads(line)
            except ValueError:  # a warning of a library
                continue
            if record["message"] == message:
                return record
        raise LookupError(f"{message!r} was not logged")

    @property
    def cpu_seconds(self) -> float:
        """Processor time that the process has used."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        fields = stat.rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def resident_bytes(self) -> int:
        """Bytes that the process has in memory."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found: Any = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) * 1024

    def kill(self) -> None:
        """Ends the process as ``kill -9`` does."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Ends the process as ``kill`` does."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
