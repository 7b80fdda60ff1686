"""`liverank graphs`, `top`, `get`, `ppr` and `view`: queries to a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from liverank.options import PersonalizedQuery, ViewKeywords, ViewOptions, given
from liverank_service.cli import CommandError
from liverank_service.cli.commands.options import (
    DEFAULT_URL,
    Json,
    KeysCommand,
    Of,
    RanksFile,
    RanksServer,
    Server,
    Url,
    client_of,
    grouped,
    settled_target,
    weights_of,
)

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
VertexKey = Annotated[
    str, typer.Argument(metavar="VERTEX", help="The vertex's key; -5 is one too.")
]
Among = Annotated[
    str | None, typer.Option(metavar="SET", help="Show only the vertices of this named set.")
]
Within = Annotated[
    str | None,
    typer.Option(metavar="SET", help="Walk only between the vertices of this named set."),
]
ViewName = Annotated[str, typer.Argument(metavar="NAME", help="The view's name.")]


@app.command()
def graphs(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Lists the graphs of a server."""
    from liverank_service.cli import display

    with client_of(url) as client:
        listed = client.graphs()
    display.show(listed, display.graph_table(listed), as_json)


@dataclass(frozen=True)
class _TopServer(RanksServer):
    """The graph of a server, which of its ranks are read, and of which vertices."""

    among: Among = None

    @property
    def which(self) -> dict[str, Any]:
        return {**self.ranks, **given(among=self.among)}


@app.command()
@grouped
def top(
    *,
    k: Count = 10,
    offset: Annotated[int, typer.Option(min=0, help="Places to skip.")] = 0,
    server: _TopServer,
    watch: Annotated[
        bool, typer.Option("--watch", help="Print them again whenever they change, until Ctrl-C.")
    ] = False,
    output: RanksFile,
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

    if watch:
        if offset or output.out is not None or k > MAX_WATCHED:
            raise CommandError(
                f"--watch shows up to {MAX_WATCHED:,} places from the first, without --out"
            )
        from liverank_service.cli.watch import watch as follow

        with server.client() as client:
            follow(client, server.graph, k, server.which, as_json)
        return
    with server.client() as client:
        answer = client.top(server.graph, k, offset, **server.which)
    if output.write(answer.to_arrow):
        return
    if as_json:
        display.print_json(answer)
        return
    display.output().print(display.rank_table(answer.ranks, offset))
    for line in display.tie_lines(answer, offset):
        display.output().print(line)
    _print_provenance(answer.version, answer.error_bound)


@app.command(cls=KeysCommand)
@grouped
def get(
    vertex: VertexKey,
    server: RanksServer,
    as_json: Json = False,
) -> None:
    """Asks a server for the rank of a vertex."""
    from liverank_service.cli import display

    with server.client() as client:
        answer = client.rank(server.graph, vertex, **server.ranks)
    figures = [("vertex", display.printable(answer.vertex)), ("rank", f"{answer.rank:.8f}")]
    display.show(answer, figures, as_json)
    if not as_json:
        _print_provenance(answer.version, answer.error_bound)


@app.command(cls=KeysCommand)
@grouped
def explain(
    vertex: VertexKey,
    *,
    k: Count = 10,
    server: RanksServer,
    as_json: Json = False,
) -> None:
    """Asks a server which vertices give a vertex its rank."""
    from liverank_service.cli import display

    with server.client() as client:
        answer = client.explain(server.graph, vertex, k, **server.ranks)
    others = answer.degree - len(answer.contributions)
    parts = [
        *((display.printable(each.vertex), each.contribution) for each in answer.contributions),
        *([(f"{others:,} others", answer.rest)] if others else []),
        ("teleport", answer.teleport),
        ("rank", answer.rank),
    ]
    display.show(answer, ((name, f"{part:.8f}") for name, part in parts), as_json)
    if not as_json:
        _print_provenance(answer.version, answer.error_bound)


@dataclass(frozen=True)
class _Wanted:
    """What is to be proven, and of which vertices."""

    k: Count = 10
    settled: Annotated[
        bool, typer.Option("--settled", help="Stop as soon as the places are proven.")
    ] = False
    settled_set: Annotated[
        bool,
        typer.Option(
            "--settled-set",
            help="Stop as soon as it is proven which vertices have the places, in any order.",
        ),
    ] = False
    among: Among = None
    within: Within = None
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Leave out seeds that are no vertices.")
    ] = False


@app.command(cls=KeysCommand)
@grouped
def ppr(
    vertices: Annotated[
        list[str],
        typer.Argument(
            metavar="VERTEX[=WEIGHT]...",
            help="The keys of the seeds; with several, each may have a weight (default 1).",
        ),
    ],
    wanted: _Wanted,
    query: Annotated[
        dict[str, Any],
        Of(PersonalizedQuery, without=("seeds", "k", "target", "unknown", "among", "within")),
    ],
    server: Server,
    output: RanksFile,
    as_json: Json = False,
) -> None:
    """Asks a server for ranks as seen from a few vertices.

    This is personalized PageRank: the walk starts and restarts at these vertices.
    """
    from liverank_service.cli import display

    target = settled_target(wanted.settled, wanted.settled_set)
    query |= given(among=wanted.among, within=wanted.within, target=target)
    if wanted.ignore_unknown:
        query["unknown"] = "ignore"
    with server.client() as client:
        answer, version = _personalized(client, server.graph, vertices, wanted.k, query)
    if output.out is not None and answer.trace is not None:
        display.notices().print(display.trace_table(answer.trace))
    if output.write(answer.to_arrow):
        return
    if as_json:
        display.print_json({**version, **display.document_of(answer)})
        return
    display.output().print(display.rank_table(answer.ranks))
    for line in display.tie_lines(answer):
        display.output().print(line)
    if wanted.settled:
        display.output().print(f"proven places: {answer.settled:,} of {len(answer.ranks):,}")
    if wanted.settled_set:
        display.output().print(f"proven set: {'yes' if answer.settled_set else 'no'}")
    _print_unknown(answer.ignored)
    if answer.trace is not None:
        display.output().print(display.trace_table(answer.trace))
    _print_provenance(version["version"], answer.error_bound)


@dataclass(frozen=True)
class _Restarts:
    """Where the walks of a view restart."""

    vertices: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[VERTEX[=WEIGHT]]...",
            help="Where walks restart: vertices, each with a weight (default 1).",
        ),
    ] = None
    of_set: Annotated[
        str | None, typer.Option("--set", metavar="SET", help="Or the vertices of this set.")
    ] = None
    uniform: Annotated[bool, typer.Option("--uniform", help="Or all vertices alike.")] = False
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Leave out keys that are no vertices.")
    ] = False
    within: Within = None

    def __post_init__(self) -> None:
        if (self.of_set is not None) + self.uniform + bool(self.vertices) != 1:
            raise CommandError("expected vertices, --set or --uniform")

    @property
    def teleport(self) -> Any:
        if self.vertices:
            return {"weights": weights_of(self.vertices)}
        return "uniform" if self.uniform else {"set": self.of_set}


@view_app.command("put", cls=KeysCommand)
@grouped
def put_view(
    name: ViewName,
    restarts: _Restarts,
    options: Annotated[ViewKeywords, Of(ViewOptions, without=("teleport", "unknown", "within"))],
    server: Server,
    as_json: Json = False,
) -> None:
    """Has a server rank all vertices as seen from some, and keep that fresh.

    \b
    Examples:
      liverank view put trust ada=2 grace
      liverank view put trust --set experts --refresh read
      liverank view put distrust casino --direction reversed
      liverank view put team --uniform --within team
      liverank top --view trust
    """
    from liverank_service.cli import display

    if restarts.ignore_unknown:
        options["unknown"] = "ignore"
    if restarts.within is not None:
        options["within"] = restarts.within
    with server.client() as client:
        view = client.put_view(server.graph, name, restarts.teleport, **options)
    if as_json:
        display.print_json(view)
        return
    display.output().print(display.view_table([view]))
    _print_unknown(view.ignored)


@view_app.command("list")
@grouped
def list_views(*, server: Server, as_json: Json = False) -> None:
    """Lists the views of a graph."""
    from liverank_service.cli import display

    with server.client() as client:
        views = client.views(server.graph)
    display.show(views, display.view_table(views), as_json)


@view_app.command("remove")
@grouped
def remove_view(name: ViewName, server: Server) -> None:
    """Removes a view."""
    with server.client() as client:
        client.remove_view(server.graph, name)


def _personalized(
    client: Client, graph: str, vertices: Sequence[str], k: int, options: dict[str, Any]
) -> tuple[PersonalizedAnswer, dict[str, int]]:
    """The answer for one vertex, whose key is used unchanged, or for several, with their weights
    after the last ``=``; and its version and revision. Raises CommandError for a weight that is not
    a number.
    """
    if len(vertices) == 1:
        one = client.personalized(graph, vertices[0], k, **options)
        return one, {"version": one.version, "revision": one.revision}
    query = PersonalizedQuery(weights_of(vertices), k, **options)
    answers = client.personalized_many(graph, [query])
    return answers.answers[0], {"version": answers.version, "revision": answers.revision}


def _print_provenance(version: int, error_bound: float) -> None:
    from liverank_service.cli import display

    display.output().print(f"version {version:,}, error bound {error_bound:.1e}", style="dim")


def _print_unknown(ignored: Sequence[Key]) -> None:
    from liverank_service.cli import display

    if ignored:
        display.output().print(f"unknown: {', '.join(map(display.printable, ignored))}")
