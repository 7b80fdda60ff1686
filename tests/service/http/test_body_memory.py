"""Memory of a server that many bodies are sent to, accepted and refused: it is flat."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

from liverank_service.formats import ARROW_STREAM, CSV, JSON, NDJSON, PARQUET
from tests.service.formats.test_arrow_limits import arrow
from tests.service.formats.test_parquet import parquet
from tests.service.server import ServerProcess, serving

BODIES = 200

MOST = 24 << 20
"""Bytes that these bodies may leave behind, which are half as many as they have."""

KEYS = [f"{number:0500}" for number in range(250)]
EDGES = [[source, KEYS[0]] for source in KEYS]
TABLE = pa.table({"source": KEYS, "target": [KEYS[0]] * len(KEYS)})
WRONG = TABLE.append_column("other", TABLE["source"])
OBJECTS = b"".join(b'{"source":"%s","target":"%s"}\n' % (a.encode(), b.encode()) for a, b in EDGES)
CELLS = b"source,target\n" + b"".join(b"%s,%s\n" % (a.encode(), b.encode()) for a, b in EDGES)

QUERIES = {"queries": [{"seeds": dict.fromkeys(KEYS, 1.0), "among": KEYS, "k": 1}]}
SEEDS = pa.table({"seed": KEYS * 2, "query": [0] * len(KEYS) + [1] * len(KEYS)})


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("data"), max_batch_edges=300) as started:
        answer = started.http.put("/graphs/g", json={"weighted": True})
        assert answer.status_code == 201
        weighted = [[*edge, 0.5] for edge in EDGES]
        started.http.post("/graphs/g/batches", json={"insert": weighted}).raise_for_status()
        yield started


@pytest.mark.parametrize(
    ("media_type", "body", "status"),
    [
        (JSON, _json({"insert": EDGES}), 202),
        (JSON, _json({"insert": [[*edge, 0.5] for edge in EDGES]}), 202),
        (JSON, _json({"insert": [[*edge, 0.5] for edge in [*EDGES, ["a", ""]]]}), 422),
        (JSON, _json({"insert": [[*edge, 0.5] for edge in EDGES * 2]}), 413),
        (JSON, _json({"insert": EDGES})[:-1], 422),
        (NDJSON, OBJECTS, 202),
        (NDJSON, OBJECTS + b'{"source":', 422),
        (CSV, CELLS, 202),
        (CSV, CELLS + b"a\n", 422),
        (ARROW_STREAM, arrow(TABLE), 202),
        (ARROW_STREAM, arrow(WRONG), 422),
        (PARQUET, parquet(TABLE, use_dictionary=False, compression="none"), 202),
        (PARQUET, parquet(WRONG, use_dictionary=False, compression="none"), 422),
    ],
)
def test_batches_leave_nothing_behind(
    process: ServerProcess, media_type: str, body: bytes, status: int
) -> None:
    check(process, "batches?rank=later", media_type, body, status)


@pytest.mark.parametrize(
    ("call", "media_type", "body", "status"),
    [
        ("personalized", JSON, _json(QUERIES), 200),
        ("personalized", JSON, _json({**QUERIES, "other": 1}), 422),
        ("personalized", JSON, _json(QUERIES)[:-1], 422),
        ("personalized", ARROW_STREAM, arrow(SEEDS), 200),
        ("personalized", ARROW_STREAM, arrow(SEEDS.append_column("other", SEEDS["seed"])), 422),
        ("ranks", JSON, _json({"vertices": KEYS * 2}), 200),
        ("ranks", JSON, _json({"vertices": KEYS * 2, "other": 1}), 422),
        ("subgraph", JSON, _json({"vertices": KEYS * 2}), 200),
    ],
)
def test_reads_with_bodies_leave_nothing_behind(
    process: ServerProcess, call: str, media_type: str, body: bytes, status: int
) -> None:
    check(process, call, media_type, body, status)


def check(process: ServerProcess, call: str, media_type: str, body: bytes, status: int) -> None:
    assert BODIES * len(body) > 1.9 * MOST

    def send(times: int) -> None:
        for _ in range(times):
            answer = process.http.post(
                f"/graphs/g/{call}", content=body, headers={"Content-Type": media_type}
            )
            assert answer.status_code == status, answer.text

    send(20)  # what the process takes once is not what a body leaves
    before = process.memory()
    send(BODIES)
    assert process.memory() - before < MOST
