"""The OpenAPI document: names, bodies and examples, and the clients that generators make of it.

The generators are installed by the tests, each into a folder of its own: the one for Python needs
an older typer than the command does.
"""

from __future__ import annotations

import compileall
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from liverank_gpu import InvalidValue
from liverank_service.formats import ARROW_STREAM, EXPORTED, JSON
from liverank_service.http import schemas
from liverank_service.queries.model import WatchedQuery
from liverank_service.queries.rank_views import ViewRequest
from liverank_service.queries.view import MinPosition
from tests.service.server import openapi

DOCUMENT: dict[str, Any] = openapi()
CALLS = {
    call["operationId"]: call for methods in DOCUMENT["paths"].values() for call in methods.values()
}
BODIES = {name: call["requestBody"] for name, call in CALLS.items() if "requestBody" in call}

GENERATOR = "openapi-python-client==0.29.*"
FETCH_GENERATOR = "openapi-generator-cli==7.26.*"
TYPESCRIPT = ("openapi-typescript@7", "typescript@5")


def test_operation_ids_are_short_names_each_of_one_call() -> None:
    assert len(CALLS) == sum(map(len, DOCUMENT["paths"].values()))
    for name in CALLS:
        assert name.isidentifier()
        assert len(name) <= 20


def test_no_schema_has_the_name_that_generators_give_the_arguments_of_a_call() -> None:
    """typescript-fetch names them so, and does not compile where they are two things."""
    names = ("".join(word.title() for word in name.split("_")) + "Request" for name in CALLS)
    assert not set(names) & DOCUMENT["components"]["schemas"].keys()


def test_parameters_of_a_path_are_in_its_order() -> None:
    for path, methods in DOCUMENT["paths"].items():
        for call in methods.values():
            places = [one["in"] == "path" for one in call.get("parameters", [])]
            assert places == sorted(places, reverse=True)
            listed = [one["name"] for one in call.get("parameters", []) if one["in"] == "path"]
            assert listed == re.findall(r"{(\w+)}", path)


def arrays(part: Any) -> Iterator[dict[str, Any]]:
    """All schemas of arrays in a part of the document."""
    if isinstance(part, dict):
        if part.get("type") == "array":
            yield part
        part = list(part.values())
    for each in part if isinstance(part, list) else ():
        yield from arrays(each)


def test_every_array_says_what_is_in_it() -> None:
    found = list(arrays(DOCUMENT))
    assert any("prefixItems" in array for array in found)
    assert all("items" in array for array in found)
    edges = DOCUMENT["components"]["schemas"]["SubgraphAnswer"]["properties"]["edges"]["items"]
    assert edges["prefixItems"] == [edges["items"]] * 2


def test_the_document_has_what_linters_ask_for() -> None:
    """The rules of spectral:oas, of which the others are about what is in each call."""
    assert DOCUMENT["info"]["description"]
    assert DOCUMENT["info"]["contact"]
    assert DOCUMENT["servers"][0]["url"] == "/"
    listed = [tag["name"] for tag in DOCUMENT["tags"]]
    assert {tag for call in CALLS.values() for tag in call["tags"]} == set(listed)
    assert all(tag["description"] for tag in DOCUMENT["tags"])


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("redis:edges:0:12", True),
        ("redis:edges::1767225600000-7", True),
        ("a:b:1-2-3", True),
        ("a\nb::7", True),
        ("a:b", False),
        (":b:1", False),
        ("a:b:", False),
        ("a:b:x", False),
        ("a:b:-1", False),
        (f"a:b:{'1' * 21}", False),
        ("a:b:١", False),
    ],
)
def test_the_pattern_of_positions_is_what_is_accepted(text: str, is_one: bool) -> None:
    (schema,) = {
        json.dumps(one["schema"]["items"])
        for call in CALLS.values()
        for one in call.get("parameters", [])
        if one["name"] == "min_position"
    }
    assert bool(re.search(json.loads(schema)["pattern"].replace("$", r"\Z"), text)) == is_one
    if is_one:
        assert str(MinPosition.parsed(text)) == text
    else:
        with pytest.raises(InvalidValue):
            MinPosition.parsed(text)


def test_the_summary_of_a_call_is_the_first_sentence_of_its_description() -> None:
    assert (
        CALLS["rank_of_vertex"]["summary"] == "The rank of one vertex; the key may contain slashes"
    )
    assert CALLS["create_key"]["summary"] == "Creates a key"
    for call in CALLS.values():
        assert " ".join(call["description"].split()).startswith(call["summary"])


def test_schemas_have_public_names() -> None:
    """Client generators make class names of them."""
    private = [name for name in DOCUMENT["components"]["schemas"] if name.startswith("_")]
    assert not private


def test_every_error_is_a_problem_document() -> None:
    """FastAPI declares its own for parameters, unless an endpoint declares 422."""
    assert "HTTPValidationError" not in DOCUMENT["components"]["schemas"]


def test_every_call_may_refuse_its_parameters_and_its_body() -> None:
    for name, call in CALLS.items():
        expected = {"422", "408", "413", "415"} if name in BODIES else {"422"}
        assert expected <= call["responses"].keys(), name


def test_calls_declare_every_format_that_they_accept() -> None:
    assert set(BODIES["send_batch"]["content"]) == {JSON, *EXPORTED}
    for name in ("personalized_many", "put_view"):
        assert set(BODIES[name]["content"]) == {JSON, ARROW_STREAM}
    for name in BODIES.keys() - {"send_batch", "personalized_many", "put_view"}:
        assert set(BODIES[name]["content"]) == {JSON}


@pytest.mark.parametrize("name", BODIES)
def test_every_body_has_an_example_that_is_valid(name: str) -> None:
    model = BODIES[name]["content"][JSON]["schema"]["$ref"].rsplit("/", 1)[1]
    (example,) = DOCUMENT["components"]["schemas"][model]["examples"]
    models = dict(vars(schemas))
    models |= {"WatchedQuery": WatchedQuery, "ViewRequest": ViewRequest}
    models[model].model_validate_json(json.dumps(example))


def installed(done: subprocess.CompletedProcess[str]) -> None:
    """Skips if no package index is reachable."""
    if done.returncode:
        pytest.skip(f"the generator could not be installed: {done.stderr.strip()[-200:]}")


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    line = [str(part) for part in command]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("openapi") / "openapi.json"
    file.write_text(json.dumps(DOCUMENT))
    return file


def install(package: str, folder: Path) -> Path:
    """Installs a generator that is a Python package; the folder of its commands."""
    name = package.partition("=")[0]
    run(sys.executable, "-m", "venv", "--without-pip", name, cwd=folder)
    pip = [sys.executable, "-m", "pip", "--python", f"{name}/bin/python"]
    installed(run(*pip, "install", "--quiet", "--no-compile", package, cwd=folder))
    return folder / name / "bin"


@pytest.fixture(scope="module")
def node_tools(document: Path) -> Path:
    """The folder of the commands of TYPESCRIPT."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = document.parent
    (folder / "package.json").write_text("{}")
    installed(run("npm", "install", "--silent", "--no-audit", *TYPESCRIPT, cwd=folder))
    return folder / "node_modules" / ".bin"


def test_a_python_client_is_generated_without_a_warning(document: Path) -> None:
    folder = document.parent
    generator = install(GENERATOR, folder) / "openapi-python-client"
    overrides = dict.fromkeys(EXPORTED, "application/octet-stream")
    config = folder / "config.json"
    config.write_text(json.dumps({"post_hooks": [], "content_type_overrides": overrides}))
    done = run(
        *(generator, "generate", "--path", document),
        *("--config", config, "--output-path", "generated", "--fail-on-warning"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "Generating generated\n"
    made = {path.stem for path in folder.glob("generated/liverank_client/api/*/*.py")}
    assert made - {"__init__"} == set(CALLS)
    assert compileall.compile_dir(folder / "generated", quiet=1)


def test_a_typescript_fetch_client_is_generated_and_compiles(
    document: Path, node_tools: Path
) -> None:
    if shutil.which("java") is None:
        pytest.skip("java is not installed, in which the generator runs")
    folder = document.parent
    generator = install(FETCH_GENERATOR, folder) / "openapi-generator-cli"
    arguments = ("generate", "-g", "typescript-fetch", "-i", document, "-o", "fetch")
    done = run(generator, *arguments, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    client = "".join(path.read_text() for path in folder.glob("fetch/apis/*.ts"))
    names = {name.replace("_", "").lower() for name in CALLS}
    assert names <= set(re.findall(r"async (\w+)\(", client.lower()))
    (folder / "fetch" / "use.ts").write_text(
        'import { RanksApi, type TopAnswer } from "./index";\n'
        'export const top: Promise<TopAnswer> = new RanksApi().top({ graph: "g", k: 3 });\n'
    )
    target = ("--target", "es2020", "--moduleResolution", "node")
    done = run(node_tools / "tsc", "--noEmit", "--strict", *target, "fetch/use.ts", cwd=folder)
    assert done.returncode == 0, done.stdout


def test_typescript_types_are_generated_and_compile(document: Path, node_tools: Path) -> None:
    folder = document.parent
    done = run(node_tools / "openapi-typescript", document, "-o", "schema.d.ts", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    names = "".join(f'export type T_{name} = operations["{name}"];\n' for name in CALLS)
    (folder / "use.ts").write_text(
        'import type { components, operations } from "./schema";\n'
        f"{names}"
        'export const version: components["schemas"]["Receipt"]["version"] = 1;\n'
        'export const query: operations["top"]["parameters"]["query"] = { k: 3 };\n'
    )
    done = run(node_tools / "tsc", "--noEmit", "--strict", "use.ts", cwd=folder)
    assert done.returncode == 0, done.stdout
