"""A million bodies for the decoder and the graph, and requests for a real server.

    python -m tests.fuzz.campaign                        the figures of the notes
    python -m tests.fuzz.campaign --cases 100000 --seed 3 --processes 2 --results /tmp
    python -m tests.fuzz.campaign --block 17 --seed 3    one block again, in this process

Cases come in blocks of 1000, determined by the seed and the block's number. One case in fifty is a
request over a socket. If any case fails, the exit status is 1, and the output says which and how to
repeat it; turn such a case into a test.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.harness import RESULTS, record
from tests.fuzz import blocks, wire, workers
from tests.fuzz.oracle import MOST_BYTES, MOST_EDGES, MOST_KEY_BYTES
from tests.fuzz.wire import Wire

REQUESTS_OF = 50
"""One of this many cases is a request."""

REQUESTS_IN_BLOCK = 250

LIMITS = {
    "LIVERANK_MAX_BODY_BYTES": str(MOST_BYTES),
    "LIVERANK_MAX_BATCH_EDGES": str(MOST_EDGES),
    "LIVERANK_MAX_KEY_BYTES": str(MOST_KEY_BYTES),
    "LIVERANK_SLOW_CLIENT_SECONDS": "5",
}


@contextmanager
def serving(**settings: str) -> Iterator[tuple[int, Path]]:
    """A ready server process with its own data: its port and its log."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        options = ["--data", f"{folder}/data", "--port", "0", "--backend", "cpu"]
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "liverank_service.cli", "serve", *options],
                stderr=file,
                env=os.environ | settings,
            )
        try:
            while (found := re.search(r"http://127.0.0.1:(\d+)", log.read_text())) is None:
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
            port = int(found[1])
            while httpx.get(f"http://127.0.0.1:{port}/readyz").status_code != 200:
                time.sleep(0.1)
            yield port, log
            assert process.poll() is None, f"the server ended with {process.returncode}"
        finally:
            process.terminate()
            process.wait(60)


def failures_in(log: Path) -> list[str]:
    """Errors in the server's log: clients cannot see them."""
    text = log.read_text("utf-8", "replace")
    return re.findall(r"^.*(?: ERROR |Traceback).*(?:\n.*){0,40}", text, re.MULTILINE)


def bodies(seed: int, count: int, processes: int, seconds: float) -> dict[str, Any]:
    """Runs blocks of bodies for the decoder."""
    decoded, refused = Counter[str](), Counter[str]()
    failures = []
    done = 0
    for outcome in workers.run(seed, count, processes, seconds):
        done += 1
        decoded += outcome.decoded
        refused += outcome.refused
        for failure in outcome.failures:
            failures.append(failure)
            print(f"FAILED: --seed {seed} --block {outcome.block}: {failure}", flush=True)
        if done % 20 == 0:
            print(f"{done * blocks.SIZE:,} bodies, {len(failures)} failures", flush=True)
    return {
        "cases": done * blocks.SIZE,
        "decoded": dict(sorted(decoded.items())),
        "refused": dict(sorted(refused.items())),
        "failures": len(failures),
    }


def requests(seed: int, count: int, seconds: float) -> dict[str, Any]:
    """Runs blocks of requests for a server."""
    total = wire.Exchanged()
    done = 0
    end = time.monotonic() + seconds
    with serving(**LIMITS) as (port, log):
        client = Wire(port)
        while done < count and time.monotonic() < end:
            exchanged = wire.run(seed, done, REQUESTS_IN_BLOCK, client)
            total.decoded += exchanged.decoded
            total.refused += exchanged.refused
            total.statuses += exchanged.statuses
            total.cut_off += exchanged.cut_off
            total.failures += exchanged.failures
            for failure in exchanged.failures:
                print(f"FAILED: requests, --seed {seed}, block {done}: {failure}", flush=True)
            done += 1
        client.close()
        logged = failures_in(log)
        for failure in logged:
            print(f"FAILED: the server logged\n{failure}", flush=True)
    return {
        "cases": done * REQUESTS_IN_BLOCK,
        "batches_taken": sum(total.decoded.values()),
        "batches_refused": sum(total.refused.values()),
        "other_answers": {str(status): total.statuses[status] for status in sorted(total.statuses)},
        "cut_off": total.cut_off,
        "failures": len(total.failures) + len(logged),
    }


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1, help="that share the bodies")
    parser.add_argument("--block", type=int, help="only this block of bodies")
    parser.add_argument("--note", default="", help="what else the machine did meanwhile")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.block is not None:
        outcome = blocks.run(arguments.seed, arguments.block)
        print("\n".join(outcome.failures) or "nothing failed")
        sys.exit(bool(outcome.failures))
    began = time.monotonic()
    sent = arguments.cases // REQUESTS_OF
    figures: dict[str, Any] = {"seed": arguments.seed, "note": arguments.note}
    figures["requests"] = requests(
        arguments.seed, -(-sent // REQUESTS_IN_BLOCK), arguments.seconds / 4
    )
    left = arguments.seconds - (time.monotonic() - began)
    count = -(-(arguments.cases - figures["requests"]["cases"]) // blocks.SIZE)
    figures["bodies"] = bodies(arguments.seed, count, arguments.processes, left)
    figures["seconds"] = round(time.monotonic() - began)
    print(figures)
    record("fuzz", "cpu", figures, arguments.results)
    sys.exit(bool(figures["bodies"]["failures"] + figures["requests"]["failures"]))


if __name__ == "__main__":
    main()
