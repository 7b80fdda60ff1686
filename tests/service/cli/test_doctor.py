"""`liverank doctor`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import liverank
import liverank_gpu
from liverank_gpu import BackendUnavailable


def findings(out: str) -> dict[str, tuple[str, str]]:
    return {each["name"]: (each["state"], each["detail"]) for each in json.loads(out)}


def test_it_says_what_there_is(run: Any, url: str, tmp_path: Path) -> None:
    code, out, _ = run("doctor", "--json", "--url", url, "--data", tmp_path)
    found = findings(out)
    assert code == 0
    assert found["liverank"][1].startswith(liverank.__version__)
    assert found["extra engine"] == found["extra server"] == ("ok", "is installed")
    assert found["backend cpu"] == ("ok", "ranks a graph")
    assert "backend reference" not in found
    assert found[f"data {tmp_path}"][0] == "ok"
    assert found[f"server {url}"] == ("ok", "is ready")
    code, out, err = run("doctor", "--url", url, "--data", tmp_path / "new" / "folder")
    assert (code, err) == (0, "")
    assert "is made at the first start" in out


def test_what_is_wrong_is_said_and_ends_with_1(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Engine(liverank_gpu.Engine):
        def __init__(self, options: liverank_gpu.Options, backend: Any = "auto") -> None:
            if backend == "cpu":
                raise BackendUnavailable("cpu", "its kernels are not compiled")
            super().__init__(options, backend)

    monkeypatch.setattr(liverank_gpu, "Engine", Engine)
    file = tmp_path / "file"
    file.write_text("")
    code, out, err = run("doctor", "--json", "--data", file, "--url", "http://127.0.0.1:9")
    found = findings(out)
    assert code == 1
    assert found["backend cpu"] == ("wrong", "its kernels are not compiled")
    assert found["backend reference"] == ("ok", "ranks a graph")
    assert found[f"data {file}"] == ("wrong", f"{file} is not a directory")
    assert found["server http://127.0.0.1:9"][0] == "absent"
    assert f"wrong: backend cpu, data {file}" in err
