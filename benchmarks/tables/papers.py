"""Tables of notes/papers.md: figures of papers beside ours."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from benchmarks.harness import load
from benchmarks.tables.common import Record, Row, geometric_mean, groups, heading, short, table

# ---- generators ----

_SYMBOLS = {"edges_per_vertex": "d", "probability": "p"}


def preferential_attachment(document: Record) -> str:
    """Models; times by everything that the record has them by; on a device, degrees and queues,
    which are the same on every backend.
    """
    figures = document["figures"]
    parts = [
        table(
            "figure 10: model | vertices | edges | ms (median) | (largest)",
            "{model} | {vertices:,} | {edges:,} | {median_ms:,.1f} | {largest_ms:,.1f}",
            (
                row | {"edges": row["vertices"] * row["edges_per_vertex"]}
                for row in figures["models"]
            ),
        )
    ]
    if "threads of a block" in figures:
        parts.append(_threads(figures["threads of a block"]))
    for name, title, across in (
        ("vertices by probability", "figure 11, d = 4", "probability"),
        ("vertices by edges of a vertex", "figure 12, p = 1/2", "edges_per_vertex"),
        ("edges of a vertex", "figure 13", "edges_per_vertex"),
        ("probability", "figure 14", "edges_per_vertex"),
    ):
        if name in figures:
            down = "vertices" if name.startswith("vertices") else "probability"
            parts.append(_crossed(f"{title}, ms (median)", figures[name], down, across))
    if document["backend"] != "cpu":
        least = list(figures["degrees"][0]["exponents"])
        degrees = table(
            "figures 3 and 7: model | vertices | p | largest degree"
            + "".join(f" | exponent, degrees ≥ {each}" for each in least),
            "{model} | {vertices:,} | {probability:g} | {largest_degree:,}"
            # a subscript of digits is a number
            + "".join(f" | {{e{each}:.3f}}" for each in least),
            (
                row | {f"e{each}": value for each, value in row["exponents"].items()}
                for row in figures["degrees"]
            ),
        )
        parts += [degrees, *(_queues(figures) if "largest queue" in figures else ())]
    return "\n\n".join(parts)


def cuppa(document: Record) -> str:
    """The published variants beside ours, what they count, and cuPPA-Dynamic by everything that the
    record has it by.
    """
    figures = document["figures"]
    first = figures["models"][0]
    edges = first["vertices"] * first["edges_per_vertex"]
    parts = [
        f"{edges:,} edges, d = {first['edges_per_vertex']}, p = 1/2.",
        table(
            "figures 3 and 10: model | ms (median) | (largest) | exponent, degrees ≥ 4 | rounds"
            " | edges that waited | longest queue of a thread | passes, at most",
            "{model} | {ms} | {largest_ms:,.4g} | {exponent:.3f} | {rounds:,} | {queued:,}"
            " | {largest_queue:,} | {passes:,}",
            (row | {"ms": short(row["median_ms"])} for row in figures["models"]),
        ),
    ]
    dynamic = "cuPPA-Dynamic, ms (median)"
    for name, title, down, across in (
        ("vertices by probability", "figure 11, d = 4", "vertices", "probability"),
        ("edges of a vertex", "figure 13", "probability", "edges_per_vertex"),
        ("probability", "figure 14", "probability", "edges_per_vertex"),
    ):
        parts.append(_crossed(f"{title}, {dynamic}", figures[name], down, across))
    if "threads of a block" in figures:
        parts += [_threads(figures["threads of a block"]), *_queues(figures)]
    return "\n\n".join(parts)


def _queues(figures: Row) -> tuple[str, str]:
    title, largest = "figure 8, largest queue of 1,280 vertices", figures["largest queue"]
    shown = _crossed(title, largest, "edges_per_vertex", "probability", "largest_queue")
    sizes = {row["round"]: row["largest_queue"] for row in figures["queue by round"]}
    by_round = ", ".join(f"{place}: {sizes[place]}" for place in (1, 2, 5, 10, 20, 50, 100))
    return shown, f"Figure 9, the largest queue by round: {by_round}."


def _threads(rows: list[Row]) -> str:
    lines = heading(
        " | ".join(["figure 15: threads of a block", *(f"{r['threads']:,}" for r in rows)])
    )
    return "\n".join(
        [*lines, f"| ms (median) | {' | '.join(short(r['median_ms']) for r in rows)} |"]
    )


def _crossed(title: str, rows: list[Row], down: str, across: str, value: str = "median_ms") -> str:
    """A table with a row for each value of `down` and a column for each value of `across`."""
    columns = sorted({row[across] for row in rows})
    cells = {(row[down], row[across]): row[value] for row in rows}
    down_name, across_name = (_SYMBOLS.get(name, name) for name in (down, across))
    titles = " | ".join(f"{across_name} = {column:g}" for column in columns)
    lines = heading(f"{title}: {down_name} | {titles}")
    for name in sorted({row[down] for row in rows}):
        own = (cells[name, column] for column in columns)
        shown = " | ".join(map(short, own) if value == "median_ms" else map("{:,}".format, own))
        lines.append(f"| {f'{name:,}' if isinstance(name, int) else f'{name:g}'} | {shown} |")
    return "\n".join(lines)


# ---- kernels, programs and authors ----


def kim(document: Record) -> str:
    """Ten iterations by each method, a row for each graph: alone, and with the transfers."""
    rows = document["figures"]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = heading(f"figure: graph | edges | {' | '.join(methods)} | L1 error of Kim's, larger")
    for (name,), found in groups(rows, "graph").items():
        own = {row["method"]: row for row in found}
        cells = []
        for each in methods:
            alone, whole = own[each].get("iterations_ms"), own[each].get("with_transfers_ms")
            shown = [f"{alone:g}"] if alone else []
            cells.append(" ".join([*shown, *([f"({whole:g})"] if whole else [])]))
        errors = max(row["error"] for row in found if "error" in row)
        lines.append(
            f"| {found[0]['figure']}: {name} | {found[0]['edges']:,} | {' | '.join(cells)}"
            f" | {errors:.1e} |"
        )
    return "\n".join(["Milliseconds of ten iterations, in brackets with transfers.", "", *lines])


def authors(document: Record) -> str:
    """Authors' programs beside ours, a row for each of their solves; the graphs like the web."""
    figures = document["figures"]
    commits = ", ".join(f"`{name}` {commit[:7]}" for name, commit in figures["commits"].items())
    solves = table(
        "program | graph | edges | of a batch | method | iterations | ms | error"
        " | ours, iterations | ms | error | times as fast",
        "{program} | {graph} | {edges:,} | {batch} | {told} | {count} | {ms_told} | {error:.1e}"
        " | {ours[iterations]} | {own_ms} | {ours[error]:.1e} | {times_as_fast:.1f}",
        (
            row
            | {
                "told": row["method"]
                + (f", tolerance {row['tolerance']:g}" if row.get("tolerance") else ""),
                "batch": f"{row['fraction']:.0e}" if row["fraction"] else "",
                "count": row.get("iterations") or "",
                "ms_told": short(row["ms"]),
                "own_ms": short(row["ours"]["ms"]),
            }
            for row in figures["rows"]
        ),
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

PROGRAM = "Static, published"
"""What figure 2 compares others with."""

_RANDOM = (1e-7, 1e-6, 1e-5, 1e-4)
PUBLISHED = {
    "3, 9-13": {
        1e-5: "DF-P over Static 3.6, over DT 4.2; DF over Static 1.4",
        1e-4: "DF-P over Static 2.0, over DT 2.8",
        1e-3: "DF-P over Static 1.3, over DT 3.6",
    },
    "4, 5": dict.fromkeys(
        _RANDOM,
        "on average DF-P over Static 3.1, ND 1.7, DT 13.1; DF over Static 2.5, ND 1.3, DT 10.4",
    ),
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
                parts.append(f"Figures {figures}, `{dangling}`:")
                parts += [_means(figures, rows), _graphs(rows)]
    others = groups(document["figures"], "figures")
    if rows := others.get(("1",)):
        parts += ["Figure 1, batches of 1e-4 of the edges:", _partitions(rows)]
    if rows := others.get(("2",)):
        parts += ["Figure 2, Static beside other programs:", _programs(rows)]
    if document["backend"] == "cuda":
        parts += beside_cpu(document, load("sahu", "cpu"))
    return "\n\n".join(parts)


def _partitions(rows: list[Row]) -> str:
    """Times by the way of dividing the vertices, relative to the first one as in the paper."""
    lines = heading(
        " | ".join(["graph, strategy", *dict.fromkeys(row["partition"] for row in rows)])
    )
    for (graph, strategy), own in groups(rows, "graph", "strategy").items():
        times = [row["median_ms"] for row in own]
        cells = " | ".join(f"{ms:.3g} ms, {ms / times[0]:.2f}" for ms in times)
        lines.append(f"| {graph}, {strategy} | {cells} |")
    return "\n".join(lines)


def _programs(rows: list[Row]) -> str:
    """Time, rate and error of each program, and how many times as fast the published Static is."""
    static = {row["graph"]: row["median_ms"] for row in rows if row["contender"] == PROGRAM}
    return table(
        "graph, edges | program | time | edges/s | L1 error | over published Static",
        "{graph}, {edges:,} | {contender} | {median_ms:.3g} ms | {rate:,.0f}M | {error:.1e}"
        " | {over:.2f}",
        (
            row
            | {"rate": row["edges"] / row["median_ms"] / 1e3}
            | {"over": row["median_ms"] / static[row["graph"]]}
            for row in rows
        ),
    )


def beside_cpu(document: Record, other: Record) -> list[str]:
    """Figures 6 to 8: times on the CPU over those on the GPU, where both have a graph."""
    keys = ("figures", "graph", "vertices", "dangling", "fraction", "contender")
    there, here = (
        groups((row for row in each["figures"] if "vertices" in row), *keys)
        for each in (other, document)
    )
    both = [(*own, *there[key]) for key, own in here.items() if key in there]
    if not both:
        return []
    facts, case_of = other["machine"], ("figures", "dangling", "fraction")
    lines = heading(
        f"figures, batch, policy | form | {' | '.join(STRATEGIES.values())} | in the paper"
    )
    for figures, dangling, fraction in groups((row for row, _ in both), *case_of):
        for form in ("published", "accelerated"):
            cells = []
            for name in STRATEGIES:
                wanted = [figures, dangling, fraction, f"{name}, {form}"]
                own = [
                    pair
                    for pair in both
                    if [pair[0][key] for key in (*case_of, "contender")] == wanted
                ]
                ratio = geometric_mean(slow["median_ms"] / fast["median_ms"] for fast, slow in own)
                errors = [geometric_mean(pair[at]["mean_error"] for pair in own) for at in (0, 1)]
                cells.append(f"{ratio:.1f}, {errors[0]:.1e} / {errors[1]:.1e}")
            paper = "Static 24" if form == "published" else ""
            case = f"{figures}, {fraction:g}, `{dangling}`"
            lines.append(f"| {case} | {form} | {' | '.join(cells)} | {paper} |")
    return [
        f"Figures 6 to 8, time on {facts['cores']} cores ({facts['processor']}) over time on the"
        " GPU, and errors on the GPU / on the CPU:",
        "\n".join(lines),
    ]


def _means(figures: str, rows: list[Row]) -> str:
    """Times and speed-ups of DF-P, of medians over the batches; the paper's beside them."""
    lines = heading(
        f"batch | form | {' | '.join(STRATEGIES.values())} | auto | DF-P over Static | over ND"
        " | over DT | in the paper"
    )
    by_contender = groups(rows, "fraction", "contender")

    def mean(fraction: float, contender: str) -> float:
        """Over the graphs, as in the paper."""
        return geometric_mean(row["median_ms"] for row in by_contender[fraction, contender])

    for fraction in dict.fromkeys(row["fraction"] for row in rows):
        for form in ("published", "accelerated"):
            means = {name: mean(fraction, f"{name}, {form}") for name in STRATEGIES}
            over = list(means.values())[:3]
            times = (*means.values(), mean(fraction, "auto"))
            cells = [f"{fraction:g}", form, *(f"{ms:.3g} ms" for ms in times)]
            cells += [f"{ms / means['dynamic-frontier-prune']:.2f}" for ms in over]
            cells.append(PUBLISHED[figures].get(fraction, "") if form == "published" else "")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _graphs(rows: list[Row]) -> str:
    """Median time and mean error of each contender on each graph."""
    contenders = list(dict.fromkeys(row["contender"] for row in rows))
    lines = heading(f"graph, batch | {' | '.join(contenders)}")
    for (graph, fraction), found in groups(rows, "graph", "fraction").items():
        own = {
            row["contender"]: f"{row['median_ms']:.3g} ms, {row['mean_error']:.1e}" for row in found
        }
        lines.append(f"| {graph}, {fraction:g} | {' | '.join(own[name] for name in contenders)} |")
    return "\n".join(lines)


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
    """Milliseconds of a query by each method."""
    theirs, ours = (" | ".join(f"`{name}`" for name in names) for names in (METHODS, OURS))
    lines = heading(
        f"graph | edges | queries | {theirs} | `hybrid` over `push` | over `pushopt` | `pull` |"
        f" certificate | iterations | error bound | ours: {ours} | ours, fastest, over `hybrid`"
    )
    for (graph,), found in groups(rows, "graph").items():
        own = {(row["form"], row["method"]): row for row in found}
        published = {name: own["published", name]["median_ms"] for name in METHODS}
        accelerated = {name: own["accelerated", name]["median_ms"] for name in OURS}
        hybrid = own["published", "hybrid"]
        # solving and the certificate, which ours contains
        whole = hybrid["median_ms"] + hybrid["certify_ms"]
        cells = [
            f"{graph} | {hybrid['edges']:,} | {hybrid['queries']}",
            *(f"{ms:.3g} ms" for ms in published.values()),
            *(f"{published[name] / published['hybrid']:.2f}" for name in METHODS[:3]),
            f"{hybrid['certify_ms']:.3g} ms",
            f"{hybrid['iterations']:g} | {hybrid['error_bound']:.1e}",
            *(f"{ms:.3g} ms" for ms in accelerated.values()),
            f"{whole / min(accelerated.values()):.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


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
