"""Groups of messages to batches of a graph, each message once."""

from __future__ import annotations

import base64
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tenacity

from liverank.choices import OnConflict
from liverank.client import AsyncClient, Receipt, ServerError, ServerUnreachable, SourceRange
from liverank.client.arrow import ARROW_STREAM
from liverank.client.batches import new_key
from liverank.client.call import JSON, Call, decoder, path_of
from liverank.client.responses import GraphOptions
from liverank.client.sources import range_query
from liverank.errors import ClientError, LiverankError
from liverank.options import given
from liverank.sources.messages import (
    Columns,
    Form,
    InvalidMessage,
    Message,
    Reader,
)
from liverank.sources.settling import loses_newest_time, settled

log = logging.getLogger("liverank.consume")

SERVER_PAUSES = tenacity.wait_exponential(multiplier=0.5, max=30)

LETTER_BYTES = 128 * 1024
"""Of a message in a dead letter; in JSON they fit the 1 MiB that NATS and Kafka accept."""

_REASON_CHARACTERS = 1_000
_ARROW_START = b"\xff\xff\xff\xff"
_OF_THE_CONSUMER = {"source", "partition", "from", "to", "on_conflict"}
"""Parameters of a batch: a refusal of one says nothing about the messages."""


class Interrupted(LiverankError):
    """The broker or the server is away, or another consumer is running: start again later."""


class CannotContinue(LiverankError):
    """Nothing but a person can resolve it."""


class _Refused(Exception):
    """The server refuses the messages of a batch, for this reason."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is done with the messages.

    source  the name of the source; None for a broker without positions
    """

    graph: str
    source: str | None
    form: Form = "edge"
    on_conflict: OnConflict = "replace"
    columns: Columns = field(default_factory=Columns)


Letter = dict[str, Any]


class Consumer:
    """One connection to a broker; another one begins where the server has the source.

    positions    by partition; changed as batches are committed
    waits_for    why the server does not take the current batch for now; None: it does
    dead_letter  keeps a message that cannot be used; None: consumption stops
    """

    def __init__(
        self,
        client: AsyncClient,
        target: Target,
        options: GraphOptions,
        positions: dict[str, str],
        dead_letter: Callable[[Letter], Awaitable[None]] | None,
    ) -> None:
        """Raises CannotContinue if the graph does not fit."""
        if target.on_conflict == "add" and not options.weighted:
            raise CannotContinue(f"on_conflict add: graph {target.graph!r} has no weights")
        self.positions = positions
        self.waits_for: str | None = None
        self._client = client
        self._target = target
        self._directed = options.directed
        # nothing else depends on the newest time, and splitting costs a request for each part
        self._by_event = options.window is not None and options.clock == "event"
        self._dead_letter = dead_letter
        self._reader = None
        if target.form != "batch":
            adds = target.on_conflict == "add"
            self._reader = Reader(target.form, options, target.columns, adds)

    async def take(self, partition: str, messages: Sequence[Message]) -> None:
        """Applies the messages, which follow the position of the partition.

        Raises Interrupted and CannotContinue; the messages after the position are then to be taken
        again.
        """
        if self._reader is None:
            for message in messages:
                await self._take_batch(partition, message)
        else:
            await self._take_edges(self._reader, partition, messages, messages[-1].position)

    async def _take_batch(self, partition: str, message: Message) -> None:
        kind = ARROW_STREAM if message.body.startswith(_ARROW_START) else JSON
        try:
            await self._send(partition, message.body, kind, message.position)
        except _Refused as refusal:
            await self._keep(partition, message, str(refusal))
            await self._send(partition, b"{}", JSON, message.position)

    async def _take_edges(
        self, reader: Reader, partition: str, messages: Sequence[Message], end: str
    ) -> None:
        """Moves the partition to `end`; splits what the server refuses until it is one message, and
        what cannot be one batch.
        """
        try:
            changes = reader.read_all(messages)
        except InvalidMessage:
            valid = [each for each in messages if await self._is_valid(reader, partition, each)]
            changes, messages = reader.read_all(valid), valid
        if len(messages) > 1 and self._by_event and loses_newest_time(changes, self._directed):
            # behind the newest time, so that only a shorter rest may have to be split again
            count = max(len(messages) // 2, 1 + _newest(reader, messages))
            await self._take_parts(reader, partition, messages, count, end)
            return
        body = settled(changes, self._target.on_conflict, self._directed)
        if body is None:
            await self._take_parts(reader, partition, messages, len(messages) // 2, end)
            return
        try:
            await self._send(partition, body, JSON, end)
        except _Refused as refusal:
            if len(messages) > 1:
                await self._take_parts(reader, partition, messages, len(messages) // 2, end)
                return
            if not messages:
                raise CannotContinue(f"the server refuses an empty batch: {refusal}") from None
            await self._keep(partition, messages[0], str(refusal))
            await self._send(partition, b"{}", JSON, end)

    async def _take_parts(
        self, reader: Reader, partition: str, messages: Sequence[Message], count: int, end: str
    ) -> None:
        """Takes the first `count` messages, then the others."""
        first, second = messages[:count], messages[count:]
        await self._take_edges(reader, partition, first, first[-1].position)
        await self._take_edges(reader, partition, second, end)

    async def _is_valid(self, reader: Reader, partition: str, message: Message) -> bool:
        """Passes on a message that is not."""
        try:
            reader.read(message)
        except InvalidMessage as error:
            await self._keep(partition, message, str(error))
            return False
        return True

    async def _send(self, partition: str, body: bytes, kind: str, end: str) -> None:
        """Raises _Refused, Interrupted and CannotContinue."""
        target = self._target
        messages = None
        if target.source is not None:
            messages = SourceRange(target.source, end, self.positions.get(partition), partition)
        elif body == b"{}":
            return
        on_conflict = None if target.on_conflict == "replace" else target.on_conflict
        call = Call(
            method="POST",
            path=path_of("graphs", target.graph, "batches"),
            query=given(on_conflict=on_conflict) | range_query(messages),
            body=body,
            headers={"Content-Type": kind, "Idempotency-Key": new_key()},
            parse=decoder(Receipt),
            retried=False,  # the attempts below note what they wait for
        )
        attempts = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(_is_away),
            wait=SERVER_PAUSES,
            before_sleep=self._wait,
            reraise=True,
        )
        try:
            # the same key each time: what was committed before the connection was lost counts once
            await attempts(self._client._run, call)
        except ClientError as error:
            raise _meaning(error) from error
        finally:
            self.waits_for = None
        self.positions[partition] = end

    def _wait(self, state: tenacity.RetryCallState) -> None:
        assert state.outcome is not None
        error, pause = state.outcome.exception(), state.upcoming_sleep
        log.warning("%s; the batch is sent again in %.1f s", error, pause)
        self.waits_for = str(error)

    async def _keep(self, partition: str, message: Message, reason: str) -> None:
        """Passes on a message that cannot be used. Raises CannotContinue without a place for it."""
        place = f"message {message.position!r}" + (f" of {partition!r}" if partition else "")
        reason = reason[:_REASON_CHARACTERS]
        if self._dead_letter is None:
            raise CannotContinue(
                f"{place}: {reason}; --dead-letter names a place for such messages"
            )
        # without a position, the letter alone has the message
        kept = message.body if self._target.source is None else message.body[:LETTER_BYTES]
        try:
            body: Any = kept.decode()
            encoding = "text"
        except UnicodeDecodeError:
            body, encoding = base64.b64encode(kept).decode(), "base64"
        letter = {
            "reason": reason,
            "source": self._target.source,
            "partition": partition,
            "position": message.position,
            "bytes": len(message.body),
            "encoding": encoding,
            "body": body,
        }
        await self._dead_letter(letter)
        log.warning("%s is passed on: %s", place, reason)


def _newest(reader: Reader, messages: Sequence[Message]) -> int:
    """The place of the last message with the newest time."""
    times = (
        (change.time, number)
        for number, message in enumerate(messages)
        for change in reader.read(message)
        if change.operation == "insert" and change.time is not None
    )
    return max(times)[1]


def _is_away(error: BaseException) -> bool:
    """Whether the same batch should be sent again, with the same key."""
    if isinstance(error, ServerError):
        # with a version it was committed: only the stored position says whether it is applied
        busy = error.status == 429 or error.status >= 500
        return busy and "version" not in error.problem
    return isinstance(error, ServerUnreachable) and not error.responded


def _meaning(error: ClientError) -> Exception:
    if isinstance(error, ServerError):
        if error.problem.get("type", "").endswith(":source-position"):
            return Interrupted(f"the server has another position: {error.detail}")
        if error.status >= 500:
            return Interrupted(str(error))
        was_journalled = "version" in error.problem
        about_messages = was_journalled or error.status in (413, 415, 422)
        if about_messages and error.field not in _OF_THE_CONSUMER:
            return _Refused(str(error))
    return CannotContinue(str(error))
