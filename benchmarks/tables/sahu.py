"""The figures of the DF-P paper beside ours, for notes/papers.md."""

from __future__ import annotations

from math import exp, fsum, log

from benchmarks.harness import load
from benchmarks.tables.common import Record, Row, heading

STRATEGIES = (
    ("static", "Static"),
    ("naive-dynamic", "ND"),
    ("dynamic-traversal", "DT"),
    ("dynamic-frontier", "DF"),
    ("dynamic-frontier-prune", "DF-P"),
)
"""Names here and in the paper."""

PROGRAM = "Static, published"
"""What figure 2 compares others with."""

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

PAPER_SPEEDUPS = {
    "3, 9-13": {1e-5: 3.6, 1e-4: 2.0, 1e-3: 1.3},
    "4, 5": dict.fromkeys((1e-7, 1e-6, 1e-5, 1e-4), 3.1),
}
"""Of them, DF-P over Static; those of figures 4 and 5 are one mean over four sizes."""


def sahu(document: Record) -> str:
    """For each figure and policy: geometric means over the graphs, then each graph; then figures 1,
    2 and 6 to 8.
    """
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
    others = {figures: _of(document, figures) for figures in ("1", "2")}
    if others["1"]:
        parts += ["Figure 1, batches of 1e-4 of the edges:", "", *_partitions(others["1"]), ""]
    if others["2"]:
        parts += ["Figure 2, Static beside other programs:", "", *_programs(others["2"]), ""]
    if document["backend"] == "cuda":
        parts += _beside_cpu(document, load("sahu", "cpu"))
    return "\n".join(parts[:-1])


def _of(document: Record, figures: str) -> list[Row]:
    return [row for row in document["figures"] if row["figures"] == figures]


def _partitions(rows: list[Row]) -> list[str]:
    """Times by the way of dividing the vertices, relative to the first one as in the paper."""
    ways = list(dict.fromkeys(row["partition"] for row in rows))
    lines = heading(f"| graph, strategy | {' | '.join(ways)} |")
    for graph, strategy in dict.fromkeys((row["graph"], row["strategy"]) for row in rows):
        own = {
            row["partition"]: row["median_ms"]
            for row in rows
            if (row["graph"], row["strategy"]) == (graph, strategy)
        }
        first = own[ways[0]]
        cells = " | ".join(f"{own[way]:.3g} ms, {own[way] / first:.2f}" for way in ways)
        lines.append(f"| {graph}, {strategy} | {cells} |")
    return lines


def _programs(rows: list[Row]) -> list[str]:
    """Time, rate and error of each program, and how many times as fast the published Static is."""
    lines = heading(
        "| graph, edges | program | time | edges/s | L1 error | over published Static |"
    )
    static = {row["graph"]: row["median_ms"] for row in rows if row["contender"] == PROGRAM}
    for row in rows:
        rate = row["edges"] / row["median_ms"] / 1e3
        cells = (
            f"{row['graph']}, {row['edges']:,}",
            row["contender"],
            f"{row['median_ms']:.3g} ms",
            f"{rate:,.0f}M",
            f"{row['error']:.1e}",
            f"{row['median_ms'] / static[row['graph']]:.2f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _beside_cpu(document: Record, other: Record) -> list[str]:
    """Figures 6 to 8: times on the CPU over those on the GPU, where both have a graph."""
    keys = ("figures", "graph", "vertices", "dangling", "fraction", "contender")

    def by_key(rows: list[Row]) -> dict[tuple[object, ...], Row]:
        return {tuple(row[key] for key in keys): row for row in rows if "vertices" in row}

    there = by_key(other["figures"])
    both = {key: row for key, row in by_key(document["figures"]).items() if key in there}
    if not both:
        return []
    facts = other["machine"]
    titles = " | ".join(name for _, name in STRATEGIES)
    parts = [
        f"Figures 6 to 8, time on {facts['cores']} cores ({facts['processor']}) over time on the"
        " GPU, and errors on the GPU / on the CPU:",
        "",
        *heading(f"| figures, batch, policy | form | {titles} | in the paper |"),
    ]
    for figures, dangling, fraction in dict.fromkeys((key[0], key[3], key[4]) for key in both):
        for form in ("published", "accelerated"):
            cells = []
            for name, _ in STRATEGIES:
                own = {
                    key: row
                    for key, row in both.items()
                    if (key[0], key[3], key[4]) == (figures, dangling, fraction)
                    and key[5] == f"{name}, {form}"
                }
                ratios = [there[key]["median_ms"] / row["median_ms"] for key, row in own.items()]
                error = _geometric_mean([row["mean_error"] for row in own.values()])
                error_there = _geometric_mean([there[key]["mean_error"] for key in own])
                cells.append(f"{_geometric_mean(ratios):.1f}, {error:.1e} / {error_there:.1e}")
            case = f"{figures}, {fraction:g}, `{dangling}`"
            paper = "Static 24" if form == "published" else ""
            parts.append(f"| {case} | {form} | {' | '.join(cells)} | {paper} |")
    return [*parts, ""]


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
    return _geometric_mean(own)


def _geometric_mean(values: list[float]) -> float:
    return exp(fsum(map(log, values)) / len(values))


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
