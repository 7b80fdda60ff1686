"""Redis streams. A position is the id of an entry; the body is its field `data`, or `value`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from faststream.redis import RedisBroker, StreamSub
from redis import exceptions

from liverank.client.call import json_body
from liverank.sources.broker import PING_SECONDS, Address, Connection, ReadAhead, Refresh, Take
from liverank.sources.consumer import CannotContinue, Letter
from liverank.sources.messages import Message

_BLOCK_MS = 500


class RedisStream(Connection):
    name = "redis"
    refusals = (
        exceptions.AuthenticationError,
        exceptions.DataError,
        exceptions.InvalidResponse,
        exceptions.ResponseError,
    )
    failures = (exceptions.RedisError,)

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._client: Any = None
        self._ahead = ReadAhead()

    def create(self) -> RedisBroker:
        return RedisBroker(self.address.url, **self.address.options)

    async def open(self) -> None:
        with self.errors():
            self._client = await self.broker.connect()
            await self._client.ping()

    async def subscribe(
        self,
        positions: Mapping[str, str],
        take: Take,
        refresh: Refresh,  # noqa: ARG002
    ) -> None:
        stream, position = self.address.place, positions.get("")
        with self.errors():
            # FastStream repeats at once, and for ever, a read that Redis refuses
            await self._client.xread({stream: position or "0-0"}, count=1)
            await self._check(position)
            # without a dict for the fields of each entry
            self._client.set_response_callback("XREAD", _entries)

        async def messages(read_to: str | None, raw: Any) -> list[Message]:
            # trimming begins at the oldest entry: while the last one of the group before is
            # there, so are those after it
            with self.errors():
                await self._check(read_to)
            return list(map(_message, raw["message_ids"], raw["data"]))

        async def handle(raw: Any) -> None:
            nonlocal position
            await self._ahead.take(lambda: take("", messages(position, raw)))
            position = raw["message_ids"][-1].decode()
            if len(raw["message_ids"]) < self.address.size:
                await asyncio.sleep(self.address.linger)  # meanwhile, more may come

        subscriber = self.broker.subscriber(
            stream=StreamSub(
                stream,
                batch=True,
                max_records=self.address.size,
                polling_interval=_BLOCK_MS,
                last_id=position or "0-0",
            )
        )
        subscriber(handle)
        with self.errors():
            await self.broker.start()

    async def _check(self, position: str | None) -> None:
        """Raises CannotContinue if entries after the position may be gone."""
        stream = self.address.place
        if position is None or await self._client.xrange(stream, position, position, count=1):
            return
        if not await self._client.exists(stream):
            raise CannotContinue(f"stream {stream!r} does not exist, but was read to {position}")
        newest = (await self._client.xinfo_stream(stream))["last-generated-id"]
        if newest.decode() != position:
            raise CannotContinue(
                f"stream {stream!r} no longer has {position}, after which to continue: entries "
                "behind it may be lost"
            )

    async def ping(self) -> bool:
        try:
            return bool(await asyncio.wait_for(self._client.ping(), 3 * PING_SECONDS))
        except Exception:
            return False

    async def keep(self, letter: Letter) -> None:
        with self.errors():
            await self._client.xadd(self.address.dead_letter, {b"data": json_body(letter)})

    async def close(self) -> None:
        self._ahead.cancel()
        await super().close()


def _entries(response: Any, **_: Any) -> list[tuple[bytes, list[Any]]]:
    """Each stream of a response with its entries: id, and names and values in turn."""
    if isinstance(response, dict):
        return list(response.items())
    return response or []


def _message(entry: bytes, fields: Sequence[bytes]) -> Message:
    body = fields[1]
    if fields[0] != b"data" or len(fields) > 2:
        named = dict(zip(fields[::2], fields[1::2], strict=True))
        body = named.get(b"data", named.get(b"value", b""))
    return Message(entry.decode(), body, int(entry[: entry.index(b"-")]) / 1000)
