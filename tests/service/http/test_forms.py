"""Forms, tolerances and traces over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from liverank_service.http.schemas import GraphInfo, Receipt
from tests.service.server import Server

EDGES = [["a", "b"], ["b", "c"], ["c", "a"], ["c", "d"]]


def _receipt(answer: Any) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    Receipt.model_validate_json(answer.content)
    receipt: dict[str, Any] = answer.json()
    return receipt


def test_a_form_is_an_option_of_the_graph_and_a_parameter_of_each_solve(server: Server) -> None:
    path = server.new_graph(form="published", strategy="dynamic-frontier")
    batches = f"{path}/batches"
    receipt = _receipt(server.http.post(batches, json={"insert": EDGES}))
    assert (receipt["strategy"], receipt["form"]) == ("dynamic-frontier", "published")
    assert receipt["seconds"]["certify"] > 0.0
    other = {"strategy": "static", "form": "accelerated"}
    receipt = _receipt(server.http.post(batches, params=other, json={"delete": [["c", "d"]]}))
    assert (receipt["strategy"], receipt["form"]) == ("static", "accelerated")
    receipt = _receipt(server.http.post(f"{path}/recompute", params={"strategy": "auto"}))
    assert receipt["form"] == "accelerated"
    receipt = _receipt(server.http.post(f"{path}/recompute"))
    assert (receipt["strategy"], receipt["form"]) == ("static", "published")
    seconds = receipt["seconds"]
    assert sum(seconds.values()) - seconds["total"] == pytest.approx(seconds["total"], rel=1e-9)


def test_a_form_that_a_strategy_does_not_have_is_refused_before_the_journal(
    server: Server,
) -> None:
    path = server.new_graph()
    for call in (f"{path}/batches", f"{path}/recompute"):
        wrong = {"strategy": "auto", "form": "published"}
        answer = server.http.post(call, params=wrong, json={"insert": EDGES})
        assert answer.status_code == 422
        problem = answer.json()
        assert (problem["field"], problem["value"]) == ("form", "published")
        assert "'auto'" in problem["detail"]
        assert server.http.post(call, params={"form": "fast"}, json={}).json()["field"] == "form"
    assert server.http.get(path).json()["version"] == 0


def test_tolerances_are_options_of_the_graph(server: Server) -> None:
    path = "/graphs/tolerances"
    options = {
        "tolerance": 1e-4,
        "frontier_tolerance": 1e-3,
        "prune_tolerance": 1e-3,
        "max_iterations": 3,
    }
    info = GraphInfo.model_validate_json(server.http.put(path, json=options).content)
    assert info.options.model_dump(include=set(options)) == options
    published = {"strategy": "static", "form": "published"}
    batches = f"{path}/batches"
    receipt = _receipt(server.http.post(batches, params=published, json={"insert": EDGES}))
    assert (receipt["iterations"], receipt["converged"]) == (3, False)
    assert server.http.put(path, json={"tolerance": 1e-5}).status_code == 409
    for name, wrong in (("tolerance", 0.0), ("max_iterations", 0), ("prune_tolerance", 1.0)):
        answer = server.http.put("/graphs/wrong", json={name: wrong})
        assert (answer.status_code, answer.json()["field"]) == (422, name)


def test_a_trace_is_in_the_receipt_on_request(server: Server) -> None:
    path = server.new_graph(dangling="self-loop")
    batches = f"{path}/batches"
    first = _receipt(server.http.post(batches, json={"insert": EDGES}))
    assert "trace" not in first
    query: dict[str, str | bool] = {
        "strategy": "dynamic-frontier-prune",
        "form": "published",
        "trace": True,
    }
    batch = {"insert": [["a", "c"]]}
    receipt = _receipt(server.http.post(batches, params=query, json=batch))
    trace = receipt["trace"]
    # a's out-neighbours, and a itself through its loop
    assert trace["affected"] == trace["steps"][0]["vertices"] == 3
    assert trace["sweeps"] == len(trace["steps"]) == receipt["iterations"]
    assert trace["steps"][0]["joined"] == 1
    assert server.http.get(f"{path}/batches/2").json() == receipt
    auto = _receipt(server.http.post(f"{path}/recompute", params={"trace": "true"}))["trace"]
    assert {step["kind"] for step in auto["steps"]} == {"sweep"}
