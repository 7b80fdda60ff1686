"""Draws when a personalized query had better push or pull, from the recorded trace (Wang et al.,
figure 2(c)): docs/switch.svg.

    python -m benchmarks.switch
"""

from __future__ import annotations

from math import log10
from typing import Any

from benchmarks.harness import load
from benchmarks.tables import DOCUMENTS, provenance

PICTURE = DOCUMENTS / "switch.svg"

_WIDTH, _HEIGHT = 640, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 50, 90
_PUSH, _PULL = "#c2410c", "#1d4ed8"


def drawn(document: dict[str, Any]) -> str:
    """The picture as SVG: time of each iteration by either method, and the sign of Ψ below."""
    rows = document["figures"]["trace"]
    times = [row[name] for row in rows for name in ("push_ms", "pull_ms")]
    low, high = log10(min(times)) - 0.1, log10(max(times)) + 0.1

    def across(iteration: int) -> float:
        step = (_WIDTH - _LEFT - _RIGHT) / len(rows)
        return _LEFT + (iteration - 0.5) * step

    def up(milliseconds: float) -> float:
        part = (log10(milliseconds) - low) / (high - low)
        return _HEIGHT - _BOTTOM - part * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        f"<title>{provenance(document)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="20">milliseconds of each iteration from one vertex of R-MAT 24'
        " (log scale)</text>",
    ]
    for tick in (0.1, 1, 10):
        if low <= log10(tick) <= high:
            parts.append(
                f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{up(tick):.1f}"'
                f' y2="{up(tick):.1f}" stroke="#ddd"/>'
                f'<text x="{_LEFT - 8}" y="{up(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
            )
    for name, colour in (("push", _PUSH), ("pull", _PULL)):
        points = [(across(row["iteration"]), up(row[f"{name}_ms"])) for row in rows]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
        x, y = points[-1]
        parts.append(f'<text x="{x - 12:.1f}" y="{y - 8:.1f}" fill="{colour}">{name}</text>')
    for label, y in (("quicker", _HEIGHT - 58), ("Ψ says", _HEIGHT - 34)):
        parts.append(f'<text x="{_LEFT - 8}" y="{y}" text-anchor="end">{label}</text>')
    for row in rows:
        ideal = "push" if row["push_ms"] < row["pull_ms"] else "pull"
        chosen = "push" if row["score"] < 0 else "pull"
        for name, y in ((ideal, _HEIGHT - 58), (chosen, _HEIGHT - 34)):
            colour = _PUSH if name == "push" else _PULL
            parts.append(
                f'<text x="{across(row["iteration"]):.1f}" y="{y}" text-anchor="middle"'
                f' fill="{colour}">{name}</text>'
            )
        parts.append(
            f'<text x="{across(row["iteration"]):.1f}" y="{_HEIGHT - 10}" text-anchor="middle">'
            f"{row['iteration']}</text>"
        )
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def main() -> None:
    PICTURE.write_text(drawn(load("personalized", "cuda")), "utf-8")


if __name__ == "__main__":
    main()
