"""Pages of the dashboard in Chromium, and graphs for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Browser, Page, Request, expect

from tests.service.server import Server

expect.set_options(timeout=60_000)


@dataclass
class Opened:
    """A page, and what it did wrong: console errors, exceptions, requests to other origins."""

    page: Page
    origin: str
    expected: tuple[str, ...] = ()
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda message: self._logged(message.type, message.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", self._requested)

    def _logged(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not any(part in text for part in self.expected):
            self.faults.append(text)

    def _requested(self, request: Request) -> None:
        if not request.url.startswith((self.origin, "data:", "blob:")):
            self.faults.append(f"a request to {request.url}")


@contextmanager
def opened(
    browser: Browser,
    server: Server,
    graph: str = "",
    *,
    expected: tuple[str, ...] = (),
    go: bool = True,
    **context: Any,
) -> Iterator[Opened]:
    """The page, which must end without faults. expected: parts of console errors to ignore"""
    with browser.new_context(**context) as of_test:
        url = server.url("")
        opened = Opened(of_test.new_page(), url, expected)
        if go:
            opened.page.goto(f"{url}#{graph}")
        yield opened
        assert opened.faults == []


def new_graph(server: Server, *edges: tuple[Any, Any], **options: Any) -> str:
    """The name of a graph with these edges."""
    name = server.new_graph(**options).rsplit("/", 1)[1]
    if edges:
        send(server, name, *edges)
    return name


def send(server: Server, graph: str, *edges: tuple[Any, Any]) -> None:
    answer = server.http.post(f"/graphs/{graph}/batches", json={"insert": edges})
    assert answer.status_code == 200, answer.text


def put_view(server: Server, graph: str, name: str, **body: Any) -> None:
    path = f"/graphs/{graph}/views/{quote(name, safe='')}"
    server.http.put(path, json=body).raise_for_status()


CURRENT = '#graphs [aria-current="true"] strong'
"""Where the page shows the name of its graph."""

STAR = [(f"leaf-{number:02d}", "hub") for number in range(30)]
