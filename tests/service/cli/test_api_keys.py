"""`liverank keys`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from liverank_service.cli.demo import running_service

# API keys


def test_keys_are_made_listed_and_revoked(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, file = tmp_path / "data", tmp_path / "key"
    code, out, _ = run("keys", "create", "--scope", "admin", "--data", data, "--out", file)
    assert (code, file.stat().st_mode & 0o777) == (0, 0o600)
    key = file.read_text().strip()
    assert key.startswith("lvr_")
    assert key not in out
    with running_service(data) as url:
        code, _, error = run("graphs", "--url", url)
        assert (code, error.count("LIVERANK_API_KEY")) == (1, 1)
        monkeypatch.setenv("LIVERANK_API_KEY", key)
        arguments = ("--scope", "read", "--graph", "a", "--graph", "b", "--name", "for two")
        code, made, _ = run("keys", "create", *arguments, "--url", url)
        assert (code, made[:4]) == (0, "lvr_")
        listed = json.loads(run("keys", "list", "--json", "--url", url)[1])
        assert [row["name"] for row in listed] == ["unnamed", "for two"]
        assert listed[1]["graphs"] == ["a", "b"]
        code, table, _ = run("keys", "list", "--url", url)
        assert re.search(r"read +a, b +\S+ +for two", table)
        assert run("keys", "revoke", listed[1]["id"], "--url", url) == (0, "", "")
        assert len(json.loads(run("keys", "list", "--json", "--url", url)[1])) == 1
        code, _, error = run("keys", "revoke", listed[0]["id"], "--url", url)
        assert (code, "is the last one with scope admin" in error) == (1, True)


def test_a_key_is_not_made_where_its_file_exists(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.touch()
    code, _, error = run("keys", "create", "--scope", "admin", "--data", tmp_path, "--out", file)
    assert code == 1
    assert error == f"liverank: {file} exists; a key does not overwrite a file\n"
    assert not (tmp_path / "keys.json").exists()


def test_a_key_that_is_not_made_leaves_no_file(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "key"
    code, _, error = run("keys", "create", "--scope", "read", "--data", tmp_path, "--out", file)
    assert (code, file.exists()) == (1, False)
    assert "it is the first key" in error


def test_keys_of_a_data_directory_in_use_are_left_alone(run: Any, tmp_path: Path) -> None:
    with running_service(tmp_path):
        code, _, error = run("keys", "create", "--scope", "admin", "--data", tmp_path)
    assert (code, error) == (
        1,
        f"liverank: {tmp_path}: another server uses this data directory\n",
    )
