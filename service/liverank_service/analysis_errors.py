"""What can go wrong with analyses; see liverank_service.errors.

ServiceError
├── UnknownAnalysis    the graph has no analysis with that id
├── TooManyAnalyses    the graph has as many analyses as it may
└── NoAnswer           an analysis has no answer: it has not finished
"""

from __future__ import annotations

from liverank_service.errors import ServiceError


class UnknownAnalysis(ServiceError):
    def __init__(self, graph: str, identity: str) -> None:
        self.field, self.value = "analysis", identity
        super().__init__(f"graph {graph!r} has no analysis {identity!r}")


class TooManyAnalyses(ServiceError):
    def __init__(self, graph: str, limit: int, unfinished: int) -> None:
        super().__init__(
            f"graph {graph!r} has {limit:,} analyses, which is its limit; {unfinished:,} of them "
            "are queued or running; delete one first"
        )


class NoAnswer(ServiceError):
    def __init__(self, identity: str, state: str) -> None:
        self.field, self.value = "analysis", identity
        super().__init__(f"analysis {identity!r} has no answer; it is {state}")
