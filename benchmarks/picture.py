"""Draws what accuracy costs, from the recorded figures of benchmarks.temporal: one SVG a backend.

    python -m benchmarks.picture

A test holds the pictures in docs/ against benchmarks/results/.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS, load
from benchmarks.tables import DOCUMENTS, provenance

COLOURS = {
    "auto": "#c0392b",
    "static": "#7f8c8d",
    "naive-dynamic": "#2980b9",
    "dynamic-traversal": "#27ae60",
    "dynamic-frontier": "#8e44ad",
    "dynamic-frontier-prune": "#d68910",
}

_WIDTH, _HEIGHT = 340, 300
_LEFT, _TOP, _GAP, _FOOT = 60, 34, 44, 100


class _Axis:
    """A logarithmic axis of whole powers of ten, from one pixel to another."""

    def __init__(self, values: list[float], first: float, last: float) -> None:
        self.low = floor(log10(min(values)))
        self.high = max(ceil(log10(max(values))), self.low + 1)
        self._first, self._last = first, last

    def __call__(self, value: float) -> float:
        share = (log10(value) - self.low) / (self.high - self.low)
        return round(self._first + share * (self._last - self._first), 1)

    @property
    def powers(self) -> range:
        return range(self.low, self.high + 1)


def picture(document: dict[str, Any]) -> str:
    """The SVG: a panel a network, error against time, a line a strategy."""
    points = document["figures"]["accuracies"]
    networks = list(dict.fromkeys(point["network"] for point in points))
    width = _LEFT + len(networks) * (_WIDTH + _GAP)
    height = _TOP + _HEIGHT + _FOOT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for place, network in enumerate(networks):
        own = [point for point in points if point["network"] == network]
        lines += _panel(network, own, _LEFT + place * (_WIDTH + _GAP))
    for place, (strategy, colour) in enumerate(COLOURS.items()):
        left = _LEFT + place % 3 * 170
        base = _TOP + _HEIGHT + 52 + place // 3 * 16
        lines += [
            f'<rect x="{left}" y="{base - 8}" width="18" height="4" fill="{colour}"/>',
            _text(left + 24, base - 2, strategy, "start"),
        ]
    note = provenance(document).replace("`", "")
    lines += [_text(_LEFT, height - 10, note, "start", 8), "</svg>"]
    return "\n".join(lines) + "\n"


def _panel(network: str, points: list[dict[str, Any]], left: float) -> Iterator[str]:
    across = _Axis([point["median_solve_ms"] for point in points], left, left + _WIDTH)
    up = _Axis([point["mean_error"] for point in points], _TOP + _HEIGHT, _TOP)
    yield _text(left + _WIDTH / 2, _TOP - 14, network, "middle", 13)
    for power in across.powers:
        x = across(10.0**power)
        yield _line(x, _TOP, x, _TOP + _HEIGHT)
        yield _text(x, _TOP + _HEIGHT + 14, f"{10.0**power:g} ms", "middle")
    for power in up.powers:
        y = up(10.0**power)
        yield _line(left, y, left + _WIDTH, y)
        yield _text(left - 5, y + 4, f"1e{power}", "end")
    for strategy, colour in COLOURS.items():
        places = [
            (across(point["median_solve_ms"]), up(point["mean_error"]))
            for point in points
            if point["strategy"] == strategy
        ]
        path = " ".join(f"{x},{y}" for x, y in places)
        thick = 2.5 if strategy == "auto" else 1.5
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{thick}"/>'
        yield from (f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in places)
    yield _text(left + _WIDTH / 2, _TOP + _HEIGHT + 30, "time of a batch, median", "middle")
    if left == _LEFT:
        middle = _TOP + _HEIGHT / 2
        yield (
            f'<text x="14" y="{middle}" text-anchor="middle"'
            f' transform="rotate(-90 14 {middle})">L1 error, mean</text>'
        )


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#dddddd"/>'


def _text(x: float, y: float, words: str, anchor: str, size: int = 11) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}">{words}</text>'


def pictures() -> dict[Path, str]:
    """Each picture's file and what belongs into it."""
    return {
        DOCUMENTS / f"error-against-time-{backend}.svg": picture(load("temporal", backend))
        for backend in ("cpu", "cuda")
        if (RESULTS / f"temporal-{backend}.json").exists()
    }


def main() -> None:
    for path, drawn in pictures().items():
        path.write_text(drawn, "utf-8")


if __name__ == "__main__":
    main()
