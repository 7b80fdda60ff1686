"""The crash tests at scale: thousands of SIGKILLs on one data directory, for a nightly run.

    python -m tests.crash.marathon [--kills 2000] [--seed 0] [--data DIR] [--results FOLDER]

Every second kill is at a named point, the others at random moments, recoveries included. After
every tenth everything is compared with the model. Prints progress, and records the figures in
benchmarks/results/crash-cpu.json. Fails with an assertion, and leaves the data, if anything is
lost, applied twice or wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS, record
from tests.crash.nursery import Nursery
from tests.crash.points import CHECKPOINTING, RECOVERING, WRITING
from tests.crash.streams import Comparison, Stream, check, run_until_killed, streams

STAGES = {"writing": WRITING, "checkpointing": CHECKPOINTING, "recovering": RECOVERING}
POINTS = [point for points in STAGES.values() for point in points]
COMPARED_EVERY = 10
"""Number of kills between comparisons."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    data = arguments.data or Path(tempfile.mkdtemp(prefix="liverank-crash-"))
    figures = run(data, arguments.kills, arguments.seed)
    print(json.dumps(figures, indent=1))
    print(record("crash", "cpu", figures, arguments.results))


def run(data: Path, kills: int, seed: int) -> dict[str, Any]:
    """Kills `kills` servers of `data`; returns the figures of the run."""
    choose, sending = random.Random(seed), streams(seed)
    nursery = Nursery(data.with_name(f"{data.name}.log"))
    begin = time.monotonic()
    at_points: Counter[str] = Counter()
    compared: list[Comparison] = []
    for killed in range(1, kills + 1):
        if killed % COMPARED_EVERY == 0 or killed == kills:
            compared.append(_compare(nursery, data, sending, everything=killed == kills))
            print(f"{killed} kills, {compared[-1]}", flush=True)
        else:
            point = choose.choice(POINTS) if killed % 2 else None
            if _kill(nursery, data, sending, choose, point):
                assert point is not None
                at_points[point] += 1
    nursery.close()
    return {
        "kills": kills,
        "kills at random moments": kills - at_points.total(),
        "kills at named points": {
            stage: sum(at_points[point] for point in points) for stage, points in STAGES.items()
        },
        "kills by point": {point: at_points[point] for point in POINTS},
        "comparisons": len(compared),
        "batches acknowledged": compared[-1].acknowledged,
        "lost": sum(each.lost for each in compared),
        "twice": sum(each.twice for each in compared),
        "batches sent again": sum(each.repeated for each in compared),
        "receipts that differ": sum(each.differing for each in compared),
        "seconds": round(time.monotonic() - begin, 1),
    }


def _kill(
    nursery: Nursery, data: Path, sending: list[Stream], choose: random.Random, point: str | None
) -> bool:
    """Starts a server, sends batches and kills it; returns whether that was at `point`."""
    # a server does not pass the other points that often in a few seconds
    passes = choose.randrange(1, 4) if point in WRITING else 1
    server = nursery.start(data, point, passes)
    if point is None and choose.random() < 0.2:
        time.sleep(choose.uniform(0.0, 1.0))
    elif server.wait_until_ready():
        run_until_killed(sending, server.url, 3.0 if point else choose.uniform(0.0, 0.5))
    passed = point is not None and server.dies(0.1)
    server.kill()
    server.wait()
    return passed


def _compare(nursery: Nursery, data: Path, sending: list[Stream], everything: bool) -> Comparison:
    """Compares a server, and kills it."""
    server = nursery.start(data)
    assert server.wait_until_ready(), f"no recovery: {data}"
    compared = check(sending, server.url, everything)
    server.kill()
    server.wait()
    return compared


if __name__ == "__main__":
    main()
