"""docs/python.md: its examples run. The reference names exactly the arguments of pagerank."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

import liverank
from tests.service.server import running
from tools.reference.pages import DOCUMENTS, page

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "python.md").read_text("utf-8")


def test_the_examples_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # where examples write files
    with running(tmp_path / "data") as server:
        url = str(server.http.base_url).rstrip("/")
        monkeypatch.setenv("LIVERANK_URL", url)
        names: dict[str, Any] = {}
        monkeypatch.setattr(nx.config, "warnings_to_ignore", set())
        for example in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
            exec(example.replace("http://127.0.0.1:8080", url), names)
    printed = capsys.readouterr().out.splitlines()
    assert "5 1000" in printed
    assert any(line.startswith("3 ") for line in printed), "the vertex that entered the top"
    assert printed[-1] == "1100 0"
    assert sum(names["ranks"].values()) == pytest.approx(1)


def test_exactly_the_extras_for_users_are_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for_developers = {"docs", "bench", "fuzz", "test"}
    table = TEXT.split("| install |")[1].split("\n\n")[0]
    named = set(re.findall(r"\[(\w+)\]['`]", table))
    assert named == set(project["optional-dependencies"]) - for_developers


def test_exactly_the_arguments_of_pagerank_are_explained() -> None:
    explained = page(DOCUMENTS / "python-api.md").split("\n### pagerank\n")[1].split("\n### ")[0]
    rows = re.findall(r"^\| `([\w, ]+)` \|", explained, re.MULTILINE)
    named = {name for row in rows for name in row.split(", ")}
    assert named == set(inspect.signature(liverank.pagerank).parameters) - {"edges"}


def test_the_extras_are_those_of_the_project() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for extra in re.findall(r"\[(\w+)\]['`]", TEXT):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra


def test_what_is_printed_installs_from_a_clone_since_no_index_has_the_project() -> None:
    folders = [ROOT / name for name in ("docs", "gpu", "liverank", "service", "examples", "docker")]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    for path in (*files, ROOT / "README.md", ROOT / "benchmarks" / "README.md"):
        if path.suffix in (".md", ".py", ".ipynb", ".yaml", ".yml", ".toml", ".sh"):
            assert not re.search(r"pip install (-\w+ )*['`]?liverank", path.read_text("utf-8")), (
                path
            )


def test_the_readme_makes_each_graph_once() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    made = re.findall(r"-X PUT \S+/graphs/(\w+)|liverank load \S+ --graph (\w+)", text)
    names = [put or loaded for put, loaded in made]
    assert len(names) == len(set(names)) == 2
