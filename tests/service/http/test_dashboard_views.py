"""The dashboard shows the ranks of views, and names graph, view and vertex in its address."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.service.http.dashboard_pages import STAR, new_graph, opened, put_view, send
from tests.service.server import Server

VIEW = '#views [aria-current="true"] strong'
"""Where the page shows the name of its view."""
NAME = "trust & more?"
EDGES = [*STAR, ("hub", "leaf-00"), ("leaf-00", "leaf-01"), ("leaf-01", "leaf-02")]


def top_of(server: Server, graph: str, **seen: str) -> list[str]:
    answer = server.http.get(f"/graphs/{graph}/top", params={"k": 20, **seen}).json()
    return [place["vertex"] for place in answer["ranks"]]


def order(page: Page) -> list[str]:
    return page.locator("#top tbody th").all_text_contents()


def figure(page: Page, term: str) -> Any:
    return page.locator("#vertex dl div", has_text=term)


def test_a_choice_of_a_view_changes_all_that_is_told_of_ranks(
    browser: Browser, server: Server
) -> None:
    graph = new_graph(server, *EDGES)
    put_view(
        server, graph, NAME, teleport={"weights": {"leaf-05": 3, "leaf-02": 1}}, target_error=1e-8
    )
    put_view(server, graph, "spam", teleport="uniform", direction="reversed", refresh="read")
    server.http.put(f"/graphs/{graph}/sets/good", json={"vertices": ["leaf-02"]})
    put_view(server, graph, "good", teleport={"set": "good"}, refresh=2.5, within="good")
    with opened(browser, server, graph) as found:
        page = found.page
        expect(page.locator(VIEW)).to_have_text("Ranks of the graph")
        texts = page.locator("#views li").all_text_contents()
        for text, parts in zip(
            texts[1:],
            [
                (
                    "good",
                    "restart at set good · forward · within set good",
                    "target 1.0e-6",
                    "solved every 2.5 s",
                ),
                ("spam", "restart at all vertices alike · reversed", "solved by reads"),
                (NAME, "restart at 2 weights · forward", "target 1.0e-8", "solved by batches"),
            ],
            strict=True,
        ):
            assert all(part in text for part in (*parts, "error ≤ ")), text
        expect(page.locator("#top tbody tr").first).to_contain_text("hub")
        page.locator("#top .vertex", has_text="leaf-05").click()
        expect(page.locator("#vertex .givers li").last).to_contain_text("every vertex has")

        page.get_by_role("button", name=f"{NAME} ").click()
        expect(page.locator(VIEW)).to_have_text(NAME)
        places = top_of(server, graph, view=NAME)
        assert places != top_of(server, graph)
        expect(page.locator("#top tbody th")).to_have_text(places)
        expect(page.locator("#top-title")).to_contain_text(f"view {NAME}")
        assert page.title() == f"leaf-05 · {NAME} · {graph} · liverank"
        seen = {"view": NAME}
        read = server.http.get(f"/graphs/{graph}/ranks/leaf-05", params=seen).json()
        expect(figure(page, "Rank")).to_contain_text(f"{read['rank']:.6f}")
        parts = server.http.get(f"/graphs/{graph}/explain/leaf-05", params=seen).json()
        restarts = page.locator("#vertex .givers li").last
        expect(restarts).to_contain_text(f"walks that restart here{parts['teleport']:.6f}")
        bound = page.locator("#summary div", has_text="Error bound")
        expect(bound).to_contain_text(f"of the view {NAME}")
        send(server, graph, *[(f"leaf-{number:02d}", "leaf-02") for number in range(9)])
        read = server.http.get(f"/graphs/{graph}/ranks/leaf-05", params=seen).json()
        expect(figure(page, "Rank")).to_contain_text(f"{read['rank']:.6f}")
        bounds = page.locator("#bound-legend li")
        expect(bounds.nth(0)).to_contain_text("e-")
        expect(bounds.nth(1)).to_contain_text("1.0e-8")

        page.reload()
        expect(page.locator(VIEW)).to_have_text(NAME)
        expect(page.locator(".vertex-name")).to_have_text("leaf-05")
        page.go_back()
        expect(page.locator(VIEW)).to_have_text("Ranks of the graph")
        expect(page.locator(".vertex-name")).to_have_text("leaf-05")
        page.go_back()
        expect(page.locator("#vertex")).to_contain_text("choose a vertex")
        page.go_forward()
        expect(page.locator(".vertex-name")).to_have_text("leaf-05")


def test_a_view_that_is_not_there_is_named(browser: Browser, server: Server) -> None:
    graph = new_graph(server, *EDGES)
    put_view(server, graph, "trust", teleport="uniform")
    with opened(browser, server, f"{graph}?view=nobody", expected=("404 (Not Found)",)) as found:
        page = found.page
        missing = f"Graph {graph} has no view {{}}: these are the ranks of the graph."
        expect(page.locator("#missing")).to_have_text(missing.format("nobody"))
        expect(page.locator(VIEW)).to_have_text("Ranks of the graph")
        page.get_by_role("button", name="trust ").click()
        expect(page.locator(VIEW)).to_have_text("trust")
        expect(page.locator("#missing")).to_be_hidden()
        expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        server.http.delete(f"/graphs/{graph}/views/trust")
        expect(page.locator("#missing")).to_have_text(missing.format("trust"))
        expect(page.locator("#views-card")).to_be_hidden()


def test_a_view_without_ranks_says_why(browser: Browser, server: Server) -> None:
    graph = new_graph(server, *EDGES)
    server.http.put(f"/graphs/{graph}/sets/none", json={"vertices": []})
    put_view(server, graph, "none", teleport={"set": "none"})
    with opened(browser, server, f"{graph}?view=none", expected=("status of 409",)) as found:
        page = found.page
        why = "There are no ranks: no vertex of the graph has a weight in the view."
        expect(page.locator("#top")).to_have_text(why)
        body = {"sets": {"none": {"add": ["leaf-02"]}}}
        server.http.post(f"/graphs/{graph}/batches", json=body).raise_for_status()
        expect(page.locator("#top tbody tr").first).to_be_visible()


def test_a_view_waits_for_its_set(browser: Browser, server: Server) -> None:
    graph = new_graph(server, *EDGES)
    members = f"/graphs/{graph}/sets/good"
    server.http.put(members, json={"vertices": ["leaf-02"]}).raise_for_status()
    put_view(server, graph, "good", teleport={"set": "good"}, within="good")
    with opened(browser, server, f"{graph}?view=good", expected=("404 (Not Found)",)) as found:
        page = found.page
        expect(page.locator("#top tbody tr").first).to_contain_text("leaf-02")
        server.http.delete(members).raise_for_status()
        expect(page.locator("#top")).to_contain_text("There are no ranks: ")
        expect(page.locator("#top")).to_contain_text("set 'good'")
        expect(page.locator(VIEW)).to_have_text("good")
        server.http.put(members, json={"vertices": ["leaf-05"]}).raise_for_status()
        expect(page.locator("#top tbody tr").first).to_contain_text("leaf-05")
        expect(page.locator(VIEW)).to_have_text("good")


def test_a_vertex_is_named_once_in_a_group(browser: Browser, server: Server) -> None:
    """Also where it came into the list, and its rank changed again."""
    graph = new_graph(server, ("a", "b"), ("b", "a"))
    with opened(browser, server, graph) as found:
        page = found.page
        expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        send(server, graph, ("b", "b"))
        expect(page.locator("#feed .feed-moved").first).to_be_visible()
        for source in "ab":  # in the group that comes seconds after
            send(server, graph, (source, "newcomer"))
            rank = server.http.get(f"/graphs/{graph}/ranks/newcomer").json()["rank"]
            row = page.locator("#top tbody tr", has_text="newcomer")
            expect(row).to_contain_text(f"{rank:.6f}")
        named = page.locator("#feed li", has_text="newcomer")
        expect(named).to_contain_text(["entered"])
        expect(named).to_have_count(1)


def test_the_chosen_vertex_is_marked_wherever_it_is(browser: Browser, server: Server) -> None:
    graph = new_graph(server, *EDGES)
    with opened(browser, server, graph) as found:
        page = found.page
        page.locator("#top .vertex", has_text="leaf-00").click()
        marked = page.locator('[data-vertex][aria-current="true"]')
        expect(page.locator("#vertex .graph-node[data-seed]")).to_be_visible()
        expect(marked).to_have_count(2)  # in the list and in the drawing
        send(server, graph, *[("hub", f"new-{number}") for number in range(30)])
        expect(page.locator("#feed")).to_contain_text("entered")
        names = set(marked.evaluate_all("nodes => nodes.map(n => n.dataset.vertex)"))
        assert names == {"leaf-00"}
        page.locator("#top .vertex", has_text="hub").click()
        expect(page.locator('#top [aria-current="true"]')).to_have_text("hub")


def test_rows_keep_their_order_under_the_pointer(browser: Browser, server: Server) -> None:
    graph = new_graph(server, *EDGES)
    with opened(browser, server, graph) as found:
        page = found.page
        expect(page.locator("#top tbody tr").first).to_contain_text("hub")
        before = order(page)
        page.locator("#top tbody tr").nth(2).hover()
        send(server, graph, *[(f"leaf-{number:02d}", "newcomer") for number in range(30)])
        held = page.locator("#top-held")
        expect(held).to_be_visible()
        assert order(page) == before
        rank = server.http.get(f"/graphs/{graph}/ranks/hub").json()["rank"]
        expect(page.locator("#top tbody tr").first).to_contain_text(f"{rank:.6f}")
        expect(page.locator("#top tbody tr.gone").first).to_contain_text("–")
        page.mouse.move(2, 2)
        expect(page.locator("#top tbody tr", has_text="newcomer")).to_be_visible()
        expect(held).to_be_hidden()
        assert order(page) == top_of(server, graph)


def test_a_tap_on_a_phone_shows_its_result(browser: Browser, server: Server) -> None:
    graph = new_graph(server, *EDGES)
    phone: dict[str, Any] = {
        "viewport": {"width": 390, "height": 844},
        "has_touch": True,
        "is_mobile": True,
    }
    with opened(browser, server, graph, **phone) as found:
        page = found.page
        page.locator("#top .vertex").nth(1).tap()
        expect(page.locator("#vertex dl").first).to_be_in_viewport()
        expect(page.locator("#vertex .givers li").first).to_be_in_viewport()
        bar = page.locator(".bar").bounding_box()
        title = page.locator("#vertex-title").bounding_box()
        assert bar
        assert title
        assert title["y"] >= bar["y"] + bar["height"]


def test_a_course_leaves_out_what_all_ranks_share(browser: Browser, server: Server) -> None:
    pairs = [("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")]
    graph = new_graph(server, *pairs)
    with opened(browser, server, graph) as found:
        page = found.page
        rows = page.locator("#top tbody tr")
        expect(rows).to_have_count(4)
        send(server, graph, *[(f"x-{number}", f"y-{number}") for number in range(40)])
        for vertex in "abcd":  # they lose alike to those that come
            row = page.locator(f'#top tr:has([data-vertex="{vertex}"])')
            expect(row.locator(".change")).to_contain_text("−")
            expect(row.locator(".spark")).to_have_attribute("data-trend", "flat")
        send(server, graph, *[(f"x-{number}", "a") for number in range(40)])
        for vertex, way in (("a", "up"), ("c", "down")):
            row = page.locator(f'#top tr:has([data-vertex="{vertex}"])')
            expect(row.locator(".spark")).to_have_attribute("data-trend", way)
