"""The table of a graph in shards beside the same graph on one device."""

from __future__ import annotations

from benchmarks.tables.common import Record, heading

_TIMES = ("static ms", "ms a sweep", "batch ms", "solve after batch ms")


def shards(document: Record) -> str:
    """Times of each number of shards, and static solves over that of one device."""
    lines = heading(
        "| R-MAT | devices | load | static solve | a sweep of it | batch of 1,000 | solve after it "
        "| speed-up, static |"
    )
    alone: dict[int, float] = {}
    for row in document["figures"]:
        alone.setdefault(row["scale"], row["static ms"])
        times = " | ".join(f"{row[name]:.2f} ms" for name in _TIMES)
        faster = alone[row["scale"]] / row["static ms"]
        lines.append(
            f"| {row['scale']} | {row['shards']} | {row['load seconds']:.1f} s | {times} "
            f"| {faster:.2f} |"
        )
    return "\n".join(lines)
