"""Markdown of headings, tables and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence

_ENTRY = re.compile(r"(\S.*?) {2,}(\S.*)")
_SHORT_ENTRY = re.compile(r"(\w+): (\S.*)")
_EXAMPLE = re.compile(r"(async )?with |\w+ = ")


def heading(level: int, text: str) -> list[str]:
    return ["", "#" * level + " " + text, ""]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Nothing if there are no rows."""
    lines = ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    if not lines:
        return []
    return [
        "| " + " | ".join(head) + " |",
        "| " + " | ".join("---" for _ in head) + " |",
        *lines,
        "",
    ]


def code(text: str) -> str:
    return f"`{text}`"


def docstring(documented: object) -> list[str]:
    """The docstring of an object. Its lists, a name and what it means on each line, become tables,
    and its examples blocks of code.
    """
    lines: list[str] = []
    for text, entries in _parts(documented):
        lines += [*text, "", *table(("name", "meaning"), _coded(entries))]
    return lines


def members(documented: object) -> tuple[list[str], dict[str, str]]:
    """The docstring of a class without its lists, and what they say of each member."""
    lines: list[str] = []
    meanings: dict[str, str] = {}
    for text, entries in _parts(documented):
        lines += [*text, ""]
        for names, meaning in entries:
            meanings |= dict.fromkeys(names.split(", "), meaning)
    return lines, meanings


def _parts(documented: object) -> Iterator[tuple[list[str], list[tuple[str, str]]]]:
    """Lines of text, each with the list that follows them."""
    for paragraph in re.split(r"\n\n+", inspect.getdoc(documented) or ""):
        lines = paragraph.splitlines()
        if lines and _EXAMPLE.match(lines[0]):
            yield ["```python", *lines, "```"], []
            continue
        short = [_SHORT_ENTRY.fullmatch(line) for line in lines]
        if lines and all(short):
            yield [], [(found[1], found[2]) for found in short if found]
            continue
        text: list[str] = []
        entries: list[tuple[str, str]] = []
        for line in lines:
            found = _ENTRY.fullmatch(line)
            if found:
                entries.append((found[1], found[2]))
            elif entries and line.startswith(" "):
                name, meaning = entries[-1]
                entries[-1] = name, f"{meaning} {line.strip()}"
            elif entries:
                yield text, entries
                text, entries = [line], []
            else:
                text.append(line)
        yield text, entries


def _coded(entries: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for name, meaning in entries:
        yield code(name), meaning


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
