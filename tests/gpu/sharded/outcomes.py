"""What the tests showed that ran with engines in shards: counted by a plugin of pytest.

A process that runs tests attaches it to their reports, which pytest-xdist sends to the one that
counts them.
"""

from __future__ import annotations

from collections import Counter

import pytest

_PROPERTY = "shards"
"""Of a report: what it shows."""

_REASONS = ("refused: ", "looks at parts: ", "not run: ")
"""What skips that are about shards begin with."""


class Outcomes:
    """Numbers of tests.

    kinds    by what they showed
    reasons  by why they were refused, or did not run
    """

    def __init__(self, shards: int) -> None:
        self.kinds = Counter[str]()
        self.reasons = Counter[str]()
        self._shards = shards

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, shown in report.user_properties:
            if name == _PROPERTY:
                kind, _, reason = str(shown).partition(": ")
                self.kinds[kind] += 1
                if reason:
                    self.reasons[str(shown)] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"{self._shards} shards")
        for counted in (self.kinds, self.reasons):
            for shown, number in counted.most_common():
                terminalreporter.line(f"{number:5}  {shown}")


def attach(report: pytest.TestReport, has_engine: bool) -> None:
    """Has a report say what its test showed.

    has_engine  whether the test had an engine in shards
    """
    if report.failed:
        shown = "failed"
    elif report.passed:
        shown = "passed" if has_engine else "without an engine"
    else:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        shown = reason.removeprefix("Skipped: ")
        if not shown.startswith(_REASONS):
            shown = f"skipped: {shown}"
    report.user_properties.append((_PROPERTY, shown))
