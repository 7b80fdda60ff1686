"""The limits of the process are raised where they are too low, and otherwise left as they are."""

from __future__ import annotations

import resource
from unittest.mock import patch

import pytest

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
