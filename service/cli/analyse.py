"""Programs on the graph of an edge list, without a server: `liverank analyse`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from gpu import PROGRAMS, BackendName, Engine, Options
from service.cli.errors import CommandError
from service.cli.rank import apply_edges
from service.formats.edge_list import EdgeList
from service.queries.analyses import (
    AnalysisAnswer,
    checked_parameters,
    parameters_by_id,
)
from service.vertex_keys import KeyKind, VertexKeys, key_from_text


@dataclass(frozen=True)
class FileAnalyses:
    """What programs found in a file's graph.

    answers     in the order of the programs
    parameters  those of each program, defaults included
    duplicates, superseded  see service.cli.rank.Ranking
    """

    answers: Sequence[AnalysisAnswer]
    parameters: Mapping[str, Mapping[str, Any]]
    vertices: int
    edges: int
    duplicates: int
    superseded: int
    backend: str

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
                    "values": top["values"] or top["edges"],
                    **each.receipt,
                }
                for each in self.answers
                for top in [each.top(k, "largest")]
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
    kind: KeyKind = "integer" if pa.types.is_integer(edges.sources.type) else "string"
    values = dict(given)
    if "source" in values:
        values["source"] = key_from_text(values["source"], kind, "--source")
    parameters = {
        program: checked_parameters(
            program,
            {name: values[name] for name in values if name in PROGRAMS[program].parameters},
            kind,
            "--",
        )
        for program in programs
    }
    unused = values.keys() - {name for declared in parameters.values() for name in declared}
    if unused:
        raise CommandError(f"--{min(unused)} means nothing to {', '.join(programs)}")
    engine = Engine(replace(options, weighted=edges.weights is not None), backend)
    loaded = apply_edges(engine, edges)
    keys = VertexKeys(loaded.keys, len(loaded.keys))
    answers = []
    for program in programs:
        arguments = parameters_by_id(name, parameters[program], keys)
        answers.append(AnalysisAnswer.of(engine.run(program, **arguments), 0, keys))
    return FileAnalyses(
        answers,
        parameters,
        engine.vertices,
        engine.edges,
        loaded.change.already_present,
        loaded.superseded,
        engine.backend,
    )
