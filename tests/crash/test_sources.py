"""A short form of tests/crash/sources_marathon.py."""

from __future__ import annotations

from pathlib import Path

from tests.crash.sources_marathon import Leg

KILLS = 6


def test_each_message_counts_once_whatever_is_killed(tmp_path: Path) -> None:
    with Leg(tmp_path, 3, ["redis", "nats"]) as leg:
        figures = leg.run(KILLS)
    victims = {victim for victim, kills in figures["kills by process"].items() if kills}
    assert {"server", "redis", "nats"} & victims
    assert any(victim.startswith("consumer") for victim in victims)
    assert figures["messages"] >= 400
