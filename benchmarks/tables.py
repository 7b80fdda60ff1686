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


def strategies(document: dict[str, Any]) -> str:
    """A table a dangling policy: batch size and strategy against time, work and error."""
    parts = []
    figures = document["figures"]
    for dangling in dict.fromkeys(row["dangling"] for row in figures):
        parts.append(
            f"`{dangling}`:\n\n"
            "| batch | strategy | solve, ms (mean) | (median) | iterations | touched | L1 error"
            " | error bound |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
        )
        rows = [row for row in figures if row["dangling"] == dangling]
        parts += [
            f"| {row['fraction']:.0e} ({row['batch_size']}) | {row['strategy']}"
            f" | {row['mean_solve_ms']:.2f} | {row['median_solve_ms']:.2f}"
            f" | {row['mean_iterations']:.1f} | {row['mean_touched_vertices']:,.0f}"
            f" | {row['mean_error']:.1e} | {row['mean_error_bound']:.1e} |"
            for row in rows
        ]
        parts.append("")
    return "\n".join(parts)


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


def _number(value: float) -> str:
    return f"{value:,}"


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "strategies-sx-mathoverflow": strategies,
    "graph": graph,
    "keys": keys,
    "residual": residual,
    "storage": storage,
    "peers": peers,
    "push-cost": graph,
    "stream": graph,
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
