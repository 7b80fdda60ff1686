"""`liverank mcp`: the tools, over stdio and HTTP, for the SDK's own client."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client as McpClient
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

import liverank.mcp
from liverank import Client, InvalidInput, PersonalizedQuery
from liverank.mcp.server import PATH, serve_http
from liverank_service.cli import main as cli
from liverank_service.cli.commands import agents
from liverank_service.errors import MalformedRequest
from liverank_service.problems import problem_of
from liverank_service.settings import Settings
from tests.service.server import Server, running

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "agents.md").read_text("utf-8")
KEY = "k" * 40
COMMAND = [sys.executable, "-m", "liverank_service.cli", "mcp"]
READING = {"related", "top", "rank"}

ALONE = """
import sys
for name in ("fastapi", "numpy", "orjson", "prometheus_client", "pyarrow", "uvloop"):
    sys.modules[name] = None
sys.modules["pydantic_settings"] = None
from liverank_service.cli.__main__ import main
main()
"""
"""The command where the extra `mcp` is installed and no other."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with the key KEY and a graph `memory`."""
    with running(tmp_path_factory.mktemp("data"), api_key=KEY) as server:
        address = str(server.http.base_url).rstrip("/")
        with Client(address, api_key=KEY) as client:
            client.create("memory", weighted=True, directed=False)
            client.create("numbers", keys="integer")
            client.send("numbers", insert=[(1, 2), (2, 3)])
            client.send(
                "memory",
                insert=[
                    ("passage/1", "Ada", 1.0),
                    ("passage/1", "engine", 1.0),
                    ("passage/2", "engine", 0.5),
                    ("passage/2", "Charles", 1.0),
                ],
            )
            client.put_set("memory", "passages", ["passage/1", "passage/2"])
        yield address


@pytest.fixture(scope="module")
def read_key(url: str) -> str:
    with Client(url, api_key=KEY) as client:
        return client.create_key("reader", "read", graphs=["memory"]).key


@contextmanager
def serving(url: str, *arguments: str, command: Sequence[str] = COMMAND) -> Iterator[str]:
    """The address of a process that serves over HTTP."""
    with subprocess.Popen(
        [*command, "--http", "--port", "0", *arguments],
        # the key of its own environment is not to be used for others
        env=os.environ | {"LIVERANK_URL": url, "LIVERANK_API_KEY": KEY},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        try:
            addresses = (re.findall(r"http://\S+/mcp", line) for line in process.stderr)
            yield next(found for found in addresses if found)[0]
        finally:
            process.terminate()
            rest = process.stderr.read()
    assert "Traceback" not in rest, rest


@pytest.fixture(scope="module")
def endpoint(url: str) -> Iterator[str]:
    with serving(url, "--graph", "memory", "--allow-writes", "--allow-host", "agents.test") as it:
        yield it


@asynccontextmanager
async def over_http(address: str, key: str | None, mode: str = "auto") -> AsyncIterator[McpClient]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        httpx2.AsyncClient(headers=headers, verify=False) as http,  # no TLS: certificates are slow
        McpClient(streamable_http_client(address, http_client=http), mode=mode) as client,
    ):
        yield client


def call(address: str, tool: str, key: str | None = KEY, **arguments: Any) -> CallToolResult:
    async def run() -> CallToolResult:
        async with over_http(address, key) as client:
            return await client.call_tool(tool, arguments)

    return asyncio.run(run())


def answer(result: CallToolResult) -> dict[str, Any]:
    """The structured answer, which the text repeats."""
    assert not result.is_error, result.content
    (text,) = result.content
    assert isinstance(text, TextContent)
    assert json.loads(text.text) == result.structured_content
    document: dict[str, Any] = result.structured_content
    return document


def refusal(result: CallToolResult) -> str:
    assert result.is_error
    (text,) = result.content
    assert isinstance(text, TextContent)
    return text.text


def vertices(document: dict[str, Any]) -> list[Any]:
    return [place["vertex"] for place in document["ranks"]]


# Tools


def test_related_ranks_from_the_seeds_without_them(url: str, endpoint: str) -> None:
    found = answer(call(endpoint, "related", seeds={"engine": 0.8, "Ada": 0.4}, k=2))
    assert found["graph"] == "memory"
    assert vertices(found) == ["passage/1", "passage/2"]
    assert found["proven"] == 2
    assert 0 < found["error_bound"] < 1e-5
    with Client(url, api_key=KEY) as client:
        query = PersonalizedQuery({"engine": 0.8, "Ada": 0.4}, k=4)
        (direct,) = client.personalized_many("memory", [query]).answers
    ranks = direct.to_dict()
    assert [place["rank"] for place in found["ranks"]] == pytest.approx(
        [ranks["passage/1"], ranks["passage/2"]], abs=2 * direct.error_bound
    )


def test_related_includes_seeds_on_request_and_takes_a_list(endpoint: str) -> None:
    found = answer(call(endpoint, "related", seeds=["Ada"], k=1, include_seeds=True, damping=0.5))
    assert vertices(found) == ["Ada"]
    found = answer(call(endpoint, "related", seeds=["Ada"], k=3, among="passages"))
    assert vertices(found) == ["passage/1", "passage/2"]
    seeds = ["passage/1"]
    found = answer(
        call(endpoint, "related", seeds=seeds, k=9, within="passages", include_seeds=True)
    )
    assert vertices(found) == seeds  # no edge leads to another passage


def test_related_names_the_unknown_seeds_that_it_ignored(endpoint: str) -> None:
    seeds = ["Ada", "Grace"]
    found = answer(call(endpoint, "related", seeds=seeds, k=1, ignore_unknown=True))
    assert (vertices(found), found["ignored"]) == (["passage/1"], ["Grace"])
    assert "Grace" in refusal(call(endpoint, "related", seeds=seeds, k=1))


def test_keys_may_be_integers(endpoint: str) -> None:
    assert vertices(answer(call(endpoint, "related", seeds=[1], graph="numbers"))) == [2, 3]
    assert vertices(answer(call(endpoint, "related", seeds={"1": 1}, graph="numbers"))) == [2, 3]
    # walks from 2 never reach 1, whose rank is 0
    assert vertices(answer(call(endpoint, "related", seeds=[2], graph="numbers"))) == [3]
    found = answer(call(endpoint, "rank", vertices=[3, 9], graph="numbers"))
    assert (vertices(found), found["unknown"]) == ([3], [9])


def test_top_and_rank_agree(url: str, endpoint: str) -> None:
    with Client(url, api_key=KEY) as client:
        direct = client.top("memory", 2)
    top = answer(call(endpoint, "top", k=2))
    assert top["proven"] == direct.settled
    assert vertices(top) == list(direct.to_dict())
    ranked = answer(call(endpoint, "rank", vertices=[*vertices(top), "Grace"]))
    assert ranked["ranks"] == top["ranks"]
    assert ranked["unknown"] == ["Grace"]
    assert set(vertices(answer(call(endpoint, "top", among="passages")))) == {
        "passage/1",
        "passage/2",
    }


def test_ranks_of_a_view_are_read_in_place_of_the_graphs(url: str, endpoint: str) -> None:
    with Client(url, api_key=KEY) as client:
        client.put_view("memory", "seen", {"weights": {"Ada": 1.0}})
        direct = client.top("memory", 3, view="seen")
        everywhere = client.top("memory", 3)
    top = answer(call(endpoint, "top", k=3, view="seen"))
    assert vertices(top) == list(direct.to_dict()) != list(everywhere.to_dict())
    ranked = answer(call(endpoint, "rank", vertices=vertices(top), view="seen"))
    assert ranked["ranks"] == top["ranks"]
    assert "Unknown view" in refusal(call(endpoint, "top", view="none"))


def test_added_edges_are_in_the_next_answer(url: str, endpoint: str) -> None:
    with Client(url, api_key=KEY) as client:
        client.create("notes")
    edges = [{"source": "a", "target": "b"}, {"source": "a", "target": "c"}]
    added = answer(call(endpoint, "add_edges", graph="notes", edges=edges))
    assert (added["version"], added["inserted"], added["new_vertices"]) == (1, 2, 3)
    assert vertices(answer(call(endpoint, "related", graph="notes", seeds=["a"]))) == ["b", "c"]
    again = answer(call(endpoint, "add_edges", graph="notes", edges=edges[:1]))
    assert (again["inserted"], again["already_present"]) == (0, 1)
    weighted = [{"source": "a", "target": "b", "weight": 2}]
    assert "weight" in refusal(call(endpoint, "add_edges", graph="notes", edges=weighted))


def test_tools_are_described_and_writes_must_be_allowed(endpoint: str) -> None:
    async def listed(mode: str) -> dict[str, Any]:
        async with over_http(endpoint, KEY, mode) as client:
            return {tool.name: tool for tool in (await client.list_tools()).tools}

    tools = asyncio.run(listed("auto"))
    assert set(tools) == {*READING, "add_edges"}
    assert set(asyncio.run(listed("legacy"))) == set(tools)
    for name, tool in tools.items():
        assert len(tool.description) > 100
        assert "  " not in tool.description
        assert tool.annotations.read_only_hint == (name in READING)
        assert tool.input_schema["additionalProperties"] is False
        assert "context" not in tool.input_schema["properties"]
        assert all("description" in one for one in tool.input_schema["properties"].values())
        assert {"graph", "version", "error_bound"} <= set(tool.output_schema["required"])
    assert tools["top"].input_schema["properties"]["k"]["maximum"] == 100


# Refusals


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("related", {"seeds": ["Grace"]}, "Grace"),
        ("related", {"seeds": []}, "at least 1"),
        ("related", {"seeds": {"Ada": -1}}, "greater than 0"),
        ("related", {"seeds": ["Ada"], "damping": 1.5}, "less than 1"),
        ("related", {"seeds": ["Ada"], "damping": 0}, "greater than 0"),
        ("related", {"seeds": ["Ada"], "among": "none"}, "Unknown set"),
        ("related", {"seeds": ["Ada"], "within": "passages"}, "in `within`"),
        ("related", {"seeds": ["Ada"] * 101}, "at most 100"),
        ("related", {"seeds": {f"v{n}": 1 for n in range(101)}}, "at most 100"),
        ("related", {"seeds": ["Ada"], "k": 101}, "less than or equal to 100"),
        ("add_edges", {"edges": [{"source": "a", "target": "b"}] * 1001}, "at most 1000"),
        ("top", {"k": 101}, "less than or equal to 100"),
        ("top", {"limit": 5}, "limit"),
        ("top", {"graph": "nothing"}, "there are: default, memory, notes, numbers"),
        ("rank", {"vertices": ["Ada"] * 101}, "at most 100"),
        ("rank", {"vertices": ["Ada"], "graph": "numbers"}, "integer"),
        ("add_edges", {"edges": [{"source": "Ada"}]}, "target"),
        ("forget", {}, "forget"),
    ],
    ids=str,
)
def test_refusals_say_why(
    url: str, endpoint: str, tool: str, arguments: dict[str, Any], expected: str
) -> None:
    with Client(url, api_key=KEY) as client:
        client.create("notes")
    assert expected in refusal(call(endpoint, tool, **arguments))


def test_each_caller_uses_its_own_key(endpoint: str, read_key: str) -> None:
    assert vertices(answer(call(endpoint, "top", read_key, k=1)))
    edges = [{"source": "Ada", "target": "Lovelace"}]
    assert "write" in refusal(call(endpoint, "add_edges", read_key, edges=edges))
    assert "numbers" in refusal(call(endpoint, "top", read_key, graph="numbers"))


def post(address: str, **headers: str) -> httpx.Response:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accepted = {"Accept": "application/json, text/event-stream"}
    return httpx.post(address, json=message, headers=accepted | headers)


@pytest.mark.parametrize("given", ["", f"Bearer {'x' * 40}", "Basic abc", "Bearer \xe9"])
def test_a_caller_without_a_valid_key_is_refused_by_status(endpoint: str, given: str) -> None:
    response = httpx.post(endpoint, headers=[(b"Authorization", given.encode("latin-1"))])
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert response.json()["title"] == "API key required"


def test_other_hosts_and_origins_are_refused(endpoint: str) -> None:
    key = {"Authorization": f"Bearer {KEY}"}
    assert post(endpoint, **key).status_code == 200
    assert post(endpoint, **key, Host="agents.test").status_code == 200
    assert post(endpoint, **key, Origin="https://agents.test:444").status_code == 200
    assert post(endpoint, **key, Host="evil.test").status_code == 421
    assert post(endpoint, **key, Origin="http://evil.test").status_code == 403


def test_a_server_that_is_away_is_named() -> None:
    away = "http://127.0.0.1:9"
    with serving(away) as address:
        assert f"no answer from {away}" in refusal(call(address, "top", None))


# Limits: those of the server's own connections


def is_alone(limit: int) -> list[str]:
    """The command with the extra `mcp` alone, and no more than `limit` file descriptors."""
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))"
    return [sys.executable, "-c", f"{limited}{ALONE}", "mcp"]


@pytest.fixture(scope="module")
def impatient(url: str) -> Iterator[tuple[str, int]]:
    """The host and port of a server that waits a second for clients, and has few descriptors."""
    limits = ("--slow-client-seconds", "1", "--graph", "memory")
    with serving(url, *limits, command=is_alone(256)) as address:
        parsed = httpx.URL(address)
        assert parsed.port is not None
        yield parsed.host, parsed.port


def ended(connection: socket.socket) -> bool:
    """Whether the server closes the connection in time."""
    try:
        return connection.recv(1000) == b""
    except ConnectionResetError:
        return True


def test_half_sent_heads_end_and_do_not_keep_others_out(impatient: tuple[str, int]) -> None:
    with ExitStack() as stack:
        started = time.monotonic()
        connections = []
        for _ in range(600):
            connection = stack.enter_context(socket.create_connection(impatient, timeout=20))
            with suppress(OSError):  # too many are closed at once
                connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n")
            connections.append(connection)
        assert all(map(ended, connections))
        assert time.monotonic() - started < 60
        host, port = impatient
        assert vertices(answer(call(f"http://{host}:{port}{PATH}", "top", k=1)))


def test_a_slow_body_ends_the_connection(impatient: tuple[str, int]) -> None:
    with socket.create_connection(impatient, timeout=20) as connection:
        head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        accepted = "Accept: application/json, text/event-stream\r\n"
        kind = "Content-Type: application/json\r\nContent-Length: 500000\r\n\r\n{"
        connection.sendall(f"{head}{accepted}{kind}".encode())
        received = b"".join(iter(lambda: connection.recv(1000), b""))
        assert received.startswith(b"HTTP/1.1 408 ")
        assert b"the body did not arrive within 1 s" in received


def test_malformed_requests_are_problems(impatient: tuple[str, int]) -> None:
    with socket.create_connection(impatient, timeout=20) as connection:
        connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n")
        received = b"".join(iter(lambda: connection.recv(1000), b""))
        assert received.startswith(b"HTTP/1.1 400 ")
        document = json.loads(received.partition(b"\r\n\r\n")[2])
        assert document == problem_of(MalformedRequest("expected one Host header, got 2"))


def test_the_limits_are_those_of_the_server() -> None:
    for name in ("max_connections", "slow_client_seconds"):
        default = inspect.signature(agents.mcp).parameters[name].default
        assert default == Settings.model_fields[name].default


class Listening(Exception):
    """It would serve."""


def test_other_machines_may_connect_only_if_the_server_needs_keys(url: str, server: Server) -> None:
    def listening(address: str) -> None:
        raise Listening(address)

    def serve(liverank: str, host: str, *names: str) -> None:
        serve_http(liverank, "default", False, host, 0, names, listening, never, 30.0)

    def never(*_: object) -> None:
        raise AssertionError("it is not to serve")

    with pytest.raises(InvalidInput, match=r"names by which clients reach 0\.0\.0\.0, got none"):
        serve(url, "0.0.0.0")
    with pytest.raises(InvalidInput, match="needs no API key"):
        serve(server.url(""), "0.0.0.0", "agents.test")
    with pytest.raises(Listening, match=r"http://0\.0\.0\.0:\d+/mcp"):
        serve(url, "0.0.0.0", "agents.test")
    with pytest.raises(Listening, match=r"http://\[::1\]:\d+/mcp"):
        serve(server.url(""), "::1")


def test_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("server", "tools"):
        monkeypatch.delitem(sys.modules, f"liverank.mcp.{name}", raising=False)
        monkeypatch.delattr(liverank.mcp, name, raising=False)
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    with pytest.raises(SystemExit) as end:
        cli.main(["mcp"])
    assert end.value.code == 1
    assert capsys.readouterr().err.endswith("pip install -e '.[mcp]' in the clone of liverank\n")


# The page


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def configured(url: str) -> dict[str, StdioServerParameters]:
    """The processes of the page's configurations, for the server at `url`."""
    found = {}
    for document in map(json.loads, blocks("json")):
        for name, entry in document.get("mcpServers", {}).items():
            if "command" in entry:
                assert entry["command"] == "liverank"
                assert set(entry["env"]) == {"LIVERANK_URL", "LIVERANK_API_KEY"}
                found[name] = StdioServerParameters(
                    command=sys.executable,
                    args=["-c", ALONE, *entry["args"]],
                    env={"LIVERANK_URL": url, "LIVERANK_API_KEY": KEY},
                    cwd=ROOT,
                )
    return found


def test_the_commands_of_the_page_serve_at_the_address_that_it_configures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = []
    monkeypatch.setattr(
        "liverank.mcp.server.serve_http", lambda *arguments: served.append(arguments)
    )
    for line in "".join(blocks("sh")).splitlines():
        if line.startswith("liverank"):
            with pytest.raises(SystemExit, match=r"^0$"):
                cli.main(shlex.split(line)[1:])
    (first, second) = [(host, port, list(names)) for _, _, _, host, port, names, *_ in served]
    assert first == ("127.0.0.1", 8081, [])
    assert second == ("0.0.0.0", 8081, ["agents.example.org"])
    addresses = [
        entry["url"]
        for document in map(json.loads, blocks("json"))
        for entry in document["mcpServers"].values()
        if "url" in entry
    ]
    assert addresses == [f"http://127.0.0.1:8081{PATH}"]


def test_the_configuration_of_the_page_starts_the_tools_over_stdio(url: str) -> None:
    (parameters,) = configured(url).values()

    async def run() -> tuple[set[str], CallToolResult, CallToolResult, CallToolResult]:
        async with McpClient(parameters) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            return (
                names,
                await client.call_tool("top", {"k": 1}),
                await client.call_tool("related", {"seeds": ["Ada"]}),
                await client.call_tool("rank", {"vertices": ["Ada"], "graph": "nothing"}),
            )

    names, top, related, wrong = asyncio.run(run())
    assert names >= READING
    assert len(vertices(answer(top))) == 1
    assert vertices(answer(related))[0] == "passage/1"
    assert "nothing" in refusal(wrong)
