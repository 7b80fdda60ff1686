"""The tables of the documents, from the records in benchmarks/results/.

A document has a table between the marks

    <!-- figures: SUITE-BACKEND -->
    <!-- end of figures -->

``python -m benchmarks.tables`` writes it. A test compares the documents with the records, so no
figure is edited by hand. The names of SUMMARIES stand for figures of several records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.harness import DOCUMENTS, NOTES, RESULTS, ROOT, provenance
from benchmarks.tables import engine, papers
from benchmarks.tables.common import FORMS, Record, figures_and_values, formed, parts, two_commits
from benchmarks.tables.summaries import SUMMARIES

MARKS = re.compile(
    r"(<!-- figures: (?P<name>[\w.-]+) -->\n)(?P<table>.*?)(<!-- end of figures -->)", re.DOTALL
)

TABLES: dict[str, Callable[[Record], str]] = {
    **dict.fromkeys(FORMS, formed),
    **dict.fromkeys(("fuzz", "keys", "load"), parts),
    "authors": papers.authors,
    "cold-start": partial(parts, called=engine.STARTS),
    "compare": two_commits,
    "compare-service": two_commits,
    "cuppa": papers.cuppa,
    "mutation": engine.mutation,
    "out-of-core": engine.out_of_core,
    "overload": partial(parts, called=engine.OVERLOAD),
    "peers": engine.peers,
    "personalized": engine.personalized,
    "preferential-attachment": papers.preferential_attachment,
    "programs": engine.programs,
    "sahu": papers.sahu,
    "shards": engine.shards,
    "temporal": engine.temporal,
    "wang": papers.wang,
}
"""How the figures of each suite are shown, unless by their names and values."""


def documents() -> list[Path]:
    """The files that have such marks, or may."""
    return [ROOT / "README.md", *sorted(DOCUMENTS.rglob("*.md")), *sorted(NOTES.glob("*.md"))]


def rendered(name: str) -> str:
    """The text between one pair of marks."""
    if name in SUMMARIES:
        return SUMMARIES[name]()
    document = json.loads((RESULTS / f"{name}.json").read_text())
    return (
        f"{provenance(document)}\n\n{TABLES.get(document['suite'], figures_and_values)(document)}"
    )


def with_figures(text: str) -> str:
    """A document with the text of every pair of marks."""
    return MARKS.sub(lambda match: f"{match[1]}{rendered(match['name'])}\n{match[4]}", text)
