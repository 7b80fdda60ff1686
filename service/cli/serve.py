"""The service until it is told to stop: `liverank serve`."""

from __future__ import annotations

import sys

from service import logs
from service.app import create_app
from service.cli.errors import CommandError
from service.http.server import server_of
from service.settings import Settings

SWITCH_SECONDS = 0.001
"""For how long a thread that parses or applies a batch may keep one that reads waiting for the
interpreter. Python's own 5 ms would be most of a read; with less than this, those who write pay.
"""


def serve(settings: Settings) -> None:
    """Runs the service; returns after SIGINT, is ended by SIGTERM.

    Raises what stopped the data directory from being opened, Unprotected where other machines could
    connect without a key, and CommandError where the address
    cannot be listened on: a supervisor sees the end of a process sooner than a server that is never
    ready.
    """
    failures: list[Exception] = []

    def stop(error: Exception) -> None:
        failures.append(error)
        server.should_exit = True

    logs.set_up(settings.log_format)
    sys.setswitchinterval(SWITCH_SECONDS)

    server = server_of(create_app(settings, stop), settings)
    try:
        server.run()
    except KeyboardInterrupt:
        pass
    except SystemExit:
        raise CommandError(
            f"port {settings.port} of {settings.host} cannot be used, for the reason logged above; "
            "--port 0 finds a free one"
        ) from None
    if failures:
        raise failures[0]
