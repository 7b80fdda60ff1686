"""The states in which a power loss can leave a directory, from a record of what was written.

The record is that of recording_disk.c. A disk keeps what was synced: the content of a file with the
file, the names in a directory with the directory. What a failed sync could not write is lost, also
to later syncs. Of the rest it may keep anything; here nothing,
or a random part of the writes with all names.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_HEADER = struct.Struct("<B7xQQQQ")


@dataclass(frozen=True, slots=True)
class Event:
    """One change; see recording_disk.c."""

    kind: str
    inode: int
    place: int
    first: bytes
    second: bytes


def read_events(path: Path) -> list[Event]:
    content, events, at = path.read_bytes(), [], 0
    while at < len(content):
        kind, inode, place, first, second = _HEADER.unpack_from(content, at)
        at += _HEADER.size
        middle = at + first
        parts = content[at:middle], content[middle : middle + second]
        events.append(Event(chr(kind), inode, place, *parts))
        at = middle + second
    return events


@dataclass
class File:
    """unsynced: places and data of writes since the last sync; a negative place truncates."""

    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)

    def write(self, place: int, data: bytes) -> None:
        _write(self.content, place, data)
        self.unsynced.append((place, data))

    def truncate(self, size: int) -> None:
        self.write(-1 - size, b"")

    def sync(self) -> None:
        disk = bytearray(self.synced)
        for place, data in self.unsynced:
            _write(disk, place, data)
        self.synced = bytes(disk)
        self.unsynced.clear()

    def fail(self) -> None:
        """What could not be written is forgotten: Linux takes its pages for written."""
        self.unsynced.clear()

    def part(self, choose: random.Random) -> bytes:
        """What was synced, with a random part of the later writes."""
        content = bytearray(self.synced)
        for place, data in self.unsynced:
            if choose.random() < 0.5:
                _write(content, place, data)
        return bytes(content)


def _write(content: bytearray, place: int, data: bytes) -> None:
    if place < 0:
        size = -1 - place
        del content[size:]
        content.extend(bytes(size - len(content)))
        return
    content.extend(bytes(max(0, place - len(content))))
    content[place : place + len(data)] = data


TOP = 0
"""Stands for the inode of the recorded directory."""


class RecordedDisk:
    """A directory while its record is replayed.

    entries, synced_entries  by directory: inodes by name, now and when it was synced last
    """

    def __init__(self, top: Path) -> None:
        self._top = str(top)
        self.files: dict[int, File] = {}
        self.entries: dict[int, dict[str, int]] = {TOP: {}}
        self.synced_entries: dict[int, dict[str, int]] = {TOP: {}}

    def apply(self, event: Event) -> None:
        if event.kind == "w":
            self.files.setdefault(event.inode, File()).write(event.place, event.first)
        elif event.kind == "t":
            self.files.setdefault(event.inode, File()).truncate(event.place)
        elif event.kind == "s" and event.inode in self.files:
            self.files[event.inode].sync()
        elif event.kind == "f":
            if event.inode in self.files:
                self.files[event.inode].fail()
        elif event.kind == "s":
            directory = event.inode if event.inode in self.entries else TOP
            self.synced_entries[directory] = dict(self.entries[directory])
        else:
            self._apply_to_names(event)

    def _apply_to_names(self, event: Event) -> None:
        names, name = self._place(event.first)
        if event.kind == "r":
            target, new = self._place(event.second)
            target[new] = names.pop(name)
        elif event.kind in "ud":
            names.pop(name, None)
        elif names.get(name) != event.inode:  # inodes are used again
            names[name] = event.inode
            if event.kind == "c":
                self.files[event.inode] = File()
                self.entries.pop(event.inode, None)
            else:
                self.files.pop(event.inode, None)
                self.entries[event.inode] = {}
                self.synced_entries[event.inode] = {}

    def _place(self, path: bytes) -> tuple[dict[str, int], str]:
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

    def write_state(self, target: Path, choose: random.Random | None) -> None:
        """Writes one possible state. choose: keeps a random part of what is not synced; None:
        nothing of it.
        """
        self._write(TOP, target, choose)

    def _write(self, directory: int, target: Path, choose: random.Random | None) -> None:
        target.mkdir()
        entries = self.synced_entries if choose is None else self.entries
        for name, inode in sorted(entries[directory].items()):
            if inode in self.entries:
                self._write(inode, target / name, choose)
            elif not name.endswith("-shm"):  # that is in memory only
                file = self.files[inode]
                content = file.synced if choose is None else file.part(choose)
                (target / name).write_bytes(content)


def states(events: list[Event], top: Path) -> Iterator[tuple[int, RecordedDisk]]:
    """The disk before each sync: the number of the event, and the state, which changes later."""
    disk = RecordedDisk(top)
    for number, event in enumerate(events):
        if event.kind == "s":
            yield number, disk
        disk.apply(event)
    yield len(events), disk
