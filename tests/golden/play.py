"""Runs a stream (tests.golden.streams) through public names alone, and says what came of it.

Every step gives entries: a label, and a value of numbers, texts, arrays, and the records that the
engine returns. Times are left out by tests.golden.records.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import liverank_gpu
from liverank_gpu import (
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    OutOfCorePrograms,
    OutOfCoreRanking,
    PersonalizedQuery,
    ShardedEngine,
    Solve,
    VertexProgram,
)
from tests.golden.record import Entry
from tests.golden.records import plain
from tests.golden.streams import Draw, Ids, Stream, graph_of

SECONDS = 10.0
"""Between two edges with times, at most, where a batch says nothing of it."""


def _own_place(vertex: Any, vertices: Any) -> Any:
    return (vertex + 1.0) / vertices


def _shared(source_value: Any, share: Any) -> Any:
    return source_value * share


def _drifted(old: Any, gathered: Any, keep: Any) -> Any:
    return keep * old + (1.0 - keep) * gathered


def _moved(old: Any, new: Any) -> Any:
    return abs(new - old) > 1e-4 * old


def _value_itself(value: Any) -> Any:
    return value


DRIFT = VertexProgram(
    "drift",
    "float64",
    0.0,
    initial=_own_place,
    gather=_shared,
    merge="sum",
    apply=_drifted,
    scatter=_moved,
    aggregate=_value_itself,
    aggregator="max",
    parameters={"keep": 0.25},
    every_vertex=True,
    supersteps=40,
)
"""A user's own program, whose values are sums of floats."""

_OWN = {"drift": DRIFT}


def parsed(step: str) -> tuple[str, list[str], dict[str, Any]]:
    """The verb, its arguments without names, and those with names: numbers where they look so."""
    verb, *words = step.split()
    given = {
        name: _value(text) for name, sep, text in (word.partition("=") for word in words) if sep
    }
    return verb, [word for word in words if "=" not in word], given


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class Edges:
    """What batches of a stream are drawn from: the ends of all edges so far, and the clock."""

    def __init__(self, name: str, stream: Stream) -> None:
        self._draw = Draw(name)
        self._weighted = bool(stream.options.get("weighted", "half_life" in stream.options))
        self._timed = "half_life" in stream.options or "window" in stream.options
        self.sources, self.targets = graph_of(stream, self._draw)
        self._loaded = False
        self.vertices = (
            int(max(self.sources.max(), self.targets.max())) + 1 if len(self.sources) else 0
        )
        self.now = 1_000_000.0
        self._removed = np.empty(0, np.int64)

    def load(self) -> dict[str, Any]:
        """The arguments of an EdgeBatch with all edges of the graph."""
        return self._columns(self.sources, self.targets, 100.0)

    def batch(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments of an EdgeBatch that is drawn."""
        draw, count = self._draw, given.get("insert", 0)
        limit = self.vertices + given.get("grow", 0)
        sources, targets = draw.below(limit, count), draw.skewed(limit, count)
        self.now += given.get("later", 0)
        present = draw.below(len(self.sources), count // 4)
        if len(self.sources):
            sources[: len(present)] = self.sources[present]
            targets[: len(present)] = self.targets[present]
        deleted = draw.below(len(self.sources), given.get("delete", 0))
        removed = np.unique(draw.below(self.vertices, given.get("remove", 0)))
        added = self._removed[: given.get("add", 0)]
        batch = self._columns(sources, targets, given.get("later", SECONDS))
        batch |= {
            "delete_sources": self.sources[deleted],
            "delete_targets": self.targets[deleted],
            "vertices": limit,
            "remove": removed,
            "add": added,
        }
        if "conflict" in given:
            batch["on_conflict"] = given["conflict"]
        self._removed = np.append(self._removed, removed)[len(added) :]
        self.sources = np.append(self.sources, sources)
        self.targets = np.append(self.targets, targets)
        self.vertices = limit
        return batch

    def _columns(self, sources: Ids, targets: Ids, span: float) -> dict[str, Any]:
        weights = self._draw.weights(len(sources)) if self._weighted else None
        times = None
        if self._timed:
            times = self.now - self._draw.below(1 << 20, len(sources)) * (span / 2**20)
        return {
            "insert_sources": sources,
            "insert_targets": targets,
            "vertices": self.vertices,
            "weights": weights,
            "times": times,
        }

    def seeds(self, count: int, ids: Ids) -> tuple[Ids, NDArray[np.float64] | None]:
        """Seeds among `ids`, and weights if there are several."""
        seeds = ids[self._draw.below(len(ids), count)]
        weights = self._draw.weights(count).astype(np.float64)
        return seeds, None if count == 1 else weights

    def among(self, count: int, ids: Ids) -> Ids:
        """Some of `ids`."""
        return ids[np.unique(self._draw.below(len(ids), count))]


def play_engine(name: str, stream: Stream, cluster: Callable[[], Any]) -> Iterator[Entry]:
    """A stream of one engine, or of shards. cluster: see liverank_gpu.Cluster."""
    options = Options(**stream.options)
    with ExitStack() as opened:

        def new() -> Any:
            if not stream.shards:
                return Engine(options, "cpu")
            engine = ShardedEngine(options, stream.shards, "cpu", cluster=cluster())
            return opened.enter_context(engine)

        yield from _Play(name, stream, new).steps()


class _Play:
    """A stream that runs on an engine, with or without shards."""

    def __init__(self, name: str, stream: Stream, new: Callable[[], Any]) -> None:
        self._stream, self._new, self._engine = stream, new, new()
        self._edges, self._watched = Edges(name, stream), list[str]()
        self._answers: dict[str, Any] = {}

    def steps(self) -> Iterator[Entry]:
        last = len(self._stream.steps) - 1
        for number, step in enumerate(self._stream.steps):
            verb, names, given = parsed(step)
            for label, value in getattr(self, f"_{verb}")(*names, **given):
                yield f"{number} {step}: {label}" if label else f"{number} {step}", value
            if number == last:
                yield from ((f"end: {label}", value) for label, value in self._end())

    def _ids(self) -> Ids:
        return np.setdiff1d(np.arange(self._engine.id_limit), self._engine.free_ids())

    def _load(self) -> Iterator[Entry]:
        yield "", self._engine.apply(EdgeBatch(**self._edges.load()))

    def _batch(self, **given: Any) -> Iterator[Entry]:
        yield "", self._engine.apply(EdgeBatch(**self._edges.batch(given)))

    def _parts(self, *sizes: str) -> Iterator[Entry]:
        parts = [
            self._edges.batch({"insert": int(size), "delete": int(size) // 3}) for size in sizes
        ]
        columns = (
            "insert_sources",
            "insert_targets",
            "delete_sources",
            "delete_targets",
            "weights",
        )
        joined: dict[str, Any] = {
            name: np.concatenate([part[name] for part in parts])
            for name in columns
            if parts[0][name] is not None
        }
        counts = [(len(part["insert_sources"]), len(part["delete_sources"])) for part in parts]
        done = self._engine.apply_coalesced(EdgeBatch(**joined), counts)
        yield "", done
        if done is None:
            for part in parts:
                yield "apart", self._engine.apply(EdgeBatch(**part))

    def _update(self, strategy: str, **given: Any) -> Iterator[Entry]:
        given["trace"] = bool(given.get("trace", True))
        result = self._engine.update(strategy, **given)
        yield "", result
        ranks = self._engine.publish()
        yield "ranks", ranks.to_numpy()
        vertices, values = ranks.top(10)
        yield "top", [vertices, values]
        if "settle" in given:
            yield "ties", ranks.ties_of(ranks.top(given["settle"])[0])
        if self._watched:
            self._engine.refresh_watched()
            for name in self._watched:
                try:
                    yield name, self._engine.watched(name)
                except liverank_gpu.UnknownVertex as error:
                    yield name, str(error)

    def _queries(self, count: int = 1, seeds: int = 0, among: int = 0, **given: Any) -> list[Any]:
        ids = self._ids()
        queries = []
        for number in range(count):
            chosen, weights = self._edges.seeds(seeds or 1 + number % 3, ids)
            some = self._edges.among(among, ids) if among else None
            asked = {**given, "trace": bool(given.get("trace", 0))}
            queries.append(PersonalizedQuery(chosen, weights, among=some, **asked))
        return queries

    def _personalized(self, **given: Any) -> Iterator[Entry]:
        answers = self._engine.personalized_many(self._queries(**given))
        yield from ((str(number), answer) for number, answer in enumerate(answers))

    def _watch(self, name: str, **given: Any) -> Iterator[Entry]:
        (query,) = self._queries(**given)
        self._engine.watch(name, query)
        self._watched.append(name)
        yield "", self._engine.watched(name)

    def _program(self, name: str, **given: Any) -> Iterator[Entry]:
        key = " ".join([name, *map(str, given.values())])
        after = self._answers.get(key)
        program = _OWN.get(name, name)
        answer = self._engine.run(program, after=after, **given)
        self._answers[key] = answer
        yield from _answer(answer)

    def _restore(self) -> Iterator[Entry]:
        arrays, numbers = self._snapshot()
        yield "numbers", dict(numbers)
        yield from ((f"array {name}", arrays[name]) for name in sorted(arrays))
        self._engine = self._new()
        self._engine.restore(liverank_gpu.Snapshot(arrays, numbers))
        self._watched.clear()
        self._answers.clear()

    def _snapshot(self) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
        captured = self._engine.capture(self._engine.staging_buffer())
        snapshot, pieces = captured.snapshot(), captured.pieces()
        lists = {name: np.concatenate([piece() for piece in pieces[name]]) for name in pieces}
        captured.release()
        return {**snapshot.arrays, **lists}, snapshot.numbers

    def _end(self) -> Iterator[Entry]:
        """The edges at the end, in an order of their own, and the ranks."""
        sources, targets = self._engine.edge_list()
        weights = self._engine.edge_weights()
        order = np.lexsort((targets, sources))
        yield "sources", sources[order]
        yield "targets", targets[order]
        yield "weights", weights[order]
        yield "counts", [self._engine.vertices, self._engine.edges]
        yield "ranks", self._engine.publish().to_numpy()


def _answer(answer: Any) -> Iterator[Entry]:
    """What a program computed."""
    yield "values", answer.values
    yield "summary", answer.summary
    if answer.edges is not None:
        yield "sources", answer.edges[0]
        yield "targets", answer.edges[1]
    receipt = plain(answer.receipt)
    if answer.receipt.mode == "asynchronous" or answer.receipt.program in ("cores", "trussness"):
        # values change in place: how soon others see that depends on the threads; the end does not
        del receipt["edges"], receipt["supersteps"]
    yield "receipt", receipt


# ---- out of core ----


def play_out_of_core(name: str, stream: Stream) -> Iterator[Entry]:
    """A stream of edges, with the least memory that works."""
    options, edges = Options(**stream.options), Edges(name, stream).load()

    def added(graph: Any) -> Any:
        sources, targets, weights = (
            edges[column] for column in ("insert_sources", "insert_targets", "weights")
        )
        for first in range(0, len(sources), 1000):
            part = slice(first, first + 1000)
            graph.add(sources[part], targets[part], None if weights is None else weights[part])
        return graph

    def rank(memory: int, strategy: str, trace: int = 0) -> Any:
        with OutOfCoreRanking(memory, options, "cpu") as graph:
            return added(graph).rank(0, Solve(strategy, trace=bool(trace)))

    def program(memory: int, program: str, **given: Any) -> Any:
        # its files are gone afterwards, which values of edges are mapped from
        with OutOfCorePrograms(memory, options, "cpu") as graph:
            found = added(graph).run(program, **given)
            return found, list(_answer(found.answer))

    for number, step in enumerate(stream.steps):
        verb, names, given = parsed(step)
        run: Callable[..., Any] = rank if verb == "rank" else program
        label = f"{number} {step}"
        # the least allows pairs of windows without end for the triangles of each edge
        more = 1 << 15 if names == ["trussness"] else 0
        found = run(_least(run, *names, **given) + more, *names, **given)
        if verb == "rank":
            yield label, {key: getattr(found, key) for key in _RANKED}
            yield f"{label}: ranks", found.ranks.to_numpy()
        else:
            streamed, entries = found
            yield label, {key: getattr(streamed, key) for key in _STREAMED}
            yield from ((f"{label}: {part}", value) for part, value in entries)


_RANKED = ("result", "edges", "windows", "passes", "bytes_loaded", "in_memory")
_STREAMED = ("edges", "windows", "processed", "bytes_loaded", "in_memory")


def _least(run: Callable[..., Any], *names: str, **given: Any) -> int:
    """The budget that the refusal of one byte names."""
    try:
        run(1, *names, **given)
    except InvalidValue as error:
        found = re.search(r"at least ([0-9,]+) bytes", str(error))
        assert found
        return int(found[1].replace(",", ""))
    raise AssertionError("one byte was enough")


# ---- over HTTP ----


_SECRET = ("keys-seed", "keys-slots")
"""Arrays of a checkpoint that depend on a secret of the graph, as does the order of its edges with
times.
"""


class _Served:
    """A graph of a server in this process, which keeps its data in a folder."""

    def __init__(self, name: str, stream: Stream, folder: Path) -> None:
        self._stream, self._edges, self._folder = stream, Edges(name, stream), folder
        self._stack = ExitStack()
        self._start()
        self._http.put("/graphs/golden", json=dict(stream.options)).raise_for_status()

    def _start(self) -> None:
        from tests.service.server import running

        self._http = self._stack.enter_context(running(self._folder)).http

    def close(self) -> None:
        self._stack.close()

    def steps(self) -> Iterator[Entry]:
        for number, step in enumerate(self._stream.steps):
            verb, names, given = parsed(step)
            for label, value in getattr(self, f"_{verb}")(*names, **given):
                yield f"{number} {step}: {label}" if label else f"{number} {step}", value

    def _ask(self, method: str, path: str, **given: Any) -> Any:
        answer = self._http.request(method, f"/graphs/golden{path}", timeout=120.0, **given)
        assert answer.is_success or answer.status_code == 404, answer.text
        return answer.json()

    def _key(self, vertex: Any) -> str:
        return f"v{vertex}"

    def _rows(self, batch: dict[str, Any], kind: str) -> list[list[Any]]:
        ends = (batch.get(f"{kind}_{end}", ()) for end in ("sources", "targets"))
        rows: list[list[Any]] = [
            [self._key(one) for one in pair] for pair in zip(*ends, strict=True)
        ]
        if kind == "insert":
            weights, times = batch["weights"], batch["times"]
            for place, row in enumerate(rows):
                if weights is not None or times is not None:
                    row.append(None if weights is None else float(weights[place]))
                if times is not None:
                    row.append(float(times[place]))
        return rows

    def _send(self, batch: dict[str, Any], **query: Any) -> Iterator[Entry]:
        body: dict[str, Any] = {kind: self._rows(batch, kind) for kind in ("insert", "delete")}
        removed = [self._key(one) for one in batch.get("remove", ())]
        body |= {"remove": removed} if removed else {}
        receipt = self._ask("POST", "/batches", params=query, json=body)
        yield "", receipt
        # by the clock of events, batches that delete what is too old now follow at once
        self._ask("GET", f"/neighbors/{self._key(self._edges.sources[0])}")
        for version in range(receipt["version"] + 1, receipt["version"] + 4):
            if (followed := self._ask("GET", f"/batches/{version}")).get("status") == 404:
                break
            while followed.get("status") == "pending":
                followed = self._ask("GET", f"/batches/{version}")
            yield f"batch {version}", followed

    def _load(self) -> Iterator[Entry]:
        yield from self._send(self._edges.load())

    def _batch(self, **given: Any) -> Iterator[Entry]:
        query = {name: given.pop(name) for name in ("strategy", "form", "trace") if name in given}
        yield from self._send(self._edges.batch(given), **query)

    def _recompute(self, strategy: str, **given: Any) -> Iterator[Entry]:
        yield "", self._ask("POST", "/recompute", params={"strategy": strategy, **given})

    def _keys(self) -> list[str]:
        return [self._key(one) for one in range(self._edges.vertices)]

    def _ranks(self) -> Iterator[Entry]:
        found = self._ask("POST", "/ranks", json={"vertices": self._keys()})
        ranks = found.pop("ranks")
        yield "", found
        yield "ranks", np.array([np.nan if each is None else each for each in ranks])

    def _top(self) -> Iterator[Entry]:
        yield "", self._ask("GET", "/top", params={"k": 12, "offset": 2})

    def _personalized(self) -> Iterator[Entry]:
        common = {"target_error": 1e-9, "unknown": "ignore"}
        queries = [{"seeds": {self._key(one): 1.0}, "k": 5, **common} for one in (1, 5, 9)]
        queries.append({"seeds": {"v2": 0.3, "v3": 0.5}, "k": 8, **common})
        body = {"queries": queries}
        yield "", self._ask("POST", "/personalized", json=body)

    def _set(self, name: str, count: str) -> Iterator[Entry]:
        vertices = self._edges.among(int(count), np.arange(self._edges.vertices))
        body = {"vertices": [self._key(one) for one in vertices]}
        yield "", self._ask("PUT", f"/sets/{name}", json=body)

    def _watch(self, name: str, seeds: int = 1, **given: Any) -> Iterator[Entry]:
        weights = {self._key(one): 0.5 + one for one in range(seeds)}
        yield "", self._ask("PUT", f"/watched/{name}", json={"seeds": weights, "k": 12, **given})

    def _watched(self, name: str) -> Iterator[Entry]:
        yield "", self._ask("GET", f"/watched/{name}")

    def _analysis(self, program: str) -> Iterator[Entry]:
        name = self._ask("POST", f"/analyses/{program}", json={})["id"]
        found = self._ask("GET", f"/analyses/{name}", params={"wait": 100.0})
        yield "", {key: found[key] for key in ("state", "version", "summary") if key in found}
        yield "top", self._ask("GET", f"/analyses/{name}/top", params={"k": 12})

    def _checkpoint(self) -> Iterator[Entry]:
        """Its files: which arrays there are, and what is in them."""
        done = self._ask("POST", "/checkpoint")
        yield "", {key: done[key] for key in ("version", "revision")}
        name = f"{done['version']}-{done['revision']}"
        (path,) = self._folder.rglob(f"checkpoints/{name}")
        manifest = json.loads((path / "manifest.json").read_text().split("\n", 1)[1])
        yield "format", manifest["format"]
        numbers = manifest["numbers"]
        yield "numbers", {key: numbers[key] for key in sorted(numbers) if key != "memory"}
        arrays = {
            array: np.fromfile(path / f"{array}.bin", stated["dtype"])
            for array, stated in sorted(manifest["arrays"].items())
            if array not in _SECRET
        }
        if "window-edges" in arrays:
            order = np.argsort(arrays["window-edges"], kind="stable")
            for array in ("window-edges", "window-times"):
                arrays[array] = arrays[array][order]
        yield from ((f"array {array}", values) for array, values in arrays.items())

    def _restart(self) -> Iterator[Entry]:
        self._stack.close()
        self._start()
        for _ in range(6000):
            if self._http.get("/graphs/golden").is_success:
                break
            time.sleep(0.01)
        found = self._ask("GET", "")
        yield "", {key: found[key] for key in ("version", "revision", "vertices", "edges")}


def play_service(name: str, stream: Stream) -> Iterator[Entry]:
    """A stream over HTTP."""
    with tempfile.TemporaryDirectory() as folder:
        served = _Served(name, stream, Path(folder))
        try:
            yield from served.steps()
        finally:
            served.close()


def play_generators() -> Iterator[Entry]:
    """The package's own generators of graphs, by one seed each."""
    from liverank_gpu import generate

    sources, targets = generate.rmat(9, 6, seed=5)
    yield "rmat: sources", sources
    yield "rmat: targets", targets
    for number, batch in enumerate(
        generate.update_stream(sources, targets, 2**9, size=50, batches=4, seed=5)
    ):
        yield (
            f"update_stream {number}",
            [
                batch.insert_sources,
                batch.insert_targets,
                batch.delete_sources,
                batch.delete_targets,
            ],
        )
    temporal = generate.temporal_stream(
        arrivals=20, edges_per_vertex=4, lifetime=3.0, batches=6, seed=5
    )
    for number, batch in enumerate(temporal):
        yield f"temporal_stream {number}", [batch.insert_targets, batch.delete_sources]
    yield "grid", list(generate.grid(9, 7, keep=0.8, seed=5))
    yield "uniform", list(generate.edge_list(generate.uniform(500, 2000, seed=5), "cpu"))
    yield "chains", list(generate.edge_list(generate.chains(500, seed=5), "cpu"))
    graph = generate.preferential_attachment(500, 3, probability=0.5, seed=5, backend="cpu")
    yield "preferential_attachment", list(graph.edge_list())
