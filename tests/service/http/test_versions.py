"""Connections on other versions of uvicorn than the installed one.

Each version lies in a folder of its own, named by the version, as of

    pip install --no-deps --target versions/0.34.0 uvicorn==0.34.0

and LIVERANK_UVICORN_VERSIONS names the folder with them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = os.environ.get("LIVERANK_UVICORN_VERSIONS", "")
VERSIONS = sorted(path.name for path in Path(FOLDER).iterdir()) if FOLDER else []

ABSENT = pytest.mark.skip(reason="LIVERANK_UVICORN_VERSIONS names no folder with versions")
HERE = Path(__file__).parent
FILES = [
    HERE / f"test_{name}.py"
    for name in (
        "access",
        "framing",
        "heads",
        "limits",
        "malformed",
        "request_limits",
        "server",
        "slow_clients",
        "turns",
        "waits",
        "watched",
    )
]
"""What asks a real server for what depends on the connection."""

_CHECKED = "import sys, uvicorn; sys.exit(uvicorn.__version__ != sys.argv[1])"


@pytest.mark.parametrize("version", VERSIONS or [pytest.param("", marks=ABSENT)])
def test_connections_are_the_same(version: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(FOLDER, version).resolve())}
    environment.pop("PYTEST_XDIST_WORKER", None)
    subprocess.run([sys.executable, "-c", _CHECKED, version], env=environment, check=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--backend", "cpu"]
    done = subprocess.run([*command, *FILES], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
