"""NATS JetStream. A position is the sequence of a message in its stream."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from faststream.nats import JStream, NatsBroker, PullSub
from nats import errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NoStreamResponseError, NotFoundError, ServiceUnavailableError

from liverank.client.call import json_body
from liverank.sources.broker import (
    CONNECT_SECONDS,
    Address,
    Connection,
    ReadAhead,
    Refresh,
    Take,
    number_of,
)
from liverank.sources.consumer import CannotContinue, Interrupted, Letter
from liverank.sources.messages import Message

_INACTIVE_SECONDS = 300.0
"""After so long without a request the broker removes its consumer; by default 5 s, which a group
takes whose batch the server refuses for a while.
"""


class NatsSubject(Connection):
    name = "nats"
    refusals = (errors.AuthorizationError, errors.MaxPayloadError, NoStreamResponseError)
    failures = (errors.Error,)

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._jetstream: Any = None
        self._subscription: Any = None
        self._delivered = 0
        self._ahead = ReadAhead()

    def create(self) -> NatsBroker:
        return NatsBroker(
            self.address.url,
            # a session ends with its connection, and the next one resumes at the stored position
            allow_reconnect=False,
            max_reconnect_attempts=1,  # of the first connection too, by default for two minutes
            connect_timeout=CONNECT_SECONDS,
            **self.address.options,
        )

    async def open(self) -> None:
        with self.errors():
            self._jetstream = (await self.broker.connect()).jetstream()

    async def subscribe(
        self,
        positions: Mapping[str, str],
        take: Take,
        refresh: Refresh,  # noqa: ARG002
    ) -> None:
        read_to = number_of(positions.get("", "0"))
        with self.errors():
            stream = await self._stream("" in positions)
            await self._check(stream, read_to)

        async def messages(read_to: int, raw: Any) -> list[Message]:
            deliveries = [_delivery(one.reply) for one in raw]
            for number, _, _ in deliveries:
                self._delivered += 1
                if number != self._delivered:
                    raise Interrupted("nats: messages were lost on their way")
            # messages are removed from the oldest on
            with self.errors():
                await self._check(stream, read_to)
            return [
                Message(str(sequence), one.data, time)
                for one, (_, sequence, time) in zip(raw, deliveries, strict=True)
            ]

        async def handle(raw: Any) -> None:
            nonlocal read_to
            await self._ahead.take(lambda: take("", messages(read_to, raw)))
            _, read_to, _ = _delivery(raw[-1].reply)

        subscriber = self.broker.subscriber(
            self.address.place,
            stream=JStream(stream, declare=False),
            config=ConsumerConfig(
                ack_policy=AckPolicy.NONE,
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=read_to + 1,
                inactive_threshold=_INACTIVE_SECONDS,
            ),
            pull_sub=PullSub(batch_size=self.address.size, timeout=self.address.linger, batch=True),
        )
        subscriber(handle)
        with self.errors():
            await self.broker.start()
        self._subscription = subscriber.subscription
        _repair(self._subscription)

    async def _stream(self, was_read: bool) -> str:
        """The name of the stream that has the subject."""
        try:
            name: str = await self._jetstream.find_stream_name_by_subject(self.address.place)
        except NotFoundError:
            message = f"no stream has subject {self.address.place!r}"
            raise (CannotContinue if was_read else Interrupted)(f"nats: {message}") from None
        return name

    async def _check(self, stream: str, position: int) -> None:
        """Raises CannotContinue if messages after the position are gone. 0: it was not read."""
        if position == 0:
            return
        state = (await self._jetstream.stream_info(stream)).state
        if state.last_seq < position:
            raise CannotContinue(
                f"stream {stream!r} ends at {state.last_seq}, but was read to {position}"
            )
        if state.first_seq > position + 1:
            raise CannotContinue(
                f"stream {stream!r} begins at {state.first_seq}, after {position}, from which to "
                "continue: messages between them are lost"
            )

    async def ping(self) -> bool:
        """Raises Interrupted without the broker's consumer: requests to it would go unanswered."""
        with self.errors():
            try:
                await self._subscription.consumer_info()
            except NotFoundError:
                raise Interrupted("nats: the broker has removed its consumer") from None
        return True

    async def keep(self, letter: Letter) -> None:
        """In the stream that has the subject: without one, the letter would be lost."""
        with self.errors():
            await self._jetstream.publish(self.address.dead_letter, json_body(letter))

    async def close(self) -> None:
        self._ahead.cancel()
        await super().close()


def _repair(subscription: Any) -> None:
    """Mends the client's `fetch`.

    It may raise the TimeoutError of asyncio, while FastStream catches the client's own alone, and
    would drop the messages that it had collected. Without a connection it fails before it waits for
    anything, and FastStream repeats it at once, so that nothing else would run. And it waits for
    each message in a task of its own, also for those that have arrived, which takes longer than
    all the rest.
    """
    fetch, received = subscription.fetch, subscription._sub
    wait, queue = received.next_msg, received._pending_queue

    async def repaired(**options: Any) -> Any:
        try:
            return await fetch(**options)
        except (errors.ConnectionClosedError, ServiceUnavailableError):
            await asyncio.sleep(CONNECT_SECONDS)
            raise
        except TimeoutError as error:
            raise errors.TimeoutError from error

    async def next_message(timeout: float | None = 1.0) -> Any:
        if queue.empty():
            return await wait(timeout)
        message = queue.get_nowait()
        received._pending_size -= len(message.data)
        queue.task_done()
        return message

    subscription.fetch = repaired
    received.next_msg = next_message


def _delivery(reply: str) -> tuple[int, int, float]:
    """Which message of the consumer it is, its sequence in the stream, and its time.

    The subject of a reply is `$JS.ACK.(domain.account.)?stream.consumer.deliveries.sequence in the
    stream.sequence of the consumer.nanoseconds.pending`, and from version 2.2 on may have more.
    """
    fields = reply.split(".")
    sequence, number, time = fields[5:8] if len(fields) == 9 else fields[7:10]
    return int(number), int(sequence), int(time) / 1e9
