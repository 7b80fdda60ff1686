"""Figures of several records in one table: those of the first pages, and of docs/performance.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from benchmarks.harness import load, place
from benchmarks.service import WRITERS
from benchmarks.tables.common import Row, geometric_mean, groups, heading, table


def figures(name: str) -> Any:
    """Those of a record, SUITE-BACKEND."""
    return load(*name.rsplit("-", 1))["figures"]


def at(name: str, what: str, measured: str) -> Row:
    """A line of a table, with the place of a record."""
    where = place(load(*name.rsplit("-", 1)))
    return {"record": name, "what": what, "where": where, "measured": measured}


def lined(rows: Iterable[Row]) -> str:
    """What, where, and how much."""
    return table("what | on | measured", "{what} | {where} | {measured}", rows)


def below(*records: str, shown: str) -> str:
    """A table below the names of the records that it is of, SUITE-BACKEND, and their places."""
    named = [f"`{name}` ({place(load(*name.rsplit('-', 1)))})" for name in records]
    return f"From {', '.join(named)}.\n\n{shown}"


def below_names(rows: list[Row]) -> str:
    """Lines with places, below the names of their records."""
    names = dict.fromkeys(row["record"] for row in rows)
    return f"From {', '.join(f'`{name}`' for name in names)}.\n\n{lined(rows)}"


def only(rows: Iterable[Row], **having: object) -> Row:
    """The one row that has these members."""
    (row,) = (row for row in rows if having.items() <= row.items())
    return row


def overview() -> str:
    """A table with a row for each figure: what, on which machine, and how much."""
    rows = figures("solver-cuda")
    end = "1,000 edges from the host to published"
    (batch,) = (row for row in rows if row["what"].endswith(end))
    static = only(rows, what="static, auto", dangling=batch["dangling"])
    queries = [
        row
        for row in figures("personalized-cuda")["rows"]
        if (row["kind"], row["method"]) == ("any source", "hybrid") and "R-MAT" in row["graph"]
    ]
    query = min(queries, key=lambda row: row["target_error"])
    streamed = figures("out-of-core-cuda")
    budget = streamed["budgets"][0]
    solves = figures("peers-cpu")["solves"]
    overload, kills = figures("overload-cpu")["overload"], figures("crash-cpu")
    return lined(
        [
            at(
                "solver-cuda",
                f"{_millions(batch)}: 1,000 inserted or deleted by the engine, until ranks are"
                f" published whose error is proven to be at most {batch['target_error']:g}",
                f"{batch['median_ms']:.1f} ms",
            ),
            at(
                "solver-cuda",
                f"{_millions(static)}: ranks from nothing",
                f"{static['median_ms']:.1f} ms",
            ),
            at(
                "personalized-cuda",
                f"{_millions(query)}: the first {query['k']} as seen from one vertex, to"
                f" {query['target_error']:g}",
                f"{query['median_ms']:.1f} ms",
            ),
            at(
                "out-of-core-cuda",
                f"{_millions(streamed)} within {budget['memory'] / 2**30:.0f} GiB of the GPU's"
                " memory: ranks from nothing",
                f"{budget['page-locked']['seconds']:.1f} s, once edges are sorted, which takes"
                f" {streamed['pack_seconds']:.0f} s",
            ),
            at(
                "peers-cpu",
                f"{len(groups(solves, 'graph'))} graphs: ranks from nothing, at the error of others"
                " or less, on one core",
                f"times as fast as {', '.join(_beside(solves))}",
            ),
            *_durability(),
            at(
                "overload-cpu",
                f"reads of ranks while {overload.get('writers', WRITERS)} clients write as fast as"
                " they can",
                _times(**overload["read_ms"]),
            ),
            at(
                "crash-cpu",
                f"{kills['kills']:,} times `kill -9` while batches arrive",
                f"of {kills['batches acknowledged']:,} acknowledged batches {kills['lost']} lost,"
                f" {kills['twice']} applied twice",
            ),
        ]
    )


def _beside(solves: list[Row]) -> Iterable[str]:
    """How many times as fast as each peer."""
    graphs = groups(solves, "graph")
    for (peer,), rows in groups(solves, "peer").items():
        times, on = [row["times_as_fast"] for row in rows], {row["graph"] for row in rows}
        where = "" if len(on) == len(graphs) else f" ({', '.join(sorted(on))} alone)"
        yield f"{peer} {min(times):.1f} to {max(times):.1f}{where}"


def _durability() -> list[Row]:
    found = figures("durability-cpu")
    return [
        at(
            "durability-cpu",
            "batches of one edge from 32 clients, each on disk before its response",
            f"{found['durable single edges, 32 clients, 1/s']:,} a second",
        ),
        at(
            "durability-cpu",
            f"{found['edges of the graph that is restarted'] / 1e6:.0f} million edges and"
            f" {found['batches after it']:,} batches since the checkpoint: a restart",
            f"first read after {found['start to first read, s']:.1f} s,"
            f" newest version after {found['start to the newest version, s']:.1f} s",
        ),
    ]


def _millions(row: Row) -> str:
    return f"{row['edges'] / 1e6:,.0f} million edges"


def _times(p50: float, p99: float, **_: float) -> str:
    return f"{p50:.1f} ms (median), {p99:.1f} ms (99 %)"


def peers() -> str:
    """Ranks from nothing beside other libraries, a row for each graph and error."""
    solves = [row | {"shown": f"{row['error']:.1e}"} for row in figures("peers-cpu")["solves"]]
    names = list(dict.fromkeys(row["peer"] for row in solves))
    lines = heading(f"graph | error | liverank, s | {' | '.join(names)}")
    for (graph, edges, error), rows in groups(solves, "graph", "edges", "shown").items():
        own = min(row["own_times"]["least_processor_seconds"] for row in rows)
        times = {row["peer"]: f"{row['times_as_fast']:.1f}" for row in rows}
        cells = " | ".join(times.get(name, "") for name in names)
        lines.append(f"| {graph}, {edges / 1e6:.1f}M edges | {error} | {own:.3g} | {cells} |")
    return below("peers-cpu", shown="\n".join(lines))


def programs() -> str:
    """Programs in the faster of their modes, beside other libraries and on a GPU."""
    graph = figures("programs-cpu")[0]["graph"]
    here, there = (_fastest(figures(each), graph) for each in ("programs-cpu", "programs-cuda"))
    names = list(dict.fromkeys(peer for row in here.values() for peer in row["peers"]))
    return below(
        "programs-cpu",
        "programs-cuda",
        shown=table(
            f"program | liverank, ms | {', ms | '.join(names)}, ms | liverank on a GPU, ms",
            "`{program}` | {milliseconds:,.0f}"
            + "".join(f" | {{peers[{name}]:,.0f}}" for name in names)
            + " | {device:.1f}",
            (row | {"device": there[program]["milliseconds"]} for program, row in here.items()),
        ),
    )


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
    lines = [
        at(
            name,
            f"`liverank load` of {found['edges'] / 1e6:.1f} million edges with {kind} keys, ranked",
            f"{found[kind]['this']['edges_per_second'] / 1e6:.1f} million edges a second",
        )
        for name, found in ((each, figures(each)) for each in ("load-cpu", "load-cuda"))
        for kind in ("integer", "string")
        if kind in found
    ]
    row = figures("graph-cuda")["load"]
    told = f"{row['sent'] / 1e6:,.0f} million unsorted edges on the device, into the engine"
    lines += [at("graph-cuda", told, f"{row['seconds']:.1f} s"), _durability()[1]]
    for name, state, what in (
        ("cold-start-cpu", "warm", "a server without data, from its start until it is ready"),
        ("cold-start-cuda", "image", "the same in the container, at its first start"),
        ("cold-start-cuda", "warm", "the same at its second start"),
    ):
        start = figures(name)[state]
        spent = start["processor time until ready"]
        told = f"{start['ready']:.1f} s, {spent:.1f} s of processors"
        lines.append(at(name, what, told))
    return below_names(lines)


def server() -> str:
    """Writes, reads, events and connections of a server."""
    times = figures("durability-cpu")["their latency, ms"]
    overload, events, sockets = (
        figures(f"{suite}-cpu") for suite in ("overload", "feed", "connections")
    )
    part = overload["overload"]
    writers = part.get("writers", WRITERS)  # older records do not say
    delays = (events[f"ten a second: delay, ms (p{share})"] for share in (50, 99))
    lines = [
        _durability()[0],
        at("durability-cpu", "the response to one of them", _times(*times.values())),
    ]
    for name, what in (
        ("alone", "a read of one rank, without writers"),
        ("stream", "the same beside 10 batches a second"),
        ("overload", f"the same while {writers} clients write as fast as they can"),
    ):
        read = overload[name]["read_ms"]
        lines.append(at("overload-cpu", what, f"{_times(**read)}, {read['p999']:.1f} ms (99.9 %)"))
    lines += [
        at(
            "overload-cpu",
            "batches of 1,000 edges taken meanwhile",
            f"{part['batches_taken'] / part['seconds']:.0f} a second",
        ),
        at(
            "feed-cpu",
            f"an event of the change feed to {events['subscribers']} subscribers,"
            " 10 batches a second",
            _times(*delays),
        ),
        at(
            "connections-cpu",
            f"one of {sockets['connections']:,} open connections",
            f"{sockets['a connection after a request, kB']:.0f} kB",
        ),
    ]
    return below_names(lines)


def queries() -> str:
    """Personalized queries in the engine on a GPU."""
    found = figures("personalized-cuda")
    ends = {
        "any source": "the first {k}, error at most {target_error:g}",
        "settled-set": "until the first {k} are proven as a set",
        "settled-top-k": "until the first {k} are proven in their order",
    }
    lines = heading("graph | query | ms (median) | (90 %)")
    lines += [
        f"| {row['graph']} | {ends[row['kind']].format(**row)} | {row['median_ms']:.1f}"
        f" | {row['p90_ms']:.1f} |"
        for row in found["rows"]
        if row["method"] == "hybrid" and row["kind"] in ends
    ]
    many, watched = found["many"], found["watched"]
    lines += [
        f"| {many['graph']} | {many['queries']:,} in one request, each | {many['ms_each']:.1f} | |",
        f"| {watched['graph']} | a batch of {watched['batch_size']:,} edges beside"
        f" {watched['watched']} watched queries, what they add"
        f" | {watched['median_extra_ms']:.0f} | |",
    ]
    return below("personalized-cuda", shown="\n".join(lines))


def memory() -> str:
    """Bytes of each part of a graph and a server."""
    cuda, cpu = (figures(f"graph-{backend}")["load"] for backend in ("cuda", "cpu"))
    weights, window = figures("weights-cuda"), figures("window-cpu")
    keys = figures("keys-cpu")
    edge_times = window["times of the edges, at the end, bytes"] / window["edges in the window"]
    size = keys["string"]["key_bytes"] / keys["keys"]
    counts = {
        "an edge, in both directions, on a GPU": cuda["pool_bytes_per_edge"],
        "the same on the CPU": cpu["pool_bytes_per_edge"],
        "an edge with a weight, on a GPU": weights["memory, weighted, bytes an edge"],
        "an edge while a graph is loaded, with the columns that it comes from": cuda[
            "peak_bytes_per_edge_with_columns"
        ],
        "the time of an edge, with a `window`": edge_times,
        "a key that is an integer": keys["integer"]["table_bytes"] / keys["keys"],
        f"a key that is a string of {size:.0f} bytes": keys["string"]["table_bytes"] / keys["keys"],
    }
    rows = ({"what": what, "count": count} for what, count in counts.items())
    shown = table("what | bytes", "{what} | {count:.1f}", rows)
    sweep, batch = (
        weights[name]["ratio"]
        for name in ("quantize and sweep, ms", "batch of 1,000, mutate and solve, ms")
    )
    shown += (
        f"\n\nOn a GPU a sweep over weighted edges takes {sweep:.2f} times as long, and a batch of"
        f" 1,000 with its ranks {batch:.2f} times."
    )
    return below("graph-cuda", "graph-cpu", "weights-cuda", "window-cpu", "keys-cpu", shown=shown)


def devices() -> str:
    """R-MAT graphs on one GPU and on several, the newest record of each size."""
    suites = ("shards", "shards-26", "shards-28")
    newest = {
        (row["scale"], row["shards"]): row for each in suites for row in figures(f"{each}-cuda")
    }
    shown = table(
        "R-MAT | edges | GPUs | load | ranks from nothing | batch of 1,000 | ranks after it",
        "{scale} | {edges:,} | {shards} | {load seconds:.1f} s | {static ms:.1f} ms"
        " | {batch ms:.1f} ms | {solve after batch ms:.1f} ms",
        (newest[key] for key in sorted(newest)),
    )
    return below(*(f"{suite}-cuda" for suite in suites), shown=shown)


# ---- papers ----


def cuppa() -> str:
    """What the text of the cuPPA paper says of its figures, and ours."""
    document = load("cuppa", "cuda")
    found = document["figures"]
    shown = table(
        f"figure | theirs, GeForce GTX 1080 | ours, {place(document)}",
        "{figure} | {theirs} | {ours}",
        (
            {
                "figure": figure,
                "theirs": theirs,
                "ours": ours(found) if name in found else "not in this record",
            }
            for figure, (theirs, name, ours) in _CUPPA.items()
        ),
    )
    return f"From `cuppa-cuda`.\n\n{shown}"


def _drawn_by(model: str, name: str = "models") -> Callable[[Row], str]:
    def text(found: Row) -> str:
        row = only(found[name], model=model)
        rounds = f", rounds: {row['rounds']:,}" if "rounds" in row else ""
        edges = row["vertices"] * row["edges_per_vertex"]
        return f"{row['median_ms']:,.1f} ms for {edges:,} edges{rounds}"

    return text


def _growth(name: str, by: str, factor: int) -> Callable[[Row], str]:
    def text(found: Row) -> str:
        rows = {row[by]: row["median_ms"] for row in found[name] if row["probability"] == 0.5}
        most = max(rows)
        return f"{rows[most] / rows[most // factor]:.1f} times the time"

    return text


def _by_probability(found: Row) -> str:
    times = {row["probability"]: row["median_ms"] for row in found["probability"]}
    return ", ".join(f"{times[p] / times[0.5]:.2g}" for p in (0.0, 1e-5, 1.0))


def _queues(name: str, by: str, places: Iterable[int], **having: float) -> Callable[[Row], str]:
    def text(found: Row) -> str:
        rows = (only(found[name], **{by: place}, **having) for place in places)
        return ", ".join(f"{row['largest_queue']:,}" for row in rows)

    return text


def _fastest_block(found: Row) -> str:
    row = min(found["threads of a block"], key=lambda row: row["median_ms"])
    return f"{row['threads']:,}"


_D, _N = "edges_per_vertex", "vertices by probability"
_QUEUES = "8: largest queue of 1,280 vertices, p = 0, d = 64 and 4,096"
_HASH = "cuPPA-Hash, their later one (2019), on four Tesla P100"
_RATIOS = "14: time over that of p = 1/2, for p = 0, 1e-5 and 1"
_CUPPA: dict[str, tuple[str, str, Callable[[Row], str]]] = {
    "10: cuPPA-Dynamic, d = 4, p = 1/2": (
        "1.48 s for 1,000,000,000 edges",
        "models",
        _drawn_by("SRRP, dynamic"),
    ),
    "10: SRRP with fixed segments": ("not in the text", "models", _drawn_by("SRRP, fixed")),
    "10: RRP": ("not in the text", "models", _drawn_by("RRP")),
    "10: our own generator": ("another algorithm", "models", _drawn_by("liverank")),
    _HASH: (
        "less than 7 s for 16,000,000,000 edges",
        "largest graph",
        _drawn_by("liverank", "largest graph"),
    ),
    "3: exponent (ours: degrees ≥ 4)": (
        "2.7",
        "models",
        lambda found: f"{found['models'][-1]['exponent']:.2f}",
    ),
    _QUEUES: (
        "d up to 64, then less",
        "largest queue",
        _queues("largest queue", _D, (64, 4096), probability=0.0),
    ),
    "9: largest queue in rounds 1, 10 and 100": (
        '"decreases dramatically"',
        "queue by round",
        _queues("queue by round", "round", (1, 10, 100)),
    ),
    "11: 8 times the vertices, p = 1/2": ("linear", _N, _growth(_N, "vertices", 8)),
    "13: 128 times the edges of a vertex, p = 1/2": (
        '"almost linearly"',
        "edges of a vertex",
        _growth("edges of a vertex", _D, 128),
    ),
    _RATIOS: ("largest at 0, much less at 1e-5", "probability", _by_probability),
    "15: fastest threads of a block": ("512", "threads of a block", _fastest_block),
}
"""By figure: what the text says, the figures of ours, and how they are shown."""


def authors() -> str:
    """Authors' programs beside ours: from nothing, and how many times as fast batches are as by the
    fastest of their strategies.
    """
    rows = [row | {"name": _solve_of(row)} for row in figures("authors-cuda")["rows"]]
    sizes = sorted({row["fraction"] for row in rows if row["fraction"]})
    titles = " | ".join(f"{size:.0e}" for size in sizes)
    lines = heading(
        "program: graph | edges | error | from nothing, ms | ours | times as fast"
        f" | batches of {titles}"
    )
    for (name, edges), own in groups(rows, "name", "edges").items():
        of_size = groups(own, "fraction")
        cells = [""] * 4
        if first := of_size.get((0.0,)):
            row = first[0]
            cells = [f"{row['error']:.0e}", f"{row['ms']:.3g}", f"{row['ours']['ms']:.3g}"]
            cells.append(f"{row['times_as_fast']:.1f}")
        for size in sizes:
            by_method = groups(of_size.get((size,), []), "method").values()
            fastest = min(by_method, key=lambda each: median(row["ms"] for row in each), default=[])
            times = [row["times_as_fast"] for row in fastest]
            cells.append(f"{median(times):.1f}" if times else "")
        lines.append(f"| {name} | {edges:,} | {' | '.join(cells)} |")
    return below("authors-cuda", shown="\n".join(lines))


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
