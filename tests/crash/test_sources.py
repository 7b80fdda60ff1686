"""Consumers, brokers and servers that are killed."""

from __future__ import annotations

from pathlib import Path

from tests.crash.sources import Consumers


def test_each_message_counts_once_whatever_is_killed(tmp_path: Path) -> None:
    with Consumers(tmp_path, 3, ["redis", "nats"]) as consumers:
        counts = consumers.run(6)
    assert min(counts[one] for one in ("server", "redis", "nats", "consumer of nats")) > 0
    assert counts["messages"] >= 400
