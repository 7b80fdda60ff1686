"""`liverank consume`: a stream of a message broker into a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from liverank.choices import BrokerName, OnConflict
from liverank_service.cli.commands.options import DEFAULT_URL, Graph, Url

app = typer.Typer(rich_markup_mode=None)

DEFAULT_URLS: dict[BrokerName, str] = {
    "redis": "redis://127.0.0.1:6379",
    "nats": "nats://127.0.0.1:4222",
    "kafka": "kafka://127.0.0.1:9092",
    "rabbitmq": "amqp://127.0.0.1:5672",
}


@app.command()
def consume(
    broker: Annotated[BrokerName, typer.Argument(help="The kind of broker.")],
    place: Annotated[str, typer.Argument(help="Its stream, subject, topic or queue.")],
    url: Url = DEFAULT_URL,
    graph: Graph = "default",
    broker_url: Annotated[
        str | None,
        typer.Option(
            envvar="LIVERANK_SOURCE_URL",
            metavar="URL",
            help="The broker, without credentials. Default: its usual port of this machine.",
        ),
    ] = None,
    credentials: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="File that contains USER:PASSWORD of the broker. Default: "
            "LIVERANK_SOURCE_CREDENTIALS.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            help="Name under which the server stores its position. Default: BROKER:PLACE."
        ),
    ] = None,
    messages: Annotated[
        Literal["edge", "batch", "debezium"],
        typer.Option(help="What a message is: an edge, a batch, or a changed row of a table."),
    ] = "edge",
    on_conflict: Annotated[
        OnConflict, typer.Option(help="What a weight does to that of a present edge.")
    ] = "replace",
    source_column: Annotated[str, typer.Option(help="Of a row: the source.")] = "source",
    target_column: Annotated[str, typer.Option(help="Of a row: the target.")] = "target",
    weight_column: Annotated[str | None, typer.Option(help="Of a row: the weight.")] = None,
    time_column: Annotated[str | None, typer.Option(help="Of a row: the time.")] = None,
    dead_letter: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Where messages go that cannot be used, with the reason. Default: stop at one.",
        ),
    ] = None,
    group_size: Annotated[int, typer.Option(min=1, help="Messages in a batch, at most.")] = 10_000,
    linger: Annotated[
        float, typer.Option(min=0.001, max=60, help="Seconds until a smaller batch is sent.")
    ] = 0.05,
    idle: Annotated[
        float | None,
        typer.Option(min=0.1, help="End after this many seconds without a message."),
    ] = None,
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
    name = f"{broker}:{place}" if source is None else source
    address = Address(
        broker_url or DEFAULT_URLS[broker],
        place,
        credentials_of(credentials),
        dead_letter,
        group_size,
        linger,
    )
    columns = Columns(source_column, target_column, weight_column, time_column)
    target = Target(graph, name, messages, on_conflict, columns)
    count = run(url, broker, address, target, idle)
    typer.echo(f"{count:,} messages consumed")
