"""The file of a graph's analyses.

GRAPH/analyses.json  {"format": 1, "analyses": {id: {"program", "parameters", "fresh", "created"}}}

It holds what was requested, without states and answers: after a restart an analysis is interrupted,
or runs again if it is kept fresh. It is replaced atomically (written to a temporary file, fsynced,
renamed).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from liverank_service.queries.analyses import Analysis
from liverank_service.storage.files import replace_file
from liverank_service.storage.json_file import read_validated

FILE = "analyses.json"
FORMAT = 1


class _StoredAnalysis(BaseModel):
    """An analysis in the file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    program: str
    parameters: dict[str, int | float | str]
    fresh: bool
    created: float


class _StoredAnalyses(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: int
    analyses: dict[str, _StoredAnalysis]


def read_analyses(path: Path) -> list[Analysis]:
    """The analyses in the file, in the order in which they were requested; none if it is missing.

    Raises FileDamaged, which names the first wrong field, and StorageFailed if the file cannot be
    read or has another format.
    """
    stored = read_validated(_StoredAnalyses, (FORMAT,), path, "a file of analyses")
    if stored is None:
        return []
    return [
        Analysis(
            identity,
            one.program,
            one.parameters,
            one.fresh,
            one.created,
            "queued" if one.fresh else "interrupted",
        )
        for identity, one in stored.analyses.items()
    ]


def write_analyses(path: Path, analyses: Iterable[Analysis]) -> None:
    """Replaces the file. Raises StorageFailed; it is then unchanged."""
    stored = {
        each.id: {
            "program": each.program,
            "parameters": dict(each.parameters),
            "fresh": each.fresh,
            "created": each.created,
        }
        for each in analyses
    }
    replace_file(path, json.dumps({"format": FORMAT, "analyses": stored}).encode())
