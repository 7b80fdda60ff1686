"""Prometheus and Grafana as configured by compose.yaml: every metric in their queries exists."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.service.server import Server, running, wait_for

DOCKER = Path(__file__).parents[2] / "docker"
COMPOSE = (DOCKER.parent / "compose.yaml").read_text("utf-8")
DASHBOARD = json.loads((DOCKER / "grafana" / "dashboards" / "liverank.json").read_text("utf-8"))
ALERTS = (DOCKER / "prometheus" / "alerts.yml").read_text("utf-8")
KEY = "k" * 40

NEEDS_PROMETHEUS = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="there is no prometheus (Debian has it) in PATH"
)


def questions() -> list[str]:
    """Every expression of the dashboard and the alerts."""
    asked = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    return asked + re.findall(r"expr: (.*)", ALERTS)


def test_every_metric_that_is_asked_for_exists(server: Server) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]})
    wait_for(lambda: "liverank_stage_seconds_sum{" in server.http.get("/metrics").text)
    offered = {
        sample.name
        for family in text_string_to_metric_families(server.http.get("/metrics").text)
        for sample in family.samples
    }
    asked = {name for text in questions() for name in re.findall(r"(?:liverank|process)_\w+", text)}
    assert len(asked) > 15
    assert asked <= offered


def test_every_label_that_is_asked_for_exists(server: Server) -> None:
    exposed = server.http.get("/metrics").text
    labels = {label for text in questions() for label in re.findall(r'(\w+)(?:=~|!=|=)"', text)}
    assert labels - {"job"} == {"change", "graph", "outcome", "stage", "status"}
    for label in labels - {"job"}:
        assert f'{label}="' in exposed


def test_the_dashboard_uses_the_source_that_is_provisioned() -> None:
    source = (DOCKER / "grafana" / "datasources" / "prometheus.yaml").read_text("utf-8")
    uid = re.findall(r"uid: (\w+)", source)
    used = re.findall(r'"type": "prometheus",\s*"uid": "(\w+)"', json.dumps(DASHBOARD))
    assert set(used) == set(uid)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert all(panel["title"] and panel["description"] for panel in DASHBOARD["panels"])


def test_no_two_panels_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_compose_publishes_ports_on_loopback_only_and_every_file_it_mounts_exists() -> None:
    for ports in re.findall(r"ports: \[(.*)\]", COMPOSE):
        assert all(port.startswith('"127.0.0.1:') for port in ports.split(", "))
    mounted = re.findall(r"- (\./[^:]+):", COMPOSE)
    assert len(mounted) == 2
    assert all((DOCKER.parent / path).is_dir() for path in mounted)
    # generated at the first start, or given by the environment
    keys = re.findall(r"API_KEY: (.*)", COMPOSE)
    assert set(keys) == {'"${LIVERANK_API_KEY:-}"'}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@NEEDS_PROMETHEUS
def test_prometheus_answers_every_panel_while_batches_are_applied(tmp_path: Path) -> None:
    with running(tmp_path / "data", api_key=KEY) as server:
        server.http.headers["Authorization"] = f"Bearer {KEY}"
        (tmp_path / "key").write_text(KEY)
        config = (DOCKER / "prometheus" / "prometheus.yml").read_text("utf-8")
        config = config.replace("/keys/prometheus", str(tmp_path / "key"))
        config = config.replace("liverank:8080", f"127.0.0.1:{server.http.base_url.port}")
        config = config.replace("_interval: 5s", "_interval: 1s")
        (tmp_path / "prometheus.yml").write_text(config)
        shutil.copy(DOCKER / "prometheus" / "alerts.yml", tmp_path)
        port = free_port()
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={tmp_path / 'prometheus.yml'}",
                f"--storage.tsdb.path={tmp_path / 'metrics'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stderr=subprocess.DEVNULL,
        )
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}") as prometheus:
                unanswered = wait_for_answers(server, prometheus)
                rules = prometheus.get("/api/v1/rules").json()["data"]["groups"][0]["rules"]
        finally:
            process.terminate()
            process.wait(30)
        assert unanswered == []
        assert {rule["health"] for rule in rules} == {"ok"}


def wait_for_answers(server: Server, prometheus: httpx.Client) -> list[str]:
    """The expressions without series in Prometheus after some batches and reads."""
    due = [text for text in questions()[: -ALERTS.count("expr:")] if "refused" not in text]
    deadline = time.monotonic() + 30
    number = 0
    while due and time.monotonic() < deadline:
        number += 1
        server.http.post("/graphs/default/batches", json={"insert": [["a", str(number)]]})
        server.http.get("/graphs/default/top")
        time.sleep(0.1)
        due = [text for text in due if not series(prometheus, text)]
    return due


def series(prometheus: httpx.Client, expression: str) -> list[Any]:
    query = expression.replace("$__rate_interval", "10s").replace("$graph", ".*")
    try:
        answer = prometheus.get("/api/v1/query", params={"query": query})
    except httpx.TransportError:
        return []
    if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:  # starting
        return []
    assert answer.status_code == httpx.codes.OK, answer.text
    found: list[Any] = answer.json()["data"]["result"]
    return found
