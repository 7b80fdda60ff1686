"""Memory on the host: the least of the machine's, the control groups' and the address space's."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from time import sleep

import pytest

from liverank_gpu import OutOfMemory
from liverank_gpu.backends.cpu.device import MARGIN_BYTES, CpuDevice, available_bytes

GIB = 1 << 30
V1_UNLIMITED = 0x7FFFFFFFFFFFF000
MOUNT_2 = "30 23 0:26 {} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
MOUNT_1 = "35 31 0:32 {} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
OTHERS = "36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n22 1 8:1 / / rw - ext4 /d rw\n"


def machine(root: Path, files: Mapping[str, object], mounts: str, groups: str) -> Path:
    meminfo = f"MemTotal: 99 kB\nMemFree: 1 kB\nMemAvailable:   {16 * GIB >> 10} kB\n"
    for name, content in {
        "proc/meminfo": meminfo,
        "proc/self/cgroup": groups,
        "proc/self/mountinfo": OTHERS + mounts,
        **{f"sys/fs/cgroup/{name}": content for name, content in files.items()},
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(content))
    return root


def group_2(path: str, limit: object, high: object, used: int, cache: int) -> dict[str, object]:
    return {
        f"{path}memory.max": limit,
        f"{path}memory.high": high,
        f"{path}memory.current": used,
        f"{path}memory.stat": f"anon 5\nfile 7\ninactive_file {cache}\nactive_file 3",
    }


def group_1(path: str, limit: int, used: int, cache: int) -> dict[str, object]:
    return {
        f"memory/{path}memory.limit_in_bytes": limit,
        f"memory/{path}memory.usage_in_bytes": used,
        f"memory/{path}memory.stat": f"inactive_file 1\ntotal_inactive_file {cache}",
    }


CASES = {
    "no control group": ({}, "", "", 16 * GIB),
    "version 2, in a container": (
        group_2("", 2 * GIB, "max", GIB, GIB // 4),
        MOUNT_2.format("/"),
        "0::/",
        GIB + GIB // 4,
    ),
    "version 2, memory.high": (
        group_2("", 4 * GIB, 2 * GIB, GIB, 0),
        MOUNT_2.format("/"),
        "0::/",
        GIB,
    ),
    "version 2, the limit of a group above": (
        group_2("a/b/", "max", "max", GIB, 0) | group_2("a/", 4 * GIB, "max", 3 * GIB, 0),
        MOUNT_2.format("/"),
        "0::/a/b",
        GIB,
    ),
    "version 2, without a limit": (
        group_2("a/", "max", "max", GIB, 0),
        MOUNT_2.format("/"),
        "0::/a",
        16 * GIB,
    ),
    "version 1, the least of several groups": (
        group_1("a/b/", 8 * GIB, 2 * GIB, GIB)
        | group_1("a/", 4 * GIB, 2 * GIB, 0)
        | group_1("", V1_UNLIMITED, 9 * GIB, 0),
        MOUNT_1.format("/"),
        "4:cpu,cpuacct:/x\n3:hugetlb,memory:/a/b\n0::/",
        2 * GIB,
    ),
    "version 1, in a container": (
        group_1("", GIB, GIB // 2, 0),
        MOUNT_1.format("/docker/9f"),
        "3:memory:/docker/9f",
        GIB // 2,
    ),
    "version 1, in a group of the container": (
        group_1("", 4 * GIB, GIB, 0) | group_1("in/", 2 * GIB, GIB, 0),
        MOUNT_1.format("/docker/9f"),
        "3:memory:/docker/9f/in",
        GIB,
    ),
    "version 1 limits memory beside version 2": (
        group_1("a/", GIB, 0, 0),
        "38 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" + MOUNT_1.format("/"),
        "3:memory:/a\n0::/",
        GIB,
    ),
    "over the limit": (
        group_2("", GIB, "max", 2 * GIB, 0),
        MOUNT_2.format("/"),
        "0::/",
        MARGIN_BYTES,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_least_room_counts(tmp_path: Path, case: str) -> None:
    files, mounts, groups, expected = CASES[case]
    # a folder of its own name: which groups there are is looked up once for each
    root = machine(tmp_path / case, files, mounts, groups)
    assert available_bytes(root) == expected - MARGIN_BYTES


def test_the_limit_of_the_address_space_counts() -> None:
    program = (
        "import resource, os\n"
        "from liverank_gpu.backends.cpu.device import MARGIN_BYTES, available_bytes\n"
        "size = int(open('/proc/self/statm').read().split()[0]) * os.sysconf('SC_PAGE_SIZE')\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size + (128 << 20), resource.RLIM_INFINITY))\n"
        "print(available_bytes() + MARGIN_BYTES)\n"
    )
    root = Path(__file__).parents[3]
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    assert (96 << 20) < int(ended.stdout) <= (128 << 20)


def test_the_cpu_has_the_memory_of_the_host() -> None:
    available = CpuDevice().memory_available()
    assert 0 <= available < 1 << 50
    assert (
        resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY or available < 1 << 47
    )


def test_memory_is_read_again_when_much_is_needed_or_some_time_has_passed() -> None:
    free, reads = 100 << 30, 0

    class Device(CpuDevice):
        def memory_available(self) -> int:
            nonlocal reads
            reads += 1
            return free

    device = Device()
    for _ in range(5):
        device.require("a batch", 1 << 30)
    assert reads == 1
    device.require("a batch", 1 << 20)  # small
    assert reads == 1
    device.require("a batch", 1 << 30, 7)
    assert reads == 2
    free = 1 << 29
    sleep(0.1)
    # what is read then counts from there on
    for _ in range(2):
        with pytest.raises(OutOfMemory):
            device.require("a batch", 1 << 30)
