"""How a table is made from the rows of a record."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from math import exp, fsum, log
from pathlib import Path
from string import Formatter
from types import MappingProxyType
from typing import Any

Record = dict[str, Any]
"""A file in benchmarks/results/: see benchmarks/README.md."""

Row = dict[str, Any]
"""One of its figures."""

FORMS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("forms.toml").read_text("utf-8")
)
"""See `table`."""


class _Format(Formatter):
    """Fields are members of a row by their names, or else expressions of them."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        try:
            return super().get_field(field_name, args, kwargs)
        except (AttributeError, KeyError, TypeError):
            return eval(field_name, {"short": short, **kwargs}), field_name


def shown(text: str, row: Row) -> str:
    """The text with what its fields are in a row. Of several with `` ?? `` between them the first
    whose fields the row has; empty if it lacks some of each.
    """
    for each in text.split(" ?? "):
        try:
            return _Format().vformat(each, (), row)
        except (KeyError, NameError, SyntaxError, TypeError):  # an older record lacks it
            pass
    return ""


def heading(titles: str) -> list[str]:
    """The first two lines of a table, from ``title | title``."""
    line = f"| {titles} |".replace("|  |", "| |")
    return [line, "|" + " --- |" * (line.count("|") - 1)]


def table(
    form: str, rows: Iterable[Row], columns: Iterable[str] = (), named: str = "", **others: str
) -> str:
    """A table in one of FORMS, with these `others`, which has

    titles, cells  with `` | `` between them; a cell is `shown`, ``…`` stands for the columns of
                   several values, and ``@`` for `named`
    by             the members that rows of one line have in common: cells are of the first of them,
                   and of all, ``rows``
    across         the member whose values have columns, if they are not `columns`: numbers ascend,
                   None has none
    column, cell   the title of such a column, and what stands there
    """
    of, lines = FORMS[form] | others, list(rows)
    values: list[Any] = list(columns)
    places = [of["cell"].replace("…", value) for value in values]
    if across := of.get("across"):
        found = dict.fromkeys(row[across] for row in lines if row[across] is not None)
        values = sorted(found, key=lambda value: 0 if isinstance(value, str) else value)
        places = [f"{{…{place}}}" for place in range(len(values))]
    if "by" in of:
        groups_of = groups(lines, *of["by"].split()).values()
        lines = [own[0] | {"rows": own} for own in groups_of]
        for line in lines:
            at = {row.get(across): row | {"first": line} for row in line["rows"]}
            for place, value in enumerate(values):
                line[f"…{place}"] = shown(of["cell"], at[value]) if value in at else ""
    names = list(map(of.get("column", "{}").format, values))
    titles, cells = of["titles"].replace("@", named), of["cells"]
    if not values:
        titles, cells = titles.replace(" | …", ""), cells.replace(" | …", "")
    text = heading(titles.replace("…", " | ".join(names)))
    for line in lines:
        told = (shown(cell, line) for cell in cells.replace("…", " | ".join(places)).split(" | "))
        text.append(f"| {' | '.join(told)} |")
    return "\n".join(text)


def formed(document: Record) -> str:
    """The rows of a record in the form of its suite, below its text if there is one."""
    figures, suite = document["figures"], document["suite"]
    rows = figures if isinstance(figures, list) else figures["rows"]
    text = FORMS[suite].get("text")
    above = f"{shown(text, {} if rows is figures else figures)}\n\n" if text else ""
    return above + table(suite, rows)


def figures_and_values(document: Record) -> str:
    """The figures as they are, one a row; groups of them as names and values."""
    rows = (_shown(*each) for each in document["figures"].items() if each[1] != "")
    return table("figures-and-values", rows)


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
    found = figures["milliseconds"] if size else figures["rows"]
    rows = ({"name": name, **row} for name, row in found.items())
    told = f"The other commit: `{figures['other commit']}`{size}."
    return f"{told}\n\n{table('commits', rows, named='ms' if size else '')}"


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
