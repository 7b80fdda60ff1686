"""Puts the recorded figures into the documents, between the marks

    <!-- figures: SUITE-BACKEND -->
    <!-- end of figures -->

    python -m benchmarks.tables

A test holds the documents against benchmarks/results/, so a figure cannot be edited by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS

DOCUMENTS = Path(__file__).parents[1] / "docs"

MARKS = re.compile(
    r"(<!-- figures: (?P<name>[\w.-]+) -->\n)(?P<table>.*?)(<!-- end of figures -->)", re.DOTALL
)


def provenance(document: dict[str, Any]) -> str:
    """One line that says where, from what and how the figures were made."""
    machine = document["machine"]
    where = machine.get("device", f"{machine['processor']}, {machine['cores']} cores")
    return f"Measured on {where}, commit `{document['commit']}`, by `{document['command']}`."


def temporal(document: dict[str, Any]) -> str:
    """Time and error of every strategy, a table a dangling policy; and where `auto` is beaten."""
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
            "| network, events a batch | " + " | ".join(names) + " |",
            "| --- |" + " --- |" * len(names),
        ]
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            groups.setdefault(f"{row['network']}, {row['batch_size']}", []).append(row)
        for group, members in groups.items():
            parts.append(f"| {group} | " + " | ".join(_times_and_errors(members)) + " |")
        parts += ["", *_verdict(groups, [name for name in names if name.startswith("auto")]), ""]
    return "\n".join(parts[:-1])


def _times_and_errors(rows: list[dict[str, Any]]) -> list[str]:
    """Median milliseconds and mean error of each row, the least of all in bold."""
    cells = []
    for row in rows:
        figures = []
        for key, shown in (("median_solve_ms", "{:.2f} ms"), ("mean_error", "{:.1e}")):
            text = shown.format(row[key])
            least = row[key] == min(other[key] for other in rows)
            figures.append(f"**{text}**" if least else text)
        cells.append(", ".join(figures))
    return cells


def _verdict(groups: dict[str, list[dict[str, Any]]], own: list[str]) -> list[str]:
    """Where the first of our own rows is not the fastest of all, and where no own row has both less
    time and less error than each published strategy.
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


def graph(document: dict[str, Any]) -> str:
    """Figures of the dynamic graph, one a row; several numbers as name and value."""
    lines = ["| figure | measured |", "| --- | --- |"]
    for name, value in document["figures"].items():
        if isinstance(value, dict):
            pairs = (
                f"{part.replace('_', ' ')} {_number(number)}" for part, number in value.items()
            )
            lines.append(f"| {name} | {'; '.join(pairs)} |")
        elif isinstance(value, list):
            lines.append(f"| {name} | {', '.join(map(_number, value))} |")
        else:
            lines.append(f"| {name} | {_number(value)} |")
    return "\n".join(lines)


def residual(document: dict[str, Any]) -> str:
    """Time, work and error of the residual strategy, a row a graph and batch size."""
    lines = [
        "| graph | batch | target | solve, ms (mean) | (median) | (largest) | iterations | touched"
        " | error bound | L1 error, last |",
        "|" + " --- |" * 10,
    ]
    lines += [
        f"| {row['graph']}, {row['edges']:,} edges | {row['batch_size']:,}"
        f" | {row['target_error']:g} | {row['mean_ms']:.2f} | {row['median_ms']:.2f}"
        f" | {row['largest_ms']:.2f}"
        f" | {row['mean_iterations']:.1f} | {row['mean_touched_vertices']:,.0f}"
        f" | {row['mean_error_bound']:.1e} | {row['last_error']:.1e} |"
        for row in document["figures"]
    ]
    return "\n".join(lines)


def storage(document: dict[str, Any]) -> str:
    """What each storage holds, takes and reaches, a column each."""
    rows: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("ranks, residual and what a solve needs, bytes", lambda row: f"{row['ranks_bytes']:,}"),
        ("a published copy, bytes", lambda row: f"{row['published_bytes']:,}"),
        ("first solve, ms", lambda row: f"{row['first_solve_ms']:.1f}"),
        ("its iterations", lambda row: f"{row['first_iterations']}"),
        ("a batch, ms (median)", lambda row: f"{row['median_ms']:.2f}"),
        ("`static` afterwards, ms", lambda row: f"{row['static_ms']:.1f}"),
        ("error bound after the last batch", lambda row: f"{row['error_bound']:.1e}"),
        ("L1 error then", lambda row: f"{row['last_error']:.1e}"),
    ]
    figures = document["figures"]
    first = figures[0]
    lines = [
        f"| {first['edges']:,} edges, batches of {first['batch_size']:,} | "
        + " | ".join(f"`{row['storage']}`" for row in figures)
        + " |",
        "|" + " --- |" * (len(figures) + 1),
    ]
    lines += [
        f"| {what} | " + " | ".join(show(row) for row in figures) + " |" for what, show in rows
    ]
    return "\n".join(lines)


def peers(document: dict[str, Any]) -> str:
    """Whole solves beside other libraries, a row a graph and peer; then batches of ten edges."""
    figures = document["figures"]
    alone = figures["threads"] == 1
    clock = "least_processor_seconds" if alone else "least_seconds"
    lines = [
        f"{figures['threads']} thread{'' if alone else 's'}, "
        f"{'processor' if alone else 'wall'} time, the least of the rounds:\n",
        "| graph | peer | its L1 error | its seconds | our L1 error | our seconds"
        " | times as fast |",
        "|" + " --- |" * 7,
    ]
    lines += [
        f"| {row['graph']}, {row['edges']:,} edges | {row['peer']} | {row['error']:.1e}"
        f" | {row['peer_times'][clock]:.3f} | {row['own_error']:.1e}"
        f" | {row['own_times'][clock]:.3f} | {row['times_as_fast']:.1f} |"
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


def keys(document: dict[str, Any]) -> str:
    """Bytes and seconds of a key table, by kind of key."""
    figures = document["figures"]
    count, edges = figures["keys"], figures["edges"]
    rows: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("bytes a key, the key itself", lambda row: f"{row['key_bytes'] / count:.1f}"),
        ("bytes a key, the whole table", lambda row: f"{row['table_bytes'] / count:.1f}"),
        (f"building it, {count:,} keys, s", lambda row: f"{row['build_seconds']:.2f}"),
        (f"a batch of {edges:,} edges to ids, s", lambda row: f"{row['batch_assign_seconds']:.2f}"),
        ("as many ids back to keys, s", lambda row: f"{row['batch_keys_seconds']:.2f}"),
    ]
    lines = ["| | strings | integers |", "| --- | --- | --- |"]
    lines += [
        f"| {what} | {show(figures['string'])} | {show(figures['integer'])} |"
        for what, show in rows
    ]
    return "\n".join(lines) + "\n"


def personalized(document: dict[str, Any]) -> str:
    """Single queries, a row a kind and method; then many at once, and watched ones."""
    figures = document["figures"]
    lines = [
        "| graph | sources | method | k | target | queries | ms (median) | (p90) | (largest)"
        " | iterations | settled | all k settled | largest bound |",
        "|" + " --- |" * 13,
    ]
    lines += [
        f"| {row['graph']} | {row['kind']} | `{row['method']}` | {row['k']}"
        f" | {row['target_error']:g} | {row['queries']:,} | {row['median_ms']:.2f}"
        f" | {row['p90_ms']:.2f} | {row['largest_ms']:.2f} | {row['median_iterations']:.0f}"
        f" | {row['median_settled']:.0f} | {row['all_settled']:.0%} | {row['largest_bound']:.1e} |"
        for row in figures["rows"]
    ]
    for figure in (figures.get("many"), figures.get("watched")):
        if figure:
            shown = "; ".join(
                f"{name.replace('_', ' ')} {value if isinstance(value, str) else f'{value:,.4g}'}"
                for name, value in figure.items()
            )
            lines += ["", f"{'Watched' if 'watched' in figure else 'Many at once'}: {shown}."]
    return "\n".join(lines) + "\n"


def personalized_http(document: dict[str, Any]) -> str:
    """What clients wait for one query over HTTP, a row a number of clients."""
    figures = document["figures"]
    lines = [
        f"R-MAT, {figures['vertices']:,} vertices, {figures['edges']:,} edges;"
        f" top-{figures['k']} at {figures['target_error']:g};"
        f" batches: {figures['batches_per_second']} of"
        f" {figures['batch_edges']} edges a second, {figures['batch_ms']['p50']:.0f} ms each"
        f" (median). {figures['note']}",
        "",
        "| clients | batches meanwhile | queries | ms (p50) | (p99) | (largest) | iterations |",
        "|" + " --- |" * 7,
    ]
    lines += [
        f"| {row['clients']} | {'yes' if row['batches'] else 'no'} | {row['queries']:,}"
        f" | {row['ms']['p50']:.1f} | {row['ms']['p99']:.1f} | {row['ms']['max']:.1f}"
        f" | {row['median_iterations']:.0f} |"
        for row in figures["rows"]
    ]
    return "\n".join(lines) + "\n"


def solver(document: dict[str, Any]) -> str:
    """Whole solves and single sweeps, a row each."""
    lines = [
        "| what | edges | dangling | strategy | target | ms (median) | (largest) | L1 error"
        " | bound |",
        "|" + " --- |" * 9,
    ]
    for row in document["figures"]:
        error, bound = (f"{row[key]:.1e}" if key in row else "" for key in ("error", "bound"))
        lines.append(
            f"| {row['what']} | {row['edges']:,} | `{row['dangling']}` | {row.get('strategy', '')}"
            f" | {row.get('target_error', '')} | {row['median_ms']:.2f} | {row['largest_ms']:.2f}"
            f" | {error} | {bound} |"
        )
    return "\n".join(lines) + "\n"


def overload(document: dict[str, Any]) -> str:
    figures = document["figures"]
    rows = [
        "| | alone | 10 batches/s | overload |",
        "| --- | ---: | ---: | ---: |",
    ]
    parts = [figures[name] for name in ("alone", "stream", "overload")]
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


def ways(document: dict[str, Any]) -> str:
    """Sweeps and milliseconds of solves by each way, and by the way chosen."""
    labels = ("chosen", "balanced, accelerated", "plain, accelerated", "balanced", "plain")
    lines = [
        f"| graph | dangling | target | {' | '.join(labels)}"
        " | chosen over the better of the last two |",
        "|" + " --- |" * 9,
    ]
    for row in document["figures"]:
        shown = " | ".join(
            f"{row[label]['sweeps']}, {row[label]['milliseconds']:.2f} ms" for label in labels
        )
        lines.append(
            f"| {row['graph']} | `{row['dangling']}` | {row['target_error']:g} | {shown}"
            f" | {row['over_best_without_acceleration']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def fuzz(document: dict[str, Any]) -> str:
    """Bodies by format, then requests; what is taken, what is refused, what failed."""
    figures = document["figures"]
    bodies, requests = figures["bodies"], figures["requests"]
    lines = [
        f"Seed {figures['seed']}, {figures['seconds']:,} s.{_note(figures)}",
        "",
        "| cases | format | decoded and applied | refused |",
        "| --- | --- | --- | --- |",
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


def schema(document: dict[str, Any]) -> str:
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


def _note(figures: dict[str, Any]) -> str:
    return f" {figures['note']}." if figures["note"] else ""


def crash(document: dict[str, Any]) -> str:
    """The figures of a run of kills; of the kills by point, how many the points had."""
    figures = dict(document["figures"])
    by_point = figures.pop("kills by point").values()
    rows = graph({"figures": figures}).split("\n")
    spread = f"| each of the {len(by_point)} points | {min(by_point)} to {max(by_point)} kills |"
    after = 1 + next(at for at, row in enumerate(rows) if row.startswith("| kills at named"))
    return "\n".join([*rows[:after], spread, *rows[after:]])


def rounds(document: dict[str, Any]) -> str:
    rows = [
        "| threads of a step | blocks | rounds of a launch | cooperative kernel | CUDA graph |"
        " host |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rows += [
        f"| {row['threads']:,} | {row['blocks']} | {row['rounds']} | {row['meet_us']:.1f} |"
        f" {row['graph_us']:.1f} | {row['host_us']:.1f} |"
        for row in document["figures"]
    ]
    return "\n".join(rows)


_SHOWN_MS = 0.02
"""Shorter launches are not shown: what they take is the start of a kernel."""


def profile(document: dict[str, Any]) -> str:
    """What each kernel moves beside what it must move, a row an operation and kernel."""
    figures = document["figures"]
    rate = figures["copy_rate"]
    lines = [
        f"{figures['graph']}, {figures['vertices']:,} vertices, {figures['entries']:,} edges.",
        "",
        "| operation | kernel | launches | of its time | a launch, ms | bytes needed | moved"
        f" | moved / needed | GB/s | of {rate / 1e9:,.0f} | through L2 | of L2's peak"
        " | warps active | issue slots |",
        "|" + " --- |" * 14,
    ]
    for row in figures["rows"]:
        if row.get("milliseconds", _SHOWN_MS) < _SHOWN_MS:
            continue
        lines.append(
            f"| {row['operation']} | `{row['kernel']}` | {row['launches']:,}"
            f" | {row['share']:.1%} | {' | '.join(_profiled(row, rate))} |"
        )
    return "\n".join(lines) + "\n"


def _profiled(row: dict[str, Any], rate: float) -> list[str]:
    """The cells of one kernel from its milliseconds on."""
    if "not_profiled" in row:
        return [row["not_profiled"], *[""] * 9]
    moved, needed = row["read_bytes"] + row["written_bytes"], row["needed_bytes"]
    a_second = 1e3 * moved / row["milliseconds"]
    return [
        f"{row['milliseconds']:.4g}",
        _bytes(needed),
        _bytes(moved),
        f"{moved / needed:.2f}" if needed else "",
        f"{a_second / 1e9:,.0f}",
        f"{a_second / rate:.0%}",
        _bytes(row["l2_bytes"]),
        *(
            "" if row[key] is None else f"{row[key]:.0f} %"
            for key in ("l2_percent", "warps_percent", "issue_percent")
        ),
    ]


def _bytes(count: float | None) -> str:
    """Three digits, in the largest unit that leaves one before the point; None is not known."""
    if count is None:
        return ""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:#.3g} {unit}".replace(". ", " ")
    return f"{count / 1e3:#.3g} kB".replace(". ", " ")


def _number(value: float) -> str:
    return f"{value:,}"


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "crash": crash,
    "temporal": temporal,
    "durability": graph,
    "fuzz": fuzz,
    "graph": graph,
    "keys": keys,
    "overload": overload,
    "personalized": personalized,
    "personalized-http": personalized_http,
    "residual": residual,
    "rounds": rounds,
    "schema": schema,
    "solver": solver,
    "storage": storage,
    "peers": peers,
    "profile": profile,
    "push-cost": graph,
    "stream": graph,
    "ways": ways,
}
"""How the figures of each suite are shown."""


def rendered(name: str) -> str:
    """The text for one pair of marks."""
    document = json.loads((RESULTS / f"{name}.json").read_text())
    return f"{provenance(document)}\n\n{TABLES[document['suite']](document)}"


def with_figures(text: str) -> str:
    """The document with every pair of marks filled from the recorded figures."""
    return MARKS.sub(lambda match: f"{match[1]}{rendered(match['name'])}\n{match[4]}", text)


def main() -> None:
    for path in sorted(DOCUMENTS.glob("*.md")):
        path.write_text(with_figures(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
