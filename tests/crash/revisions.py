"""Whether a revision of published ranks is ever published again with other ranks."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

SHOWN = 100
"""Places of each revision that are compared."""


@dataclass
class Revisions:
    """What was seen of each revision of one graph, across all of its servers.

    ranks  when they were seen first, by the monotonic clock, and the highest ones as JSON; by
           revision
    twice  revisions that had other ranks later
    """

    graph: str
    ranks: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    twice: list[int] = field(default_factory=list)

    def as_of(self, moment: int) -> Revisions:
        """What was seen until a moment of the past."""
        seen = {number: one for number, one in self.ranks.items() if one[0] <= moment}
        return replace(self, ranks=seen)

    def watch(self, url: str, stop: threading.Event) -> None:
        """Reads the published ranks until the server has ended, or until `stop`. None may fail."""
        with httpx.Client(base_url=url, timeout=60) as http, suppress(httpx.TransportError):
            while not stop.is_set():
                answer = http.get(f"{self.graph}/top", params={"k": SHOWN})
                assert answer.status_code == 200, answer.text
                self.add_ranks(answer.json())
                time.sleep(0.002)  # leave the processor to the writers

    def add_ranks(self, top: dict[str, Any]) -> None:
        # the version may differ: a rejected batch moves it and leaves the ranks
        content = httpx.Response(200, json=[top["error_bound"], top["ranks"]]).content
        if self.ranks.setdefault(top["revision"], (time.monotonic_ns(), content))[1] != content:
            self.twice.append(top["revision"])
