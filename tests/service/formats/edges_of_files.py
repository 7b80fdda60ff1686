"""What files of edges are read as, and how they are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from liverank_service.formats.edge_list import EdgeList, EdgeListError

Read = Callable[..., EdgeList]


def pairs(edges: EdgeList) -> list[tuple[object, object]]:
    return list(zip(edges.sources.to_pylist(), edges.targets.to_pylist(), strict=True))


def refusal(
    read: Read,
    content: str | bytes,
    name: str = "edges.txt",
    time: object = None,
    weight: object = None,
    source: object = None,
    target: object = None,
) -> str:
    """The message without the directory, which differs in every run."""
    with pytest.raises(EdgeListError) as caught:
        read(content, name, time, weight, source, target)
    error = caught.value
    line = "" if error.line is None else f", line {error.line}"
    assert str(error) == f"{error.path}{line}: {error.message}"
    return str(error).removeprefix(f"{error.path.parent}/")
