"""Tables of the service: keys, queries over HTTP, overload, and tests of faults."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.tables.common import (
    Record,
    Row,
    heading,
    table,
    two_commits,
)

Cells = dict[str, str | Callable[[Row], str]]


def across(first: str, columns: dict[str, Row], rows: Cells) -> str:
    """A column for each of these, and a row for each format of them."""
    lines = heading(" | ".join([first, *columns]))
    for what, cell in rows.items():
        show = cell.format_map if isinstance(cell, str) else cell
        lines.append(f"| {what} | {' | '.join(map(show, columns.values()))} |")
    return "\n".join(lines)


def cold_start(document: Record) -> str:
    """Seconds of a start, a column for each state of the caches."""
    figures = document["figures"]
    steps = dict.fromkeys(step for state in figures.values() for step in state["steps"])
    of_steps: Cells = {f"of this, {step}, s": partial(_step, step) for step in steps}
    cupy = {"kernels that CuPy compiled": "{compiled by CuPy:.0f}"}
    return across(
        "",
        figures,
        {
            "start of the process to `/livez`, s": "{lives:.2f}",
            "**to `/readyz`, s**": "**{ready:.1f}**",
            "every run, s": lambda state: ", ".join(f"{each:.1f}" for each in state["seconds"]),
            **of_steps,
            "processor time until ready, s": "{processor time until ready:.1f}",
            "then the first batch, s": "{first batch:.2f}",
            "then the first personalized answer, s": "{first personalized answer:.2f}",
            **(cupy if document["backend"] == "cuda" else {}),
        },
    )


def _step(step: str, state: Row) -> str:
    return f"{state['steps'].get(step, 0.0):.2f}"


def vertex_keys(document: Record) -> str:
    """Bytes and seconds of a key table, by kind of key."""
    figures = document["figures"]
    count, edges = figures["keys"], figures["edges"]
    return across(
        "",
        {"strings": figures["string"], "integers": figures["integer"]},
        {
            "bytes a key, the key itself": lambda row: f"{row['key_bytes'] / count:.1f}",
            "bytes a key, the whole table": lambda row: f"{row['table_bytes'] / count:.1f}",
            f"building it, {count:,} keys, s": "{build_seconds:.2f}",
            f"a batch of {edges:,} edges to ids, s": "{batch_assign_seconds:.2f}",
            "as many ids back to keys, s": "{batch_keys_seconds:.2f}",
        },
    )


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


def load(document: Record) -> str:
    """Loads of a file, a row for each kind of keys and each checkout."""
    figures = document["figures"]
    rows = (
        {"kind": kind, "name": name, "rate": row["edges_per_second"]}
        | {key: ", ".join(map(str, row[key])) for key in ("seconds", "cpu_seconds")}
        for kind in ("integer", "string")
        for name, row in figures.get(kind, {}).items()
    )
    return f"{figures['edges']:,} edges.\n\n" + table(
        "keys | checkout | s | processor s | edges/s",
        "{kind} | {name} | {seconds} | {cpu_seconds} | {rate:,}",
        rows,
    )


def overload(document: Record) -> str:
    """Reads, batches and memory without writers, beside a stream, and under overload."""
    figures = document["figures"]
    titles = {"alone": "alone", "stream": "10 batches/s", "overload": "overload"}
    columns = {title: figures[name] for name, title in titles.items()}
    if (other := figures.get("other")) is not None:
        named = {f"`{other['commit']}`: {title}": other[name] for name, title in titles.items()}
        columns |= named
    shown = across(
        "",
        columns,
        {
            "seconds": "{seconds:.0f}",
            "reads": "{reads:,}",
            "refused": "{reads_refused:,}",
            "slower than 10 times the median alone": "{reads_slowed_tenfold:,}",
            "median, ms": "{read_ms[p50]:.2f}",
            "99 %, ms": "{read_ms[p99]:.1f}",
            "99.9 %, ms": "{read_ms[p999]:.1f}",
            "batches taken": "{batches_taken:,}",
            "batches refused with 429": "{batches_refused:,}",
            "batches that failed": "{batches_failed:,}",
            "resident at the end, MB": lambda part: f"{part['memory'][-1][1] / 1e6:.0f}",
        },
    )
    held = figures["overload"]["memory"]
    curve = ", ".join(
        f"{seconds:.0f} s {held_bytes / 1e6:.0f}"
        for seconds, held_bytes in held[:: max(1, len(held) // 10)]
    )
    growth = figures["overload"]["memory_growth"]
    return (
        f"{shown}\n\nMemory under overload, MB: {curve}."
        f" Its last fifth is {growth:+.1%} of its second."
    )


def fuzz(document: Record) -> str:
    """Bodies by format, then requests: how many were accepted, refused, and failed."""
    figures = document["figures"]
    bodies, requests = figures["bodies"], figures["requests"]
    formats = [*sorted({*bodies["decoded"], *bodies["refused"]} - {"other"}), "other"]
    counts = [
        (name, bodies["decoded"].get(name, 0), bodies["refused"].get(name, 0)) for name in formats
    ]
    counts.append(("batches to a server", requests["batches_taken"], requests["batches_refused"]))
    batches = requests["batches_taken"] + requests["batches_refused"]
    shown = table(
        "cases | format | decoded and applied | refused",
        "{cases:,} | {name} | {taken:,} | {refused:,}",
        (
            {"cases": taken + refused, "name": name, "taken": taken, "refused": refused}
            for name, taken, refused in counts
        ),
    )
    return (
        f"Seed {figures['seed']}, {figures['seconds']:,} s.{_note(figures)}\n\n{shown}\n\n"
        f"{requests['cases'] - batches:,} other requests, well formed and not:"
        f" {_answers(requests['other_answers'])};"
        f" {requests['cut_off']:,} had no answer, as they were no requests."
        f" Of {bodies['cases'] + requests['cases']:,} cases"
        f" {bodies['failures'] + requests['failures']:,} failed."
    )


def schema(document: Record) -> str:
    """One sentence: cases, operations, answers, failures."""
    figures = document["figures"]
    return (
        f"schemathesis {figures['schemathesis']}, seed {figures['seed']}, all checks:"
        f" {figures['cases']:,} cases over {figures['operations']} operations in"
        f" {figures['seconds']:,} s; answers {_answers(figures['answers'])}."
        f" {figures['failures']:,} failed.{_note(figures)}"
    )


def _answers(by_status: dict[str, int]) -> str:
    return ", ".join(f"{count:,} × {status}" for status, count in by_status.items())


def _note(figures: Row) -> str:
    return f" {figures['note']}." if figures["note"] else ""


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


def compare(document: Record) -> str:
    """Figures of the servers of two commits, and their ratios."""
    figures = document["figures"]
    return two_commits(f"The other commit: `{figures['other commit']}`.", "", figures["rows"])


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
