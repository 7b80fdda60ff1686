"""The screen of `liverank demo`: the first places and the newest batches."""

from __future__ import annotations

import time
from collections import deque

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from liverank.client import Key, RankedVertex
from liverank_service.cli import display
from liverank_service.cli.ingest import ReplayedBatch

RECENT_BATCHES = 8
STAGES = ("journal", "mutate", "solve")

VIEWING_SECONDS = 0.4
"""How long a terminal shows each batch: the service itself is too fast to follow."""


class Board:
    """Live on a terminal, plain lines elsewhere."""

    def __init__(self, total: int, places: list[RankedVertex]) -> None:
        self._total = total
        self._places = places
        self._before: dict[Key, int] = {}
        self._batches: deque[ReplayedBatch] = deque(maxlen=RECENT_BATCHES)
        self._latencies: list[float] = []
        self._bounds: list[float] = []
        self._console = display.output()
        self._live = display.Screen(console=self._console) if self._console.is_terminal else None

    def __enter__(self) -> Board:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def add(self, batch: ReplayedBatch, places: list[RankedVertex]) -> None:
        """Shows the batch and the first places after it."""
        self._before = {entry.vertex: place for place, entry in enumerate(self._places)}
        self._places = places
        self._batches.append(batch)
        self._latencies.append(batch.latency)
        self._bounds.append(batch.receipt.error_bound)
        if self._live:
            self._live.update(Group(self._place_table(), Text(), self._batch_table()), refresh=True)
            time.sleep(VIEWING_SECONDS)
        else:
            self._print_line(batch)

    def print_summary(self) -> None:
        """Prints the figures over all batches."""
        if not self._latencies:
            return
        median, slowest = np.median(self._latencies), max(self._latencies)
        self._console.print(
            f"{len(self._latencies)} batches: "
            f"median latency {display.milliseconds(float(median))}, "
            f"slowest {display.milliseconds(slowest)}; "
            f"L1 error proven at most {max(self._bounds):.1e}"
        )

    def movement(self, place: int) -> str:
        """The change of the vertex at this place (from 0): ↑2, ↓1, new, or nothing."""
        before = self._before.get(self._places[place].vertex)
        if before is None:
            return "new" if self._before else ""
        if before == place:
            return ""
        return f"↑{before - place}" if before > place else f"↓{place - before}"

    def _place_table(self) -> Table:
        table = Table("place", "", "vertex", "rank", box=None, title_justify="left")
        table.columns[0].justify = table.columns[3].justify = "right"
        for place, entry in enumerate(self._places):
            movement = self.movement(place)
            style = "red" if movement.startswith("↓") else "green"
            table.add_row(
                str(place + 1),
                Text(f"{movement:<3}", style=style),
                Text(display.printable(entry.vertex)),
                f"{entry.rank:.6f}",
            )
        return table

    def _batch_table(self) -> Table:
        table = Table("batch", "+", "−", "latency", *STAGES, "touched", "error bound", box=None)
        for column in table.columns:
            column.justify = "right"
        for batch in self._batches:
            receipt = batch.receipt
            table.add_row(
                f"{batch.number}/{self._total}",
                f"{receipt.inserted:,}",
                f"{receipt.deleted:,}",
                display.milliseconds(batch.latency),
                *(display.milliseconds(receipt.seconds[stage]) for stage in STAGES),
                f"{receipt.touched_vertices:,}",
                f"{receipt.error_bound:.1e}",
            )
        return table

    def _print_line(self, batch: ReplayedBatch) -> None:
        receipt = batch.receipt
        stages = ", ".join(
            f"{stage} {display.milliseconds(receipt.seconds[stage])}" for stage in STAGES
        )
        moved = ", ".join(
            f"{entry.vertex} {self.movement(place)} to {place + 1}"
            for place, entry in enumerate(self._places)
            if self.movement(place).startswith(("↑", "new"))
        )
        print(
            f"batch {batch.number}/{self._total}: "
            f"+{receipt.inserted:,} -{receipt.deleted:,} edges, "
            f"latency {display.milliseconds(batch.latency)} ({stages}), "
            f"error bound {receipt.error_bound:.1e}" + (f"; {moved}" if moved else ""),
            flush=True,
        )
