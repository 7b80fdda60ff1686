"""The journal that a graph is recovered from: verified, and salvaged first if it is damaged."""

from __future__ import annotations

from pathlib import Path

from service.errors import StorageFailed
from service.storage.checkpoint import Checkpoint
from service.storage.files import is_damage
from service.storage.journal import Journal
from service.storage.layout import UnknownLayout
from service.storage.salvage import finish_salvage, salvage
from service.storage.verification import fault_of


def verified_journal(path: Path, checkpoint: Checkpoint | None) -> Journal:
    """The journal at `path`, with every row checked; salvaged first if it is damaged.

    Raises StorageFailed if the graph cannot be recovered from it and the checkpoint.
    """
    finish_salvage(path)
    try:
        journal = Journal(path)
    except StorageFailed as error:
        if not path.is_file() or isinstance(error, UnknownLayout) or not is_damage(error.__cause__):
            raise
        fault = str(error).removeprefix(f"{path}: ")
    else:
        found = fault_of(journal, checkpoint)
        if found is None:
            _check_reach(journal, checkpoint)
            return journal
        fault = found
        journal.close()
    salvage(path, checkpoint, fault)
    return Journal(path)


def _check_reach(journal: Journal, checkpoint: Checkpoint | None) -> None:
    reached = checkpoint.version if checkpoint else 0
    if reached < journal.retired:
        raise StorageFailed(
            journal.path,
            f"no longer holds batches {reached + 1} to {journal.retired}, and no readable "
            "checkpoint does: restore a backup",
        )
