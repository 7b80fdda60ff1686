from __future__ import annotations

import pytest

import liverank.client.connection


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liverank.client.connection, "RETRY_PAUSES", (0.0, 0.0))
