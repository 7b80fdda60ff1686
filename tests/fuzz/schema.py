"""schemathesis over the whole OpenAPI document of a real server, with all its checks.

    python -m tests.fuzz.schema                          the figures of the notes
    python -m tests.fuzz.schema --cases 2000 --seed 3 --results /tmp

Needs the extra `fuzz`. The server has API keys and two graphs, each with edges and a watched query,
so that successful responses are checked too. The requests are configured in schemathesis.toml and
schema_hooks.py. The exit status is 1 if anything failed; the report is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.harness import RESULTS, ROOT, record
from tests.fuzz.campaign import failures_in, serving
from tests.fuzz.schema_hooks import GRAPHS, WATCHED

KEY = "k" * 40

COVERAGE = 1000
"""About this many cases are boundary values of the document, whatever the number of cases."""

CASES_OF_AN_EXAMPLE = 16
"""Cases for each requested example: the number of operations and scenarios."""


def fill(http: httpx.Client) -> None:
    """Creates graphs of both kinds of keys, with data to read."""
    for graph, kind, convert in zip(GRAPHS, ("string", "integer"), (str, int), strict=True):
        path = f"/graphs/{graph}"
        edges = [[convert(source), convert(target)] for source, target in ("01", "12", "20", "21")]
        for answer in (
            http.put(path, json={"keys": kind}),
            http.post(f"{path}/batches", json={"insert": edges}),
            http.put(f"{path}/watched/{WATCHED}", json={"seeds": {"0": 1}}),
        ):
            answer.raise_for_status()


def ask(port: int, cases: int, seed: int, folder: Path) -> tuple[int, dict[str, Any]]:
    """Runs schemathesis; returns its exit status and its report."""
    report = folder / "report.json"
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        f"--config-file={Path(__file__).with_name('schemathesis.toml')}",
        "run",
        f"http://127.0.0.1:{port}/openapi.json",
        f"--header=Authorization: Bearer {KEY}",
        "--checks=all",
        f"--seed={seed}",
        f"--max-examples={max(1, (cases - COVERAGE) // CASES_OF_AN_EXAMPLE)}",
        "--report=json",
        f"--report-json-path={report}",
    ]
    # It writes its cache to the working directory.
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, check=False)
    document: dict[str, Any] = json.loads(report.read_text())
    return done.returncode, document


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000, help="about so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--note", default="", help="what else the machine did meanwhile")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(LIVERANK_API_KEY=KEY) as (port, log),
    ):
        url, bearer = f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {KEY}"}
        with httpx.Client(base_url=url, headers=bearer) as http:
            fill(http)
            status, report = ask(port, arguments.cases, arguments.seed, Path(folder))
            answers = answered(http.get("/metrics").text)
        logged = failures_in(log)
    for failure in logged:
        print(f"FAILED: the server logged\n{failure}")
    assert report["complete"], report["stop_reason"]
    figures = {
        "seed": report["seed"],
        "note": arguments.note,
        "schemathesis": report["schemathesis_version"],
        "operations": report["operations"]["tested"],
        "cases": report["test_cases"]["generated"],
        "answers": answers,
        "failures": sum(failure["count"] for failure in report["failures"])
        + sum(error["count"] for error in report["errors"])
        + len(logged),
        "seconds": round(time.monotonic() - began),
    }
    print(figures)
    record("schema", "cpu", figures, arguments.results)
    sys.exit(bool(status or figures["failures"]))


def answered(metrics: str) -> dict[str, int]:
    """Responses by status, as counted by the server."""
    statuses = Counter[str]()
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == "liverank_http_requests_total":
                statuses[sample.labels["status"]] += int(sample.value)
    return dict(sorted(statuses.items()))


if __name__ == "__main__":
    main()
