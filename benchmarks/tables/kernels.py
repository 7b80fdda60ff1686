"""Tables of the kernels: what they move, and what tools found in them."""

from __future__ import annotations

from benchmarks.tables.common import Record, Row, heading


def sanitize(document: Record) -> str:
    """What each tool of compute-sanitizer found, a row for each tool."""
    lines = heading("| tool | parts | errors | seconds of the longest part |")
    of_tool: dict[str, list[Row]] = {}
    for row in document["figures"]["rows"]:
        of_tool.setdefault(row["tool"], []).append(row)
    for tool, rows in of_tool.items():
        parts = ", ".join(row["part"] for row in rows)
        errors, longest = sum(row["errors"] for row in rows), max(row["seconds"] for row in rows)
        lines.append(f"| `{tool}` | {parts} | {errors} | {longest:.0f} |")
    return "\n".join(lines)


_SHOWN_MS = 0.02
"""Shorter launches are not shown: they take what starting a kernel takes."""


def profile(document: Record) -> str:
    """What each kernel moves beside what it has to, a row for each operation and kernel."""
    figures = document["figures"]
    rate = figures["copy_rate"]
    lines = [
        f"{figures['graph']}, {figures['vertices']:,} vertices, {figures['entries']:,} edges.",
        "",
        *heading(
            "| operation | kernel | launches | of its time | a launch, ms | bytes needed | moved"
            f" | moved / needed | GB/s | of {rate / 1e9:,.0f} | through L2 | of L2's peak"
            " | warps active | issue slots |"
        ),
    ]
    for row in figures["rows"]:
        # ranks in float32 are no longer offered
        if row.get("milliseconds", _SHOWN_MS) < _SHOWN_MS or "float32" in row["operation"]:
            continue
        lines.append(
            f"| {row['operation']} | `{row['kernel']}` | {row['launches']:,}"
            f" | {row['share']:.1%} | {' | '.join(_profiled(row, rate))} |"
        )
    return "\n".join(lines) + "\n"


def _profiled(row: Row, rate: float) -> list[str]:
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
    """Three digits, in the largest unit that leaves one before the point; empty for None."""
    if count is None:
        return ""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:#.3g} {unit}".replace(". ", " ")
    return f"{count / 1e3:#.3g} kB".replace(". ", " ")
