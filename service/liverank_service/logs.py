"""Logs: text for people or one JSON object a line, each with the request it belongs to.

In JSON, whatever Python code reports is such an object: warnings, errors that nothing handles, and
the last line, which says why the process ends. A crash in native code can still write plain lines.

Loggers are named ``liverank.<subject>``. Figures are passed in ``extra``, which both formats print.
Keys and bodies are never logged.
"""

from __future__ import annotations

import logging
import sys
import threading
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

import orjson

from liverank_service.settings import LogFormat

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Of the current request, in the tasks and worker threads that serve it."""

log = logging.getLogger("liverank.process")

_format: LogFormat = "text"

_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "color_message"}
"""Attributes that every record has; all others were passed in `extra`."""


def set_up(log_format: LogFormat) -> None:
    """Sends what the process logs to stderr, from INFO on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    handler.addFilter(_add_request_id)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # It would log every call of a client in the same process, as in the demo.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # It would log each attempt; that it gave up is an error.
    logging.getLogger("opentelemetry.exporter").setLevel(logging.ERROR)
    global _format
    _format = log_format
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_failed_thread


def write_last_line(message: str) -> None:
    """Writes to stderr why the process ends."""
    if _format == "json":
        log.critical(message)
    else:
        print(f"liverank: {message}", file=sys.stderr, flush=True)


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    _log_failure("the process failed", kind, error, trace)


def _log_failed_thread(failed: threading.ExceptHookArgs) -> None:
    name = None if failed.thread is None else failed.thread.name
    _log_failure(f"thread {name!r} failed", failed.exc_type, failed.exc_value, failed.exc_traceback)


def _log_unraisable(failed: sys.UnraisableHookArgs) -> None:
    what = f"{failed.err_msg or 'an error was ignored in'} {failed.object!r}"
    _log_failure(what, failed.exc_type, failed.exc_value, failed.exc_traceback)


def _log_failure(
    what: str,
    kind: type[BaseException],
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    failure = error or kind()
    message = f"{what}: {kind.__name__}: {failure}"
    log.error(message, exc_info=(kind, failure, trace))


def _add_request_id(record: logging.LogRecord) -> bool:
    # Already set if another thread logs on behalf of a request.
    if "request_id" not in record.__dict__:
        record.request_id = request_id.get()
    return True


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {
        name: value
        for name, value in record.__dict__.items()
        if name not in _STANDARD and value is not None
    }


class JsonFormatter(logging.Formatter):
    """One line: time, level, logger, message, the fields of `extra`, and the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(document, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


class TextFormatter(logging.Formatter):
    """``time level logger: message name=value``, and the traceback below."""

    def format(self, record: logging.LogRecord) -> str:
        # A message can quote a client: a line break in it would forge a line of the log.
        message = record.getMessage().encode("unicode_escape").decode()
        figures = "".join(f" {name}={value}" for name, value in _extra(record).items())
        line = f"{_time(record)} {record.levelname.lower():7} {record.name}: {message}{figures}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
