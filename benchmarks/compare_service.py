"""The servers of two commits beside each other, in alternating processes.

    python -m benchmarks.compare_service --other ../other --other-commit NAME

Each process serves one checkout: durable single edges from many clients, then reads at a fixed rate
without writers and beside a stream of batches. A figure is the median of that commit's processes;
the ratio is this commit's figure over the other's.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import median

from benchmarks.durability import send_single_edges
from benchmarks.harness import in_turns, parser, record
from benchmarks.overload import BATCHES_PER_SECOND, SCALE, fill, measure
from benchmarks.server import Server
from liverank.client import Client

CLIENTS = 32


def _run(tree: Path, seconds: float) -> dict[str, float]:
    """The figures of one process with the code of this checkout."""
    figures = {}
    with Server.temporary(tree) as server:
        asyncio.run(send_single_edges(server.port, CLIENTS, 1.0))
        before = server.cpu_seconds
        latencies, took = asyncio.run(send_single_edges(server.port, CLIENTS, seconds))
        spent = server.cpu_seconds - before
        figures["durable single edge, interval, ms"] = 1e3 * took / len(latencies)
        figures["durable single edge, latency, ms"] = 1e3 * median(latencies)
        figures["durable single edge, processor time, ms"] = 1e3 * spent / len(latencies)
    with Server.temporary(tree) as server:
        with Client(server.url) as client:
            fill(client)
            client.send("default", vertices=list(range(2**SCALE)))
        for name, writers in {"alone": 0, "beside writes": 1}.items():
            before = server.cpu_seconds
            reads = measure(server, seconds, writers, BATCHES_PER_SECOND, None)
            spent = server.cpu_seconds - before
            assert reads["reads_refused"] == 0
            figures[f"read {name}, median, ms"] = reads["read_ms"]["p50"]
            figures[f"read {name}, 99 %, ms"] = reads["read_ms"]["p99"]
            figures[f"processor time a second, reads {name}, ms"] = 1e3 * spent / seconds
            if writers:
                figures["ranked batch of 1,000, ms"] = reads["batch_ms"]["p50"]
    return figures


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--other", type=Path, required=True, help="checkout of the other commit")
    options.add_argument("--other-commit", required=True, help="its name, for the record")
    options.add_argument("--seconds", type=float, default=10.0, help="of each part")
    options.add_argument("--rounds", type=int, default=5, help="processes of each commit")
    given = options.parse_args()
    runs = in_turns(given.other, given.rounds, lambda tree: _run(tree, given.seconds))
    rows = {}
    for name in runs["this"][0]:
        other, this = (median(run[name] for run in runs[which]) for which in runs)
        rows[name] = {"other": other, "this": this, "ratio": this / other}
        print(f"{name:48} {other:10.3f} {this:10.3f} {this / other:7.3f}", flush=True)
    figures = {"other commit": given.other_commit, "rows": rows}
    record("compare-service", "cpu", figures, given.results)


if __name__ == "__main__":
    main()
