"""The file of API keys."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from liverank_service.app import create_app
from liverank_service.cli.main import main
from liverank_service.errors import ApiKeysMissing, FileDamaged, LastApiKey, StorageFailed
from liverank_service.settings import Settings
from liverank_service.storage.api_keys import ApiKeyStore, digest_of
from tests.service.server import running

ENVIRONMENT_KEY = "k" * 32
MINE, OTHER = "mine", "other"

BODIES: dict[str, Any] = {
    "POST /graphs/{graph}/personalized": {"queries": [{"seeds": {"a": 1}}]},
    "PUT /graphs/{graph}/watched/{name}": {"seeds": {"a": 1}},
    "POST /graphs/{graph}/batches": {"insert": [["a", "b"]]},
    "POST /graphs/{graph}/ranks": {"vertices": ["a"]},
    "POST /graphs/{graph}/subgraph": {"vertices": ["a"]},
    "POST /keys": {"name": "made by a test", "scope": "read"},
}
DONE = (200, 201, 202, 204)


def command(*arguments: str) -> int | str | None:
    """Its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def test_keys_survive_a_restart_and_only_their_hashes_are_on_disk(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        first = server.http.post("/keys", json={"name": "first", "scope": "admin"}).json()
        assert server.http.get("/graphs").status_code == 401
    path = tmp_path / "keys.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert first["key"].split("_", 2)[2] not in path.read_text()
    assert digest_of(first["key"]) in path.read_text()
    with running(tmp_path) as server:
        assert server.http.get("/graphs").status_code == 401
        bearer = {"Authorization": f"Bearer {first['key']}"}
        listed = server.http.get("/keys", headers=bearer).json()["keys"]
    assert listed == [{name: value for name, value in first.items() if name != "key"}]


def test_a_key_has_256_random_bits(tmp_path: Path) -> None:
    store = ApiKeyStore(tmp_path)
    texts = {store.create("k", "admin", None)[1] for _ in range(20)}
    assert len(texts) == 20
    assert all(re.fullmatch(r"lvr_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", text) for text in texts)


def test_the_first_key_is_an_administrators(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        for body in (
            {"name": "n", "scope": "write"},
            {"name": "n", "scope": "admin", "graphs": ["default"]},
        ):
            answer = server.http.post("/keys", json=body)
            assert answer.status_code == 422
            assert answer.json()["detail"].endswith(
                "admin, for all graphs, since it is the first key"
            )
        assert server.http.get("/keys").json() == {"keys": []}


def test_the_last_administrators_key_cannot_be_revoked(tmp_path: Path) -> None:
    store = ApiKeyStore(tmp_path)
    first, _ = store.create("first", "admin", None)
    reader, _ = store.create("reader", "read", ["g", "g"])
    assert reader.graphs == ("g",)
    store.revoke(reader.id)
    with pytest.raises(LastApiKey, match="is the last one with scope admin for all graphs"):
        store.revoke(first.id)
    second, text = store.create("second", "admin", None)
    store.revoke(first.id)
    assert store.find(text) == second
    assert [key.id for key in ApiKeyStore(tmp_path).listed()] == [second.id]


def test_a_change_that_cannot_be_written_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ApiKeyStore(tmp_path)
    store.create("first", "admin", None)
    second, _ = store.create("second", "admin", None)

    def full(_path: Path, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(StorageFailed, match="No space left on device"):
        store.create("third", "read", None)
    with pytest.raises(StorageFailed):
        store.revoke(second.id)
    assert len(store.listed()) == 2
    monkeypatch.undo()
    assert len(ApiKeyStore(tmp_path).listed()) == 2


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "keys": [{"id": "x"}]}', "\0"]
)
def test_a_file_of_keys_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys.json").write_text(text)
    with pytest.raises(StorageFailed, match=r"keys\.json: is not a file of API keys"):
        create_app(Settings(data=tmp_path))


def test_a_file_of_keys_of_another_format_is_named(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text('{"format": 2, "keys": []}')
    with pytest.raises(StorageFailed, match="has format 2, expected 1"):
        ApiKeyStore(tmp_path)


def test_a_row_with_an_unknown_scope_is_refused(tmp_path: Path) -> None:
    store = ApiKeyStore(tmp_path)
    store.create("first", "admin", None)
    path = tmp_path / "keys.json"
    document = json.loads(path.read_text())
    document["keys"][0]["scope"] = "root"
    path.write_text(json.dumps(document))
    with pytest.raises(StorageFailed, match="scope 'root'"):
        ApiKeyStore(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "xyz"),
        ("id", None),
        ("name", ""),
        ("name", 7),
        ("scope", None),
        ("graphs", []),
        ("graphs", [7]),
        ("graphs", "default"),
        ("created", "yesterday"),
        ("created", 7),
        ("sha256", "00"),
        ("sha256", "x" * 64),
        ("more", 1),
    ],
)
def test_every_field_of_a_key_is_validated(tmp_path: Path, field: str, value: Any) -> None:
    ApiKeyStore(tmp_path).create("first", "admin", None)
    path = tmp_path / "keys.json"
    document = json.loads(path.read_text())
    document["keys"][0][field] = value
    path.write_text(json.dumps(document))
    with pytest.raises(FileDamaged, match=rf"not a file of API keys: keys\[0\]\.{field}"):
        ApiKeyStore(tmp_path)


def test_two_keys_with_one_id_are_refused(tmp_path: Path) -> None:
    ApiKeyStore(tmp_path).create("first", "admin", None)
    path = tmp_path / "keys.json"
    document = json.loads(path.read_text())
    document["keys"] *= 2
    path.write_text(json.dumps(document))
    with pytest.raises(FileDamaged, match="two keys have the same id"):
        ApiKeyStore(tmp_path)


@pytest.mark.parametrize(
    "given", ["in the file", "in the file of an earlier release", "by setting"]
)
@pytest.mark.parametrize("left", ["nothing", "no keys"])
def test_a_server_that_had_keys_does_not_start_without(
    tmp_path: Path, given: str, left: str
) -> None:
    if given == "by setting":
        create_app(Settings(data=tmp_path, api_key=ENVIRONMENT_KEY))
    else:
        ApiKeyStore(tmp_path).create("first", "admin", None)
    if given == "in the file of an earlier release":
        (tmp_path / "keys.required").unlink()
        create_app(Settings(data=tmp_path))
    path = tmp_path / "keys.json"
    path.unlink(missing_ok=True)
    if left == "no keys":
        path.write_text('{"format": 1, "keys": []}')
    for _ in range(2):
        with pytest.raises(ApiKeysMissing, match=r"keys\.json: is missing or has no keys, but"):
            create_app(Settings(data=tmp_path))
    create_app(Settings(data=tmp_path, insecure=True))
    create_app(Settings(data=tmp_path, api_key=ENVIRONMENT_KEY))
    assert command("keys", "reset", "--data", str(tmp_path)) == 0
    create_app(Settings(data=tmp_path))
    assert [file.name for file in tmp_path.iterdir()] == ["lock"]


def test_keys_are_not_reset_while_a_server_uses_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = ApiKeyStore(tmp_path).create("first", "admin", None)
    with running(tmp_path) as server:
        assert command("keys", "reset", "--data", str(tmp_path)) == 1
        assert "another server uses this data directory" in capsys.readouterr().err
        bearer = {"Authorization": f"Bearer {text}"}
        assert server.http.get("/graphs", headers=bearer).status_code == 200


def test_a_damaged_file_of_keys_can_be_reset(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("\0")
    assert command("keys", "reset", "--data", str(tmp_path)) == 0
    assert not ApiKeyStore(tmp_path)


def test_only_the_owner_may_read_a_data_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(0o755)
    before = os.umask(0o022)
    try:
        with running(data) as server:
            server.http.post("/graphs/default/batches", json={"insert": [["a", "b"]]})
            server.http.put("/graphs/default/watched/one", json={"seeds": {"a": 1}})
            server.http.post("/graphs/default/checkpoint").raise_for_status()
            key = {"name": "first", "scope": "admin"}
            server.http.post("/keys", json=key).raise_for_status()
            assert command("backup", str(tmp_path / "copy"), "--data", str(data)) == 0
        assert command("restore", str(tmp_path / "copy"), "--data", str(tmp_path / "new")) == 0
    finally:
        os.umask(before)
    for top in (data, tmp_path / "copy", tmp_path / "new"):
        for path in (top, *top.rglob("*")):
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), path
    assert len(list(data.rglob("*"))) > 10
