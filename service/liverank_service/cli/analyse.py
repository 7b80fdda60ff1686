"""Programs on the graph of an edge list or a file, without a server: `liverank analyse`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from liverank.choices import KeyKind
from liverank_gpu import PROGRAMS, BackendName, Engine, Options, OutOfCorePrograms
from liverank_service.cli import CommandError
from liverank_service.cli.rank import Streaming, loaded_edges, loaded_file
from liverank_service.formats.edge_list import EdgeList, WantedColumns
from liverank_service.queries.analyses import (
    AnalysisAnswer,
    built_in,
    checked_parameters,
    parameters_by_id,
    tie_order,
)
from liverank_service.vertex_keys import VertexKeys, key_from_text, kind_of


@dataclass(frozen=True)
class FileAnalyses:
    """What programs found in a file's graph.

    answers     in the order of the programs
    parameters  those of each program, defaults included
    duplicates, superseded, unused_columns  see liverank_service.cli.rank.Ranking
    streaming   of each program, how edges were streamed; empty if all of them were in memory
    """

    answers: Sequence[AnalysisAnswer]
    parameters: Mapping[str, Mapping[str, Any]]
    vertices: int
    edges: int
    duplicates: int
    superseded: int
    backend: str
    unused_columns: tuple[str, ...] = ()
    streaming: Mapping[str, Streaming] = field(default_factory=dict)

    def document(self, k: int) -> dict[str, Any]:
        """The figures as JSON. The numbers of the programs' summaries are its members too; of those
        with the same name, that of the last program.
        """
        summaries = {each.program: _integral(each.summary) for each in self.answers}
        return {
            "vertices": self.vertices,
            "edges": self.edges,
            "duplicates": self.duplicates,
            "superseded": self.superseded,
            "backend": self.backend,
            **{name: n for summary in summaries.values() for name, n in summary.items()},
            "programs": {
                each.program: {
                    "parameters": dict(self.parameters[each.program]),
                    "summary": summaries[each.program],
                    "values": each.top(k, "largest").to_pylist(),
                    **each.receipt,
                    **({"streaming": self.streaming[each.program]} if self.streaming else {}),
                }
                for each in self.answers
            },
        }


def _integral(summary: Mapping[str, float]) -> dict[str, float]:
    """Whole numbers as integers."""
    return {name: int(n) if n == int(n) else n for name, n in summary.items()}


def analyse_edges(
    edges: EdgeList,
    name: str,
    programs: Sequence[str],
    given: Mapping[str, Any],
    options: Options,
    backend: BackendName,
) -> FileAnalyses:
    """Runs programs on the graph of the edge list, after all its operations.

    name   of the graph, in errors
    given  parameters; each program takes those that it has. `source` is a key as text

    Raises EngineError, UnknownVertex, CommandError for parameters that no program has.
    """
    parameters = _parameters(programs, given, kind_of(edges.sources))
    engine = Engine(replace(options, weighted=edges.weights is not None), backend)
    loaded = loaded_edges(edges, engine.options)
    change = engine.apply(loaded.batch)
    keys = VertexKeys(loaded.keys, len(loaded.keys))
    answers = []
    for program in programs:
        arguments = parameters_by_id(name, parameters[program], keys)
        order = tie_order(built_in(program), keys)
        answer = engine.programs.run(program, given=arguments, order=order)
        answers.append(AnalysisAnswer.of(answer, 0, keys))
    return FileAnalyses(
        answers,
        parameters,
        engine.vertices,
        engine.edges,
        change.already_present,
        loaded.superseded,
        engine.backend,
    )


def check_source(programs: Sequence[str], given: Mapping[str, Any]) -> None:
    """Raises CommandError if a program needs a source and none is given."""
    for program in programs:
        if "source" in PROGRAMS[program].parameters and "source" not in given:
            raise CommandError(f"{program} needs --source, the vertex from which paths begin")


def _parameters(
    programs: Sequence[str], given: Mapping[str, Any], kind: KeyKind
) -> dict[str, dict[str, Any]]:
    """All parameters of each program. Raises InvalidValue, CommandError."""
    values = dict(given)
    if "source" in values:
        values["source"] = key_from_text(values["source"], kind, "--source")
    parameters = {
        program: checked_parameters(
            built_in(program),
            {name: values[name] for name in values if name in PROGRAMS[program].parameters},
            kind,
            "--",
        )
        for program in programs
    }
    unused = values.keys() - {name for declared in parameters.values() for name in declared}
    if unused:
        raise CommandError(f"--{min(unused)} means nothing to {', '.join(programs)}")
    return parameters


def analyse_file(
    path: Path,
    wanted: WantedColumns,
    memory: int,
    scratch: Path | None,
    programs: Sequence[str],
    given: Mapping[str, Any],
    options: Options,
    backend: BackendName,
) -> FileAnalyses:
    """Runs programs on the graph of an edge file whose edges are not held in memory.

    wanted   the column of weights
    given    parameters, as in `analyse_edges`
    memory, scratch  see liverank_service.cli.rank.rank_file

    Raises EngineError, UnknownVertex, CommandError, EdgeListError, OSError.
    """
    for program in programs:
        OutOfCorePrograms.named(program)
    options = replace(options, weighted=wanted.weight is not None)
    loaded = loaded_file(path, wanted, lambda: OutOfCorePrograms(memory, options, backend, scratch))
    with loaded as (graph, table, unread, _):
        parameters = _parameters(programs, given, table.kind)
        keys = VertexKeys(table, len(table))
        graph.vertices = len(table)
        found = {}
        answers = []
        for program in programs:
            arguments = parameters_by_id(path.name, parameters[program], keys)
            graph.order = order = tie_order(built_in(program), keys)
            graph.reserved = table.nbytes() + (0 if order is None else order.nbytes)
            found[program] = each = graph.run(program, **arguments)
            answers.append(AnalysisAnswer.of(each.answer, 0, keys))
        edges = max((each.edges for each in found.values()), default=0)
        return FileAnalyses(
            answers,
            parameters,
            len(table),
            edges,
            graph.added - edges,
            0,
            graph.backend.name,
            unread,
            {
                name: Streaming(
                    memory, each.windows, each.answer.receipt.supersteps, each.bytes_loaded
                )
                for name, each in found.items()
            },
        )
