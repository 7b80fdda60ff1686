"""The watched queries of one graph: what they are, kept in a file, and their answers, kept fresh.

GRAPH/watched.json  {"format": 1, "watched": {name: {"seeds": [[key, weight], …], "k", "method",
                    "target_error"}}}

The file is written aside, fsynced and renamed before a registration is answered. Only what was
asked is kept: after a restart each query is solved anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from gpu import Engine, Personalized
from gpu.watched import Registration
from service.errors import StorageFailed, UnknownVertex, UnknownWatched
from service.queries.model import KeyedQuery
from service.storage.files import storage_errors, sync_directory, write_synced
from service.vertex_keys.table import ARROW_TYPES, KeyTable

FILE = "watched.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Definition:
    """What is watched; weights belong to seeds, in order."""

    seeds: tuple[str | int, ...]
    weights: tuple[float, ...]
    k: int
    method: str
    target_error: float

    def keyed(self, kind: str) -> KeyedQuery:
        return KeyedQuery(
            pa.array(self.seeds, ARROW_TYPES[kind]),  # type: ignore[index]
            self.weights,
            self.k,
            self.method,
            self.target_error,
            place="",
        )


def definitions_in(path: Path) -> dict[str, Definition]:
    """The watched queries that the file lists, by name; none where it is missing.

    Raises StorageFailed.
    """
    if not path.exists():
        return {}
    try:
        with storage_errors(path):
            document = json.loads(path.read_text("utf-8"))
        if document["format"] != FORMAT:
            raise StorageFailed(
                path, f"has format {document['format']}; this version reads {FORMAT}"
            )
        return {
            name: Definition(
                tuple(key for key, _ in one["seeds"]),
                tuple(float(weight) for _, weight in one["seeds"]),
                one["k"],
                one["method"],
                one["target_error"],
            )
            for name, one in document["watched"].items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StorageFailed(path, f"lists no watched queries: {error!r}") from error


@dataclass(frozen=True, slots=True)
class WatchedAnswer:
    """As of one version; problem is set where the answer could not be brought up to date."""

    definition: Definition
    vertices: list[Any]
    answer: Personalized | None
    problem: Exception | None = None


class WatchedQueries:
    """Used on the pipeline's thread alone; `answers` is replaced, never changed."""

    def __init__(self, graph: str, directory: Path, engine: Engine, keys: KeyTable) -> None:
        """Reads the file and solves every query. Raises StorageFailed."""
        self._graph = graph
        self._path = directory / FILE
        self._engine = engine
        self._keys = keys
        self.answers: Mapping[str, WatchedAnswer] = {}
        self._definitions = definitions_in(self._path)
        self._without_seeds: dict[str, UnknownVertex] = {}
        for name in self._definitions:
            self._begin(name)
        self._look()

    def _begin(self, name: str) -> None:
        """Solves a query of the file. Its seeds were there when it was put; a batch that brought
        one may be among those that a damaged journal has lost, and may be sent again.
        """
        try:
            self._engine.watch(name, self._resolved(self._definitions[name]))
            self._without_seeds.pop(name, None)
        except UnknownVertex as error:
            self._without_seeds[name] = error

    def keep(self, definition: Definition, registration: Registration) -> bool:
        """Registers a query that is solved, or another one under its name; whether the name is new.

        Raises StorageFailed; then all is as it was.
        """
        name = registration.name
        new = name not in self._definitions
        self._write({**self._definitions, name: definition})
        self._engine.keep(registration)
        self._look(anew=name)
        return new

    def remove(self, name: str) -> None:
        """Raises UnknownWatched, StorageFailed."""
        if name not in self._definitions:
            raise UnknownWatched(self._graph, name)
        self._write({key: one for key, one in self._definitions.items() if key != name})
        self._engine.unwatch(name)
        self._without_seeds.pop(name, None)
        self._look()

    def refresh(self) -> None:
        """Brings the answers up to date with the engine."""
        if not self._definitions:
            return
        for name in list(self._without_seeds):
            self._begin(name)
        self._engine.refresh_watched()
        self._look()

    def _resolved(self, definition: Definition) -> Any:
        query = definition.keyed(self._keys.kind)
        return query.resolved(self._graph, self._keys, self._engine.vertices)

    def _look(self, anew: str | None = None) -> None:
        answers: dict[str, WatchedAnswer] = {}
        if anew is not None:
            self._without_seeds.pop(anew, None)
        for name, definition in self._definitions.items():
            if name in self._without_seeds:
                answers[name] = WatchedAnswer(definition, [], None, self._without_seeds[name])
                continue
            try:
                answer = self._engine.watched(name)
            except MemoryError as error:
                answers[name] = WatchedAnswer(definition, [], None, error)
                continue
            known = self.answers.get(name)
            same = known is not None and name != anew and answer.iterations == 0
            vertices = (
                known.vertices
                if same and known is not None and known.answer is not None
                else self._keys.keys(answer.vertices).to_pylist()
            )
            answers[name] = WatchedAnswer(definition, vertices, answer)
        self.answers = answers

    def _write(self, definitions: dict[str, Definition]) -> None:
        document = {
            "format": FORMAT,
            "watched": {
                name: {
                    "seeds": list(zip(one.seeds, one.weights, strict=True)),
                    "k": one.k,
                    "method": one.method,
                    "target_error": one.target_error,
                }
                for name, one in definitions.items()
            },
        }
        aside = self._path.with_suffix(".writing")
        with storage_errors(self._path):
            aside.unlink(missing_ok=True)
            write_synced(aside, json.dumps(document).encode())
            aside.rename(self._path)
            sync_directory(self._path.parent)
        self._definitions = definitions
