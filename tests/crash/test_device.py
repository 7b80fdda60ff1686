"""A lost device: the process ends, the batch is retried, and rejected the third time."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverank_gpu import EXIT_DEVICE_LOST
from liverank_service.storage.journal import Journal
from tests.crash.nursery import Nursery
from tests.service.graphs import batch, send, working

PROGRAM = """
import sys
from pathlib import Path
from liverank_gpu import Engine
from liverank_gpu import DeviceLost
from tests.service.graphs import batch, opened, submit

poison = "poison"

def losing(original):
    def lost(self, *arguments):
        if "poison" in pipeline_keys():
            raise DeviceLost("cudaErrorIllegalAddress: an illegal memory access was encountered")
        return original(self, *arguments)
    return lost

def pipeline_keys():
    import gc
    from liverank_service.vertex_keys import KeyTable
    import pyarrow as pa
    tables = [one for one in gc.get_objects() if isinstance(one, KeyTable)]
    return {poison} if any(table.lookup(pa.array([poison]))[0] >= 0 for table in tables) else set()

for function in {"apply": ("apply", "apply_coalesced"), "update": ("update",)}[sys.argv[2]]:
    setattr(Engine, function, losing(getattr(Engine, function)))
pipeline = opened(Path(sys.argv[1]))
if sys.argv[3] == "send":
    for one in [batch([("c", "d")]), batch([("a", "poison")]), batch([("e", "f")])]:
        submit(pipeline, one)
        one.durable.result()
    one.ranked.result()
print(pipeline.view.version, pipeline.view.edges)
"""


@pytest.mark.parametrize("function", ["apply", "update"])
def test_a_batch_that_ended_the_process_twice_is_rejected(
    nursery: Nursery, tmp_path: Path, function: str
) -> None:
    with working(tmp_path) as pipeline:
        send(pipeline, batch([("a", "b")]))
    ended = nursery.run(PROGRAM, tmp_path, function, "send")
    deaths = 0
    while ended.returncode == EXIT_DEVICE_LOST:
        last = ended.stderr.splitlines()[-1]
        assert last == (
            "liverank: the device is lost: cudaErrorIllegalAddress: an illegal memory access was "
            "encountered; the process ends and must be restarted"
        )
        deaths += 1
        assert deaths <= 3
        ended = nursery.run(PROGRAM, tmp_path, function, "recover")
    assert ended.returncode == 0, ended.stderr
    # if several batches shared a solve, the first loss of the device only makes each a suspect
    assert deaths in (2, 3)
    journal = Journal(tmp_path / "journal.db")
    assert journal.version >= 3
    assert ended.stdout.split() == [str(journal.version), str(journal.version - 1)]
    outcome = journal.outcome(3)
    assert outcome is not None
    assert outcome.status == "rejected"
    assert b"the device is lost: batch 3 has ended the process 2 times" in outcome.body
    assert journal.deaths() == {}
    journal.close()
    with working(tmp_path) as again:
        assert again.view.edges == journal.version - 1
        assert send(again, batch([("g", "h")]))["inserted"] == 1


ASKING = """
import sys
from pathlib import Path
from liverank_gpu.personalized.query import Query
from liverank_service.queries.model import KeyedQuery, WatchedQuery
from liverank_service.queries.model import QueryRequest
from liverank_service.queries.scheduler import WatchRequest
from tests.service.graphs import batch, engine_of, opened, send

def lost(self):
    raise RuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")

pipeline = opened(Path(sys.argv[1]))
send(pipeline, batch([("a", "b"), ("b", "a")]))
Query.step = lost
device = type(engine_of(pipeline).internals.backend.device)
device.is_lost = lambda self, error: "cuda" in str(error)
request = {
    "query": QueryRequest([KeyedQuery(seeds={"a": 1.0})], 60.0),
    "watch": WatchRequest([WatchedQuery(seeds={"a": 1.0}, target_error=1e-6)], 60.0, "mine"),
}[sys.argv[2]]
pipeline.submit_query(request)
request.answer.result(60)
"""


@pytest.mark.parametrize("what", ["query", "watch"])
def test_a_query_that_loses_the_device_ends_the_process(
    nursery: Nursery, tmp_path: Path, what: str
) -> None:
    Journal.create(tmp_path / "journal.db")
    ended = nursery.run(ASKING, tmp_path, what)
    assert ended.returncode == EXIT_DEVICE_LOST, ended.stderr
    assert ended.stderr.splitlines()[-1] == (
        "liverank: the device is lost: cudaErrorIllegalAddress: an illegal memory access was "
        "encountered; the process ends and must be restarted"
    )
    # committed batches are recovered, and only confirmed queries are watched
    with working(tmp_path) as pipeline:
        assert (pipeline.view.version, pipeline.view.edges) == (1, 2)
        assert pipeline.view.watched == {}


READING = """
import http.client, sys, tempfile, threading
from contextlib import suppress
from pathlib import Path
from liverank_gpu.operations.device import DeviceOperations
from tests.service.server import running

what = sys.argv[2]

def lost(self, after):
    raise RuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")

with running(Path(sys.argv[1])) as server:
    http_ = server.http
    http_.post("/graphs/default/batches", json={"insert": [["a", "b"], ["b", "c"]]})
    DeviceOperations.is_lost = lambda self, error: "cuda" in str(error)
    DeviceOperations._stream_of_reader = lost
    if what == "rank":
        answer = http_.get("/graphs/default/ranks/a")
        print(answer.status_code, answer.json()["type"], flush=True)
    elif what == "checkpoint":
        http_.post("/graphs/default/checkpoint")
    elif what == "changes":
        http_.get("/graphs/default/changes")
    else:
        http_.get("/graphs/default/edges")
    threading.Event().wait(30)
"""


@pytest.mark.parametrize("what", ["rank", "checkpoint", "changes", "export"])
def test_a_reader_that_loses_the_device_ends_the_process(
    nursery: Nursery, tmp_path: Path, what: str
) -> None:
    ended = nursery.run(READING, tmp_path, what)
    assert ended.returncode == EXIT_DEVICE_LOST, ended.stderr
    assert "illegal memory access" in ended.stderr.splitlines()[-1]
    if what == "rank":
        assert ended.stdout == "503 urn:liverank:problem:device-lost\n"
