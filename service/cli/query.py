"""What `liverank ppr` asks a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from service.cli.errors import CommandError

if TYPE_CHECKING:
    from service.client.client import Client, Key, PersonalizedQuery


def personalized(
    client: Client,
    graph: str,
    vertices: Sequence[str],
    k: int,
    method: str,
    target_error: float | None,
    target: str | None,
) -> dict[str, Any]:
    """The answer for one vertex, whose key is taken as it is; or for several, with their weights
    behind the last ``=``. Raises CommandError for a weight that is no number.
    """
    if len(vertices) == 1:
        return dict(
            client.personalized(
                graph, vertices[0], k, method, target_error=target_error, target=target
            )
        )
    seeds: dict[Key, float] = {}
    for text in vertices:
        key, weight = _seed(text)
        seeds[key] = seeds.get(key, 0.0) + weight
    query: PersonalizedQuery = {"seeds": seeds, "k": k, "method": method}
    if target_error is not None:
        query["target_error"] = target_error
    if target is not None:
        query["target"] = target
    answers = client.personalized_many(graph, [query])
    (answer,) = answers["answers"]
    return {"version": answers["version"], "revision": answers["revision"], **answer}


def _seed(text: str) -> tuple[str, float]:
    key, separator, weight = text.rpartition("=")
    if not separator:
        return text, 1.0
    try:
        return key, float(weight)
    except ValueError:
        raise CommandError(f"{text}: the weight {weight!r} is not a number") from None
