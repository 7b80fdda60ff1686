"""Tables of notes/papers.md: figures of papers beside ours."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from benchmarks.harness import load
from benchmarks.tables.common import Record, Row, geometric_mean, grouped, groups, shown, table

# ---- generators ----


def preferential_attachment(document: Record) -> str:
    """Models; times by everything that the record has them by; on a device, degrees and queues,
    which are the same on every backend.
    """
    figures = document["figures"]
    parts = [
        table(
            "figure 10: model | vertices | edges | ms (median) | (largest)",
            "{model} | {vertices:,} | {vertices * edges_per_vertex:,} | {median_ms:,.1f}"
            " | {largest_ms:,.1f}",
            figures["models"],
        ),
        *_threads(figures),
        *_crossed(figures, "ms (median)", _SWEEPS),
    ]
    if document["backend"] != "cpu":
        least = list(figures["degrees"][0]["exponents"])
        degrees = table(
            "figures 3 and 7: model | vertices | p | largest degree"
            + "".join(f" | exponent, degrees ≥ {each}" for each in least),
            "{model} | {vertices:,} | {probability:g} | {largest_degree:,}"
            + "".join(f" | {{exponents['{each}']:.3f}}" for each in least),
            figures["degrees"],
        )
        parts += [degrees, *_queues(figures)]
    return "\n\n".join(parts)


def cuppa(document: Record) -> str:
    """The published variants beside ours, what they count, and cuPPA-Dynamic by everything that the
    record has it by.
    """
    figures = document["figures"]
    edges = "{vertices * edges_per_vertex:,} edges, d = {edges_per_vertex}, p = 1/2."
    models = table(
        "figures 3 and 10: model | ms (median) | (largest) | exponent, degrees ≥ 4 | rounds"
        " | edges that waited | longest queue of a thread | passes, at most",
        "{model} | {short(median_ms)} | {largest_ms:,.4g} | {exponent:.3f} | {rounds:,}"
        " | {queued:,} | {largest_queue:,} | {passes:,}",
        figures["models"],
    )
    times = _crossed(figures, "cuPPA-Dynamic, ms (median)", _SWEEPS_OF_CUPPA)
    parts = [shown(edges, figures["models"][0]), models, *times]
    return "\n\n".join([*parts, *_threads(figures), *_queues(figures)])


_SYMBOLS = {"edges_per_vertex": "d", "probability": "p"}
_SWEEPS = {
    "vertices by probability": ("figure 11, d = 4", "vertices", "probability"),
    "vertices by edges of a vertex": ("figure 12, p = 1/2", "vertices", "edges_per_vertex"),
    "edges of a vertex": ("figure 13", "probability", "edges_per_vertex"),
    "probability": ("figure 14", "probability", "edges_per_vertex"),
}
"""Figures by their names in a record: the title, what has rows, and what has columns."""

_SWEEPS_OF_CUPPA = {name: of for name, of in _SWEEPS.items() if "figure 12" not in of[0]}


def _crossed(
    figures: Row, what: str, sweeps: dict[str, tuple[str, ...]], value: str = "{short(median_ms)}"
) -> list[str]:
    """A table for each of these that the record has, in both directions ascending."""
    return [
        grouped(
            f"{title}, {what}: {_SYMBOLS.get(down, down)} | *",
            f"{{{down}:{'g' if down == 'probability' else ','}}} | *",
            sorted(figures[name], key=lambda row: row[down]),
            down,
            across,
            value,
            f"{_SYMBOLS[across]} = {{:g}}",
        )
        for name, (title, down, across) in sweeps.items()
        if name in figures
    ]


def _queues(figures: Row) -> Iterable[str]:
    if "largest queue" in figures:
        of = {"largest queue": ("figure 8", "edges_per_vertex", "probability")}
        yield from _crossed(figures, "largest queue of 1,280 vertices", of, "{largest_queue:,}")
        sizes = {row["round"]: row["largest_queue"] for row in figures["queue by round"]}
        by_round = ", ".join(f"{place}: {sizes[place]}" for place in (1, 2, 5, 10, 20, 50, 100))
        yield f"Figure 9, the largest queue by round: {by_round}."


def _threads(figures: Row) -> Iterable[str]:
    if rows := figures.get("threads of a block"):
        title = "figure 15: threads of a block | *"
        cell = "{short(median_ms)}"
        yield grouped(title, "ms (median) | *", rows, "", "threads", cell, "{:,}")


# ---- kernels, programs and authors ----


def kim(document: Record) -> str:
    """Ten iterations by each method, a row for each graph: alone, and with the transfers."""
    times = ("{iterations_ms:g}", "({with_transfers_ms:g})")
    return "Milliseconds of ten iterations, in brackets with transfers.\n\n" + grouped(
        "figure: graph | edges | * | L1 error of Kim's, larger",
        "{figure}: {graph} | {edges:,} | * | {max(row.get('error', 0) for row in rows):.1e}",
        (
            row | {"told": " ".join(filter(None, (shown(time, row) for time in times)))}
            for row in document["figures"]
        ),
        "graph",
        "method",
        "{told}",
    )


def authors(document: Record) -> str:
    """Authors' programs beside ours, a row for each of their solves; the graphs like the web."""
    figures = document["figures"]
    commits = ", ".join(f"`{name}` {commit[:7]}" for name, commit in figures["commits"].items())
    told = "{method}, tolerance {tolerance:g}"
    solves = table(
        "program | graph | edges | of a batch | method | iterations | ms | error"
        " | ours, iterations | ms | error | times as fast",
        "{program} | {graph} | {edges:,} | {'%.0e' % fraction if fraction else ''} | {told}"
        " | {iterations or ''} | {short(ms)} | {error:.1e} | {ours[iterations]}"
        " | {short(ours['ms'])} | {ours[error]:.1e} | {times_as_fast:.1f}",
        (row | {"told": shown(told, row) or row["method"]} for row in figures["rows"]),
    )
    parts = [f"Commits: {commits}.", solves]
    if figures["failed"]:
        parts.append(f"Did not end: {', '.join(figures['failed'])}.")
    for name, like in figures["web"].items():
        rows = (
            {"what": what, "like": _told(like[what]), "crawl": _told(value)}
            for what, value in like["the crawl"].items()
        )
        parts.append(table(f" | {name} | the crawl", "{what} | {like} | {crawl}", rows))
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
    2 and 6 to 8.
    """
    of = groups(document["figures"], "figures", "dangling")
    parts = []
    for figures in PUBLISHED:
        for dangling in ("self-loop", "uniform"):
            if rows := of.get((figures, dangling)):
                times = "{median_ms:.3g} ms, {mean_error:.1e}"
                parts += [f"Figures {figures}, `{dangling}`:", _means(figures, rows)]
                titles, cells = "graph, batch | *", "{graph}, {fraction:g} | *"
                parts.append(grouped(titles, cells, rows, "graph fraction", "contender", times))
    others = groups(document["figures"], "figures")
    if rows := others.get(("1",)):
        # relative to the first way of dividing the vertices, as in the paper
        for own in groups(rows, "graph", "strategy").values():
            for row in own:
                row["over"] = row["median_ms"] / own[0]["median_ms"]
        titles, cells, cell = "graph, strategy | *", "{graph}, {strategy} | *", "{median_ms:.3g} ms"
        ways = grouped(titles, cells, rows, "graph strategy", "partition", f"{cell}, {{over:.2f}}")
        parts += ["Figure 1, batches of 1e-4 of the edges:", ways]
    if rows := others.get(("2",)):
        parts += ["Figure 2, Static beside other programs:", _programs(rows)]
    if document["backend"] == "cuda":
        parts += beside_cpu(document, load("sahu", "cpu"))
    return "\n\n".join(parts)


def _programs(rows: list[Row]) -> str:
    """Time, rate and error of each program, and how many times as fast the published Static is."""
    static = {
        row["graph"]: row["median_ms"] for row in rows if row["contender"] == "Static, published"
    }
    return table(
        "graph, edges | program | time | edges/s | L1 error | over published Static",
        "{graph}, {edges:,} | {contender} | {median_ms:.3g} ms | {edges / median_ms / 1e3:,.0f}M"
        " | {error:.1e} | {median_ms / static[graph]:.2f}",
        (row | {"static": static} for row in rows),
    )


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
            both.append({**own, **slow, "form": form, "paper": STRATEGIES[name]})
    if not both:
        return []
    rows = [
        pairs[0]
        | {"ratio": _mean(pairs, "median_ms there") / _mean(pairs, "median_ms")}
        | {name: _mean(pairs, name) for name in ("mean_error", "mean_error there")}
        for pairs in groups(both, "figures", "dangling", "fraction", "form", "paper").values()
    ]
    told = grouped(
        "figures, batch, policy | form | * | in the paper",
        "{figures}, {fraction:g}, `{dangling}` | {form} | *"
        " | {'Static 24' if form == 'published' else ''}",
        rows,
        "figures dangling fraction form",
        "paper",
        "{ratio:.1f}, {mean_error:.1e} / {mean_error there:.1e}",
    )
    text = "Figures 6 to 8, time on {cores} cores ({processor}) over time on the GPU, and errors on"
    return [shown(f"{text} the GPU / on the CPU:", other["machine"]), told]


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
    return table(
        f"batch | form | {' | '.join(STRATEGIES.values())} | auto | DF-P over Static | over ND"
        " | over DT | in the paper",
        "{fraction:g} | {form} | "
        + "".join(f"{{ms[{name}]:.3g}} ms | " for name in STRATEGIES.values())
        + "{auto:.3g} ms | "
        + "".join(f"{{ms['{name}'] / ms['DF-P']:.2f}} | " for name in ("Static", "ND", "DT"))
        + "{paper}",
        lines,
    )


# ---- the paper on personalized ranks ----

METHODS = ("push", "pushopt", "pull", "hybrid")
"""Of the published form, as the paper calls them."""

OURS = ("hybrid", "push", "pull")

MOST_RUNS = 7
"""More runs of a mode are counted and not listed."""


def wang(document: Record) -> str:
    """Times of each graph, then what the hybrid did."""
    figures = document["figures"]
    switching = table(
        "graph | `hybrid` | faster in each iteration | agree"
        " | an edge of `pushopt`, in edges of `pull`",
        "{graph} | {runs} | {ideal} | {agreement:.0%} | {pushed_edge:.2f}",
        (
            row | {"runs": _runs(row["mode"].split()), "ideal": _runs(_faster(row))}
            for row in figures["switching"]
        ),
    )
    return (
        f"Target error {figures['target_error']:g}. Figures 2 (a) and (b):\n\n"
        f"{_times(figures['times'])}\n\nFigure 2 (c):\n\n{switching}"
    )


def _times(rows: list[Row]) -> str:
    """Milliseconds of a query by each method; ours contains the certificate."""
    theirs, ours = (" | ".join(f"`{name}`" for name in names) for names in (METHODS, OURS))
    times: dict[Any, Row] = {}
    for row in rows:
        of = times.setdefault(row["graph"], {"published": {}, "accelerated": {}})
        of[row["form"]][row["method"]] = row["median_ms"]
        if (row["form"], row["method"]) == ("published", "hybrid"):
            of |= row | {"form": ""}
    return table(
        f"graph | edges | queries | {theirs} | `hybrid` over `push` | over `pushopt` | `pull` |"
        f" certificate | iterations | error bound | ours: {ours} | ours, fastest, over `hybrid`",
        "{graph} | {edges:,} | {queries} | "
        + "".join(f"{{published[{name}]:.3g}} ms | " for name in METHODS)
        + "".join(f"{{published['{name}'] / median_ms:.2f}} | " for name in METHODS[:3])
        + "{certify_ms:.3g} ms | {iterations:g} | {error_bound:.1e} | "
        + "".join(f"{{accelerated[{name}]:.3g}} ms | " for name in OURS)
        + "{(median_ms + certify_ms) / min(accelerated.values()):.2f}",
        times.values(),
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
