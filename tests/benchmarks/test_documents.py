"""Documents say what the recorded figures say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import harness, plots, tables
from benchmarks.tables.summaries import SUMMARIES
from liverank_gpu import STRATEGIES

DOCUMENTS = tables.documents()
RECORDS = sorted(harness.RESULTS.glob("*.json"))
NAMES = [path.stem for path in RECORDS]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(harness.ROOT)))
def test_figures_in_the_documents_are_the_recorded_ones(path: Path) -> None:
    text = path.read_text("utf-8")
    assert tables.with_figures(text) == text, "run python -m benchmarks.tables"


def test_every_recorded_figure_is_shown() -> None:
    text = "".join(path.read_text("utf-8") for path in DOCUMENTS)
    shown, records = {match["name"] for match in tables.MARKS.finditer(text)}, {*NAMES}
    assert SUMMARIES.keys() <= shown <= SUMMARIES.keys() | records
    # the table of a decided question is text
    assert {name for name in records - shown if f"`{name}`" not in text} == set()


def test_what_users_read_has_no_goals_that_were_missed() -> None:
    for path in DOCUMENTS:
        if path.parent != harness.NOTES:
            assert not re.search(r"\*\*miss", path.read_text("utf-8")), f"{path}: to the notes"


def test_every_note_is_listed() -> None:
    index = (harness.NOTES / "README.md").read_text("utf-8")
    notes = {path.name for path in harness.NOTES.glob("*.md")} - {"README.md"}
    assert set(re.findall(r"^\| \[[\w-]+\]\(([\w.-]+)\)", index, re.MULTILINE)) == notes


def test_the_first_page_of_the_site_has_the_figures_of_the_overview() -> None:
    text = (harness.DOCUMENTS / "index.md").read_text("utf-8")
    assert [match["name"] for match in tables.MARKS.finditer(text)] == ["overview"]


def test_the_readme_is_short_and_shows_one_chart() -> None:
    text = (harness.ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 100
    assert re.findall(r"\]\((docs/[\w-]+\.svg)\)", text) == ["docs/peers.svg"]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_every_figure_says_where_it_comes_from(path: Path) -> None:
    document = json.loads(path.read_text())
    assert document["machine"]
    assert document["command"].startswith(("python -m benchmarks.", "python -m tests."))
    assert "dirty" not in document["commit"]


def test_the_plots_show_the_recorded_figures() -> None:
    drawn = plots.plots()
    assert drawn.keys() == {*harness.DOCUMENTS.glob("*.svg"), *harness.NOTES.glob("*.svg")}
    for path, expected in drawn.items():
        assert path.read_text("utf-8") == expected, "run python -m benchmarks.plots"
        assert f"]({path.name})" in document_of(path).read_text("utf-8")


def document_of(plot: Path) -> Path:
    """The document that shows a plot."""
    names = {
        "switch": "personalized.md",
        "peers": "performance.md",
        "error-against-time-cpu": "networks.md",
        "error-against-time-cuda": "networks.md",
    }
    return plot.with_name(names.get(plot.stem, "papers.md"))


def test_every_strategy_is_explained() -> None:
    text = (harness.DOCUMENTS / "strategies.md").read_text("utf-8")
    for strategy in STRATEGIES:
        assert f"| `{strategy}`" in text
