"""Starts the command: `liverank`, `python -m liverank` and `python -m liverank_service.cli`."""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 200_000
"""Objects made between two searches for garbage. A batch in JSON makes a list for each edge, which
is freed without a search: with Python's default of 700, they took a tenth of the time under load.
It is set before modules load, whose objects stay.
Requests leave almost no garbage, and none that holds a body; a search among the objects of large
batches delays reads. Measured with weighted batches in JSON: at 700, 61 KB take 1.85 ms and 9.9 MB
730 ms with a pause of 1.2 s; from 5,000 on, 1.6 to 1.7 ms and about 430 ms, pauses of 0.2 s up to
200,000 alike.
"""


def main() -> None:
    """Runs the command line, or says what to install for it."""
    gc.set_threshold(YOUNG_OBJECTS)
    try:
        from liverank_service.cli import main as command
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except ModuleNotFoundError as missing:
        raise SystemExit(
            f"liverank: the command needs {missing.name}, which is not installed: "
            "pip install -e '.[server]' in the clone of liverank"
        ) from None
    command.main()


if __name__ == "__main__":
    main()
