"""Sockets for a server, bound before it starts: a port in use ends the command at once."""

from __future__ import annotations

import errno
import socket

from liverank_service.cli.errors import CommandError


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
