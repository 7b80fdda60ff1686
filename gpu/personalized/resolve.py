"""A query with its defaults filled in, checked against the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from gpu.errors import InvalidValue
from gpu.personalized.seeds import Seeds
from gpu.types import Options, PersonalizedQuery

Method = Literal["hybrid", "push", "pull"]
METHODS: tuple[Method, ...] = get_args(Method)
"""See gpu.personalized.query."""

Target = Literal["error", "settled-top-k"]
TARGETS: tuple[Target, ...] = get_args(Target)
"""When a query ends: its error bound is at most ``target_error``; or its first k places are
certified, at the latest then.
"""


@dataclass(frozen=True, slots=True)
class ResolvedQuery:
    """A personalized query whose seeds are known to the graph; see gpu.types.PersonalizedQuery."""

    seeds: Seeds
    k: int
    method: str
    target_error: float
    target: str

    @classmethod
    def of(cls, vertices: int, options: Options, query: PersonalizedQuery) -> ResolvedQuery:
        """Raises InvalidValue for what cannot be asked of a graph of this many vertices."""
        target_error = options.target_error if query.target_error is None else query.target_error
        if query.k < 1:
            raise InvalidValue("k", query.k, "at least 1")
        if query.method not in METHODS:
            raise InvalidValue("method", query.method, "one of " + ", ".join(METHODS))
        if not 0.0 < target_error <= 2.0:
            raise InvalidValue("target_error", target_error, "a number above 0 and at most 2")
        if query.target not in TARGETS:
            raise InvalidValue("target", query.target, "one of " + ", ".join(TARGETS))
        seeds = Seeds.of(vertices, query.seeds, query.weights)
        return cls(seeds, query.k, query.method, target_error, query.target)
