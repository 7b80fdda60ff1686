"""The plots of the documents, as SVG, from recorded figures.

    python -m benchmarks.plots

docs/peers.svg: how many times as fast as other libraries, from benchmarks.peers.
docs/switch.svg: when a personalized query should push and when it should pull, from the trace of
benchmarks.personalized (Wang et al., figure 2(c)).
benchmarks/notes/error-against-time-BACKEND.svg: what accuracy costs, from benchmarks.temporal.
benchmarks/notes/{attachment-*,kim,sahu-*,wang-*}.svg: four papers (benchmarks.paper_plots).
A test compares them with benchmarks/results/.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log10
from pathlib import Path
from typing import Any

from benchmarks import harness, paper_plots
from benchmarks.harness import DOCUMENTS, NOTES, RESULTS, load, provenance
from benchmarks.svg import Axis, line, opening, text

COLOURS = {
    "auto": "#c0392b",
    "static": "#7f8c8d",
    "naive-dynamic": "#2980b9",
    "dynamic-traversal": "#27ae60",
    "dynamic-frontier": "#8e44ad",
    "dynamic-frontier-prune": "#d68910",
}

_PANEL_WIDTH, _PANEL_HEIGHT = 340, 300
_LEFT, _TOP, _GAP, _FOOT = 60, 34, 44, 100


def error_against_time(document: dict[str, Any]) -> str:
    """A panel for each network and a line for each strategy."""
    points = document["figures"]["accuracies"]
    networks = list(dict.fromkeys(point["network"] for point in points))
    width = _LEFT + len(networks) * (_PANEL_WIDTH + _GAP)
    height = _TOP + _PANEL_HEIGHT + _FOOT
    lines = opening(width, height)
    for place, network in enumerate(networks):
        own = [point for point in points if point["network"] == network]
        lines += _panel(network, own, _LEFT + place * (_PANEL_WIDTH + _GAP))
    for place, (strategy, colour) in enumerate(COLOURS.items()):
        left = _LEFT + place % 3 * 170
        base = _TOP + _PANEL_HEIGHT + 52 + place // 3 * 16
        lines += [
            f'<rect x="{left}" y="{base - 8}" width="18" height="4" fill="{colour}"/>',
            text(left + 24, base - 2, strategy, "start"),
        ]
    note = provenance(document).replace("`", "")
    lines += [text(_LEFT, height - 10, note, "start", 8), "</svg>"]
    return "\n".join(lines) + "\n"


def _panel(network: str, points: list[dict[str, Any]], left: float) -> Iterator[str]:
    across = Axis([point["median_solve_ms"] for point in points], left, left + _PANEL_WIDTH)
    up = Axis([point["mean_error"] for point in points], _TOP + _PANEL_HEIGHT, _TOP)
    yield text(left + _PANEL_WIDTH / 2, _TOP - 14, network, "middle", 13)
    for power in across.powers:
        x = across(10.0**power)
        yield line(x, _TOP, x, _TOP + _PANEL_HEIGHT)
        yield text(x, _TOP + _PANEL_HEIGHT + 14, f"{10.0**power:g} ms", "middle")
    for power in up.powers:
        y = up(10.0**power)
        yield line(left, y, left + _PANEL_WIDTH, y)
        yield text(left - 5, y + 4, f"1e{power}", "end")
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
    yield text(
        left + _PANEL_WIDTH / 2, _TOP + _PANEL_HEIGHT + 30, "time of a batch, median", "middle"
    )
    if left == _LEFT:
        middle = _TOP + _PANEL_HEIGHT / 2
        yield (
            f'<text x="14" y="{middle}" text-anchor="middle"'
            f' transform="rotate(-90 14 {middle})">L1 error, mean</text>'
        )


_TRACE_WIDTH, _TRACE_HEIGHT = 640, 340
_TRACE_LEFT, _TRACE_RIGHT, _TRACE_TOP, _TRACE_BOTTOM = 70, 20, 50, 90
_FASTER_ROW, _SCORE_ROW = _TRACE_HEIGHT - 58, _TRACE_HEIGHT - 34
_METHOD_COLOURS = {"push": "#c2410c", "pull": "#3b82f6"}


def push_or_pull(document: dict[str, Any]) -> str:
    """The time of each iteration by either method; below, the faster one and the sign of Ψ."""
    rows = document["figures"]["trace"]
    times = [row[name] for row in rows for name in ("push_ms", "pull_ms")]
    low, high = log10(min(times)) - 0.1, log10(max(times)) + 0.1

    def across(iteration: int) -> float:
        step = (_TRACE_WIDTH - _TRACE_LEFT - _TRACE_RIGHT) / len(rows)
        return _TRACE_LEFT + (iteration - 0.5) * step

    def up(milliseconds: float) -> float:
        part = (log10(milliseconds) - low) / (high - low)
        return _TRACE_HEIGHT - _TRACE_BOTTOM - part * (_TRACE_HEIGHT - _TRACE_TOP - _TRACE_BOTTOM)

    parts = [
        *opening(_TRACE_WIDTH, _TRACE_HEIGHT, 12),
        f"<title>{provenance(document)}</title>",
        f'<text x="{_TRACE_LEFT}" y="20">milliseconds of each iteration from one vertex of R-MAT 24'
        " (log scale)</text>",
    ]
    for tick in (0.1, 1, 10):
        if low <= log10(tick) <= high:
            parts.append(
                f'<line x1="{_TRACE_LEFT}" x2="{_TRACE_WIDTH - _TRACE_RIGHT}" y1="{up(tick):.1f}"'
                f' y2="{up(tick):.1f}" stroke="#ddd"/><text x="{_TRACE_LEFT - 8}"'
                f' y="{up(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
            )
    for name, colour in _METHOD_COLOURS.items():
        points = [(across(row["iteration"]), up(row[f"{name}_ms"])) for row in rows]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
        x, y = points[-1]
        parts.append(f'<text x="{x - 12:.1f}" y="{y - 8:.1f}" fill="{colour}">{name}</text>')
    for label, y in (("quicker", _FASTER_ROW), ("Ψ says", _SCORE_ROW)):
        parts.append(f'<text x="{_TRACE_LEFT - 8}" y="{y}" text-anchor="end">{label}</text>')
    for row in rows:
        faster = "push" if row["push_ms"] < row["pull_ms"] else "pull"
        chosen = "push" if row["score"] < 0 else "pull"
        for name, y in ((faster, _FASTER_ROW), (chosen, _SCORE_ROW)):
            parts.append(
                f'<text x="{across(row["iteration"]):.1f}" y="{y}" text-anchor="middle"'
                f' fill="{_METHOD_COLOURS[name]}">{name}</text>'
            )
        parts.append(
            f'<text x="{across(row["iteration"]):.1f}" y="{_TRACE_HEIGHT - 10}"'
            f' text-anchor="middle">{row["iteration"]}</text>'
        )
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


_PEERS_LEFT, _PEERS_WIDTH, _PEERS_ROW, _PEERS_TOP = 90, 560, 30, 40


def times_as_fast(document: dict[str, Any]) -> str:
    """A row for each library, with a dot for each graph and error."""
    rows = document["figures"]["solves"]
    peers = list(dict.fromkeys(row["peer"] for row in rows))
    across = Axis(
        [row["times_as_fast"] for row in rows], _PEERS_LEFT, _PEERS_LEFT + _PEERS_WIDTH - 40
    )
    bottom = _PEERS_TOP + len(peers) * _PEERS_ROW
    lines = opening(_PEERS_LEFT + _PEERS_WIDTH, bottom + 50)
    where = harness.place(document)
    title = f"ranks from nothing on one core: liverank is so many times as fast ({where})"
    lines.append(text(10, 20, title, "start", 12))
    for power in across.powers:
        x = across(10.0**power)
        lines += [line(x, _PEERS_TOP, x, bottom), text(x, bottom + 16, f"{10**power}", "middle")]
    for row, peer in enumerate(peers):
        y = _PEERS_TOP + (row + 0.5) * _PEERS_ROW
        lines.append(text(_PEERS_LEFT - 10, y + 4, peer, "end"))
        lines += [
            f'<circle cx="{across(each["times_as_fast"])}" cy="{y}" r="5" fill="#2980b9"'
            ' fill-opacity="0.7"/>'
            for each in rows
            if each["peer"] == peer
        ]
    note = "a dot for each graph and error of the other; least processor time of five rounds"
    lines += [text(10, bottom + 40, note, "start", 9), "</svg>"]
    return "\n".join(lines) + "\n"


def plots() -> dict[Path, str]:
    """The file of each plot, and its text."""
    drawn = {
        NOTES / f"error-against-time-{backend}.svg": error_against_time(load("temporal", backend))
        for backend in ("cpu", "cuda")
        if (RESULTS / f"temporal-{backend}.json").exists()
    }
    drawn[DOCUMENTS / "peers.svg"] = times_as_fast(load("peers", "cpu"))
    drawn[DOCUMENTS / "switch.svg"] = push_or_pull(load("personalized", "cuda"))
    for backend in ("cpu", "cuda"):
        if (RESULTS / f"sahu-{backend}.json").exists():
            drawn[NOTES / f"sahu-{backend}.svg"] = paper_plots.sahu(load("sahu", backend))
        if (RESULTS / f"wang-{backend}.json").exists():
            drawn[NOTES / f"wang-{backend}.svg"] = paper_plots.wang(load("wang", backend))
    attachment = load("preferential-attachment", "cuda")
    return drawn | {
        NOTES / "attachment-degrees.svg": paper_plots.attachment_degrees(attachment),
        NOTES / "attachment-queues.svg": paper_plots.attachment_queues(load("cuppa", "cuda")),
        NOTES / "attachment-times-cuda.svg": paper_plots.attachment_times(attachment),
        NOTES / "attachment-times-cpu.svg": paper_plots.attachment_times(
            load("preferential-attachment", "cpu")
        ),
        NOTES / "kim.svg": paper_plots.kim(load("kim", "cuda")),
    }


def main() -> None:
    for path, drawn in plots().items():
        path.write_text(drawn, "utf-8")


if __name__ == "__main__":
    main()
