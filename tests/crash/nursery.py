"""Real servers, consumers and programs that start fast: forked from a process that has already
imported everything.

    python -m tests.crash.nursery [MODULE …]   one request a line on stdin, one answer on stdout

Each is a process with its own threads, a server with its own port, and is killed by a real
SIGKILL. Threads do not survive a fork: the importing process starts none.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import httpx

PATIENCE = 180.0
"""Of a machine that runs other tests too."""

RUN_SECONDS = 180.0
OUTPUTS = ("stdout", "stderr")
COMMAND = "from liverank_service.cli.__main__ import main; main()"
"""For `run`: the command `liverank`."""

IMPORTED = (
    "distributed",
    "liverank_service.app",
    "tests.crash.control",
    "tests.service.graphs",
    "liverank_service.http.server",
    "uvicorn.loops.uvloop",
    "uvicorn.lifespan.on",
)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition is met within that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


@dataclass
class Child:
    """A process of the nursery. It has ended once `wait` has returned."""

    nursery: Nursery
    pid: int

    def alive(self) -> bool:
        return bool(self.nursery.ask({"ask": "alive", "pid": self.pid}))

    def kill(self) -> None:
        """Sends SIGKILL unless it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        """Waits until the process has ended, which must be by SIGKILL."""
        status = self.nursery.ask({"ask": "wait", "pid": self.pid})
        assert status == -signal.SIGKILL, f"the process ended with {status}"


@dataclass
class Server(Child):
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_until_ready(self) -> bool:
        """Whether it became ready, as opposed to being killed first."""
        deadline = time.monotonic() + PATIENCE
        with httpx.Client(base_url=self.url) as http:
            while time.monotonic() < deadline:
                with suppress(httpx.TransportError):
                    answer = http.get("/readyz")
                    if answer.status_code == 200:
                        return True
                    assert "failed" not in answer.text, answer.text
                if not self.alive():
                    return False
                time.sleep(0.01)
        raise AssertionError(f"the server is not ready after {PATIENCE} s")

    def dies(self, seconds: float = 60.0) -> bool:
        """Whether it ends within that time; its connections close a moment earlier."""
        return wait_until(lambda: not self.alive(), seconds)


class Nursery:
    """The process that servers and consumers are forked from."""

    def __init__(
        self,
        log: Path,
        ports: range | None = None,
        modules: Sequence[str] = (),
        library: Path | None = None,
    ) -> None:
        """ports: of the servers; by default any free ones. modules: imported as well. library: is
        preloaded.
        """
        self._ports = itertools.cycle(ports) if ports else itertools.repeat(0)
        self._log = open(log, "ab")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.nursery", *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=Path(__file__).parents[2],
            env=os.environ | ({} if library is None else {"LD_PRELOAD": str(library)}),
        )

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(
        self,
        data: Path,
        control: Path | None = None,
        environment: dict[str, str] | None = None,
        **settings: Any,
    ) -> Server:
        """Starts a server of `data`.

        control   see tests/crash/control.py
        settings  further ones of liverank_service.settings.Settings
        """
        port = self._free_port()
        request = {
            "ask": "start",
            "data": str(data),
            "port": port,
            "control": None if control is None else str(control),
            "environment": environment or {},
            "settings": {"checkpoint_bytes": 20_000, **settings},
        }
        return Server(self, self.ask(request), port)

    def run(
        self, program: str, *arguments: object, given: bytes = b""
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end, as ``python -c`` does, with `given` on stdin. What is no UTF-8
        of its output has surrogates, as of os.fsdecode.
        """
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "stdin").write_bytes(given)
            request = {"ask": "run", "program": program, "arguments": [*map(str, arguments)]}
            pid = self.ask(request | {"folder": folder})
            ended = wait_until(lambda: not self.ask({"ask": "alive", "pid": pid}), RUN_SECONDS)
            if not ended:
                os.kill(pid, signal.SIGKILL)
            status = self.ask({"ask": "wait", "pid": pid})
            printed = [os.fsdecode(Path(folder, name).read_bytes()) for name in OUTPUTS]
        assert ended, f"the program did not end in {RUN_SECONDS} s: {printed}"
        return subprocess.CompletedProcess([], status, *printed)

    def consume(self, **request: Any) -> Child:
        """Starts a consumer: `url` of the server and `broker`, and the members of Address as
        `address` and of Target as `target`.
        """
        return Child(self, self.ask({"ask": "consume", **request}))

    def _free_port(self) -> int:
        for port in self._ports:
            with socket.socket() as probe, suppress(OSError):
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
                return int(probe.getsockname()[1])
        raise AssertionError("unreachable")

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
        self._log.close()


def _run(request: dict[str, Any]) -> NoReturn:
    folder = Path(request["folder"])
    os.dup2(os.open(folder / "stdin", os.O_RDONLY), 0)
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115
    for number, name in enumerate(OUTPUTS, 1):
        os.dup2(os.open(folder / name, os.O_CREAT | os.O_WRONLY), number)
    sys.argv = ["-c", *request["arguments"]]
    exec(compile(request["program"], "a program", "exec"), {"__name__": "__main__"})
    sys.exit()


def _serve(request: dict[str, Any]) -> None:
    from liverank_gpu.sharded.dask_workers import Workers
    from liverank_service.app import create_app, server_of
    from liverank_service.settings import Settings
    from tests.crash.control import obey
    from tests.service.server import openapi

    Workers.piece = 128  # so that a small checkpoint of shards has several
    os.environ.update(request["environment"])
    if request["control"] is not None:
        obey(Path(request["control"]))
    settings = Settings(
        data=Path(request["data"]),
        backend="cpu",
        port=request["port"],
        **request["settings"],
    )
    app = create_app(settings)
    app.openapi_schema = openapi()
    server_of(app, log_level="error").run()


def _consume(request: dict[str, Any]) -> None:
    import logging

    import tenacity

    from liverank.sources import consumer, session
    from liverank.sources.broker import Address

    logging.basicConfig(format="%(process)d %(message)s")
    # a kill costs less
    session.FIRST_PAUSE, session.LONGEST_PAUSE, session.PING_SECONDS = 0.05, 0.5, 0.2
    consumer.SERVER_PAUSES = tenacity.wait_exponential(multiplier=0.05, max=0.2)
    address, target = Address(**request["address"]), consumer.Target(**request["target"])
    session.consume(request["url"], request["broker"], address, target)


CHILDREN = {"start": _serve, "consume": _consume}


def main() -> None:
    for module in (*IMPORTED, *sys.argv[1:]):
        importlib.import_module(module)
    from tests.service.server import openapi

    openapi()
    gc.freeze()
    out = os.dup(1)
    os.dup2(2, 1)  # output of a server must not look like a response
    ended: dict[int, int] = {}
    for line in sys.stdin:
        request = json.loads(line)
        answer: Any
        if request["ask"] == "run" or request["ask"] in CHILDREN:
            answer = os.fork()
            if answer == 0:
                os.close(out)
                if request["ask"] == "run":
                    _run(request)
                try:
                    CHILDREN[request["ask"]](request)
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(1)
        else:
            pid = request["pid"]
            if pid not in ended:
                found, status = os.waitpid(pid, os.WNOHANG if request["ask"] == "alive" else 0)
                if found:
                    ended[pid] = os.waitstatus_to_exitcode(status)
            answer = pid not in ended if request["ask"] == "alive" else ended[pid]
        os.write(out, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
