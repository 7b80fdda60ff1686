"""The stages of a receipt."""

from __future__ import annotations

import threading
from time import perf_counter, sleep

import orjson

from liverank_gpu import Solve
from liverank_service.pipeline.pipeline import Pipeline
from tests.service.graphs import batch, receipt, send, stages_of, together


def test_the_stages_of_a_batch_add_up_to_the_time_that_it_took(pipeline: Pipeline) -> None:
    between = []
    for step in range(20):
        began = perf_counter()
        answer = send(pipeline, batch([("a", f"b{step}"), (f"b{step}", "c")]))
        waited = perf_counter() - began
        seconds = stages_of(answer)
        assert answer["seconds"]["total"] <= waited
        between.append(seconds.pop("others"))
        assert min(seconds.values()) > 0.0
    # the stages cover nearly all of a single batch, unless the process is preempted
    assert min(between) < 1e-3


def test_batches_ranked_together_have_each_their_share_and_the_rest_is_of_others(
    pipeline: Pipeline,
) -> None:
    send(pipeline, batch([("a", "b")]))
    count = 5
    batches = [batch([("a", f"b{place}")]) for place in range(count)]
    together(pipeline, batches)
    shared: list[tuple[float, ...]] = []
    for one in batches:
        seconds = stages_of(receipt(one))
        assert seconds["others"] >= (count - 1) * (seconds["keys"] + seconds["mutate"])
        shared.append(tuple(seconds[name] for name in seconds if name not in ("queue", "others")))
    assert shared == [shared[0]] * count


def test_the_ranking_of_an_earlier_batch_is_time_of_others(pipeline: Pipeline) -> None:
    first, second = batch([("a", "b")]), batch([("b", "c")], strategy="static")
    together(pipeline, [first, second])
    before, after = stages_of(receipt(first)), stages_of(receipt(second))
    assert after["others"] >= before["mutate"] + before["solve"] + before["publish"]


def test_the_stages_of_a_recomputation_add_up_too(pipeline: Pipeline) -> None:
    send(pipeline, batch([("a", "b")]))
    gate = threading.Event()
    pipeline.call(lambda _: gate.wait(60))
    asked = pipeline.recompute(Solve("static"))
    sleep(0.02)
    gate.set()
    seconds = stages_of(orjson.loads(asked.result(60)))
    assert seconds["queue"] >= 0.019
    assert (seconds["keys"], seconds["mutate"]) == (0.0, 0.0)
    assert min(seconds[name] for name in ("journal", "solve", "publish")) > 0.0
