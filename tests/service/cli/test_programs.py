"""`liverank program`: a file becomes a program of a server, and is shown, listed and dropped; what
it computes is exported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet

from liverank import Client
from tests.service.http.test_programs import DOUBLED, HOPS
from tests.service.server import running


def test_a_file_is_put_shown_listed_and_dropped(run: Any, tmp_path: Path) -> None:
    file, bad = tmp_path / "hops.py", tmp_path / "bad.py"
    file.write_text(HOPS)
    with running(tmp_path / "data", programs=True) as server:
        url = ("--url", str(server.http.base_url))
        code, out, _ = run("program", "put", file, *url)
        assert (code, out.split()) == (
            0,
            ["name", "values", "parameters", "hops", "int32", "source=0"],
        )
        assert run("program", "show", "hops", *url)[1] == HOPS.rstrip("\n") + "\n"
        code, out, _ = run("program", "put", file, "--name", "again", "--json", *url)
        assert (code, json.loads(out)["name"]) == (0, "again")
        listed = json.loads(run("program", "list", "--json", *url)[1])
        assert [each["name"] for each in listed] == ["again", "hops"]
        assert run("program", "drop", "again", *url)[0] == 0
        assert "again" not in run("program", "list", *url)[1]
        bad.write_text(DOUBLED)
        out = run("program", "put", bad, "--name", "doubled", *url)[1]
        assert "int32 hops, float64 doubled" in " ".join(out.split())
        bad.write_text(HOPS.replace("old != new", "old.real"))
        code, _, error = run("program", "put", bad, *url)
        assert code == 1
        assert "bad.scatter, line 25: 'old.real' is not allowed" in error
    with running(tmp_path / "off") as server:
        code, _, error = run("program", "put", file, "--url", str(server.http.base_url))
        assert (code, "set LIVERANK_PROGRAMS=1" in error) == (1, True)


def test_values_of_vertices_and_of_edges_are_exported(run: Any, tmp_path: Path) -> None:
    with running(tmp_path / "data", programs=True) as server:
        url, out = str(server.http.base_url), tmp_path / "values.parquet"
        with Client(url) as client:
            client.insert("default", [("a", "b"), ("b", "c"), ("x", "y")])
            client.put_program(DOUBLED, "doubled")
            given = {"source": "a"}
            one = client.start_analysis("default", "doubled", parameters=given)
            client.analysis("default", one, wait=60)
            top = client.top_values("default", one, 2, of="edges")
            assert [(each.value, top.values) for each in top.edges] == [(1, []), (1, [])]
            table = client.export_values("default", one, of="edges").to_arrow()
        found = {(each["source"], each["target"]): each["value"] for each in table.to_pylist()}
        assert found == {("a", "b"): 1, ("b", "c"): 1, ("x", "y"): 0}
        asked = ("export", "values", "--analysis", one, "--url", url)
        for of, columns in (
            ((), ["vertex", "value", "doubled"]),
            (("--of", "edges"), ["source", "target", "value"]),
        ):
            code, printed, _ = run(*asked, *of, "--out", out)
            assert (code, printed) == (0, f"{out}: values of version 1\n")
            assert pyarrow.parquet.read_table(out).column_names == columns
        assert pyarrow.parquet.read_table(out).equals(table)
