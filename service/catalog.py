"""The named graphs of one data directory.

    DATA/lock                      held by the server that uses the directory
    DATA/graphs/<name>/graph.json  the manifest: format version and options
    DATA/graphs/<name>/journal.db  see service.storage.layout
    DATA/graphs/<name>/checkpoints see service.storage.checkpoint
    DATA/graphs/<name>/watched.json  see service.queries.watched
    DATA/graphs/.<anything>        a graph half created or half dropped; removed at the next start

A graph comes into being, and goes, by the rename of its whole directory: a crash leaves it whole
or not at all.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import shutil
import sqlite3
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from gpu import STRATEGIES, Engine, InvalidValue, Options
from gpu.types import BackendName, Dangling, Storage
from service.errors import GraphExists, NotReady, StorageFailed, TooManyGraphs, UnknownGraph
from service.pipeline.admission import QueueLimits
from service.pipeline.observer import Observer
from service.pipeline.pipeline import Pipeline
from service.settings import Settings
from service.storage.files import storage_failure, sync_directory
from service.storage.journal import Journal
from service.storage.lock import take_lock
from service.vertex_keys.table import KeyKind, KeyTable

log = logging.getLogger("liverank.catalog")

DEFAULT_GRAPH = "default"
MANIFEST_FORMAT = 1
CLOSE_SECONDS = 5.0

_ONE_KEY: dict[KeyKind, pa.Array] = {"string": pa.array(["a"]), "integer": pa.array([1])}

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class GraphOptions:
    """What is fixed when a graph is created.

    damping, dangling, target_error, storage  as in gpu.Options
    strategy                                  for batches that name none
    keys                                      ``string``: exact UTF-8 strings; ``integer``: signed
                                              64-bit
    """

    damping: float = 0.85
    dangling: Dangling = "uniform"
    strategy: str = "auto"
    target_error: float = 1e-6
    storage: Storage = "float64"
    keys: KeyKind = "string"

    def __post_init__(self) -> None:
        self.engine_options()
        check_strategy(self.strategy)
        if self.keys not in get_args(KeyKind):
            raise InvalidValue("keys", self.keys, "'string' or 'integer'")

    def engine_options(self) -> Options:
        return Options(
            damping=self.damping,
            dangling=self.dangling,
            target_error=self.target_error,
            storage=self.storage,
        )


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph that is open."""

    name: str
    options: GraphOptions
    pipeline: Pipeline


def check_strategy(strategy: str) -> None:
    """Raises InvalidValue, which lists the strategies there are."""
    if strategy not in STRATEGIES:
        raise InvalidValue("strategy", strategy, "one of " + ", ".join(STRATEGIES))


class Catalog:
    """Creates, opens and drops graphs. Any thread may call any method; most of them block.

    changing_thread  where requests wait that create and drop graphs: one at a time does, which
                     takes minutes beside a recovery, and the threads of reads must not wait with it
    """

    def __init__(
        self, settings: Settings, observe: Callable[[str], Observer] = lambda _: Observer()
    ) -> None:
        """`observe` gives the observer of a graph, by name."""
        self._settings = settings
        self._observe = observe
        self._directory = settings.data / "graphs"
        self._graphs: dict[str, Graph] = {}
        self._changing = threading.Lock()
        self.changing_thread = ThreadPoolExecutor(1, "liverank-catalog")
        self._aside = itertools.count()
        self._warm: set[Storage] = set()
        self._not_ready: str | None = "it starts"
        self._lock: int | None = None

    @property
    def not_ready(self) -> str | None:
        """Why no graph can be used yet; None once they can."""
        return self._not_ready

    def open(self) -> None:
        """Warms the kernels up and recovers every graph; afterwards the graph ``default`` exists.

        Graphs that have checkpoints can be read before: `not_ready` is None as soon as all can.

        Raises what stopped it; `not_ready` says so too.
        """
        with self._changing:
            doing = "the data directory is being read"
            try:
                self._take_directory()
                cold = []
                for directory in sorted(self._directory.iterdir()):
                    doing = f"graph {directory.name!r} is being recovered"
                    graph = self._graphs[directory.name] = self._open_graph(directory)
                    # while the pipeline's thread maps the checkpoint
                    warm_up_reading(graph.options.keys)
                    if not graph.pipeline.wait_until_readable():
                        cold.append(graph.name)
                if not cold and DEFAULT_GRAPH in self._graphs:
                    self._not_ready = None
                doing = "the kernels are being compiled"
                self._still(doing)
                warm_up_keys()
                self._warm_up(GraphOptions().storage)
                for graph in sorted(self._graphs.values(), key=lambda each: each.name not in cold):
                    doing = f"graph {graph.name!r} is being recovered"
                    self._still(doing)
                    self._recover(graph)
                if DEFAULT_GRAPH not in self._graphs:
                    doing = f"graph {DEFAULT_GRAPH!r} is being created"
                    self._still(doing)
                    self._create(DEFAULT_GRAPH, GraphOptions())
            except Exception as error:
                self._not_ready = f"{doing}, and that failed: {error}"
                raise
            self._not_ready = None

    def _still(self, doing: str) -> None:
        if self._not_ready is not None:
            self._not_ready = doing

    def close(self) -> None:
        """Ends every graph after the batches at work, and gives the directory free.

        A recovery that is under way is not waited for: the next start begins it anew.
        """
        self.changing_thread.shutdown(wait=False, cancel_futures=True)
        if not self._changing.acquire(timeout=CLOSE_SECONDS):
            log.warning("stopped while %s", self._not_ready)
            return
        try:
            self._not_ready = "it stops"
            for graph in self._graphs.values():
                graph.pipeline.close(NotReady(self._not_ready))
            self._graphs.clear()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None
        finally:
            self._changing.release()

    def graphs(self) -> list[Graph]:
        """All graphs, by name. Raises NotReady."""
        self._check_ready()
        return sorted(self._graphs.values(), key=lambda graph: graph.name)

    def get(self, name: str) -> Graph:
        """Raises UnknownGraph, NotReady."""
        self._check_ready()
        try:
            return self._graphs[name]
        except KeyError:
            raise UnknownGraph(name) from None

    def create(self, name: str, given: Mapping[str, Any]) -> tuple[Graph, bool]:
        """The graph, and whether it is new. `given` options must be those of a graph that exists.

        Raises InvalidValue for the name or an option, GraphExists, TooManyGraphs, NotReady,
        StorageFailed.
        """
        if NAME.fullmatch(name) is None:
            raise InvalidValue(
                "graph",
                name,
                "1 to 64 of the characters A-Z a-z 0-9 . _ - and begin with a letter or digit",
            )
        options = GraphOptions(**given)
        self._check_ready()
        with self._changing:
            self._check_ready()
            graph = self._graphs.get(name)
            if graph is None:
                if len(self._graphs) >= self._settings.max_graphs:
                    raise TooManyGraphs(self._settings.max_graphs)
                log.info("graph %r is created", name)
                return self._create(name, options), True
        for field, value in given.items():
            present = getattr(graph.options, field)
            if value != present:
                raise GraphExists(name, field, value, present)
        return graph, False

    def drop(self, name: str) -> None:
        """Ends the graph and removes its files. Raises UnknownGraph, NotReady, StorageFailed."""
        self._check_ready()
        with self._changing:
            graph = self.get(name)
            del self._graphs[name]
            log.info("graph %r is dropped", name)
            graph.pipeline.close(UnknownGraph(name))
            self._observe(name).dropped()
            self._remove(self._directory / name)

    def _check_ready(self) -> None:
        if self._not_ready is not None:
            raise NotReady(self._not_ready)

    def _take_directory(self) -> None:
        data = self._settings.data
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            sync_directory(data)
        except OSError as error:
            raise StorageFailed(data, error) from error
        self._lock = take_lock(data)
        for leftover in self._directory.glob(".*"):
            log.warning("%s is half created or half dropped: removed", leftover)
            shutil.rmtree(leftover)

    def _new_aside(self, prefix: str) -> Path:
        # One dropped before may still be there; those of an earlier run are gone since the start.
        return self._directory / f"{prefix}-{next(self._aside)}"

    def _create(self, name: str, options: GraphOptions) -> Graph:
        aside = self._new_aside(f".creating-{name}")
        directory = self._directory / name
        manifest = {"format": MANIFEST_FORMAT, "options": asdict(options)}
        try:
            aside.mkdir()
            Journal.create(aside / "journal.db")
            with open(aside / "graph.json", "x", encoding="utf-8") as file:
                json.dump(manifest, file, indent=2)
                file.flush()
                os.fsync(file.fileno())
            sync_directory(aside)
            aside.rename(directory)
            sync_directory(self._directory)
        except (OSError, sqlite3.Error) as error:
            shutil.rmtree(aside, ignore_errors=True)
            raise storage_failure(directory, error) from error
        try:
            graph = self._open_graph(directory)
            self._recover(graph)
        except Exception:
            self._remove(directory)
            raise
        self._graphs[name] = graph
        return graph

    def _remove(self, directory: Path) -> None:
        aside = self._new_aside(f".dropped-{directory.name}")
        try:
            directory.rename(aside)
            sync_directory(self._directory)
        except OSError as error:
            raise StorageFailed(directory, error) from error
        # Where this fails, the next start removes the rest.
        shutil.rmtree(aside, ignore_errors=True)

    def _warm_up(self, storage: Storage) -> None:
        """Compiles what graphs of this storage need: of the less usual one, when there is one."""
        if storage not in self._warm:
            warm_up(self._settings.backend, storage)
            self._warm.add(storage)

    def _recover(self, graph: Graph) -> None:
        self._warm_up(graph.options.storage)
        graph.pipeline.recover()
        graph.pipeline.wait_until_open()

    def _open_graph(self, directory: Path) -> Graph:
        options = _read_manifest(directory / "graph.json")
        pipeline = Pipeline(
            directory.name,
            directory,
            options.engine_options(),
            options.keys,
            self._settings.backend,
            self._settings.checkpoint_bytes,
            self._settings.checkpoint_seconds,
            QueueLimits(self._settings.max_queue_batches, self._settings.max_queue_bytes),
            self._observe(directory.name),
        )
        return Graph(directory.name, options, pipeline)


def warm_up(backend: BackendName, *storages: Storage) -> None:
    """Compiles what graphs of these storages need; of all of them unless any are named."""
    for storage in storages or get_args(Storage):
        Engine(Options(storage=storage), backend).warm_up()


def warm_up_reading(kind: KeyKind) -> None:
    """Compiles, or loads, what the first read of a graph would otherwise wait for."""
    table = KeyTable(kind)
    table.lookup(_ONE_KEY[kind])
    table.keys(np.empty(0, np.int64))


def warm_up_keys() -> None:
    """Compiles, or loads, all that key tables need."""
    for kind, key in _ONE_KEY.items():
        warm_up_reading(kind)
        table = KeyTable(kind)
        table.assign(key)
        table.truncate(0)


def _read_manifest(path: Path) -> GraphOptions:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["format"] != MANIFEST_FORMAT:
            raise StorageFailed(
                path, f"has format {manifest['format']}; this version reads {MANIFEST_FORMAT}"
            )
        return GraphOptions(**manifest["options"])
    except OSError as error:
        raise StorageFailed(path, error) from error
    except (ValueError, TypeError, KeyError) as error:
        raise StorageFailed(path, f"is no manifest of a graph: {error!r}") from error
