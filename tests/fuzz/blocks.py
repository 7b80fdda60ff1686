"""Cases in blocks. A block is determined by a seed and its number, and begins with empty graphs."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import get_args

from liverank.choices import KeyKind
from tests.fuzz.mutations import FORMATS, Case, Maker
from tests.fuzz.oracle import Oracle, decoded

SIZE = 1000


@dataclass
class Outcome:
    """The result of one block.

    decoded, refused  cases by format
    failures          the failed cases, with tracebacks
    """

    block: int
    decoded: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def run(seed: int, block: int, began: Callable[[int], None] = lambda _index: None) -> Outcome:
    """Runs the cases of a block; calls `began` with the index of each before it begins."""
    outcome = Outcome(block)
    maker = Maker(f"{seed}/{block}")
    oracles = {kind: Oracle() for kind in get_args(KeyKind)}
    for index in range(SIZE):
        case = maker.case()
        began(index)
        media_type = case.content_type.split(";")[0].strip().lower()
        name = media_type if media_type in FORMATS else "other"
        try:
            columns = decoded(case.content_type, case.body, case.kind)
            if columns is not None:
                oracles[case.kind].apply(columns)
            (outcome.refused if columns is None else outcome.decoded)[name] += 1
        except Exception:
            outcome.failures.append(described(index, case))
            oracles[case.kind] = Oracle()
    for kind, oracle in oracles.items():
        try:
            oracle.compare()
        except AssertionError:
            outcome.failures.append(f"the graph of {kind} keys\n{traceback.format_exc()}")
    return outcome


def described(index: int, case: Case) -> str:
    """Describes a failed case; call it while its error is handled."""
    return f"case {index}: {case!r}\n{traceback.format_exc()}"


def case_of(seed: int, block: int, index: int) -> Case:
    maker = Maker(f"{seed}/{block}")
    for _ in range(index):
        maker.case()
    return maker.case()
