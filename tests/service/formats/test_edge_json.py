"""Keys of NDJSON files stay as they are written, or are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverank_service.formats.edge_files import read_edge_list
from liverank_service.formats.edge_list import EdgeList, EdgeListError
from tests.service.formats.edges_of_files import pairs


def read(directory: Path, content: str) -> EdgeList:
    path = directory / "edges.ndjson"
    path.write_text(content, encoding="utf-8", newline="")
    return read_edge_list(path)


DATE, TIME = "2020-01-02", "2020-01-02 03:04:05"


def test_keys_that_look_like_times_are_strings(tmp_path: Path) -> None:
    edges = read(tmp_path, f'{{"time": "{TIME}", "source": "{DATE}", "target": "{TIME}"}}')
    assert pairs(edges) == [(DATE, TIME)]
    assert edges.times is not None
    assert edges.times.tolist() == [1577934245.0]


def test_the_first_two_columns_remain_the_first(tmp_path: Path) -> None:
    lines = f'{{"a": "x", "content": "{DATE}", "c": 1}}\n{{"content": "{TIME}", "a": "y", "c": 2}}'
    edges = read(tmp_path, lines)
    assert pairs(edges) == [("x", DATE), ("y", TIME)]
    assert edges.unread == ("c",)


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(EdgeListError, match="a JSON array is not read"):
        read(tmp_path, '\ufeff[["a", "b"]]')


@pytest.mark.parametrize(
    ("key", "found"),
    [("18446744073709551615", "double"), ("2.5", "double"), ("true", "bool")],
)
def test_other_keys_are_refused(tmp_path: Path, key: str, found: str) -> None:
    """Two integers of more than 64 bits would become one key."""
    with pytest.raises(EdgeListError) as caught:
        read(tmp_path, f'{{"source": {key}, "target": "a"}}')
    expected = "expected a column of strings or integers below 2**63"
    assert caught.value.message == f"column 'source' does not hold keys: {expected}, got {found}"


def test_a_blank_line_is_not_blamed_for_another(tmp_path: Path) -> None:
    lines = ['{"source": 1, "target": 2}', "", '{"source": "a", "target": 2}', ""]
    with pytest.raises(EdgeListError, match="changed from number to string"):
        read(tmp_path, "\r\n".join(lines))
