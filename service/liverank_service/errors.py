"""What can go wrong in the service. Nothing here knows HTTP: liverank_service.problems maps errors
to it.

    ServiceError
    ├── NotReady                 the server is starting, recovering or stopping, or could not start
    ├── Unprotected              other machines could connect, and no API key is set
    ├── UnsupportedUvicorn       the installed version lacks what the server needs
    ├── ProcessLimitTooLow       a limit of the process is too low for the graphs
    ├── ApiKeysMissing           API keys were in use, and there are none
    ├── UnknownGraph             no graph has that name
    ├── UnknownVertex            the graph has no vertex with that key
    ├── UnknownVersion           the graph has no batch with that number yet
    ├── UnknownWatched           the graph has no watched query with that name
    ├── UnknownView              the graph has no view with that name
    ├── NoRanks                  no vertex has a weight in a view
    ├── UnknownSet               the graph has no set of vertices with that name
    ├── GraphExists              the graph exists with other options
    ├── TooManyGraphs            the server holds as many graphs as it may
    ├── MalformedRequest         a request is no valid HTTP
    ├── FormatError              a body does not follow its format
    ├── InvalidField             a field of a request has an invalid value
    ├── UnsupportedFormat        a body has an unsupported content type or charset
    ├── UnsupportedEncoding      a body has an unsupported content coding
    ├── NotAcceptable            the client accepts no form of the response
    ├── BodyTooLarge             a body exceeds the limit
    │   └── DecodedTooLarge      a body exceeds it once it is decompressed
    ├── BatchTooLarge            a batch has more edges and vertices than the limit
    ├── RequestTooLarge          a request asks for more places, or lists more, than the limit
    ├── Unauthorized             an API key is missing or wrong
    ├── Forbidden                the API key does not allow the call
    ├── ForwardedRequest         without API keys, requests that a proxy forwarded are not answered
    ├── HostNotAllowed           without API keys, only requests to loopback names are answered
    ├── CrossOrigin              without API keys, pages of other sites are not answered
    ├── UnknownApiKey            no stored API key has that id
    ├── LastApiKey               the API key is the last one that can create others
    ├── QueueFull                too much work waits for the graph
    ├── TooBusy                  too many concurrent requests, or bytes of bodies
    ├── SlowClient               a body arrived too slowly
    │   └── SlowSubscriber       a subscriber read its events too slowly
    ├── IdempotencyConflict      an idempotency key was used with another body
    ├── SourcePositionConflict   a batch does not begin at the stored position of its source
    ├── BatchRejected            a journalled batch could not be applied; its version stays assigned
    ├── BatchLost                a journalled batch could not be read back
    ├── RankingFailed            a batch is committed and applied, but could not be ranked
    ├── ExpiryFailed             what a batch made too old could not be deleted yet
    ├── OutcomeDelayed           a batch is committed, but its outcome could not be stored yet
    ├── RetiredVersion           the journal no longer holds the outcome of that batch
    ├── UnknownAnalysis          the graph has no analysis with that id
    ├── TooManyAnalyses          the graph has as many analyses as it may
    ├── NoAnswer                 an analysis has no answer: it has not finished
    ├── LimitExceeded            a run of an analysis took more than its request allows
    ├── ProgramsOff              the server takes and runs no programs of users
    ├── ProgramRefused           a line of a program is outside of what programs may contain
    ├── UnknownProgram           no user put a program of that name
    ├── TooManyPrograms          the server has as many programs of users as it may
    ├── RankingDelayed           shards were lost, or an expiry failed, after a batch was committed
    ├── Unsupported              an option or a call that a graph in shards does not have
    ├── StorageFailed            the disk failed, or a file on it is damaged
    │   ├── FileDamaged          a file was read, and its content is wrong
    │   ├── GraphStopped         one graph cannot be opened; the others are served
    │   └── StorageFull          the disk is full
    ├── NotPublishedInTime       a version or a position was not published, or applied, in time
    ├── NotAnsweredInTime        a personalized query was not solved within the timeout
    └── WaitEnded                the client closed its side of the connection while it waited

Invalid options, parameters and batches raise the engine's InvalidValue. The attributes `field`,
`index`, `value` and `accepted`, if an error has them, say which part of the request is invalid, its
value, and the accepted values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ServiceError(Exception):
    """Base of every error that the service raises on purpose."""


class NotReady(ServiceError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"the server is not ready: {reason}")


class Unprotected(ServiceError):
    def __init__(self, host: str) -> None:
        super().__init__(
            f"host {host!r} lets other machines connect, but no API key is set: set "
            "LIVERANK_API_KEY, create a key with `liverank keys create --data DIR`, or start with "
            "--insecure"
        )


class UnsupportedUvicorn(ServiceError):
    def __init__(self, version: str, missing: str, tested: str) -> None:
        super().__init__(
            f"uvicorn {version} is installed, and it lacks what the server needs of it: {missing}; "
            f"liverank is tested with uvicorn{tested}: pip install 'uvicorn{tested}'"
        )


class ProcessLimitTooLow(ServiceError):
    def __init__(self, what: str, limit: int, needed: int, graphs: int) -> None:
        super().__init__(
            f"the process is limited to {limit:,} {what}; expected {needed:,} or more for "
            f"{graphs} graphs"
        )


class ApiKeysMissing(ServiceError):
    def __init__(self, path: object) -> None:
        super().__init__(
            f"{path}: is missing or has no keys, but API keys were in use: restore it from a "
            "backup, set LIVERANK_API_KEY, or, to serve without keys, run `liverank keys reset "
            "--data DIR` while no server uses the directory, or start with --insecure"
        )


_NAMED = 5
"""So many are named if there is no graph, or no view, of a name."""


def _those_there(known: Sequence[str]) -> str:
    named = ", ".join(known[:_NAMED])
    if (others := len(known) - _NAMED) > 0:
        named += f" and {others:,} other{'s' * (others > 1)}"
    return named and f"; there are: {named}"


class UnknownGraph(ServiceError):
    def __init__(self, graph: str, known: Sequence[str] = ()) -> None:
        """known: the graphs that whoever asked may list"""
        self.field, self.value = "graph", graph
        super().__init__(f"there is no graph {graph!r}{_those_there(known)}")


class UnknownVertex(ServiceError):
    def __init__(
        self, graph: str, vertex: str | int, field: str = "vertex", index: int | None = None
    ) -> None:
        self.field, self.index, self.value = field, index, vertex
        super().__init__(f"graph {graph!r} has no vertex {vertex!r}")


class UnknownVersion(ServiceError):
    def __init__(self, graph: str, version: int, newest: int) -> None:
        self.field, self.value = "version", version
        newest_batch = f"the newest is {newest}" if newest else "it has no batches yet"
        super().__init__(f"graph {graph!r} has no batch {version}; {newest_batch}")


class UnknownWatched(ServiceError):
    def __init__(self, graph: str, name: str, field: str = "name") -> None:
        self.field, self.value = field, name
        super().__init__(f"graph {graph!r} has no watched query {name!r}")


class UnknownView(ServiceError):
    def __init__(self, graph: str, name: str, known: Sequence[str]) -> None:
        self.field, self.value = "view", name
        super().__init__(f"graph {graph!r} has no view {name!r}{_those_there(known)}")


class NoRanks(ServiceError):
    def __init__(self, graph: str, name: str) -> None:
        self.field, self.value = "view", name
        super().__init__(f"view {name!r} of graph {graph!r} has no ranks: no vertex has a weight")


class UnknownSet(ServiceError):
    def __init__(self, graph: str, name: str, field: str = "name") -> None:
        self.field, self.value = field, name
        super().__init__(f"graph {graph!r} has no set {name!r}")


class GraphExists(ServiceError):
    """`field` is the option that differs."""

    def __init__(self, graph: str, field: str, value: object, present: object) -> None:
        self.field, self.value = field, value
        super().__init__(f"graph {graph!r} exists with {field} {present!r}, not {value!r}")


class TooManyGraphs(ServiceError):
    def __init__(self, limit: int) -> None:
        super().__init__(f"the server holds {limit:,} graphs, which is its limit; drop one first")


class MalformedRequest(ServiceError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"the request is malformed: {reason}")


class FormatError(ServiceError, ValueError):
    """A body does not follow its format.

    field    "insert", "vertices", "source", …, or "body" for the whole
    index    the edge, vertex or row of the field, from 0; None for the field as a whole
    message  what was expected there, and what was found
    """

    def __init__(self, field: str, index: int | None, message: str) -> None:
        self.field, self.index, self.message = field, index, message
        super().__init__(f"{field if index is None else f'{field}[{index}]'}: {message}")


class InvalidField(ServiceError, ValueError):
    """A field of a request, or item `index` of it, is invalid. value: None if it is unknown."""

    def __init__(self, field: str, index: int | None, value: object, message: str) -> None:
        self.field, self.index, self.value = field, index, value
        super().__init__(f"{field if index is None else f'{field}[{index}]'}: {message}")


class UnsupportedFormat(ServiceError, ValueError):
    def __init__(self, content_type: str, accepted: tuple[str, ...]) -> None:
        self.content_type, self.accepted = content_type, accepted
        super().__init__(
            f"content type {content_type!r} is not supported; expected one of "
            f"{', '.join(accepted)}, in UTF-8"
        )


class UnsupportedEncoding(ServiceError):
    def __init__(self, encoding: str, accepted: tuple[str, ...]) -> None:
        self.field, self.value = "Content-Encoding", encoding
        self.accepted = [*accepted, "identity"]
        super().__init__(
            f"Content-Encoding {encoding!r} is not supported; expected one of "
            f"{', '.join(self.accepted)}"
        )


class NotAcceptable(ServiceError):
    """`field` is the header that excludes every form."""

    def __init__(self, field: str, value: str, accepted: tuple[str, ...]) -> None:
        self.field, self.value, self.accepted = field, value, accepted
        super().__init__(f"{field} {value!r} includes none of {', '.join(accepted)}")


class BodyTooLarge(ServiceError):
    def __init__(self, limit: int) -> None:
        super().__init__(f"body exceeds the {_size(limit)} limit")


class DecodedTooLarge(BodyTooLarge):
    """Including decompression and the decoding of dictionaries."""

    def __init__(self, decoded: int, limit: int) -> None:
        super(BodyTooLarge, self).__init__(
            f"body decodes to {decoded:,} bytes, which exceeds the {_size(limit)} limit"
        )


class BatchTooLarge(ServiceError):
    def __init__(self, edges: int, limit: int) -> None:
        super().__init__(f"batch has {edges:,} edges and vertices; the limit is {limit:,}")


class RequestTooLarge(ServiceError):
    """Lists of a request, or what their lengths multiply to, exceed a limit.

    what   is counted
    """

    def __init__(self, field: str, count: int, limit: int, what: str) -> None:
        self.field, self.value = field, count
        super().__init__(f"{field}: {count:,} {what}; the limit of a request is {limit:,}")


class Unauthorized(ServiceError):
    pass


class Forbidden(ServiceError):
    """The message names the API key by its name, never by its secret."""


class ForwardedRequest(ServiceError):
    def __init__(self, header: str) -> None:
        self.field = header
        super().__init__(
            f"the request has a header {header!r}, so a proxy forwarded it; without API keys the "
            "server answers only to clients of its own machine: create a key, or start with "
            "--insecure"
        )


class HostNotAllowed(ServiceError):
    def __init__(self, host: str) -> None:
        self.field, self.value = "Host", host
        super().__init__(
            f"Host {host!r} is not a loopback name; without API keys the server answers only to "
            "localhost, 127.0.0.1 and [::1]"
        )


class CrossOrigin(ServiceError):
    def __init__(self, origin: str) -> None:
        self.field, self.value = "Origin", origin
        super().__init__(
            f"the request comes from a page of {origin!r}; without API keys only pages of this "
            "server are answered"
        )


class UnknownApiKey(ServiceError):
    def __init__(self, identity: str) -> None:
        self.field, self.value = "key", identity
        super().__init__(f"there is no stored API key {identity!r}")


class LastApiKey(ServiceError):
    def __init__(self, identity: str) -> None:
        self.field, self.value = "key", identity
        super().__init__(
            f"API key {identity!r} is the last one with scope admin for all graphs; create another "
            "one first"
        )


class QueueFull(ServiceError):
    """`retry_after` is in seconds."""

    def __init__(self, graph: str, jobs: int, bytes_held: int, retry_after: int) -> None:
        self.retry_after = retry_after
        super().__init__(
            f"the queue of graph {graph!r} is full: it holds {jobs:,} batches and computations, "
            f"{bytes_held:,} bytes; retry after {retry_after} s"
        )


class TooBusy(ServiceError):
    """`retry_after` is in seconds."""

    retry_after = 1

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"too many {what}; the limit is {limit:,}; retry later")


class SlowClient(ServiceError):
    def __init__(self, received: int, seconds: float) -> None:
        super().__init__(f"received only {received:,} bytes of the body within {seconds:.0f} s")


class SlowSubscriber(SlowClient):
    def __init__(self, revisions: int) -> None:
        ServiceError.__init__(
            self, f"the subscriber is {revisions:,} revisions behind; their events are gone"
        )


class IdempotencyConflict(ServiceError):
    def __init__(self, key: str, version: int | None) -> None:
        self.field, self.value = "Idempotency-Key", key
        first = "a batch in flight" if version is None else f"batch {version}"
        super().__init__(
            f"idempotency key {key!r} belongs to {first}, which differs in its body or on_conflict"
        )


class SourcePositionConflict(ServiceError):
    def __init__(self, source: str, partition: str, begin: str | None, stored: str | None) -> None:
        self.field, self.value, self.stored = "from", begin, stored
        place = (
            f"partition {partition!r} of source {source!r}" if partition else f"source {source!r}"
        )
        expected = "no `from`: it has no position yet" if stored is None else f"{stored!r}"
        super().__init__(f"{place}: expected {expected}, got {begin!r}")


class BatchRejected(ServiceError):
    """`reason` is the document that was journalled with the rejection."""

    def __init__(self, version: int, reason: Mapping[str, Any]) -> None:
        self.version = version
        self.reason = reason
        super().__init__(f"batch {version} was rejected: {reason['detail']}")


class BatchLost(ServiceError):
    def __init__(self, version: int, fault: str) -> None:
        super().__init__(
            f"batch {version} could not be read back from the journal ({fault}); send it again"
        )


class RankingFailed(ServiceError):
    def __init__(self, version: int, reason: str) -> None:
        self.version = version
        super().__init__(
            f"version {version} is committed and applied, but could not be ranked: {reason}; "
            "the next batch or recomputation ranks it"
        )


class ExpiryFailed(ServiceError):
    """By the event clock, nothing is committed or ranked before it has succeeded."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"what a batch made too old could not be deleted yet: {reason}; further ones are "
            "refused until it is"
        )


class OutcomeDelayed(ServiceError):
    """The disk failed after the batch was committed."""

    def __init__(self, version: int, reason: object) -> None:
        self.version = version
        super().__init__(
            f"batch {version} is committed, but its outcome could not be stored ({reason}); it "
            "follows once the disk accepts writes: request it by its version, or send the batch "
            "again with its idempotency key"
        )


class RetiredVersion(ServiceError):
    def __init__(self, graph: str, version: int, retired: int) -> None:
        self.field, self.value = "version", version
        super().__init__(
            f"the outcome of batch {version} of graph {graph!r} is no longer stored: checkpoints "
            f"hold the batches up to {retired}"
        )


class StorageFailed(ServiceError):
    def __init__(self, path: object, reason: object) -> None:
        super().__init__(f"{path}: {reason}")


class FileDamaged(StorageFailed):
    """The content of a file is wrong, as opposed to an error that prevented reading it."""


class GraphStopped(StorageFailed):
    """One graph is not served, because of its own files."""


class StorageFull(StorageFailed):
    """Writes succeed again as soon as there is free space."""


class NotPublishedInTime(ServiceError):
    def __init__(self, field: str, value: object, newest: object, state: str, wait: float) -> None:
        self.field, self.value = field, value  # min_version or min_position
        what = f"{field.removeprefix('min_')} {value}"
        super().__init__(f"{what} was not {state} within {wait:g} s; the newest is {newest}")


class NotAnsweredInTime(ServiceError):
    def __init__(self, timeout: float) -> None:
        self.field, self.value = "timeout", timeout
        super().__init__(f"the query was not solved within {timeout:g} s")


class WaitEnded(ServiceError):
    def __init__(self) -> None:
        super().__init__("the client closed its side of the connection, which ended the wait")


def _size(limit: int) -> str:
    mebibytes, rest = divmod(limit, 1 << 20)
    return f"{limit:,}-byte" if rest else f"{mebibytes:,} MiB"


class UnknownAnalysis(ServiceError):
    def __init__(self, graph: str, identity: str) -> None:
        self.field, self.value = "analysis", identity
        super().__init__(f"graph {graph!r} has no analysis {identity!r}")


class TooManyAnalyses(ServiceError):
    def __init__(self, graph: str, limit: int, unfinished: int) -> None:
        super().__init__(
            f"graph {graph!r} has {limit:,} analyses, which is its limit; {unfinished:,} of them "
            "are queued or running; delete one first"
        )


class NoAnswer(ServiceError):
    def __init__(self, identity: str, state: str) -> None:
        self.field, self.value = "analysis", identity
        super().__init__(f"analysis {identity!r} has no answer; it is {state}")


class LimitExceeded(ServiceError):
    def __init__(self, field: str, limit: float, taken: str) -> None:
        self.field, self.value = field, limit
        super().__init__(f"the run was ended after {taken}: {field} is {limit:g}")


class ProgramsOff(ServiceError):
    def __init__(self) -> None:
        super().__init__("programs of users are off: set LIVERANK_PROGRAMS=1 to take and run them")


class ProgramRefused(ServiceError, ValueError):
    """`line` of the source, from 1 on, has `value`."""

    def __init__(self, line: int, value: object, message: str) -> None:
        self.field, self.line, self.value = "source", line, value
        super().__init__(message)


class UnknownProgram(ServiceError):
    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.field, self.value = "name", name
        super().__init__(f"there is no program {name!r} of a user{_those_there(known)}")


class TooManyPrograms(ServiceError):
    def __init__(self, limit: int) -> None:
        super().__init__(f"the server has {limit:,} programs, which is its limit; delete one first")


class RankingDelayed(ServiceError):
    """Shards were lost, or an expiry failed, after the batch was committed."""

    def __init__(self, version: int, reason: object) -> None:
        self.version = version
        super().__init__(
            f"version {version} is committed, but not ranked yet: {reason}. The graph recovers and "
            "ranks it: request the batch by its version, or send it again with its idempotency key"
        )


class Unsupported(ServiceError, ValueError):
    """`field` holds `value`, which a graph in shards does not have."""

    def __init__(self, field: str, value: object, supported: str) -> None:
        self.field = field
        self.value = value
        super().__init__(f"{field}: {value!r} does not work with shards; {supported} does")
