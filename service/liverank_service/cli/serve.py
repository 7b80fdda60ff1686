"""Runs the service until it is stopped: `liverank serve`. Its sockets are bound before it starts: a
port in use ends the command at once.
"""

from __future__ import annotations

import errno
import logging
import socket
import sys

from liverank_service import logs
from liverank_service.app import create_app, server_of
from liverank_service.cli import CommandError, display
from liverank_service.cli.provided_keys import provide_keys
from liverank_service.settings import Settings
from liverank_service.storage.graph_store import GraphStore


def bound_sockets(host: str, port: int) -> list[socket.socket]:
    """One for each address of the host, but those of a family that this machine lacks; the server
    still has to listen.

    port  0: a free one

    Raises CommandError.
    """
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, kind, protocol, _, address in _addresses(host, port):
            # asyncio sets TCP_NODELAY only if the protocol is given: without it, each response
            # would wait 40 ms for a delayed acknowledgement.
            try:
                listener = socket.socket(family, kind, protocol)
            except OSError as error:
                if error.errno != errno.EAFNOSUPPORT:
                    raise
                missing = error
                continue
            bound.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:  # IPv4 has a socket of its own
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
        if not bound and missing is not None:
            raise missing
    except OSError as error:
        for listener in bound:
            listener.close()
        raise CommandError(
            f"cannot listen on port {port} of {host}: {error.strerror}; --port 0 picks a free one"
        ) from None
    return bound


def _addresses(host: str, port: int) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    found = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
    )
    return list(dict.fromkeys(found))


def url_of(bound: socket.socket) -> str:
    """The address of a server that listens there."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


log = logging.getLogger("liverank.serve")

SWITCH_SECONDS = 0.001
"""How long a thread that parses or applies a batch may delay a read by holding the interpreter
lock. Python's default of 5 ms would dominate a read; less than this would slow down writers.
"""


def serve(settings: Settings) -> None:
    """Returns after SIGINT; SIGTERM ends the process.

    Raises the error that prevented opening the data directory or making keys, Unprotected if other
    machines could connect without a key, and CommandError if the server cannot listen: a supervisor
    notices the end of a process sooner than a server that is never ready.
    """
    failures: list[Exception] = []

    def stop(error: Exception) -> None:
        failures.append(error)
        server.should_exit = True

    logs.set_up(settings.log_format)
    sys.setswitchinterval(SWITCH_SECONDS)

    if settings.keys is not None:
        provide_keys(settings.keys, settings.data, settings.api_key)
    app = create_app(settings, stop)

    def say(_: float) -> None:
        if (reason := app.state.catalog.not_ready) is not None:
            log.info("not ready: %s", reason)

    server = server_of(app)
    listeners = bound_sockets(settings.host, settings.port)
    store = GraphStore(settings.data)  # one that cannot be used is told before "listening"
    store.open()
    store.close()
    for listener in listeners:
        log.info("listening on %s/, its dashboard; Ctrl-C ends the server", url_of(listener))
    try:
        with display.repeatedly(say):
            server.run(listeners)
    except KeyboardInterrupt:
        pass
    except SystemExit:
        raise CommandError("the server did not start, see the log above") from None
    if failures:
        raise failures[0]
