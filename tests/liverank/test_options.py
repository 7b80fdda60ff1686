"""The tables of options, and what is made of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from msgspec.structs import fields

from liverank import Client, choices, options
from liverank.client import batches
from liverank_gpu import METHODS, PUBLISHED_METHODS, STRATEGIES, TARGETS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("table", "keywords", "others"),
    [
        (options.GraphOptions, options.GraphKeywords, []),
        (options.SolveOptions, options.SolveKeywords, []),
        (options.BatchOptions, options.BatchKeywords, [*options.OF_SOME_BATCHES]),
        (options.RecomputeOptions, batches.RecomputeKeywords, []),
        (options.PersonalizedQuery, options.QueryKeywords, ["seeds", "k"]),
        (options.RanksOptions, options.RanksKeywords, []),
        (options.FeedOptions, options.FeedKeywords, []),
        (options.ViewOptions, options.ViewKeywords, ["teleport"]),
        (options.AnalysisLimits, options.LimitKeywords, []),
    ],
)
def test_the_keywords_are_those_of_the_table(table: Any, keywords: Any, others: list[str]) -> None:
    """others: what calls have as other arguments"""
    hints = get_type_hints(keywords)
    names = [each.name for each in fields(table)]
    assert {*others} <= {*names}
    assert [*hints] == [name for name in names if name not in others]
    for member in fields(table):
        kind, said = options.described(member.type)
        if member.name in (*others, "among", "within"):  # calls with keywords take names of sets
            continue
        if "enum" in (said.extra_json_schema or {}):
            (literal, none) = get_args(hints[member.name])
            assert list(get_args(literal)) == (said.extra_json_schema or {})["enum"]
            assert none is type(None)
        else:
            assert hints[member.name] == kind | None


def test_the_choices_are_those_of_the_engine() -> None:
    for literal, accepted in (
        (choices.Strategy, STRATEGIES),
        (choices.Method, PUBLISHED_METHODS),
        (choices.Target, TARGETS),
    ):
        assert set(get_args(literal)) == set(accepted)
    assert set(METHODS) < set(PUBLISHED_METHODS)


def test_a_call_takes_the_options_of_its_table_and_no_others() -> None:
    client = Client()
    with pytest.raises(TypeError, match=r"create\(\) got an unexpected keyword argument 'bogus'"):
        client.create("g", bogus=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no argument 'alpha': here it is 'damping'"):
        client.create("g", alpha=0.5)  # type: ignore[call-arg]


def checked_by_mypy(client: Client) -> None:
    """mypy says so if one of these is no error."""
    client.create("g", damping="0.5")  # type: ignore[arg-type]
    client.create("g", clock="sun")  # type: ignore[arg-type]
    client.insert("g", [], on_conflict="sum")  # type: ignore[arg-type]
    client.remove("g", [], on_conflict="add")  # type: ignore[call-arg]
    client.rank("g", "v", min_version="1")  # type: ignore[arg-type]
    client.personalized("g", "v", zeros=1.5)  # type: ignore[arg-type]
    client.put_view("g", "v", "uniform", refresh="never")  # type: ignore[arg-type]


ADDED = {
    "\n\nclass GraphKeywords": """\
    steward: Annotated[str | None, about("who answers for the graph")] = None
""",
    "\n\nclass SolveOptions": """\
    steward: str | None
""",
    "\n\nclass BatchOptions": """\
    patience: Annotated[int, Meta(description="rounds of patience", ge=1)] = 3
""",
    "\n\nclass BatchKeywords": """\
    patience: int | None
""",
    "\n\nOF_SOME_BATCHES": """\
    quorum: Annotated[int, Meta(description="how many disks have it", ge=1)] = 2
""",
    "\n\nclass PersonalizedQuery": """\
    quorum: int | None
""",
}
"""Lines of three new options in liverank/options.py, by what follows them."""

SURFACES = """
import inspect, json
from liverank import Client
from liverank.client.calls import Calls
from liverank_service.app import create_app
from liverank_service.graph_options import requested_options
from liverank_service.settings import Settings
from tools.reference.command import help_of
from tools.reference.pages import DOCUMENTS, page

document, client = create_app(Settings()).openapi(), Client()
calls = [call for path in document["paths"].values() for call in path.values()]
print(json.dumps({
    "schema": document["components"]["schemas"]["GraphRequest"]["properties"]["steward"],
    "parameters": {
        name: {
            call["operationId"]: parameter["schema"]
            for call in calls
            for parameter in call.get("parameters", ())
            if parameter["name"] == name
        }
        for name in ("patience", "quorum")
    },
    "server": requested_options("g", {"steward": "ada"}).steward,
    "created": json.loads(Calls.create(None, "g", steward="ada").body),
    "sent": Calls.remove(None, "g", ["v"], patience=5, quorum=3).query,
    "editor": [
        str(inspect.signature(getattr(client, name)).parameters[option])
        for name, option in (("create", "steward"), ("send", "patience"), ("send", "quorum"))
    ],
    "command": {name: help_of(name) for name in ("load", "replay", "recompute")},
    "reference": {name: page(DOCUMENTS / name) for name in ("http-calls.md", "python-api.md")},
}))
"""


def test_options_that_are_added_to_the_tables_are_wherever_options_are(tmp_path: Path) -> None:
    for name in ("liverank", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "service" / "liverank_service", tmp_path / "liverank_service")
    table = tmp_path / "liverank" / "options.py"
    text = table.read_text("utf-8")
    for following, lines in ADDED.items():
        assert text.count(following) == 1
        text = text.replace(following, lines + following)
    table.write_text(text, "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", SURFACES],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'gpu'}"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["schema"]["description"] == "who answers for the graph"
    assert found["schema"]["default"] is None
    assert found["server"] == "ada"
    solving, sending = found["parameters"]["patience"], found["parameters"]["quorum"]
    assert (solving.keys(), sending.keys()) == ({"send_batch", "recompute"}, {"send_batch"})
    for schemas, default in ((solving, 3), (sending, 2)):
        schema = schemas["send_batch"]
        assert (schema["minimum"], schema["default"]) == (1, default)
    assert found["created"] == {"steward": "ada"}
    assert (found["sent"]["patience"], found["sent"]["quorum"]) == (5, 3)
    assert found["editor"] == [
        "steward: 'str | None' = None",
        "patience: 'int | None' = None",
        "quorum: 'int | None' = None",
    ]
    told = {name: " ".join(text.split()) for name, text in found["command"].items()}
    for name in ("load", "replay"):
        assert "--steward <str> Who answers for the graph." in told[name]
    for name in ("replay", "recompute"):
        assert "--patience <int> Rounds of patience [3]." in told[name]
    assert "--quorum <int> How many disks have it [2]." in told["replay"]
    assert "--quorum" not in told["recompute"]
    for text in found["reference"].values():
        (row,) = (line for line in text.splitlines() if line.startswith("| `steward`"))
        assert row.endswith("| who answers for the graph |")
        for name in ("patience", "quorum"):
            assert f"`{name}`" in text or f"{name}: int" in text
