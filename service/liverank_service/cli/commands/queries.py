"""`liverank graphs`, `top`, `get`, `ppr` and `view`: queries to a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from liverank.choices import Form as FormName
from liverank.choices import Method
from liverank_service.cli.commands.options import (
    DEFAULT_URL,
    Format,
    Graph,
    Json,
    KeysCommand,
    RanksOut,
    Trace,
    Url,
    check_ranks_out,
    client_of,
    settled_target,
    write_ranks,
)
from liverank_service.cli.errors import CommandError

if TYPE_CHECKING:
    from liverank.client import Client, Key
    from liverank.client.responses import PersonalizedAnswer

app = typer.Typer(rich_markup_mode=None)
view_app = typer.Typer(
    help="Views: ranks of all vertices as seen from some, kept fresh.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(view_app, name="view")

MAX_WATCHED = 5000
"""The most places that the change feed has."""

Count = Annotated[int, typer.Option("--k", "-k", min=1, help="Number of places.")]
View = Annotated[
    str | None, typer.Option(help="Name of a view: its ranks in place of the graph's.")
]
ViewName = Annotated[str, typer.Argument(metavar="NAME", help="The view's name.")]


@app.command()
def graphs(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Lists the graphs of a server."""
    from liverank_service.cli import display

    with client_of(url) as client:
        listed = client.graphs()
    if as_json:
        display.print_json(listed)
        return
    display.output().print(display.graph_table(listed))


@app.command()
def top(
    k: Count = 10,
    offset: Annotated[int, typer.Option(min=0, help="Places to skip.")] = 0,
    view: View = None,
    graph: Graph = "default",
    url: Url = DEFAULT_URL,
    watch: Annotated[
        bool, typer.Option("--watch", help="Print them again whenever they change, until Ctrl-C.")
    ] = False,
    out: RanksOut = None,
    format: Format = None,  # noqa: A002
    as_json: Json = False,
) -> None:
    """Asks a server for the vertices of highest rank.

    \b
    Examples:
      liverank top -k 20 --graph papers
      liverank top --watch
      liverank top -k 100000 --out top.parquet
    """
    from liverank_service.cli import display

    check_ranks_out(out, format)
    if watch:
        if offset or view is not None or out is not None or k > MAX_WATCHED:
            raise CommandError(
                f"--watch shows up to {MAX_WATCHED:,} places from the first, without --out and "
                "--view"
            )
        from liverank_service.cli.watch import watch as follow

        with client_of(url) as client:
            follow(client, graph, k, as_json)
        return
    with client_of(url) as client:
        answer = client.top(graph, k, offset, view=view)
    if write_ranks(out, format, answer):
        return
    if as_json:
        display.print_json(answer)
        return
    display.output().print(display.rank_table(answer.ranks, offset))
    for line in display.tie_lines(answer, offset):
        display.output().print(line)
    _print_provenance(answer.version, answer.error_bound)


@app.command(cls=KeysCommand)
def get(
    vertex: Annotated[
        str, typer.Argument(metavar="VERTEX", help="The vertex's key; -5 is one too.")
    ],
    view: View = None,
    graph: Graph = "default",
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Asks a server for the rank of a vertex."""
    from liverank_service.cli import display

    with client_of(url) as client:
        answer = client.rank(graph, vertex, view=view)
    if as_json:
        display.print_json(answer)
        return
    display.output().print(
        display.figures(
            [("vertex", display.printable(answer.vertex)), ("rank", f"{answer.rank:.8f}")]
        )
    )
    _print_provenance(answer.version, answer.error_bound)


@app.command(cls=KeysCommand)
def explain(
    vertex: Annotated[
        str, typer.Argument(metavar="VERTEX", help="The vertex's key; -5 is one too.")
    ],
    k: Count = 10,
    graph: Graph = "default",
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Asks a server which vertices give a vertex its rank."""
    from liverank_service.cli import display

    with client_of(url) as client:
        answer = client.explain(graph, vertex, k)
    if as_json:
        display.print_json(answer)
        return
    others = answer.degree - len(answer.contributions)
    parts = [
        *((display.printable(each.vertex), each.contribution) for each in answer.contributions),
        *([(f"{others:,} others", answer.rest)] if others else []),
        ("teleport", answer.teleport),
        ("rank", answer.rank),
    ]
    display.output().print(display.figures((name, f"{part:.8f}") for name, part in parts))
    _print_provenance(answer.version, answer.error_bound)


@app.command(cls=KeysCommand)
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
        Method,
        typer.Option(help="How to solve; pushopt: with --form published."),
    ] = "hybrid",
    form: Annotated[
        FormName,
        typer.Option(help="published: by published algorithms, to compare with."),
    ] = "accelerated",
    target_error: Annotated[
        float | None, typer.Option(help="L1 error to reach; default: the graph's.")
    ] = None,
    settled: Annotated[
        bool, typer.Option("--settled", help="Stop as soon as the places are proven.")
    ] = False,
    settled_set: Annotated[
        bool,
        typer.Option(
            "--settled-set",
            help="Stop as soon as it is proven which vertices have the places, in any order.",
        ),
    ] = False,
    damping: Annotated[float | None, typer.Option(help="Default: the graph's.")] = None,
    among: Annotated[
        str | None, typer.Option(metavar="SET", help="Show only the vertices of this named set.")
    ] = None,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Leave out seeds that are no vertices.")
    ] = False,
    zeros: Annotated[
        bool, typer.Option("--zeros", help="Show vertices of rank 0 too, up to K.")
    ] = False,
    trace: Trace = False,
    graph: Graph = "default",
    url: Url = DEFAULT_URL,
    out: RanksOut = None,
    format: Format = None,  # noqa: A002
    as_json: Json = False,
) -> None:
    """Asks a server for ranks as seen from a few vertices.

    This is personalized PageRank: the walk starts and restarts at these vertices.
    """
    from liverank_service.cli import display

    check_ranks_out(out, format)
    options: dict[str, Any] = {
        "method": method,
        "target_error": target_error,
        "target": settled_target(settled, settled_set) or "error",
        "unknown": "ignore" if ignore_unknown else "error",
        "damping": damping,
        "among": among,
        "form": form,
        "trace": trace,
        "zeros": zeros,
    }
    with client_of(url) as client:
        answer, version = _personalized(client, graph, vertices, k, options)
    if out is not None and answer.trace is not None:
        display.notices().print(display.trace_table(answer.trace))
    if write_ranks(out, format, answer):
        return
    if as_json:
        display.print_json({**version, **display.document_of(answer)})
        return
    display.output().print(display.rank_table(answer.ranks))
    for line in display.tie_lines(answer):
        display.output().print(line)
    if settled:
        display.output().print(f"proven places: {answer.settled:,} of {len(answer.ranks):,}")
    if settled_set:
        display.output().print(f"proven set: {'yes' if answer.settled_set else 'no'}")
    if answer.ignored:
        unknown = ", ".join(display.printable(key) for key in answer.ignored)
        display.output().print(f"unknown: {unknown}")
    if answer.trace is not None:
        display.output().print(display.trace_table(answer.trace))
    _print_provenance(version["version"], answer.error_bound)


@view_app.command("put", cls=KeysCommand)
def put_view(
    name: ViewName,
    vertices: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[VERTEX[=WEIGHT]]...",
            help="Where walks restart: vertices, each with a weight (default 1).",
        ),
    ] = None,
    of_set: Annotated[
        str | None, typer.Option("--set", metavar="SET", help="Or the vertices of this set.")
    ] = None,
    uniform: Annotated[bool, typer.Option("--uniform", help="Or all vertices alike.")] = False,
    damping: Annotated[float | None, typer.Option(help="Default: the graph's.")] = None,
    target_error: Annotated[
        float | None, typer.Option(help="L1 error to reach; default: the graph's.")
    ] = None,
    refresh: Annotated[
        str,
        typer.Option(
            metavar="batch|read|SECONDS",
            help="When to solve it if its error bound has passed the target.",
        ),
    ] = "batch",
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Leave out keys that are no vertices.")
    ] = False,
    graph: Graph = "default",
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Has a server rank all vertices as seen from some, and keep that fresh.

    \b
    Examples:
      liverank view put trust ada=2 grace
      liverank view put trust --set experts --refresh read
      liverank top --view trust
    """
    from liverank_service.cli import display

    if (of_set is not None) + uniform + bool(vertices) != 1:
        raise CommandError("expected vertices, --set or --uniform")
    teleport: Any = "uniform" if uniform else {"set": of_set}
    if vertices:
        weights: dict[str, float] = {}
        for text in vertices:
            key, weight = _seed(text)
            weights[key] = weights.get(key, 0.0) + weight
        teleport = {"weights": weights}
    with client_of(url) as client:
        view = client.put_view(
            graph,
            name,
            teleport,
            damping=damping,
            target_error=target_error,
            refresh=_refresh(refresh),
            unknown="ignore" if ignore_unknown else "error",
        )
    if as_json:
        display.print_json(view)
        return
    display.output().print(display.view_table([view]))
    if view.ignored:
        unknown = ", ".join(display.printable(key) for key in view.ignored)
        display.output().print(f"unknown: {unknown}")


def _refresh(text: str) -> Any:
    """A word, or seconds; the server checks both."""
    try:
        return float(text)
    except ValueError:
        return text


@view_app.command("list")
def list_views(graph: Graph = "default", url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Lists the views of a graph."""
    from liverank_service.cli import display

    with client_of(url) as client:
        views = client.views(graph)
    if as_json:
        display.print_json(views)
        return
    display.output().print(display.view_table(views))


@view_app.command("remove")
def remove_view(name: ViewName, graph: Graph = "default", url: Url = DEFAULT_URL) -> None:
    """Removes a view."""
    with client_of(url) as client:
        client.remove_view(graph, name)


def _personalized(
    client: Client, graph: str, vertices: Sequence[str], k: int, options: dict[str, Any]
) -> tuple[PersonalizedAnswer, dict[str, int]]:
    """The answer for one vertex, whose key is used unchanged, or for several, with their weights
    after the last ``=``; and its version and revision. Raises CommandError for a weight that is not
    a number.
    """
    from liverank.client import PersonalizedQuery

    if len(vertices) == 1:
        one = client.personalized(graph, vertices[0], k, **options)
        return one, {"version": one.version, "revision": one.revision}
    seeds: dict[Key, float] = {}
    for text in vertices:
        key, weight = _seed(text)
        seeds[key] = seeds.get(key, 0.0) + weight
    query = PersonalizedQuery(seeds, k, **options)
    answers = client.personalized_many(graph, [query])
    return answers.answers[0], {"version": answers.version, "revision": answers.revision}


def _seed(text: str) -> tuple[str, float]:
    key, separator, weight = text.rpartition("=")
    if not separator:
        return text, 1.0
    try:
        return key, float(weight)
    except ValueError:
        raise CommandError(f"{text}: the weight {weight!r} is not a number") from None


def _print_provenance(version: int, error_bound: float) -> None:
    from liverank_service.cli import display

    display.output().print(f"version {version:,}, error bound {error_bound:.1e}", style="dim")
