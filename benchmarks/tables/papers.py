"""Tables of notes/papers.md: figures of two papers on generators and on PageRank kernels."""

from __future__ import annotations

from benchmarks.tables.common import Record, Row, heading

_SYMBOLS = {"edges_per_vertex": "d", "probability": "p"}


def preferential_attachment(document: Record) -> str:
    """Models; times by everything that the record has them by; on a device, degrees and queues,
    which are the same on every backend.
    """
    figures = document["figures"]
    parts = [_models(figures["models"])]
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
        parts += [_exponents(figures["degrees"]), *_queues(figures)]
    return "\n\n".join(parts)


def cuppa(document: Record) -> str:
    """The published variants beside ours, what they count, and cuPPA-Dynamic by everything that the
    record has it by.
    """
    figures = document["figures"]
    lines = heading(
        "| figures 3 and 10: model | ms (median) | (largest) | exponent, degrees ≥ 4 | rounds"
        " | edges that waited | longest queue of a thread | passes, at most |"
    )
    for row in figures["models"]:
        counts = [f"{row[name]:,}" if name in row else "" for name in _COUNTS]
        lines.append(
            f"| {row['model']} | {_milliseconds(row)} | {row['largest_ms']:,.4g}"
            f" | {row['exponent']:.3f} | {' | '.join(counts)} |"
        )
    first = figures["models"][0]
    edges = first["vertices"] * first["edges_per_vertex"]
    parts = [f"{edges:,} edges, d = {first['edges_per_vertex']}, p = 1/2.", "\n".join(lines)]
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


_COUNTS = ("rounds", "queued", "largest_queue", "passes")


def _queues(figures: Row) -> tuple[str, str]:
    title, largest = "figure 8, largest queue of 1,280 vertices", figures["largest queue"]
    table = _crossed(title, largest, "edges_per_vertex", "probability", "largest_queue")
    sizes = {row["round"]: row["largest_queue"] for row in figures["queue by round"]}
    by_round = ", ".join(f"{place}: {sizes[place]}" for place in (1, 2, 5, 10, 20, 50, 100))
    return table, f"Figure 9, the largest queue by round: {by_round}."


def _models(rows: list[Row]) -> str:
    lines = heading("| figure 10: model | vertices | edges | ms (median) | (largest) |")
    lines += [
        f"| {row['model']} | {row['vertices']:,} | {row['vertices'] * row['edges_per_vertex']:,}"
        f" | {row['median_ms']:,.1f} | {row['largest_ms']:,.1f} |"
        for row in rows
    ]
    return "\n".join(lines)


def _exponents(rows: list[Row]) -> str:
    degrees = list(rows[0]["exponents"])
    titles = " | ".join(f"exponent, degrees ≥ {degree}" for degree in degrees)
    lines = heading(f"| figures 3 and 7: model | vertices | p | largest degree | {titles} |")
    for row in rows:
        exponents = " | ".join(f"{row['exponents'][degree]:.3f}" for degree in degrees)
        lines.append(
            f"| {row['model']} | {row['vertices']:,} | {row['probability']:g}"
            f" | {row['largest_degree']:,} | {exponents} |"
        )
    return "\n".join(lines)


def _threads(rows: list[Row]) -> str:
    counts = " | ".join(f"{row['threads']:,}" for row in rows)
    lines = heading(f"| figure 15: threads of a block | {counts} |")
    lines.append(f"| ms (median) | {' | '.join(_milliseconds(row) for row in rows)} |")
    return "\n".join(lines)


def _crossed(title: str, rows: list[Row], down: str, across: str, value: str = "median_ms") -> str:
    """A table with a row for each value of `down` and a column for each value of `across`."""
    columns = sorted({row[across] for row in rows})
    cells = {(row[down], row[across]): row for row in rows}
    down_name, across_name = (_SYMBOLS.get(name, name) for name in (down, across))
    titles = " | ".join(f"{across_name} = {column:g}" for column in columns)
    lines = heading(f"| {title}: {down_name} | {titles} |")
    for name in sorted({row[down] for row in rows}):
        own = (cells[name, column] for column in columns)
        shown = (_milliseconds(row) if value == "median_ms" else f"{row[value]:,}" for row in own)
        first = f"{name:,}" if isinstance(name, int) else f"{name:g}"
        lines.append(f"| {first} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _milliseconds(row: Row) -> str:
    value = row["median_ms"]
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def kim(document: Record) -> str:
    """Ten iterations by each method, a row for each graph: alone, and with the transfers."""
    rows = document["figures"]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = heading(
        f"| figure: graph | edges | {' | '.join(methods)} | L1 error of Kim's, larger |"
    )
    for name in dict.fromkeys(row["graph"] for row in rows):
        own = {row["method"]: row for row in rows if row["graph"] == name}
        first = next(iter(own.values()))
        figures = [
            (own[each].get("iterations_ms"), own[each].get("with_transfers_ms")) for each in methods
        ]
        cells = [
            " ".join([*([f"{alone:g}"] if alone else []), *([f"({whole:g})"] if whole else [])])
            for alone, whole in figures
        ]
        errors = max(row["error"] for row in own.values() if "error" in row)
        lines.append(
            f"| {first['figure']}: {name} | {first['edges']:,} | {' | '.join(cells)}"
            f" | {errors:.1e} |"
        )
    return "\n".join(["Milliseconds of ten iterations, in brackets with transfers.", "", *lines])


def authors(document: Record) -> str:
    """Authors' programs beside ours, a row for each of their solves; the graphs like the web."""
    figures = document["figures"]
    commits = ", ".join(f"`{name}` {commit[:7]}" for name, commit in figures["commits"].items())
    lines = heading(
        "| program | graph | edges | of a batch | method | iterations | ms | error"
        " | ours, iterations | ms | error | times as fast |"
    )
    for row in figures["rows"]:
        ours, tolerance = row["ours"], row.get("tolerance")
        method = row["method"] + (f", tolerance {tolerance:g}" if tolerance else "")
        batch = f"{row['fraction']:.0e}" if row["fraction"] else ""
        lines.append(
            f"| {row['program']} | {row['graph']} | {row['edges']:,} | {batch} | {method}"
            f" | {row.get('iterations') or ''} | {_milliseconds_of(row)} | {row['error']:.1e}"
            f" | {ours['iterations']} | {_milliseconds_of(ours)} | {ours['error']:.1e}"
            f" | {row['times_as_fast']:.1f} |"
        )
    parts = [f"Commits: {commits}.", "\n".join(lines)]
    if figures["failed"]:
        parts.append(f"Did not end: {', '.join(figures['failed'])}.")
    for name, like in figures["web"].items():
        crawl = like["the crawl"]
        web = heading(f"| | {name} | the crawl |")
        web += [
            f"| {what} | {_told(like[what])} | {_told(value)} |" for what, value in crawl.items()
        ]
        parts.append("\n".join(web))
    return "\n\n".join(parts)


def _milliseconds_of(row: Row) -> str:
    value = row["ms"]
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _told(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_told, value))
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}"


def sigps(document: Record) -> str:
    """Programs beside one thread of the host, and three PageRanks."""
    figures = document["figures"]
    speed = heading("| graph | program | one thread, ms | ms | times as fast |")
    speed += [
        f"| {row['graph']}, {row['edges']:,} edges | `{row['program']}`"
        f" | {row['sequential_ms']:,.0f} | {row['ms']:.3g} | {row['times_as_fast']:.3g} |"
        for row in figures["speed-up"]
    ]
    three = heading(
        "| vertices | iterations | dense, host, ms | dense, device, ms | `pagerank`, ms |"
    )
    three += [
        f"| {row['vertices']:,} | {row['iterations']} | {row['dense_host_ms']:.3g}"
        f" | {row['dense_ms']:.3g} | {row['program_ms']:.3g} |"
        for row in figures["PageRank"]
    ]
    return "\n".join([*speed, "", *three])


def trusses(document: Record) -> str:
    """A row for each part of the work, variant, number of iterations and of partitions."""
    rows: list[Row] = document["figures"]
    base = rows[0]
    lines = [
        f"{base['graph']} without directions: {base['vertices']:,} vertices, {base['edges']:,}"
        f" edges, {base['triangles']:,} triangles, whose lists have {base['list_bytes']:,} bytes.",
        "",
    ]
    lines += heading("| | iterations | partitions | edges examined | bounds final | ms |")
    for row in rows:
        if "iterations" in row:
            counts = (
                f"{row['iterations']} | {row['partitions']} | {row['examined']:,}"
                f" | {row['final']:.2%}"
            )
        else:
            counts = " | | |"
        lines.append(f"| {row['kind']} | {counts} | {row['milliseconds']:,.1f} |")
    return "\n".join(lines)
