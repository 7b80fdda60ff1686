"""Tables of the engine: ranks, queries, programs, other libraries, shards, and what tools found."""

from __future__ import annotations

from benchmarks.tables.common import Record, Row, grouped, groups, of_rows, shown, table

residual = of_rows(
    "graph | batch | target | solve, ms (mean) | (median) | (largest) | iterations | touched"
    " | error bound | L1 error, last",
    "{graph}, {edges:,} edges | {batch_size:,} | {target_error:g} | {mean_ms:.2f}"
    " | {median_ms:.2f} | {largest_ms:.2f} | {mean_iterations:.1f} | {mean_touched_vertices:,.0f}"
    " | {mean_error_bound:.1e} | {last_error:.1e}",
)

solver = of_rows(
    "what | edges | dangling | strategy | target | ms (median) | (largest) | L1 error | bound",
    "{what} | {edges:,} | `{dangling}` | {strategy} | {target_error} | {median_ms:.2f}"
    " | {largest_ms:.2f} | {error:.1e} | {bound:.1e}",
)


def temporal(document: Record) -> str:
    """Time and error of every strategy, a table for each policy, the least in bold."""
    figures = document["figures"]
    size = "`{name}` ({vertices:,} vertices, {events:,} events)"
    networks = [shown(size, {"name": name, **row}) for name, row in figures["networks"].items()]
    text = "; {batches} batches a row, errors of {checks} of them."
    parts = [", ".join(networks) + shown(text, figures)]
    for own in groups(figures["replays"], "dangling", "network", "batch_size").values():
        for name in ("median_solve_ms", "mean_error"):
            least = min(row[name] for row in own)
            for row in own:
                row[f"bold {name}"] = "**" * (row[name] == least)
    for (dangling,), rows in groups(figures["replays"], "dangling").items():
        told = grouped(
            "network, events a batch | *",
            "{network}, {batch_size} | *",
            rows,
            "network batch_size",
            "contender",
            "{bold median_solve_ms}{median_solve_ms:.2f} ms{bold median_solve_ms},"
            " {bold mean_error}{mean_error:.1e}{bold mean_error}",
        )
        parts += [f"`{dangling}`:", told]
    return "\n\n".join(parts)


def peers(document: Record) -> str:
    """Whole solves beside other libraries, a row for each graph and peer; then small batches."""
    figures = document["figures"]
    alone = figures["threads"] == 1
    where = "On the device" if document["backend"] == "cuda" else f"{figures['threads']} threads"
    clock = "least_processor_seconds" if alone else "least_seconds"
    solves = table(
        "graph | peer | its L1 error | its seconds | our L1 error | our seconds | times as fast",
        f"{{graph}}, {{edges:,}} edges | {{peer}} | {{error:.1e}} | {{peer_times[{clock}]:.3g}}"
        f" | {{own_error:.1e}} | {{own_times[{clock}]:.3g}} | {{times_as_fast:.1f}}",
        figures["solves"],
    )
    batches = shown(
        "{batches} batches of 10 edges on {graph} at {target_error:g}:"
        " {1e3 * batch_median_seconds:.1f} ms median, {1e3 * batch_mean_seconds:.1f} ms mean,"
        " mutation included; a solve from nothing {1e3 * solve_seconds:.0f} ms:"
        " {times_as_fast:.0f} times the median.",
        figures["batches"],
    )
    clocks = "1 thread, processor" if alone else f"{where}, wall"
    return f"{clocks} time, the least of the rounds:\n\n{solves}\n\n{batches}"


def programs(document: Record) -> str:
    """A row for each graph, program and mode, with peers if there are any."""
    rows: list[Row] = document["figures"]
    peers = list(dict.fromkeys(peer for row in rows for peer in row["peers"]))
    titles = "".join(f" | {peer}, ms" for peer in peers)
    cells = "".join(f" | {{peers[{peer}]:.1f}}" for peer in peers)
    edges = "{reached_edges / milliseconds / 1e3:,.0f} M edges/s"
    sweeps = "{milliseconds / supersteps / sweep_milliseconds:.1f} sweeps of a solve a superstep"
    return table(
        f"graph | program | mode | supersteps | edges read | ms{titles} | that is",
        "{graph}, {edges:,} edges | `{program}` | {mode} | {supersteps} | {edges_read:,}"
        f" | {{milliseconds:.2f}}{cells} | {{rate}}",
        (row | {"rate": shown(edges, row) or shown(sweeps, row)} for row in rows),
    )


def out_of_core(document: Record) -> str:
    """A row for each budget and state of the kernel's cache."""
    figures = document["figures"]
    text = (
        "R-MAT {scale}: {vertices:,} vertices, {edges:,} edges, sorted in {pack_seconds:.0f} s."
        " The rate that edges come at: {bytes_per_second / 1e9:.2f} GB/s.\n\n"
    )
    return shown(text, figures) + table(
        "budget | edges | windows | passes | loaded | s | M edges/s | of the rate"
        " | with what passes found loaded | error bound",
        "{memory / 2**20:,.0f} MiB | {name} | {windows} | {passes} | {bytes_loaded / 1e9:.2f} GB"
        " | {seconds:.2f} | {edges_per_second / 1e6:,.0f} | {share:.0%} | {share_of_passes:.0%}"
        " | {error_bound:.1e}",
        (
            {"name": name, "memory": budget["memory"], **row}
            for budget in figures["budgets"]
            for name, row in budget.items()
            if name != "memory"
        ),
    )


def personalized(document: Record) -> str:
    """Single queries, a row for each kind and method; then many at once, watched ones, and the
    first places of the global ranks.
    """
    figures = document["figures"]
    parts = [
        table(
            "graph | sources | method | k | target | queries | ms (median) | (p90) | (largest)"
            " | iterations | settled | all k settled | as a set | largest bound",
            "{graph} | {kind} | `{method}` | {k} | {target_error:g} | {queries:,} | {median_ms:.2f}"
            " | {p90_ms:.2f} | {largest_ms:.2f} | {median_iterations:.0f} | {median_settled:.0f}"
            " | {all_settled:.0%} | {set_settled:.0%} | {largest_bound:.1e}",
            figures["rows"],
        )
    ]
    titles = {"many": "Many at once", "watched": "Watched", "first_places": "First places"}
    for part, title in titles.items():
        if figure := figures.get(part):
            told = "; ".join(
                f"{name.replace('_', ' ')} {value if isinstance(value, str) else f'{value:,.4g}'}"
                for name, value in figure.items()
            )
            parts.append(f"{title}: {told}.")
    return "\n\n".join(parts)


def sanitize(document: Record) -> str:
    """What each tool of compute-sanitizer found, a row for each tool."""
    tools = groups(document["figures"]["rows"], "tool").items()
    return table(
        "tool | parts | errors | seconds of the longest part",
        "`{tool}` | {', '.join(row['part'] for row in rows)} | {sum(row['errors'] for row in rows)}"
        " | {max(row['seconds'] for row in rows):.0f}",
        ({"tool": tool, "rows": own} for (tool,), own in tools),
    )


def shards(document: Record) -> str:
    """Times of each number of shards, and static solves over that of one device."""
    rows: list[Row] = document["figures"]
    alone = {row["scale"]: row["static ms"] for row in rows if row["shards"] == 1}
    return table(
        "R-MAT | devices | load | static solve | a sweep of it | batch of 1,000 | solve after it"
        " | a static sweep then | speed-up, static",
        "{scale} | {shards} | {load seconds:.1f} s | {static ms:.2f} ms | {ms a sweep:.2f} ms"
        " | {batch ms:.2f} ms | {solve after batch ms:.2f} ms"
        " | {ms a sweep after batches:.2f} ms | {alone[scale] / row['static ms']:.2f}",
        ({"row": row, "alone": alone, **row} for row in rows),
    )


device_memory = of_rows(
    "R-MAT | shards | bytes of each, at most | held by one device | needed there | held by shards"
    " | load: one device, shards | static solve | batch of 1,000 and solve",
    "{scale} | {number of shards} | {device memory bytes:,} | {one device[held bytes]:,}"
    " | {one device[needed bytes]:,} | {shards[held bytes]}"
    " | {one device[load seconds]:.1f} s, {shards[load seconds]:.1f} s"
    " | {one device[static ms]:.1f} ms, {shards[static ms]:.1f} ms"
    " | {one device[batch and solve ms]:.1f} ms, {shards[batch and solve ms]:.1f} ms",
)
