"""The figures that the first pages show, each from the record of its suite."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.harness import load, place
from benchmarks.overload import WRITERS
from benchmarks.tables.common import Record, Row, heading

Line = tuple[str, str, str]
"""What, where, and how much."""


def overview() -> str:
    """A table with a row for each figure: what, on which machine, and how much."""
    rows = [
        *_solves(load("solver", "cuda")),
        _personalized(load("personalized", "cuda")),
        _out_of_core(load("out-of-core", "cuda")),
        _peers(load("peers", "cpu")),
        *_durability(load("durability", "cpu")),
        _overload(load("overload", "cpu")),
        _crash(load("crash", "cpu")),
    ]
    lines = heading("| what | on | measured |")
    lines += [f"| {what} | {where} | {measured} |" for what, where, measured in rows]
    return "\n".join(lines)


def _solves(document: Record) -> list[Line]:
    rows, where = document["figures"], place(document)
    batch = _only(
        row for row in rows if row["what"].endswith("1,000 edges from the host to published")
    )
    static = _only(
        row
        for row in rows
        if row["what"] == "static, auto" and row["dangling"] == batch["dangling"]
    )
    target = batch["target_error"]
    return [
        (
            f"{_millions(batch)}: 1,000 inserted or deleted by the engine, until ranks are"
            f" published whose error is proven to be at most {target:g}",
            where,
            f"{batch['median_ms']:.1f} ms",
        ),
        (f"{_millions(static)}: ranks from nothing", where, f"{static['median_ms']:.1f} ms"),
    ]


def _personalized(document: Record) -> Line:
    rows = [
        row
        for row in document["figures"]["rows"]
        if (row["kind"], row["method"]) == ("any source", "hybrid") and "R-MAT" in row["graph"]
    ]
    row = min(rows, key=lambda row: row["target_error"])
    seen = f"the first {row['k']} as seen from one vertex, to {row['target_error']:g}"
    return f"{_millions(row)}: {seen}", place(document), f"{row['median_ms']:.1f} ms"


def _out_of_core(document: Record) -> Line:
    figures = document["figures"]
    budget = figures["budgets"][0]
    seconds = budget["page-locked"]["seconds"]
    memory = f"{budget['memory'] / 2**30:.0f} GiB of the GPU's memory"
    what = f"{_millions(figures)} within {memory}: ranks from nothing"
    measured = (
        f"{seconds:.1f} s, once edges are sorted, which takes {figures['pack_seconds']:.0f} s"
    )
    return what, place(document), measured


def _peers(document: Record) -> Line:
    solves = document["figures"]["solves"]
    graphs = len({row["graph"] for row in solves})
    measured = []
    for peer in dict.fromkeys(row["peer"] for row in solves):
        rows = [row for row in solves if row["peer"] == peer]
        times, on = [row["times_as_fast"] for row in rows], {row["graph"] for row in rows}
        where = "" if len(on) == graphs else f" ({', '.join(sorted(on))} alone)"
        measured.append(f"{peer} {min(times):.1f} to {max(times):.1f}{where}")
    what = f"{graphs} graphs: ranks from nothing, at the error of others or less, on one core"
    return what, place(document), f"times as fast as {', '.join(measured)}"


def _durability(document: Record) -> list[Line]:
    figures, where = document["figures"], place(document)
    return [
        (
            "batches of one edge from 32 clients, each on disk before its response",
            where,
            f"{figures['durable single edges, 32 clients, 1/s']:,} a second",
        ),
        (
            f"{figures['edges of the graph that is restarted'] / 1e6:.0f} million edges and"
            f" {figures['batches after it']:,} batches since the checkpoint: a restart",
            where,
            f"first read after {figures['start to first read, s']:.1f} s,"
            f" newest version after {figures['start to the newest version, s']:.1f} s",
        ),
    ]


def _overload(document: Record) -> Line:
    figures = document["figures"]["overload"]
    times = figures["read_ms"]
    measured = f"{times['p50']:.1f} ms (median), {times['p99']:.1f} ms (99 %)"
    writers = figures.get("writers", WRITERS)  # older records do not say
    what = f"reads of ranks while {writers} clients write as fast as they can"
    return what, place(document), measured


def _crash(document: Record) -> Line:
    figures = document["figures"]
    return (
        f"{figures['kills']:,} times `kill -9` while batches arrive",
        place(document),
        f"of {figures['batches acknowledged']:,} acknowledged batches {figures['lost']} lost,"
        f" {figures['twice']} applied twice",
    )


def _millions(row: Row) -> str:
    return f"{row['edges'] / 1e6:,.0f} million edges"


def _only(rows: Iterable[Row]) -> Row:
    (row,) = rows
    return row
