"""``pytest tests/gpu --shards 3`` runs the tests of the engine with engines in three worker
processes: see tests/gpu/sharded/suite.py. Without the option nothing here does anything.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.gpu.sharded.outcomes import Outcomes, attach
from tests.gpu.sharded.suite import LEFT_OUT, NotInShards, Suite, take_own_cores

SUITE = pytest.StashKey[Suite]()


def _suite(config: pytest.Config) -> Suite | None:
    return config.stash.get(SUITE, None)


def pytest_configure(config: pytest.Config) -> None:
    if shards := config.getoption("--shards"):
        config.pluginmanager.register(Outcomes(shards))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    shards = config.getoption("--shards")
    if not shards:
        return
    backends = config.getoption("--backend") or ["cpu"]
    if backends not in (["cpu"], ["cuda"]):
        raise pytest.UsageError(f"--shards: expected --backend cpu or cuda, got {backends}")
    take_own_cores()
    config.stash[SUITE] = suite = Suite(shards, backends[0])
    here = Path(__file__).parent
    for item in items:
        name = f"{item.path.relative_to(here).as_posix()}::{item.name}"
        reasons = [reason for prefix, reason in LEFT_OUT.items() if name.startswith(prefix)]
        if reasons:
            item.add_marker(pytest.mark.skip(reason=f"not run: {reasons[0]}"))
        # Dask's own warnings are not ours
        item.add_marker(pytest.mark.filterwarnings("default"))
    suite.replace_engines()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    suite = _suite(item.config)
    if suite is None:
        return (yield)
    suite.begin()
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
    refused = isinstance(call.excinfo.value, NotInShards) if call.excinfo else bool(suite.refusals)
    if refused and call.when != "teardown":
        reason = suite.refusals[0] if suite.refusals else str(call.excinfo.value)  # type: ignore[union-attr]
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"refused: {reason}")
    if call.when == "call" or report.outcome != "passed":
        attach(report, has_engine=bool(suite.engines))
    return report


def pytest_unconfigure(config: pytest.Config) -> None:
    suite = _suite(config)
    if suite is not None:
        suite.close()
