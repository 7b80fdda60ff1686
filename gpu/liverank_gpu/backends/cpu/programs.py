"""Vertex programs on ``cpu``: their library, their supersteps, and those on windows."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import stat
import tempfile
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import liverank_gpu.native
from liverank_gpu.backends.compiling import own_folder, run_compiler
from liverank_gpu.backends.cpu.sweeps import chunk_rows
from liverank_gpu.errors import BackendUnavailable
from liverank_gpu.native import compiler, extension, kernels
from liverank_gpu.native.compiler import level
from liverank_gpu.operations import programs as op
from liverank_gpu.operations.csr import runs
from liverank_gpu.operations.device import Array

# The loops of vertex programs on ``cpu`` (gpu/liverank_gpu/native/programs.h), for one program
# each.
#
# Those of built-in programs are in the extension. Those of others are compiled at first use, into a
# library of their own:
#
# FOLDER/NAME-DIGEST.so    the library, and behind it the SHA-256 of what comes before
#
# DIGEST is that of the source, its headers, the compiler and its options. FOLDER is a cache that no
# other user can write, ``liverank`` in that of this user, or else a folder of this process. A file
# that is damaged is compiled again.

NATIVE = Path(liverank_gpu.native.__file__).parent
BEFORE = """#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wparentheses"
#include "programs.h"
"""
"""What comes before the structs of programs."""

HEADERS = [
    *sorted(NATIVE.glob("*.h")),
    *sorted((NATIVE.parent / "kernels").glob("*.h")),
    *(NATIVE / each for each in ("module.cpp", "pool.cpp")),
]
"""What the source of a library includes."""

_DIGEST_BYTES = hashlib.sha256().digest_size

_log = logging.getLogger("liverank.programs")
_found: dict[str, ProgramLoops] = {}
_compiling = threading.Lock()


class ProgramLoops:
    """The loops of one program, in the extension or in a library of their own."""

    def __init__(self, digest: str, module: Any) -> None:
        self._digest = digest
        self._module = module

    def __getattr__(self, loop: str) -> Any:
        found = getattr(self._module, f"{loop}_{self._digest}")
        self.__dict__[loop] = found
        return found


def loops_of(program: op.VertexProgram) -> ProgramLoops:
    """The loops of a program. Raises BackendUnavailable without a compiler, if it needs one."""
    digest = program.digest
    if digest not in _found and hasattr(kernels, f"initialise_{digest}"):
        _found[digest] = ProgramLoops(digest, kernels)
    if digest not in _found:
        with _compiling:
            if digest not in _found:
                module = extension(_library(program), f"program_{digest}")
                module.use_pool(kernels.pool())
                _found[digest] = ProgramLoops(digest, module)
    return _found[digest]


def program_struct(program: op.VertexProgram) -> str:
    """The program as programs.h wants it, and its kernels."""
    loops = ["initialise"]
    if program.every_vertex or program.aggregates:
        loops += ["aggregate"]
    loops += ["gather_all"] if program.every_vertex else ["gather"]
    if not program.every_vertex and not program.pulls:
        loops += ["send", "receive", *(["send_in_place"] if program.monotone else [])]
    if program.monotone:
        loops += ["supports"]
    if program.first_wins:
        loops += ["look"]
    lines = [
        f"struct program_{program.digest} {{",
        *op.definitions(program),
        f"static constexpr Value IDENTITY = {program.values.literal(program.identity)};",
        "};",
        " ".join(f"PROGRAM_KERNEL({program.digest}, {loop});" for loop in loops),
    ]
    return "\n".join(line.rstrip("\n") for line in lines) + "\n"


def library_source(program: op.VertexProgram) -> str:
    """The source of a library with the loops of one program."""
    own = '#define BORROWED_POOL\n#include "pool.cpp"\n#include "module.cpp"\n'
    return f"{BEFORE}{own}{program_struct(program)}"


def _library(program: op.VertexProgram) -> Path:
    """The library of a program, compiled if it is not there. Raises BackendUnavailable."""
    command, name = compiler.command(), f"program_{program.digest}"
    given = [*compiler.flags(command, name, level()), "-w", "-shared"]
    text = library_source(program)
    parts = [text, repr((command, given, platform.machine()))]
    parts += [each.read_text("utf-8") for each in HEADERS]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    folder = cache_folder()
    path = folder / f"{name}-{digest}.so"
    if _is_whole(path):
        return path
    if not command:
        reason = f"the program {program.name!r} has to be compiled, and there is no C++ compiler"
        raise BackendUnavailable(
            "cpu",
            f"{reason}: install g++ or clang, or pip install -e '.[programs]' in the clone of "
            "liverank",
        )
    _log.info("compiling the program %r, once", program.name)
    with tempfile.TemporaryDirectory(dir=folder, prefix="compiling-") as own:
        source, library = Path(own, f"{name}.cpp"), Path(own, f"{name}.so")
        source.write_text(text, "utf-8")
        # zig's own cache, as private as this one
        caches = {f"ZIG_{each}_CACHE_DIR": str(folder / "zig") for each in ("GLOBAL", "LOCAL")}
        what = f"the program {program.name!r}"
        asked = [*command, *given, f"-I{NATIVE}", str(source), "-o", str(library)]
        status, _, errors = run_compiler("cpu", what, asked, caches)
        if status:
            raise RuntimeError(f"{what} does not compile:\n{errors}")
        code = library.read_bytes()
        library.write_bytes(code + hashlib.sha256(code).digest())
        library.replace(path)
    return path


def _is_whole(path: Path) -> bool:
    try:
        content = path.read_bytes()
    except OSError:
        return False
    code, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    return hashlib.sha256(code).digest() == digest


def cache_folder() -> Path:
    """In $XDG_CACHE_HOME or ~/.cache, if no other user can write there; else one of this
    process.
    """
    try:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(caches) / "liverank" / "programs"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_private(folder) and os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        pass
    return own_folder()


def _is_private(folder: Path) -> bool:
    """Whether nobody but this user and root can change what is in it or replace it."""
    for each in (folder := folder.resolve(), *folder.parents):
        found = each.stat()
        others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # of a sticky folder others cannot rename what is not theirs
        if others_write and (each == folder or not found.st_mode & stat.S_ISVTX):
            return False
        if found.st_uid not in (0, os.geteuid()):
            return False
    return True


# ---- vertex programs on ``cpu`` ----

_NEXT = 0
"""The position of the vertices that are active next in the counts of a superstep."""

_NO_EDGE_VALUES = np.empty(0, np.uint8)

_LEAST_MESSAGES = 1 << 15
"""Messages of a superstep below which the calling thread sends all."""


@runs
def _initialise(do: op.InitialiseProgram) -> None:
    graph, state = do.graph, do.state
    counts = np.array([state.count, 0])
    loops_of(do.program).initialise(
        do.first,
        arguments_of_vertex(graph),
        graph.absent,
        packed_parameters(do.parameters, graph.vertices),
        state.values,
        state.active,
        counts,
    )
    state.count = int(counts[_NEXT])


@runs
def _run(do: op.RunProgram) -> None:
    if do.program.every_vertex:
        op.run_every_vertex(do, _gather, partial(_aggregated, do))
    elif do.program.pulls:
        do.state.aggregate = _aggregated(do, do.state.values)
    else:
        _run_active(do)


@runs
def _supports_any(do: op.SupportsAny) -> bool:
    given = packed_parameters(do.parameters, len(do.values))
    return bool(loops_of(do.program).supports(*do.edges, *do.ids, given, do.values))


def packed_parameters(parameters: Mapping[str, float], vertices: int) -> Array:
    """int64[…]: the number of vertices and the parameters, the bits of each."""
    return op.parameter_record(parameters, vertices).reshape(1).view(np.int64)


def arguments_of_vertex(graph: op.ProgramGraph) -> tuple[Array, Array, Array]:
    """Ids, degrees and in-degrees."""
    return graph.ids, graph.view.degree, graph.view.incoming.row_lengths


def _run_active(asked: op.RunProgram) -> None:
    graph, state, program = asked.graph, asked.state, asked.program
    loops, given = loops_of(program), packed_parameters(asked.parameters, graph.vertices)
    view, in_place = graph.view, asked.mode == "asynchronous"
    send = loops.send_in_place if in_place else loops.send
    accumulated = np.full(0 if in_place else view.vertices, program.identity, program.number_type)
    marks = np.zeros(view.vertices, np.int32)
    received, following = np.empty((2, view.vertices), np.int32)
    vertex, active = arguments_of_vertex(graph), state.active
    directions = (view.outgoing, view.incoming)[: 2 if graph.both else 1]
    looks = program.first_wins and state.fresh and not in_place
    for _ in range(asked.supersteps):
        if state.count == 0:
            break
        sending = active[: state.count]
        lengths = [lists.row_lengths[sending] for lists in directions]
        messages = [int(each.sum(dtype=np.int64)) for each in lengths]
        # so many edges leave the active vertices that looking for these is cheaper
        if looks and messages[0] * op.LOOKING_PART > view.edges:
            found = _look(loops, given, graph, sending, marks, state)
            following[: len(found)] = found
            active, following = following, active
            state.count = len(found)
            state.supersteps += 1
            continue
        counts = np.zeros(2, np.int64)
        if in_place:
            marks[sending] = 0  # a vertex whose value improves from here on is listed again
        arrays = (state.values, marks) if in_place else (state.values, accumulated, marks)
        listed = following if in_place else received
        state.edges += sum(messages)
        for lists, own_lengths, own_messages in zip(directions, lengths, messages, strict=True):
            groups = np.array([0, len(sending)])  # one group: the calling thread sends
            if own_messages + len(sending) >= _LEAST_MESSAGES:
                groups = chunk_rows(sending, own_lengths).groups
            send(groups, sending, lists, view.degree, given, *arrays, listed, counts)
        if not in_place:
            loops.receive(
                received,
                vertex,
                state.supersteps,
                given,
                *arrays,
                following,
                counts,
            )
        active, following = following, active
        state.count = int(counts[_NEXT])
        state.supersteps += 1
    state.active = active


def _look(
    loops: ProgramLoops,
    given: Array,
    graph: op.ProgramGraph,
    active: NDArray[np.int32],
    marks: NDArray[np.int32],
    state: op.ProgramState,
) -> NDArray[np.int32]:
    """A superstep of vertices that look for an active in-neighbour. Returns those that are active
    next.
    """
    rows, view = graph.in_rows, graph.view
    assert rows is not None
    marks[active] = 1
    count = len(rows.groups) - 1
    found = np.empty(rows.count + 2 * count, np.int32)
    chosen = (rows.groups, rows.order, view.incoming, view.degree)
    loops.look(*chosen, given, state.values, marks, found)
    marks[active] = 0
    listed, read = found[rows.count :].reshape(-1, 2).T
    state.edges += int(read.sum(dtype=np.int64))
    parts = zip(rows.groups[:-1].tolist(), listed.tolist(), strict=True)
    return np.concatenate([found[first : first + some] for first, some in parts])


def _aggregated(do: op.RunProgram, values: Array) -> float:
    """The aggregate of values, those of the groups in their order."""
    graph, rows, program = do.graph, do.graph.in_rows, do.program
    assert rows is not None
    total = op.AGGREGATE_IDENTITY[program.aggregator]
    combine = {"sum": np.add, "min": np.minimum, "max": np.maximum}[program.aggregator]
    aggregates = np.full(len(rows.groups) - 1, total)
    given = packed_parameters(do.parameters, graph.vertices)
    vertex = arguments_of_vertex(graph)
    loops_of(program).aggregate(
        rows.groups, rows.order, vertex, graph.absent, given, values, aggregates
    )
    for each in aggregates.tolist():
        total = float(combine(total, each))
    return total


@runs
def _gather(do: op.Gather) -> op.Gathered:
    graph, rows, view, state = do.graph, do.graph.in_rows, do.graph.view, do.state
    assert rows is not None
    arrays = (state.values, state.new_values, state.steps, state.new_steps, state.blocks)
    edge_values = _NO_EDGE_VALUES if state.edge_values is None else state.edge_values
    loops = loops_of(do.program)
    gather = loops.gather_all if do.program.every_vertex else loops.gather
    return op.Gathered(
        *gather(
            rows.groups,
            rows.order,
            view.incoming,
            view.outgoing,
            view.loop,
            arguments_of_vertex(graph),
            graph.absent,
            graph.both,
            packed_parameters(do.parameters, graph.vertices),
            (
                *(*arrays, state.shift, state.superstep, state.aggregate),
                *(edge_values, do.since, do.now),
            ),
        )
    )
