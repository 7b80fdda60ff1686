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
        ("LIVERANK_BACKEND", "tpu", "LIVERANK_BACKEND: 'tpu' must be one of auto, cpu, cuda"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Settings.from_environment({name: value})
    assert str(caught.value) == message
