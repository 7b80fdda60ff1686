"""Puts the recorded figures into the documents, between the marks

    <!-- figures: SUITE-BACKEND -->
    <!-- end of figures -->

    python -m benchmarks.tables

A test holds the documents against benchmarks/results/, so a figure cannot be edited by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS

DOCUMENTS = Path(__file__).parents[1] / "docs"

MARKS = re.compile(
    r"(<!-- figures: (?P<name>[\w.-]+) -->\n)(?P<table>.*?)(<!-- end of figures -->)", re.DOTALL
)


def provenance(document: dict[str, Any]) -> str:
    """One line that says where, from what and how the figures were made."""
    machine = document["machine"]
    where = machine.get("device", f"{machine['processor']}, {machine['cores']} cores")
    return f"Measured on {where}, commit `{document['commit']}`, by `{document['command']}`."


def strategies(document: dict[str, Any]) -> str:
    """A table a dangling policy: batch size and strategy against time, work and error."""
    parts = []
    figures = document["figures"]
    for dangling in dict.fromkeys(row["dangling"] for row in figures):
        parts.append(
            f"`{dangling}`:\n\n"
            "| batch | strategy | solve, ms (mean) | (median) | iterations | touched | L1 error"
            " | error bound |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
        )
        rows = [row for row in figures if row["dangling"] == dangling]
        parts += [
            f"| {row['fraction']:.0e} ({row['batch_size']}) | {row['strategy']}"
            f" | {row['mean_solve_ms']:.2f} | {row['median_solve_ms']:.2f}"
            f" | {row['mean_iterations']:.1f} | {row['mean_touched_vertices']:,.0f}"
            f" | {row['mean_error']:.1e} | {row['mean_error_bound']:.1e} |"
            for row in rows
        ]
        parts.append("")
    return "\n".join(parts)


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {"strategies-sx-mathoverflow": strategies}
"""How the figures of each suite are shown."""


def rendered(name: str) -> str:
    """The text for one pair of marks."""
    document = json.loads((RESULTS / f"{name}.json").read_text())
    return f"{provenance(document)}\n\n{TABLES[document['suite']](document)}"


def with_figures(text: str) -> str:
    """The document with every pair of marks filled from the recorded figures."""
    return MARKS.sub(lambda match: f"{match[1]}{rendered(match['name'])}\n{match[4]}", text)


def main() -> None:
    for path in sorted(DOCUMENTS.glob("*.md")):
        path.write_text(with_figures(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
