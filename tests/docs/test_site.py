"""The site: it builds without a warning, all of its links lead somewhere, and it loads nothing from
other hosts.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
import yaml

from benchmarks.harness import NOTES
from tests.docs.examples import ROOT
from tools.reference.pages import PAGES
from tools.reference.pages import page as reference_page

DOCUMENTS = ROOT / "docs"
OUTSIDE = [
    *sorted(ROOT.glob("*.md")),
    ROOT / "benchmarks" / "README.md",
    *sorted(NOTES.glob("*.md")),
]
"""Documents that are no pages of the site."""

MARKDOWN = [*sorted({*DOCUMENTS.rglob("*.md"), *PAGES}), *OUTSIDE]


class _Page(HTMLParser):
    """What a page has: its anchors, its links and their texts, and what a browser loads for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.texts: list[str] = []
        self._is_in_link = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
            self._is_in_link = True
        self.loaded += [given[name] for name in ("src", "data") if given.get(name)]
        if tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(given.get("href", ""))

    def handle_endtag(self, tag: str) -> None:
        self._is_in_link = self._is_in_link and tag != "a"

    def handle_data(self, data: str) -> None:
        if self._is_in_link:
            self.texts.append(data.strip())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(DOCUMENTS, folder / "docs")
    for path in PAGES:
        (folder / "docs" / path.name).write_text(reference_page(path), "utf-8")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--clean", "--strict"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Page]:
    found = {path: _Page(path.read_text("utf-8")) for path in site.rglob("*.html")}
    assert len(found) > len(_in_navigation())  # and 404.html
    return found


def _in_navigation() -> list[str]:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    return list(_files(navigation))


def _files(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for each in entry.values():
            yield from _files(each)
    elif isinstance(entry, list):
        for each in entry:
            yield from _files(each)


def test_every_document_is_in_the_navigation_once() -> None:
    there = {*DOCUMENTS.rglob("*.md"), *PAGES}
    documents = {str(path.relative_to(DOCUMENTS)) for path in there}
    assert sorted(_in_navigation()) == sorted(documents)


def test_every_link_leads_to_a_page_and_an_anchor(site: Path, pages: dict[Path, _Page]) -> None:
    checked = 0
    for path, page in pages.items():
        for link in page.links:
            address, anchor = urldefrag(link)
            if urlsplit(address).scheme or path.name == "404.html":
                continue
            target = (path.parent / unquote(address)).resolve() if address else path
            if target.is_dir():
                target /= "index.html"
            where = f"{path.relative_to(site)}: {link}"
            assert target.is_file(), where
            if anchor and target in pages:
                assert unquote(anchor) in pages[target].anchors, where
                checked += 1
    assert checked > 100


def test_no_link_is_called_by_the_name_of_a_file(site: Path, pages: dict[Path, _Page]) -> None:
    for path, page in pages.items():
        named = [text for text in page.texts if text.endswith(".md")]
        assert not named, path.relative_to(site)


WORDS = {
    "webhook": "how-to/backend/#webhooks",
    "TLS": "operations/#tls",
    "TrustRank": "how-to/trust/#trustrank",
    "weights": "api/#weights",
    "LangChain": "agents/#from-langchain-and-langgraph",
    "delete edges": "how-to/backend/#delete-edges",
    "deletion": "how-to/backend/#delete-edges",
    "backup": "operations/#back-up-and-restore",
    "restore": "operations/#restore",
    "rate limit": "operations-reference/#limits",
    "retry": "how-to/backend/#when-to-retry",
    "streaming": "sources/",
    "RAG": "how-to/retrieval/",
    "authentication": "operations-reference/#api-keys",
    "Kubernetes": "operations/#kubernetes",
    "docker": "operations/#containers",
    "API key": "operations-reference/#api-keys",
    "Kafka": "sources/",
    "NetworkX": "how-to/data-science/#in-place-of-networkx",
    "top": "http-calls/#top",
    "personalized": "personalized/",
    "damping": "concepts/#pagerank",
    "timeout": "how-to/backend/#timeouts",
    "GPU": "operations/#gpu",
    "memory": "operations/#sizing",
    "metrics": "operations-reference/#metrics",
    "replica": "replicas/",
    "decay": "how-to/backend/#let-edges-decay-or-expire",
    "Parquet": "how-to/data-science/#a-large-file",
}
"""What users search for, and where it should lead them."""


@pytest.mark.parametrize("word", WORDS)
def test_what_users_search_for_is_where_they_should_find_it(site: Path, word: str) -> None:
    items = json.loads((site / "search.json").read_text("utf-8"))["items"]
    (found,) = [item for item in items if item["location"] == WORDS[word]]
    assert word.lower() in re.sub("<[^>]*>", "", f"{found['title']} {found['text']}").lower()


def test_nothing_is_loaded_from_other_hosts(site: Path, pages: dict[Path, _Page]) -> None:
    for path, page in pages.items():
        outside = [each for each in page.loaded if re.match(r"(https?:)?//", each)]
        assert not outside, path
    for path in site.rglob("*.css"):
        outside = re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", path.read_text("utf-8"))
        assert not outside, path


def test_the_repository_has_no_page_that_is_made_for_the_site() -> None:
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert {f"docs/{path.name}" for path in PAGES} <= set(ignored)


@pytest.mark.parametrize("document", OUTSIDE, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_document_outside_the_site_leads_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text("utf-8")):
        address, anchor = urldefrag(link)
        if urlsplit(address).scheme:
            continue
        target = document.parent / address if address else document
        assert target.exists(), link
        if anchor:
            assert anchor in _slugs(target), link


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_row_is_in_a_table_with_a_head(path: Path) -> None:
    written = reference_page(path) if path in PAGES else path.read_text("utf-8")
    text = re.sub(r"^```.*?^```$", "", written, flags=re.DOTALL | re.MULTILINE)
    for rows in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert re.match(r"\|.*\n\|( :?-+:? \|)+\n\|", rows), rows


def _slugs(document: Path) -> set[str]:
    """The anchors of the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", document.read_text("utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }
