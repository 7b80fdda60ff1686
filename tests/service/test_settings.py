from __future__ import annotations

from pathlib import Path

import pytest

from service.settings import InvalidSetting, Settings


def test_defaults() -> None:
    assert Settings.from_environment({}) == Settings(
        Path("liverank-data"), "127.0.0.1", 8080, "auto", 268_435_456
    )


def test_the_environment_comes_before_the_defaults_and_arguments_before_it() -> None:
    environment = {
        "LIVERANK_DATA": "/srv/ranks",
        "LIVERANK_PORT": "9000",
        "LIVERANK_BACKEND": "cpu",
        "LIVERANK_MAX_BODY_BYTES": "1000",
    }
    settings = Settings.from_environment(environment, port=7000, host=None)
    assert settings == Settings(Path("/srv/ranks"), "127.0.0.1", 7000, "cpu", 1000)


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
        ("LIVERANK_DATA", "", "LIVERANK_DATA: '' must be the path of a directory"),
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
        ("LIVERANK_BACKEND", "tpu", "LIVERANK_BACKEND: 'tpu' must be one of auto, cpu, cuda"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Settings.from_environment({name: value})
    assert str(caught.value) == message


@pytest.mark.parametrize("key", ["short", "x" * 31, "with a space" * 5, "schlüssel" * 5])
def test_a_weak_key_is_refused_without_being_repeated(key: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Settings.from_environment({"LIVERANK_API_KEY": key})
    assert str(caught.value) == (
        f"LIVERANK_API_KEY: '{len(key)} characters' must be 32 or more visible ASCII characters, "
        "drawn at random"
    )


def test_a_key_does_not_show_in_the_settings() -> None:
    assert "x" * 32 not in repr(Settings(api_key="x" * 32))


@pytest.mark.parametrize(("text", "value"), [("1", True), ("TRUE", True), ("0", False)])
def test_a_switch_is_on_or_off(text: str, value: bool) -> None:
    assert Settings.from_environment({"LIVERANK_INSECURE": text}).insecure is value


@pytest.mark.parametrize(
    ("host", "alone"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("db", False)],
)
def test_loopback_is_told_from_other_hosts(host: str, alone: bool) -> None:
    assert Settings(host=host).loopback is alone
