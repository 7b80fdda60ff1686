"""Plots of the figures of benchmarks/notes/papers.md."""

from __future__ import annotations

from benchmarks.harness import provenance
from benchmarks.svg import Panel, Points, panels
from benchmarks.tables.common import Record, Row

PAPER_MS = 1480.0
"""Alam and Perumalla, section 4.6.1: a billion edges by their algorithm on a GeForce GTX 1080."""

ZERO = 1e-6
"""Where p = 0 is drawn on a logarithmic axis."""


def _lines(rows: list[Row], name: str, by: str, across: str, up: str) -> dict[str, Points]:
    """A line for each value of `by`, in ascending order."""
    lines: dict[str, Points] = {}
    for row in sorted(rows, key=lambda row: (row[by], row[across])):
        lines.setdefault(f"{name} {row[by]:,}", []).append((row[across] or ZERO, row[up]))
    return lines


def _note(document: Record) -> str:
    return provenance(document).replace("`", "")


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
    return panels(
        [
            Panel("Figure 3: p = 1/2", *axes, models),
            Panel("Figure 7: by probability", *axes, probabilities),
        ],
        _note(document),
    )


def attachment_times(document: Record) -> str:
    """Figures 11 to 15, as far as they are in the record."""
    figures = document["figures"]
    paper = {"cuPPA, GTX 1080, p = 0.5": [(1e9, PAPER_MS)]} if document["backend"] == "cuda" else {}
    rows = [
        row | {"edges": row["vertices"] * row["edges_per_vertex"]}
        for row in figures["vertices by probability"]
    ]
    by_edges = _lines(rows, "p =", "probability", "edges", "median_ms")
    shown = [Panel("Figure 11: d = 4", "edges", "milliseconds", by_edges | paper)]
    for figure, title, by, across, label in (
        (
            "vertices by edges of a vertex",
            "Figure 12: p = 1/2",
            "edges_per_vertex",
            "vertices",
            "vertices",
        ),
        ("edges of a vertex", "Figure 13", "probability", "edges_per_vertex", "edges of a vertex"),
        ("probability", "Figure 14", "edges_per_vertex", "probability", "p (0 at 1e-6)"),
    ):
        if figure in figures:
            name = "d =" if by == "edges_per_vertex" else "p ="
            lines = _lines(figures[figure], name, by, across, "median_ms")
            shown.append(Panel(title, label, "milliseconds", lines))
    if "probability" not in figures:
        lines = _lines(rows, "vertices:", "vertices", "probability", "median_ms")
        shown.append(Panel("Figure 14: d = 4", "p (0 at 1e-6)", "milliseconds", lines))
    if "threads of a block" in figures:
        threads: Points = [
            (row["threads"], row["median_ms"]) for row in figures["threads of a block"]
        ]
        shown.append(
            Panel("Figure 15: 1e9 edges", "threads of a block", "milliseconds", {"ours": threads})
        )
    return panels(shown, _note(document), in_a_row=2 if len(shown) == 4 else 3)


def attachment_queues(document: Record) -> str:
    """Figures 8 and 9."""
    figures = document["figures"]
    queued = [row for row in figures["largest queue"] if row["largest_queue"]]
    largest = _lines(queued, "p =", "probability", "edges_per_vertex", "largest_queue")
    worst: Points = [(row["edges_per_vertex"],) * 2 for row in queued if row["probability"] == 0]
    rounds: Points = [(row["round"], row["largest_queue"]) for row in figures["queue by round"]]
    return panels(
        [
            Panel(
                "Figure 8: 1,280 vertices a round",
                "d",
                "largest queue",
                largest | {"worst case, d": worst},
                frozenset({"worst case, d"}),
            ),
            Panel(
                "Figure 9: d = 512, p = 0, 512 vertices a round",
                "round",
                "largest queue",
                {"queued edges of a vertex, largest": rounds},
            ),
        ],
        _note(document),
    )


def kim(document: Record) -> str:
    """Figures 4 and 5: random graphs, by edges of a vertex."""
    shown = []
    for figure, title in (("4", "Figure 4: 2M vertices"), ("5", "Figure 5: 8M vertices")):
        lines: dict[str, Points] = {}
        for row in document["figures"]:
            if row["figure"] != figure:
                continue
            for field, what in (
                ("iterations_ms", "iterations"),
                ("with_transfers_ms", "transfers"),
            ):
                if field in row:
                    point = (row["edges"] / row["vertices"], row[field])
                    lines.setdefault(f"{row['method']}, {what}", []).append(point)
        dashed = frozenset(name for name in lines if name.endswith("transfers"))
        labels = ("edges of a vertex", "milliseconds, ten iterations")
        shown.append(Panel(title, *labels, lines, dashed))
    return panels(shown, _note(document))


def sahu(document: Record) -> str:
    """Figures 3 and 9 to 13, or 4 and 5: for each graph the time of a batch by its size, and its
    error; for temporal networks the time of each batch of 1e-4 of the events too. `self-loop`.
    """
    rows = [
        row
        for row in document["figures"]
        if row["dangling"] == "self-loop" and row["figures"] not in ("1", "2")
    ]
    shown = []
    for graph in dict.fromkeys(row["graph"] for row in rows):
        own = [
            row
            for row in rows
            if row["graph"] == graph and not row["contender"].endswith("accelerated")
        ]
        for field, label in (("median_ms", "milliseconds"), ("mean_error", "L1 error")):
            lines: dict[str, Points] = {}
            for row in own:
                name = row["contender"].removesuffix(", published")
                lines.setdefault(name, []).append((row["fraction"], row[field]))
            shown.append(Panel(graph, "batch, part of the edges", label, lines))
        series: dict[str, Points] = {}
        for row in own:
            if row["fraction"] == 1e-4 and row["figures"] == "3, 9-13":
                times = map(float, row["ms_of_each"].split())
                name = row["contender"].removesuffix(", published")
                series[name] = [(float(place), ms) for place, ms in enumerate(times, 1)]
        if series:
            shown.append(Panel(f"{graph}, 1e-4", "batch", "milliseconds", series))
    return panels(shown, _note(document))


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
        lines = {
            name: [
                (float(place), float(ms))
                for place, ms in enumerate(row[f"{name}_ms"].split(), start=1)
            ]
            for name in ("pushopt", "pull", "hybrid")
        }
        shown.append(Panel(f"(c): {row['graph']}", "iteration", "milliseconds", lines))
    return panels(shown, _note(document))
