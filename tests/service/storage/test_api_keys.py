"""The file of API keys."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from service.app import create_app
from service.errors import LastApiKey, StorageFailed
from service.settings import Settings
from service.storage.api_keys import ApiKeyStore, digest_of
from tests.service.server import running

ENVIRONMENT_KEY = "k" * 32
MINE, OTHER = "mine", "other"

BODIES: dict[str, Any] = {
    "POST /graphs/{graph}/personalized": {"queries": [{"seeds": {"a": 1}}]},
    "PUT /graphs/{graph}/watched/{name}": {"seeds": {"a": 1}},
    "POST /graphs/{graph}/batches": {"insert": [["a", "b"]]},
    "POST /graphs/{graph}/ranks": {"vertices": ["a"]},
    "POST /keys": {"name": "made by a test", "scope": "read"},
}
DONE = (200, 201, 202, 204)


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
