"""Backups of a running server, and servers restored from backups."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from liverank_service.cli.main import main
from liverank_service.errors import StorageFailed, StorageFull
from liverank_service.storage import backup as backups
from liverank_service.storage.api_keys import ApiKeyStore
from liverank_service.storage.backup import CopiedGraph, backup, restore
from liverank_service.storage.files import rename_synced
from tests.service.graphs import batch, edges_of, send, working
from tests.service.server import Server, running, wait_for

GRAPH = "/graphs/default"


def test_a_server_from_a_backup_is_the_one_that_was_copied(tmp_path: Path) -> None:
    data, saved, again = (tmp_path / name for name in ("data", "saved", "again"))
    with running(data) as server:
        http = server.http
        http.put("/graphs/papers", json={"keys": "integer", "damping": 0.5})
        http.post("/graphs/papers/batches", json={"insert": [[1, 2], [2, 3]]})
        first = http.post(
            f"{GRAPH}/batches",
            json={"insert": [["a", "b"], ["b", "c"], ["c", "a"]]},
            headers={"Idempotency-Key": "one"},
        )
        http.post(f"{GRAPH}/checkpoint").raise_for_status()
        http.post(f"{GRAPH}/batches", json={"insert": [["d", "a"]], "delete": [["a", "b"]]})
        http.put(f"{GRAPH}/watched/mine", json={"seeds": {"d": 2, "a": 1}, "k": 3})
        copied = backup(data, saved)
        ranks = http.get(f"{GRAPH}/top?k=9").json()["ranks"]
        http.post(f"{GRAPH}/batches", json={"insert": [["e", "a"]]})
    assert [(one.graph, one.version) for one in copied] == [("default", 2), ("papers", 1)]
    assert restore(saved, again) == copied
    with running(again) as server:
        http = server.http
        wait_for(lambda: http.get(GRAPH).json()["version"] == 2)
        info = http.get(GRAPH).json()
        assert (info["vertices"], info["edges"]) == (4, 3)
        assert http.get("/graphs/papers").json()["options"]["damping"] == 0.5
        assert http.get("/graphs/papers/ranks/3").status_code == 200
        repeat = http.post(
            f"{GRAPH}/batches",
            json={"insert": [["a", "b"], ["b", "c"], ["c", "a"]]},
            headers={"Idempotency-Key": "one"},
        )
        assert repeat.content == first.content
        watched = http.get(f"{GRAPH}/watched/mine").json()
        assert (watched["version"], watched["k"]) == (2, 3)
        assert watched["seeds"] == {"d": 2.0, "a": 1.0}
        after = {row["vertex"]: row["rank"] for row in http.get(f"{GRAPH}/top?k=9").json()["ranks"]}
        assert {row["vertex"]: row["rank"] for row in ranks} == pytest.approx(after, abs=2e-6)
        assert http.post(f"{GRAPH}/batches", json={"vertices": ["f"]}).json()["version"] == 3


def test_a_backup_has_times_free_ids_and_sets(tmp_path: Path) -> None:
    data, saved, again = (tmp_path / name for name in ("data", "saved", "again"))
    path = "/graphs/living"

    def post(server: Server, document: dict[str, Any]) -> dict[str, Any]:
        answer = server.http.post(f"{path}/batches", json=document)
        assert answer.status_code == 200, answer.text
        receipt: dict[str, Any] = answer.json()
        del receipt["seconds"], receipt["revision"], receipt["iterations"]
        return {**receipt, "error_bound": 0.0, "touched_vertices": 0}

    def state(server: Server) -> tuple[Any, ...]:
        edges = server.http.get(f"{path}/edges", headers={"Accept": "application/x-ndjson"}).text
        places = server.http.get(f"{path}/top?k=99").json()["ranks"]
        members = server.http.get(f"{path}/sets/some").json()["vertices"]
        ranks = {place["vertex"]: pytest.approx(place["rank"], abs=2e-6) for place in places}
        return sorted(map(str, map(json.loads, edges.splitlines()))), ranks, sorted(members)

    def rows(*edges: tuple[str, str], time: float) -> list[list[Any]]:
        return [[*edge, 1.0 + number, time] for number, edge in enumerate(edges)]

    with running(data) as server:
        options = {"half_life": 50, "window": 100, "clock": "event", "forget_vertices": True}
        server.http.put(path, json=options).raise_for_status()
        post(server, {"insert": rows(("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), time=1000)})
        server.http.put(f"{path}/sets/some", json={"vertices": ["a", "b", "d"]}).raise_for_status()
        post(server, {"remove": ["b"], "insert": rows(("e", "a"), ("a", "e"), time=1040)})
        server.http.post(f"{path}/checkpoint").raise_for_status()
        post(server, {"remove": ["a"], "insert": rows(("c", "f"), ("e", "c"), time=1050)})
        backup(data, saved)
        expected = state(server)
        restore(saved, again)
        with running(again) as other:
            assert state(other) == expected
            # c → d is too old at 1101, and d is left without edges
            following = {"insert": rows(("b", "e"), ("g", "c"), time=1101)}
            assert post(other, following) == post(server, following)
            assert state(other) == state(server)
            assert server.http.get(f"{path}/ranks/d").status_code == 404
            assert sorted(server.http.get(f"{path}/sets/some").json()["vertices"]) == []


def test_a_backup_under_load_is_of_one_moment(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data, checkpoint_bytes=6000) as server:
        stop, acknowledged = threading.Event(), [0]

        def keep_sending() -> None:
            while not stop.is_set():
                number = acknowledged[0]
                edge = [[f"s{number}", f"t{number}"]]
                server.http.post(f"{GRAPH}/batches", json={"insert": edge}).raise_for_status()
                acknowledged[0] = number + 1

        sending = threading.Thread(target=keep_sending)
        sending.start()
        try:
            for number in range(6):
                wait_for(lambda due=5 * number + 1: acknowledged[0] >= due)
                before = acknowledged[0]
                (copied,) = backup(data, tmp_path / f"saved-{number}")
                assert copied.version >= before
        finally:
            stop.set()
            sending.join()
    for number in range(6):
        with working(tmp_path / f"saved-{number}" / "graphs" / "default") as pipeline:
            view = pipeline.view
            assert (view.edges, view.vertices) == (view.version, 2 * view.version)
            newest = pa.array([f"s{view.version - 1}", f"s{view.version}"])
            assert np.isnan(view.ranks_of(newest)).tolist() == [False, True]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    graph = tmp_path / "data" / "graphs" / "default"
    graph.mkdir(parents=True)
    (graph / "graph.json").write_text('{"format": 1, "options": {}}')
    with working(graph) as pipeline:
        send(pipeline, batch([("a", "b")]))
        pipeline.checkpoint().result(60)
    backup(tmp_path / "data", tmp_path / "saved")
    return tmp_path / "saved"


def test_a_damaged_backup_is_refused_before_anything_is_written(
    saved: Path, tmp_path: Path
) -> None:
    (file,) = saved.glob("graphs/default/checkpoints/*/length.bin")
    file.write_bytes(b"\x07" + file.read_bytes()[1:])
    with pytest.raises(StorageFailed) as caught:
        restore(saved, tmp_path / "again")
    assert str(caught.value) == f"{file}: is damaged: its checksum does not match"
    assert not (tmp_path / "again").exists()


def test_a_journal_that_ends_early_is_not_copied_and_can_be_salvaged_afterwards(
    saved: Path, tmp_path: Path
) -> None:
    data, graph = tmp_path / "crashed", tmp_path / "crashed" / "graphs" / "default"
    with working(saved / "graphs" / "default") as pipeline:
        for number in range(2, 6):
            send(pipeline, batch([("a", f"only {number}")]))
        shutil.copytree(saved, data)
    log = graph / "journal.db-wal"
    content = bytearray(log.read_bytes())
    content[content.index(b"only 3")] ^= 1
    log.write_bytes(content)
    with pytest.raises(StorageFailed, match=r"journal\.db: ends at batch 2, but .* is at 5"):
        backup(data, tmp_path / "again")
    assert not (tmp_path / "again").exists()
    assert log.read_bytes() == content
    with working(graph) as pipeline:
        assert edges_of(pipeline) >= {("a", f"only {number}") for number in (2, 4, 5)}
        assert pipeline.view.version == 5
    assert backup(data, tmp_path / "again")[0].version == 5


def test_a_disk_that_is_full_is_that_of_the_copy(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def small(path: Any, *arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(path, *arguments, **options)
        if "again" in str(path):
            connection.execute("PRAGMA max_page_count = 1")
        return connection

    monkeypatch.setattr(sqlite3, "connect", small)
    with pytest.raises(StorageFull, match=r"again.*journal\.db: database or disk is full"):
        backup(saved, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_nothing_is_written_over(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="data: exists already; expected a new or empty"):
        restore(saved, tmp_path / "data")
    with pytest.raises(StorageFailed, match="saved: exists already"):
        backup(tmp_path / "data", saved)
    with pytest.raises(StorageFailed, match="is not a data directory of liverank"):
        backup(tmp_path, tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "saved"]


def test_an_empty_directory_is_filled_and_stays_the_same_one(saved: Path, tmp_path: Path) -> None:
    """It may be a volume, which cannot be replaced, in a directory that cannot be written."""
    ApiKeyStore(saved).create("operator", "admin", None)
    again = tmp_path / "again"
    for left in ("lost+found", ".partial/graphs/half"):
        (again / left).mkdir(parents=True)
    before = again.stat().st_ino
    (copied,) = restore(saved, again)
    assert (copied.graph, copied.version) == ("default", 1)
    assert copied == CopiedGraph("default", 1, copied.bytes)
    assert again.stat().st_ino == before
    names = sorted(path.name for path in again.iterdir())
    assert names == ["graphs", "keys.json", "keys.required", "lost+found"]
    with working(again / "graphs" / "default") as pipeline:
        assert pipeline.view.version == 1


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize(
    ("error", "expected", "message", "renames"),
    [
        (
            OSError(28, "No space left on device"),
            StorageFailed,
            "again: No space left on device",
            False,
        ),
        (KeyboardInterrupt(), KeyboardInterrupt, None, True),
    ],
    ids=["fails", "is interrupted"],
)
def test_an_empty_directory_stays_empty_if_a_copy_does_not_end(
    saved: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    expected: type[BaseException],
    message: str | None,
    renames: bool,
    step: int,
) -> None:
    """renames: whether the last file is renamed before the error"""
    ApiKeyStore(saved).create("operator", "admin", None)
    again = tmp_path / "again"
    again.mkdir()
    moved: list[str] = []
    original = rename_synced

    def rename(source: Path, target: Path) -> None:
        moved.append(target.name)
        ends = len(moved) == step
        if renames or not ends:
            original(source, target)
        if ends:
            raise error

    monkeypatch.setattr(backups, "rename_synced", rename)
    with pytest.raises(expected, match=message):
        restore(saved, again)
    assert list(again.iterdir()) == []
    assert len(moved) == step
    assert step < 3 or moved[-1] == "graphs"


def test_backup_and_restore_print_what_they_copied(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> Any:
        try:
            main([*arguments, "--json"])
        except SystemExit as end:
            assert not end.code  # noqa: PT017
        return json.loads(capsys.readouterr().out)

    done = run("backup", str(tmp_path / "two"), "--data", str(tmp_path / "data"))
    assert [(one["graph"], one["version"]) for one in done["graphs"]] == [("default", 1)]
    done = run("restore", str(saved), "--data", str(tmp_path / "again"))
    assert done["directory"] == str(tmp_path / "again")
    assert done["graphs"][0]["bytes"] > 1000


def test_api_keys_are_saved_with_the_graphs_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    data, saved, again = (tmp_path / name for name in ("data", "saved", "again"))
    with running(data):
        pass
    _, text = ApiKeyStore(data).create("operator", "admin", None)
    backup(data, saved)
    restore(saved, again)
    for directory in (saved, again):
        assert (directory / "keys.json").stat().st_mode & 0o777 == 0o600
    with running(again, wait_until_ready=False) as server:
        bearer = {"Authorization": f"Bearer {text}"}
        wait_for(lambda: server.http.get("/readyz").status_code == 200)
        assert server.http.get("/graphs").status_code == 401
        assert server.http.get("/graphs", headers=bearer).status_code == 200


@pytest.mark.parametrize(
    "file", ["keys.json", "graphs/default/watched.json", "graphs/default/analyses.json"]
)
def test_what_else_is_damaged_is_named(saved: Path, tmp_path: Path, file: str) -> None:
    (saved / file).write_text("{")
    with pytest.raises(StorageFailed, match=Path(file).name):
        restore(saved, tmp_path / "again")
    assert not (tmp_path / "again").exists()
