"""How a table is made from the rows of a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import exp, fsum, log
from types import MappingProxyType
from typing import Any

Record = dict[str, Any]
"""A file in benchmarks/results/: see benchmarks/README.md."""

Row = dict[str, Any]
"""One of its figures."""


def heading(titles: str) -> list[str]:
    """The first two lines of a table, from ``title | title``."""
    line = f"| {titles} |".replace("|  |", "| |")
    return [line, "|" + " --- |" * (line.count("|") - 1)]


def table(titles: str, cells: str, rows: Iterable[Row]) -> str:
    """A line for each row.

    titles, cells  with `` | `` between them; a cell is a format of the members of its row, and
                   empty if the row lacks one
    """
    lines = heading(titles)
    for row in rows:
        shown = [_cell(cell, row) for cell in cells.split(" | ")]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def _cell(cell: str, row: Row) -> str:
    try:
        return cell.format_map(row)
    except (KeyError, TypeError):  # an older record lacks it, or has no figure
        return ""


def of_rows(titles: str, cells: str) -> Callable[[Record], str]:
    """The table of a record whose figures are rows."""
    return lambda document: table(titles, cells, document["figures"])


def figures_and_values(document: Record) -> str:
    """The figures as they are, one a row; groups of them as names and values."""
    rows = (_shown(*each) for each in document["figures"].items() if each[1] != "")
    return table("figure | measured", "{name} | {value}", rows)


def _shown(name: str, value: Any) -> Row:
    if isinstance(value, Mapping):
        value = "; ".join(f"{part.replace('_', ' ')} {each:,}" for part, each in value.items())
    elif isinstance(value, list):
        value = ", ".join(f"{each:,}" for each in value)
    elif not isinstance(value, str):
        value = f"{value:,}"
    return {"name": name, "value": value}


def parts(document: Record, called: Mapping[str, str] = MappingProxyType({})) -> str:
    """The figures of several parts, a column for each; above them those that are of none.

    called  what figures are called in the table, by their names, if not by these
    """
    figures = {name: each for name, each in document["figures"].items() if each != ""}
    columns = {name: _members(part) for name, part in figures.items() if isinstance(part, Mapping)}
    rows = dict.fromkeys(name for column in columns.values() for name in column)
    alone = [f"{name} {_told(each)}" for name, each in figures.items() if name not in columns]
    lines = heading(" | ".join(["", *columns]))
    for name in rows:
        cells = " | ".join(column.get(name, "") for column in columns.values())
        lines.append(f"| {called.get(name, name)} | {cells} |")
    return "\n".join([*([f"{'; '.join(alone)}.", ""] if alone else []), *lines])


def _members(part: Mapping[str, Any], of: str = "") -> dict[str, str]:
    """Those of a part and of its parts, by what they are called; without long lists."""
    found: dict[str, str] = {}
    for name, value in part.items():
        called = f"{of}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            found |= _members(value, f"{called}, ")
        elif value is not None and (not isinstance(value, list) or len(value) < 8):
            found[called] = _told(value)
    return found


def _told(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_told, value))
    if isinstance(value, str):
        return value
    return short(value) if isinstance(value, float) else f"{value:,}"


def two_commits(document: Record) -> str:
    """Figures of two commits and their ratios, one a row."""
    figures = document["figures"]
    size = f"; R-MAT {figures['scale']}" if "scale" in figures else ""
    titles = f"{'ms' if size else ''} | other | this | ratio"
    found = figures["milliseconds"] if size else figures["rows"]
    return f"The other commit: `{figures['other commit']}`{size}.\n\n" + table(
        titles,
        "{name} | {other:.3f} | {this:.3f} | {ratio:.2f}",
        ({"name": name, **row} for name, row in found.items()),
    )


def groups(rows: Iterable[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by what they have there, in the order of the first of each."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def geometric_mean(values: Iterable[float]) -> float:
    """Raises ZeroDivisionError without values."""
    each = list(map(log, values))
    return exp(fsum(each) / len(each))


def short(value: float) -> str:
    """Three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
