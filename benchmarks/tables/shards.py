"""The tables of a graph in shards."""

from __future__ import annotations

from benchmarks.tables.common import Record, figures_and_values, heading

_TIMES = ("static ms", "ms a sweep", "batch ms", "solve after batch ms")
_LATER = "ms a sweep after batches"
"""Not in old records."""


def shards(document: Record) -> str:
    """Times of each number of shards, and static solves over that of one device."""
    later = _LATER in document["figures"][0]
    lines = heading(
        "| R-MAT | devices | load | static solve | a sweep of it | batch of 1,000 | solve after it "
        + ("| a static sweep then " if later else "")
        + "| speed-up, static |"
    )
    alone: dict[int, float] = {}
    for row in document["figures"]:
        if row["shards"] == 1:
            alone[row["scale"]] = row["static ms"]
        times = " | ".join(f"{row[name]:.2f} ms" for name in _TIMES + later * (_LATER,))
        one = alone.get(row["scale"])
        faster = "" if one is None else f"{one / row['static ms']:.2f}"
        lines.append(
            f"| {row['scale']} | {row['shards']} | {row['load seconds']:.1f} s | {times} "
            f"| {faster} |"
        )
    return "\n".join(lines)


def checkpoints(document: Record) -> str:
    """Memory during a checkpoint and during a restart, by edges."""
    lines = heading(
        "| vertices | edges | checkpoint | written in | batches wait | memory of the server for it "
        "| restart | memory of the server for it |"
    )
    for row in document["figures"]:
        writing, restart = (
            f"{row[f'server bytes above, {what}'] / 1e6:.0f} MB"
            for what in ("checkpoint", "restart")
        )
        lines.append(
            f"| {row['vertices']:,} | {row['edges']:,} | {row['checkpoint bytes'] / 1e6:.0f} MB "
            f"| {row['checkpoint seconds']:.2f} s | {row['pause seconds']:.2f} s | {writing} "
            f"| {row['restart seconds']:.1f} s | {restart} |"
        )
    return "\n".join(lines)


def device_memory(document: Record) -> str:
    """A graph on one device without a bound, and in shards within one that refuses it."""
    lines = heading(
        "| R-MAT | devices | bound of each | held by each | load | static solve "
        "| batch of 1,000 and solve |"
    )
    for row in document["figures"]:
        one, shards = row["one device"], row["shards"]
        bound = f"{row['device memory bytes'] / 1e9:.2f} GB"
        held = (one["held bytes"], max(shards["held bytes"]))
        for devices, each, most, bytes_held in (
            (1, one, "none", held[0]),
            (row["number of shards"], shards, bound, held[1]),
        ):
            lines.append(
                f"| {row['scale']} | {devices} | {most} | {bytes_held / 1e9:.2f} GB "
                f"| {each['load seconds']:.1f} s | {each['static ms']:.1f} ms "
                f"| {each['batch and solve ms']:.1f} ms |"
            )
        lines.append(
            f"| {row['scale']} | 1 | {bound} | refused: a load needs "
            f"{one['needed bytes'] / 1e9:.2f} GB | | | |"
        )
    return "\n".join(lines)


def kills(document: Record) -> str:
    """What the kills of workers did."""
    figures = dict(document["figures"])
    note = figures.pop("note")
    table = figures_and_values({**document, "figures": figures})
    return f"{table}\n\nMeanwhile: {note}." if note else table
