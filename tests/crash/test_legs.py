"""Long runs that are interrupted and continue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash import legs
from tests.crash.legs import run_legs


class Interrupted(Exception):
    pass


def test_finished_legs_are_kept_and_the_interrupted_one_starts_again(tmp_path: Path) -> None:
    begun: list[tuple[int, int]] = []

    def run(folder: Path, number: int, kills: int) -> dict[str, Any]:
        assert list(folder.iterdir()) == []
        (folder / "data").touch()
        begun.append((number, kills))
        if begun == [(0, 4), (1, 4)]:
            raise Interrupted
        return {"kills": kills, "leg": number}

    with pytest.raises(Interrupted):
        run_legs(tmp_path, 10, 4, run)
    finished = run_legs(tmp_path, 10, 4, run)
    assert begun == [(0, 4), (1, 4), (1, 4), (2, 2)]
    assert [leg["kills"] for leg in finished] == [4, 4, 2]
    assert run_legs(tmp_path, 10, 4, run) == finished
    assert len(begun) == 4


def test_legs_of_another_commit_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legs, "commit", lambda: "one")
    run_legs(tmp_path, 2, 2, lambda _, number, kills: {"kills": kills, "leg": number})
    monkeypatch.setattr(legs, "commit", lambda: "two")
    with pytest.raises(ValueError, match=r"finished.json: expected legs of commit two, got one"):
        run_legs(tmp_path, 4, 2, lambda _, number, kills: {"kills": kills, "leg": number})
