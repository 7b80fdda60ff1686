"""`liverank consume`: a stream of a message broker into a graph."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from liverank.choices import BrokerName
from liverank.options import BatchOptions
from liverank_service.cli.commands.options import Of, Server, grouped

app = typer.Typer(rich_markup_mode=None)

DEFAULT_URLS: dict[BrokerName, str] = {
    "redis": "redis://127.0.0.1:6379",
    "nats": "nats://127.0.0.1:4222",
    "kafka": "kafka://127.0.0.1:9092",
    "rabbitmq": "amqp://127.0.0.1:5672",
}


@dataclass(frozen=True)
class _Access:
    """How to reach the broker."""

    broker_url: Annotated[
        str | None,
        typer.Option(
            envvar="LIVERANK_SOURCE_URL",
            metavar="URL",
            help="The broker, without credentials. Default: its usual port of this machine.",
        ),
    ] = None
    credentials: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="File that contains USER:PASSWORD of the broker. Default: "
            "LIVERANK_SOURCE_CREDENTIALS.",
        ),
    ] = None
    source: Annotated[
        str | None,
        typer.Option(
            help="Name under which the server stores its position. Default: BROKER:PLACE."
        ),
    ] = None


@dataclass(frozen=True)
class _Messages:
    """What messages are, and how they become batches."""

    messages: Annotated[
        Literal["edge", "batch", "debezium"],
        typer.Option(help="What a message is: an edge, a batch, or a changed row of a table."),
    ] = "edge"
    source_column: Annotated[str, typer.Option(help="Of a row: the source.")] = "source"
    target_column: Annotated[str, typer.Option(help="Of a row: the target.")] = "target"
    weight_column: Annotated[str | None, typer.Option(help="Of a row: the weight.")] = None
    time_column: Annotated[str | None, typer.Option(help="Of a row: the time.")] = None
    dead_letter: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Where messages go that cannot be used, with the reason. Default: stop at one.",
        ),
    ] = None
    group_size: Annotated[int, typer.Option(min=1, help="Messages in a batch, at most.")] = 10_000
    linger: Annotated[
        float, typer.Option(min=0.001, max=60, help="Seconds until a smaller batch is sent.")
    ] = 0.05
    idle: Annotated[
        float | None,
        typer.Option(min=0.1, help="End after this many seconds without a message."),
    ] = None


@app.command()
@grouped
def consume(
    broker: Annotated[BrokerName, typer.Argument(help="The kind of broker.")],
    place: Annotated[str, typer.Argument(help="Its stream, subject, topic or queue.")],
    server: Server,
    access: _Access,
    messages: _Messages,
    sending: Annotated[dict[str, Any], Of(BatchOptions, only=("on_conflict",))],
) -> None:
    """Consumes a stream of a message broker into a graph.

    Each message counts once: it resumes at the position that the graph stores.

    RabbitMQ has no positions: there, each message counts at least once.
    """
    import logging

    from liverank.errors import needs
    from liverank_service import logs

    with needs("sources"):
        import faststream  # noqa: F401
    from liverank.sources.broker import Address, broker_log, credentials_of
    from liverank.sources.consumer import Target
    from liverank.sources.messages import Columns
    from liverank.sources.session import consume as run

    logs.set_up("text")
    broker_log.setLevel(logging.WARNING)  # FastStream tells of its tasks there
    name = f"{broker}:{place}" if access.source is None else access.source
    broker_url, login = (
        access.broker_url or DEFAULT_URLS[broker],
        credentials_of(access.credentials),
    )
    address = Address(
        broker_url, place, login, messages.dead_letter, messages.group_size, messages.linger
    )
    columns = Columns(
        messages.source_column,
        messages.target_column,
        messages.weight_column,
        messages.time_column,
    )
    target = Target(server.graph, name, messages.messages, columns=columns, **sending)
    count = run(server.url, broker, address, target, messages.idle)
    typer.echo(f"{count:,} messages consumed")
