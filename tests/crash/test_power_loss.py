"""Power losses at every fourth sync: nothing that was acknowledged is lost, whatever the disk kept
of the rest.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from liverank_service.storage.api_keys import ApiKeyStore
from liverank_service.storage.graph_store import GraphStore, read_manifest
from liverank_service.storage.journal import Journal
from tests.crash.conftest import Record
from tests.crash.disk import TOP, RecordedDisk
from tests.service.graphs import batch, send, working

PROGRAM = """
import json, os, sys
from pathlib import Path
from liverank_gpu import Engine, OutOfMemory
from tests.service.graphs import batch, opened, send, submit

directory = Path(sys.argv[1])
pipeline = opened(directory)
answers = os.open(directory / "answers", os.O_WRONLY | os.O_CREAT)
apply = Engine.apply

def fail(*_):
    raise OutOfMemory("a batch", 10, 1)

for number in range(24):
    one = batch([(str(number), str(number + 1))], key=f"k{number}")
    rejected = number % 6 == 5
    if rejected:
        Engine.apply = fail
    submit(pipeline, one)
    error = one.ranked.exception()
    Engine.apply = apply
    assert (error is not None) == rejected
    view = pipeline.view
    answer = {"version": view.version, "edges": view.edges, "revision": view.revision}
    os.write(answers, json.dumps(answer).encode() + b"\\n")
    if number % 5 == 4:
        pipeline.checkpoint().result()
os._exit(0)
"""

FAILING = """
import json, os, sys
from pathlib import Path
from liverank_service.errors import StorageFailed
from tests.service.graphs import batch, opened, send, submit

directory = Path(sys.argv[1])
fails = Path(os.environ["DISK_FAULT"])
pipeline = opened(directory)
answers = os.open(directory / "answers", os.O_WRONLY | os.O_CREAT)
number = 0

def acknowledged():
    global number
    receipt = send(pipeline, batch([(str(number), str(number + 1))], key=f"k{number}"))
    number += 1
    edges = pipeline.view.edges
    answer = {"version": receipt["version"], "edges": edges, "revision": receipt["revision"]}
    os.write(answers, json.dumps(answer).encode() + b"\\n")
    os.fsync(answers)

acknowledged()
for restarts in (False, True, False):
    fails.write_text("sync")
    for _ in range(2):
        refused = batch([("refused", str(number))])
        submit(pipeline, refused)
        assert isinstance(refused.ranked.exception(60), StorageFailed)
    fails.unlink()
    if restarts:
        pipeline = opened(directory)
    acknowledged()
    acknowledged()
os._exit(0)
"""

UNSYNCED_COPY = """
import os, sqlite3, sys
from pathlib import Path
from liverank_service.storage import journal as module
from liverank_service.storage.files import sync_directory
from liverank_service.storage.journal import Journal
from liverank_service.storage.layout import Record

directory, fails = Path(sys.argv[1]), Path(os.environ["DISK_FAULT"])
answers = os.open(directory / "answers", os.O_WRONLY | os.O_CREAT)
Journal.create(directory / "journal.db")
journal = Journal(directory / "journal.db")

def acknowledged():
    journal.append([Record(bytes([journal.version]) * 20_000, "auto", None, b"hash")], 1)
    os.write(answers, b"\\n")
    os.fsync(answers)

acknowledged()
reader = sqlite3.connect(directory / "journal.db", isolation_level=None)
reader.execute("BEGIN")
reader.execute("SELECT count(*) FROM batches").fetchone()
acknowledged()
journal._copy_log()  # what the reader sees; it is not synced, since it is not all of the log
reader.close()
if IN_A_COMMIT:
    module._LOG_BYTES = 0
    fails.write_text("sync 2")  # that of the database
    acknowledged()
else:
    fails.write_text("sync 1")
    journal._copy_log()
fails.unlink()
for _ in range(3):
    acknowledged()
    journal._copy_log()
journal.close()
sync_directory(directory)
os.write(answers, b"\\n")
os.fsync(answers)
os._exit(0)
"""

STEP = 4
"""Every fourth sync is tried: all of them take four times as long. tests/crash/simulator.py tries
other moments.
"""


def test_nothing_acknowledged_is_lost_by_a_power_loss_at_any_sync(
    record: Record, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    events = record(PROGRAM, data)
    choose = random.Random(0)
    disk, syncs = RecordedDisk(data), 0
    for number, event in enumerate(events):
        acknowledged = [json.loads(line) for line in disk.current("answers").splitlines()]
        syncs += event.kind == "s"
        if acknowledged and event.kind == "s" and syncs % STEP == 0:
            for kept in (None, choose):
                state = tmp_path / "state"
                shutil.rmtree(state, ignore_errors=True)
                disk.write_state(state, choose=kept)
                _check(state, acknowledged, f"event {number}, {'part' if kept else 'nothing'} kept")
        disk.apply(event)
    assert syncs > 100


def test_nothing_acknowledged_after_a_failed_sync_is_lost_by_a_power_loss(
    record: Record, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    events = record(FAILING, data)
    assert any(event.kind == "f" for event in events)
    disk = RecordedDisk(data)
    checked = 0
    for number, event in enumerate(events):
        disk.apply(event)
        answers = disk.current("answers").splitlines()
        if event.kind == "s" and len(answers) > checked:
            checked = len(answers)
            state = tmp_path / "state"
            shutil.rmtree(state, ignore_errors=True)
            disk.write_state(state)
            _check(state, [json.loads(answers[-1])], f"event {number}")
    assert checked == 7


@pytest.mark.parametrize("in_a_commit", [False, True])
def test_nothing_acknowledged_is_lost_after_a_copy_that_could_not_be_synced(
    record: Record, tmp_path: Path, in_a_commit: bool
) -> None:
    data, state = tmp_path / "data", tmp_path / "state"
    events = record(UNSYNCED_COPY.replace("IN_A_COMMIT", str(in_a_commit)), data)
    disk, checked, failed = RecordedDisk(data), 0, set()
    for event in events:
        disk.apply(event)
        if event.kind == "f":
            failed.add(disk.number(event.inode))
        answers = len(disk.current("answers"))
        if event.kind == "s" and answers > checked:
            checked = answers
            shutil.rmtree(state, ignore_errors=True)
            disk.write_state(state)
            journal = Journal(state / "journal.db")
            batches = 5 + in_a_commit
            found = [row.payload for _, _, row, _ in journal.batches(0)]
            assert found == [bytes([n]) * 20_000 for n in range(min(answers, batches))]
            journal.close()
    assert failed == {disk.entries[TOP]["journal.db"]}
    assert checked == 6 + in_a_commit


def _check(state: Path, acknowledged: list[dict[str, int]], where: str) -> None:
    last = acknowledged[-1]
    with working(state) as pipeline:
        view = pipeline.view
        assert last["version"] <= view.version <= last["version"] + 1, where
        # a batch without an answer may have been committed, and not yet rejected
        unanswered = view.version - last["version"]
        assert last["edges"] <= view.edges <= last["edges"] + unanswered, where
        assert view.revision >= last["revision"], where
        number = last["version"] - 1
        if number % 6 != 5:
            repeat = batch([(str(number), str(number + 1))], key=f"k{number}")
            assert send(pipeline, repeat)["version"] == last["version"], where
        assert not list(state.glob("damaged-*")), where
        assert not list(state.glob("checkpoints/damaged-*")), where


CATALOGUE = """
import os, sys
from pathlib import Path
from liverank_service.storage.graph_store import GraphStore

directory = Path(sys.argv[1])
answers = os.open(directory / "answers", os.O_WRONLY | os.O_CREAT)
store = GraphStore(directory / "data")
store.open()
for name in "abc":
    store.create(name, {"damping": 0.5})
    os.write(answers, b"\\n")
for name in "ab":
    store.remove(name)
    os.write(answers, b"\\n")
os._exit(0)
"""

GRAPHS = ["", "a", "ab", "abc", "bc", "c"]
"""After so many answers."""


def test_graphs_are_created_and_dropped_whole_whenever_the_process_or_the_power_ends(
    record: Record, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    disk, choose = RecordedDisk(data), random.Random(0)
    for number, event in enumerate(record(CATALOGUE, data)):
        answers = len(disk.current("answers"))
        for kept in ({"killed": True}, {}, {"choose": choose}):
            state = tmp_path / "state"
            shutil.rmtree(state, ignore_errors=True)
            disk.write_state(state, **kept)
            store = GraphStore(state / "data")
            store.open()
            found = "".join(each.name for each in store.directories())
            assert found in GRAPHS[answers : answers + 2], f"event {number}, {kept}"
            for each in store.directories():
                assert read_manifest(each) == {"damping": 0.5}
                Journal(each / "journal.db").close()
            store.close()
        disk.apply(event)
    assert len(disk.current("answers")) == len(GRAPHS) - 1


REFUSED = """
import os, sys
from pathlib import Path
from liverank_service.errors import StorageFailed
from liverank_service.storage.files import replace_file

directory, fails = Path(sys.argv[1]), Path(os.environ["DISK_FAULT"])
replace_file(directory / "file", b"before")
fails.write_text("sync 1")  # that of the directory
try:
    replace_file(directory / "file", b"after")
except StorageFailed:
    fails.unlink()
replace_file(directory / "other", b"other")
os._exit(0)
"""


def test_a_file_that_was_not_replaced_is_whole_whenever_the_power_ends(
    record: Record, tmp_path: Path
) -> None:
    data, state = tmp_path / "data", tmp_path / "state"
    disk, choose, found = RecordedDisk(data), random.Random(0), list[bytes]()
    for event in record(REFUSED, data):
        disk.apply(event)
        for kept in (None, choose):
            shutil.rmtree(state, ignore_errors=True)
            disk.write_state(state, choose=kept)
            if found or (state / "file").exists():
                found.append((state / "file").read_bytes())
    assert set(found) == {b"before", b"after"}
    assert found[-1] == disk.current("file") == b"before"
    assert disk.current("other") == b"other"


REFUSED_BATCH = """
import os, sys
from pathlib import Path
from liverank_service.errors import StorageFailed
from liverank_service.storage.journal import Journal
from liverank_service.storage.layout import Record

directory, fails = Path(sys.argv[1]), Path(os.environ["DISK_FAULT"])
Journal.create(directory / "journal.db")
journal = Journal(directory / "journal.db")
journal.append([Record(b"kept", "auto", None, b"hash")], 1)
fails.write_text("sync")
try:
    journal.append([Record(b"refused", "auto", None, b"hash")], 1)
except StorageFailed:
    fails.unlink()
journal.close()
os._exit(0)
"""


def test_a_batch_that_was_refused_does_not_come_back_with_the_next_start(
    record: Record, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    assert any(event.kind == "f" for event in record(REFUSED_BATCH, data))
    journal = Journal(data / "journal.db")
    assert [row.payload for _, _, row, _ in journal.batches(0)] == [b"kept"]
    journal.close()


REFUSED_KEY = """
import os, sys
from pathlib import Path
from liverank_service.errors import StorageFailed
from liverank_service.storage.api_keys import ApiKeyStore

fails = Path(os.environ["DISK_FAULT"])
store = ApiKeyStore(Path(sys.argv[1]))
fails.write_text("sync 2")  # that of the file of keys
try:
    store.create("first", "admin", None)
except StorageFailed:
    os._exit(0)
"""


def test_a_first_key_that_was_refused_is_not_required_after_a_loss_of_power(
    record: Record, tmp_path: Path
) -> None:
    data, state = tmp_path / "data", tmp_path / "state"
    disk = RecordedDisk(data)
    for event in record(REFUSED_KEY, data):
        disk.apply(event)
    disk.write_state(state)
    assert not ApiKeyStore(state, may_be_missing=False)
