"""The dashboard says when it shows another graph than the one that its address names."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.service.http.dashboard_pages import CURRENT, new_graph, opened
from tests.service.server import Server


def test_a_graph_that_is_not_there_is_named(browser: Browser, server: Server) -> None:
    graph = new_graph(server, ("a", "b"))
    with opened(browser, server, "nobody's") as found:
        page = found.page
        notice = page.locator("#missing")
        expect(notice).to_have_text(
            "There is no graph nobody's that can be read here: this is default."
        )
        expect(page.locator(CURRENT)).to_have_text("default")
        page.get_by_role("button", name=f"{graph} ").click()
        expect(page.locator(CURRENT)).to_have_text(graph)
        expect(notice).to_be_hidden()


def test_a_graph_that_is_there_is_shown_without_a_notice(browser: Browser, server: Server) -> None:
    graph = new_graph(server, ("a", "b"))
    with opened(browser, server, graph) as found:
        expect(found.page.locator(CURRENT)).to_have_text(graph)
        expect(found.page.locator("#missing")).to_be_hidden()


def test_a_server_without_graphs_and_keys_is_not_said_to_have_a_key(
    browser: Browser, server: Server
) -> None:
    with opened(browser, server, go=False) as found:
        page = found.page
        page.route("**/graphs", lambda route: route.fulfill(json={"graphs": []}))
        page.goto(server.url(""))
        expect(page.locator("#notice")).to_contain_text(
            "There is no graph that can be read here yet."
        )
