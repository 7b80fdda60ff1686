"""Replay: the journal's batches through the same `apply` that took them the first time.

Ids follow from the order of the batches, so a replay gives every key the id it had. A rejected
batch is skipped. A batch without an outcome was committed, but not answered (or its receipt went
with the power): it is applied or rejected now, and the caller writes its receipt. A batch that has
a receipt must apply again; where it does not, the graph is not what its readers were told, and
recovery stops rather than serve it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import pyarrow as pa

from gpu import Change, EngineError
from service.durability.journal import Journal
from service.errors import StorageFailed, encode_problem, problem_of
from service.formats import EdgeColumns, FormatError, decode_payload

log = logging.getLogger("liverank.recovery")


def replay(journal: Journal, apply: Callable[[EdgeColumns], Change]) -> dict[int, Change]:
    """Applies every batch of `journal` that was not rejected, in order.

    Returns what each batch without a receipt did, by version.

    Raises StorageFailed for a payload that cannot be read, and for a batch with a receipt that no
    longer applies.
    """
    unanswered: dict[int, Change] = {}
    for version in range(1, journal.version + 1):
        outcome = journal.outcome(version)
        if outcome is not None and outcome.status == "rejected":
            continue
        try:
            columns = decode_payload(journal.payload(version))
        except (FormatError, pa.ArrowException, ValueError, KeyError) as error:
            raise StorageFailed(journal.path, f"batch {version} cannot be read: {error}") from error
        try:
            change = apply(columns)
        except (EngineError, MemoryError) as error:
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
