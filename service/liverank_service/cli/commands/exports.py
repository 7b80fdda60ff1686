"""`liverank export`: all ranks or all edges of a server, to a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from liverank_service.cli import CommandError
from liverank_service.cli.commands.options import Json, RanksServer, grouped

if TYPE_CHECKING:
    from liverank.client.exports import Export, Exported

app = typer.Typer(rich_markup_mode=None)

EXPORT_FILES = (".csv", ".ndjson", ".arrow", ".parquet")

Format = Annotated[
    Literal["csv", "ndjson", "arrow", "parquet"] | None,
    typer.Option("--format", help="Format of the file; default: that of its suffix."),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="FILE",
        help="The file: .csv, .ndjson (also .gz, .zst, .bz2), .arrow (a stream), .parquet; - is "
        "stdout, as csv.",
    ),
]


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


@app.command()
@grouped
def export(
    *,
    table: Annotated[
        Literal["ranks", "edges"], typer.Argument(metavar="ranks|edges", help="What to export.")
    ],
    out: Out = Path("-"),
    format: Format = None,  # noqa: A002
    waited: _Waited,
    server: RanksServer,
    as_json: Json = False,
) -> None:
    """Exports the ranks of all vertices, or all edges.

    The server streams them while batches are applied. The ranks are all of one revision, the edges
    all of one version.

    \b
    Examples:
      liverank export ranks --out ranks.parquet
      liverank export edges --out edges.csv.zst --graph papers
      liverank export edges | sort | uniq -c
    """
    from liverank_service.cli import display
    from liverank_service.cli.table_files import STANDARD, check_path, form_of

    if as_json and out == STANDARD:
        raise CommandError("--json needs --out FILE: stdout has the table")
    if server.view is not None and table != "ranks":
        raise CommandError("--view needs ranks: views have no edges of their own")
    check_path(out, EXPORT_FILES, format)
    kind, compression = form_of(out, format)
    with server.client() as client:
        call: Any = client.export_ranks if table == "ranks" else client.export_edges
        wanted: Export = call(server.graph, format=kind[1:], **server.ranks, **vars(waited))
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
