"""Figure 2 of the paper on personalized ranks beside ours, for notes/papers.md."""

from __future__ import annotations

from itertools import groupby

from benchmarks.tables.common import Record, Row, heading

METHODS = ("push", "pushopt", "pull", "hybrid")
"""Of the published form, as the paper calls them."""

OURS = ("hybrid", "push", "pull")

MOST_RUNS = 7
"""More runs of a mode are counted and not listed."""


def wang(document: Record) -> str:
    """Times of each graph, then what the hybrid did."""
    figures = document["figures"]
    times, switching = figures["times"], figures["switching"]
    parts = [
        f"Target error {figures['target_error']:g}. Figures 2 (a) and (b):",
        "",
        *_times(times),
    ]
    return "\n".join([*parts, "", "Figure 2 (c):", "", *_switching(switching)])


def _times(rows: list[Row]) -> list[str]:
    """Milliseconds of a query by each method."""
    theirs, ours = (" | ".join(f"`{name}`" for name in names) for names in (METHODS, OURS))
    lines = heading(
        f"| graph | edges | queries | {theirs} | `hybrid` over `push` | over `pushopt` | `pull` |"
        f" certificate | iterations | error bound | ours: {ours} | ours, fastest, over `hybrid` |"
    )
    for graph in dict.fromkeys(row["graph"] for row in rows):
        own = {(row["form"], row["method"]): row for row in rows if row["graph"] == graph}
        published = {name: own["published", name] for name in METHODS}
        accelerated = {name: own["accelerated", name] for name in OURS}
        hybrid = published["hybrid"]
        # solving and the certificate, which ours contains
        whole = hybrid["median_ms"] + hybrid["certify_ms"]
        fastest = min(row["median_ms"] for row in accelerated.values())
        cells = [
            graph,
            f"{hybrid['edges']:,}",
            str(hybrid["queries"]),
            *(_ms(row) for row in published.values()),
            *(
                f"{published[name]['median_ms'] / hybrid['median_ms']:.2f}"
                for name in ("push", "pushopt", "pull")
            ),
            f"{hybrid['certify_ms']:.3g} ms",
            f"{hybrid['iterations']:g}",
            f"{hybrid['error_bound']:.1e}",
            *(_ms(row) for row in accelerated.values()),
            f"{whole / fastest:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _ms(row: Row) -> str:
    return f"{row['median_ms']:.3g} ms"


def _switching(rows: list[Row]) -> list[str]:
    """How each iteration ran, and how often that was the faster way."""
    lines = heading(
        "| graph | `hybrid` | faster in each iteration | agree "
        "| an edge of `pushopt`, in edges of `pull` |"
    )
    for row in rows:
        push, pull = (map(float, row[f"{name}_ms"].split()) for name in ("pushopt", "pull"))
        ideal = [
            "pushopt" if one < other else "pull" for one, other in zip(push, pull, strict=True)
        ]
        cells = (
            row["graph"],
            _runs(row["mode"].split()),
            _runs(ideal),
            f"{row['agreement']:.0%}",
            "" if row["pushed_edge"] is None else f"{row['pushed_edge']:.2f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _runs(modes: list[str]) -> str:
    """``pushopt 3, pull 40``; only the number of changes if there are many."""
    runs = [(mode, len(list(same))) for mode, same in groupby(modes)]
    if len(runs) > MOST_RUNS:
        pulls = modes.count("pull")
        return f"pushopt {len(modes) - pulls}, pull {pulls}, {len(runs) - 1} changes"
    return ", ".join(f"{mode} {count}" for mode, count in runs)
