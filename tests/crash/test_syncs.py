"""What every operation on files has synced: before each rename, and when it returns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from liverank_service.storage.files import SLICE
from tests.crash.conftest import Record
from tests.crash.disk import TOP, Event, RecordedDisk

PROGRAM = """
import os, sqlite3, sys
from pathlib import Path
from liverank_service.cli.provided_keys import provide_keys
from liverank_service.errors import NotReady
from liverank_service.queries.model import WatchedQuery
from liverank_service.queries.rank_views import ViewRequest
from liverank_service.storage import backup, checkpoint, files, salvage
from liverank_service.storage.api_keys import ApiKeyStore
from liverank_service.storage.graph_store import GraphStore
from liverank_service.storage.kept_files import write_views, write_watched
from tests.service.graphs import batch, opened, send

top = Path(sys.argv[1])
marks = os.open(top / "marks", os.O_WRONLY | os.O_CREAT)
os.fsync(marks)
files.sync_directory(top)

def done(name):
    os.write(marks, name.encode() + b"\\n")
    os.fsync(marks)

data, keys = top / "data", top / "keys"
store = GraphStore(data)
store.open()
done("open")
directory = store.create("g", {})
done("create")
pipeline = opened(directory)
send(pipeline, batch([("a", "b")]))
pipeline.checkpoint().result()
send(pipeline, batch([("b", "c")]))
pipeline.checkpoint().result()
done("checkpoint")
write_watched(directory / "watched.json", {"q": WatchedQuery(seeds={"a": 1.0})}, "string")
write_views(directory / "views.json", {"v": ViewRequest(teleport="uniform")}, "string")
done("watched")
pipeline.close(NotReady("stopping"))
store.close()
one, _ = ApiKeyStore(data).create("one", "admin", None)
done("create key")
two, _ = ApiKeyStore(data).create("two", "read", None)
ApiKeyStore(data).revoke(two.id)
done("revoke key")
backup.backup(data, top / "backup")
done("backup")
ApiKeyStore(data).reset(data)
done("reset keys")
keys.mkdir()
files.sync_directory(top)
provide_keys(keys, data, None)
done("provide keys")
ApiKeyStore(data).reset(data)
provide_keys(keys, data, None)
done("provide keys again")
backup.restore(top / "backup", top / "restored")
done("restore")
(top / "volume").mkdir()
files.sync_directory(top)
backup.restore(top / "backup", top / "volume")
done("restore to a volume")
files.write_synced(top / "large", [bytes(2 * files.SLICE + 1)])
files.write_synced(top / "parts", [bytes(files.SLICE + 1), b"", b"end"])
files.write_synced(top / "empty", [b""])
files.sync_directory(top)
done("write")
checkpoint._rename(checkpoint.stored(directory / "checkpoints")[-1], "damaged-x")
done("rename")
pipeline = opened(directory)
send(pipeline, batch([("c", "d")]))
pipeline.close(NotReady("stopping"))
journal = sqlite3.connect(directory / "journal.db")
journal.execute("UPDATE batches SET payload = x'00' WHERE version = 3")
journal.commit()
journal.close()
finish = salvage.finish_salvage

def finish_salvage(path):
    finish(path)
    done("finish salvage")

salvage.finish_salvage = finish_salvage
pipeline = opened(directory)
pipeline.checkpoint().result()
pipeline.close(NotReady("stopping"))
done("salvage")
store = GraphStore(data)
store.open()
store.remove("g")
done("remove")
os._exit(0)
"""

UNSYNCED_BY_DESIGN = re.compile(r"-wal$|-shm$|/lock$|/damaged-.*/|/\.dropped-|\.before$")
"""SQLite's own files, which it syncs as its settings say; the lock; what was damaged before; what
the next start removes; and second names of files.
"""


class Disk:
    """The state of the disk, and what of it is not synced."""

    def __init__(self, top: Path) -> None:
        self.recorded = RecordedDisk(top)
        self._dirty: set[int] = set()
        self.most_unsynced = 0

    def apply(self, event: Event) -> None:
        before = self.recorded.number(event.inode)
        self.recorded.apply(event)
        number = self.recorded.number(event.inode)
        if event.kind == "s":
            self._dirty.discard(number)
        elif event.kind in "wt" or (event.kind == "c" and number != before):
            self._dirty.add(number)
            unsynced = self.recorded.files[number].unsynced
            self.most_unsynced = max(self.most_unsynced, sum(len(data) for _, data in unsynced))

    def unsynced(self, inode: int, name: str) -> Iterator[str]:
        """Names of what is not synced of a file, or of a directory and below."""
        if inode not in self.recorded.entries:
            if inode in self._dirty and not UNSYNCED_BY_DESIGN.search(name):
                yield name
            return
        entries, synced = self.recorded.entries[inode], self.recorded.synced_entries[inode]
        for entry in sorted({*entries, *synced}):
            path = f"{name}/{entry}"
            if entries.get(entry) != synced.get(entry) and not UNSYNCED_BY_DESIGN.search(path):
                yield f"the name {path}"
            if entry in entries:
                yield from self.unsynced(entries[entry], path)

    def inode(self, path: bytes) -> int:
        names, name = self.recorded.place(path)
        return names[name]

    def has_synced_names(self, directory: int) -> bool:
        return self.recorded.synced_entries[directory] == self.recorded.entries[directory]


@pytest.fixture(scope="module")
def events(record: Record, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Event]]:
    top = tmp_path_factory.mktemp("disk") / "top"
    return top, record(PROGRAM, top)


def test_an_operation_returns_once_everything_is_synced(events: tuple[Path, list[Event]]) -> None:
    top, changes = events
    disk = Disk(top)
    marks = 0
    for event in changes:
        disk.apply(event)
        done = disk.recorded.current("marks").splitlines()
        if event.kind == "s" and len(done) > marks:
            marks = len(done)
            assert list(disk.unsynced(TOP, "")) == [], done[-1]
    assert marks == PROGRAM.count('done("')
    assert disk.most_unsynced <= 2 * SLICE


def test_only_what_is_synced_is_renamed(events: tuple[Path, list[Event]]) -> None:
    top, changes = events
    disk = Disk(top)
    renames = 0
    for event in changes:
        if event.kind == "r" and b"/damaged-" not in event.second:
            renames += 1
            name = event.first.decode().removeprefix(str(top))
            assert list(disk.unsynced(disk.inode(event.first), name)) == [], name
        disk.apply(event)
    assert renames > 10


def test_a_journal_is_replaced_once_the_damaged_and_the_new_one_are_synced(
    events: tuple[Path, list[Event]],
) -> None:
    top, changes = events
    disk = Disk(top)
    moved = replaced = 0
    for event in changes:
        directory, _, name = event.first.rpartition(b"/")
        if event.kind == "r" and name == b"journal.db" and b"/damaged-journal-" in event.second:
            moved += 1
            graph, new = disk.inode(directory), disk.inode(directory + b"/salvaged")
            assert disk.recorded.synced_entries[graph]["salvaged"] == new
            assert disk.has_synced_names(new)
        elif event.kind == "r" and name == b"journal.db" and directory.endswith(b"/salvaged"):
            replaced += 1
            entries = disk.recorded.entries[disk.inode(directory.removesuffix(b"/salvaged"))]
            damaged = [entries[each] for each in entries if each.startswith("damaged-journal-")]
            assert [disk.has_synced_names(each) for each in damaged] == [True]
        disk.apply(event)
    assert (moved, replaced) == (1, 1)


def test_the_text_of_a_key_is_on_disk_before_the_key_is_valid(
    events: tuple[Path, list[Event]],
) -> None:
    top, changes = events
    disk = Disk(top)
    valid = 0
    for event in changes:
        keys = disk.recorded.entries[TOP].get("keys")
        if event.kind == "r" and event.second.endswith(b"/data/keys.json") and keys is not None:
            valid += 1
            assert list(disk.unsynced(keys, "/keys")) == []
        disk.apply(event)
    assert valid >= 3
