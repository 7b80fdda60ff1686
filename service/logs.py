"""Logs: text for people or one JSON object a line, each with the request it belongs to.

A module logs under ``liverank.``, its subject after the dot; figures go into ``extra``, from where
both formats take them. Keys and bodies are never logged.
"""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import orjson

from service.settings import LogFormat

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Of the request at work, in the tasks and worker threads that serve it."""

_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "color_message"}
"""What every record has; all else came by `extra`."""


def set_up(log_format: LogFormat) -> None:
    """Sends what the process logs to stderr, from INFO on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    handler.addFilter(_add_request_id)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # One line a call of the client in the same process (the demo's), on the way to nobody.
    logging.getLogger("httpx").setLevel(logging.WARNING)


def _add_request_id(record: logging.LogRecord) -> bool:
    # Set on the record already where another thread logs for a request.
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
    """One line: time, level, logger, message, what came by `extra`, and the traceback."""

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
        # A message can quote what a client sent: a line break would pass for a line of the log.
        message = record.getMessage().encode("unicode_escape").decode()
        figures = "".join(f" {name}={value}" for name, value in _extra(record).items())
        line = f"{_time(record)} {record.levelname.lower():7} {record.name}: {message}{figures}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
