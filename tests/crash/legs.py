"""Long runs of kills in legs, each with processes and data of its own, that can be continued."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import commit


def run_legs(
    directory: Path, kills: int, size: int, run: Callable[[Path, int, int], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Runs the legs that `directory` does not have yet. Returns the figures of all.

    size  kills of a leg; the last one may have fewer
    run   returns the figures of a leg, ``kills`` among them; its arguments are a new folder, the
          number of the leg, and its kills

    Raises ValueError if the directory has legs of another commit.
    """
    directory.mkdir(parents=True, exist_ok=True)
    finished, now = directory / "finished.json", commit()
    kept: dict[str, Any] = {"commit": now, "legs": []}
    if finished.exists():
        kept = json.loads(finished.read_text())
    if kept["commit"] != now:
        raise ValueError(f"{finished}: expected legs of commit {now}, got {kept['commit']}")
    legs: list[dict[str, Any]] = kept["legs"]
    while (done := sum(leg["kills"] for leg in legs)) < kills:
        folder = Path(tempfile.mkdtemp(prefix=f"leg-{len(legs)}-", dir=directory))
        legs.append(run(folder, len(legs), min(size, kills - done)))
        finished.write_text(json.dumps(kept))
    return legs
