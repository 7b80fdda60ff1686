"""The dashboard of a server with API keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.service.http.dashboard_pages import STAR, opened
from tests.service.server import Server, running

KEY = "the-key-of-the-dashboard-tests-0123456789"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    with running(folder, api_key=KEY) as server:
        server.http.headers["Authorization"] = f"Bearer {KEY}"
        server.http.post("/graphs/default/batches", json={"insert": [["other", "graph"]]})
        server.http.put("/graphs/mine").raise_for_status()
        server.http.post("/graphs/mine/batches", json={"insert": STAR})
        yield server


def test_a_key_for_one_graph_is_enough_and_is_kept_nowhere(
    browser: Browser, guarded: Server
) -> None:
    body = {"name": "wall", "scope": "read", "graphs": ["mine"]}
    made = guarded.http.post("/keys", json=body).json()
    refused = ("status of 401", "status of 403")  # Chromium reports these responses as errors
    with opened(browser, guarded, expected=refused) as found:
        page = found.page
        expect(page.locator("#key-panel")).to_be_visible()
        expect(page.locator("#content")).to_be_hidden()
        assert page.evaluate("document.activeElement.id") == "key-field"
        page.keyboard.type("lvr_wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#key-error")).to_contain_text("the API key is wrong or was revoked")
        assert page.locator("#key-field").input_value() == ""
        page.keyboard.type(made["key"])
        page.keyboard.press("Enter")
        expect(page.locator("#top tbody tr").first).to_contain_text("hub")
        expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        assert page.locator("#graphs strong").all_text_contents() == ["mine"]
        expect(page.locator("#server")).to_contain_text("needs a key for all graphs")
        guarded.http.post("/graphs/mine/batches", json={"insert": [["hub", "spoke"]]})
        expect(page.locator("#top tbody tr", has_text="spoke")).to_be_visible()

        state = page.evaluate(
            "[location.href, document.cookie, {...localStorage}, {...sessionStorage}]"
        )
        assert made["key"] not in json.dumps(state)
        assert page.context.cookies() == []
        guarded.http.delete(f"/keys/{made['id']}")
        expect(page.locator("#key-error")).to_contain_text("revoked")
        expect(page.locator("#content")).to_be_hidden()


def test_the_graph_is_named_where_graphs_cannot_be_listed(
    browser: Browser, guarded: Server
) -> None:
    with opened(browser, guarded, expected=("status of 401", "status of 403"), go=False) as found:
        page = found.page
        forbidden = json.dumps({"detail": "not here"})
        page.route("**/graphs", lambda route: route.fulfill(status=403, body=forbidden))
        page.goto(f"{guarded.url('')}#mine")
        expect(page.locator("#key-panel")).to_be_visible()
        page.locator("#key-field").fill(KEY)
        page.locator("#graph-field").fill("mine")
        page.locator("#key-form .primary").click()
        expect(page.locator("#top tbody tr").first).to_contain_text("hub")
