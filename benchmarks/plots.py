"""The plots of the documents and notes, as SVG, from recorded figures.

    python -m benchmarks.plots

docs/peers.svg: how many times as fast as other libraries, from benchmarks.peers.
docs/switch.svg: when a personalized query should push and when it should pull, from the trace of
benchmarks.personalized (Wang et al., figure 2(c)).
benchmarks/notes/error-against-time-BACKEND.svg: what accuracy costs, from benchmarks.sahu temporal.
benchmarks/notes/{attachment-*,kim,sahu-*,wang-*}.svg: figures of four papers.
A test compares them with benchmarks/results/.
"""

from __future__ import annotations

from math import log10
from pathlib import Path

from benchmarks.harness import DOCUMENTS, NOTES, load, place, provenance
from benchmarks.svg import Axis, Panel, Points, line, opening, panels, text
from benchmarks.tables.common import Record, Row, groups


def note(document: Record) -> str:
    return provenance(document).replace("`", "")


def error_against_time(document: Record) -> str:
    """A panel for each network and a line for each strategy."""
    axes, shown = ("time of a batch, median, ms", "L1 error, mean"), []
    for (network,), rows in groups(document["figures"]["accuracies"], "network").items():
        lines = {
            strategy: [(row["median_solve_ms"], row["mean_error"]) for row in own]
            for (strategy,), own in groups(rows, "strategy").items()
        }
        shown.append(Panel(network, *axes, lines))
    return panels(shown, note(document))


_TRACE_WIDTH, _TRACE_HEIGHT = 640, 340
_TRACE_LEFT, _TRACE_RIGHT, _TRACE_TOP, _TRACE_BOTTOM = 70, 20, 50, 90
_FASTER_ROW, _SCORE_ROW = _TRACE_HEIGHT - 58, _TRACE_HEIGHT - 34
_METHOD_COLOURS = {"push": "#c2410c", "pull": "#3b82f6"}


def push_or_pull(document: Record) -> str:
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


def times_as_fast(document: Record) -> str:
    """A row for each library, with a dot for each graph and error."""
    rows = document["figures"]["solves"]
    peers = groups(rows, "peer")
    across = Axis(
        [row["times_as_fast"] for row in rows], _PEERS_LEFT, _PEERS_LEFT + _PEERS_WIDTH - 40
    )
    bottom = _PEERS_TOP + len(peers) * _PEERS_ROW
    lines = opening(_PEERS_LEFT + _PEERS_WIDTH, bottom + 50)
    where = place(document)
    title = f"ranks from nothing on one core: liverank is so many times as fast ({where})"
    lines.append(text(10, 20, title, "start", 12))
    for power in across.powers:
        x = across(10.0**power)
        lines += [line(x, _PEERS_TOP, x, bottom), text(x, bottom + 16, f"{10**power}", "middle")]
    for number, ((peer,), own) in enumerate(peers.items()):
        y = _PEERS_TOP + (number + 0.5) * _PEERS_ROW
        lines.append(text(_PEERS_LEFT - 10, y + 4, peer, "end"))
        lines += [
            f'<circle cx="{across(each["times_as_fast"])}" cy="{y}" r="5" fill="#2980b9"'
            ' fill-opacity="0.7"/>'
            for each in own
        ]
    under = "a dot for each graph and error of the other; least processor time of five rounds"
    lines += [text(10, bottom + 40, under, "start", 9), "</svg>"]
    return "\n".join(lines) + "\n"


# ---- figures of papers ----

PAPER_MS = 1480.0
"""Alam and Perumalla, section 4.6.1: a billion edges by their algorithm on a GeForce GTX 1080."""

ZERO = 1e-6
"""Where p = 0 is drawn on a logarithmic axis."""


def _by(rows: list[Row], name: str, by: str, across: str, up: str) -> dict[str, Points]:
    """A line for each value of `by`, in ascending order."""
    lines: dict[str, Points] = {}
    for row in sorted(rows, key=lambda row: (row[by], row[across])):
        lines.setdefault(f"{name} {row[by]:,}", []).append((row[across] or ZERO, row[up]))
    return lines


def attachment_degrees(document: Record) -> str:
    """Figures 3 and 7."""
    models: dict[str, Points] = {}
    probabilities: dict[str, Points] = {}
    for row in document["figures"]["degrees"]:
        points = list(zip(row["degrees"], row["shares"], strict=True))
        if row["probability"] == 0.5:
            models[f"{row['model']}, {row['vertices']:,}"] = points
        if row["model"] == "liverank":
            probabilities.setdefault(f"p = {row['probability']:g}", points)
    axes = ("degree", "share of the vertices")
    lines = {"Figure 3: p = 1/2": models, "Figure 7: by probability": probabilities}
    return panels([Panel(title, *axes, own) for title, own in lines.items()], note(document))


def attachment_times(document: Record) -> str:
    """Figures 11 to 15, as far as they are in the record."""
    figures = document["figures"]
    paper = {"cuPPA, GTX 1080, p = 0.5": [(1e9, PAPER_MS)]} if document["backend"] == "cuda" else {}
    rows = [
        row | {"edges": row["vertices"] * row["edges_per_vertex"]}
        for row in figures["vertices by probability"]
    ]
    by_edges = _by(rows, "p =", "probability", "edges", "median_ms")
    shown = [Panel("Figure 11: d = 4", "edges", "milliseconds", by_edges | paper)]
    d = "edges_per_vertex"
    for figure, title, by, across, label in (
        ("vertices by edges of a vertex", "Figure 12: p = 1/2", d, "vertices", "vertices"),
        ("edges of a vertex", "Figure 13", "probability", d, "edges of a vertex"),
        ("probability", "Figure 14", d, "probability", "p (0 at 1e-6)"),
    ):
        lines = _by(figures[figure], "d =" if by == d else "p =", by, across, "median_ms")
        shown.append(Panel(title, label, "milliseconds", lines))
    if "threads of a block" in figures:
        threads: Points = [(r["threads"], r["median_ms"]) for r in figures["threads of a block"]]
        axes = ("threads of a block", "milliseconds")
        shown.append(Panel("Figure 15: 1e9 edges", *axes, {"ours": threads}))
    return panels(shown, note(document), in_a_row=2 if len(shown) == 4 else 3)


def attachment_queues(document: Record) -> str:
    """Figures 8 and 9."""
    figures = document["figures"]
    queued = [row for row in figures["largest queue"] if row["largest_queue"]]
    largest = _by(queued, "p =", "probability", "edges_per_vertex", "largest_queue")
    worst: Points = [(row["edges_per_vertex"],) * 2 for row in queued if row["probability"] == 0]
    rounds: Points = [(row["round"], row["largest_queue"]) for row in figures["queue by round"]]
    bound, title = "worst case, d", "Figure 8: 1,280 vertices a round"
    shown = Panel(title, "d", "largest queue", largest | {bound: worst}, frozenset({bound}))
    title = "Figure 9: d = 512, p = 0, 512 vertices a round"
    lines = {"queued edges of a vertex, largest": rounds}
    return panels([shown, Panel(title, "round", "largest queue", lines)], note(document))


def kim(document: Record) -> str:
    """Figures 4 and 5: random graphs, by edges of a vertex."""
    shown = []
    for figure, title in (("4", "Figure 4: 2M vertices"), ("5", "Figure 5: 8M vertices")):
        lines: dict[str, Points] = {}
        for row in document["figures"]:
            for what in ("iterations", "with_transfers"):
                if row["figure"] == figure and f"{what}_ms" in row:
                    point = (row["edges"] / row["vertices"], row[f"{what}_ms"])
                    name = f"{row['method']}, {what.removeprefix('with_')}"
                    lines.setdefault(name, []).append(point)
        dashed = frozenset(name for name in lines if name.endswith("transfers"))
        labels = ("edges of a vertex", "milliseconds, ten iterations")
        shown.append(Panel(title, *labels, lines, dashed))
    return panels(shown, note(document))


def sahu(document: Record) -> str:
    """Figures 3 and 9 to 13, or 4 and 5: for each graph the time of a batch by its size, and its
    error; for temporal networks the time of each batch of 1e-4 of the events too. `self-loop`.
    """
    rows = [
        row | {"name": row["contender"].removesuffix(", published")}
        for row in document["figures"]
        if row["dangling"] == "self-loop" and row["figures"] not in ("1", "2")
        if not row["contender"].endswith("accelerated")
    ]
    shown = []
    for (graph,), own in groups(rows, "graph").items():
        for field, label in (("median_ms", "milliseconds"), ("mean_error", "L1 error")):
            lines = {
                name: [(row["fraction"], row[field]) for row in each]
                for (name,), each in groups(own, "name").items()
            }
            shown.append(Panel(graph, "batch, part of the edges", label, lines))
        series = {
            row["name"]: _each(row["ms_of_each"])
            for row in own
            if row["fraction"] == 1e-4 and row["figures"] == "3, 9-13"
        }
        if series:
            shown.append(Panel(f"{graph}, 1e-4", "batch", "milliseconds", series))
    return panels(shown, note(document))


def _each(column: str) -> Points:
    """Numbers by their places."""
    return [(float(at), float(number)) for at, number in enumerate(column.split(), start=1)]


def wang(document: Record) -> str:
    """Figure 2: the time of a query by the edges of the graph, and for each graph the time of every
    iteration by push, by pull and of the hybrid, which changes where Ψ changes its sign.
    """
    figures = document["figures"]
    times: dict[str, Points] = {}
    for row in sorted(figures["times"], key=lambda row: row["edges"]):
        name = row["method"] if row["form"] == "published" else f"ours, {row['method']}"
        times.setdefault(name, []).append((row["edges"], row["median_ms"]))
    dashed = frozenset(name for name in times if name.startswith("ours"))
    shown = [Panel("Figure 2 (a), (b)", "edges", "milliseconds", times, dashed)]
    for row in figures["switching"]:
        lines = {name: _each(row[f"{name}_ms"]) for name in ("pushopt", "pull", "hybrid")}
        shown.append(Panel(f"(c): {row['graph']}", "iteration", "milliseconds", lines))
    return panels(shown, note(document))


def plots() -> dict[Path, str]:
    """The file of each plot, and its text."""
    attachment = load("preferential-attachment", "cuda")
    drawn = {
        DOCUMENTS / "peers.svg": times_as_fast(load("peers", "cpu")),
        DOCUMENTS / "switch.svg": push_or_pull(load("personalized", "cuda")),
        NOTES / "attachment-degrees.svg": attachment_degrees(attachment),
        NOTES / "attachment-queues.svg": attachment_queues(load("cuppa", "cuda")),
        NOTES / "kim.svg": kim(load("kim", "cuda")),
    }
    for suite, name, draw in (
        ("temporal", "error-against-time", error_against_time),
        ("preferential-attachment", "attachment-times", attachment_times),
        ("sahu", "sahu", sahu),
        ("wang", "wang", wang),
    ):
        for backend in ("cpu", "cuda"):
            drawn[NOTES / f"{name}-{backend}.svg"] = draw(load(suite, backend))
    return drawn


def main() -> None:
    for path, drawn in plots().items():
        path.write_text(drawn, "utf-8")


if __name__ == "__main__":
    main()
