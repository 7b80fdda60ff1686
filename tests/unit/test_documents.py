"""Documents say what the recorded figures say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import picture, switch, tables
from benchmarks.harness import RESULTS, load
from gpu import STRATEGIES

DOCUMENTS = sorted(tables.DOCUMENTS.glob("*.md"))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_figures_in_the_documents_are_the_recorded_ones(path: Path) -> None:
    text = path.read_text("utf-8")
    assert tables.with_figures(text) == text, "run python -m benchmarks.tables"


def test_every_recorded_figure_is_shown() -> None:
    shown = {
        match["name"] for path in DOCUMENTS for match in tables.MARKS.finditer(path.read_text())
    }
    assert shown == {path.stem for path in RESULTS.glob("*.json")}


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_every_figure_says_where_it_comes_from(path: Path) -> None:
    document = json.loads(path.read_text())
    assert document["machine"]
    assert document["command"].startswith(
        ("python -m benchmarks.", "python -m tests.crash.marathon")
    )
    assert "dirty" not in document["commit"]


def test_the_pictures_show_the_recorded_figures() -> None:
    drawn = picture.pictures()
    assert drawn.keys() == set(tables.DOCUMENTS.glob("error-against-time-*.svg"))
    for path, expected in drawn.items():
        assert path.read_text("utf-8") == expected, "run python -m benchmarks.picture"
        assert f"]({path.name})" in (tables.DOCUMENTS / "strategies.md").read_text("utf-8")


def test_the_picture_has_a_colour_for_every_strategy() -> None:
    assert set(picture.COLOURS) == set(STRATEGIES) - {"residual"}


def test_the_picture_of_the_switch_is_that_of_the_recorded_trace() -> None:
    picture = switch.drawn(load("personalized", "cuda"))
    assert switch.PICTURE.read_text("utf-8") == picture, "run python -m benchmarks.switch"


def test_every_strategy_is_explained() -> None:
    text = (tables.DOCUMENTS / "strategies.md").read_text("utf-8")
    for strategy in STRATEGIES:
        assert f"| `{strategy}`" in text
