"""The container as far as it can be tested without an engine: its entrypoint, run by sh, and
compose.yaml. `docker/test.sh` builds the image and tests the rest.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.service.server import wait_for

ROOT = Path(__file__).parents[2]
ENTRYPOINT = ROOT / "docker" / "entrypoint"
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")

# A `liverank` that reports what it gets; `serve` ends on SIGTERM with 7, after a while.
FAKE = """#!/bin/sh
echo "arguments=$*" "cache=$CUPY_CACHE_DIR" "keys=${LIVERANK_KEYS-none}"
[ "$1" = serve ] || { cat; exit 5; }
trap 'sleep 0.2; exit 7' TERM
echo started
while :; do sleep 0.05; done
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    liverank = tmp_path / "bin" / "liverank"
    liverank.write_text(FAKE)
    liverank.chmod(0o755)
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def start(data: Path, *arguments: str, **settings: str) -> subprocess.Popen[str]:
    root = data.parent
    environment = {
        "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
        "LIVERANK_DATA": str(data),
        **settings,
    }
    return subprocess.Popen(
        ["sh", str(ENTRYPOINT), *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a shell does not see signals that were ignored when it started, as SIGINT is for the tests
        # if they run in the background
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def cache_of(data: Path, **settings: str) -> Path:
    """Where a command keeps what it compiles for a GPU."""
    with start(data, "keys", "list", **settings) as process:
        out, error = process.communicate("", timeout=60)
    assert (process.returncode, error) == (5, "")
    return Path(re.findall(r"cache=(\S+)", out)[0])


@contextmanager
def serving(data: Path) -> Iterator[subprocess.Popen[str]]:
    with start(data, "serve", "--port", "0") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("arguments=serve --port 0 ")
        assert process.stdout.readline() == "started\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_command_gets_its_arguments_and_its_input(data: Path) -> None:
    with start(data, "load", "a b", "-") as process:
        out, error = process.communicate("source,target\n", timeout=60)
    assert out.startswith("arguments=load a b - ")
    assert out.endswith("source,target\n")
    assert (process.returncode, error) == (5, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_in_order_and_its_status_is_passed_on(
    data: Path, number: signal.Signals
) -> None:
    with serving(data) as process:
        process.send_signal(number)
        assert process.wait(60) == 7


def test_a_second_signal_does_not_leave_the_server_behind(data: Path) -> None:
    with serving(data) as process:
        for _ in range(3):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.02)
        assert process.wait(60) == 7


def test_a_server_that_is_killed_ends_the_container(data: Path) -> None:
    with serving(data) as process:
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)
        assert process.wait(60) == 128 + signal.SIGKILL


def test_a_signal_before_the_server_starts_is_not_lost(data: Path) -> None:
    slow = data.parent / "bin" / "mkdir"
    slow.write_text(f'#!/bin/sh\ntouch {data.parent}/started\nsleep 1\nexec /bin/mkdir "$@"\n')
    slow.chmod(0o755)
    with start(data, "serve") as process:
        wait_for((data.parent / "started").exists)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (143, "")


def test_what_is_compiled_for_a_gpu_is_kept_with_the_data(data: Path) -> None:
    assert cache_of(data) == data / ".cache" / "cupy"
    assert (data / ".cache").is_dir()
    assert cache_of(data, CUPY_CACHE_DIR="/elsewhere") == Path("/elsewhere")


@pytest.mark.parametrize("directory", ["file", ""])
def test_data_that_cannot_be_written_does_not_keep_the_cache_away(
    data: Path, directory: str
) -> None:
    (data.parent / "file").touch()
    chosen = str(data.parent / directory) if directory else ""
    assert cache_of(data, LIVERANK_DATA=chosen).is_relative_to("/tmp")


def test_the_place_of_the_keys_can_be_chosen(data: Path) -> None:
    with start(data, "serve", LIVERANK_KEYS="/elsewhere") as process:
        assert process.stdout is not None
        assert "keys=/elsewhere" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


# compose.yaml

SERVERS = ("liverank", "liverank-cuda")
REPLICAS = ("replica-1", "replica-2")
CONSUMERS = ("consumer-1", "consumer-2")


def started(*profiles: str) -> set[str]:
    """The services that these profiles start."""
    services: dict[str, Any] = COMPOSE["services"]
    return {name for name, service in services.items() if set(service["profiles"]) & set(profiles)}


def test_the_profiles_start_what_their_names_say() -> None:
    assert started("cpu") == {"liverank"}
    assert started("cuda") == {"liverank-cuda"}
    assert started("observe") == {"prometheus", "grafana"}
    assert started("replicas") == {*REPLICAS, *CONSUMERS, "redis", "proxy"}


def test_the_two_servers_exclude_each_other_and_never_change_their_backend() -> None:
    cpu, cuda = (COMPOSE["services"][name] for name in SERVERS)
    assert cpu["ports"] == cuda["ports"]
    assert cpu["volumes"] == cuda["volumes"]
    assert cpu["environment"]["LIVERANK_BACKEND"] == "cpu"
    assert cuda["environment"]["LIVERANK_BACKEND"] == "cuda"


def test_prometheus_scrapes_either_server() -> None:
    text = (ROOT / "docker" / "prometheus" / "prometheus.yml").read_text("utf-8")
    (job,) = yaml.safe_load(text)["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["liverank:8080"]}]
    assert job["authorization"]["credentials_file"] == "/keys/prometheus"
    assert COMPOSE["services"]["liverank-cuda"]["networks"]["default"]["aliases"] == ["liverank"]
    prometheus = COMPOSE["services"]["prometheus"]
    assert "keys:/keys:ro" in prometheus["volumes"]
    for name in SERVERS:  # whichever is started
        assert prometheus["depends_on"][name] == {"condition": "service_healthy", "required": False}
    assert COMPOSE["services"]["grafana"]["depends_on"] == {
        "prometheus": {"condition": "service_healthy"}
    }


def test_a_server_that_is_down_is_an_alert() -> None:
    alerts = yaml.safe_load((ROOT / "docker" / "prometheus" / "alerts.yml").read_text("utf-8"))
    expressions = [rule["expr"] for rule in alerts["groups"][0]["rules"]]
    assert 'up{job="liverank"} == 0' in expressions


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_every_service_is_limited_and_checked(name: str) -> None:
    service = COMPOSE["services"][name]
    assert set(service["deploy"]["resources"]["limits"]) == {"memory", "cpus", "pids"}
    assert service["logging"]["options"] == {"max-size": "10m", "max-file": "5"}
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["restart"] == "unless-stopped"
    if name in CONSUMERS:  # no server, so the check of the image would fail
        assert service["healthcheck"] == {"disable": True}
    elif name in (*SERVERS, *REPLICAS):
        assert "HEALTHCHECK" in DOCKERFILE
        assert service["stop_grace_period"] == "60s"
    else:
        assert service["healthcheck"]["test"][0] == "CMD"


def test_each_replica_has_its_own_data_and_consumer_and_the_stream_of_the_other() -> None:
    services = COMPOSE["services"]
    for replica, consumer in zip(REPLICAS, CONSUMERS, strict=True):
        assert services[replica]["volumes"] == [f"{replica}:/data"]
        assert replica in COMPOSE["volumes"]
        environment = services[consumer]["environment"]
        assert environment["LIVERANK_URL"] == f"http://{replica}:8080"
        assert environment["LIVERANK_SOURCE_URL"] == "redis://redis:6379"
        assert (
            environment["LIVERANK_API_KEY"] == services[replica]["environment"]["LIVERANK_API_KEY"]
        )
        assert "sources" in services[consumer]["build"]["args"]["EXTRAS"]
        assert services[consumer]["command"][:2] == ["consume", "redis"]
    assert services["consumer-1"]["command"] == services["consumer-2"]["command"]
    assert "always" in services["redis"]["command"]


def test_the_proxy_has_both_replicas_at_the_port_of_a_single_server() -> None:
    proxy = COMPOSE["services"]["proxy"]
    assert proxy["ports"] == COMPOSE["services"]["liverank"]["ports"]
    variables = set(
        re.findall(r"\$\{(\w+)\}", (ROOT / "docker/haproxy/haproxy.cfg").read_text("utf-8"))
    )
    assert set(proxy["environment"]) == variables
    addresses = {proxy["environment"][f"REPLICA_{number}"] for number in (1, 2)}
    assert addresses == {f"{replica}:8080" for replica in REPLICAS}


def test_grafana_has_no_default_password() -> None:
    environment = COMPOSE["services"]["grafana"]["environment"]
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert environment["GF_AUTH_BASIC_ENABLED"] == "false"


def test_the_image_runs_as_a_user_without_a_name() -> None:
    assert re.findall(r"^USER (.*)", DOCKERFILE, re.MULTILINE) == ["10001:10001"]
