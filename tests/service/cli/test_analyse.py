"""`liverank analyse`: programs on the graph of a file."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from tests.gpu.programs import oracle


def test_several_programs_and_their_numbers_as_json(run: Any, triangle: Path) -> None:
    code, out, _ = run("analyse", triangle, "components", "triangles", "--json", "--backend", "cpu")
    document = json.loads(out)
    assert code == 0
    assert (document["vertices"], document["edges"]) == (4, 4)
    assert (document["components"], document["triangles"]) == (1, 1)
    assert document["programs"]["components"]["values"] == [{"vertex": "a", "value": 4}]
    assert document["programs"]["triangles"]["values"][0] == {"vertex": "a", "value": 1}
    assert not document["programs"]["triangles"]["continued"]


def test_numbers_of_the_same_name_are_those_of_their_program(run: Any, triangle: Path) -> None:
    options = ("--json", "--backend", "cpu")
    _, out, _ = run("analyse", triangle, "components", "cores", *options)
    programs = json.loads(out)["programs"]
    assert programs["components"]["summary"] == {"components": 1, "largest": 4}
    assert programs["cores"]["summary"] == {"largest": 2}


def test_counts_are_shown_with_all_of_their_digits(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "complete.txt"
    file.write_text("".join(f"{u} {v}\n" for v in range(200) for u in range(v)))
    _, out, _ = run("analyse", file, "clustering", "--backend", "cpu")
    assert re.search(r"triangles +1,313,400\n", out)  # 200 over 3
    assert re.search(r"average +1 ", out)


def test_distances_from_a_vertex_and_all_values_in_a_file(run: Any, tmp_path: Path) -> None:
    file, out = tmp_path / "roads.csv", tmp_path / "distances.parquet"
    file.write_text("source,target,km\n1,2,2.5\n2,3,1.5\n9,8,1\n")
    shown = ("distances", "--source", "3", "--weights", "km", "--undirected", "--backend", "cpu")
    code, printed, _ = run("analyse", file, *shown, "--out", out)
    assert code == 0
    assert "distances" in printed
    rows = pyarrow.parquet.read_table(out).to_pylist()
    values = {row["vertex"]: row["value"] for row in rows}
    assert values == {1: 4.0, 2: 1.5, 3: 0.0, 9: None, 8: None}


def test_paths_in_a_file_name_the_vertex_before(run: Any, tmp_path: Path) -> None:
    file, out = tmp_path / "roads.csv", tmp_path / "paths.parquet"
    file.write_text("source,target,km\n1,2,2.5\n2,3,1.5\n1,3,5\n9,8,1\n")
    shown = ("paths", "--source", "1", "--weights", "km", "--backend", "cpu", "--out", out)
    for streamed in ((), ("--memory", "16MiB")):
        assert run("analyse", file, *shown, *streamed)[0] == 0
        rows = pyarrow.parquet.read_table(out).to_pylist()
        found = {row["vertex"]: (row["value"], row["predecessor"]) for row in rows}
        expected = {1: (0.0, None), 2: (2.5, 1), 3: (4.0, 2), 9: (None, None), 8: (None, None)}
        assert found == expected


def test_values_of_edges_as_json_as_a_table_and_in_a_file(
    run: Any, triangle: Path, tmp_path: Path
) -> None:
    out = tmp_path / "trusses.csv"
    code, printed, _ = run("analyse", triangle, "trussness", "--backend", "cpu", "--out", out)
    assert code == 0
    title, first = [line.split() for line in printed.splitlines() if line.strip()][:2]
    assert (title, first[2]) == (["source", "target", "trussness"], "3")
    assert out.read_text().splitlines()[0].replace('"', "") == "source,target,value"
    assert len(out.read_text().splitlines()) == 1 + 4
    options = ("--json", "--top", "1", "--backend", "cpu")
    code, printed, _ = run("analyse", triangle, "support", "trussness", *options)
    document = json.loads(printed)
    (edge,) = document["programs"]["support"]["values"]
    assert (set(edge), edge["value"]) == ({"source", "target", "value"}, 1)
    assert [place["value"] for place in document["programs"]["trussness"]["values"]] == [3]


@pytest.mark.parametrize("memory", [(), ("--memory", "1MiB")], ids=["in-memory", "windows"])
def test_dn_graphs_as_json_and_in_a_file(
    run: Any, triangle: Path, tmp_path: Path, memory: tuple[str, ...]
) -> None:
    out = tmp_path / "graphs.csv"
    options = ("--backend", "cpu", *memory)
    code, printed, _ = run("analyse", triangle, "dn-graphs", "--json", *options)
    assert code == 0
    document = json.loads(printed)
    assert (document["graphs"], document["largest"]) == (1, 1)
    (found,) = document["programs"]["dn-graphs"]["values"]
    assert (set(found), found["value"]) == ({"vertex", "value"}, 1)
    assert run("analyse", triangle, "dn-graphs", "--out", out, *options)[0] == 0
    header, *rows = out.read_text().replace('"', "").splitlines()
    assert (header, len(rows)) == ("source,target,value,lambda", 3)
    assert {tuple(row.split(",")[2:]) for row in rows} == {(found["vertex"], "1")}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("walk",), 2, "'walk' is not one of pagerank, levels, "),
        (("levels",), 1, "liverank: levels needs --source, the vertex from which paths begin"),
        (("levels", "--source", "nobody"), 1, "has no vertex 'nobody'"),
        (("cores", "--epsilon", "1"), 1, "--epsilon means nothing to cores"),
        (("labels", "--iterations", "0"), 1, "iterations: 0 is not allowed"),
        (("cores", "labels", "--out", "x.csv"), 1, "--out needs one program"),
    ],
)
def test_what_cannot_run_is_refused(
    run: Any, triangle: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    found, _, error = run("analyse", triangle, *arguments, "--backend", "cpu")
    assert found == code
    assert message in " ".join(error.split())


EXAMPLES = {
    "directed": (
        "1,3 1,5 2,4 2,5 2,10 3,1 3,5 3,8 3,10 5,3 5,4 5,8 6,3 6,4 7,4 8,1 9,4",
        {1: 1, 2: 2, 3: 3, 4: 4, 5: 1, 6: 1, 7: 2, 8: 3, 9: 2, 10: 1},
    ),
    "undirected": (
        "2,3 2,4 3,4 3,5 3,8 5,6 5,8 6,7 6,8 6,9 6,10 7,9",
        {2: 2, 3: 3, 4: 2, 5: 2, 6: 6, 7: 5, 8: 2, 9: 5, 10: 5},
    ),
}
"""The examples of LDBC Graphalytics: edges, and the communities after two iterations."""


def labels_of_file(
    run: Any, directory: Path, edges: list[tuple[int, int]], *options: object
) -> dict[int, int]:
    file, out = directory / "edges.csv", directory / "labels.parquet"
    file.write_text("source,target\n" + "".join(f"{u},{v}\n" for u, v in edges))
    code, _, error = run("analyse", file, "labels", "--backend", "cpu", "--out", out, *options)
    assert code == 0, error
    rows = pyarrow.parquet.read_table(out).to_pylist()
    return {row["vertex"]: row["value"] for row in rows}


@pytest.mark.parametrize("memory", [(), ("--memory", "1MiB")], ids=["in memory", "streamed"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_communities_of_integers_are_those_of_graphalytics(
    run: Any, tmp_path: Path, name: str, memory: tuple[str, ...]
) -> None:
    text, expected = EXAMPLES[name]
    edges = [(int(u), int(v)) for u, v in (edge.split(",") for edge in text.split())]
    assert oracle.communities(edges, 2) == expected
    options = ("--iterations", 2, *(["--undirected"] if name == "undirected" else []), *memory)
    for seed in range(3):  # first in the order of the file
        assert labels_of_file(run, tmp_path, edges, *options) == expected
        random.Random(seed).shuffle(edges)


@pytest.mark.parametrize("memory", [(), ("--memory", "1MiB")], ids=["in memory", "streamed"])
def test_communities_of_integers_do_not_depend_on_the_order_of_a_file(
    run: Any, tmp_path: Path, memory: tuple[str, ...]
) -> None:
    choice = random.Random(1)
    names = [choice.getrandbits(64) - 2**63 for _ in range(200)]
    edges = list({(choice.choice(names), choice.choice(names)) for _ in range(260)})
    expected = oracle.communities(edges, 10)
    assert len(set(expected.values())) > 5
    for _ in range(2):
        assert labels_of_file(run, tmp_path, edges, *memory) == expected
        choice.shuffle(edges)
