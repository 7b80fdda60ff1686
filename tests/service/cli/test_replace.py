"""`liverank replace`."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from liverank import Client


def counts(printed: str) -> tuple[int, int, int]:
    """Of a receipt: edges inserted, kept and deleted."""
    receipt = json.loads(printed)
    kept = receipt["already_present"] + receipt["reweighted"]
    return receipt["inserted"], kept, receipt["deleted"]


@pytest.mark.parametrize(("keys", "names"), [("string", "abc"), ("integer", "123")])
def test_the_list_of_a_vertex_becomes_what_is_said(
    run: Any, url: str, keys: Literal["string", "integer"], names: str
) -> None:
    a, b, c = list(names)
    with Client(url) as client:
        client.create(f"of-{keys}", keys=keys)
    command = ("replace", "--url", url, "--graph", f"of-{keys}", "--json", a)
    code, printed, _ = run(*command, b)
    assert (code, counts(printed)) == (0, (1, 0, 0))
    code, printed, _ = run(*command, b, c)
    assert (code, counts(printed)) == (0, (1, 1, 0))
    code, printed, _ = run(*command)
    assert (code, counts(printed)) == (0, (0, 0, 2))
    with Client(url) as client:
        assert client.graph(f"of-{keys}").edges == 0
