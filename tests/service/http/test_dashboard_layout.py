"""The dashboard for every reader: accessibility, narrow screens and themes."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.service.http.dashboard_pages import STAR, new_graph, opened, put_view, send
from tests.service.server import Server


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Browser, server: Server, theme: Any) -> None:
    graph = new_graph(server, *STAR, ("hub", "leaf-00"))
    put_view(server, graph, "trust", teleport="uniform")
    with opened(browser, server, graph, color_scheme=theme, reduced_motion="reduce") as found:
        page = found.page
        page.locator("#top .vertex").first.click()
        expect(page.locator("#vertex .graph-node").first).to_be_visible()
        send(server, graph, ("leaf-01", "leaf-02"))
        expect(page.locator("#feed li.empty")).to_have_count(0)
        page.locator("#key-button").click()
        expect(page.locator("#key-panel")).to_be_visible()
        assert serious(page) == []


def serious(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{violation['id']}: {node['html']} {node['failureSummary']}"
        for violation in found
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


def test_a_phone_shows_all_of_it_and_the_theme_is_remembered(
    browser: Browser, server: Server
) -> None:
    graph = new_graph(server, *STAR, ("x" * 300, "hub"), ("hub", "x" * 300))
    phone = {"width": 390, "height": 844}
    with opened(browser, server, graph, viewport=phone, color_scheme="light") as found:
        page = found.page
        page.locator("#top .vertex", has_text="xxx").click()
        expect(page.locator("#vertex .graph-node").first).to_be_visible()
        expect(page.locator("#server")).to_contain_text("ready")
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        background = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(background)
        page.locator("#theme-button").click()
        page.locator("#theme-button").click()
        expect(page.locator("#theme-button")).to_have_text("Theme: dark")
        assert page.evaluate(background) != light
        page.reload()
        expect(page.locator("#theme-button")).to_have_text("Theme: dark")
        assert urlsplit(page.url).fragment == f"{graph}?vertex={'x' * 300}"
        expect(page.locator(".vertex-name")).to_have_text("x" * 300)


def test_on_a_phone_tab_goes_down_the_page(browser: Browser, server: Server) -> None:
    graph = new_graph(server, *STAR)
    put_view(server, graph, "trust", teleport="uniform")
    with opened(browser, server, graph, viewport={"width": 390, "height": 844}) as found:
        page = found.page
        expect(page.locator("#top .vertex").first).to_be_visible()
        expect(page.locator("#views button")).to_have_count(2)
        tops: list[float] = []
        page.locator("#theme-button").focus()
        while True:
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement === document.body"):
                break
            panel = "(document.activeElement.closest('.card') ?? document.activeElement)"
            tops.append(page.evaluate(f"{panel}.getBoundingClientRect().top + scrollY"))
        assert len(set(tops)) > 3
        assert tops == sorted(tops)


def test_the_calls_follow_the_theme(browser: Browser, server: Server) -> None:
    background = "getComputedStyle(document.documentElement).backgroundColor"
    with opened(browser, server, go=False, color_scheme="dark") as found:
        page = found.page
        page.goto(f"{server.url('')}docs")
        expect(page.locator(".opblock-summary").first).to_be_visible()
        dark = page.evaluate(background)
        assert max(map(int, dark.removeprefix("rgb(").removesuffix(")").split(","))) < 64
        page.evaluate("localStorage.setItem('liverank-theme', 'light')")
        page.reload()
        expect(page.locator(".opblock-summary").first).to_be_visible()
        assert page.evaluate(background) != dark
