"""`liverank export`: all ranks, all edges or the values of an analysis of a server, to a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from liverank.choices import ValuesOf
from liverank_service.cli import CommandError
from liverank_service.cli.commands.options import Json, RanksServer, grouped

if TYPE_CHECKING:
    from liverank.client.exports import Export, Exported

app = typer.Typer(rich_markup_mode=None)

EXPORT_FILES = (".csv", ".ndjson", ".arrow", ".parquet")


@dataclass(frozen=True)
class _File:
    """Where to, and as what."""

    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="The file: .csv, .ndjson (also .gz, .zst, .bz2), .arrow (a stream), .parquet; - "
            "is stdout, as csv.",
        ),
    ] = Path("-")
    format: Annotated[
        Literal["csv", "ndjson", "arrow", "parquet"] | None,
        typer.Option(help="Format of the file; default: that of its suffix."),
    ] = None


@dataclass(frozen=True)
class _Waited:
    """What the server waits for."""

    min_version: Annotated[
        int | None, typer.Option(min=0, help="Wait until this version is ranked (edges: applied).")
    ] = None
    min_position: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE:PARTITION:POSITION",
            help="Wait until the messages of a source up to this position are ranked. Repeatable.",
        ),
    ] = None


@dataclass(frozen=True)
class _Values:
    """Which values."""

    analysis: Annotated[
        str | None, typer.Option(metavar="ID", help="Of values: the id of the analysis.")
    ] = None
    of: Annotated[
        ValuesOf | None,
        typer.Option(
            metavar="vertices|edges",
            help="Of values: whose, of a user's program that has both; default: of vertices.",
        ),
    ] = None


@app.command()
@grouped
def export(
    *,
    table: Annotated[
        Literal["ranks", "edges", "values"],
        typer.Argument(metavar="ranks|edges|values", help="What to export."),
    ],
    file: _File,
    values: _Values,
    waited: _Waited,
    server: RanksServer,
    as_json: Json = False,
) -> None:
    """Exports all ranks, all edges, or the values of an analysis.

    The server streams them while batches are applied. The ranks are all of one revision, the edges
    and the values all of one version.

    \b
    Examples:
      liverank export ranks --out ranks.parquet
      liverank export edges --out edges.csv.zst --graph papers
      liverank export edges | sort | uniq -c
      liverank export values --analysis 5f2c8a9e01d3b764 --of edges --out values.parquet
    """
    from liverank_service.cli import display
    from liverank_service.cli.table_files import STANDARD, check_path, form_of

    out = file.out
    if as_json and out == STANDARD:
        raise CommandError("--json needs --out FILE: stdout has the table")
    if server.view is not None and table != "ranks":
        raise CommandError("--view needs ranks: views have no edges of their own")
    which = [f"--{name}" for name, value in vars(values).items() if value is not None]
    if which and table != "values":
        raise CommandError(f"{which[0]} needs values, not {table}")
    if table == "values" and values.analysis is None:
        raise CommandError("values needs --analysis ID, as `GET /graphs/GRAPH/analyses` lists them")
    if table == "values" and (waited.min_version or waited.min_position):
        raise CommandError("values are of the version of the analysis: leave out --min-version")
    check_path(out, EXPORT_FILES, file.format)
    kind, compression = form_of(out, file.format)
    with server.client() as client:
        call: Any = getattr(client, f"export_{table}")
        given: dict[str, Any] = {**server.ranks, **vars(waited)}
        if table == "values":
            given = {"identity": values.analysis, "of": values.of}
        wanted: Export = call(server.graph, format=kind[1:], **given)
        exported = _saved(wanted, out, compression)
    if out == STANDARD:
        return
    if as_json:
        display.print_json({"file": str(out), **display.document_of(exported)})
        return
    display.output().print(f"{out}: {table} of version {exported.version:,}")


def _saved(export: Export, out: Path, compression: str | None) -> Exported:
    from liverank_service.cli import display
    from liverank_service.cli.table_files import written

    with (
        written(out, compression) as stream,
        display.byte_progress("export") as advance,
    ):

        class Counted:
            def write(self, piece: bytes) -> int:
                stream.write(piece)
                advance(len(piece))
                return len(piece)

        return export.save(Counted())  # type: ignore[arg-type]
