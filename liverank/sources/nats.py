"""NATS JetStream. A position is the sequence of a message in its stream."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from liverank.sources.broker import Address, Take, broker_log, decoded, parsed
from liverank.sources.consumer import CannotContinue, Interrupted, Letter, encoded
from liverank.sources.messages import Message

_CONNECT_SECONDS = 5


class NatsJetStream:
    name = "nats"
    has_positions = True

    def __init__(self, address: Address) -> None:
        self._address = address

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[_Connection]:
        from faststream.nats import NatsBroker

        broker = NatsBroker(
            self._address.url,
            security=self._address.security,
            # a session ends with its connection, and the next one resumes at the stored position
            allow_reconnect=False,
            connect_timeout=_CONNECT_SECONDS,
            parser=parsed,
            decoder=decoded,
            apply_types=False,
            logger=broker_log,
            log_level=logging.DEBUG,
        )
        try:
            async with _errors():
                client = await broker.connect()
                yield _Connection(self._address, broker, client.jetstream())
        finally:
            await broker.stop()


class _Connection:
    def __init__(self, address: Address, broker: Any, jetstream: Any) -> None:
        self._address = address
        self._broker = broker
        self._jetstream = jetstream
        self._delivered = 0

    async def subscribe(self, positions: Mapping[str, str], take: Take) -> None:
        from faststream.nats import JStream, PullSub
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        subject, address = self._address.place, self._address
        async with _errors():
            stream = await self._stream("" in positions)
            await self._check(stream, positions.get(""))
        config = ConsumerConfig(
            ack_policy=AckPolicy.NONE,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=int(positions.get("", "0")) + 1,
        )

        async def handle(raw: Any) -> None:
            async def messages() -> list[Message]:
                for message in raw:
                    self._delivered += 1
                    if message.metadata.sequence.consumer != self._delivered:
                        raise Interrupted("nats: messages were lost on their way")
                # messages are removed from the oldest on
                async with _errors():
                    await self._check(stream, positions.get(""))
                return [_message(one) for one in raw]

            await take("", messages())

        subscriber = self._broker.subscriber(
            subject,
            stream=JStream(stream, declare=False),
            config=config,
            pull_sub=PullSub(batch_size=address.size, timeout=address.linger, batch=True),
        )
        subscriber(handle)
        async with _errors():
            await self._broker.start()
        _repair(subscriber.subscription)

    async def _stream(self, was_read: bool) -> str:
        """The name of the stream that has the subject."""
        from nats.js.errors import NotFoundError

        try:
            name: str = await self._jetstream.find_stream_name_by_subject(self._address.place)
        except NotFoundError:
            message = f"no stream has subject {self._address.place!r}"
            raise (CannotContinue if was_read else Interrupted)(f"nats: {message}") from None
        return name

    async def _check(self, stream: str, position: str | None) -> None:
        """Raises CannotContinue if messages after the position are gone."""
        if position is None:
            return
        state = (await self._jetstream.stream_info(stream)).state
        if state.last_seq < int(position):
            raise CannotContinue(
                f"stream {stream!r} ends at {state.last_seq}, but was read to {position}"
            )
        if state.first_seq > int(position) + 1:
            raise CannotContinue(
                f"stream {stream!r} begins at {state.first_seq}, after {position}, from which to "
                "continue: messages between them are lost"
            )

    async def ping(self) -> bool:
        return bool(await self._broker.ping(timeout=1.0))

    async def keep(self, letter: Letter) -> None:
        """In the stream that has the subject: without one, the letter would be lost."""
        async with _errors():
            await self._jetstream.publish(self._address.dead_letter, encoded(letter))


def _repair(subscription: Any) -> None:
    """FastStream catches the client's own TimeoutError alone, though `fetch` may raise that of
    asyncio; it would drop the messages that it had collected.
    """
    from nats.errors import TimeoutError as ClientTimeout

    fetch = subscription.fetch

    async def repaired(**options: Any) -> Any:
        try:
            return await fetch(**options)
        except TimeoutError as error:
            raise ClientTimeout from error

    subscription.fetch = repaired


def _message(message: Any) -> Message:
    metadata = message.metadata
    return Message(str(metadata.sequence.stream), message.data, metadata.timestamp.timestamp())


@asynccontextmanager
async def _errors() -> AsyncIterator[None]:
    """Raises Interrupted where another attempt may succeed, else CannotContinue."""
    from nats import errors
    from nats.js.errors import NoStreamResponseError

    try:
        yield
    except (errors.AuthorizationError, errors.MaxPayloadError, NoStreamResponseError) as error:
        raise CannotContinue(f"nats: {error}") from error
    except (errors.Error, OSError, TimeoutError) as error:
        raise Interrupted(f"nats: {error!r}") from error
