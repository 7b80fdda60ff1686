"""Arrow's readers of text, which parse with threads."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

import pyarrow as pa

LONGEST_WAIT = 10.0
"""Seconds."""


def read_table(read: Callable[[pa.BufferReader], pa.Table], content: bytes) -> pa.Table:
    """What a reader makes of the content. Raises what it raises, once its threads have given the
    content back: one that does so while the interpreter ends would abort the process.
    """
    view, given_back = memoryview(content), threading.Event()
    weakref.finalize(view, given_back.set)
    source = pa.BufferReader(pa.py_buffer(view))
    del view
    try:
        return read(source)
    except Exception as error:
        error.__traceback__ = None  # its frames hold the source
        del source
        given_back.wait(LONGEST_WAIT)
        raise  # not by a name of this frame: frame and error would hold each other, and the content
