"""The crash tests in the large: thousands of SIGKILLs on one data directory, for a nightly run.

    python -m tests.crash.marathon [--kills 2000] [--seed 0] [--data DIR]

Every second kill is at a named point, the others at random moments, recoveries included. After
every tenth everything is compared with the model. Prints progress, and the figures as JSON; ends
with an assertion, and leaves the data, where anything is lost, twice or wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

from tests.crash.nursery import Nursery
from tests.crash.points import CHECKPOINTING, RECOVERING, WRITING
from tests.crash.streams import check, run_until_killed, streams

POINTS = [*WRITING, *CHECKPOINTING, *RECOVERING]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path)
    arguments = parser.parse_args()
    data = arguments.data or Path(tempfile.mkdtemp(prefix="liverank-crash-"))
    print(json.dumps(run(data, arguments.kills, arguments.seed), indent=1))


def run(data: Path, kills: int, seed: int) -> dict[str, float]:
    """Kills so many servers over `data`; the figures of the run."""
    choose, sending = random.Random(seed), streams(seed)
    nursery = Nursery(data.with_name(f"{data.name}.log"))
    begin = time.monotonic()
    killed = at_points = recoveries = 0
    while killed < kills:
        point = choose.choice(POINTS) if killed % 2 else None
        server = nursery.start(data, point, passes=choose.randrange(1, 4))
        if point is None and choose.random() < 0.2:
            time.sleep(choose.uniform(0.2, 1.0))
        elif server.wait_until_ready():
            run_until_killed(sending, server.url, 3.0 if point else choose.uniform(0.0, 0.5))
        at_points += point is not None and server.dies(0.1)
        server.kill()
        server.wait()
        killed += 1
        if killed % 10 == 0 or killed >= kills:
            again = nursery.start(data)
            assert again.wait_until_ready(), f"no recovery after {killed} kills: {data}"
            check(sending, again.url, everything=killed >= kills)
            again.kill()
            again.wait()
            killed += 1
            recoveries += 1
            sent = sum(len(stream.sent) for stream in sending)
            print(f"{killed} kills, {sent} batches, nothing lost, nothing twice", flush=True)
    nursery.close()
    return {
        "kills": killed,
        "kills_at_named_points": at_points,
        "batches": sum(len(stream.sent) for stream in sending),
        "comparisons": recoveries,
        "seconds": round(time.monotonic() - begin, 1),
    }


if __name__ == "__main__":
    main()
