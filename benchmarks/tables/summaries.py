"""Figures of several records in one table: those of the first pages, and of docs/performance.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import exp, fsum, log
from operator import itemgetter
from statistics import median

from benchmarks.harness import load, place, recorded
from benchmarks.overload import WRITERS
from benchmarks.tables.common import Record, Row, heading
from benchmarks.tables.sahu import PAPER_SPEEDUPS

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
    return "\n".join(_lines(rows))


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
    what = f"reads of ranks while {_writers(figures)} clients write as fast as they can"
    return what, place(document), _times(times["p50"], times["p99"])


def _writers(figures: Row) -> int:
    writers: int = figures.get("writers", WRITERS)  # older records do not say
    return writers


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


def peers() -> str:
    """Ranks from nothing beside other libraries, a row for each graph and error."""
    solves = load("peers", "cpu")["figures"]["solves"]
    names = list(dict.fromkeys(row["peer"] for row in solves))
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in solves:
        graph = f"{row['graph']}, {row['edges'] / 1e6:.1f}M edges"
        groups.setdefault((graph, f"{row['error']:.1e}"), []).append(row)
    lines = heading(f"| graph | error | liverank, s | {' | '.join(names)} |")
    for (graph, error), rows in groups.items():
        own = min(row["own_times"]["least_processor_seconds"] for row in rows)
        times = {row["peer"]: f"{row['times_as_fast']:.1f}" for row in rows}
        cells = " | ".join(times.get(name, "") for name in names)
        lines.append(f"| {graph} | {error} | {own:.3g} | {cells} |")
    return _below("peers-cpu", lines=lines)


def programs() -> str:
    """Programs in the faster of their modes, beside other libraries and on a GPU."""
    document, device = load("programs", "cpu"), load("programs", "cuda")
    graph = document["figures"][0]["graph"]
    here, there = (_fastest(each["figures"], graph) for each in (document, device))
    names = list(dict.fromkeys(peer for row in here.values() for peer in row["peers"]))
    lines = heading(
        f"| program | liverank, ms | {', ms | '.join(names)}, ms | liverank on a GPU, ms |"
    )
    for program, row in here.items():
        peers = [f"{row['peers'][name]:,.0f}" if name in row["peers"] else "" for name in names]
        lines.append(
            f"| `{program}` | {row['milliseconds']:,.0f} | {' | '.join(peers)}"
            f" | {there[program]['milliseconds']:.1f} |"
        )
    return _below("programs-cpu", "programs-cuda", lines=lines)


def _fastest(rows: list[Row], graph: str) -> dict[str, Row]:
    """Of each program on a graph, the row of the fastest of the modes that are still offered."""
    fastest: dict[str, Row] = {}
    for row in rows:
        gone = row["mode"] == "edge-parallel" or (row["program"], row["mode"]) == (
            "pagerank",
            "asynchronous",
        )
        if row["graph"] == graph and not gone:
            best = fastest.get(row["program"], row)
            fastest[row["program"]] = min(best, row, key=lambda each: each["milliseconds"])
    return fastest


def batches() -> str:
    """Batches by their size on generated graphs: the ranks, the change of the graph, and all."""
    document = load("residual", "cuda")
    lines = heading("| graph | edges | edges of a batch | what | ms (median) | (largest) |")
    lines += [
        f"| {row['graph']} | {row['edges']:,} | {row['batch_size']:,}"
        f" | ranks, error at most {row['target_error']:g}"
        f" | {row['median_ms']:.2f} | {row['largest_ms']:.2f} |"
        for row in sorted(document["figures"], key=lambda row: row["edges"])
    ]
    for row in load("solver", "cuda")["figures"]:
        graph, _, rest = row["what"].partition(", ")
        size, _, published = rest.partition(" edges from the host to ")
        if published:
            lines.append(
                f"| {graph} | {row['edges']:,} | {size} | all, from the host until ranks are"
                f" published, error at most {row['target_error']:g}"
                f" | {row['median_ms']:.2f} | {row['largest_ms']:.2f} |"
            )
    figures = load("graph", "cuda")["figures"]
    row = figures["batch of 1,000"]
    scale = figures["load"]["vertices"].bit_length() - 1
    lines.append(
        f"| R-MAT {scale} | {figures['load']['edges']:,} | 1,000 | the change of the graph alone"
        f" | {row['median_ms']:.2f} | {row['largest_ms']:.2f} |"
    )
    return _below("residual-cuda", "solver-cuda", "graph-cuda", lines=lines)


def networks() -> str:
    """Batches of real networks beside a recomputation, on a GPU and on the CPU."""
    documents = [load("temporal", "cuda"), load("temporal", "cpu")]
    titles = [f"{name}: batch, ms | recomputed, ms | times" for name in ("GPU", "CPU")]
    lines = heading(f"| network | events | of a batch | {' | '.join(titles)} |")
    sizes = documents[0]["figures"]["networks"]
    found = [_replays(document) for document in documents]
    for network, batch in found[0]:
        cells = []
        for each in found:
            update, static = each[network, batch]
            cells.append(f"{update:.2f} | {static:,.1f} | {static / update:,.0f}")
        events = sizes[network]["events"]
        lines.append(f"| {network} | {events:,} | {batch:,} | {' | '.join(cells)} |")
    faster = [is_faster for each in documents for is_faster in _faster(each)]
    lines += [
        "",
        f"In {sum(faster)} of {len(faster)} rows of both records, those of `self-loop` among them,"
        " the default is faster than every published strategy.",
    ]
    return _below("temporal-cuda", "temporal-cpu", lines=lines)


def _faster(document: Record) -> list[bool]:
    """Of each row, whether `auto` at its default target takes less time than all others."""
    groups: dict[tuple[str, str, int], dict[str, float]] = {}
    for row in document["figures"]["replays"]:
        group = groups.setdefault((row["dangling"], row["network"], row["batch_size"]), {})
        group[row["contender"]] = row["median_solve_ms"]
    return [
        times["auto, 1e-06"]
        < min(time for name, time in times.items() if not name.startswith("auto"))
        for times in groups.values()
    ]


def _replays(document: Record) -> dict[tuple[str, int], tuple[float, float]]:
    """Milliseconds of `auto` at its default target, and of `static`, by network and batch."""
    times = {
        (row["network"], row["batch_size"], row["contender"]): row["median_solve_ms"]
        for row in document["figures"]["replays"]
        if row["dangling"] == "uniform"
    }
    return {
        (network, batch): (time, times[network, batch, "static"])
        for (network, batch, contender), time in times.items()
        if contender == "auto, 1e-06"
    }


def loads() -> str:
    """Loads, restarts and starts."""
    rows: list[Line] = []
    for document in (load("load", "cpu"), load("load", "cuda")):
        edges = document["figures"]["edges"] / 1e6
        for kind in ("integer", "string"):
            if kind in document["figures"]:
                rate = document["figures"][kind]["this"]["edges_per_second"] / 1e6
                rows.append(
                    (
                        f"`liverank load` of {edges:.1f} million edges with {kind} keys, ranked",
                        place(document),
                        f"{rate:.1f} million edges a second",
                    )
                )
    document = load("graph", "cuda")
    row = document["figures"]["load"]
    rows += [
        (
            f"{row['sent'] / 1e6:,.0f} million unsorted edges on the device, into the engine",
            place(document),
            f"{row['seconds']:.1f} s",
        ),
        _durability(load("durability", "cpu"))[1],
    ]
    for backend, state, what in (
        ("cpu", "warm", "a server without data, from its start until it is ready"),
        ("cuda", "image", "the same in the container, at its first start"),
        ("cuda", "warm", "the same at its second start"),
    ):
        document = load("cold-start", backend)
        start = document["figures"][state]
        measured = (
            f"{start['ready']:.1f} s, {start['processor time until ready']:.1f} s of processors"
        )
        rows.append((what, place(document), measured))
    records = ("load-cpu", "load-cuda", "graph-cuda", "durability-cpu")
    starts = ("cold-start-cpu", "cold-start-cuda")
    return _below(*records, *starts, lines=_lines(rows), places=False)


def server() -> str:
    """Writes, reads, events and connections of a server."""
    durability, overload = load("durability", "cpu"), load("overload", "cpu")
    feed, connections = load("feed", "cpu"), load("connections", "cpu")
    times = durability["figures"]["their latency, ms"]
    rows: list[Line] = [
        _durability(durability)[0],
        ("the response to one of them", place(durability), _times(times["median"], times["99 %"])),
    ]
    part, events, sockets = (
        overload["figures"]["overload"],
        feed["figures"],
        connections["figures"],
    )
    for name, what in (
        ("alone", "a read of one rank, without writers"),
        ("stream", "the same beside 10 batches a second"),
        ("overload", f"the same while {_writers(part)} clients write as fast as they can"),
    ):
        times = overload["figures"][name]["read_ms"]
        measured = f"{_times(times['p50'], times['p99'])}, {times['p999']:.1f} ms (99.9 %)"
        rows.append((what, place(overload), measured))
    rows += [
        (
            "batches of 1,000 edges taken meanwhile",
            place(overload),
            f"{part['batches_taken'] / part['seconds']:.0f} a second",
        ),
        (
            f"an event of the change feed to {events['subscribers']} subscribers,"
            " 10 batches a second",
            place(feed),
            _times(*(events[f"ten a second: delay, ms (p{share})"] for share in (50, 99))),
        ),
        (
            f"one of {sockets['connections']:,} open connections",
            place(connections),
            f"{sockets['a connection after a request, kB']:.0f} kB",
        ),
    ]
    records = ("durability-cpu", "overload-cpu", "feed-cpu", "connections-cpu")
    return _below(*records, lines=_lines(rows), places=False)


def _times(median: float, most: float) -> str:
    return f"{median:.1f} ms (median), {most:.1f} ms (99 %)"


def queries() -> str:
    """Personalized queries in the engine on a GPU."""
    document = load("personalized", "cuda")
    figures = document["figures"]
    lines = heading("| graph | query | ms (median) | (90 %) |")
    ends = {
        "any source": "the first {k}, error at most {target_error:g}",
        "settled-set": "until the first {k} are proven as a set",
        "settled-top-k": "until the first {k} are proven in their order",
    }
    lines += [
        f"| {row['graph']} | {ends[row['kind']].format(**row)} | {row['median_ms']:.1f}"
        f" | {row['p90_ms']:.1f} |"
        for row in figures["rows"]
        if row["method"] == "hybrid" and row["kind"] in ends
    ]
    many, watched = figures["many"], figures["watched"]
    lines.append(
        f"| {many['graph']} | {many['queries']:,} in one request, each | {many['ms_each']:.1f} | |"
    )
    lines.append(
        f"| {watched['graph']} | a batch of {watched['batch_size']:,} edges beside"
        f" {watched['watched']} watched queries, what they add"
        f" | {watched['median_extra_ms']:.0f} | |"
    )
    return _below("personalized-cuda", lines=lines)


def memory() -> str:
    """Bytes of each part of a graph and a server."""
    cuda, cpu = (load("graph", backend)["figures"]["load"] for backend in ("cuda", "cpu"))
    weights, window = load("weights", "cuda")["figures"], load("window", "cpu")["figures"]
    keys = load("keys", "cpu")["figures"]
    edge_times = window["times of the edges, at the end, bytes"] / window["edges in the window"]
    lines = heading("| what | bytes |")
    lines += [
        f"| {what} | {count:.1f} |"
        for what, count in (
            ("an edge, in both directions, on a GPU", cuda["pool_bytes_per_edge"]),
            ("the same on the CPU", cpu["pool_bytes_per_edge"]),
            ("an edge with a weight, on a GPU", weights["memory, weighted, bytes an edge"]),
            (
                "an edge while a graph is loaded, with the columns that it comes from",
                cuda["peak_bytes_per_edge_with_columns"],
            ),
            ("the time of an edge, with a `window`", edge_times),
            ("a key that is an integer", keys["integer"]["table_bytes"] / keys["keys"]),
            (
                f"a key that is a string of {keys['string']['key_bytes'] / keys['keys']:.0f} bytes",
                keys["string"]["table_bytes"] / keys["keys"],
            ),
        )
    ]
    sweep, batch = (
        weights[name]["ratio"]
        for name in ("quantize and sweep, ms", "batch of 1,000, mutate and solve, ms")
    )
    lines += [
        "",
        f"On a GPU a sweep over weighted edges takes {sweep:.2f} times as long, and a batch of"
        f" 1,000 with its ranks {batch:.2f} times.",
    ]
    return _below("graph-cuda", "graph-cpu", "weights-cuda", "window-cpu", "keys-cpu", lines=lines)


def cuppa() -> str:
    """What the text of the cuPPA paper says of its figures, and ours, of a GPU if there are any."""
    document = load("cuppa", "cuda" if recorded("cuppa", "cuda") else "cpu")
    figures, suite = document["figures"], f"cuppa-{document['backend']}"
    missing = "on a GPU only" if document["backend"] == "cpu" else "not in this record"
    lines = heading(f"| figure | theirs, GeForce GTX 1080 | ours, {place(document)} |")
    lines += [
        f"| {figure} | {theirs} | {ours(figures) if name in figures else missing} |"
        for figure, theirs, name, ours in _CUPPA
    ]
    return _below(suite, lines=lines, places=False)


def _drawn_by(model: str, name: str = "models") -> Callable[[Row], str]:
    def text(figures: Row) -> str:
        row = _only(row for row in figures[name] if row["model"] == model)
        rounds = f", rounds: {row['rounds']:,}" if "rounds" in row else ""
        edges = row["vertices"] * row["edges_per_vertex"]
        return f"{row['median_ms']:,.1f} ms for {edges:,} edges{rounds}"

    return text


def _exponent(figures: Row) -> str:
    return f"{figures['models'][-1]['exponent']:.2f}"


def _growth(name: str, by: str, factor: int) -> Callable[[Row], str]:
    def text(figures: Row) -> str:
        rows = {row[by]: row["median_ms"] for row in figures[name] if row["probability"] == 0.5}
        most = max(rows)
        return f"{rows[most] / rows[most // factor]:.1f} times the time"

    return text


def _by_probability(figures: Row) -> str:
    times = {row["probability"]: row["median_ms"] for row in figures["probability"]}
    return ", ".join(f"{times[p] / times[0.5]:.2g}" for p in (0.0, 1e-5, 1.0))


def _by_edges(figures: Row) -> str:
    rows = {
        row["edges_per_vertex"]: row for row in figures["largest queue"] if not row["probability"]
    }
    return ", ".join(f"{rows[d]['largest_queue']:,}" for d in (64, 4096))


def _by_round(figures: Row) -> str:
    rows = {row["round"]: row["largest_queue"] for row in figures["queue by round"]}
    return ", ".join(f"{rows[place]:,}" for place in (1, 10, 100))


def _fastest_block(figures: Row) -> str:
    row = min(figures["threads of a block"], key=lambda row: row["median_ms"])
    return f"{row['threads']:,}"


_CUPPA: tuple[tuple[str, str, str, Callable[[Row], str]], ...] = (
    (
        "10: cuPPA-Dynamic, d = 4, p = 1/2",
        "1.48 s for 1,000,000,000 edges",
        "models",
        _drawn_by("SRRP, dynamic"),
    ),
    ("10: SRRP with fixed segments", "not in the text", "models", _drawn_by("SRRP, fixed")),
    ("10: RRP", "not in the text", "models", _drawn_by("RRP")),
    ("10: our own generator", "another algorithm", "models", _drawn_by("liverank")),
    (
        "cuPPA-Hash, their later one (2019), on four Tesla P100",
        "less than 7 s for 16,000,000,000 edges",
        "largest graph",
        _drawn_by("liverank", "largest graph"),
    ),
    ("3: exponent (ours: degrees ≥ 4)", "2.7", "models", _exponent),
    (
        "8: largest queue of 1,280 vertices, p = 0, d = 64 and 4,096",
        "d up to 64, then less",
        "largest queue",
        _by_edges,
    ),
    (
        "9: largest queue in rounds 1, 10 and 100",
        '"decreases dramatically"',
        "queue by round",
        _by_round,
    ),
    (
        "11: 8 times the vertices, p = 1/2",
        "linear",
        "vertices by probability",
        _growth("vertices by probability", "vertices", 8),
    ),
    (
        "13: 128 times the edges of a vertex, p = 1/2",
        '"almost linearly"',
        "edges of a vertex",
        _growth("edges of a vertex", "edges_per_vertex", 128),
    ),
    (
        "14: time over that of p = 1/2, for p = 0, 1e-5 and 1",
        "largest at 0, much less at 1e-5",
        "probability",
        _by_probability,
    ),
    ("15: fastest threads of a block", "512", "threads of a block", _fastest_block),
)
"""By figure: what the text says, the figures of ours, and how they are shown."""


def devices() -> str:
    """R-MAT graphs on one GPU and on several, the newest record of each size."""
    suites = ("shards", "shards-26", "shards-28")
    records = [load(suite, "cuda") for suite in suites]
    newest = {(row["scale"], row["shards"]): row for each in records for row in each["figures"]}
    lines = heading(
        "| R-MAT | edges | GPUs | load | ranks from nothing | batch of 1,000 | ranks after it |"
    )
    lines += [
        f"| {scale} | {row['edges']:,} | {shards} | {row['load seconds']:.1f} s"
        f" | {row['static ms']:.1f} ms | {row['batch ms']:.1f} ms"
        f" | {row['solve after batch ms']:.1f} ms |"
        for (scale, shards), row in sorted(newest.items(), key=itemgetter(0))
    ]
    return _below(*(f"{suite}-cuda" for suite in suites), lines=lines)


def _lines(rows: list[Line]) -> list[str]:
    lines = heading("| what | on | measured |")
    return lines + [f"| {what} | {where} | {measured} |" for what, where, measured in rows]


def _below(*records: str, lines: list[str], places: bool = True) -> str:
    """A table below the names of the records that it is of, with the places unless rows have them.

    records  SUITE-BACKEND
    """
    named = [f"`{name}`" for name in records]
    if places:
        named = [f"`{name}` ({place(load(*name.rsplit('-', 1)))})" for name in records]
    return "\n".join([f"From {', '.join(named)}.", "", *lines])


def dfp() -> str:
    """The published form of DF-P beside that of Static and of ND, by record, policy and size of
    batch: geometric means over the graphs.
    """
    lines = heading(
        "| figures, policy, batch | graphs | DF-P: times as fast as Static | in the paper"
        " | its error over Static's | ND: times as fast as Static |"
    )
    for document in (load("sahu", "cuda"), load("sahu-random", "cuda")):
        rows = [row for row in document["figures"] if row["figures"] in PAPER_SPEEDUPS]
        for key in dict.fromkeys(
            (row["figures"], row["dangling"], row["fraction"]) for row in rows
        ):
            figures, dangling, fraction = key
            own: dict[str, dict[str, Row]] = {}
            for row in rows:
                if (row["figures"], row["dangling"], row["fraction"]) == key:
                    own.setdefault(row["graph"], {})[row["contender"]] = row
            told = PAPER_SPEEDUPS[figures].get(fraction)
            cells = (
                f"{figures}, `{dangling}`, {fraction:g}",
                f"{len(own)}",
                f"{_mean_ratio(own, 'static', 'dynamic-frontier-prune', 'median_ms'):.2f}",
                "" if told is None else f"{told:.1f}",
                f"{_mean_ratio(own, 'dynamic-frontier-prune', 'static', 'mean_error'):.1f}",
                f"{_mean_ratio(own, 'static', 'naive-dynamic', 'median_ms'):.2f}",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _mean_ratio(graphs: dict[str, dict[str, Row]], over: str, under: str, what: str) -> float:
    """Geometric mean of quotients of two strategies in the published form."""
    each = [
        own[f"{over}, published"][what] / own[f"{under}, published"][what]
        for own in graphs.values()
    ]
    return exp(fsum(map(log, each)) / len(each))


def authors() -> str:
    """Authors' programs beside ours: from nothing, and how many times as fast batches are as by the
    fastest of their strategies.
    """
    if not recorded("authors", "cuda"):
        return "No record yet: `python -m benchmarks.authors` makes one on a GPU.\n"
    rows = load("authors", "cuda")["figures"]["rows"]
    sizes = sorted({row["fraction"] for row in rows if row["fraction"]})
    titles = " | ".join(f"{size:.0e}" for size in sizes)
    lines = heading(
        "| program: graph | edges | error | from nothing, ms | ours | times as fast"
        f" | batches of {titles} |"
    )
    for program, graph, edges, method in dict.fromkeys(map(_solve_of, rows)):
        own = [row for row in rows if _solve_of(row) == (program, graph, edges, method)]
        cells = [""] * 4
        if first := [row for row in own if not row["fraction"]]:
            row = first[0]
            cells = [f"{row['error']:.0e}", f"{row['ms']:.3g}", f"{row['ours']['ms']:.3g}"]
            cells.append(f"{row['times_as_fast']:.1f}")
        for size in sizes:
            solves = [row for row in own if row["fraction"] == size]
            by_method = [
                [row for row in solves if row["method"] == name]
                for name in dict.fromkeys(row["method"] for row in solves)
            ]
            fastest = min(by_method, key=lambda each: median(row["ms"] for row in each), default=[])
            times = [row["times_as_fast"] for row in fastest]
            cells.append(f"{median(times):.1f}" if times else "")
        name = f"{program}{method}: {graph}"
        lines.append(f"| {name} | {edges:,} | {' | '.join(cells)} |")
    return _below("authors-cuda", lines=lines)


def _solve_of(row: Row) -> tuple[str, str, int, str]:
    """What has a row of its own: programs and graphs, and tolerances if there are several."""
    method = row["method"] if row["program"] == "Gunrock" else ""
    told = f"tolerance {row['tolerance']:g}" if "tolerance" in row else method
    return row["program"], row["graph"], row["edges"], f", {told}" if told else ""


def wang_beside_ours() -> str:
    """The default of both forms, to the same error bound."""
    document = load("wang", "cuda")
    rows = document["figures"]["times"]
    lines = heading(
        "| graph | their `hybrid` | with its certificate | our default | times as fast"
        " | as with it |"
    )
    alone, proven = [], []
    for graph in dict.fromkeys(row["graph"] for row in rows):
        theirs, ours = (
            _only(
                row
                for row in rows
                if (row["graph"], row["form"], row["method"]) == (graph, form, "hybrid")
            )
            for form in ("published", "accelerated")
        )
        solve, whole = theirs["median_ms"], theirs["median_ms"] + theirs["certify_ms"]
        alone.append(solve / ours["median_ms"])
        proven.append(whole / ours["median_ms"])
        lines.append(
            f"| {graph} | {solve:.1f} ms | {whole:.1f} ms | {ours['median_ms']:.1f} ms"
            f" | {alone[-1]:.2f} | {proven[-1]:.2f} |"
        )
    means = (exp(fsum(map(log, each)) / len(each)) for each in (alone, proven))
    lines.append(f"| geometric mean | | | | {' | '.join(f'{mean:.2f}' for mean in means)} |")
    return "\n".join([f"On {place(document)}.", "", *lines])


SUMMARIES: dict[str, Callable[[], str]] = {
    "authors": authors,
    "overview": overview,
    "batches": batches,
    "cuppa": cuppa,
    "devices": devices,
    "dfp": dfp,
    "loads": loads,
    "memory": memory,
    "networks": networks,
    "peers": peers,
    "programs": programs,
    "queries": queries,
    "server": server,
    "wang-beside-ours": wang_beside_ours,
}
"""The tables that have a name of their own: records have SUITE-BACKEND."""
