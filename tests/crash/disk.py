"""The states in which a crash can leave a directory, from a record of what was written.

The record is that of disk.c. A killed process leaves what it has written, at any write. After a
power loss a disk has what was synced: the content of a file with the file, the names in a directory
with the directory. What a failed sync could not write is lost, also to later syncs. Of the rest it
may keep anything; here nothing, or a random part of the sectors with all names.
"""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

_HEADER = struct.Struct("<B7xQQQQQ")


@dataclass(frozen=True, slots=True)
class Event:
    """One change; see disk.c."""

    kind: str
    inode: int
    place: int
    first: bytes
    second: bytes
    nanoseconds: int


SECTOR = 512
"""What a disk writes whole."""


def read_events(path: Path) -> list[Event]:
    """Those of a record, which a kill may have cut off."""
    content, events, at = path.read_bytes(), [], 0
    while at + _HEADER.size <= len(content):
        kind, inode, place, first, second, nanoseconds = _HEADER.unpack_from(content, at)
        at += _HEADER.size
        middle, end = at + first, at + first + second
        if end > len(content):
            break
        parts = content[at:middle], content[middle:end]
        events.append(Event(chr(kind), inode, place, *parts, nanoseconds))
        at = end
    return events


def torn(event: Event, choose: random.Random) -> Event:
    """A write of which a first part is done."""
    begin, sectors = event.place % SECTOR, (event.place % SECTOR + len(event.first)) // SECTOR
    done = max(0, choose.randrange(sectors + 1) * SECTOR - begin)
    return replace(event, first=event.first[:done])


@dataclass
class File:
    """unsynced: places and data of writes since the last sync; a negative place truncates."""

    content: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)

    def write(self, place: int, data: bytes) -> None:
        _write(self.content, place, data)
        self.unsynced.append((place, data))

    def truncate(self, size: int) -> None:
        self.write(-1 - size, b"")

    def sync(self) -> None:
        for place, data in self.unsynced:
            _write(self.synced, place, data)
        self.unsynced.clear()

    def fail(self) -> None:
        """What could not be written is forgotten: Linux takes its pages for written."""
        self.unsynced.clear()

    def part(self, choose: random.Random) -> bytes:
        """What was synced, with a random part of the later writes."""
        content = bytearray(self.synced)
        for place, data in self.unsynced:
            fate = choose.choice(("kept", "lost", "torn"))
            if fate == "torn" and len(data) > SECTOR:
                for begin, end in _sectors(place, len(data)):
                    if choose.random() < 0.5:
                        _write(content, place + begin, data[begin:end])
            elif fate != "lost":
                _write(content, place, data)
        return bytes(content)


def _sectors(place: int, size: int) -> Iterator[tuple[int, int]]:
    """Where the sectors of a write begin and end in its data."""
    begin = 0
    while begin < size:
        end = min(size, begin + SECTOR - (place + begin) % SECTOR)
        yield begin, end
        begin = end


def _write(content: bytearray, place: int, data: bytes) -> None:
    if place < 0:
        size = -1 - place
        del content[size:]
        content.extend(bytes(size - len(content)))
        return
    content.extend(bytes(max(0, place - len(content))))
    content[place : place + len(data)] = data


TOP = 0
"""The number of the recorded directory."""


class RecordedDisk:
    """A directory while its record is replayed.

    files                    by number
    entries, synced_entries  by the number of a directory: numbers by name, now and when it was
                             synced last
    """

    def __init__(self, top: Path) -> None:
        """An empty directory."""
        self._top = str(top)
        self._ids: dict[int, int] = {}
        self.files: dict[int, File] = {}
        self.entries: dict[int, dict[str, int]] = {TOP: {}}
        self.synced_entries: dict[int, dict[str, int]] = {TOP: {}}

    @classmethod
    def of(cls, top: Path) -> RecordedDisk:
        """The directory as it is, all of it synced."""
        disk = cls(top)
        disk._take(TOP, top)
        return disk

    def _take(self, directory: int, path: Path) -> None:
        for below in path.iterdir():
            number = self._new(below.stat().st_ino)
            self.entries[directory][below.name] = number
            if below.is_dir():
                self.entries[number] = {}
                self._take(number, below)
            else:
                content = below.read_bytes()
                self.files[number] = File(bytearray(content), bytearray(content))
        self.synced_entries[directory] = dict(self.entries[directory])

    def _new(self, inode: int) -> int:
        """The number of a new file or directory: inodes are used again."""
        number = self._ids[inode] = TOP + len(self.files) + len(self.entries)
        return number

    def number(self, inode: int) -> int:
        return self._ids.get(inode, TOP)

    def apply(self, event: Event) -> None:
        number = self.number(event.inode)
        if event.kind == "w":
            self.files[number].write(event.place, event.first)
        elif event.kind == "t":
            self.files[number].truncate(event.place)
        elif event.kind == "s" and number in self.files:
            self.files[number].sync()
        elif event.kind == "f":
            if number in self.files:
                self.files[number].fail()
        elif event.kind == "s":
            self.synced_entries[number] = dict(self.entries[number])
        else:
            self._apply_to_names(event, number)

    def _apply_to_names(self, event: Event, number: int) -> None:
        names, name = self.place(event.first)
        if event.kind in "rl":
            target, new = self.place(event.second)
            target[new] = names.pop(name) if event.kind == "r" else names[name]
        elif event.kind in "ud":
            names.pop(name, None)
        elif event.kind == "m" or names.get(name) != number:  # otherwise it is opened again
            names[name] = new_number = self._new(event.inode)
            if event.kind == "c":
                self.files[new_number] = File()
            else:
                self.entries[new_number], self.synced_entries[new_number] = {}, {}

    def place(self, path: bytes) -> tuple[dict[str, int], str]:
        """The entries that have the path's name, and this name."""
        *parents, name = path.decode().removeprefix(self._top).strip("/").split("/")
        directory = TOP
        for parent in parents:
            directory = self.entries[directory][parent]
        return self.entries[directory], name

    def current(self, name: str) -> bytes:
        """The content of a file in the top directory; empty if there is none."""
        inode = self.entries[TOP].get(name)
        return b"" if inode is None else bytes(self.files[inode].content)

    def write_state(
        self, target: Path, *, killed: bool = False, choose: random.Random | None = None
    ) -> None:
        """Writes one possible state.

        killed  keeps everything: only the process has ended
        choose  keeps a random part of what is not synced; None: nothing of it
        """
        self._write(TOP, target, killed, choose)

    def _write(
        self, directory: int, target: Path, killed: bool, choose: random.Random | None
    ) -> None:
        target.mkdir()
        keeps_names = killed or choose is not None
        entries = (self.entries if keeps_names else self.synced_entries)[directory]
        for name, inode in sorted(entries.items()):
            if inode in self.entries:
                self._write(inode, target / name, killed, choose)
            elif not name.endswith("-shm"):  # that is in memory only
                file = self.files[inode]
                content = file.content if killed else file.part(choose) if choose else file.synced
                (target / name).write_bytes(content)


def compiled(folder: Path) -> Path | None:
    """The library of disk.c, in a folder; None without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("g++")
    if compiler is None:
        return None
    library = folder / "disk.so"
    source = Path(__file__).with_name("disk.c")
    command = [compiler, "-x", "c", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    return library
