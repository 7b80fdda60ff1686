"""What a graph comes back from: the newest valid checkpoint, then the journal's later batches.

Ids follow from the order of the batches, so a replay through the same `apply` that took them the
first time gives every key the id it had. A rejected batch is skipped, and so is a lost one (see
service.storage.salvage). A batch without an outcome was committed, but not answered (or its
receipt went with the power): it is applied or rejected now, and the caller writes its receipt. A
batch that has a receipt must apply again; where it does not, the graph is not what its readers were
told, and recovery stops rather than serve it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

from gpu import Change, DeviceLost, EngineError
from service.errors import StorageFailed, encode_problem, problem_of
from service.formats.decode import EdgeColumns, FormatError, decode_payload
from service.storage.checkpoint import Checkpoint
from service.storage.files import is_damage
from service.storage.journal import Journal
from service.storage.layout import UnknownLayout
from service.storage.salvage import finish_salvage, salvage
from service.storage.verification import fault_of

log = logging.getLogger("liverank.recovery")

DEATHS = 2
"""A batch that has lost the device so often is not tried again."""


def verified_journal(path: Path, checkpoint: Checkpoint | None) -> Journal:
    """The journal at `path`, every row of it checked; salvaged first where it is damaged.

    Raises StorageFailed where the graph cannot be brought back from it and the checkpoint.
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
            f"no longer holds the batches {reached + 1} to {journal.retired}, and no checkpoint "
            "that can be read does: restore a backup",
        )


def replay(
    journal: Journal,
    after: int,
    apply: Callable[[EdgeColumns], Change],
    rank: Callable[[], object],
) -> dict[int, Change]:
    """Applies every batch of `journal` later than `after` that was not rejected, in order.

    Returns what each batch without a receipt did, by version. A batch over which the device was
    perhaps lost before is ranked by itself, so that it is known to be the one if that happens
    again; one over which it was lost `DEATHS` times is rejected.

    Raises StorageFailed for a payload that cannot be read, and for a batch with a receipt that no
    longer applies; DeviceLost, which is written down.
    """
    unanswered: dict[int, Change] = {}
    deaths = journal.deaths()
    for version, _, record, _ in journal.batches(after):
        outcome = journal.outcome(version)
        if outcome is not None and outcome.status != "ranked":
            continue
        try:
            columns = decode_payload(record.payload)
        except (FormatError, pa.ArrowException, ValueError, KeyError) as error:
            raise StorageFailed(journal.path, f"batch {version} cannot be read: {error}") from error
        try:
            if deaths.get(version, 0) >= DEATHS:
                raise DeviceLost(f"batch {version} has ended the process {deaths[version]} times")
            change = _applied(journal, version, partial(apply, columns), rank, version in deaths)
        except (EngineError, MemoryError) as error:
            if isinstance(error, DeviceLost) and deaths.get(version, 0) < DEATHS:
                raise
            if outcome is not None:
                raise StorageFailed(
                    journal.path, f"batch {version} was applied before, but not now: {error}"
                ) from error
            journal.reject(version, encode_problem(problem_of(error)))
            log.warning("%s: batch %d is rejected: %s", journal.path, version, error)
            continue
        if outcome is None:
            unanswered[version] = change
    return unanswered


def _applied(
    journal: Journal,
    version: int,
    apply: Callable[[], Change],
    rank: Callable[[], object],
    suspect: bool,
) -> Change:
    try:
        change = apply()
        if suspect:
            rank()
    except DeviceLost:
        journal.blame([version])
        raise
    return change
