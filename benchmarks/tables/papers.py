"""Tables of notes/papers.md: figures of papers beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from benchmarks.harness import load
from benchmarks.tables.common import Record, Row, geometric_mean, groups, shown, table

# ---- generators ----


def preferential_attachment(document: Record) -> str:
    """Models; times by everything that the record has them by; on a device, degrees and queues,
    which are the same on every backend.
    """
    figures = document["figures"]
    parts = [table("models", figures["models"]), *_threads(figures)]
    parts += _sweeps(figures, "ms (median)")
    if document["backend"] != "cpu":
        found = figures["degrees"]
        parts += [table("degrees", found, found[0]["exponents"]), *_queues(figures)]
    return "\n\n".join(parts)


def cuppa(document: Record) -> str:
    """The published variants beside ours, what they count, and cuPPA-Dynamic by everything that the
    record has it by.
    """
    figures = document["figures"]
    edges = "{vertices * edges_per_vertex:,} edges, d = {edges_per_vertex}, p = 1/2."
    parts = [shown(edges, figures["models"][0]), table("cuppa", figures["models"])]
    parts += _sweeps(figures, "cuPPA-Dynamic, ms (median)")
    return "\n\n".join([*parts, *_threads(figures), *_queues(figures)])


_D, _P = ("edges_per_vertex", "d = {:g}"), ("probability", "p = {:g}")
_VERTICES, _PROBABILITY = ("vertices", "{vertices:,} | …"), ("p", "{probability:g} | …")
_SWEEPS = {
    "vertices by probability": ("figure 11, d = 4", _VERTICES, _P),
    "vertices by edges of a vertex": ("figure 12, p = 1/2", _VERTICES, _D),
    "edges of a vertex": ("figure 13", _PROBABILITY, _D),
    "probability": ("figure 14", _PROBABILITY, _D),
}
"""What has rows, and what has columns."""


def _sweeps(figures: Row, what: str) -> Iterator[str]:
    """Figures 11 to 14."""
    for name, (title, (down, cells), (across, column)) in _SWEEPS.items():
        if name in figures:
            rows = sorted(figures[name], key=lambda row: (row["vertices"], row["probability"]))
            form = {"by": "probability" if down == "p" else down, "cells": cells}
            form |= {"across": across, "column": column}
            yield table("sweep", rows, named=f"{title}, {what}: {down}", **form)


def _queues(figures: Row) -> Iterator[str]:
    if "largest queue" in figures:
        title, largest = "figure 8, largest queue of 1,280 vertices: d", figures["largest queue"]
        form = {"by": _D[0], "across": _P[0], "column": _P[1], "cell": "{largest_queue:,}"}
        yield table("sweep", largest, named=title, **form)
        sizes = {row["round"]: row["largest_queue"] for row in figures["queue by round"]}
        by_round = ", ".join(f"{place}: {sizes[place]}" for place in (1, 2, 5, 10, 20, 50, 100))
        yield f"Figure 9, the largest queue by round: {by_round}."


def _threads(figures: Row) -> Iterator[str]:
    if rows := figures.get("threads of a block"):
        yield table("threads-of-a-block", rows)


# ---- authors ----


def authors(document: Record) -> str:
    """Authors' programs beside ours, a row for each of their solves; the graphs like the web."""
    figures = document["figures"]
    commits = ", ".join(f"`{name}` {commit[:7]}" for name, commit in figures["commits"].items())
    parts = [f"Commits: {commits}.", table("authors", figures["rows"])]
    if figures["failed"]:
        parts.append(f"Did not end: {', '.join(figures['failed'])}.")
    for name, like in figures["web"].items():
        rows = (
            {"what": what, "like": _told(like[what]), "crawl": _told(value)}
            for what, value in like["the crawl"].items()
        )
        parts.append(table("web", rows, named=name))
    return "\n\n".join(parts)


def _told(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_told, value))
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}"


# ---- the DF-P paper ----

STRATEGIES = {
    "static": "Static",
    "naive-dynamic": "ND",
    "dynamic-traversal": "DT",
    "dynamic-frontier": "DF",
    "dynamic-frontier-prune": "DF-P",
}
"""Names here and in the paper."""

_RANDOM = "on average DF-P over Static 3.1, ND 1.7, DT 13.1; DF over Static 2.5, ND 1.3, DT 10.4"
PUBLISHED = {
    "3, 9-13": {
        1e-5: "DF-P over Static 3.6, over DT 4.2; DF over Static 1.4",
        1e-4: "DF-P over Static 2.0, over DT 2.8",
        1e-3: "DF-P over Static 1.3, over DT 3.6",
    },
    "4, 5": dict.fromkeys((1e-7, 1e-6, 1e-5, 1e-4), _RANDOM),
}
"""Speed-ups that the text of the paper states, section 5.3."""


def sahu(document: Record) -> str:
    """For each figure and policy: geometric means over the graphs, then each graph; then figures 1,
    2 and 6 to 8. In figure 1 times are relative to the first way of dividing the vertices.
    """
    of = groups(document["figures"], "figures", "dangling")
    parts = []
    for figures in PUBLISHED:
        for dangling in ("self-loop", "uniform"):
            if rows := of.get((figures, dangling)):
                parts += [f"Figures {figures}, `{dangling}`:", _means(figures, rows)]
                parts.append(table("sahu-graphs", rows))
    others = groups(document["figures"], "figures")
    if rows := others.get(("1",)):
        parts += ["Figure 1, batches of 1e-4 of the edges:", table("sahu-ways", rows)]
    if rows := others.get(("2",)):
        own = (row for row in rows if row["contender"] == "Static, published")
        static = {"static": {row["graph"]: row["median_ms"] for row in own}}
        told = table("sahu-programs", (row | static for row in rows))
        parts += ["Figure 2, Static beside other programs:", told]
    if document["backend"] == "cuda":
        parts += beside_cpu(document, load("sahu", "cpu"))
    return "\n\n".join(parts)


def beside_cpu(document: Record, other: Record) -> list[str]:
    """Figures 6 to 8: times on the CPU over those on the GPU, where both have a graph."""
    keys = ("figures", "graph", "vertices", "dangling", "fraction", "contender")
    there, here = (
        groups((row for row in each["figures"] if "vertices" in row), *keys)
        for each in (other, document)
    )
    both: list[Row] = []
    for key, (own,) in here.items():
        name, _, form = key[-1].partition(", ")
        if key in there and form:
            slow = {f"{member} there": value for member, value in there[key][0].items()}
            both.append({**own, **slow, "form": form, "name": STRATEGIES[name]})
    if not both:
        return []
    rows = (
        pairs[0]
        | {"ratio": _mean(pairs, "median_ms there") / _mean(pairs, "median_ms")}
        | {name: _mean(pairs, name) for name in ("mean_error", "mean_error there")}
        for pairs in groups(both, "figures", "dangling", "fraction", "form", "name").values()
    )
    text = "Figures 6 to 8, time on {cores} cores ({processor}) over time on the GPU, and errors on"
    above = shown(f"{text} the GPU / on the CPU:", other["machine"])
    return [above, table("sahu-devices", rows)]


def _mean(rows: Iterable[Row], name: str) -> float:
    return geometric_mean(row[name] for row in rows)


def _means(figures: str, rows: list[Row]) -> str:
    """Times and speed-ups of DF-P, of medians over the batches and means over the graphs, as in the
    paper; the paper's beside them.
    """
    of = groups(rows, "fraction", "contender")
    means = {key: _mean(own, "median_ms") for key, own in of.items()}
    lines: list[Row] = []
    for fraction in dict.fromkeys(row["fraction"] for row in rows):
        for form in ("published", "accelerated"):
            times = {name: means[fraction, f"{each}, {form}"] for each, name in STRATEGIES.items()}
            paper = PUBLISHED[figures].get(fraction, "") if form == "published" else ""
            facts = {"fraction": fraction, "form": form, "paper": paper, "ms": times}
            lines.append(facts | {"auto": means[fraction, "auto"]})
    return table("sahu-means", lines, STRATEGIES.values())


# ---- the paper on personalized ranks ----

MOST_RUNS = 7
"""More runs of a mode are counted and not listed."""


def wang(document: Record) -> str:
    """Times of each graph, then what the hybrid did."""
    figures = document["figures"]
    # a row for each graph: the published hybrid, with the times of all methods by their forms
    graphs: dict[str, Row] = {}
    for row in figures["times"]:
        of = graphs.setdefault(row["graph"], {"published": {}, "accelerated": {}})
        of[row["form"]][row["method"]] = row["median_ms"]
        if (row["form"], row["method"]) == ("published", "hybrid"):
            of |= row
    switching = table(
        "wang-switching",
        (
            row | {"runs": _runs(row["mode"].split()), "ideal": _runs(_faster(row))}
            for row in figures["switching"]
        ),
    )
    return (
        f"Target error {figures['target_error']:g}. Figures 2 (a) and (b):\n\n"
        f"{table('wang', graphs.values())}\n\nFigure 2 (c):\n\n{switching}"
    )


def _faster(row: Row) -> Iterable[str]:
    """The faster way in each iteration."""
    push, pull = (map(float, row[f"{name}_ms"].split()) for name in ("pushopt", "pull"))
    return ["pushopt" if one < other else "pull" for one, other in zip(push, pull, strict=True)]


def _runs(modes: Iterable[str]) -> str:
    """``pushopt 3, pull 40``; only the number of changes if there are many."""
    runs = [(mode, len(list(same))) for mode, same in groupby(modes)]
    if len(runs) > MOST_RUNS:
        total = {name: sum(n for mode, n in runs if mode == name) for name in ("pushopt", "pull")}
        return f"pushopt {total['pushopt']}, pull {total['pull']}, {len(runs) - 1} changes"
    return ", ".join(f"{mode} {count}" for mode, count in runs)
