"""`liverank serve`: start, stop, and errors at the start."""

from __future__ import annotations

import errno
import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from liverank.client import Client
from liverank_service.cli import CommandError
from liverank_service.cli.demo import running_service
from liverank_service.cli.serve import bound_sockets, url_of
from liverank_service.storage.graph_store import GraphStore
from tests.crash.nursery import COMMAND, Nursery


def serve_ending_by_itself(
    nursery: Nursery, *arguments: object, listens: bool = False
) -> tuple[int, list[str]]:
    """Exit code, and the lines on stderr that the command itself writes."""
    done = nursery.run(COMMAND, "serve", "--backend", "cpu", *arguments)
    assert "Traceback" not in done.stderr
    assert ("listening on" in done.stderr) == listens
    own = [line for line in done.stderr.splitlines() if line.startswith("liverank: ")]
    return done.returncode, own


READ_ONLY = """
import os, sys
data, writes = sys.argv.pop(), os.O_WRONLY | os.O_RDWR | os.O_CREAT

def refuse(event, values):
    if event == "open" and values[2] & writes or event == "os.mkdir":
        path = os.fsdecode(values[0]) if not isinstance(values[0], int) else data
        is_device = path.startswith(("/dev/", "/proc/")) and not path.startswith("/dev/shm/")
        if not is_device and not path.startswith(data):
            raise OSError(30, f"Read-only file system: {path}")

sys.addaudithook(refuse)
"""
"""Only the folder that is the last argument can be written to."""

RANK = """
import sys
import liverank
from liverank_service.cli.__main__ import main

assert liverank.pagerank([("a", "b"), ("b", "a")], weight=None).to_dict() == {"a": 0.5, "b": 0.5}
main()
"""


def read_only(tmp_path: Path, program: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", READ_ONLY + program, *map(str, arguments), str(tmp_path / "data")]


NOWHERE = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "TMPDIR": "/nonexistent"}


def test_ranks_are_computed_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("a b\nb c\nc a\n")
    command = read_only(tmp_path, RANK, "rank", tmp_path / "edges.txt", "--json")
    done = subprocess.run(command, env=NOWHERE, capture_output=True, text=True, timeout=60)
    # a busy machine takes so long that the command says so
    said = re.sub(r"^starting … \d+ s\n", "", done.stderr, flags=re.MULTILINE)
    assert (done.returncode, said) == (0, "")
    assert len(json.loads(done.stdout)["ranks"]) == 3


def test_serve_writes_to_its_data_directory_alone(tmp_path: Path) -> None:
    program = "from liverank_service.cli.__main__ import main\nmain()"
    options = ("serve", "--port", 0, "--data", tmp_path / "data")
    with subprocess.Popen(
        read_only(tmp_path, program, *options), env=NOWHERE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        found = (re.search(r"http://\S+:\d+", line) for line in lines)
        url = next(each for each in found if each).group()
        with Client(url) as client:
            client.create("weighted", weighted=True)
            client.send("weighted", insert=[("a", "b", 2.0)])
            assert len(client.top("weighted", 2).to_dict()) == 2
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    assert process.returncode in (0, -signal.SIGTERM)


def test_serve_ends_where_another_server_uses_its_data(tmp_path: Path, nursery: Nursery) -> None:
    with running_service(tmp_path):
        code, lines = serve_ending_by_itself(nursery, "--data", tmp_path, "--port", 0)
    assert (code, lines) == (
        1,
        [f"liverank: {tmp_path}: another server uses this data directory"],
    )


def test_serve_ends_where_its_data_cannot_be_a_directory(tmp_path: Path, nursery: Nursery) -> None:
    file = tmp_path / "file"
    file.touch()
    code, lines = serve_ending_by_itself(nursery, "--data", file, "--port", 0)
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith(f"liverank: {file}: ")
    assert "Not a directory" in lines[0]


def test_serve_ends_where_a_graph_cannot_be_recovered(tmp_path: Path, nursery: Nursery) -> None:
    with running_service(tmp_path):
        pass
    journal = tmp_path / "graphs" / "default" / "journal.db"
    journal.write_bytes(b"no database" * 1000)
    journal.with_suffix(".head").unlink()
    code, lines = serve_ending_by_itself(nursery, "--data", tmp_path, "--port", 0, listens=True)
    reason = "file is not a database; the number of its batches is unknown: restore a backup"
    assert (code, lines) == (1, [f"liverank: {journal}: {reason}"])


def test_a_server_listens_on_every_address_of_its_host() -> None:
    bound = bound_sockets("localhost", 0)
    try:
        found = socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)
        assert {each.getsockname()[0] for each in bound} == {each[4][0] for each in found}
        for each in bound:
            assert url_of(each).endswith(f":{each.getsockname()[1]}")
    finally:
        for each in bound:
            each.close()


def test_a_server_needs_no_family_of_addresses_that_the_machine_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class WithoutIPv6(socket.socket):
        def __init__(self, family: int, *others: Any) -> None:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, *others)

    kind = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
    addresses = [
        (socket.AF_INET6, *kind, ("::1", 0, 0, 0)),
        (socket.AF_INET, *kind, ("127.0.0.1", 0)),
    ]
    monkeypatch.setattr(socket, "socket", WithoutIPv6)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
    (bound,) = bound_sockets("localhost", 0)
    assert bound.getsockname()[0] == "127.0.0.1"
    bound.close()
    del addresses[1]
    with pytest.raises(CommandError, match="port 7 of ::1: Address family not supported"):
        bound_sockets("::1", 7)


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(CommandError, match=r"^cannot listen on port 8080 of host\.invalid: "):
        bound_sockets("host.invalid", 8080)


def test_serve_refuses_a_setting_in_one_line(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVERANK_MAX_BODY_BYTES", "plenty")
    code, out, error = run("serve")
    assert (code, out) == (1, "")
    assert error.startswith("liverank: LIVERANK_MAX_BODY_BYTES: 'plenty' must be an integer")


def test_serve_without_keys_ends_where_others_could_connect(
    tmp_path: Path, nursery: Nursery
) -> None:
    code, lines = serve_ending_by_itself(nursery, "--data", tmp_path, "--host", "0.0.0.0")
    assert code == 1
    assert lines == [
        "liverank: host '0.0.0.0' lets other machines connect, but no API key is set: set "
        "LIVERANK_API_KEY, create a key with `liverank keys create --data DIR`, or start with "
        "--insecure"
    ]


def test_serve_ends_where_a_limit_of_the_process_is_too_low(tmp_path: Path) -> None:
    store = GraphStore(tmp_path)
    store.open()
    for number in range(8):
        store.create(f"graph-{number}", {})
    store.close()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    command = f"{sys.executable} -m liverank_service.cli serve --port 0 --data {tmp_path}"
    done = subprocess.run(
        ["bash", "-c", f"ulimit -n 64; exec {command} --backend cpu"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "liverank: the process is limited to 64 file descriptors (ulimit -n); "
        "expected 150 or more for 8 graphs"
    )
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


def test_the_log_of_a_server_that_cannot_listen_is_json_to_its_last_line(
    tmp_path: Path, nursery: Nursery
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, data = listener.getsockname()[1], tmp_path / "data"
        settings = {"LIVERANK_LOG_FORMAT": "json", "LIVERANK_DATA": str(data)}
        program = f"import os; os.environ.update({settings}); {COMMAND}"
        done = nursery.run(program, "serve", "--port", port)
    records = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 1
    assert records[-1]["logger"] == "liverank.process"
    refusal = f"cannot listen on port {port} of 127.0.0.1: Address already in use; "
    assert records[-1]["message"] == f"{refusal}--port 0 picks a free one"
    assert not data.exists()  # it was not opened, nor were kernels compiled


@pytest.mark.parametrize("option", [(), ("--data", "")])
def test_an_empty_data_directory_is_a_clear_error(
    run: Any, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    monkeypatch.setenv("LIVERANK_DATA", "")
    refusal = "liverank: LIVERANK_DATA: '' must be the path of a directory, not empty\n"
    assert run("serve", *option) == (1, "", refusal)


def test_keys_are_not_created_in_an_unnamed_directory(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, error = run("keys", "create", "--scope", "admin", "--data", "")
    assert (code, list(tmp_path.iterdir())) == (1, [])
    assert error == "liverank: LIVERANK_DATA: '' must be the path of a directory, not empty\n"


def test_memory_of_a_device_needs_one(run: Any, tmp_path: Path, nursery: Nursery) -> None:
    options = ("serve", "--data", str(tmp_path), "--backend", "cpu", "--device-memory")
    done = nursery.run(COMMAND, *options, "8GiB")
    refusal = "LIVERANK_DEVICE_MEMORY: 8589934592 must be unset with LIVERANK_BACKEND=cpu"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, f"liverank: {refusal}")
    for size in ("8GB", "1.5"):
        code, _, error = run(*options, size)
        assert code == 2
        expected = "whole bytes, or a number with KiB, MiB, GiB or TiB"
        assert f"expected {expected}, got {size!r}" in error
    assert run(*options, "8")[::2] == (
        1,
        f"liverank: LIVERANK_DEVICE_MEMORY: 8 must be {expected}, at least 1MiB\n",
    )
