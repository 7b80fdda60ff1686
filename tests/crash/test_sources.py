"""A short form of tests/crash/sources_marathon.py."""

from __future__ import annotations

from pathlib import Path

from tests.crash.sources_marathon import Leg

VICTIMS = ["consumer of redis", "redis", "server", "nats", "consumer of nats", "server"]


def test_each_message_counts_once_whatever_is_killed(tmp_path: Path) -> None:
    with Leg(tmp_path, 3, ["redis", "nats"]) as leg:
        figures = leg.run(VICTIMS)
    assert figures["kills by process"] == {each: VICTIMS.count(each) for each in VICTIMS}
    assert figures["messages"] >= 400
