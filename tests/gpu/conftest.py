"""``pytest tests/gpu --shards 3`` runs the tests of the engine with engines in three worker
processes: see tests/gpu/sharded/suite.py. Without the option nothing here does anything.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from unittest.mock import patch

import pytest

from gpu import Unsupported
from tests.gpu.sharded.suite import LEFT_OUT, Suite

SUITE = pytest.StashKey[Suite]()


def _suite(config: pytest.Config) -> Suite | None:
    return config.stash.get(SUITE, None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    shards = config.getoption("--shards")
    if not shards:
        return
    config.stash[SUITE] = suite = Suite(shards)
    here = Path(__file__).parent
    left_out = []
    for item in items:
        name = f"{item.path.relative_to(here).as_posix()}::{item.name}"
        reasons = [reason for prefix, reason in LEFT_OUT.items() if name.startswith(prefix)]
        if reasons:
            suite.left_out[reasons[0]] += 1
            left_out.append(item)
        # Dask's own warnings are not ours
        item.add_marker(pytest.mark.filterwarnings("default"))
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]
    suite.replace_engines()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    suite = _suite(item.config)
    if suite is None:
        return (yield)
    suite.begin()
    recorded, create = suite.refusals, Unsupported.__init__

    def record(error: Unsupported, *arguments: object) -> None:
        create(error, *arguments)  # type: ignore[arg-type]
        recorded.append(str(error))

    with patch.object(Unsupported, "__init__", record):
        try:
            return (yield)
        finally:
            suite.end()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A refusal is no failure, and what follows one is no success."""
    report = yield
    suite = _suite(item.config)
    if suite is None:
        return report
    refused = isinstance(call.excinfo.value, Unsupported) if call.excinfo else bool(suite.refusals)
    if refused and call.when != "teardown":
        reason = suite.refusals[0] if suite.refusals else str(call.excinfo.value)  # type: ignore[union-attr]
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"refused: {reason}")
    if call.when == "call" or report.outcome != "passed":
        _count(suite, report)
    return report


def _count(suite: Suite, report: pytest.TestReport) -> None:
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        reason = reason.removeprefix("Skipped: ")
        kind = next(
            (each for each in ("refused", "looks at parts") if reason.startswith(each)), "skipped"
        )
        suite.outcomes[kind] += 1
        if kind == "refused":
            suite.refused[reason] += 1
    elif report.failed:
        suite.outcomes["failed"] += 1
    else:
        suite.outcomes["passed" if suite.engines else "without an engine"] += 1


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    suite = _suite(config)
    if suite is None:
        return
    terminalreporter.section(f"{suite.shards} shards")
    for kind, number in suite.outcomes.most_common():
        terminalreporter.line(f"{number:5}  {kind}")
    for title, counted in (("refused", suite.refused), ("not run", suite.left_out)):
        for reason, number in counted.most_common():
            terminalreporter.line(f"{number:5}  {title}: {reason.removeprefix('refused: ')}")


def pytest_unconfigure(config: pytest.Config) -> None:
    suite = _suite(config)
    if suite is not None:
        suite.close()
