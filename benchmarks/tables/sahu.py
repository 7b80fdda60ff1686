"""The figures of the DF-P paper beside ours, for docs/papers.md."""

from __future__ import annotations

from math import exp, fsum, log

from benchmarks.tables.common import Record, Row, heading

STRATEGIES = (
    ("static", "Static"),
    ("naive-dynamic", "ND"),
    ("dynamic-traversal", "DT"),
    ("dynamic-frontier", "DF"),
    ("dynamic-frontier-prune", "DF-P"),
)
"""Names here and in the paper."""

PUBLISHED = {
    "3, 9-13": {
        1e-5: "DF-P over Static 3.6, over DT 4.2; DF over Static 1.4",
        1e-4: "DF-P over Static 2.0, over DT 2.8",
        1e-3: "DF-P over Static 1.3, over DT 3.6",
    },
    "4, 5": dict.fromkeys(
        (1e-7, 1e-6, 1e-5, 1e-4),
        "on average DF-P over Static 3.1, ND 1.7, DT 13.1; DF over Static 2.5, ND 1.3, DT 10.4",
    ),
}
"""Speed-ups that the text of the paper states, section 5.3."""


def sahu(document: Record) -> str:
    """For each figure and policy: geometric means over the graphs, then each graph."""
    parts = []
    for figures in PUBLISHED:
        for dangling in ("self-loop", "uniform"):
            rows = [
                row
                for row in document["figures"]
                if row["figures"] == figures and row["dangling"] == dangling
            ]
            if rows:
                parts += [f"Figures {figures}, `{dangling}`:", "", *_means(figures, rows), ""]
                parts += [*_graphs(rows), ""]
    return "\n".join(parts[:-1])


def _means(figures: str, rows: list[Row]) -> list[str]:
    """Times and speed-ups of DF-P, of medians over the batches; the paper's beside them."""
    titles = " | ".join(name for _, name in STRATEGIES)
    lines = heading(
        f"| batch | form | {titles} | auto | DF-P over Static | over ND | over DT | in the paper |"
    )
    for fraction in dict.fromkeys(row["fraction"] for row in rows):
        for form in ("published", "accelerated"):
            means = {
                name: _mean(rows, fraction, f"{name}, {form}", "median_ms")
                for name, _ in STRATEGIES
            }
            pruned = means["dynamic-frontier-prune"]
            ratios = (
                f"{means[name] / pruned:.2f}"
                for name in ("static", "naive-dynamic", "dynamic-traversal")
            )
            auto = _mean(rows, fraction, "auto", "median_ms")
            cells = [f"{fraction:g}", form, *(f"{ms:.3g} ms" for ms in means.values())]
            cells += [f"{auto:.3g} ms", *ratios]
            cells.append(PUBLISHED[figures].get(fraction, "") if form == "published" else "")
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _mean(rows: list[Row], fraction: float, contender: str, field: str) -> float:
    """The geometric mean over the graphs, as in the paper."""
    own = [
        row[field] for row in rows if row["fraction"] == fraction and row["contender"] == contender
    ]
    return exp(fsum(map(log, own)) / len(own))


def _graphs(rows: list[Row]) -> list[str]:
    """Median time and mean error of each contender on each graph."""
    contenders = list(dict.fromkeys(row["contender"] for row in rows))
    lines = heading(f"| graph, batch | {' | '.join(contenders)} |")
    for graph, fraction in dict.fromkeys((row["graph"], row["fraction"]) for row in rows):
        own = {
            row["contender"]: f"{row['median_ms']:.3g} ms, {row['mean_error']:.1e}"
            for row in rows
            if (row["graph"], row["fraction"]) == (graph, fraction)
        }
        lines.append(f"| {graph}, {fraction:g} | {' | '.join(own[name] for name in contenders)} |")
    return lines
