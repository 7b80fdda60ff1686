"""What keeps the project: commands that are said in several places are the same there, and files
that only a host of repositories reads are valid.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests import conftest, tiers

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
SCHEMAS = {
    **dict.fromkeys(WORKFLOWS, "github-workflows"),
    **{path: f"github-issue-{'config' if path.stem == 'config' else 'forms'}" for path in FORMS},
    ROOT / "compose.yaml": "compose-spec",
}


def text_of(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def recipes() -> dict[str, list[str]]:
    """The lines of each recipe of the justfile that is not private, without its arguments."""
    text = re.sub(r"^\[private\]\n.*\n(?:    .*\n)*", "", text_of("justfile"), flags=re.MULTILINE)
    found = re.findall(r"^(\w+)[^\n:]*:\n((?:    .*\n)+)", text, re.MULTILINE)
    return {
        name: [re.sub(r" ?\{\{.*?\}\}", "", line).strip() for line in lines.splitlines()]
        for name, lines in found
    }


COMMANDS = [command for lines in recipes().values() for command in lines]

SAID_IN = {
    "setup": "README.md",
    "test": "README.md",
    "quick": "docs/tests.md",
    "deep": "docs/tests.md",
    "lint": ".ci/run",
    "types": ".ci/run",
    "bench": "benchmarks/README.md",
    "docs": "mkdocs.yml",
    "demo": "README.md",
    "wheel": ".github/workflows/wheels.yml",
    "image": ".github/workflows/images.yml",
}
"""Where users and machines read a recipe's commands; in a document without the folder."""


@pytest.mark.parametrize("name", SAID_IN)
def test_a_recipe_is_what_is_said_elsewhere(name: str) -> None:
    said = text_of(SAID_IN[name])
    for command in recipes()[name]:
        assert command.removeprefix(".venv/bin/") in said or command in said, command


def test_every_recipe_is_compared_and_named_for_contributors() -> None:
    assert set(recipes()) == set(SAID_IN)
    listed = text_of("CONTRIBUTING.md").split("lists them: ")[1].split(". It is optional")[0]
    assert re.findall(r"`(\w+)`", listed) == list(recipes())


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_recipe_runs_is_there(command: str) -> None:
    extras = PROJECT["optional-dependencies"]
    installed = {re.split(r"\W", each)[0] for name in ("docs", "test") for each in extras[name]}
    installed |= {*PROJECT["scripts"], "python", "pip"}
    for part in command.split(" && "):
        program, *arguments = [word for word in part.split() if "LIVERANK_" not in word]
        arguments = [each.strip('"') for each in arguments]
        if program.startswith(".venv/bin/"):
            assert program.removeprefix(".venv/bin/") in installed
        elif "/" in program:
            assert (ROOT / program).is_file()
        for path in arguments:
            assert not path.startswith("tests/") or (ROOT / path).exists(), path
        if "-m" in arguments[:1]:
            module = arguments[1].rstrip(".").replace(".", "/")
            there = (ROOT / module).is_dir() or (ROOT / f"{module}.py").is_file()
            assert there or module in ("venv", "pip")


def test_hooks_run_what_the_script_runs_and_fetch_nothing() -> None:
    (local,) = yaml.safe_load(text_of(".pre-commit-config.yaml"))["repos"]
    assert local["repo"] == "local"
    assert {hook["language"] for hook in local["hooks"]} == {"system"}
    for hook in local["hooks"]:
        assert hook["entry"] in text_of(".ci/run")


def test_the_changelog_has_a_date_for_each_version_and_kinds_of_changes_for_the_next() -> None:
    first, *others = re.split(r"^## ", text_of("CHANGELOG.md"), flags=re.MULTILINE)[1:]
    assert first.startswith("[Unreleased]\n")
    kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    assert set(re.findall(r"^### (.*)", first, re.MULTILINE)) <= set(kinds)
    dated = [re.match(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)\n", each) for each in others]
    found = [match.groups() for match in dated if match]
    assert len(found) == len(others)
    assert found[0][0] == PROJECT["version"]
    assert [date for _, date in found] == sorted((date for _, date in found), reverse=True)


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text("utf-8"))["jobs"].values():
            assert "timeout-minutes" in job
            yield from ((path.name, step) for step in job["steps"])


def test_workflows_run_scripts_that_are_there() -> None:
    scripts = [
        step["run"] for _, step in steps() if re.fullmatch(r"\.?[\w/]+(\.sh)?", step.get("run", ""))
    ]
    assert set(scripts) == {".ci/run", "docker/test.sh"}
    for script in scripts:
        assert (ROOT / script).stat().st_mode & 0o100


def test_the_versions_of_python_are_those_that_are_tested() -> None:
    said = re.findall(r":: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    tests = yaml.safe_load(text_of(".github/workflows/tests.yml"))["jobs"]["tests"]
    assert tests["strategy"]["matrix"]["python"] == said
    assert PROJECT["requires-python"] == f">={said[0]}"


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_files_for_other_programs_follow_their_schema(path: Path) -> None:
    checker = pytest.importorskip("check_jsonschema", reason="it is part of the extra `test`")
    with pytest.raises(SystemExit) as ended:
        checker.main(["--builtin-schema", f"vendor.{SCHEMAS[path]}", str(path)])
    assert ended.value.code == 0


def test_tiers_name_tests_that_are_there() -> None:
    for prefix in (*tiers.QUICK, *tiers.DEEP):
        file, _, test = prefix.partition("::")
        files = [*ROOT.glob(f"{file}*")]
        assert files, prefix
        if test:
            assert f"def {test.split('[')[0]}" in files[0].read_text("utf-8"), prefix


@pytest.mark.parametrize(
    ("marker", "used"),
    [
        ("browser", r"\(.*\bbrowser: Browser"),
        ("proxy", r'program\("haproxy"\)'),
        ("brokers", r"\(.*\b(redis_broker|rabbitmq_broker): Process|\brabbitmq_server\("),
    ],
)
def test_what_needs_a_program_has_its_marker(marker: str, used: str) -> None:
    files = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(used, path.read_text("utf-8"))
    ]
    prefixes = tiers.PROGRAMS[marker]
    assert files
    for file in files:
        assert any(prefix.startswith(file) or file.startswith(prefix) for prefix in prefixes), file


def test_both_tiers_are_all_tests() -> None:
    named = "tests/gpu/pagerank/test_gate.py", "tests/gpu/test_device_errors.py"
    program = f"""
import pytest
for chosen in [], ["-m", "deep"], ["-m", "not deep"]:
    pytest.main(["-q", "--collect-only", "-p", "no:cacheprovider", *chosen, *{named}])
    print("<end>")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    whole, deep, default, _ = (
        {line for line in part.splitlines() if line.startswith("tests/")}
        for part in done.stdout.split("<end>")
    )
    assert deep | default == whole
    assert not deep & default
    assert any("test_every_error_of_the_device" in each for each in deep)
    # every other test of the engine runs on the emulated device in the default tier too, once
    of = [re.sub(r"\[.*", "", each) for each in default if "emulated" in each]
    every = {re.sub(r"\[.*", "", each) for each in whole if "emulated" in each}
    assert len(of) == len(set(of)) == -(-len(every) // 2)
    assert every == {re.sub(r"\[.*", "", each) for each in whole if "[cpu" in each}


def test_a_path_is_a_choice_of_tests() -> None:
    def names(*arguments: str) -> bool:
        config: Any = SimpleNamespace(
            args=arguments,
            rootpath=ROOT,
            invocation_params=SimpleNamespace(dir=ROOT),
            getini=lambda _: ["tests"],
        )
        return conftest._names_tests(config)

    assert not names("tests")
    assert not names(str(ROOT / "tests"))
    assert names("tests/gpu")
    assert names("tests/test_project.py::test_a_path_is_a_choice_of_tests")
    assert names("tests", "docs")
