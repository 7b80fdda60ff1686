"""The limits of the process are raised where they are too low, and otherwise left as they are."""

from __future__ import annotations

import resource
from unittest.mock import patch

import pytest

from liverank_service.errors import ProcessLimitTooLow
from liverank_service.process_limits import FILES_PER_GRAPH, OTHER_FILES, check_process_limits

NEEDED = OTHER_FILES + FILES_PER_GRAPH * 3
WANTED = NEEDED + 100


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [
        (NEEDED, WANTED + 5, WANTED),
        (NEEDED, WANTED - 5, WANTED - 5),
        (NEEDED, resource.RLIM_INFINITY, WANTED),
        (NEEDED, NEEDED, None),
        (WANTED, WANTED + 5, None),
        (WANTED + 5, resource.RLIM_INFINITY, None),
    ],
)
def test_descriptors_are_raised_to_what_is_needed(soft: int, hard: int, raised: int | None) -> None:
    limits = {
        resource.RLIMIT_NOFILE: (soft, hard),
        resource.RLIMIT_AS: (resource.RLIM_INFINITY,) * 2,
    }
    with (
        patch.object(resource, "getrlimit", limits.__getitem__),
        patch.object(resource, "setrlimit") as set_limit,
    ):
        check_process_limits(graphs=2, checkpoint_bytes=0, connections=100)
    if raised is None:
        set_limit.assert_not_called()
    else:
        set_limit.assert_called_once_with(resource.RLIMIT_NOFILE, (raised, hard))


def test_too_small_an_address_space_is_refused() -> None:
    limits = {resource.RLIMIT_NOFILE: (4096, 4096), resource.RLIMIT_AS: (2_048_000_000, 1)}
    refusal = (
        r"^the process is limited to 2,048,000,000 bytes of address space \(ulimit -v\); "
        r"expected [0-9,]+ or more for 64 graphs$"
    )
    with (
        patch.object(resource, "getrlimit", limits.__getitem__),
        pytest.raises(ProcessLimitTooLow, match=refusal),
    ):
        check_process_limits(graphs=64, checkpoint_bytes=0, connections=100)
