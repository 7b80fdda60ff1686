"""A failing disk: writes are refused with the reason, reads continue, and it recovers by itself.

With a full tmpfs, if it can be mounted, and with a preloaded library that fails system calls.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

GRAPH = "/graphs/default"
READY_SECONDS = 180.0


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C compiler for the library that fails system calls")
    library = tmp_path_factory.mktemp("shim") / "failing_disk.so"
    source = Path(__file__).with_name("failing_disk.c")
    command = [
        compiler,
        "-x",
        "c",
        "-shared",
        "-fPIC",
        "-O1",
        "-o",
        str(library),
        str(source),
        "-ldl",
    ]
    subprocess.run(command, check=True)
    return library


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
    shim: Path, tmp_path: Path
) -> None:
    data, switch = tmp_path / "data", tmp_path / "switch"
    environment = {
        "LD_PRELOAD": str(shim),
        "FAILING_DISK": str(switch),
        "FAILING_DISK_DIRECTORY": str(data),
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


STREAM: list[list[tuple[str, str, float, float]]] = [
    [("a", "b", 5.0, 1.0), ("b", "c", 1.0, 1.0)],
    [("c", "d", 1.0, 20.0)],
    [("a", "b", 1.0, 21.0), ("d", "a", 2.0, 22.0)],
    [("a", "b", 1.0, 40.0)],
]
"""Batches of (source, target, weight, time), of which the second and the fourth make edges too old
for a window of 10 s.
"""


def replica(
    http: httpx.Client, name: str, switch: Path, fault: str | None, in_turn: bool
) -> tuple[dict[str, Any], int]:
    """What a graph is after the stream, each batch of which is sent until it has a receipt; and how
    often one was refused.

    fault    of the disk, while the second batch is sent first; None: there is none
    in_turn  whether no batch is sent before the receipt of the one before it
    """
    options = {"window": 10, "clock": "event", "weighted": True, "forget_vertices": True}
    http.put(f"/graphs/{name}", json=options, timeout=READY_SECONDS).raise_for_status()
    compared = (*TOLD, *RANKED) if in_turn else TOLD

    def sent(number: int) -> httpx.Response:
        return http.post(
            f"/graphs/{name}/batches",
            params={"on_conflict": "add"},
            json={"insert": STREAM[number]},
            headers={"Idempotency-Key": f"k{number}"},
        )

    refused = 0
    for number in range(len(STREAM)):
        if number == 1 and fault is not None:
            switch.write_text(fault)
        while (answer := sent(number)).status_code != 200:
            refused += 1
            assert answer.status_code == 503, answer.text
            assert refused < 20
            if not in_turn and "version" in answer.json():  # it is committed
                assert sent(number + 1).status_code in (200, 503)
            switch.unlink(missing_ok=True)
        switch.unlink(missing_ok=True)
    info = http.get(f"/graphs/{name}").json()
    receipts = [
        http.get(f"/graphs/{name}/batches/{version}").json()
        for version in range(1, info["version"] + 1)
    ]
    edges = http.get(f"/graphs/{name}/edges", headers={"Accept": "text/csv"}).text
    top = http.get(f"/graphs/{name}/top").json()["ranks"]
    found = {
        "receipts": [{member: one[member] for member in compared} for one in receipts],
        "edges": sorted(edges.splitlines()),
        "vertices": info["vertices"],
        "ranks": {one["vertex"]: one["rank"] for one in top},
    }
    return found, refused


TOLD = ("version", "inserted", "already_present", "reweighted", "deleted", "not_found",
        "new_vertices", "removed", "removed_edges", "expired")  # fmt: skip
RANKED = ("ranked_version", "revision", "iterations", "touched_vertices", "error_bound")


@pytest.mark.parametrize("in_turn", [True, False])
def test_one_error_of_the_disk_does_not_change_a_replica(
    shim: Path, tmp_path: Path, in_turn: bool
) -> None:
    """By the event clock: whichever sync fails, of a batch, of what it makes too old, or of the
    vertices that are forgotten.
    """
    data, switch = tmp_path / "data", tmp_path / "switch"
    environment = {
        "LD_PRELOAD": str(shim),
        "FAILING_DISK": str(switch),
        "FAILING_DISK_DIRECTORY": str(data),
    }
    with serving(data, **environment) as http:
        expected, _ = replica(http, "without", switch, None, in_turn)
        assert (len(expected["receipts"]), expected["vertices"]) == (8, 2)
        refusals = []
        for number in range(6):
            name, fault = f"fails-{number}", f"sync {number}"
            found, refused = replica(http, name, switch, fault, in_turn)
            refusals.append(refused)
            ranks = found.pop("ranks")
            if in_turn:
                assert ranks == expected["ranks"], number
            assert ranks == pytest.approx(expected["ranks"], abs=2e-6), number
            assert found == {each: expected[each] for each in found}, number
        assert sum(refusals) >= 3, refusals


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
