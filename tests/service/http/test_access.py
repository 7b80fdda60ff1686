"""Authorization: every endpoint with every kind of key, and servers without keys."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

from liverank.choices import Scope
from liverank.client import Client, ServerError
from liverank_service.app import create_app
from liverank_service.errors import UnknownApiKey, Unprotected
from liverank_service.http.access import LIST_OF_GRAPHS, REQUIRED_SCOPE
from liverank_service.http.route import Route
from liverank_service.settings import Settings
from liverank_service.storage.api_keys import ApiKeyStore, digest_of
from tests.service.http.test_programs import HOPS
from tests.service.server import Server, openapi, running

ENVIRONMENT_KEY = "k" * 32
MINE, OTHER = "mine", "other"

BODIES: dict[str, Any] = {
    "POST /graphs/{graph}/personalized": {"queries": [{"seeds": {"a": 1}}]},
    "PUT /graphs/{graph}/watched/{name}": {"seeds": {"a": 1}},
    "PUT /graphs/{graph}/views/{view}": {"teleport": {"weights": {"a": 1}}},
    "PUT /graphs/{graph}/sets/{name}": {"vertices": ["a"]},
    "PUT /graphs/{graph}/consumers/{source}": {"consumer": "c", "state": "consuming"},
    "POST /graphs/{graph}/batches": {"insert": [["a", "b"]]},
    "POST /graphs/{graph}/ranks": {"vertices": ["a"]},
    "POST /graphs/{graph}/subgraph": {"vertices": ["a"]},
    "PUT /programs/{name}": {"source": HOPS},
    "POST /keys": {"name": "made by a test", "scope": "read"},
}
DONE = (200, 201, 202, 204)


@dataclass
class Guarded:
    """A server with keys: one for each scope, for all graphs and for `MINE` only."""

    server: Server
    keys: dict[str, str]

    def call(self, call: str, key: str | None, graph: str = MINE) -> httpx.Response:
        method, path = call.split(" ")
        if call == "DELETE /keys/{id}":
            path = "/keys/" + self.spare_key()
        elif call == "DELETE /graphs/{graph}":
            graph = self.spare_graph(graph)
        name = self.existing(path, graph) if method in ("GET", "DELETE") else "new"
        analysis = "components" if method == "POST" else self.analysis(path, graph)
        path = path.format(
            graph=graph,
            vertex="a",
            version=1,
            name=name,
            view=name,
            source="s",
            analysis=analysis,
        )
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        with self.server.http.stream(
            method, path, headers=headers, json=BODIES.get(call)
        ) as answer:
            if answer.headers.get("content-type", "").startswith("text/event-stream"):
                # it has no end
                return httpx.Response(answer.status_code, content=next(answer.iter_bytes()))
            answer.read()
            return answer

    def spare_graph(self, graph: str) -> str:
        """A graph that may be dropped, and that keys for `graph` may access."""
        graph = f"{graph}-too"
        self.admin("PUT", f"/graphs/{graph}")
        return graph

    def existing(self, path: str, graph: str) -> str:
        """The name of an existing watched query, view, program or set."""
        if "/watched/{name}" in path:
            self.admin("PUT", f"/graphs/{graph}/watched/there", {"seeds": {"a": 1}})
        elif "/views/{view}" in path:
            self.admin("PUT", f"/graphs/{graph}/views/there", {"teleport": "uniform"})
        elif "/programs/{name}" in path:
            self.admin("PUT", "/programs/there", {"source": HOPS})
        elif "/sets/{name}" in path:
            self.admin("PUT", f"/graphs/{graph}/sets/there", {"vertices": ["a"]})
        return "there"

    def analysis(self, path: str, graph: str) -> str:
        """The id of an analysis that has finished, made if there is none."""
        if "{analysis}" not in path:
            return ""
        analyses = f"/graphs/{graph}/analyses"
        known = self.admin("GET", analyses).json()["analyses"]
        if not known:
            known = [self.admin("POST", f"{analyses}/components").json()]
        found = str(known[0]["id"])
        self.admin("GET", f"{analyses}/{found}?wait=60")
        return found

    def spare_key(self) -> str:
        made = self.admin("POST", "/keys", {"name": "spare", "scope": "read"})
        return str(made.json()["id"])

    def admin(self, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {ENVIRONMENT_KEY}"}
        answer = self.server.http.request(method, path, headers=headers, json=body)
        assert answer.status_code in DONE, answer.text
        return answer


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    data = tmp_path_factory.mktemp("data")
    with running(data, api_key=ENVIRONMENT_KEY, programs=True) as server:
        guarded = Guarded(server, {})
        for graph in (MINE, OTHER):
            guarded.admin("PUT", f"/graphs/{graph}")
            guarded.admin("POST", f"/graphs/{graph}/batches", {"insert": [["a", "b"]]})
        for scope in get_args(Scope):
            for graphs in (None, [MINE, "mine-too"]):
                body = {"name": f"{scope} {graphs}", "scope": scope, "graphs": graphs}
                made = guarded.admin("POST", "/keys", body).json()
                guarded.keys[f"{scope} all" if graphs is None else f"{scope} some"] = made["key"]
        revoked = guarded.admin("POST", "/keys", {"name": "gone", "scope": "admin"}).json()
        guarded.admin("DELETE", f"/keys/{revoked['id']}")
        genuine = guarded.keys["admin all"]
        guarded.keys |= {
            "revoked": revoked["key"],
            "wrong": "lvr_000000000000_" + "x" * 43,
            "wrong secret": genuine[:-1] + ("A" if genuine[-1] != "A" else "B"),
            "shortened": genuine[:-1],
            "id alone": genuine[:16],
        }
        yield guarded


def expected_status(call: str, kind: str, graph: str) -> tuple[int, ...]:
    """As documented: scopes include each other, and a key is valid for its graphs."""
    due = REQUIRED_SCOPE[call]
    if due is None:
        return DONE
    scope, _, reach = kind.partition(" ")
    if scope not in get_args(Scope):
        return (401,)
    order = get_args(Scope)
    if order.index(scope) < order.index(due):
        return (403,)
    names_graph = "{graph}" in call
    if reach == "some" and (graph == OTHER if names_graph else call != LIST_OF_GRAPHS):
        return (403,)
    return DONE


@pytest.mark.parametrize("call", REQUIRED_SCOPE)
def test_every_call_with_every_key_is_answered_as_documented(guarded: Guarded, call: str) -> None:
    kinds = ["no key", *guarded.keys]
    for kind, graph in product(kinds, (MINE, OTHER)):
        if graph == OTHER and kind.partition(" ")[0] not in get_args(Scope):
            continue  # who is no one is refused whatever is asked for
        key = guarded.keys.get(kind)
        answer = guarded.call(call, key, graph)
        assert answer.status_code in expected_status(call, kind, graph), (kind, graph, answer.text)
        if answer.status_code == 401:
            assert answer.headers["www-authenticate"] == 'Bearer realm="liverank"'
            assert answer.json()["type"] == "urn:liverank:problem:unauthorized"
        if answer.status_code == 403:
            assert answer.json()["type"] == "urn:liverank:problem:forbidden"


def test_a_call_that_is_refused_changes_nothing(guarded: Guarded) -> None:
    before = guarded.admin("GET", f"/graphs/{MINE}").json()
    for kind in ("read all", "read some", "revoked", "wrong", "wrong secret"):
        for call in ("POST /graphs/{graph}/batches", "DELETE /graphs/{graph}"):
            guarded.call(call, guarded.keys[kind])
    assert guarded.admin("GET", f"/graphs/{MINE}").json() == before


def test_refusals_name_the_required_scope(guarded: Guarded) -> None:
    def detail(call: str, kind: str, graph: str = MINE) -> str:
        return str(guarded.call(call, guarded.keys.get(kind), graph).json()["detail"])

    batches = "POST /graphs/{graph}/batches"
    assert detail(batches, "none") == "an API key is required, as Authorization: Bearer <key>"
    assert detail(batches, "wrong") == "the API key is wrong or was revoked"
    assert detail(batches, "revoked") == detail(batches, "wrong secret") == detail(batches, "wrong")
    assert detail(batches, "read all") == "key 'read None' has scope read; this call needs write"
    assert detail(batches, "write some", OTHER).endswith("is not for graph 'other'")
    assert detail("GET /metrics", "admin some").endswith(
        "is for some graphs; this call needs one for all"
    )


@pytest.mark.parametrize("value", ["Basic YTpi", "Bearer", "bearer", "Token x", b"Bearer \xff\xfe"])
def test_a_header_that_is_no_bearer_key_is_refused(guarded: Guarded, value: str | bytes) -> None:
    sent = value if isinstance(value, bytes) else value.encode()
    answer = guarded.server.http.get("/graphs", headers={b"Authorization": sent})
    assert answer.status_code == 401


def test_the_word_bearer_may_have_any_case(guarded: Guarded) -> None:
    answer = guarded.server.http.get(
        "/graphs", headers={"Authorization": f"bearer {ENVIRONMENT_KEY}"}
    )
    assert answer.status_code == 200


def test_the_list_shows_only_the_graphs_of_the_key(guarded: Guarded) -> None:
    answer = guarded.call("GET /graphs", guarded.keys["read some"])
    names = {graph["graph"] for graph in answer.json()["graphs"]}
    assert OTHER not in names
    assert MINE in names


def test_a_graph_that_a_key_is_not_for_looks_the_same_whether_it_exists(guarded: Guarded) -> None:
    answers = [
        guarded.call("GET /graphs/{graph}", guarded.keys["read some"], graph).json()
        for graph in (OTHER, "nowhere")
    ]
    assert [answer["status"] for answer in answers] == [403, 403]


def test_an_unknown_graph_is_answered_with_those_of_the_key(guarded: Guarded) -> None:
    body = {"name": "of a missing graph", "scope": "read", "graphs": [MINE, "missing"]}
    some = guarded.admin("POST", "/keys", body).json()["key"]
    details = [
        guarded.call("GET /graphs/{graph}", key, graph).json()["detail"]
        for key, graph in (
            (some, "missing"),
            (guarded.keys["read all"], "missing"),
            (guarded.keys["read some"], "missing"),
        )
    ]
    assert details[0] == f"there is no graph 'missing'; there are: {MINE}"
    assert re.match(rf"there is no graph 'missing'; there are: .*\b{OTHER}\b", details[1])
    assert "there are" not in details[2]


def test_no_key_is_ever_logged(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for call, key in zip(REQUIRED_SCOPE, cycle(guarded.keys.values()), strict=False):
            guarded.call(call, key)
        made = guarded.admin("POST", "/keys", {"name": "n", "scope": "read"}).json()["key"]
    text = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    assert "API key created" in text
    for key in (*guarded.keys.values(), made, ENVIRONMENT_KEY):
        if len(key) > 20:
            assert key not in text
            assert digest_of(key) not in text
            assert key[17:] not in text


def test_an_unready_server_shows_the_reason_only_to_keys(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "secret-name").mkdir()
    with running(tmp_path, wait_until_ready=False, api_key=ENVIRONMENT_KEY) as server:
        headers = {"Authorization": f"Bearer {ENVIRONMENT_KEY}"}
        while "secret-name" not in server.http.get("/readyz", headers=headers).text:
            pass
        detail = server.http.get("/readyz").json()["detail"]
    assert detail == "the server is not ready: the reason is shown to API keys only"


def test_a_key_that_is_not_there_cannot_be_revoked(guarded: Guarded, tmp_path: Path) -> None:
    with pytest.raises(UnknownApiKey):
        ApiKeyStore(tmp_path).revoke("abc")
    headers = {"Authorization": f"Bearer {ENVIRONMENT_KEY}"}
    for identity in ("000000000000", "environment"):
        answer = guarded.server.http.delete(f"/keys/{identity}", headers=headers)
        assert answer.status_code == 404
        assert answer.json()["detail"] == f"there is no stored API key '{identity}'"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "", "scope": "read"}, "name"),
        ({"name": "x" * 101, "scope": "read"}, "name"),
        ({"name": "a\nb", "scope": "read"}, "name"),
        ({"name": "n", "scope": "owner"}, "scope"),
        ({"name": "n", "scope": "read", "graphs": []}, "graphs"),
        ({"name": "n", "scope": "read", "graphs": [1]}, "graphs"),
        ({"name": "n", "scope": "read", "until": 5}, "until"),
        ({"scope": "read"}, "name"),
    ],
)
def test_a_key_with_a_wrong_option_is_not_made(guarded: Guarded, body: Any, field: str) -> None:
    before = guarded.admin("GET", "/keys").json()
    headers = {"Authorization": f"Bearer {ENVIRONMENT_KEY}"}
    answer = guarded.server.http.post("/keys", json=body, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["field"] == field
    assert guarded.admin("GET", "/keys").json() == before


# Servers without keys


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])
def test_a_server_that_others_can_reach_does_not_start_without_keys(
    tmp_path: Path, host: str
) -> None:
    with pytest.raises(Unprotected, match="lets other machines connect, but no API key is set"):
        create_app(Settings(data=tmp_path, host=host))
    create_app(Settings(data=tmp_path, host=host, insecure=True))
    create_app(Settings(data=tmp_path, host=host, api_key=ENVIRONMENT_KEY))
    ApiKeyStore(tmp_path).create("first", "admin", None)
    create_app(Settings(data=tmp_path, host=host))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.5.6.7", "::1", "localhost"])
def test_a_server_on_loopback_needs_no_keys(tmp_path: Path, host: str) -> None:
    create_app(Settings(data=tmp_path, host=host))


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:8080", 200),
        ("localhost:1", 200),
        ("LOCALHOST", 200),
        ("[::1]:8080", 200),
        ("127.9.9.9", 200),
        ("attacker.example", 421),
        ("attacker.example:8080", 421),
        ("localhost.attacker.example", 421),
        ("127.0.0.1.attacker.example", 421),
        ("127.0.0.1@attacker.example", 421),
        ("10.0.0.1", 421),
        ("0.0.0.0", 421),
        ("[::1", 421),
        ("", 421),
    ],
)
def test_without_keys_only_loopback_names_are_answered(
    server: Server, host: str, status: int
) -> None:
    answer = server.http.get("/graphs", headers={"Host": host})
    assert answer.status_code == status
    if status == 421:
        assert answer.json()["type"] == "urn:liverank:problem:host-not-allowed"
    assert server.http.get("/livez", headers={"Host": host}).status_code == 200


def test_without_keys_pages_of_other_sites_are_not_answered(server: Server) -> None:
    """A page can POST a body without a content type across origins: that would be a batch."""
    path = server.new_graph()
    own = str(server.http.base_url).rstrip("/")
    for origin, status in (
        ("https://attacker.example", 403),
        ("null", 403),
        ("http://127.0.0.1:1", 403),
        (own, 200),
    ):
        answer = server.http.post(
            f"{path}/batches", content=b'{"insert": [["a", "b"]]}', headers={"Origin": origin}
        )
        assert answer.status_code == status, origin
    assert server.http.get(path).json()["version"] == 1


@pytest.mark.parametrize(
    "header", ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "x-forwarded-anything"]
)
def test_without_keys_forwarded_requests_are_not_answered(
    server: Server, guarded: Guarded, header: str
) -> None:
    answer = server.http.get("/graphs", headers={header: "for=192.0.2.7"})
    assert answer.status_code == 403
    assert answer.json()["type"] == "urn:liverank:problem:forwarded-request"
    assert answer.json()["field"] == header.lower()
    assert "so a proxy forwarded it" in answer.json()["detail"]
    assert server.http.get("/livez", headers={header: "1"}).status_code == 200
    key = {"Authorization": f"Bearer {ENVIRONMENT_KEY}", header: "1"}
    assert guarded.server.http.get("/graphs", headers=key).status_code == 200


def test_a_server_that_is_open_on_purpose_answers_forwarded_requests(tmp_path: Path) -> None:
    with running(tmp_path, insecure=True) as server:
        assert server.http.get("/graphs", headers={"X-Forwarded-For": "1"}).status_code == 200


def test_no_answer_invites_another_origin(server: Server) -> None:
    headers = {"Origin": "https://attacker.example", "Access-Control-Request-Method": "POST"}
    for method, path in (("OPTIONS", "/graphs"), ("GET", "/livez"), ("GET", "/docs")):
        answer = server.http.request(method, path, headers=headers)
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_every_call_of_the_application_is_in_the_table_or_a_page_without_data() -> None:
    """Every call in the table is made with every key above; a new route must be in the table."""
    app = create_app(Settings())
    described = {
        f"{method.upper()} {path}" for path, calls in openapi()["paths"].items() for method in calls
    }
    assert described == set(REQUIRED_SCOPE)
    # other routes are open to all
    routes = [route for route in app.routes if not isinstance(route, Route)]
    beside = {getattr(route, "path", None) for route in routes}
    of_docs = {"/docs", "/openapi.json", "/static-offline-docs"}
    assert beside == of_docs | {"/", "/dashboard"}


def test_a_call_without_a_scope_stops_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(REQUIRED_SCOPE, "GET /graphs/{graph}/top")
    with pytest.raises(
        LookupError, match=r"REQUIRED_SCOPE has no entry for GET /graphs/\{graph\}/top"
    ):
        create_app(Settings())


# The client and the pages


def test_the_client_sends_its_key_and_manages_others(guarded: Guarded) -> None:
    url = str(guarded.server.http.base_url)
    with Client(url, api_key=ENVIRONMENT_KEY) as client:
        made = client.create_key("from the client", "write", ["mine"])
        listed = client.keys()
        assert made.id in [key.id for key in listed]
        with Client(url, api_key=made.key) as writer:
            assert writer.send("mine", insert=[("x", "y")]).inserted == 1
            client.revoke_key(made.id)
            with pytest.raises(ServerError, match="wrong or was revoked"):
                writer.send("mine", insert=[("x", "z")])


def test_the_client_reads_its_key_from_the_environment(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVERANK_API_KEY", ENVIRONMENT_KEY)
    with Client(str(guarded.server.http.base_url)) as client:
        assert client.graphs()


def test_pages_run_only_scripts_of_this_server_and_cannot_be_framed(server: Server) -> None:
    answer = server.http.get("/docs")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self' 'sha256-" in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    for path in ("/docs", "/livez", "/nowhere", "/openapi.json"):
        assert server.http.get(path).headers["x-content-type-options"] == "nosniff"


def test_openapi_names_the_scope_and_the_key_of_every_call(server: Server) -> None:
    schema = server.http.get("/openapi.json").json()
    assert schema["components"]["securitySchemes"] == {"key": {"type": "http", "scheme": "bearer"}}
    for call, scope in REQUIRED_SCOPE.items():
        method, path = call.split(" ")
        described = schema["paths"][path][method.lower()]
        if scope is None:
            assert "security" not in described
        else:
            assert described["security"] == [{"key": []}]
            assert described["description"].endswith(f"Scope: {scope}.")
            assert {"401", "403", "421"} < set(described["responses"])
