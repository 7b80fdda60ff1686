from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from liverank_gpu import Cluster
from liverank_service.app import create_app
from liverank_service.settings import PREFIX, InvalidSetting, Settings


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith(PREFIX):
            monkeypatch.delenv(name)


def test_defaults() -> None:
    settings = Settings()
    assert (settings.data, settings.host, settings.port) == (
        Path("liverank-data"),
        "127.0.0.1",
        8080,
    )
    assert (settings.backend, settings.max_body_bytes) == ("auto", 268_435_456)


def test_arguments_override_the_environment_which_overrides_the_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LIVERANK_DATA", "/srv/ranks")
    monkeypatch.setenv("LIVERANK_PORT", "9000")
    monkeypatch.setenv("LIVERANK_BACKEND", "cpu")
    monkeypatch.setenv("LIVERANK_MAX_BODY_BYTES", "1000")
    settings = Settings(port=7000, host=None)
    assert (settings.data, settings.host, settings.port) == (Path("/srv/ranks"), "127.0.0.1", 7000)
    assert (settings.backend, settings.max_body_bytes) == ("cpu", 1000)


def test_a_setting_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().port = 1


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LIVERANK_PORT", "http", "LIVERANK_PORT: 'http' must be an integer from 0 to 65535"),
        ("LIVERANK_PORT", "70000", "LIVERANK_PORT: '70000' must be an integer from 0 to 65535"),
        (
            "LIVERANK_MAX_BODY_BYTES",
            "0",
            "LIVERANK_MAX_BODY_BYTES: '0' must be an integer from 1 to 1099511627776",
        ),
        ("LIVERANK_DATA", "", "LIVERANK_DATA: '' must be the path of a directory, not empty"),
        ("LIVERANK_LOG_FORMAT", "xml", "LIVERANK_LOG_FORMAT: 'xml' must be one of text, json"),
        ("LIVERANK_INSECURE", "yes", "LIVERANK_INSECURE: 'yes' must be one of 1, true, 0, false"),
        (
            "LIVERANK_SLOW_CLIENT_SECONDS",
            "0",
            "LIVERANK_SLOW_CLIENT_SECONDS: '0' must be a number from 0.1 to 86400",
        ),
        (
            "LIVERANK_SLOW_BATCH_SECONDS",
            "nan",
            "LIVERANK_SLOW_BATCH_SECONDS: 'nan' must be a number from 0 to 86400",
        ),
        *(
            (
                "LIVERANK_DEVICE_MEMORY",
                size,
                f"LIVERANK_DEVICE_MEMORY: {size!r} must be whole bytes, or a number with KiB, MiB, "
                "GiB or TiB, at least 1MiB",
            )
            for size in ("8GB", "0.1", "1.5", "1", "1048575", "1023KiB", "8388608TiB")
        ),
        (
            "LIVERANK_BACKEND",
            "tpu",
            "LIVERANK_BACKEND: 'tpu' must be one of auto, cpu, cuda, reference",
        ),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidSetting) as caught:
        Settings()
    assert str(caught.value) == message


@pytest.mark.parametrize("key", ["short", "x" * 31, "with a space" * 5, "schlüssel" * 5])
def test_a_weak_key_is_refused_without_being_repeated(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVERANK_API_KEY", key)
    with pytest.raises(InvalidSetting) as caught:
        Settings()
    assert key not in "".join(traceback.format_exception(caught.value))
    assert str(caught.value) == (
        f"LIVERANK_API_KEY: '{len(key)} characters' must be 32 or more visible ASCII characters, "
        "drawn at random"
    )


def test_a_key_does_not_show_in_the_settings() -> None:
    assert "x" * 32 not in repr(Settings(api_key="x" * 32))


@pytest.mark.parametrize(("text", "value"), [("1", True), ("TRUE", True), ("0", False)])
def test_a_switch_is_on_or_off(text: str, value: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVERANK_INSECURE", text)
    assert Settings().insecure is value


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8589934592", 8 << 30),
        ("8GiB", 8 << 30),
        ("1.5 MiB", 3 << 19),
        ("2TiB", 2 << 40),
        ("9007199254740993", (1 << 53) + 1),
    ],
)
def test_a_size_may_have_a_unit(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVERANK_DEVICE_MEMORY", text)
    assert Settings().device_memory == size


@pytest.mark.parametrize(
    ("host", "alone"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("db", False)],
)
def test_loopback_is_distinguished_from_other_hosts(host: str, alone: bool) -> None:
    assert Settings(host=host).loopback is alone


TLS = {"shards": 2, "cluster": "tls://h:8786"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"shards": 2, "cluster": "tcp://h:8786"},
            "CLUSTER: 'tcp://h:8786' must be tls://HOST:PORT; --insecure accepts tcp://HOST:PORT "
            "too",
        ),
        (
            {"device_memory": "1MiB", "backend": "cpu"},
            "DEVICE_MEMORY: 1048576 must be unset with LIVERANK_BACKEND=cpu",
        ),
        ({"cluster": "tls://h"}, "SHARDS: 0 must be 1 or more, because of LIVERANK_CLUSTER"),
        ({"cluster_ca": "/c"}, "CLUSTER_CA: '/c' must be unset without LIVERANK_CLUSTER"),
        ({"cluster_cert": "/c"}, "CLUSTER_CERT: '/c' must be unset without LIVERANK_CLUSTER"),
        ({"cluster_key": "/k"}, "CLUSTER_KEY: '/k' must be unset without LIVERANK_CLUSTER"),
        (
            {**TLS, "cluster_key": "/k"},
            "CLUSTER_KEY: '/k' must be unset without LIVERANK_CLUSTER_CERT",
        ),
    ],
)
def test_settings_that_a_server_cannot_use_together_are_named(
    given: dict[str, Any], message: str
) -> None:
    settings = Settings(**given)  # which may be those of a server, read by another command
    with pytest.raises(InvalidSetting) as caught:
        settings.check_server()
    assert str(caught.value) == PREFIX + message


def test_a_server_refuses_settings_that_it_cannot_use_together(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="LIVERANK_CLUSTER_CA"):
        create_app(Settings(data=tmp_path, cluster_ca="/ca.pem"))


def test_a_cluster_has_tls_and_shards() -> None:
    Settings(shards=2, cluster="tcp://h:8786", insecure=True).check_server()
    settings = Settings(**TLS, cluster_cert="/c.pem", cluster_key="/k.pem", backend="cuda")
    settings.check_server()
    assert settings.dask_cluster == Cluster("tls://h:8786", cert="/c.pem", key="/k.pem")
    settings = Settings(**TLS, cluster_ca="/ca.pem")
    assert settings.dask_cluster == Cluster("tls://h:8786", ca="/ca.pem")
    with pytest.raises(InvalidSetting, match="LIVERANK_CLUSTER_KEY: '' must be the path of a file"):
        Settings(cluster_key="")
