"""The limits of the process, checked before a server opens its graphs: what is too low would fail
later, in the middle of something else.
"""

from __future__ import annotations

import logging
import resource
from pathlib import Path

from liverank_service.errors import ProcessLimitTooLow

log = logging.getLogger("liverank.limits")

FILES_PER_GRAPH = 10
OTHER_FILES = 60
"""The process's own, and what is opened for a moment."""

ADDRESSES_PER_GRAPH = 64 << 20
"""Bytes of the stacks of a graph's threads, and of its arrays."""

OTHER_ADDRESSES = 1 << 30
"""Bytes for the threads of the server and of its kernels."""


def raised_file_limit(wanted: int) -> int:
    """The soft limit of file descriptors, raised to what is wanted if the hard one allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted and (hard == resource.RLIM_INFINITY or soft < hard):
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def check_process_limits(graphs: int, checkpoint_bytes: int, connections: int) -> None:
    """Raises the soft limit of file descriptors to what is needed, as far as the hard one allows.

    graphs            number of graphs to open
    checkpoint_bytes  of the files that will be mapped
    connections       number of connections to accept; too few are only logged

    Raises ProcessLimitTooLow if the graphs cannot be opened.
    """
    needed = OTHER_FILES + FILES_PER_GRAPH * (graphs + 1)
    wanted = needed + connections
    soft = raised_file_limit(wanted)
    if soft < needed:
        raise ProcessLimitTooLow("file descriptors (ulimit -n)", soft, needed, graphs)
    if soft < wanted:
        log.warning(
            "%d file descriptors (ulimit -n) are too few for %d graphs and %d connections: "
            "expected %d or more",
            *(soft, graphs, connections, wanted),
        )
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        used = pages * resource.getpagesize()
        expected = used + OTHER_ADDRESSES + ADDRESSES_PER_GRAPH * (graphs + 1) + checkpoint_bytes
        if limit < expected:
            raise ProcessLimitTooLow("bytes of address space (ulimit -v)", limit, expected, graphs)
