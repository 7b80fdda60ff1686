"""The host as a device: its memory, and its time."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue
from liverank_gpu.operations.device import Array, DeviceOperations, Event

# ---- how much memory this process can still take on the host ----
#
# The least of what is left on the machine (MemAvailable), in the process's control group and in the
# groups above it (versions 1 and 2), and in its address space (RLIMIT_AS). In a control group, file
# cache that is not in active use counts as free, because the kernel reclaims it first.

MARGIN_BYTES = 64 << 20
"""Left for what is not planned: stacks of threads, columns of bodies, buffers of the journal."""

_LIMITS = {
    "cgroup2": (("memory.max", "memory.high"), "memory.current", "inactive_file"),
    "cgroup": (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
}
"""By the type of the file system: the files of limits, that of use, and the cache's row of
memory.stat.
"""


def available_bytes(root: Path = Path("/")) -> int:
    """Bytes that can be allocated, less the margin; 0 if less is left.

    root  the file system with /proc and the control groups
    """
    return max(0, min(_headrooms(root)) - MARGIN_BYTES)


def _headrooms(root: Path) -> Iterator[int]:
    yield _of_machine(root)
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        pages = int((root / "proc/self/statm").read_text().split()[0])
        yield soft - pages * resource.getpagesize()
    for kind, top, path in _groups(root):
        group = top / path
        while True:
            yield from _of_group(group, *_LIMITS[kind])
            if group == top:
                break
            group = group.parent


def _of_machine(root: Path) -> int:
    with suppress(OSError):
        found = re.search(r"^MemAvailable: +(\d+) kB", (root / "proc/meminfo").read_text(), re.M)
        if found:
            return int(found[1]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@cache
def _groups(root: Path) -> list[tuple[str, Path, str]]:
    """Of each hierarchy that limits memory: its type, where it is mounted, and the path of the
    process's group below that.
    """
    found: list[tuple[str, Path, str]] = []
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
    except OSError:  # not Linux
        return found
    paths = {}
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            paths["cgroup2"] = path
        elif "memory" in controllers.split(","):
            paths["cgroup"] = path
    for line in mounts:
        fields, _, filesystem = line.partition(" - ")
        kind, _, options = filesystem.split(" ", 2)
        of_memory = kind == "cgroup2" or "memory" in options.split(",")
        if kind in paths and of_memory:
            mounted, point = fields.split()[3:5]
            # a container sees its own group as the root of the mount
            inside = mounted == "/" or f"{paths[kind]}/".startswith(f"{mounted}/")
            below = paths[kind].removeprefix(mounted.rstrip("/")) if inside else ""
            top = root / point.replace("\\040", " ").lstrip("/")
            below = below.strip("/")
            found.append((kind, top, below if (top / below).is_dir() else ""))
    return found


def _of_group(group: Path, limits: tuple[str, ...], usage: str, cache: str) -> Iterator[int]:
    """What is left of each limit of one group; the root has none."""
    for name in limits:
        try:
            limit = (group / name).read_text().strip()
            if limit == "max":
                continue
            used = int((group / usage).read_text())
            found = re.search(rf"^{cache} (\d+)$", (group / "memory.stat").read_text(), re.M)
        except OSError:
            continue
        yield int(limit) - used + (int(found[1]) if found else 0)


# ---- memory and time on ``cpu``: the host's ----


class _CpuEvent:
    """An event where work is done as soon as it is issued: it is reached when it is recorded."""

    __slots__ = ("reached",)

    def record(self) -> None:
        self.reached = perf_counter()

    def synchronize(self) -> None:
        return


class CpuDevice(DeviceOperations):
    """The host itself; see DeviceOperations."""

    xp = np

    def to_device(self, values: NDArray[Any]) -> Array:
        return np.array(values)

    def to_host(self, values: Array) -> NDArray[Any]:
        return np.array(values)

    def page_locked(self, count: int, dtype: type[np.generic]) -> NDArray[Any]:
        array: NDArray[Any] = self.allocate("host memory", count, dtype)
        return array

    def start_copy(self, source: NDArray[Any], target: Array) -> Callable[[], None]:
        np.copyto(target, source)
        return self.synchronize

    def sum(self, values: Array) -> Array:
        if values.dtype == np.bool_:
            return np.int64(np.count_nonzero(values))
        return values.sum(dtype=np.float64 if values.dtype.kind == "f" else np.int64)

    def synchronize(self) -> None:
        return

    def event(self) -> Event:
        return _CpuEvent()

    def seconds_between(self, first: Any, last: Any) -> float:
        seconds: float = last.reached - first.reached
        return seconds

    def memory_available(self) -> int:
        return available_bytes()

    def _limit_memory(self, most: int | None) -> None:
        if most is not None:
            raise InvalidValue(
                "device_memory", most, "unset on cpu, whose arrays are in host memory"
            )
