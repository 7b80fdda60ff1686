"""A failing disk: writes are refused with the reason, reads continue, and it recovers by itself.

With a full tmpfs, if it can be mounted, and with a preloaded library that fails system calls.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

GRAPH = "/graphs/default"
READY_SECONDS = 180.0


@contextmanager
def serving(data: Path, **environment: str) -> Iterator[httpx.Client]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "liverank_service.cli", "serve", "--data", str(data)]
    command += ["--backend", "cpu", "--port", str(port)]
    process = subprocess.Popen(command, env=os.environ | environment, stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
            deadline = time.monotonic() + READY_SECONDS
            while not _is_ready(http):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield http
    finally:
        process.kill()
        process.wait(30)


def _is_ready(http: httpx.Client) -> bool:
    with suppress(httpx.TransportError):
        return http.get("/readyz").status_code == 200
    return False


def send(http: httpx.Client, source: str, targets: int = 1) -> httpx.Response:
    edges = [[source, f"t{target}"] for target in range(targets)]
    return http.post(
        f"{GRAPH}/batches", json={"insert": edges}, headers={"Idempotency-Key": source}
    )


REFUSALS = {
    "sync": (503, "storage-failed", ("disk I/O error", "Input/output error")),
    "full": (507, "storage-full", ("database or disk is full",)),
    "read-only": (503, "storage-failed", ("disk I/O error",)),
}


def test_a_disk_that_refuses_stops_writes_with_the_reason_and_nothing_else(
    disk_library: Path, tmp_path: Path
) -> None:
    data, switch = tmp_path / "data", tmp_path / "switch"
    environment = {
        "LD_PRELOAD": str(disk_library),
        "DISK_FAULT": str(switch),
        "DISK_DIRECTORY": str(data),
    }
    with serving(data, **environment) as http:
        version = 0
        for kind, (status, name, reasons) in REFUSALS.items():
            assert send(http, f"before {kind}").json()["version"] == version + 1
            if version == 0:
                kept = http.put(f"{GRAPH}/watched/kept", json={"seeds": {"t0": 1}, "k": 1})
                assert kept.status_code == 201, kept.text
            top = http.get(f"{GRAPH}/top").json()
            switch.write_text(kind)
            for _ in range(3):
                refused = send(http, f"during {kind}")
                assert refused.status_code == status, refused.text
                assert refused.json()["type"].endswith(f":{name}")
                assert any(reason in refused.json()["detail"] for reason in reasons)
                assert str(data) in refused.json()["detail"]
            assert http.post(f"{GRAPH}/checkpoint").status_code == status
            for refused in (
                http.put("/graphs/other"),
                http.put(f"{GRAPH}/watched/kept", json={"seeds": {"t0": 1}, "k": 2}),
                http.put(f"{GRAPH}/watched/new", json={"seeds": {"t0": 1}}),
                http.delete(f"{GRAPH}/watched/kept"),
                http.post("/keys", json={"scope": "admin", "name": "first"}),
            ):
                assert refused.status_code == status, refused.text
                assert refused.json()["type"].endswith(f":{name}")
            assert http.get(f"{GRAPH}/watched/kept").json()["k"] == 1
            assert http.get(f"{GRAPH}/watched/new").status_code == 404
            assert http.get(f"{GRAPH}/top").json() == top
            assert http.get(GRAPH).json()["version"] == version + 1
            switch.unlink()
            assert send(http, f"during {kind}").json()["version"] == version + 2
            assert http.post(f"{GRAPH}/checkpoint").status_code == 200
            assert http.put(f"/graphs/after-{kind}").status_code == 201
            version += 2
    with serving(data) as http:
        info = http.get(GRAPH).json()  # without a key: none was created
        assert (info["version"], info["edges"]) == (version, version)
        for kind in REFUSALS:
            assert send(http, f"during {kind}").json()["inserted"] == 1
        assert http.get(GRAPH).json()["edges"] == version
        assert http.get(f"{GRAPH}/watched/kept").json()["k"] == 1
        assert http.get(f"{GRAPH}/watched/new").status_code == 404


def test_a_full_file_system_refuses_writes_until_there_is_room(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(data)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a tmpfs cannot be mounted here: it takes root")
    try:
        ballast = data / "ballast"
        ballast.write_bytes(bytes(1 << 20))
        with serving(data) as http:
            accepted = 0
            while (answer := send(http, f"s{accepted}", 2000)).status_code == 200:
                accepted += 1
                assert accepted < 1000
            assert accepted > 0
            assert answer.status_code == 507, answer.text
            assert answer.json()["type"].endswith(":storage-full")
            assert http.get(f"{GRAPH}/ranks/s0").status_code == 200
            assert http.post(f"{GRAPH}/checkpoint").status_code in (200, 507)
            ballast.unlink()
            again = send(http, f"s{accepted}", 2000)
            assert again.status_code == 200, again.text
            assert again.json()["inserted"] == 2000
            assert http.get(GRAPH).json()["edges"] == 2000 * (accepted + 1)
        with serving(data) as http:
            assert send(http, "after a restart").status_code == 200
            assert http.get(GRAPH).json()["edges"] == 2000 * (accepted + 1) + 1
    finally:
        subprocess.run(["umount", "-l", str(data)], check=True)
