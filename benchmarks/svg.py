"""Axes, lines and text of the plots, as SVG; and panels of lines over two logarithmic axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor, log10

Points = list[tuple[float, float]]

_PALETTE = (
    *("#c0392b", "#2980b9", "#27ae60", "#8e44ad", "#d68910", "#16a085", "#7f8c8d", "#c2549d"),
)
_WIDTH, _HEIGHT = 300, 240
_LEFT, _TOP, _GAP, _ROW = 66, 34, 70, 15


_STYLE = (
    ".paper{fill:#ffffff}text:not([fill]){fill:#1f2328}line{stroke:#d8dee4}"
    "@media(prefers-color-scheme:dark)"
    "{.paper{fill:#0d1117}text:not([fill]){fill:#d1d7e0}line{stroke:#3d444d}}"
)
"""Light or dark, as the reader's browser prefers. Lines of data have colours that suit both."""


def opening(width: float, height: float, size: int = 11) -> list[str]:
    """The beginning of an SVG with text of this size, on a background."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' font-family="sans-serif" font-size="{size}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{height}" fill="white"/>',
    ]


class Axis:
    """A logarithmic axis of whole powers of ten, from one pixel to another."""

    def __init__(self, values: list[float], first: float, last: float) -> None:
        self.low = floor(log10(min(values)))
        self.high = max(ceil(log10(max(values))), self.low + 1)
        self._first, self._last = first, last

    def __call__(self, value: float) -> float:
        part = (log10(value) - self.low) / (self.high - self.low)
        return round(self._first + part * (self._last - self._first), 1)

    @property
    def powers(self) -> range:
        return range(self.low, self.high + 1)


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#dddddd"/>'


def text(x: float, y: float, words: str, anchor: str, size: int = 11) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}">{words}</text>'


@dataclass(frozen=True)
class Panel:
    """Lines over two logarithmic axes; those named in `dashed` are dashed, and a line of one point
    is a large dot.
    """

    title: str
    across: str
    up: str
    lines: dict[str, Points]
    dashed: frozenset[str] = frozenset()


def panels(shown: list[Panel], note: str, in_a_row: int = 3) -> str:
    """An SVG of panels, `in_a_row` beside each other, each above its legend."""
    legend = max(len(panel.lines) for panel in shown)
    tall = _TOP + _HEIGHT + 46 + (legend + 1) // 2 * _ROW
    rows = ceil(len(shown) / in_a_row)
    width = _LEFT + min(in_a_row, len(shown)) * (_WIDTH + _GAP)
    height = rows * tall + 20
    parts = opening(width, height)
    for place, panel in enumerate(shown):
        left = _LEFT + place % in_a_row * (_WIDTH + _GAP)
        parts += _panel(panel, left, place // in_a_row * tall + _TOP)
    return "\n".join([*parts, text(_LEFT, height - 8, note, "start", 8), "</svg>"]) + "\n"


def _panel(panel: Panel, left: float, top: float) -> Iterator[str]:
    points = [point for own in panel.lines.values() for point in own]
    bottom = top + _HEIGHT
    across = Axis([x for x, _ in points], left, left + _WIDTH)
    up = Axis([y for _, y in points], bottom, top)
    yield text(left + _WIDTH / 2, top - 14, panel.title, "middle", 13)
    for power in across.powers:
        x = across(10.0**power)
        yield line(x, top, x, bottom)
        yield text(x, bottom + 14, _power(power), "middle")
    for power in up.powers:
        y = up(10.0**power)
        yield line(left, y, left + _WIDTH, y)
        yield text(left - 5, y + 4, _power(power), "end")
    yield text(left + _WIDTH / 2, bottom + 29, panel.across, "middle")
    yield (
        f'<text x="{left - 46}" y="{top + _HEIGHT / 2}" text-anchor="middle"'
        f' transform="rotate(-90 {left - 46} {top + _HEIGHT / 2})">{panel.up}</text>'
    )
    for place, (name, points) in enumerate(panel.lines.items()):
        colour = _PALETTE[place % len(_PALETTE)]
        places = [(across(x), up(y)) for x, y in points]
        dashes = ' stroke-dasharray="5 4"' if name in panel.dashed else ""
        path = " ".join(f"{x},{y}" for x, y in places)
        stroke = f'stroke="{colour}" stroke-width="1.5"{dashes}'
        yield f'<polyline points="{path}" fill="none" {stroke}/>'
        radius = 5 if len(points) == 1 else 2
        yield from (f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{colour}"/>' for x, y in places)
        x, y = left + place % 2 * (_WIDTH / 2), bottom + 46 + place // 2 * _ROW
        yield f'<rect x="{x}" y="{y - 5}" width="14" height="3" fill="{colour}"/>'
        yield text(x + 18, y, name, "start", 10)


def _power(power: int) -> str:
    return f"{10.0**power:g}" if -3 <= power <= 3 else f"1e{power}"
