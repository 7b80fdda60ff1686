"""Every block of code on the pages for readers runs, and prints what the page says."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest

from tests.crash.nursery import Nursery
from tests.docs.examples import ROOT, Examples, matches

PAGES = [
    ROOT / "docs" / name
    for name in (
        "index.md",
        "tutorial.md",
        "algorithm.md",
        "how-to/data-science.md",
        "how-to/backend.md",
        "how-to/retrieval.md",
        "how-to/trust.md",
        "programs.md",
        "out-of-core.md",
    )
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nursery: Nursery
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LIVERANK_URL", "http://127.0.0.1:9")  # restored afterwards
    monkeypatch.setattr(nx.config, "warnings_to_ignore", {"cache"})
    examples = Examples(page, tmp_path, nursery)
    try:
        examples.run()
    finally:
        examples.close()
    assert examples.ran == examples.count > 0


def test_what_is_printed_is_compared() -> None:
    assert matches("a 0.125 b\n", "a 0.1… b", is_json=False)
    assert matches('{"a":[1,2]}', '{"a":[1,\n 2]}', is_json=True)
    assert not matches("a 0.225 b", "a 0.1… b", is_json=False)
    assert not matches("a\nb", "a b", is_json=False)
    assert not matches("a b c", "a b", is_json=False)
