"""Every setting, its default and its meaning: the one place that reads the environment."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from liverank_gpu import BackendName, Cluster, InvalidValue
from liverank_service.sizes import SIZE, UNITS, parse_size

PREFIX = "LIVERANK_"

LogFormat = Literal["text", "json"]

MIN_API_KEY = 32
"""Characters of LIVERANK_API_KEY: with a fast hash, the key itself must resist guessing."""

LEAST_DEVICE_MEMORY = 1 << 20
"""Bytes that a graph of a few edges fits into; a smaller number probably lacks its unit."""

_SWITCHES = {"1": True, "true": True, "0": False, "false": False}


class InvalidSetting(ValueError):
    """A setting, named like its environment variable, with an invalid value."""

    def __init__(self, field: str, value: object, requirement: str) -> None:
        super().__init__(f"{PREFIX}{field.upper()}: {value!r} must be {requirement}")


def is_loopback(host: str) -> bool:
    """Whether a name or address is that of this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _not_empty(path: Any) -> Any:
    if not str(path):  # pathlib reads it as the working directory
        raise ValueError("empty")
    return path


def _switch(value: object) -> bool:
    try:
        return _SWITCHES[str(value).lower()]
    except KeyError:
        raise ValueError("not a switch") from None


Directory = Annotated[Path, BeforeValidator(_not_empty)]
File = Annotated[Path, BeforeValidator(_not_empty)]
Switch = Annotated[bool, BeforeValidator(_switch)]
Size = Annotated[int, BeforeValidator(parse_size)]
Limit = Annotated[int, Field(ge=1, le=2**40)]
Seconds = Annotated[float, Field(le=86_400.0)]


class Settings(BaseSettings):
    """How one server runs. Each field can be set by the environment variable ``LIVERANK_<FIELD>``.

    data                     the directory of all graphs and of ``keys.json``; one server at a time
                             uses it
    host                     address to listen on; needs API keys if it is not loopback
    port                     the port; 0: a free one, which is logged
    backend                  ``auto``: CUDA if there is a device, otherwise the CPU. ``reference``:
                             slow, for comparison
    shards                   worker processes that hold each graph, each on the backend, with a GPU
                             of its own on ``cuda``; 0: the server holds it
    device_memory            bytes that arrays take on a GPU at most, such as ``8GiB``, from
                             ``1MiB`` on: those of this process, or with shards those of each
                             worker process
    cluster                  an existing Dask cluster that has these worker processes: the address
                             of its scheduler, ``tls://HOST:PORT``. Otherwise the server starts them
    cluster_ca               PEM file of the authority that signed the certificates of the cluster;
                             if it is not set, Dask's configuration is used, as for the next two
    cluster_cert             PEM file with the server's certificate in the cluster
    cluster_key              PEM file with its key, if that is not in the same file
    checkpoint_bytes         a checkpoint is taken once the journal has grown by this many bytes and
                             by the size of the last checkpoint
    checkpoint_seconds       and at the latest this many seconds after a change
    max_body_bytes           a longer body is refused with 413; Arrow streams also when decompressed
    api_key                  a key with scope admin while the server runs with it, 32 or more random
                             characters; never on disk or in a log
    keys                     a directory for the keys that the server makes for its container
    insecure                 start without API keys if other machines can connect, and with a
                             cluster at ``tcp://HOST:PORT``, where anyone who connects runs code
    log_format               ``text`` for people, ``json`` for machines: one object per line
    slow_batch_seconds       a slower batch is logged, with the time of each stage
    max_batch_edges          a batch with more edges and vertices is refused with 413
    max_key_bytes            a longer key of a vertex is refused with 422
    max_places               places in the answer to a request: k, or the number of vertices if that
                             is smaller, summed over its queries; also vertices whose ranks or edges
                             it asks for. More are refused with 413
    max_places_in_progress   places in all answers being made or sent; more are refused with 503
    max_query_keys           seeds and vertices of `among` and `within` of all queries of a request;
                             more are refused with 413
    max_queue_batches        unfinished batches and computations of one graph; one more is refused
                             with 429
    max_queue_bytes          bytes that these batches hold; a single batch is always accepted
    max_receiving_bytes      bytes of all bodies being received or parsed; more are refused with 503
    max_connections          one more is closed at once
    max_concurrent_requests  requests in progress, for reads and for all others; one more is refused
                             with 503
    max_waiting_requests     requests that wait for a version or a query, for each graph and with
                             each API key; one more is refused with 503
    max_subscribers          subscribers of changes, for each graph and with each API key; one more
                             is refused with 503
    max_exports              exports in progress, each of which holds a copy; one more is refused
                             with 503
    max_graphs               one more is refused with 507; existing ones are always opened
    max_running_analyses     analyses of one graph that run at once; others are queued
    max_analyses             analyses of one graph in any state; one more is refused with 409
    programs                 whether users may put programs of their own, with an API key of scope
                             admin if there are keys, and run them
    max_program_seconds      of a run of such a program, at most
    max_expiry_share         of a window's edges, by the wall clock: an expiry of more waits until
                             the clock has not jumped for `expiry_hold_seconds`; 1: it does not
    expiry_hold_seconds      for which a clock that has jumped is not trusted with such an expiry;
                             at most as long as the window
    slow_client_seconds      for sending the head of a request, starting its body, and accepting a
                             response
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, hide_input_in_errors=True)

    data: Directory = Path("liverank-data")
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    backend: BackendName = "auto"
    shards: Annotated[int, Field(ge=0, le=64)] = 0
    device_memory: Annotated[Size, Field(ge=LEAST_DEVICE_MEMORY)] | None = None
    cluster: str | None = None
    cluster_ca: File | None = None
    cluster_cert: File | None = None
    cluster_key: File | None = None
    max_body_bytes: Limit = 256 * 1024 * 1024
    checkpoint_bytes: Annotated[int, Field(ge=1, le=2**50)] = 64 * 1024 * 1024
    checkpoint_seconds: Annotated[int, Field(ge=1, le=10**9)] = 300
    api_key: str | None = Field(default=None, repr=False, pattern=f"^[!-~]{{{MIN_API_KEY},}}$")
    keys: Directory | None = None
    insecure: Switch = False
    log_format: LogFormat = "text"
    slow_batch_seconds: Annotated[Seconds, Field(ge=0.0)] = 1.0
    max_batch_edges: Limit = 50_000_000
    max_key_bytes: Limit = 4096
    max_places: Limit = 1_000_000
    max_places_in_progress: Limit = 10_000_000
    max_query_keys: Limit = 1_000_000
    max_queue_batches: Limit = 256
    max_queue_bytes: Limit = 512 * 1024 * 1024
    max_receiving_bytes: Limit = 1024 * 1024 * 1024
    max_connections: Limit = 1000
    max_concurrent_requests: Limit = 400
    max_waiting_requests: Limit = 256
    max_subscribers: Limit = 256
    max_exports: Limit = 4
    max_graphs: Limit = 64
    max_running_analyses: Limit = 2
    max_analyses: Limit = 16
    programs: Switch = False
    max_program_seconds: Annotated[Seconds, Field(ge=0.001)] = 600.0
    max_expiry_share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    expiry_hold_seconds: Annotated[Seconds, Field(ge=0.0)] = 60.0
    slow_client_seconds: Annotated[Seconds, Field(ge=0.1)] = 30.0

    def __init__(self, **given: Any) -> None:
        """Takes arguments that are not None, then the environment, then the defaults.

        Raises InvalidSetting.
        """
        try:
            super().__init__(**{name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            raise _invalid(error.errors(include_url=False)[0]) from None

    def check_server(self) -> None:
        """Raises InvalidSetting for a setting that a server could not use together with the others.
        Commands that only read `data` need not have all of them.
        """
        if self.device_memory is not None and self.backend in ("cpu", "reference"):
            unset = f"unset with {PREFIX}BACKEND={self.backend}"
            raise InvalidSetting("device_memory", self.device_memory, unset)
        for field, needed in (
            ("cluster_ca", "cluster"),
            ("cluster_cert", "cluster"),
            ("cluster_key", "cluster"),
            ("cluster_key", "cluster_cert"),
        ):
            value = getattr(self, field)
            if value is not None and getattr(self, needed) is None:
                raise InvalidSetting(field, str(value), f"unset without {PREFIX}{needed.upper()}")
        try:
            cluster = self.dask_cluster
        except InvalidValue as error:
            insecure = "" if self.insecure else "; --insecure accepts tcp://HOST:PORT too"
            raise InvalidSetting("cluster", self.cluster, error.requirement + insecure) from None
        if cluster is not None and not self.shards:
            raise InvalidSetting("shards", self.shards, "1 or more, because of LIVERANK_CLUSTER")

    @property
    def dask_cluster(self) -> Cluster | None:
        """The existing cluster; None without `cluster`. Raises InvalidValue."""
        if self.cluster is None:
            return None
        ca, cert, key = (
            None if file is None else str(file)
            for file in (self.cluster_ca, self.cluster_cert, self.cluster_key)
        )
        return Cluster(self.cluster, ca, cert, key, self.insecure)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)


def _invalid(error: ErrorDetails) -> InvalidSetting:
    name = str(error["loc"][0])
    value = error["input"]
    if name == "api_key":
        # not the key itself, since messages can be logged
        value = f"{len(value)} characters"
    return InvalidSetting(name, value, _requirement(name))


def _requirement(name: str) -> str:
    """What a value of the setting must be."""
    if name in ("data", "keys"):
        return "the path of a directory, not empty"
    if name.startswith("cluster_"):
        return "the path of a file, not empty"
    if name == "device_memory":
        return f"{SIZE}, at least {LEAST_DEVICE_MEMORY / UNITS['MiB']:g}MiB"
    if name == "api_key":
        return f"{MIN_API_KEY} or more visible ASCII characters, drawn at random"
    field = Settings.model_fields[name]
    if field.annotation is bool:
        return "one of " + ", ".join(_SWITCHES)
    if choices := get_args(field.annotation):
        return "one of " + ", ".join(choices)
    (low,) = (limit.ge for limit in field.metadata if hasattr(limit, "ge"))
    (high,) = (limit.le for limit in field.metadata if hasattr(limit, "le"))
    if field.annotation is float:
        return f"a number from {low:g} to {high:g}"
    return f"an integer from {low} to {high}"
