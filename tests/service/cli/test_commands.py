"""The command `liverank`: parsing, printing and errors."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import typer

import liverank.client.connection
from liverank import choices
from liverank.client import Client
from liverank_gpu import STRATEGIES, BackendName
from liverank_service.cli import display
from liverank_service.cli import main as cli
from liverank_service.cli.commands import options
from liverank_service.settings import Settings

# Parsing and printing


def imported_by(arguments: list[str], heavy: set[str]) -> subprocess.CompletedProcess[str]:
    """Runs the command, which ends stderr with its exit status and what it imported of `heavy`."""
    program = (
        "import sys; from liverank_service.cli import main as cli\n"
        f"try: cli.main({arguments!r})\n"
        "except SystemExit as end: code = end.code\n"
        f"print(code, set({sorted(heavy)!r}) & set(sys.modules), file=sys.stderr)"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_ctrl_c_while_the_command_is_imported_has_its_exit_code() -> None:
    program = (
        "import sys\nfrom liverank_service.cli.__main__ import main\n"
        "class Interrupt:\n"
        "    def find_spec(self, *_): raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\nmain()"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_help_names_every_command_and_imports_nothing_heavy() -> None:
    heavy = {"numpy", "pyarrow", "fastapi", "httpx", "uvicorn"}
    done = imported_by(["--help"], heavy)
    assert done.stderr == "0 set()\n"
    for name in ("serve", "load", "replay", "rank", "top", "get", "ppr", "generate", "demo"):
        assert f"\n  {name} " in done.stdout


def test_a_small_file_is_ranked_without_what_only_others_need(tmp_path: Path) -> None:
    pytest.importorskip("pandas")  # which Arrow imports to convert arrays
    edges = tmp_path / "edges.txt"
    edges.write_text("a b\nb c\n")
    heavy = {"pandas", "httpx", "fastapi", "uvicorn", "polars", "networkx"}
    heavy |= {f"liverank_gpu.{part}" for part in ("out_of_core", "sharded.cluster")}
    done = imported_by(["rank", str(edges), "--json"], heavy)
    assert done.stderr.endswith("0 set()\n"), done.stderr
    assert [row["vertex"] for row in json.loads(done.stdout)["ranks"]] == ["c", "b", "a"]


@pytest.mark.parametrize("group", [(), ("generate",), ("keys",), ("export",), ("program",)])
def test_no_summary_of_a_command_is_cut_off_in_80_columns(
    group: tuple[str, ...], run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(*group, "--help")
    usage, *rest = out.splitlines()
    assert usage.startswith("Usage:")
    assert [line for line in rest if line.endswith("...")] == []


def test_what_asks_a_server_imports_neither_engine_nor_web_framework_even_when_it_fails() -> None:
    heavy = {"numpy", "pyarrow", "fastapi", "uvicorn"}
    done = imported_by(["top", "--url", "http://127.0.0.1:9"], heavy)
    assert done.stderr.startswith("liverank: no answer from http://127.0.0.1:9 ")
    assert done.stderr.endswith("\n1 set()\n")


@pytest.mark.parametrize(("module", "name"), cli._EXPECTED.items())
def test_expected_errors_are_named_as_they_are_called(module: str, name: str) -> None:
    assert issubclass(getattr(importlib.import_module(module), name), Exception)


def test_the_version_is_that_of_the_package(run: Any) -> None:
    assert run("--version") == (0, f"liverank {metadata.version('liverank')}\n", "")


def test_the_help_of_serve_names_the_defaults_of_the_settings(run: Any) -> None:
    _, out, _ = run("serve", "--help")
    options = re.split(r"\n  --", out)[1:]
    named = {
        text.split()[0]: re.findall(r"\[([^]=]+)\]", " ".join(text.split())) for text in options
    }
    for name in ("data", "backend", "shards", "host", "port"):
        assert named[name][-1] == str(Settings.model_fields[name].default)


def test_exactly_the_documented_exit_codes_are_in_the_help(run: Any) -> None:
    text = (Path(__file__).parents[3] / "docs" / "operations-reference.md").read_text("utf-8")
    table = text.split("| exit code |")[1].split("\n\n")[0]
    documented = re.findall(r"^\| (\d+) \|", table, re.MULTILINE)
    _, out, _ = run("--help")
    codes = " ".join(out.split("Exit codes:")[1].split())
    assert re.findall(r"\b(\d+) (?=[a-z])", codes) == documented


@pytest.mark.parametrize("module", ["liverank", "liverank_service.cli"])
def test_the_module_runs_as_the_command_does(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "generate", "--help"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "rmat" in done.stdout
    assert "grid" in done.stdout


def test_choices_are_those_of_the_engine_and_the_address_that_of_the_client() -> None:
    assert set(get_args(choices.Strategy)) == set(STRATEGIES)
    assert set(get_args(options.Backend)) == set(get_args(BackendName))
    assert liverank.client.DEFAULT_URL == options.DEFAULT_URL


def test_the_help_of_an_option_says_what_its_table_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["load", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "--target-error <float> L1 error at which auto stops; above 0, at most 2 [1e-6]." in told
    assert "--undirected An edge is followed either way, and is one edge." in told
    assert "--clock <wall|event> event: the largest time" in told
    assert "needs --dangling uniform, and makes the graph weighted." in told
    assert "--forget-vertices Vertices leave with their last edge by age; only with" in told


@pytest.mark.parametrize("command", ["top", "explain", "ppr", "rank", "analyse"])
def test_the_number_of_places_has_the_same_name_everywhere(command: str, run: Any) -> None:
    _, out, _ = run(command, "--help")
    assert re.search("^  -k, .*--k <int range>", out, re.MULTILINE)


def test_options_of_a_table_are_passed_if_they_are_given() -> None:
    given = options.NEW_GRAPH(damping=None, directed=True, forget_vertices=False, window=0.0)
    assert given == {"directed": False, "window": 0.0}


def _commands(app: typer.Typer, *above: str) -> Iterator[tuple[str, Any]]:
    for each in app.registered_commands:
        name = each.name or each.callback.__name__  # type: ignore[union-attr]
        yield " ".join([*above, name]), each.callback
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from _commands(group.typer_instance, *above, *([group.name] if group.name else []))


def test_no_command_has_a_group_of_options_as_one_parameter() -> None:
    whole = {
        name: parameter
        for name, command in _commands(cli.app)
        for parameter, kind in inspect.get_annotations(command, eval_str=True).items()
        if is_dataclass(kind) or any(isinstance(each, options.Of) for each in get_args(kind))
    }
    assert whole == {}


def test_commands_have_at_most_six_parameters_of_their_own() -> None:
    counts = {
        name: len(inspect.signature(inspect.unwrap(command)).parameters)
        for name, command in _commands(cli.app)
    }
    assert {name: count for name, count in counts.items() if count > 6} == {}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["rank"], "Missing argument 'FILE'"),
        (["rank", "/nowhere/at/all.txt"], "file '/nowhere/at/all.txt' does not exist"),
        (["rank", "/dev/null"], "file '/dev/null' is no regular file; - reads stdin"),
        (["top", "--k", "0"], "'--k' / '-k': Input should be greater than or equal to 1"),
        (["rank", __file__, "--strategy", "fast"], "'fast' is not one of 'auto', 'static'"),
        (["generate", "rmat"], "Missing option '--out'"),
    ],
)
def test_wrong_usage_ends_with_2(run: Any, arguments: list[str], complaint: str) -> None:
    code, out, error = run(*arguments)
    assert (code, out) == (2, "")
    assert complaint in error


def test_an_unexpected_error_is_one_line_with_its_location(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("a fault\nof ours")

    monkeypatch.setattr(Client, "top", fail)
    code, out, error = run("top")
    assert (code, out) == (1, "")
    assert error.startswith("liverank: unexpected KeyError at ")
    assert "test_commands.py:" in error
    assert error.count("\n") == 1


def test_what_could_steer_the_terminal_is_escaped() -> None:
    assert display.printable("Zoë [bold]") == "Zoë [bold]"
    assert display.printable("a\x1b[2Jb\nc") == "a\\u001b[2Jb\\nc"
    assert display.printable(-5) == "-5"


def test_places_that_tie_are_named() -> None:
    answer: Any = SimpleNamespace(groups=[1, 3, 1200, 1], ties=[1, 2, 3])
    assert display.tie_lines(answer) == [
        "proven equal: places 2 to 4",
        "proven equal: places 5 to 1,204",
    ]
    assert display.tie_lines(answer, 10) == [
        "proven equal: places 12 to 14",
        "proven equal: places 15 to 1,214",
    ]
