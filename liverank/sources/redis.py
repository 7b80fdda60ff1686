"""Redis streams. A position is the id of an entry; the body is its field `data`, or `value`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from liverank.sources.broker import Address, Take, broker_log, decoded, parsed
from liverank.sources.consumer import CannotContinue, Interrupted, Letter, encoded
from liverank.sources.messages import Message

_BLOCK_MS = 500
_PING_SECONDS = 3.0


class RedisStreams:
    name = "redis"
    has_positions = True

    def __init__(self, address: Address) -> None:
        self._address = address

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[_Connection]:
        from faststream.redis import RedisBroker

        broker = RedisBroker(
            self._address.url,
            security=self._address.security,
            parser=parsed,
            decoder=decoded,
            apply_types=False,
            logger=broker_log,
            log_level=logging.DEBUG,
        )
        try:
            async with _errors():
                client = await broker.connect()
                await client.ping()
            yield _Connection(self._address, broker, client)
        finally:
            await broker.stop()


class _Connection:
    def __init__(self, address: Address, broker: Any, client: Any) -> None:
        self._address = address
        self._broker = broker
        self._client = client

    async def subscribe(self, positions: Mapping[str, str], take: Take) -> None:
        from faststream.redis import StreamSub

        stream, address = self._address.place, self._address
        if "" in positions:
            async with _errors():
                await self._check(positions[""])

        async def handle(raw: Any) -> None:
            async def messages() -> list[Message]:
                found = [
                    _message(entry, fields)
                    for entry, fields in zip(raw["message_ids"], raw["data"], strict=True)
                ]
                # trimming begins at the oldest entry: while the last one taken is there, so are
                # those after it
                async with _errors():
                    if "" in positions:
                        await self._check(positions[""])
                return found

            await take("", messages())
            if len(raw["message_ids"]) < address.size:
                await asyncio.sleep(address.linger)  # meanwhile, more may come

        subscriber = self._broker.subscriber(
            stream=StreamSub(
                stream,
                batch=True,
                max_records=address.size,
                polling_interval=_BLOCK_MS,
                last_id=positions.get("", "0-0"),
            )
        )
        subscriber(handle)
        async with _errors():
            await self._broker.start()

    async def _check(self, position: str) -> None:
        """Raises CannotContinue if entries after the position may be gone."""
        stream = self._address.place
        if await self._client.xrange(stream, position, position, count=1):
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
            return bool(await asyncio.wait_for(self._client.ping(), _PING_SECONDS))
        except Exception:
            return False

    async def keep(self, letter: Letter) -> None:
        async with _errors():
            await self._client.xadd(self._address.dead_letter, {b"data": encoded(letter)})


def _message(entry: bytes, fields: Mapping[bytes, bytes]) -> Message:
    body = fields.get(b"data")
    if body is None:
        body = fields.get(b"value", b"")
    return Message(entry.decode(), body, int(entry[: entry.index(b"-")]) / 1000)


@asynccontextmanager
async def _errors() -> AsyncIterator[None]:
    """Raises Interrupted where another attempt may succeed, else CannotContinue."""
    from redis import exceptions

    try:
        yield
    except exceptions.AuthenticationError as error:
        raise CannotContinue(f"redis: {error}") from error
    except (exceptions.ConnectionError, exceptions.TimeoutError, OSError) as error:
        raise Interrupted(f"redis: {error}") from error
    except exceptions.RedisError as error:
        raise CannotContinue(f"redis: {error}") from error
