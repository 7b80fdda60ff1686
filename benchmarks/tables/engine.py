"""Tables of the engine: ranks, programs, other libraries, shards; and of the tests' faults."""

from __future__ import annotations

from benchmarks.tables.common import FORMS, Record, Row, groups, shown, table


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
        parts += [f"`{dangling}`:", table("temporal", rows)]
    return "\n\n".join(parts)


def peers(document: Record) -> str:
    """Whole solves beside other libraries, a row for each graph and peer."""
    figures = document["figures"]
    alone = figures["threads"] == 1
    where = "On the device" if document["backend"] == "cuda" else f"{figures['threads']} threads"
    clock = "least_processor_seconds" if alone else "least_seconds"
    for row in figures["solves"]:
        for times in (row["peer_times"], row["own_times"]):
            times["clock"] = times[clock]
    clocks = "1 thread, processor" if alone else f"{where}, wall"
    solves = f"{clocks} time, the least of the rounds:\n\n{table('peers', figures['solves'])}"
    # which older records have
    batches = shown(FORMS["peers"]["below"], figures.get("batches", {}))
    return f"{solves}\n\n{batches}" if batches else solves


def programs(document: Record) -> str:
    """A row for each graph, program and mode, with peers if there are any."""
    rows: list[Row] = document["figures"]
    return table("programs", rows, dict.fromkeys(peer for row in rows for peer in row["peers"]))


def out_of_core(document: Record) -> str:
    """A row for each budget and state of the kernel's cache."""
    figures = document["figures"]
    rows = (
        {"name": name, "memory": budget["memory"], **row}
        for budget in figures["budgets"]
        for name, row in budget.items()
        if name != "memory"
    )
    return f"{shown(FORMS['out-of-core']['text'], figures)}\n\n{table('out-of-core', rows)}"


def personalized(document: Record) -> str:
    """Single queries, a row for each kind and method; then many at once, watched ones, and the
    first places of the global ranks.
    """
    figures = document["figures"]
    parts = [table("personalized", figures["rows"])]
    titles = {"many": "Many at once", "watched": "Watched", "first_places": "First places"}
    for part, title in titles.items():
        if figure := figures.get(part):
            told = "; ".join(
                f"{name.replace('_', ' ')} {value if isinstance(value, str) else f'{value:,.4g}'}"
                for name, value in figure.items()
            )
            parts.append(f"{title}: {told}.")
    return "\n\n".join(parts)


def shards(document: Record) -> str:
    """Times of each number of shards, and static solves over that of one device."""
    rows: list[Row] = document["figures"]
    alone = {row["scale"]: row["static ms"] for row in rows if row["shards"] == 1}
    faster = (alone[row["scale"]] / row["static ms"] if alone else None for row in rows)
    return table("shards", ({**row, "speed-up": of} for row, of in zip(rows, faster, strict=True)))


def mutation(document: Record) -> str:
    """How many faults the tests caught, by kind, and those that they did not."""
    figures = document["figures"]
    first = figures["first run"]
    runs = {
        "the nearest ones, for a minute": first["caught"],
        "the tests that should see them, at least": figures["caught without new tests"],
        "with the new ones": figures["caught"],
    }
    rows = ({"tests": n, "caught": each, "faults": figures["faults"]} for n, each in runs.items())
    kinds = ({"kind": kind, "caught": both} for kind, both in figures["by kind"].items())
    parts = [
        f"First run on {first['machine']}, by `{first['command']}`.",
        table("mutation-tests", rows),
        table("mutation-kinds", kinds),
        table("mutation-survivors", figures["survivors"]),
    ]
    return "\n\n".join(parts)


STARTS = {
    "seconds": "start of the process to `/readyz`, every run, s",
    "lives": "start of the process to `/livez`, s",
    "ready": "start of the process to `/readyz`, s",
    "steps, mapping": "until `/readyz`: mapping, s",
    "steps, kernels": "until `/readyz`: kernels, s",
    "steps, recovery": "until `/readyz`: recovery, s",
    "processor time until ready": "processor time until `/readyz`, s",
    "compiled by CuPy": "files that CuPy compiled",
    "first batch": "then the first batch, s",
    "first personalized answer": "then the first personalized answer, s",
}
"""What the figures of `benchmarks.cold_start` are called."""

OVERLOAD = {
    "reads slowed tenfold": "reads slower than ten times the median alone",
    "read p50 over alone": "read ms, p50, over that alone",
    "memory growth": "memory of the last fifth over that of the second, less 1",
}
"""What figures of `benchmarks.service overload` are called."""
