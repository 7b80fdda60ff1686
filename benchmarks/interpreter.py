"""Who holds the interpreter of a server, and who waits for a core, while many writers overload it.

    python -m benchmarks.interpreter --note "nothing else ran"

The server and its load are those of benchmarks.overload. py-spy samples which thread holds the
interpreter lock, and in which functions; the kernel counts how long each thread ran and how long it
waited for a core. Sampling slows the server down: latencies are not measured here.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.overload import WRITERS, fill, measure
from benchmarks.server import Server
from liverank.client import Client

SAMPLES_PER_SECOND = 250
WARM_UP_SECONDS = 5.0

GROUPS = {
    "MainThread": "event loop",
    "liverank-decode": "decoders",
    "liverank-default": "writer of the graph",
}
"""Groups of Python's threads, by how their names begin."""

KERNELS = "kernels"
"""Threads that were never seen with the lock, on the other cores."""

WORK = {
    "decoding": r"/liverank_service/formats|;of \([^;]*/liverank_service/pipeline/batch\.py",
    "journal": r"/liverank_service/storage/",
    "keys": r"/liverank_service/vertex_keys\.py",
    "applying": r"/liverank_service/pipeline/keyed_graph\.py",
    "ranking and publishing": r"/liverank_service/pipeline/ranking\.py",
    "other work of the writer": r"/liverank_service/pipeline/writer\.py",
    "reads": r";rank_of_vertex \(",
    "requests of batches": r";send_batch \(",
    "connections and routing": r"",
}
"""What a thread does: the first of these patterns that is in its stack."""

Stacks = Counter[str]
"""``thread (ID): NAME;FUNCTION (FILE:LINE);…``, outermost first, and the number of samples."""


def holders(process: int, seconds: float) -> Stacks:
    """The stacks of whichever thread held the lock at each sample; of none, if it was free."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stacks"
        command = ["py-spy", "record", "--gil", "--threads", "--nonblocking", "--full-filenames"]
        command += ["--rate", str(SAMPLES_PER_SECOND), "--duration", f"{seconds:.0f}"]
        command += ["--format", "raw", "--output", str(file), "--pid", str(process)]
        subprocess.run(command, check=True, capture_output=True)
        lines = [line.rsplit(" ", 1) for line in file.read_text().splitlines()]
    return Counter({stack: int(count) for stack, count in lines})


def group_of(stack: str) -> str:
    name = stack.partition(";")[0].partition(": ")[2]
    return next((group for start, group in GROUPS.items() if name.startswith(start)), "others")


def work_of(stack: str) -> str:
    return next(work for work, pattern in WORK.items() if re.search(pattern, stack))


def shares(stacks: Stacks, samples: float, label: Callable[[str], str]) -> dict[str, float]:
    """The share of all samples with each label, the largest first."""
    counts: Counter[str] = Counter()
    for stack, count in stacks.items():
        counts[label(stack)] += count
    return {name: round(count / samples, 4) for name, count in counts.most_common()}


def watch(server: Server, seconds: float) -> dict[str, Any]:
    """Shares of the interpreter and of the cores, after a while of warm-up."""
    time.sleep(WARM_UP_SECONDS)
    before, began = server.thread_seconds(), time.perf_counter()
    stacks = holders(server.process_id, seconds)
    after, spent = server.thread_seconds(), time.perf_counter() - began
    groups = {}
    for stack in stacks:
        if found := re.match(r"thread \((\d+)\)", stack):
            groups[int(found[1])] = group_of(stack)
    cores: dict[str, dict[str, float]] = {}
    for thread, (ran, waited) in after.items():
        ran_before, waited_before = before.get(thread, (0.0, 0.0))
        row = cores.setdefault(groups.get(thread, KERNELS), {"ran": 0.0, "waited": 0.0})
        row["ran"] += (ran - ran_before) / spent
        row["waited"] += (waited - waited_before) / spent
    samples = SAMPLES_PER_SECOND * seconds
    return {
        "samples": sum(stacks.values()),
        "held": round(sum(stacks.values()) / samples, 4),
        "threads": shares(stacks, samples, group_of),
        "work": shares(stacks, samples, work_of),
        "cores": {
            group: {name: round(value, 4) for name, value in row.items()}
            for group, row in sorted(cores.items())
        },
    }


def run(server: Server, seconds: float) -> dict[str, Any]:
    with Client(server.url) as client:
        fill(client)
    with ThreadPoolExecutor(1) as beside:
        watching = beside.submit(watch, server, seconds)
        part = measure(server, WARM_UP_SECONDS + seconds + 5.0, WRITERS, None, None)
        figures = watching.result()
    return {"seconds": seconds, "batches_taken": part["batches_taken"], **figures}


def main() -> None:
    parser = harness.parser("who holds the interpreter while writers overload a server")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--note", default="", help="what else the machine did meanwhile")
    arguments = parser.parse_args()
    with Server.temporary() as server:
        figures = run(server, arguments.seconds)
    figures["note"] = arguments.note
    print(json.dumps(figures, indent=1))
    print(harness.record("interpreter", "cpu", figures, arguments.results))


if __name__ == "__main__":
    main()
