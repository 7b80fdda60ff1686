"""Tables of the engine: ranks, personalized queries, comparisons with other libraries."""

from __future__ import annotations

from benchmarks.tables.common import Record, Row, heading, two_commits


def small_batches(document: Record) -> str:
    """Milliseconds of batches of two commits, a row for each graph and size."""
    lines = heading(
        "| batches | other: median | mean | largest | this: apply | update | publish | median "
        "| mean | largest | ratio of medians |"
    )
    for row in document["figures"]["milliseconds"]:
        other, total = (row[f"{which}: median, mean, largest"] for which in ("other", "this"))
        each = [*other, *row["this: apply, update, publish"], *total]
        shown = " | ".join(f"{value:.2f}" for value in each)
        lines.append(f"| {row['batches']} | {shown} | {row['ratio of medians']:.2f} |")
    return "\n".join(lines)


def views(document: Record) -> str:
    """Milliseconds with and without views, and their ratios."""
    lines = heading(
        "| R-MAT, views, seeds of each | batch of 1,000 | with views | ratio"
        " | change of 1,000 weights | view from nothing | ratio"
        " | export | of a view | bytes a vertex of a view |"
    )
    for row in document["figures"]:
        cells = (
            f"{row['scale']}, {row['views']}, {row['seeds of a view']:,}",
            f"{row['batch ms']:.1f} ms",
            f"{row['batch with views ms']:.1f} ms",
            f"{row['batch with views over without']:.1f}",
            f"{row['change of weights ms']:.1f} ms",
            f"{row['view from nothing ms']:.1f} ms",
            f"{row['change over from nothing']:.2f}",
            f"{row['export ms']:.0f} ms",
            f"{row['export of a view ms']:.0f} ms",
            f"{row['bytes a vertex of a view']:g}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def temporal(document: Record) -> str:
    """Time and error of every strategy, a table for each policy; and where `auto` is beaten."""
    figures = document["figures"]
    networks = ", ".join(
        f"`{name}` ({size['vertices']:,} vertices, {size['events']:,} events)"
        for name, size in figures["networks"].items()
    )
    parts = [
        f"{networks}; {figures['batches']} batches a row, errors of {figures['checks']} of them.",
        "",
    ]
    for dangling in dict.fromkeys(row["dangling"] for row in figures["replays"]):
        rows = [row for row in figures["replays"] if row["dangling"] == dangling]
        names = list(dict.fromkeys(row["contender"] for row in rows))
        parts += [
            f"`{dangling}`:",
            "",
            *heading("| network, events a batch | " + " | ".join(names) + " |"),
        ]
        groups: dict[str, list[Row]] = {}
        for row in rows:
            groups.setdefault(f"{row['network']}, {row['batch_size']}", []).append(row)
        for group, members in groups.items():
            parts.append(f"| {group} | " + " | ".join(_times_and_errors(members)) + " |")
        parts += ["", *_verdict(groups, [name for name in names if name.startswith("auto")]), ""]
    return "\n".join(parts[:-1])


def _times_and_errors(rows: list[Row]) -> list[str]:
    """Median milliseconds and mean error of each row, the smallest of all in bold."""
    cells = []
    for row in rows:
        figures = []
        for key, shown in (("median_solve_ms", "{:.2f} ms"), ("mean_error", "{:.1e}")):
            text = shown.format(row[key])
            least = row[key] == min(other[key] for other in rows)
            figures.append(f"**{text}**" if least else text)
        cells.append(", ".join(figures))
    return cells


def _verdict(groups: dict[str, list[Row]], own: list[str]) -> list[str]:
    """Where the first row of `auto` is not the fastest of all, and where no row of `auto` has both
    less time and less error than a published strategy.

    own  the contenders that are `auto`
    """
    slower, beaten = [], []
    for group, rows in groups.items():
        others = [row for row in rows if row["contender"] not in own]
        mine = [row for row in rows if row["contender"] in own]
        if mine[0]["median_solve_ms"] > min(row["median_solve_ms"] for row in others):
            slower.append(group)
        beaten += [
            f"{other['contender']} on {group}"
            for other in others
            if not any(
                row["median_solve_ms"] < other["median_solve_ms"]
                and row["mean_error"] < other["mean_error"]
                for row in mine
            )
        ]
    count = len(groups)
    rest = len(groups) - len(slower)
    return [
        f"`{own[0]}` is faster than every published strategy in {rest} of {count} rows"
        + (f"; not on {'; '.join(slower)}." if slower else "."),
        "One of its rows has less time *and* less error than each of them"
        + (f", but for {'; '.join(beaten)}." if beaten else ", in every row."),
    ]


def residual(document: Record) -> str:
    """Time, work and error of the residual strategy, a row for each graph and batch size; times
    alone, a column for each of several costs.
    """
    if "costs" in document["figures"][0]:
        return _by_costs(document["figures"])
    lines = heading(
        "| graph | batch | target | solve, ms (mean) | (median) | (largest) | iterations | touched"
        " | error bound | L1 error, last |"
    )
    lines += [
        f"| {row['graph']}, {row['edges']:,} edges | {row['batch_size']:,}"
        f" | {row['target_error']:g} | {row['mean_ms']:.2f} | {row['median_ms']:.2f}"
        f" | {row['largest_ms']:.2f}"
        f" | {row['mean_iterations']:.1f} | {row['mean_touched_vertices']:,.0f}"
        f" | {row['mean_error_bound']:.1e} | {row['last_error']:.1e} |"
        for row in document["figures"]
    ]
    return "\n".join(lines)


def push_costs(document: Record) -> str:
    """What was pushed, and the prices that explain its time: by graph, and of all."""
    prices = ("push_overhead", "round_overhead", "pushed_vertex", "pushed_edge")
    figures = dict(document["figures"])
    totals = [(name, figures.pop(name)) for name in ("costs", "by edges alone")]
    lines = heading("| graph | pushes | rounds | entries | edges | ms | r from y, in sweeps |")
    lines += [
        f"| {name}, {row['edges']:,} edges | {row['pushes']:,} | {row['rounds']:,}"
        f" | {row['entries']:,} | {row['pushed_edges']:,} | {row['microseconds'] / 1e3:.1f}"
        f" | {row['residual_in_sweeps']} |"
        for name, row in figures.items()
    ]
    lines += ["", *heading("| price of | a push | a round | an entry | an edge | error |")]
    alone = [
        (name, {key.removeprefix("alone: "): cost for key, cost in row.items()})
        for name, row in figures.items()
    ]
    lines += [
        f"| {'all' if name == 'costs' else name} | "
        + " | ".join(
            f"{row[price]:,.0f}" if row[price] > 1e3 else f"{row[price]:g}" for price in prices
        )
        + f" | {row['relative_error']:.1%} |"
        for name, row in [*alone, *totals]
    ]
    return "\n".join(lines)


def _by_costs(figures: list[Row]) -> str:
    groups: dict[str, list[Row]] = {}
    for row in figures:
        name = f"{row['graph']}, {row['edges']:,} edges | {row['batch_size']:,}"
        groups.setdefault(name, []).append(row)
    contenders = [row["costs"] for row in next(iter(groups.values()))]
    lines = [
        f"- costs {number}: "
        + (", ".join(f"`{name}` {cost:,g}" for name, cost in costs.items()) or "the backend's")
        for number, costs in enumerate(contenders)
    ]
    columns = " | ".join(f"costs {number}" for number in range(len(contenders)))
    lines += ["", *heading(f"| graph | batch | solve, ms (mean / median): {columns} |")]
    lines += [
        f"| {name} | "
        + " | ".join(f"{row['mean_ms']:.2f} / {row['median_ms']:.2f}" for row in rows)
        + " |"
        for name, rows in groups.items()
    ]
    return "\n".join(lines)


def peers(document: Record) -> str:
    """Whole solves beside other libraries, a row for each graph and peer; then small batches."""
    figures = document["figures"]
    alone = figures["threads"] == 1
    shared = "On the device" if document["backend"] == "cuda" else f"{figures['threads']} threads"
    clock = "least_processor_seconds" if alone else "least_seconds"
    lines = [
        f"{'1 thread, processor' if alone else f'{shared}, wall'} time, the least of the rounds:\n",
        *heading(
            "| graph | peer | its L1 error | its seconds | our L1 error | our seconds"
            " | times as fast |"
        ),
    ]
    lines += [
        f"| {row['graph']}, {row['edges']:,} edges | {row['peer']} | {row['error']:.1e}"
        f" | {row['peer_times'][clock]:.3g} | {row['own_error']:.1e}"
        f" | {row['own_times'][clock]:.3g} | {row['times_as_fast']:.1f} |"
        for row in figures["solves"]
    ]
    batches = figures["batches"]
    lines.append(
        f"\n{batches['batches']} batches of 10 edges on {batches['graph']} at"
        f" {batches['target_error']:g}: {1e3 * batches['batch_median_seconds']:.1f} ms median,"
        f" {1e3 * batches['batch_mean_seconds']:.1f} ms mean, mutation included; a solve from"
        f" nothing {1e3 * batches['solve_seconds']:.0f} ms:"
        f" {batches['times_as_fast']:.0f} times the median."
    )
    return "\n".join(lines)


def programs(document: Record) -> str:
    """A row for each graph, program and mode, with peers if there are any."""
    rows: list[Row] = document["figures"]
    peers = list(dict.fromkeys(peer for row in rows for peer in row["peers"]))
    titles = "".join(f" {peer}, ms |" for peer in peers)
    lines = heading(f"| graph | program | mode | supersteps | edges read | ms |{titles} that is |")
    for row in rows:
        times = "".join(
            f" {row['peers'][peer]:.1f} |" if peer in row["peers"] else " |" for peer in peers
        )
        rate = ""
        if "reached_edges" in row:
            rate = f"{row['reached_edges'] / row['milliseconds'] / 1e3:,.0f} M edges/s"
        if "sweep_milliseconds" in row:
            sweep = row["milliseconds"] / row["supersteps"] / row["sweep_milliseconds"]
            rate = f"{sweep:.1f} sweeps of a solve a superstep"
        lines.append(
            f"| {row['graph']}, {row['edges']:,} edges | `{row['program']}` | {row['mode']}"
            f" | {row['supersteps']} | {row['edges_read']:,} | {row['milliseconds']:.2f}"
            f" |{times} {rate} |"
        )
    return "\n".join(lines)


def out_of_core(document: Record) -> str:
    """A row for each budget and state of the kernel's cache."""
    figures = document["figures"]
    graph = (
        f"R-MAT {figures['scale']}: {figures['vertices']:,} vertices, {figures['edges']:,} edges"
    )
    rate = f"{figures['bytes_per_second'] / 1e9:.2f} GB/s"
    lines = [
        f"{graph}, sorted in {figures['pack_seconds']:.0f} s. The rate that edges come at: {rate}.",
        "",
        *heading(
            "| budget | edges | windows | passes | loaded | s | M edges/s | of the rate"
            " | with what passes found loaded | error bound |"
        ),
    ]
    for budget in figures["budgets"]:
        for name, row in budget.items():
            if name != "memory":
                loaded = f"{row['bytes_loaded'] / 1e9:.2f} GB"
                lines.append(
                    f"| {budget['memory'] / (1 << 20):,.0f} MiB | {name} | {row['windows']}"
                    f" | {row['passes']} | {loaded} | {row['seconds']:.2f}"
                    f" | {row['edges_per_second'] / 1e6:,.0f} | {row['share']:.0%}"
                    f" | {row['share_of_passes']:.0%} | {row['error_bound']:.1e} |"
                )
    return "\n".join(lines) + "\n"


def personalized(document: Record) -> str:
    """Single queries, a row for each kind and method; then many at once, watched ones, and the
    first places of the global ranks.
    """
    figures = document["figures"]
    lines = heading(
        "| graph | sources | method | k | target | queries | ms (median) | (p90) | (largest)"
        " | iterations | settled | all k settled | as a set | largest bound |"
    )
    lines += [
        f"| {row['graph']} | {row['kind']} | `{row['method']}` | {row['k']}"
        f" | {row['target_error']:g} | {row['queries']:,} | {row['median_ms']:.2f}"
        f" | {row['p90_ms']:.2f} | {row['largest_ms']:.2f} | {row['median_iterations']:.0f}"
        f" | {row['median_settled']:.0f} | {row['all_settled']:.0%}"
        f" | {_share(row.get('set_settled'))} | {row['largest_bound']:.1e} |"
        for row in figures["rows"]
    ]
    parts = {"many": "Many at once", "watched": "Watched", "first_places": "First places"}
    for part, title in parts.items():
        if figure := figures.get(part):
            shown = "; ".join(
                f"{name.replace('_', ' ')} {value if isinstance(value, str) else f'{value:,.4g}'}"
                for name, value in figure.items()
            )
            lines += ["", f"{title}: {shown}."]
    return "\n".join(lines) + "\n"


def personalized_methods(document: Record) -> str:
    """The default against each method on real graphs, a row for each graph and target."""
    lines = heading(
        "| graph | vertices | edges | target | one request, s: `hybrid` | (the first)"
        " | `push` | `pull` | over the better | (counted) | one by one, s: `hybrid` | `push`"
        " | `pull` | over the better | (counted) |"
    )
    for row in document["figures"]["rows"]:
        together, alone = row["together"], row["alone"]
        shown = [f"{together[name]:.3f}" for name in ("hybrid", "first", "push", "pull")]
        shown += [f"{together[name]:.2f}" for name in ("over_best", "work_over_best")]
        shown += [f"{alone[name]:.3f}" for name in ("hybrid", "push", "pull")]
        shown += [f"{alone[name]:.2f}" for name in ("over_best", "work_over_best")]
        lines.append(
            f"| {row['graph']} | {row['vertices']:,} | {row['edges']:,} | {row['target_error']:g}"
            f" | {' | '.join(shown)} |"
        )
    return "\n".join(lines) + "\n"


def _share(part: float | None) -> str:
    """A percentage; empty for None, which older records have."""
    return "" if part is None else f"{part:.0%}"


def solver(document: Record) -> str:
    """Whole solves and single sweeps, a row each."""
    lines = heading(
        "| what | edges | dangling | strategy | target | ms (median) | (largest) | L1 error"
        " | bound |"
    )
    for row in document["figures"]:
        error, bound = (f"{row[key]:.1e}" if key in row else "" for key in ("error", "bound"))
        lines.append(
            f"| {row['what']} | {row['edges']:,} | `{row['dangling']}` | {row.get('strategy', '')}"
            f" | {row.get('target_error', '')} | {row['median_ms']:.2f} | {row['largest_ms']:.2f}"
            f" | {error} | {bound} |"
        )
    return "\n".join(lines) + "\n"


def sweep_kinds(document: Record) -> str:
    """Sweeps and milliseconds of solves, a column for each kind and one for the schedule's choice.

    The names of the columns are those of the record.
    """
    rows = document["figures"]
    columns = [name for name, value in rows[0].items() if isinstance(value, dict)]
    lines = heading(
        f"| graph | dangling | target | {' | '.join(columns)}"
        " | chosen over the better of the last two |"
    )
    for row in rows:
        shown = " | ".join(
            f"{row[name]['sweeps']}, {row[name]['milliseconds']:.2f} ms" for name in columns
        )
        lines.append(
            f"| {row['graph']} | `{row['dangling']}` | {row['target_error']:g} | {shown}"
            f" | {row['over_best_without_acceleration']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def compare(document: Record) -> str:
    """Times of the engines of two commits, and their ratios."""
    figures = document["figures"]
    title = f"The other commit: `{figures['other commit']}`; R-MAT {figures['scale']}."
    return two_commits(title, "ms", figures["milliseconds"])


def continued(document: Record) -> str:
    """A row for each graph, program and size of batches."""
    lines = heading("| graph | program | operations | continued | read | ms | again, ms |")
    for row in document["figures"]:
        kind = "directed" if row["directed"] else "undirected"
        lines.append(
            f"| {row['graph']}, {kind}, {row['edges']:,} edges | `{row['program']}`"
            f" | {row['operations']:,} | {row['continued']:.0%} | {row['read']:,}"
            f" | {row['milliseconds']:,.1f} | {row['again']:,.1f} |"
        )
    return "\n".join(lines)
