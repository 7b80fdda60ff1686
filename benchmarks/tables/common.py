"""How a table is made from the rows of a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import exp, fsum, log
from string import Formatter
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


class _Format(Formatter):
    """Fields are members of a row by their names, or else expressions of them."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        try:
            return super().get_field(field_name, args, kwargs)
        except (AttributeError, KeyError):
            return eval(field_name, {"short": short, **kwargs}), field_name


def shown(text: str, row: Row) -> str:
    """The text with what its fields are in a row; empty if the row lacks one."""
    try:
        return _Format().vformat(text, (), row)
    except (KeyError, NameError, SyntaxError, TypeError):  # an older record lacks it
        return ""


def table(titles: str, cells: str, rows: Iterable[Row]) -> str:
    """A line for each row.

    titles, cells  with `` | `` between them; a cell is `shown`
    """
    lines = heading(titles)
    for row in rows:
        lines.append(f"| {' | '.join(shown(cell, row) for cell in cells.split(' | '))} |")
    return "\n".join(lines)


def of_rows(titles: str, cells: str) -> Callable[[Record], str]:
    """The table of a record whose figures are rows."""
    return lambda document: table(titles, cells, document["figures"])


def grouped(
    titles: str,
    cells: str,
    rows: Iterable[Row],
    by: str,
    across: str,
    cell: str,
    column: str = "{}",
) -> str:
    """A line for each group of rows, with a column for each value of a member.

    titles, cells  as in `table`, of the first row of a group and of all ``rows``; ``*`` stands for
                   the columns
    by             the members that the rows of a group have in common
    across, cell   the member that has columns, and what stands there; numbers ascend. Rows where it
                   is None have none
    column         the title of one
    """
    rows = list(rows)
    found = dict.fromkeys(row[across] for row in rows if row[across] is not None)
    values = sorted(found, key=lambda value: 0 if isinstance(value, str) else value)
    titles = titles.replace("*", " | ".join(map(column.format, values)))
    lines = []
    for own in groups(rows, *by.split()).values():
        at = {row[across]: row for row in own}
        columns = {f"*{n}": shown(cell, at.get(value, {})) for n, value in enumerate(values)}
        lines.append(own[0] | {"rows": own} | columns)
    places = " | ".join(f"{{*{n}}}" for n in range(len(values)))
    return table(titles, cells.replace("*", places), lines)


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
