"""One call of the HTTP interface, and how the two clients share its description."""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import dataclass, field
from functools import wraps
from itertools import chain
from types import MethodType
from typing import (
    Any,
    ClassVar,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    get_args,
    get_type_hints,
    overload,
)
from urllib.parse import quote

import msgspec

from liverank.choices import Key, check_names
from liverank.client.responses import SourcePosition
from liverank.errors import InvalidInput
from liverank.options import given

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
A = TypeVar("A")

JSON = "application/json"

BYTES = bytes, bytearray, memoryview
"""In JSON they would be other text, in base64, and in a path b'…'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """A request, and how to read its response.

    parse       the body of a successful response to the result
    repeatable  whether it may be sent again when it is unknown if the server received it
    retried     False: after one attempt it raises, because the caller decides when to repeat it
    otherwise   the result if the server refuses or does not respond, after one attempt; without
                it, the client retries and raises
    """

    method: str
    path: str
    parse: Callable[[bytes], T]
    query: Mapping[str, Any] = field(default_factory=dict)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False
    retried: bool = True
    otherwise: T | None = None


class Synchronous:
    """A client whose calls return results."""

    def _run(self, call: Call[T]) -> T:
        raise NotImplementedError

    def _follow(self, call: Call[T]) -> Iterator[T]:
        raise NotImplementedError


class Asynchronous:
    """A client whose calls return awaitables of results."""

    async def _run(self, call: Call[T]) -> T:
        raise NotImplementedError

    def _follow(self, call: Call[T]) -> AsyncIterator[T]:
        raise NotImplementedError


class Described(Generic[P, T, S, A]):
    """A method that describes a call becomes one that passes it to a method of the client, and
    returns what that returns: S of a synchronous client, A of an asynchronous one.

    method  the name of the client's method
    """

    method: ClassVar[str]

    def __init__(self, describe: Callable[Concatenate[Any, P], Call[T]]) -> None:
        options = _name_options(describe)
        names = [*inspect.signature(describe).parameters][1:]

        @wraps(describe)
        def run(client: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
            check_names(describe, kwargs)
            if options and (unknown := kwargs.keys() - options):
                message = f"got an unexpected keyword argument {min(unknown)!r}"
                raise TypeError(f"{describe.__qualname__}() {message}")
            try:
                for given in (*args, *kwargs.values()):
                    if isinstance(given, str):
                        given.encode()
                call = describe(client, *args, **kwargs)
            except UnicodeEncodeError as error:
                raise _no_text(error) from error
            for name, given in (*zip(names, args, strict=False), *kwargs.items()):
                if isinstance(given, BYTES):
                    raise _no_key(name, given)
            return getattr(client, self.method)(call)

        self._describe = describe
        self._run = run

    @overload
    def __get__(self, client: Synchronous, kind: type | None = None) -> Callable[P, S]: ...

    @overload
    def __get__(self, client: Asynchronous, kind: type | None = None) -> Callable[P, A]: ...

    @overload
    def __get__(
        self, client: None, kind: type | None = None
    ) -> Callable[Concatenate[Any, P], Call[T]]: ...

    def __get__(self, client: Any, kind: type | None = None) -> Any:
        return self._describe if client is None else MethodType(self._run, client)


def _name_options(describe: Any) -> Set[str]:
    """Gives a function with options, `**options: Unpack[…]`, the signature that names each of them.
    Returns the names of its parameters, or none if it has no options.
    """
    signature = inspect.signature(describe)
    *others, last = signature.parameters.values()
    if last.kind is not last.VAR_KEYWORD:
        return set()
    (keywords,) = get_args(get_type_hints(describe)[last.name])
    named = [
        last.replace(
            name=name, kind=last.KEYWORD_ONLY, default=None, annotation=kind.__forward_arg__
        )
        for name, kind in keywords.__annotations__.items()
    ]
    signature = describe.__signature__ = signature.replace(parameters=[*others, *named])
    return signature.parameters.keys()


class operation(Described[P, T, T, Coroutine[Any, Any, T]]):  # noqa: N801
    """The call runs at once in a synchronous client, when awaited in an asynchronous one."""

    method = "_run"


class events(Described[P, T, Iterator[T], AsyncIterator[T]]):  # noqa: N801
    """The response is a stream of events, over which the method iterates. `parse` of the call takes
    the data of one event, a JSON object, to which its name and its id are added as `event` and
    `id`.
    """

    method = "_follow"


def path_of(*parts: Key) -> str:
    """Raises InvalidInput for a name that would lead to another path."""
    if parts[0] == "graphs" and parts[1:] and (not parts[1] or "/" in str(parts[1])):
        message = f"expected 1 to 64 of the characters A-Z a-z 0-9 . _ -, got {parts[1]!r}"
        raise InvalidInput("graph", message)
    if "" in parts:
        raise InvalidInput(str(parts[parts.index("") - 1]), "expected a name that is not empty")
    return "/" + "/".join(_segment(str(part)) for part in parts)


def _segment(text: str) -> str:
    """One segment of a path. A bare `.` or `..` would mean a directory, so it is escaped too."""
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe="")


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    return msgspec.json.Decoder(kind).decode


def json_body(document: Any) -> bytes:
    """The document as JSON. Numbers of NumPy are written as numbers. Raises InvalidInput."""
    try:
        return _ENCODER.encode(document)
    except UnicodeEncodeError as error:
        raise _no_text(error) from error


def _no_text(error: UnicodeEncodeError) -> InvalidInput:
    """Of text with bytes that are not UTF-8, as names of files and arguments may have them."""
    return InvalidInput("text", f"expected UTF-8, got {error.object!r}")


def _no_key(field: str, got: Any) -> InvalidInput:
    return InvalidInput(field, f"expected keys of text or integers, got {got!r}")


def refuse_bytes(value: Any, field: str = "") -> None:
    """Raises InvalidInput if there are bytes in a document, or in one of its members. Of a list,
    the types alone are looked at one by one, and lists in a list are looked at as one.

    field  of the value; empty: the names of its members
    """
    if isinstance(value, BYTES):
        raise _no_key(field, value)
    if isinstance(value, list | tuple | set | frozenset):
        for kind in set(map(type, value)) - {str, int, float, bool, type(None)}:
            found: Iterator[Any] = (each for each in value if type(each) is kind)
            if issubclass(kind, list | tuple):
                refuse_bytes([*chain.from_iterable(found)], field)
            elif issubclass(kind, (*BYTES, Mapping)) or _fields(kind):
                for each in found:
                    refuse_bytes(each, field)
        return
    is_mapping = isinstance(value, Mapping)
    members = value if is_mapping else {name: getattr(value, name) for name in _fields(value)}
    if field:
        refuse_bytes([*members, *members.values()], field)
    else:
        for name, member in members.items():
            refuse_bytes(member, str(name))


def _fields(value: Any) -> Iterable[str]:
    """Of a struct or a dataclass; none of others."""
    own: Iterable[str] = getattr(value, "__struct_fields__", ())
    return own or getattr(value, "__dataclass_fields__", own)


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


def read(kind: type[T], *path: Key, **query: Any) -> Call[T]:
    """What the path names. query: its options, of which those that are None are left out."""
    return _read(decoder(kind), path, query)


def read_member(member: str, kind: type[T], *path: Key, **query: Any) -> Call[T]:
    """As `read`: one member of the response."""
    return _read(member_of(member, kind), path, query)


def _read(parse: Callable[[bytes], T], path: Sequence[Key], query: dict[str, Any]) -> Call[T]:
    asked = query_of(**query)
    return Call(method="GET", path=path_of(*path), query=asked, parse=parse, repeatable=True)


def query_of(**options: Any) -> dict[str, Any]:
    """Options as parameters of a query: those that are not None, positions as texts."""
    positions = options.pop("min_position", None)
    several = [positions] if isinstance(positions, str | SourcePosition) else positions
    return given(**options, min_position=None if several is None else list(map(str, several)))


def write(
    method: str,
    result: type[T],
    document: Any,
    *path: Key,
    repeatable: bool,
    query: Mapping[str, Any] | None = None,
) -> Call[T]:
    """Sends a document to what the path names. repeatable: whether it may be sent twice

    Raises InvalidInput.
    """
    refuse_bytes(document)
    return Call(
        method=method,
        path=path_of(*path),
        query=query or {},
        body=json_body(document),
        headers={"Content-Type": JSON},
        parse=decoder(result),
        repeatable=repeatable,
    )


def remove(*path: Key) -> Call[None]:
    """Removes what the path names."""
    return Call(method="DELETE", path=path_of(*path), parse=nothing)


def member_of(name: str, kind: type[T]) -> Callable[[bytes], T]:
    """Reads one member of the response."""
    return lambda body: msgspec.convert(msgspec.json.decode(body)[name], kind)


def nothing(body: bytes) -> None:
    """Raises DecodeError if there is something."""
    if body:
        raise msgspec.DecodeError(f"expected no content, got {len(body)} bytes")


def yes(_: bytes) -> bool:
    return True
