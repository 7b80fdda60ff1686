"""The dashboard in Chromium, against a running server."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, Route, expect

from tests.service.http.dashboard_pages import CURRENT, STAR, new_graph, opened, send
from tests.service.server import Server

HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
LARGEST = 2**63 - 1


@contextmanager
def stream(server: Server, graph: str) -> Iterator[None]:
    """Batches of one edge to the hub, twenty a second."""
    stopping = threading.Event()

    def run() -> None:
        with httpx.Client(base_url=server.http.base_url) as http:
            for number in range(10_000):
                if stopping.wait(0.05):
                    return
                body = {"insert": [[f"stream-{number % 100}", "hub"]]}
                http.post(f"/graphs/{graph}/batches", json=body)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def test_the_top_follows_the_stream(browser: Browser, server: Server) -> None:
    graph = new_graph(server, *STAR)
    with opened(browser, server, graph) as found:
        page = found.page
        expect(page.locator("#top tbody tr").first).to_contain_text("hub")
        expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        expect(page.locator(CURRENT)).to_have_text(graph)
        expect(page.locator("#feed")).to_contain_text("Nothing has changed")
        with stream(server, graph):
            send(server, graph, *[(f"leaf-{number:02d}", "newcomer") for number in range(30)])
            newcomer = page.locator("#top tbody tr", has_text="newcomer")
            expect(newcomer).to_contain_text("new")
            expect(newcomer.locator(".spark-line")).to_have_attribute(
                "d", re.compile(r"^M[\d.]+ [\d.]+L")
            )
            expect(page.locator("#feed")).to_contain_text("entered the top 20: newcomer")
            expect(page.locator("#feed")).to_contain_text("left the top 20")
            expect(page.locator("#feed")).to_contain_text(re.compile(r"v\d+–\d+"))
            expect(page.locator("#throughput-legend li").nth(0)).not_to_contain_text("–")
            expect(page.locator("#throughput-legend li").nth(1)).not_to_contain_text("–")
            expect(page.locator("#latency-legend li").nth(3)).to_contain_text("s")
            expect(page.locator("#bound-plot canvas")).to_be_visible()
            version = text_of(page, "#summary", "Version")
            expect(page.locator("#summary")).not_to_contain_text(f"Version{version}")
        expect(page.locator("#server")).to_contain_text("ready")
        expect(page.locator("#memory")).to_contain_text("ranks")


def text_of(page: Page, place: str, term: str) -> str:
    """The figure below a term."""
    figure = page.locator(f"{place} > div", has=page.locator("dt", has_text=term)).locator("dd")
    return (figure.first.text_content() or "").replace(",", "")


def test_a_vertex_is_looked_up_by_keyboard(browser: Browser, server: Server) -> None:
    graph = new_graph(server, *STAR, ("hub", "leaf-00"), ("leaf-00", "leaf-01"))
    with opened(browser, server, graph) as found:
        page = found.page
        page.locator("#vertex-field").fill("leaf-00")
        page.keyboard.press("Enter")
        expect(page.locator(".vertex-name")).to_have_text("leaf-00")
        rank = server.http.get(f"/graphs/{graph}/ranks/leaf-00").json()["rank"]
        assert text_of(page, "#vertex dl", "Rank") == f"{rank:.6f}"
        assert text_of(page, "#vertex dl", "Place") == "2"
        expect(page.locator("#vertex .graph-node[data-seed]")).to_contain_text("leaf-00")
        expect(page.locator("#vertex .graph-edge").first).to_be_visible()
        expect(page.locator(".neighbours .neighbour-list li").first).to_contain_text("hub")

        page.locator('#vertex .graph-node[data-vertex="hub"]').focus()
        page.keyboard.press("Enter")
        expect(page.locator(".vertex-name")).to_have_text("hub")
        parts = server.http.get(f"/graphs/{graph}/explain/hub", params={"k": 6}).json()
        givers = page.locator("#vertex .givers li")
        expect(givers).to_have_count(8)
        first = parts["contributions"][0]
        expect(givers.nth(0)).to_contain_text(first["vertex"])
        expect(givers.nth(0)).to_contain_text(f"{first['contribution']:.6f}")
        expect(givers.nth(6)).to_contain_text(f"{parts['degree'] - 6} others")
        expect(givers.nth(7)).to_contain_text(f"{parts['teleport']:.6f}")
        expect(page.locator("#vertex .plot canvas")).to_be_visible()
        send(server, graph, *[(f"more-{number}", "hub") for number in range(30)])
        expect(page.locator("#vertex dl div", has_text="Since opening")).to_contain_text("%")
        changed = server.http.get(f"/graphs/{graph}/ranks/hub").json()["rank"]
        expect(page.locator("#vertex dl div", has_text="Rank")).to_contain_text(f"{changed:.6f}")

        page.locator("#vertex-field").fill("nobody")
        page.locator("#vertex-form button").click()
        expect(page.locator("#vertex")).to_contain_text(
            "No vertex of this graph has the key nobody"
        )


def test_a_hostile_key_is_text(browser: Browser, server: Server) -> None:
    edges = [(f"{HOSTILE}{number}", HOSTILE) for number in range(3)]
    graph = new_graph(server, *edges, (HOSTILE, f"{HOSTILE}0"))
    with opened(browser, server, graph) as found:
        page = found.page
        expect(page.locator("#top tbody tr").first).to_contain_text(HOSTILE)
        page.locator("#top .vertex").first.click()
        expect(page.locator(".vertex-name")).to_have_text(HOSTILE)
        expect(page.locator("#vertex .graph-node")).to_have_count(2)
        expect(page.locator("#vertex .graph-node[data-seed] title")).to_contain_text(HOSTILE)
        send(server, graph, *[(f"leaf-{number}", f"{HOSTILE}new") for number in range(30)])
        expect(page.locator("#feed")).to_contain_text(f"entered the top 20: {HOSTILE}new")
        assert page.locator("img").count() == 0
        assert page.title() == f"{HOSTILE} · {graph} · liverank"


def test_integer_keys_are_exact(browser: Browser, server: Server) -> None:
    graph = new_graph(server, (LARGEST - 1, LARGEST), (3, LARGEST), (LARGEST, 3), keys="integer")
    with opened(browser, server, graph) as found:
        page = found.page
        first = page.locator("#top .vertex").first
        expect(first).to_have_text(str(LARGEST))
        first.click()
        rank = server.http.get(f"/graphs/{graph}/ranks/{LARGEST}").json()["rank"]
        expect(page.locator("#vertex dl").first).to_contain_text(f"{rank:.6f}")
        expect(page.locator("#vertex .graph-node")).to_have_count(2)
        page.locator("#vertex-field").fill("003")
        page.keyboard.press("Enter")
        expect(page.locator(".vertex-name")).to_have_text("3")
        expect(page.locator("#vertex .graph-node")).to_have_count(2)
        page.locator("#vertex-field").fill("three")
        page.keyboard.press("Enter")
        expect(page.locator("#vertex")).to_contain_text("No vertex of this graph has the key three")


def test_an_empty_graph_says_how_to_fill_it(browser: Browser, server: Server) -> None:
    graph = new_graph(server)
    with opened(browser, server, graph) as found:
        page = found.page
        expect(page.locator("#top")).to_contain_text("This graph has no vertices yet")
        expect(page.locator("#bound-plot")).to_contain_text("No batch since")
        send(server, graph, ("ada", "grace"))
        expect(page.locator("#top tbody tr")).to_have_count(2)


COLOURED = """plot => {
  const canvas = document.querySelector(`${plot} canvas`);
  if (!canvas) return false;
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  for (let at = 0; at < data.length; at += 4) {
    const [red, green, blue, alpha] = data.subarray(at, at + 4);
    if (alpha > 128 && Math.max(red, green, blue) - Math.min(red, green, blue) > 64) return true;
  }
  return false;
}"""
"""Whether a plot shows more than its grey axes."""


def test_the_first_batch_is_a_point_of_each_plot(browser: Browser, server: Server) -> None:
    graph = new_graph(server)
    with opened(browser, server, graph) as found:
        page = found.page
        expect(page.locator("#top")).to_contain_text("This graph has no vertices yet")
        send(server, graph, ("ada", "grace"))
        expect(page.locator("#bound-plot .plot-empty")).to_be_hidden()
        page.wait_for_function(COLOURED, arg="#bound-plot", timeout=20_000)
        page.wait_for_function(COLOURED, arg="#latency-plot", timeout=20_000)


def test_an_interruption_is_shown_and_continued_from_the_last_event(
    browser: Browser, server: Server
) -> None:
    graph = new_graph(server, *STAR)
    ids: list[str | None] = []
    events: dict[str, Any] = {"version": 1, "revision": 1, "error_bound": 0.0, "top": []}
    snapshot = f"event: snapshot\ndata: {json.dumps(events)}\nid: an-epoch-1\n\n"

    def answer(route: Route) -> None:
        ids.append(route.request.headers.get("last-event-id"))
        if len(ids) == 1:
            route.fulfill(body=snapshot, content_type="text/event-stream")
        elif len(ids) == 2:
            route.abort()
        else:
            route.continue_()

    with opened(browser, server, expected=("net::ERR_FAILED",), go=False) as found:
        page = found.page
        page.route("**/changes?*", answer)
        page.goto(f"{server.url('')}#{graph}")
        expect(page.locator("#notice")).to_contain_text("The server cannot be reached")
        expect(page.locator("#connection")).to_have_text("disconnected")
        expect(page.locator("#announcer")).to_contain_text("disconnected")
        page.locator("#notice button").click()
        expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        expect(page.locator("#notice")).to_be_hidden()
        expect(page.locator("#feed")).to_contain_text("some changes were missed (epoch)")
        assert ids[:3] == [None, "an-epoch-1", "an-epoch-1"]


def test_a_graph_that_is_dropped_gives_way_to_another(browser: Browser, server: Server) -> None:
    graph = new_graph(server, ("a", "b"))
    # the page may ask for the graph before it reads that there is none
    with opened(browser, server, graph, expected=("404 (Not Found)",)) as found:
        expect(found.page.locator("#top tbody tr")).to_have_count(2)
        server.http.delete(f"/graphs/{graph}")
        expect(found.page.locator(CURRENT)).not_to_have_text(graph)
        expect(found.page.locator(CURRENT)).to_have_count(1)


def test_sources_are_shown_where_the_server_has_them(browser: Browser, server: Server) -> None:
    graph = new_graph(server, ("a", "b"))
    document = server.http.get("/openapi.json").json()
    document["paths"]["/graphs/{graph}/sources"] = {}
    source = {"source": "orders", "partition": "", "position": "17-3", "version": 1, "time": 1.8e9}
    sources = [{**source, "partition": str(number)} for number in range(25)]
    report = {"source": "orders", "consumer": "c", "since": 1.8e9, "expires": 1.8e9}
    consumers = [
        report | {"state": "retrying", "reason": HOSTILE},
        report | {"state": "consuming", "reason": None},
    ]
    answer = {"sources": sources, "consumers": consumers}
    with opened(browser, server, go=False) as found:
        page = found.page
        page.route("**/openapi.json", lambda route: route.fulfill(json=document))
        page.route("**/sources", lambda route: route.fulfill(json=answer))
        page.goto(f"{server.url('')}#{graph}")
        expect(page.locator("#positions > div")).to_have_count(20)
        expect(page.locator("#positions > div").first).to_contain_text("orders / 0")
        expect(page.locator("#positions > div").first).to_contain_text("17-3")
        expect(page.locator("#consumers > div")).to_have_count(2)
        expect(page.locator("#consumers > div").first).to_contain_text(f"retrying {HOSTILE}")
        expect(page.locator("#consumers .health").first).to_have_attribute("data-state", "waiting")
        expect(page.locator("#consumers > div").last).to_contain_text("consuming")
        expect(page.locator("#sources")).to_contain_text("and 5 more")
