"""Damaged bodies and requests: accepted correctly, or refused with a message; never a crash.

At scale: python -m tests.fuzz.campaign.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from liverank.choices import KeyKind
from liverank_gpu import Change, EdgeBatch, Engine
from liverank_service.formats.columns import EdgeColumns
from liverank_service.formats.decode import decode_batch
from tests.fuzz import blocks, wire
from tests.fuzz.bodies import cases
from tests.fuzz.oracle import MOST_BYTES, MOST_EDGES, MOST_KEY_BYTES, Oracle, decoded
from tests.service.server import running

_oracles: dict[KeyKind, Oracle] = {}


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases)
def test_any_body_is_a_batch_or_refused_and_is_applied_whole(
    case: tuple[tuple[str, bytes], KeyKind],
) -> None:
    (content_type, body), kind = case
    columns = decoded(content_type, body, kind)
    if columns is not None:
        if kind not in _oracles:
            _oracles[kind] = Oracle()
        _oracles[kind].apply(columns)


def test_a_block_of_the_campaign_finds_nothing_and_is_not_idle() -> None:
    outcome = blocks.run(seed=0, block=0)
    assert outcome.failures == []
    assert outcome.decoded.total() + outcome.refused.total() == blocks.SIZE
    for media_type in ("application/json", "application/x-ndjson", "text/csv"):
        assert outcome.decoded[media_type] > 20
        assert outcome.refused[media_type] > 20


def test_a_block_is_the_same_again() -> None:
    assert blocks.case_of(5, 7, 300) == blocks.case_of(5, 7, 300)
    assert blocks.case_of(5, 7, 300) != blocks.case_of(5, 8, 300)


def test_an_engine_that_drops_an_edge_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Engine.apply

    def half(engine: Engine, batch: EdgeBatch) -> Change:
        if len(batch.insert_sources) > 2:
            batch = EdgeBatch(
                batch.insert_sources[1:], batch.insert_targets[1:], vertices=batch.vertices
            )
        return whole(engine, batch)

    monkeypatch.setattr(Engine, "apply", half)
    assert len(blocks.run(seed=0, block=0).failures) > 10


def test_a_decoder_that_loses_a_row_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def lossy(content_type: str, body: bytes, kind: KeyKind, limit: int) -> EdgeColumns:
        columns = decode_batch(content_type, body, kind, limit)
        return EdgeColumns(
            columns.insert_sources[:2],
            columns.insert_targets[:2],
            columns.delete_sources,
            columns.delete_targets,
            columns.vertices,
        )

    monkeypatch.setattr("tests.fuzz.oracle.decode_batch", lossy)
    assert len(blocks.run(seed=0, block=0).failures) > 10


def test_a_server_survives_any_request(tmp_path: Path) -> None:
    with running(
        tmp_path,
        max_body_bytes=MOST_BYTES,
        max_batch_edges=MOST_EDGES,
        max_key_bytes=MOST_KEY_BYTES,
        slow_client_seconds=5,
    ) as server:
        port = server.http.base_url.port
        assert port is not None
        client = wire.Wire(port)
        exchanged = wire.run(seed=0, block=0, size=300, wire=client)
        client.close()
        assert exchanged.failures == []
        assert exchanged.decoded.total() > 20
        assert exchanged.statuses[404] > 5
        assert server.http.get("/livez").status_code == 200
