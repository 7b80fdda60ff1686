"""The dashboard's page and files."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi import FastAPI

from liverank_service.http.pages import FOLDER
from tests.service.server import Server

ASSETS = sorted(path for path in (FOLDER / "assets").rglob("*") if path.is_file())
OWN = [path for path in ASSETS if path.parent.name != "vendor"]
SCRIPTS = [path for path in OWN if path.suffix == ".js"]
STYLES = [path for path in OWN if path.suffix == ".css"]


def test_the_page_needs_no_key_and_may_load_nothing_from_elsewhere(server: Server) -> None:
    answer = server.http.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(
        part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    for kind in ("script-src", "style-src", "font-src", "connect-src"):
        assert policy[kind] == "'self'"
    assert policy["img-src"] == "'self' data:"
    assert policy["require-trusted-types-for"] == "'script'"
    assert policy["frame-ancestors"] == "'none'"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_page_and_its_files_are_cached_and_have_heads(server: Server) -> None:
    for path in ("/", "/dashboard/main.js", "/dashboard/vendor/uPlot.min.css"):
        answer = server.http.get(path)
        assert answer.headers["cache-control"] == "no-cache"
        again = server.http.get(path, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["cache-control"] == "no-cache"
        head = server.http.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(answer.content))
        assert head.headers["etag"] == answer.headers["etag"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/openapi.json", "application/json"),
        ("/static-offline-docs/swagger-ui-bundle.js", "text/javascript; charset=utf-8"),
        ("/static-offline-docs/favicon.png", "image/png"),
    ],
)
def test_documentation_is_kept_in_memory(
    server: Server, monkeypatch: pytest.MonkeyPatch, path: str, kind: str
) -> None:
    first = server.http.get(path)
    assert (first.status_code, first.headers["content-type"]) == (200, kind)

    def read(*_: object) -> None:
        raise AssertionError("it is read again")

    monkeypatch.setattr("os.stat", read)
    monkeypatch.setattr(FastAPI, "openapi", read)
    answer = server.http.get(path)
    assert answer.content == first.content
    again = server.http.get(path, headers={"If-None-Match": f'"x", W/{answer.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/dashboard", 404),
        ("GET", "/dashboard/", 404),
        ("GET", "/dashboard/nothing.js", 404),
        ("GET", "/dashboard/../pages.py", 404),
        ("GET", "/dashboard/%2e%2e/index.html", 404),
        ("GET", "/dashboard/..%2f..%2fpages.py", 404),
        ("GET", "/dashboard/%00", 404),
        ("GET", "/dashboard/vendor", 404),
        ("POST", "/", 405),
        ("DELETE", "/dashboard/main.js", 405),
    ],
)
def test_other_paths_and_methods_are_problems(
    server: Server, method: str, path: str, status: int
) -> None:
    answer = server.http.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_openapi_document_does_not_list_the_page(server: Server) -> None:
    paths = server.http.get("/openapi.json").json()["paths"]
    assert not [path for path in paths if path == "/" or path.startswith("/dashboard")]


class _Addresses(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "link", "img"):
            self.found.append(given.get("src") or given.get("href") or "")
        self.inline += [name for name in given if name == "style" or name.startswith("on")]


def test_every_file_of_the_page_is_there_and_nothing_is_inline() -> None:
    page = _Addresses()
    page.feed((FOLDER / "index.html").read_text("utf-8"))
    assert page.inline == []
    files = {str(path.relative_to(FOLDER / "assets")) for path in ASSETS}
    assert {name.removeprefix("dashboard/") for name in page.found} <= files
    imported = {
        name
        for path in SCRIPTS
        for name in re.findall(r'^import .* from "\./(.+)";$', path.read_text("utf-8"), re.M)
    }
    linked = {name.removeprefix("dashboard/") for name in page.found}
    linked |= {"docs.js"}  # by /docs
    assert imported | linked >= {str(path.relative_to(FOLDER / "assets")) for path in SCRIPTS}
    assert imported <= files


@pytest.mark.parametrize("path", [*SCRIPTS, *STYLES], ids=lambda path: path.name)
def test_files_are_short_and_make_no_html_of_text(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= 400
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
    addresses = re.findall(r"https?://[^\s\"'`]+", text)
    assert addresses in ([], ["http://www.w3.org/2000/svg"])  # the name of SVG, not an address


def test_vendored_files_have_their_licences() -> None:
    folder = FOLDER / "assets" / "vendor"
    listed = (folder / "README.md").read_text("utf-8")
    for path in folder.iterdir():
        assert path.name in listed or path.name == "README.md"
