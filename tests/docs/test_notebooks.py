"""The notebooks in examples/ are stored without outputs, and their cells run one after the other.

As a program, this file runs one notebook: `python -P tests/docs/test_notebooks.py NOTEBOOK`. A
process of its own has what a kernel has: fresh modules, and whatever a notebook leaves behind ends
with it.
"""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
MOST_CELLS = 25
SECONDS = 300

EXTRAS = {
    "matplotlib": ("plot", r"\.plot\("),
    "networkx": ("networkx", r"^import networkx"),
    "pandas": ("pandas", r"^import pandas|\.to_pandas\("),
}
"""Packages that a notebook may use beside those of the server: the extra that installs each, and by
what a notebook is known to use it.
"""

SAID = {
    "live": ["entered ['grace', 'ada']"],
    "ranking": ["page 3  page 388", "page 3  page 371"],
    "retrieval": ["'note 7' is not allowed", "[note 4] Mira Voss", "[note 8] Mira Voss"],
}
"""Parts of what a notebook prints that its text speaks of."""


def _sources(notebook: Path, kind: str) -> list[str]:
    """The cells of a kind, in order."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]


def _used(notebook: Path) -> list[str]:
    """The packages of EXTRAS that a notebook uses."""
    code = "\n".join(_sources(notebook, "code"))
    return [name for name, (_, use) in EXTRAS.items() if re.search(use, code, re.MULTILINE)]


def _run(notebook: Path) -> None:
    """Runs the cells in one namespace. The last expression of each is shown as a notebook shows it.

    Raises what a cell raises, and ResourceWarning for a process that a notebook started and left.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, source in enumerate(_sources(notebook, "code"), start=1):
        file = f"{notebook.name}, code cell {number}"
        tree = ast.parse(source, file)
        shown = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, file, "exec"), names)
        if isinstance(shown, ast.Expr):
            value = eval(compile(ast.Expression(shown.value), file, "eval"), names)
            if value is not None:
                print(f"{file}: {value!r}")
            getattr(value, "_repr_html_", str)()
    for name, value in names.items():
        if isinstance(value, subprocess.Popen) and value.returncode is None:
            raise ResourceWarning(f"{notebook.name} does not end {name!r}")


def _execute(notebook: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a notebook in a process whose working directory is `folder`. Warnings are errors."""
    return subprocess.run(
        [sys.executable, "-P", "-W", "error", __file__, str(notebook)],
        cwd=folder,
        env={**os.environ, "MPLBACKEND": "agg", "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_there_are_notebooks() -> None:
    assert [each.stem for each in NOTEBOOKS] == sorted(SAID)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_what_a_run_leaves(notebook: Path) -> None:
    text = notebook.read_text("utf-8")
    document = json.loads(text)
    assert set(document) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    assert document["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    cells = document["cells"]
    assert 0 < len(cells) <= MOST_CELLS
    for cell in cells:
        expected: dict[str, Any] = {"metadata": {}, "cell_type": cell["cell_type"]}
        if cell["cell_type"] == "code":
            expected |= {"outputs": [], "execution_count": None}
        else:
            assert cell["cell_type"] == "markdown"
        source = cell.pop("source")
        assert re.fullmatch(r"[\w-]{1,64}", cell.pop("id"))
        assert cell == expected
        assert source, "an empty cell"
        assert all(line.endswith("\n") for line in source[:-1])
        assert not source[-1].endswith("\n")
    again = json.loads(text)
    assert len({cell["id"] for cell in again["cells"]}) == len(cells)
    # as Jupyter writes it, so that saving changes nothing else
    assert text == json.dumps(again, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_first_cell_says_what_to_install(notebook: Path) -> None:
    (extras,) = re.findall(r"pip install -e '\.\[(.*)\]'", _sources(notebook, "markdown")[0])
    assert set(extras.split(",")) == {"server", *(EXTRAS[name][0] for name in _used(notebook))}
    assert f"jupyter lab examples/{notebook.name}" in _sources(notebook, "markdown")[0]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_links_of_a_notebook_lead_to_files(notebook: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", "\n".join(_sources(notebook, "markdown")))
    assert links
    for link in links:
        assert (notebook.parent / link).is_file(), link


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    for name in _used(notebook):
        pytest.importorskip(name, reason=f"{notebook.name} uses {name}")
    done = _execute(notebook, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for said in SAID[notebook.stem]:
        assert said in done.stdout
    assert not list(tmp_path.iterdir()), "it leaves files behind"


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("unknown + 1", "NameError: name 'unknown' is not defined"),
        ("class Bad:\n    def __repr__(self):\n        raise OSError('shown')\n\nBad()", "shown"),
        ("class Bad:\n    def _repr_html_(self):\n        return 1 / 0\n\nBad()", "ZeroDivision"),
        ("import warnings\n\nwarnings.warn('look out')", "UserWarning: look out"),
        ("import subprocess\n\nchild = subprocess.Popen(['true'])", "does not end 'child'"),
    ],
)
def test_a_broken_cell_is_found(tmp_path: Path, cell: str, message: str) -> None:
    sources = "print('before')", cell
    cells = [{"cell_type": "code", "source": source.splitlines(True)} for source in sources]
    notebook = tmp_path / "broken.ipynb"
    notebook.write_text(json.dumps({"cells": cells}), "utf-8")
    done = _execute(notebook, tmp_path)
    assert done.returncode != 0
    assert done.stdout.startswith("before\n")
    assert message in done.stderr


if __name__ == "__main__":
    # what hangs ends by an exception, so that its servers are stopped
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"not finished after {SECONDS} s"))
    signal.alarm(SECONDS)
    _run(Path(sys.argv[1]))
