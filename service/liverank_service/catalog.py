"""The named graphs of one data directory: open, create, drop."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from liverank.choices import ConsumerState, Mode
from liverank.client.responses import SourceConsumer
from liverank_gpu import (
    PROGRAMS,
    BackendName,
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    VertexProgram,
    limit_device_memory,
)
from liverank_service.errors import (
    GraphExists,
    GraphStopped,
    InvalidField,
    NotReady,
    StorageFailed,
    TooManyGraphs,
    UnknownGraph,
)
from liverank_service.graph_options import (
    EXPECTED_NAME,
    NAME,
    GraphOptions,
    requested_options,
    stored_options,
)
from liverank_service.pipeline.analyses import Analyses, AnalysisLimits
from liverank_service.pipeline.batch import Observer
from liverank_service.pipeline.checkpointer import CheckpointLimits
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.pipeline.writer import QueueLimits
from liverank_service.process_limits import check_process_limits
from liverank_service.queries.analyses import Analysis, AnyProgram
from liverank_service.settings import Settings
from liverank_service.storage import checkpoint as checkpoints
from liverank_service.storage.graph_store import GraphStore, read_manifest
from liverank_service.storage.programs import ProgramStore, UserProgram, checked_program

log = logging.getLogger("liverank.catalog")

DEFAULT_GRAPH = "default"

_KINDS = Options(weighted=False), Options(weighted=True)
"""Of graphs: each has kernels of its own."""

CLOSE_SECONDS = 5.0


MAX_CONSUMERS = 1_000
"""Of one graph."""


class Consumers:
    """What the consumers of a graph's external sources have reported. These are processes of their
    own, so the server knows of them only this, in memory alone. Only for the event loop's thread.
    """

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], SourceConsumer] = {}

    @property
    def newest(self) -> list[SourceConsumer]:
        """Those that have not expired, by source and consumer."""
        now = time.time()
        self._newest = {key: one for key, one in self._newest.items() if one.expires > now}
        return sorted(self._newest.values(), key=lambda one: (one.source, one.consumer))

    def report(
        self, source: str, consumer: str, state: ConsumerState, reason: str | None, seconds: float
    ) -> None:
        """Replaces the report of this consumer for this many seconds, and those of others of the
        source that have stopped: it may have been started in their place. Raises InvalidField for
        one consumer too many.
        """
        key = source, consumer
        self._newest = {
            other: one
            for other, one in self._newest.items()
            if one.state != "stopped" or one.source != source or other == key
        }
        if key not in self._newest and len(self.newest) >= MAX_CONSUMERS:
            message = f"the graph has {MAX_CONSUMERS:,} consumers, which is the limit"
            raise InvalidField("consumer", None, consumer, message)
        now = time.time()
        before = self._newest.get(key)
        goes_on = before is not None and before.state == state and before.expires > now
        since = before.since if before is not None and goes_on else now
        found = SourceConsumer(source, consumer, state, reason, since, now + seconds)
        self._newest[key] = found


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph that is open."""

    name: str
    options: GraphOptions
    pipeline: Pipeline
    consumers: Consumers = field(default_factory=Consumers)

    @property
    def analyses(self) -> Analyses:
        """Raises NotReady while the graph is being recovered."""
        if (found := self.pipeline.analyses) is None:
            raise NotReady(f"graph {self.name!r} is being recovered")
        return found

    def all_analyses(self) -> list[Analysis]:
        """None are known while the graph is being recovered."""
        found = self.pipeline.analyses
        return [] if found is None else found.all()

    @property
    def memory(self) -> dict[str, int]:
        """Bytes held for the graph, by purpose: at the last publication, for analyses now."""
        found = self.pipeline.analyses
        return self.pipeline.view.memory | ({} if found is None else found.memory())


class Catalog:
    """Creates, opens and drops graphs. Any thread may call any method; most of them block.

    changes   the thread for requests that create and drop graphs or compile a program. They run one
              at a time, for minutes during a recovery; on the shared threads they would keep reads
              waiting
    programs  those of users
    """

    def __init__(
        self, settings: Settings, observe: Callable[[str], Observer] = lambda _: Observer()
    ) -> None:
        """observe: the observer of a graph, by name."""
        self._settings = settings
        self._observe = observe
        self._store = GraphStore(settings.data)
        self.programs = ProgramStore(settings.data, settings.programs)
        self._graphs: dict[str, Graph] = {}
        self._stopped: dict[str, tuple[Graph, GraphStopped]] = {}
        self._changing = threading.Lock()
        self.changes = ThreadPoolExecutor(1, "liverank-catalog")
        self._warm_programs: set[tuple[str, bool]] = set()
        self._not_ready: str | None = "starting"
        self._closing = False

    @property
    def not_ready(self) -> str | None:
        """Why no graph can be used yet; None once they can."""
        return self._not_ready

    def open(self) -> None:
        """Recovers every graph; afterwards the graph ``default`` exists. On a GPU, kernels are
        compiled or loaded first.

        A graph that is stopped by its own data is logged, and the others are served.

        If all graphs have checkpoints, they can be read earlier: `not_ready` is then None as soon
        as the checkpoints are mapped.

        Raises the error that prevented it; `not_ready` names it too.
        """
        began = perf_counter()
        seconds = {"mapping": 0.0, "kernels": 0.0, "recovery": 0.0}
        with self._changing:
            step = "reading the data directory"
            try:
                self._store.open()
                self.programs.open()
                if self._settings.device_memory is not None and not self._settings.shards:
                    step = "bounding the memory of the device"
                    limit_device_memory(self._settings.device_memory, self._settings.backend)
                cold = []
                directories = self._store.directories()
                check_process_limits(
                    len(directories),
                    sum(checkpoints.newest_bytes(path) for path in directories),
                    self._settings.max_connections,
                )
                for directory in directories:
                    step = f"recovering graph {directory.name!r}"
                    graph = self._graphs[directory.name] = self._open_graph(directory)
                    if not graph.pipeline.wait_until_mapped():
                        cold.append(graph.name)
                if not cold and DEFAULT_GRAPH in self._graphs:
                    self._not_ready = None
                seconds["mapping"] = perf_counter() - began
                step = "compiling kernels"
                self._report(step)
                self._warm_up()
                seconds["kernels"] = perf_counter() - began - seconds["mapping"]
                for graph in sorted(self._graphs.values(), key=lambda each: each.name not in cold):
                    step = f"recovering graph {graph.name!r}"
                    self._report(step)
                    try:
                        self._recover(graph)
                    except GraphStopped as error:
                        log.error("graph %r is not served: %s", graph.name, error)
                        del self._graphs[graph.name]
                        self._stopped[graph.name] = graph, error
                if DEFAULT_GRAPH not in self._graphs | self._stopped:
                    step = f"creating graph {DEFAULT_GRAPH!r}"
                    self._report(step)
                    self._create(DEFAULT_GRAPH, GraphOptions())
            except Exception as error:
                self._not_ready = f"{step} failed: {error}"
                raise
            self._not_ready = None
            seconds["recovery"] = perf_counter() - began - sum(seconds.values())
            log.info("ready", extra={"seconds": {k: round(v, 3) for k, v in seconds.items()}})

    def _report(self, step: str) -> None:
        if self._not_ready is not None:
            self._not_ready = step

    def close(self) -> None:
        """Closes every graph after the batches in progress, and releases the data directory.

        Does not wait for a recovery in progress: the next start repeats it.
        """
        self._closing = True
        self.changes.shutdown(wait=False, cancel_futures=True)
        if not self._changing.acquire(timeout=CLOSE_SECONDS):
            log.warning("stopped while %s", self._not_ready)
            return
        try:
            self._not_ready = "stopping"
            stopped = (graph for graph, _ in self._stopped.values())
            graphs, reason = (*self._graphs.values(), *stopped), NotReady(self._not_ready)
            for graph in graphs:  # at once, so that all wait for their workers at the same time
                graph.pipeline.end(reason)
            for graph in graphs:
                graph.pipeline.close(reason)
            self._graphs.clear()
            self._stopped.clear()
            self._store.close()
        finally:
            self._changing.release()

    def graphs(self) -> list[Graph]:
        """All graphs that are served, by name. Raises NotReady."""
        self.check_ready()
        return sorted(self._graphs.values(), key=lambda graph: graph.name)

    def stopped(self) -> dict[str, str]:
        """The graphs that are not served, or take no more batches, with the reasons, by name.

        Raises NotReady.
        """
        self.check_ready()
        found = {name: str(error) for name, (_, error) in list(self._stopped.items())}
        for graph in self.graphs():
            if (fault := graph.pipeline.fault) is not None:
                found[graph.name] = f"a fault ended its work; restart the server: {fault!r}"
        return dict(sorted(found.items()))

    def get(self, name: str) -> Graph:
        """Raises UnknownGraph, NotReady, GraphStopped."""
        self.check_ready()
        if (graph := self._graphs.get(name)) is not None:
            return graph
        if (stopped := self._stopped.get(name)) is not None:
            raise stopped[1].with_traceback(None)
        raise UnknownGraph(name)

    def create(self, name: str, given: Mapping[str, Any]) -> tuple[Graph, bool]:
        """The graph, and whether it is new. `given` options must match those of an existing graph.

        Raises InvalidValue for the name or an option, GraphExists, TooManyGraphs, NotReady,
        StorageFailed.
        """
        options = requested_options(name, given)
        self.check_ready()
        with self._changing:
            self.check_ready()
            if name in self._stopped:
                return self.get(name), False
            graph = self._graphs.get(name)
            if graph is None:
                if len(self._graphs) + len(self._stopped) >= self._settings.max_graphs:
                    raise TooManyGraphs(self._settings.max_graphs)
                log.info("creating graph %r", name)
                return self._create(name, options), True
        for option in given:
            value, present = getattr(options, option), getattr(graph.options, option)
            if value != present:
                raise GraphExists(name, option, value, present)
        return graph, False

    def drop(self, name: str) -> None:
        """Closes the graph and removes its files. Raises UnknownGraph, NotReady, StorageFailed; the
        graph is then closed, and may be dropped again.
        """
        self.check_ready()
        with self._changing:
            graph = self._stopped[name][0] if name in self._stopped else self.get(name)
            self._graphs.pop(name, None)
            self._stopped.pop(name, None)
            log.info("dropping graph %r", name)
            graph.pipeline.close(UnknownGraph(name))
            try:
                self._store.remove(name)
            except StorageFailed as error:
                reason = f"is closed, but its files could not be removed; drop it again: {error}"
                self._stopped[name] = graph, GraphStopped(f"graph {name!r}", reason)
                raise
            self._observe(name).dropped()

    def check_ready(self) -> None:
        """Raises NotReady."""
        if self._not_ready is not None:
            raise NotReady(self._not_ready)

    @property
    def _backend(self) -> BackendName:
        """Of what runs in this process."""
        return "cpu" if self._settings.shards else self._settings.backend

    def _create(self, name: str, options: GraphOptions) -> Graph:
        directory = self._store.create(name, msgspec.structs.asdict(options))
        try:
            graph = self._open_graph(directory)
            self._recover(graph)
        except Exception:
            self._store.discard(name)
            raise
        self._graphs[name] = graph
        return graph

    def _warm_up(self) -> None:
        """Compiles what batches and reads need of graphs of every kind, also of those to come: a
        server that is ready has nothing to compile.
        """
        for kernels in _KINDS:
            Engine(kernels, self._backend).warm_up()

    def warm_up_others(self) -> None:
        """Compiles what hardly any request needs."""
        try:
            for kernels in _KINDS:
                if not self._closing:
                    Engine(kernels, self._backend).warm_up_others()
            for each in self.programs.listed() if self.programs.allowed else ():
                self._compile_stored(each)
        except Exception:  # a request will compile it, or fail with a better message
            log.exception("not every kernel was compiled in advance")
        # What is loaded now is never garbage. A collection that visits it stops all reads.
        gc.freeze()

    def warm_up_program(self, graph: Graph, program: AnyProgram, mode: Mode) -> None:
        """Compiles a program for graphs of this kind, which would hold up batches later. Raises
        Unsupported for what does not run in shards, if the graph is in some.
        """
        graph.pipeline.shards.check_analysis(program, mode)
        self._compile(program, graph.options.weighted)

    def put_program(self, name: str, source: str) -> tuple[UserProgram, bool]:
        """Checks, compiles and stores a program; whether its name is new.

        Raises ProgramsOff, InvalidValue, ProgramRefused, BackendUnavailable, TooManyPrograms,
        StorageFailed, NotReady.
        """
        self.check_ready()
        self.programs.check_allowed()
        if NAME.fullmatch(name) is None:
            raise InvalidValue("name", name, EXPECTED_NAME)
        program = checked_program(name, source)
        self.programs.check_room(name)
        for kernels in _KINDS:
            self._compile(program, kernels.weighted)
        return self.programs.put(source, program)

    def _compile_stored(self, stored: UserProgram) -> None:
        try:
            for kernels in _KINDS:
                if stored.program is not None and not self._closing:
                    self._compile(stored.program, kernels.weighted)
        except Exception:  # the others may compile
            log.exception("program %r was not compiled in advance", stored.name)

    def _compile(self, program: AnyProgram, weighted: bool) -> None:
        own = program.name not in PROGRAMS
        engine = Engine(Options(weighted=weighted), self._backend)
        own_name = program.digest if isinstance(program, VertexProgram) else program.name
        kind = (own_name, weighted)
        if kind in self._warm_programs or not (own or engine.compiles_kernels):
            return
        engine.apply(EdgeBatch.of([(0, 1), (1, 2), (2, 0)]))
        given = {"source": 0} if "source" in program.parameters else {}
        run = engine.programs.begin(program, given=given)
        while not run.done:
            run.step(0.0)
            if own:  # it may never end
                break
        engine.programs.close(run)
        self._warm_programs.add(kind)

    def _recover(self, graph: Graph) -> None:
        graph.pipeline.recover()
        graph.pipeline.wait_until_open()

    def _open_graph(self, directory: Path) -> Graph:
        try:
            options = stored_options(read_manifest(directory))
        except (ValueError, TypeError) as error:
            raise StorageFailed(directory, f"has invalid options: {error}") from error
        settings = self._settings
        pipeline = Pipeline(
            directory.name,
            directory,
            options.engine_options(),
            options.keys,
            settings.backend,
            CheckpointLimits(settings.checkpoint_bytes, settings.checkpoint_seconds),
            QueueLimits(settings.max_queue_batches, settings.max_queue_bytes),
            self._observe(directory.name),
            options.window_options(settings.max_expiry_share, settings.expiry_hold_seconds),
            AnalysisLimits(
                settings.max_running_analyses,
                settings.max_analyses,
                settings.max_program_seconds,
                self.programs.named,
            ),
            settings.shards,
            settings.dask_cluster,
            settings.device_memory,
        )
        return Graph(directory.name, options, pipeline)
