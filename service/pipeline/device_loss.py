"""Ends the process when its device is lost. A supervisor starts it again, and recovery applies the
committed batches.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import NoReturn

from gpu import DeviceLost
from service.errors import StorageFailed
from service.logs import write_last_line
from service.storage.journal import Journal

log = logging.getLogger("liverank.pipeline")

EXIT_DEVICE_LOST = 70
"""EX_SOFTWARE of sysexits.h."""


def end_process(error: DeviceLost) -> NoReturn:
    """Ends the process at once: an orderly shutdown could wait for the lost device forever."""
    message = f"{error}; the process ends and must be restarted"
    log.critical(message)
    write_last_line(message)
    os._exit(EXIT_DEVICE_LOST)


def blame(journal: Journal, versions: Sequence[int], error: DeviceLost) -> NoReturn:
    """Records the batches that were being processed, and ends the process."""
    try:
        journal.blame(versions)
    except StorageFailed as storage_error:
        log.error("%s: batches %s were not recorded as suspects", storage_error, versions)
    end_process(error)
