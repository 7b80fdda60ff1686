"""Whether a revision of published ranks is ever published again with other ranks."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

SHOWN = 100
"""Places of each revision that are compared."""


@dataclass
class Revisions:
    """What was seen of each revision of one graph, across all of its servers.

    ranks     the highest ranks by revision, as JSON
    receipts  version and error bound of the ranks by revision, from receipts
    """

    graph: str
    ranks: dict[int, bytes] = field(default_factory=dict)
    receipts: dict[int, tuple[int, float]] = field(default_factory=dict)
    twice: list[int] = field(default_factory=list)

    @property
    def seen(self) -> int:
        return len(self.ranks.keys() | self.receipts.keys())

    def watch(self, url: str, stop: threading.Event) -> None:
        """Reads the published ranks until the server has ended, or until `stop`."""
        with httpx.Client(base_url=url, timeout=60) as http, suppress(httpx.TransportError):
            while not stop.is_set():
                answer = http.get(f"{self.graph}/top", params={"k": SHOWN})
                if answer.status_code == 200:
                    self.add_ranks(answer.json())
                time.sleep(0.002)  # leave the processor to the writers

    def add_ranks(self, top: dict[str, Any]) -> None:
        # the version may differ: a rejected batch moves it and leaves the ranks
        content = httpx.Response(200, json=[top["error_bound"], top["ranks"]]).content
        if self.ranks.setdefault(top["revision"], content) != content:
            self.twice.append(top["revision"])

    def add_receipt(self, receipt: dict[str, Any]) -> None:
        about = (receipt["ranked_version"], receipt["error_bound"])
        if self.receipts.setdefault(receipt["revision"], about) != about:
            self.twice.append(receipt["revision"])
