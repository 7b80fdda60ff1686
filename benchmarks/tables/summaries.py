"""Figures of several records in one table: those of the first pages, and of docs/performance.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from statistics import median
from typing import Any

from benchmarks.harness import load, place
from benchmarks.tables.common import FORMS, Row, geometric_mean, groups, shown, table


def figures(name: str) -> Any:
    """Those of a record, SUITE-BACKEND."""
    return load(*name.rsplit("-", 1))["figures"]


def _place(name: str) -> str:
    return place(load(*name.rsplit("-", 1)))


def lined(form: str, **found: Any) -> str:
    """What, where, and how much: the lines of a form that their records have figures of.

    found  figures beside those of the records
    """
    rows = []
    for name, what, measured in FORMS[form]["lines"]:
        of = figures(name)
        row = {"figures": of, **(of if isinstance(of, dict) else {}), **found}
        if told := shown(measured, row):
            rows.append({"what": shown(what, row), "where": _place(name), "measured": told})
    return table("lines", rows)


def below_names(form: str) -> str:
    """Lines with places, below the names of their records."""
    names = dict.fromkeys(f"`{line[0]}`" for line in FORMS[form]["lines"])
    return f"From {', '.join(names)}.\n\n{lined(form)}"


def below(*records: str, shown: str) -> str:
    """A table below the names of the records that it is of, SUITE-BACKEND, and their places."""
    named = [f"`{name}` ({_place(name)})" for name in records]
    return f"From {', '.join(named)}.\n\n{shown}"


def only(rows: Iterable[Row], **having: object) -> Row:
    """The one row that has these members."""
    (row,) = (row for row in rows if having.items() <= row.items())
    return row


def overview() -> str:
    """A table with a row for each figure: what, on which machine, and how much."""
    rows = figures("solver-cuda")
    end = "1,000 edges from the host to published"
    (batch,) = (row for row in rows if row["what"].endswith(end))
    queries = (
        row
        for row in figures("personalized-cuda")["rows"]
        if (row["kind"], row["method"]) == ("any source", "hybrid") and "R-MAT" in row["graph"]
    )
    solves = figures("peers-cpu")["solves"]
    return lined(
        "overview",
        batch=batch,
        static=only(rows, what="static, auto", dangling=batch["dangling"]),
        query=min(queries, key=lambda row: row["target_error"]),
        graphs=len(groups(solves, "graph")),
        beside=", ".join(_beside(solves)),
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
    rows = [row | {"shown": f"{row['error']:.1e}"} for row in figures("peers-cpu")["solves"]]
    return below("peers-cpu", shown=table("libraries", rows))


def programs() -> str:
    """Programs in the faster of their modes, beside other libraries and on a GPU."""
    graph = figures("programs-cpu")[0]["graph"]
    here, there = (_fastest(figures(each), graph) for each in ("programs-cpu", "programs-cuda"))
    names = dict.fromkeys(peer for row in here.values() for peer in row["peers"])
    rows = (row | {"device": there[program]} for program, row in here.items())
    shown = table("fastest-programs", rows, names)
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
    return below("residual-cuda", "solver-cuda", "graph-cuda", shown=table("batches", rows))


def networks() -> str:
    """Batches of real networks beside a recomputation, on a GPU and on the CPU."""
    found = [figures("temporal-cuda"), figures("temporal-cpu")]
    # the milliseconds of each contender by policy, network and batch
    gpu, cpu = (
        {
            key: {row["contender"]: row["median_solve_ms"] for row in rows}
            for key, rows in groups(each["replays"], "dangling", "network", "batch_size").items()
        }
        for each in found
    )
    rows = (
        {"network": network, "batch": batch, **found[0]["networks"][network]}
        | {"gpu": gpu[dangling, network, batch], "cpu": cpu[dangling, network, batch]}
        for dangling, network, batch in gpu
        if dangling == "uniform"
    )
    faster = [
        own["auto, 1e-06"] < min(ms for name, ms in own.items() if not name.startswith("auto"))
        for own in (*gpu.values(), *cpu.values())
    ]
    told = (
        f"In {sum(faster)} of {len(faster)} rows of both records, those of `self-loop` among them,"
        " the default is faster than every published strategy."
    )
    return below("temporal-cuda", "temporal-cpu", shown=f"{table('networks', rows)}\n\n{told}")


def queries() -> str:
    """Personalized queries in the engine on a GPU."""
    found = figures("personalized-cuda")
    told = {
        "any source": "the first {k}, error at most {target_error:g}",
        "settled-set": "until the first {k} are proven as a set",
        "settled-top-k": "until the first {k} are proven in their order",
        "many": "{queries:,} in one request, each",
        "watched": "a batch of {batch_size:,} edges beside {watched} watched queries,"
        " what they add",
    }
    rows = [row for row in found["rows"] if row["method"] == "hybrid" and row["kind"] in told]
    rows += [found[kind] | {"kind": kind} for kind in ("many", "watched")]
    lines = table("queries", (row | {"told": shown(told[row["kind"]], row)} for row in rows))
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
    shown_rows = table("memory", rows)
    return below(*names, shown=f"{shown_rows}\n\n{shown(FORMS['memory']['below'], weights)}")


def devices() -> str:
    """R-MAT graphs on one GPU and on several, the newest record of each size."""
    names = ("shards-cuda", "shards-26-cuda", "shards-28-cuda")
    newest = {(row["scale"], row["shards"]): row for each in names for row in figures(each)}
    return below(*names, shown=table("devices", (newest[key] for key in sorted(newest))))


# ---- papers ----


def cuppa() -> str:
    """What the text of the cuPPA paper says of its figures, and ours."""
    document = load("cuppa", "cuda")
    rows = (
        {"figure": figure, "theirs": theirs, "ours": shown(ours, _of_cuppa(document["figures"]))}
        for figure, theirs, ours in FORMS["cuppa-beside-ours"]["lines"]
    )
    return f"From `cuppa-cuda`.\n\n{table('cuppa-beside-ours', rows, named=place(document))}"


def _of_cuppa(found: Row) -> Row:
    """Functions of these figures for the cells of the table."""

    def drawn(name: str, model: str) -> str:
        row = only(found[name], model=model)
        edges = "{median_ms:,.1f} ms for {vertices * edges_per_vertex:,} edges"
        return shown(edges, row) + shown(", rounds: {rounds:,}", row)

    def growth(name: str, by: str, factor: int) -> float:
        rows = {row[by]: row["median_ms"] for row in found[name] if row["probability"] == 0.5}
        ratio: float = rows[max(rows)] / rows[max(rows) // factor]
        return ratio

    def times(*probabilities: float) -> str:
        rows = {row["probability"]: row["median_ms"] for row in found["probability"]}
        return ", ".join(f"{rows[each] / rows[0.5]:.2g}" for each in probabilities)

    def queues(name: str, by: str, *places: int, **having: float) -> str:
        rows = (only(found[name], **{by: place}, **having) for place in places)
        return ", ".join(f"{row['largest_queue']:,}" for row in rows)

    fastest = min(found.get("threads of a block", [{}]), key=lambda row: row.get("median_ms", 0))
    functions = {"drawn": drawn, "growth": growth, "times": times, "queues": queues}
    return {**found, **functions, "fastest": fastest}


def authors() -> str:
    """Authors' programs beside ours: from nothing, and how many times as fast batches are as by the
    fastest of their strategies.
    """
    rows = [row | {"name": _solve_of(row)} for row in figures("authors-cuda")["rows"]]
    lines: list[Row] = []
    for own in groups(rows, "name", "edges").values():
        sizes = groups(own, "fraction")
        facts = own[0] | {"first": sizes.pop((0.0,), [{}])[0]}
        lines.append(facts | {"fraction": None})
        for (size,), solves in sizes.items():
            by_method = groups(solves, "method").values()
            fastest = min(by_method, key=lambda each: median(row["ms"] for row in each))
            times = median(row["times_as_fast"] for row in fastest)
            lines.append(facts | {"fraction": size, "times": times})
    return below("authors-cuda", shown=table("authors-beside-ours", lines))


def _solve_of(row: Row) -> str:
    """What has a row of its own: programs and graphs, and tolerances if there are several."""
    method = row["method"] if row["program"] == "Gunrock" else ""
    told = f"tolerance {row['tolerance']:g}" if "tolerance" in row else method
    return f"{row['program']}{f', {told}' if told else ''}: {row['graph']}"


def wang_beside_ours() -> str:
    """The default of both forms, to the same error bound."""
    document = load("wang", "cuda")
    rows: list[Row] = []
    for own in groups(document["figures"]["times"], "graph").values():
        row = only(own, form="published", method="hybrid")
        ours = only(own, form="accelerated", method="hybrid")["median_ms"]
        proven = (row["median_ms"] + row["certify_ms"]) / ours
        rows.append(row | {"ours": ours, "alone": row["median_ms"] / ours, "proven": proven})
    means = {name: geometric_mean(row[name] for row in rows) for name in ("alone", "proven")}
    rows.append({"graph": "geometric mean", **means})
    return f"On {place(document)}.\n\n" + table("wang-beside-ours", rows)


SUMMARIES: dict[str, Callable[[], str]] = {
    "authors": authors,
    "overview": overview,
    "batches": batches,
    "cuppa": cuppa,
    "devices": devices,
    "loads": partial(below_names, "loads"),
    "memory": memory,
    "networks": networks,
    "peers": peers,
    "programs": programs,
    "queries": queries,
    "server": partial(below_names, "server"),
    "wang-beside-ours": wang_beside_ours,
}
"""The tables that have a name of their own: records have SUITE-BACKEND."""
