"""Ends the process when its device is lost. A supervisor starts it again, and recovery applies the
committed batches.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from liverank_gpu import EXIT_DEVICE_LOST, DeviceLost
from liverank_service.errors import StorageFailed
from liverank_service.logs import write_last_line
from liverank_service.storage.journal import Journal

log = logging.getLogger("liverank.pipeline")


def end_process(error: DeviceLost) -> NoReturn:
    """Ends the process at once: an orderly shutdown could wait for the lost device forever."""
    message = f"{error}; the process ends and must be restarted"
    log.critical(message)
    write_last_line(message)
    os._exit(EXIT_DEVICE_LOST)


@contextmanager
def device_loss_ends_process() -> Iterator[None]:
    """For readers of published ranks: no batch is to blame, and each later use would fail."""
    try:
        yield
    except DeviceLost as error:
        end_process(error)


def blame(journal: Journal, versions: Sequence[int], error: DeviceLost) -> NoReturn:
    """Records the batches that were being processed, and ends the process."""
    try:
        journal.blame(versions)
    except StorageFailed as storage_error:
        log.error("%s: batches %s were not recorded as suspects", storage_error, versions)
    end_process(error)
