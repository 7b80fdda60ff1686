"""`liverank top`, `get` and `ppr`: queries to a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from service.cli.commands.options import DEFAULT_URL, Graph, Json, Url, client_of
from service.cli.errors import CommandError

if TYPE_CHECKING:
    from liverank.client import Client, Key, PersonalizedQuery

app = typer.Typer(rich_markup_mode=None)

Count = Annotated[int, typer.Option("--k", "-k", min=1, help="Number of places.")]


@app.command()
def top(
    k: Count = 10,
    offset: Annotated[int, typer.Option(min=0, help="Places to skip.")] = 0,
    graph: Graph = "default",
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Asks a server for the vertices of highest rank."""
    from service.cli import display

    with client_of(url) as client:
        answer = client.top(graph, k, offset)
    if as_json:
        display.print_json(answer)
        return
    display.output().print(display.rank_table(answer["ranks"], offset))
    _print_provenance(answer)


@app.command()
def get(
    vertex: Annotated[str, typer.Argument(metavar="VERTEX", help="The vertex's key.")],
    graph: Graph = "default",
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Asks a server for the rank of a vertex."""
    from service.cli import display

    with client_of(url) as client:
        answer = client.rank(graph, vertex)
    if as_json:
        display.print_json(answer)
        return
    display.output().print(
        display.figures(
            [("vertex", display.printable(answer["vertex"])), ("rank", f"{answer['rank']:.8f}")]
        )
    )
    _print_provenance(answer)


@app.command()
def ppr(
    vertices: Annotated[
        list[str],
        typer.Argument(
            metavar="VERTEX[=WEIGHT]...",
            help="The keys of the seeds; with several, each may have a weight (default 1).",
        ),
    ],
    k: Count = 10,
    method: Annotated[
        Literal["hybrid", "push", "pull"], typer.Option(help="How to solve.")
    ] = "hybrid",
    target_error: Annotated[
        float | None, typer.Option(help="L1 error to reach; default: the graph's.")
    ] = None,
    settled: Annotated[
        bool, typer.Option("--settled", help="Stop as soon as the places are proven.")
    ] = False,
    graph: Graph = "default",
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Asks a server for personalized PageRank: the ranks as seen from a few vertices."""
    from service.cli import display

    target = "settled-top-k" if settled else None
    with client_of(url) as client:
        answer = _personalized(client, graph, vertices, k, method, target_error, target)
    if as_json:
        display.print_json(answer)
        return
    display.output().print(display.rank_table(answer["ranks"]))
    _print_provenance(answer)


def _personalized(
    client: Client,
    graph: str,
    vertices: Sequence[str],
    k: int,
    method: str,
    target_error: float | None,
    target: str | None,
) -> dict[str, Any]:
    """The answer for one vertex, whose key is used unchanged, or for several, with their weights
    after the last ``=``. Raises CommandError for a weight that is not a number.
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


def _print_provenance(answer: Any) -> None:
    from service.cli import display

    display.output().print(
        f"version {answer['version']:,}, error bound {answer['error_bound']:.1e}", style="dim"
    )
