"""Positions in the arrays of counts that kernels write and Python reads."""

from __future__ import annotations

from itertools import accumulate

_TALLY_WIDTHS = {
    "END": 1,
    "ROUNDS": 1,
    "VERTICES": 1,
    "ENTRIES": 1,
    "ADDITIONS": 1,
    "SELECTIONS": 1,
    "FINAL_LISTED": 1,
    "LISTED_COUNT": 3,
    "QUEUED_COUNT": 3,
    "QUEUED_EDGES": 3,
    "ITEMS": 3,
    "LARGEST": 3,
    "SUMS": 8,
    "THRESHOLD": 1,
    "SIZE": 0,
}

TALLY = dict(zip(_TALLY_WIDTHS, accumulate(_TALLY_WIDTHS.values(), initial=0), strict=False))
"""Positions in the tally of perturb.cu and push.cu, an int64 array that is read back at once: what
was counted, then the SUMS as float64, and the last θ. Counts with three positions use them in turn.
"""

PUBLISHED_COUNTS = (
    "LARGEST",
    "LARGEST_RELATIVE",
    "RECOMPUTED",
    "EDGES",
    "PRUNED",
    "ITERATIONS",
    "CONVERGED",
    "DONE",
)
"""What published.cu counts, by position in a uint64 array; the first two are bits of a float64."""

LISTED_COUNTS = {"SHORT": 5, "MIDDLE": 6, "PARTS": 7, "ITEMS": 8, "SIZE": 9}
"""Positions in the counts of an iteration of listed.cu, behind the first five of published.cu: its
list's short and middle rows, parts of long rows, and chunks of out-lists.
"""

CORE_COUNTS = {"REMAINING": 0, "QUEUED": 3, "LEAST": 6, "SIZE": 9}
"""Positions in the counts of cores.cu, three for each kind."""

PROGRAM_COUNTS = {
    "ACTIVE": 0,
    "ITEMS": 3,
    "RECEIVED": 6,
    "MESSAGES": 9,
    "SUPERSTEPS": 10,
    "CHANGED": 11,
    "FINAL": 14,
    "ACTIVE_EDGES": 15,
    "SIZE": 18,
}
"""Positions in the counts of run_active.cuh and run_all.cuh. Those with three places use them in
turn. FINAL: how many vertices are active after the last superstep, or whether any value changed.
"""

PAGE_COUNTS = {"USED": 0, "FAILED": 1, "LEFT": 2, "CROWDED": 3, "NEXT_ITEM": 4, "SIZE": 5}
"""Positions in the counts of pages.cu: pages in use, whether there was no room for a page, how many
pages have changes that are left for another round, how many a round does not edit in place, and the
next item of a sweep.
"""
