"""`liverank serve --keys DIR`: the keys of a container, whatever interrupts the making of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from liverank_service.cli.provided_keys import provide_keys
from liverank_service.errors import StorageFailed
from liverank_service.storage import api_keys
from liverank_service.storage.api_keys import ApiKeyStore
from liverank_service.storage.files import locked

ENVIRONMENT_KEY = "k" * 40


class Killed(BaseException):
    """Ends the process where it is raised."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    directory = tmp_path / "keys"
    directory.mkdir()
    return directory


def scope_of(data: Path, file: Path, environment_key: str | None = None) -> str | None:
    """The scope of the key in the file; None if it is not valid."""
    key = ApiKeyStore(data, environment_key).find(file.read_text().strip())
    return None if key is None else key.scope


def check(data: Path, keys: Path) -> None:
    """Everybody has a key that is valid."""
    assert scope_of(data, keys / "operator") == "admin"
    assert scope_of(data, keys / "prometheus") == "read"


def test_the_first_start_makes_both_keys_and_the_next_one_none(data: Path, keys: Path) -> None:
    provide_keys(keys, data, None)
    check(data, keys)
    assert (keys / "operator").stat().st_mode & 0o777 == 0o600
    assert (keys / "prometheus").stat().st_mode & 0o777 == 0o644
    texts = {file.name: file.read_text() for file in keys.iterdir()}
    assert set(texts) == {"operator", "prometheus"}
    with locked(data), pytest.raises(StorageFailed, match="another server uses this data"):
        provide_keys(keys, data, None)
    provide_keys(keys, data, None)
    assert {file.name: file.read_text() for file in keys.iterdir()} == texts


@pytest.mark.parametrize("call", range(40))
def test_a_kill_at_any_call_leaves_everybody_with_a_key(
    data: Path, keys: Path, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call that changes a file is the last one of a process, in turn; the next start mends."""
    (keys / "operator").write_text("lvr_0123456789ab_of_other_data\n")
    calls = 0

    def until_killed(function: object) -> object:
        assert callable(function)

        def counted(*arguments: object, **options: object) -> object:
            nonlocal calls
            calls += 1
            if calls > call:
                raise Killed
            return function(*arguments, **options)

        return counted

    with monkeypatch.context() as patch:
        for name in ("rename", "replace", "open", "fsync", "fchmod"):
            patch.setattr(os, name, until_killed(getattr(os, name)))
        try:
            provide_keys(keys, data, None)
        except Killed:
            assert calls == call + 1
        else:
            assert calls <= call
    old = {"operator", "operator.0123456789ab"} & {file.name for file in keys.iterdir()}
    assert any("of_other_data" in (keys / name).read_text() for name in old)
    provide_keys(keys, data, None)
    check(data, keys)
    assert (keys / "operator.0123456789ab").read_text() == "lvr_0123456789ab_of_other_data\n"


def test_the_kills_above_reach_the_end(data: Path, keys: Path) -> None:
    test_a_kill_at_any_call_leaves_everybody_with_a_key(data, keys, 10**6, pytest.MonkeyPatch())


def test_a_key_of_the_environment_does_not_leave_prometheus_without_one(
    data: Path, keys: Path
) -> None:
    provide_keys(keys, data, ENVIRONMENT_KEY)
    assert [file.name for file in keys.iterdir()] == ["prometheus"]
    assert scope_of(data, keys / "prometheus", ENVIRONMENT_KEY) == "read"


@pytest.mark.parametrize("content", [None, b"", b"lvr_revoked", b"\xff\xfe"])
def test_prometheus_gets_another_key_where_its_own_is_not_valid(
    data: Path, keys: Path, content: bytes | None
) -> None:
    provide_keys(keys, data, None)
    operator = (keys / "operator").read_text()
    (keys / "prometheus").unlink()
    if content is not None:
        (keys / "prometheus").write_bytes(content)
    provide_keys(keys, data, None)
    check(data, keys)
    assert (keys / "operator").read_text() == operator


def test_no_second_operator_is_made_where_the_first_one_took_the_file_away(
    data: Path, keys: Path
) -> None:
    provide_keys(keys, data, None)
    (keys / "operator").unlink()
    provide_keys(keys, data, None)
    assert not (keys / "operator").exists()
    assert [key.scope for key in ApiKeyStore(data).listed()] == ["admin", "read"]


def test_the_old_keys_stay_where_the_data_cannot_be_written(
    data: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StorageFailed(data, "read-only")

    (keys / "operator").write_text("old")
    monkeypatch.setattr(api_keys, "replace_file", fail)
    with pytest.raises(StorageFailed, match="read-only"):
        provide_keys(keys, data, None)
    assert (keys / "operator").read_text() == "old"


def test_a_directory_that_cannot_be_written_is_named(data: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match=f"^{tmp_path}/none: "):
        provide_keys(tmp_path / "none", data, None)
    assert not ApiKeyStore(data)
