"""Figures of several records in one table: those of the first pages, and of docs/performance.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from statistics import median
from typing import Any

from benchmarks.harness import load, place
from benchmarks.tables.common import Row, geometric_mean, grouped, groups, heading, shown, table


def figures(name: str) -> Any:
    """Those of a record, SUITE-BACKEND."""
    return load(*name.rsplit("-", 1))["figures"]


def _place(name: str) -> str:
    return place(load(*name.rsplit("-", 1)))


Line = tuple[str, str, str] | tuple[str, str, str, Row]
"""A record, SUITE-BACKEND, what was measured, and how much: `shown` of these figures, or else of
those of the record.
"""


def lined(lines: Iterable[Line]) -> str:
    """What, where, and how much."""
    rows = []
    for name, what, measured, *given in lines:
        row = {"figures": figures(name), **(given[0] if given else figures(name))}
        cells = {"what": shown(what, row), "measured": shown(measured, row)}
        rows.append({"where": _place(name), **cells})
    return table("what | on | measured", "{what} | {where} | {measured}", rows)


def below(*records: str, shown: str) -> str:
    """A table below the names of the records that it is of, SUITE-BACKEND, and their places."""
    named = [f"`{name}` ({_place(name)})" for name in records]
    return f"From {', '.join(named)}.\n\n{shown}"


def below_names(lines: list[Line]) -> str:
    """Lines with places, below the names of their records."""
    names = dict.fromkeys(f"`{line[0]}`" for line in lines)
    return f"From {', '.join(names)}.\n\n{lined(lines)}"


def only(rows: Iterable[Row], **having: object) -> Row:
    """The one row that has these members."""
    (row,) = (row for row in rows if having.items() <= row.items())
    return row


_MILLIONS = "{edges / 1e6:,.0f} million edges"
_TIMES = "{p50:.1f} ms (median), {p99:.1f} ms (99 %)"
_WRITERS = {"writers": 300}
"""Older records do not say."""

DURABLE: tuple[Line, Line] = (
    (
        "durability-cpu",
        "batches of one edge from 32 clients, each on disk before its response",
        "{durable single edges, 32 clients, 1/s:,} a second",
    ),
    (
        "durability-cpu",
        "{figures['edges of the graph that is restarted'] / 1e6:.0f} million edges and"
        " {batches after it:,} batches since the checkpoint: a restart",
        "first read after {start to first read, s:.1f} s, newest version after"
        " {start to the newest version, s:.1f} s",
    ),
)


def overview() -> str:
    """A table with a row for each figure: what, on which machine, and how much."""
    rows = figures("solver-cuda")
    end = "1,000 edges from the host to published"
    (batch,) = (row for row in rows if row["what"].endswith(end))
    queries = [
        row
        for row in figures("personalized-cuda")["rows"]
        if (row["kind"], row["method"]) == ("any source", "hybrid") and "R-MAT" in row["graph"]
    ]
    solves, overload = figures("peers-cpu")["solves"], figures("overload-cpu")["overload"]
    return lined(
        [
            (
                "solver-cuda",
                f"{_MILLIONS}: 1,000 inserted or deleted by the engine, until ranks are published"
                " whose error is proven to be at most {target_error:g}",
                "{median_ms:.1f} ms",
                batch,
            ),
            (
                "solver-cuda",
                f"{_MILLIONS}: ranks from nothing",
                "{median_ms:.1f} ms",
                only(rows, what="static, auto", dangling=batch["dangling"]),
            ),
            (
                "personalized-cuda",
                f"{_MILLIONS}: the first {{k}} as seen from one vertex, to {{target_error:g}}",
                "{median_ms:.1f} ms",
                min(queries, key=lambda row: row["target_error"]),
            ),
            (
                "out-of-core-cuda",
                f"{_MILLIONS} within {{budgets[0]['memory'] / 2**30:.0f}} GiB of the GPU's memory:"
                " ranks from nothing",
                "{budgets[0][page-locked][seconds]:.1f} s, once edges are sorted, which takes"
                " {pack_seconds:.0f} s",
            ),
            (
                "peers-cpu",
                f"{len(groups(solves, 'graph'))} graphs: ranks from nothing, at the error of others"
                " or less, on one core",
                f"times as fast as {', '.join(_beside(solves))}",
            ),
            *DURABLE,
            (
                "overload-cpu",
                "reads of ranks while {writers} clients write as fast as they can",
                _TIMES,
                {**_WRITERS, **overload, **overload["read_ms"]},
            ),
            (
                "crash-cpu",
                "{kills:,} times `kill -9` while batches arrive",
                "of {batches acknowledged:,} acknowledged batches {lost} lost, {twice} applied"
                " twice",
            ),
        ]
    )


def _beside(solves: list[Row]) -> Iterator[str]:
    """How many times as fast as each peer."""
    graphs = groups(solves, "graph")
    for (peer,), rows in groups(solves, "peer").items():
        times, on = [row["times_as_fast"] for row in rows], {row["graph"] for row in rows}
        where = "" if len(on) == len(graphs) else f" ({', '.join(sorted(on))} alone)"
        yield f"{peer} {min(times):.1f} to {max(times):.1f}{where}"


def peers() -> str:
    """Ranks from nothing beside other libraries, a row for each graph and error."""
    shown = grouped(
        "graph | error | liverank, s | *",
        "{graph}, {edges / 1e6:.1f}M edges | {error:.1e}"
        " | {min(row['own_times']['least_processor_seconds'] for row in rows):.3g} | *",
        [row | {"told": f"{row['error']:.1e}"} for row in figures("peers-cpu")["solves"]],
        "graph edges told",
        "peer",
        "{times_as_fast:.1f}",
    )
    return below("peers-cpu", shown=shown)


def programs() -> str:
    """Programs in the faster of their modes, beside other libraries and on a GPU."""
    graph = figures("programs-cpu")[0]["graph"]
    here, there = (_fastest(figures(each), graph) for each in ("programs-cpu", "programs-cuda"))
    names = list(dict.fromkeys(peer for row in here.values() for peer in row["peers"]))
    shown = table(
        f"program | liverank, ms | {', ms | '.join(names)}, ms | liverank on a GPU, ms",
        "`{program}` | {milliseconds:,.0f}"
        + "".join(f" | {{peers[{name}]:,.0f}}" for name in names)
        + " | {device[milliseconds]:.1f}",
        (row | {"device": there[program]} for program, row in here.items()),
    )
    return below("programs-cpu", "programs-cuda", shown=shown)


def _fastest(rows: list[Row], graph: str) -> dict[str, Row]:
    """Of each program on a graph, the row of the fastest of the modes that are still offered."""
    gone = ("pagerank", "asynchronous")
    offered = [
        row
        for row in rows
        if row["mode"] != "edge-parallel" and (row["program"], row["mode"]) != gone
    ]
    return {
        program: min(own, key=lambda row: row["milliseconds"])
        for (of, program), own in groups(offered, "graph", "program").items()
        if of == graph
    }


def batches() -> str:
    """Batches by their size on generated graphs: the ranks, the change of the graph, and all."""
    rows: list[Row] = [
        row
        | {"size": f"{row['batch_size']:,}"}
        | {"told": f"ranks, error at most {row['target_error']:g}"}
        for row in sorted(figures("residual-cuda"), key=lambda row: row["edges"])
    ]
    for row in figures("solver-cuda"):
        graph, _, rest = row["what"].partition(", ")
        size, _, published = rest.partition(" edges from the host to ")
        if published:
            told = "all, from the host until ranks are published, error at most"
            told = f"{told} {row['target_error']:g}"
            rows.append(row | {"graph": graph, "size": size, "told": told})
    found = figures("graph-cuda")
    scale = found["load"]["vertices"].bit_length() - 1
    facts = {"graph": f"R-MAT {scale}", "edges": found["load"]["edges"], "size": "1,000"}
    rows.append(found["batch of 1,000"] | facts | {"told": "the change of the graph alone"})
    shown = table(
        "graph | edges | edges of a batch | what | ms (median) | (largest)",
        "{graph} | {edges:,} | {size} | {told} | {median_ms:.2f} | {largest_ms:.2f}",
        rows,
    )
    return below("residual-cuda", "solver-cuda", "graph-cuda", shown=shown)


def networks() -> str:
    """Batches of real networks beside a recomputation, on a GPU and on the CPU."""
    found = [figures("temporal-cuda"), figures("temporal-cpu")]
    # the milliseconds of each contender by policy, network and batch
    times = [
        {
            key: {row["contender"]: row["median_solve_ms"] for row in rows}
            for key, rows in groups(each["replays"], "dangling", "network", "batch_size").items()
        }
        for each in found
    ]
    titles = [f"{name}: batch, ms | recomputed, ms | times" for name in ("GPU", "CPU")]
    lines = heading(f"network | events | of a batch | {' | '.join(titles)}")
    for key in times[0]:
        dangling, network, batch = key
        if dangling == "uniform":
            both = [(each[key][_AUTO], each[key]["static"]) for each in times]
            cells = [f"{own:.2f} | {anew:,.1f} | {anew / own:,.0f}" for own, anew in both]
            events = found[0]["networks"][network]["events"]
            lines.append(f"| {network} | {events:,} | {batch:,} | {' | '.join(cells)} |")
    faster = [
        own[_AUTO] < min(time for name, time in own.items() if not name.startswith("auto"))
        for each in times
        for own in each.values()
    ]
    lines += [
        "",
        f"In {sum(faster)} of {len(faster)} rows of both records, those of `self-loop` among them,"
        " the default is faster than every published strategy.",
    ]
    return below("temporal-cuda", "temporal-cpu", shown="\n".join(lines))


_AUTO = "auto, 1e-06"
"""`auto` at its default target."""


def loads() -> str:
    """Loads, restarts and starts."""
    lines: list[Line] = [
        (
            name,
            f"`liverank load` of {{edges / 1e6:.1f}} million edges with {kind} keys, ranked",
            f"{{{kind}['this']['edges_per_second'] / 1e6:.1f}} million edges a second",
        )
        for name in ("load-cpu", "load-cuda")
        for kind in ("integer", "string")
        if kind in figures(name)
    ]
    told = "{load['sent'] / 1e6:,.0f} million unsorted edges on the device, into the engine"
    lines += [("graph-cuda", told, "{load[seconds]:.1f} s"), DURABLE[1]]
    for name, state, what in (
        ("cold-start-cpu", "warm", "a server without data, from its start until it is ready"),
        ("cold-start-cuda", "image", "the same in the container, at its first start"),
        ("cold-start-cuda", "warm", "the same at its second start"),
    ):
        told = "{ready:.1f} s, {processor time until ready:.1f} s of processors"
        lines.append((name, what, told, figures(name)[state]))
    return below_names(lines)


def server() -> str:
    """Writes, reads, events and connections of a server."""
    overload = figures("overload-cpu")
    part = _WRITERS | overload["overload"]
    kinds = {
        "alone": "a read of one rank, without writers",
        "stream": "the same beside 10 batches a second",
        "overload": f"the same while {part['writers']} clients write as fast as they can",
    }
    latency = "{their latency, ms[%s]:.1f} ms (%s)"
    delay = "{figures[ten a second: delay, ms (p%d)]:.1f} ms (%s)"
    return below_names(
        [
            DURABLE[0],
            (
                "durability-cpu",
                "the response to one of them",
                f"{latency % ('median', 'median')}, {latency % ('99 %', '99 %')}",
            ),
            *(
                ("overload-cpu", what, f"{_TIMES}, {{p999:.1f}} ms (99.9 %)", row["read_ms"])
                for what, row in ((what, overload[name]) for name, what in kinds.items())
            ),
            (
                "overload-cpu",
                "batches of 1,000 edges taken meanwhile",
                "{batches_taken / seconds:.0f} a second",
                part,
            ),
            (
                "feed-cpu",
                "an event of the change feed to {subscribers} subscribers, 10 batches a second",
                f"{delay % (50, 'median')}, {delay % (99, '99 %')}",
            ),
            (
                "connections-cpu",
                "one of {connections:,} open connections",
                "{a connection after a request, kB:.0f} kB",
            ),
        ]
    )


def queries() -> str:
    """Personalized queries in the engine on a GPU."""
    found = figures("personalized-cuda")
    ends = {
        "any source": "the first {k}, error at most {target_error:g}",
        "settled-set": "until the first {k} are proven as a set",
        "settled-top-k": "until the first {k} are proven in their order",
    }
    watched = "a batch of {batch_size:,} edges beside {watched} watched queries, what they add"
    rows = [
        row | {"told": shown(ends[row["kind"]], row), "p90": f"{row['p90_ms']:.1f}"}
        for row in found["rows"]
        if row["method"] == "hybrid" and row["kind"] in ends
    ]
    for row, told, median_ms in (
        (found["many"], "{queries:,} in one request, each", "{ms_each:.1f}"),
        (found["watched"], watched, "{median_extra_ms:.0f}"),
    ):
        rows.append(row | {"told": shown(told, row), "median": shown(median_ms, row), "p90": ""})
    lines = table(
        "graph | query | ms (median) | (90 %)",
        "{graph} | {told} | {median} | {p90}",
        ({"median": shown("{median_ms:.1f}", row), **row} for row in rows),
    )
    return below("personalized-cuda", shown=lines.replace(" |  |", " | |"))


def memory() -> str:
    """Bytes of each part of a graph and a server."""
    names = ("graph-cuda", "graph-cpu", "weights-cuda", "window-cpu", "keys-cpu")
    cuda, cpu, weights, window, keys = map(figures, names)
    edge_times = window["times of the edges, at the end, bytes"] / window["edges in the window"]
    size = keys["string"]["key_bytes"] / keys["keys"]
    peak = cuda["load"]["peak_bytes_per_edge_with_columns"]
    counts = {
        "an edge, in both directions, on a GPU": cuda["load"]["pool_bytes_per_edge"],
        "the same on the CPU": cpu["load"]["pool_bytes_per_edge"],
        "an edge with a weight, on a GPU": weights["memory, weighted, bytes an edge"],
        "an edge while a graph is loaded, with the columns that it comes from": peak,
        "the time of an edge, with a `window`": edge_times,
        "a key that is an integer": keys["integer"]["table_bytes"] / keys["keys"],
        f"a key that is a string of {size:.0f} bytes": keys["string"]["table_bytes"] / keys["keys"],
    }
    rows = ({"what": what, "count": count} for what, count in counts.items())
    times = (
        "On a GPU a sweep over weighted edges takes {quantize and sweep, ms[ratio]:.2f} times as"
        " long, and a batch of 1,000 with its ranks {batch of 1,000, mutate and solve, ms[ratio]"
        ":.2f} times."
    )
    parts = table("what | bytes", "{what} | {count:.1f}", rows), shown(times, weights)
    return below(*names, shown="\n\n".join(parts))


def devices() -> str:
    """R-MAT graphs on one GPU and on several, the newest record of each size."""
    names = ("shards-cuda", "shards-26-cuda", "shards-28-cuda")
    newest = {(row["scale"], row["shards"]): row for each in names for row in figures(each)}
    shown = table(
        "R-MAT | edges | GPUs | load | ranks from nothing | batch of 1,000 | ranks after it",
        "{scale} | {edges:,} | {shards} | {load seconds:.1f} s | {static ms:.1f} ms"
        " | {batch ms:.1f} ms | {solve after batch ms:.1f} ms",
        (newest[key] for key in sorted(newest)),
    )
    return below(*names, shown=shown)


# ---- papers ----


def cuppa() -> str:
    """What the text of the cuPPA paper says of its figures, and ours."""
    document = load("cuppa", "cuda")
    found = document["figures"]
    rows = (
        {
            "figure": figure,
            "theirs": theirs,
            "ours": ours(found[name]) if name in found else "not in this record",
        }
        for figure, theirs, name, ours in _CUPPA
    )
    titles = f"figure | theirs, GeForce GTX 1080 | ours, {place(document)}"
    return f"From `cuppa-cuda`.\n\n{table(titles, '{figure} | {theirs} | {ours}', rows)}"


Ours = Callable[[list[Row]], str]


def _drawn_by(model: str) -> Ours:
    edges = "{median_ms:,.1f} ms for {vertices * edges_per_vertex:,} edges"

    def text(rows: list[Row]) -> str:
        row = only(rows, model=model)
        return shown(edges, row) + shown(", rounds: {rounds:,}", row)

    return text


def _growth(by: str, factor: int) -> Ours:
    def text(rows: list[Row]) -> str:
        times = {row[by]: row["median_ms"] for row in rows if row["probability"] == 0.5}
        return f"{times[max(times)] / times[max(times) // factor]:.1f} times the time"

    return text


def _by_probability(rows: list[Row]) -> str:
    times = {row["probability"]: row["median_ms"] for row in rows}
    return ", ".join(f"{times[p] / times[0.5]:.2g}" for p in (0.0, 1e-5, 1.0))


def _queues(by: str, places: Iterable[int], **having: float) -> Ours:
    return lambda rows: ", ".join(
        f"{only(rows, **{by: place}, **having)['largest_queue']:,}" for place in places
    )


def _fastest_block(rows: list[Row]) -> str:
    return f"{min(rows, key=lambda row: row['median_ms'])['threads']:,}"


_D = "edges_per_vertex"
_CUPPA: tuple[tuple[str, str, str, Ours], ...] = (
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
        _drawn_by("liverank"),
    ),
    (
        "3: exponent (ours: degrees ≥ 4)",
        "2.7",
        "models",
        lambda rows: f"{rows[-1]['exponent']:.2f}",
    ),
    (
        "8: largest queue of 1,280 vertices, p = 0, d = 64 and 4,096",
        "d up to 64, then less",
        "largest queue",
        _queues(_D, (64, 4096), probability=0.0),
    ),
    (
        "9: largest queue in rounds 1, 10 and 100",
        '"decreases dramatically"',
        "queue by round",
        _queues("round", (1, 10, 100)),
    ),
    (
        "11: 8 times the vertices, p = 1/2",
        "linear",
        "vertices by probability",
        _growth("vertices", 8),
    ),
    (
        "13: 128 times the edges of a vertex, p = 1/2",
        '"almost linearly"',
        "edges of a vertex",
        _growth(_D, 128),
    ),
    (
        "14: time over that of p = 1/2, for p = 0, 1e-5 and 1",
        "largest at 0, much less at 1e-5",
        "probability",
        _by_probability,
    ),
    ("15: fastest threads of a block", "512", "threads of a block", _fastest_block),
)
"""The figure, what the text says, the figures of ours, and how they are shown."""


def authors() -> str:
    """Authors' programs beside ours: from nothing, and how many times as fast batches are as by the
    fastest of their strategies.
    """
    rows = [row | {"name": _solve_of(row)} for row in figures("authors-cuda")["rows"]]
    lines: list[Row] = []
    for own in groups(rows, "name", "edges").values():
        sizes = groups(own, "fraction")
        (first,) = sizes.pop((0.0,), [{}])[:1]
        facts = {"name": own[0]["name"], "edges": own[0]["edges"], "first": first}
        lines.append(facts | {"fraction": None})
        for (size,), solves in sizes.items():
            by_method = groups(solves, "method").values()
            fastest = min(by_method, key=lambda each: median(row["ms"] for row in each))
            times = median(row["times_as_fast"] for row in fastest)
            lines.append(facts | {"fraction": size, "times": times})
    shown = grouped(
        "program: graph | edges | error | from nothing, ms | ours | times as fast | batches of *",
        "{name} | {edges:,} | {first[error]:.0e} | {first[ms]:.3g} | {first[ours][ms]:.3g}"
        " | {first[times_as_fast]:.1f} | *",
        lines,
        "name edges",
        "fraction",
        "{times:.1f}",
        "{:.0e}",
    )
    return below("authors-cuda", shown=shown)


def _solve_of(row: Row) -> str:
    """What has a row of its own: programs and graphs, and tolerances if there are several."""
    method = row["method"] if row["program"] == "Gunrock" else ""
    told = f"tolerance {row['tolerance']:g}" if "tolerance" in row else method
    return f"{row['program']}{f', {told}' if told else ''}: {row['graph']}"


def wang_beside_ours() -> str:
    """The default of both forms, to the same error bound."""
    document = load("wang", "cuda")
    rows: list[Row] = []
    for (graph,), own in groups(document["figures"]["times"], "graph").items():
        theirs, ours = (
            only(own, form=form, method="hybrid") for form in ("published", "accelerated")
        )
        solve, whole = theirs["median_ms"], theirs["median_ms"] + theirs["certify_ms"]
        times = {"solve": solve, "whole": whole, "ours": ours["median_ms"]}
        fast = {"alone": solve / ours["median_ms"], "proven": whole / ours["median_ms"]}
        rows.append({"graph": graph, **times, **fast})
    means = {name: geometric_mean(row[name] for row in rows) for name in ("alone", "proven")}
    return f"On {place(document)}.\n\n" + table(
        "graph | their `hybrid` | with its certificate | our default | times as fast | as with it",
        "{graph} | {solve:.1f} ms | {whole:.1f} ms | {ours:.1f} ms | {alone:.2f} | {proven:.2f}",
        [*rows, {"graph": "geometric mean", **means}],
    )


SUMMARIES: dict[str, Callable[[], str]] = {
    "authors": authors,
    "overview": overview,
    "batches": batches,
    "cuppa": cuppa,
    "devices": devices,
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
