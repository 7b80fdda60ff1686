"""Tables of the service: keys, queries over HTTP, overload, and tests of faults."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.tables.common import Record, Row, figures_and_values, heading, two_commits


def cold_start(document: Record) -> str:
    """Seconds of a start, a column for each state of the caches."""
    figures = document["figures"]
    steps = list(dict.fromkeys(step for state in figures.values() for step in state["steps"]))
    rows: list[tuple[str, Callable[[Row], str]]] = [
        ("start of the process to `/livez`, s", lambda state: f"{state['lives']:.2f}"),
        ("**to `/readyz`, s**", lambda state: f"**{state['ready']:.1f}**"),
        ("every run, s", lambda state: ", ".join(f"{each:.1f}" for each in state["seconds"])),
        *((f"of this, {step}, s", partial(_step, step)) for step in steps),
        ("processor time until ready, s", lambda s: f"{s['processor time until ready']:.1f}"),
        ("then the first batch, s", lambda state: f"{state['first batch']:.2f}"),
        ("then the first personalized answer, s", _first_answer),
    ]
    if document["backend"] == "cuda":
        rows.append(("kernels that CuPy compiled", lambda s: f"{s['compiled by CuPy']:.0f}"))
    lines = heading("| | " + " | ".join(figures) + " |")
    lines += [
        f"| {what} | " + " | ".join(map(show, figures.values())) + " |" for what, show in rows
    ]
    return "\n".join(lines) + "\n"


def _step(step: str, state: Row) -> str:
    return f"{state['steps'].get(step, 0.0):.2f}"


def _first_answer(state: Row) -> str:
    return f"{state['first personalized answer']:.2f}"


def vertex_keys(document: Record) -> str:
    """Bytes and seconds of a key table, by kind of key."""
    figures = document["figures"]
    count, edges = figures["keys"], figures["edges"]
    rows: list[tuple[str, Callable[[Row], str]]] = [
        ("bytes a key, the key itself", lambda row: f"{row['key_bytes'] / count:.1f}"),
        ("bytes a key, the whole table", lambda row: f"{row['table_bytes'] / count:.1f}"),
        (f"building it, {count:,} keys, s", lambda row: f"{row['build_seconds']:.2f}"),
        (f"a batch of {edges:,} edges to ids, s", lambda row: f"{row['batch_assign_seconds']:.2f}"),
        ("as many ids back to keys, s", lambda row: f"{row['batch_keys_seconds']:.2f}"),
    ]
    lines = heading("| | strings | integers |")
    lines += [
        f"| {what} | {show(figures['string'])} | {show(figures['integer'])} |"
        for what, show in rows
    ]
    return "\n".join(lines) + "\n"


def personalized_http(document: Record) -> str:
    """Latency of a query over HTTP, a row for each number of clients."""
    figures = document["figures"]
    lines = [
        f"R-MAT, {figures['vertices']:,} vertices, {figures['edges']:,} edges;"
        f" top-{figures['k']} at {figures['target_error']:g};"
        f" batches: {figures['batches_per_second']} of"
        f" {figures['batch_edges']} edges a second, {figures['batch_ms']['p50']:.0f} ms each"
        f" (median). {figures['note']}",
        "",
        *heading(
            "| clients | batches meanwhile | queries | ms (p50) | (p99) | (largest) | iterations |"
        ),
    ]
    lines += [
        f"| {row['clients']} | {'yes' if row['batches'] else 'no'} | {row['queries']:,}"
        f" | {row['ms']['p50']:.1f} | {row['ms']['p99']:.1f} | {row['ms']['max']:.1f}"
        f" | {row['median_iterations']:.0f} |"
        for row in figures["rows"]
    ]
    return "\n".join(lines) + "\n"


def load(document: Record) -> str:
    """Loads of a file, a row for each kind of keys and each checkout."""
    figures = document["figures"]
    lines = heading("| keys | checkout | s | processor s | edges/s |")
    lines += [
        f"| {kind} | {name} | {', '.join(map(str, row['seconds']))}"
        f" | {', '.join(map(str, row['cpu_seconds']))} | {row['edges_per_second']:,} |"
        for kind in ("integer", "string")
        for name, row in figures.get(kind, {}).items()
    ]
    return f"{figures['edges']:,} edges.\n\n" + "\n".join(lines)


def overload(document: Record) -> str:
    """Reads, batches and memory without writers, beside a stream, and under overload."""
    figures = document["figures"]
    names = ("alone", "stream", "overload")
    titles, parts = ["alone", "10 batches/s", "overload"], [figures[name] for name in names]
    if (other := figures.get("other")) is not None:
        titles += [f"`{other['commit']}`: {title}" for title in titles]
        parts += [other[name] for name in names]
    rows = ["| | " + " | ".join(titles) + " |", "| --- |" + " ---: |" * len(titles)]
    for name, cell in (
        ("seconds", lambda part: f"{part['seconds']:.0f}"),
        ("reads", lambda part: f"{part['reads']:,}"),
        ("refused", lambda part: f"{part['reads_refused']:,}"),
        ("slower than 10 times the median alone", lambda part: f"{part['reads_slowed_tenfold']:,}"),
        ("median, ms", lambda part: f"{part['read_ms']['p50']:.2f}"),
        ("99 %, ms", lambda part: f"{part['read_ms']['p99']:.1f}"),
        ("99.9 %, ms", lambda part: f"{part['read_ms']['p999']:.1f}"),
        ("batches taken", lambda part: f"{part['batches_taken']:,}"),
        ("batches refused with 429", lambda part: f"{part['batches_refused']:,}"),
        ("batches that failed", lambda part: f"{part['batches_failed']:,}"),
        ("resident at the end, MB", lambda part: f"{part['memory'][-1][1] / 1e6:.0f}"),
    ):
        rows.append(f"| {name} | " + " | ".join(map(cell, parts)) + " |")
    growth = figures["overload"]["memory_growth"]
    held = figures["overload"]["memory"]
    curve = ", ".join(
        f"{seconds:.0f} s {held_bytes / 1e6:.0f}"
        for seconds, held_bytes in held[:: max(1, len(held) // 10)]
    )
    return "\n".join(rows) + (
        f"\n\nMemory under overload, MB: {curve}. Its last fifth is {growth:+.1%} of its second."
    )


def fuzz(document: Record) -> str:
    """Bodies by format, then requests: how many were accepted, refused, and failed."""
    figures = document["figures"]
    bodies, requests = figures["bodies"], figures["requests"]
    lines = [
        f"Seed {figures['seed']}, {figures['seconds']:,} s.{_note(figures)}",
        "",
        *heading("| cases | format | decoded and applied | refused |"),
    ]
    formats = [*sorted({*bodies["decoded"], *bodies["refused"]} - {"other"}), "other"]
    for name in formats:
        taken, refused = (bodies[part].get(name, 0) for part in ("decoded", "refused"))
        lines.append(f"| {taken + refused:,} | {name} | {taken:,} | {refused:,} |")
    batches = requests["batches_taken"] + requests["batches_refused"]
    answers = _answers(requests["other_answers"])
    lines += [
        f"| {batches:,} | batches to a server | {requests['batches_taken']:,}"
        f" | {requests['batches_refused']:,} |",
        "",
        f"{requests['cases'] - batches:,} other requests, well formed and not: {answers};"
        f" {requests['cut_off']:,} had no answer, as they were no requests."
        f" Of {bodies['cases'] + requests['cases']:,} cases"
        f" {bodies['failures'] + requests['failures']:,} failed.",
    ]
    return "\n".join(lines) + "\n"


def schema(document: Record) -> str:
    """One sentence: cases, operations, answers, failures."""
    figures = document["figures"]
    return (
        f"schemathesis {figures['schemathesis']}, seed {figures['seed']}, all checks:"
        f" {figures['cases']:,} cases over {figures['operations']} operations in"
        f" {figures['seconds']:,} s; answers {_answers(figures['answers'])}."
        f" {figures['failures']:,} failed.{_note(figures)}\n"
    )


def _answers(by_status: dict[str, int]) -> str:
    return ", ".join(f"{count:,} × {status}" for status, count in by_status.items())


def _note(figures: Row) -> str:
    return f" {figures['note']}." if figures["note"] else ""


def crash(document: Record) -> str:
    """The figures of a run of kills; for the kills by point, their range."""
    figures = dict(document["figures"])
    by_point = figures.pop("kills by point").values()
    rows = figures_and_values({"figures": figures}).split("\n")
    spread = f"| each of the {len(by_point)} points | {min(by_point)} to {max(by_point)} kills |"
    after = 1 + next(at for at, row in enumerate(rows) if row.startswith("| kills at named"))
    return "\n".join([*rows[:after], spread, *rows[after:]])


def mutation(document: Record) -> str:
    """How many faults the tests caught, by kind, and those that they did not."""
    figures = document["figures"]
    faults, first = figures["faults"], figures["first run"]
    runs = [
        ("the nearest ones, for a minute", first["caught"]),
        ("the tests that should see them, at least", figures["caught without new tests"]),
        ("with the new ones", figures["caught"]),
    ]
    lines = [
        f"First run on {first['machine']}, by `{first['command']}`.",
        "",
        "| tests | caught | share |",
        "| --- | --- | --- |",
        *(f"| {name} | {caught} of {faults} | {caught / faults:.1%} |" for name, caught in runs),
        "",
        "| kind of fault | caught |",
        "| --- | --- |",
        *(f"| {kind} | {caught} of {of} |" for kind, (caught, of) in figures["by kind"].items()),
        "",
        "| not caught | fault | why |",
        "| --- | --- | --- |",
    ]
    for fault in figures["survivors"]:
        change = " → ".join(f"`{' '.join(fault[side].split())}`" for side in ("old", "new"))
        why = fault["equivalent"] or "not seen by the tests tried so far, which are not all of them"
        lines.append(f"| `{fault['path']}`, line {fault['line']} | {change} | {why} |")
    return "\n".join(lines)


def compare(document: Record) -> str:
    """Figures of the servers of two commits, and their ratios."""
    figures = document["figures"]
    return two_commits(f"The other commit: `{figures['other commit']}`.", "", figures["rows"])


def retrieval(document: Record) -> str:
    """Latency of queries with thousands of seeds, a row for each way to ask."""
    figures = document["figures"]
    names = {"json": "HTTP, JSON", "arrow": "HTTP, Arrow", "igraph": "igraph, in process"}
    lines = [
        f"{figures['vertices']:,} vertices, {figures['edges']:,} edges, {figures['seeds']:,} seeds,"
        f" among {figures['among']:,}; top-{figures['k']} at {figures['target_error']:g};"
        f" {figures['queries']:,} queries each, in turn. {figures['note']}",
        "",
        *heading("| | ms (p50) | (p99) | p50 over igraph | ms of processors (mean) |"),
    ]
    lines += [
        f"| {names[row['way']]} | {row['p50']:.1f} | {row['p99']:.1f} | {row['over_igraph']:.2f}"
        f" | {row['mean_processor_ms']:.1f} |"
        for row in figures["rows"]
    ]
    return "\n".join(lines)
