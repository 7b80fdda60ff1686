"""Tables of the service: keys, queries over HTTP, overload, and tests of faults."""

from __future__ import annotations

from benchmarks.tables.common import Record, table

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


def personalized_http(document: Record) -> str:
    """Latency of a query over HTTP, a row for each number of clients."""
    figures = document["figures"]
    return (
        f"R-MAT, {figures['vertices']:,} vertices, {figures['edges']:,} edges;"
        f" top-{figures['k']} at {figures['target_error']:g};"
        f" batches: {figures['batches_per_second']} of"
        f" {figures['batch_edges']} edges a second, {figures['batch_ms']['p50']:.0f} ms each"
        f" (median). {figures['note']}\n\n"
    ) + table(
        "clients | batches meanwhile | queries | ms (p50) | (p99) | (largest) | iterations",
        "{clients} | {meanwhile} | {queries:,} | {ms[p50]:.1f} | {ms[p99]:.1f} | {ms[max]:.1f}"
        " | {median_iterations:.0f}",
        (row | {"meanwhile": "yes" if row["batches"] else "no"} for row in figures["rows"]),
    )


def mutation(document: Record) -> str:
    """How many faults the tests caught, by kind, and those that they did not."""
    figures = document["figures"]
    faults, first = figures["faults"], figures["first run"]
    runs = {
        "the nearest ones, for a minute": first["caught"],
        "the tests that should see them, at least": figures["caught without new tests"],
        "with the new ones": figures["caught"],
    }
    parts = [
        f"First run on {first['machine']}, by `{first['command']}`.",
        table(
            "tests | caught | share",
            f"{{name}} | {{caught}} of {faults} | {{share:.1%}}",
            ({"name": n, "caught": caught, "share": caught / faults} for n, caught in runs.items()),
        ),
        table(
            "kind of fault | caught",
            "{kind} | {caught[0]} of {caught[1]}",
            ({"kind": kind, "caught": both} for kind, both in figures["by kind"].items()),
        ),
        table(
            "not caught | fault | why",
            "`{path}`, line {line} | {change} | {why}",
            (
                fault
                | {"change": " → ".join(f"`{' '.join(fault[s].split())}`" for s in ("old", "new"))}
                | {"why": fault["equivalent"] or _UNSEEN}
                for fault in figures["survivors"]
            ),
        ),
    ]
    return "\n\n".join(parts)


_UNSEEN = "not seen by the tests tried so far, which are not all of them"


def retrieval(document: Record) -> str:
    """Latency of queries with thousands of seeds, a row for each way to ask."""
    figures = document["figures"]
    names = {"json": "HTTP, JSON", "arrow": "HTTP, Arrow", "igraph": "igraph, in process"}
    return (
        f"{figures['vertices']:,} vertices, {figures['edges']:,} edges, {figures['seeds']:,} seeds,"
        f" among {figures['among']:,}; top-{figures['k']} at {figures['target_error']:g};"
        f" {figures['queries']:,} queries each, in turn. {figures['note']}\n\n"
    ) + table(
        " | ms (p50) | (p99) | p50 over igraph | ms of processors (mean)",
        "{name} | {p50:.1f} | {p99:.1f} | {over_igraph:.2f} | {mean_processor_ms:.1f}",
        (row | {"name": names[row["way"]]} for row in figures["rows"]),
    )
