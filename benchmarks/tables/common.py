"""What the tables of several suites share."""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]
"""A file in benchmarks/results/: see benchmarks/README.md."""

Row = dict[str, Any]
"""One of its figures."""


def heading(titles: str) -> list[str]:
    """The first two lines of a table, from ``| title | title |``."""
    return [titles, "|" + " --- |" * (titles.count("|") - 1)]


def figures_and_values(document: Record) -> str:
    """The figures as they are, one a row; groups of them as names and values."""
    lines = heading("| figure | measured |")
    for name, value in document["figures"].items():
        if isinstance(value, dict):
            pairs = (
                f"{part.replace('_', ' ')} {_number(number)}" for part, number in value.items()
            )
            lines.append(f"| {name} | {'; '.join(pairs)} |")
        elif isinstance(value, list):
            lines.append(f"| {name} | {', '.join(map(_number, value))} |")
        else:
            lines.append(f"| {name} | {_number(value)} |")
    return "\n".join(lines)


def two_commits(title: str, unit: str, rows: Row) -> str:
    """Figures of two commits and their ratios, one a row."""
    lines = [title, "", *heading(f"| {unit} | other | this | ratio |")]
    for name, row in rows.items():
        lines.append(f"| {name} | {row['other']:.3f} | {row['this']:.3f} | {row['ratio']:.2f} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,}"
