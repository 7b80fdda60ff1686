"""A second reader of a graph's files, which follows their documentation alone."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from liverank_service.formats.columns import SetChange, SourceRange
from liverank_service.pipeline.batch import Batch
from liverank_service.pipeline.window import WindowOptions
from tests.service.graphs import Sent, batch, columns, opened, send, timed_batch

EDGES = [(f"v{number}", f"v{number + 1}") for number in range(40)]
WINDOW = WindowOptions(1000.0, clock="event")


def chain_of(before: bytes, row: dict[str, Any]) -> bytes:
    content = before + struct.pack("<qd", row["version"], row["committed_at"])
    key = row["idempotency_key"]
    for part in (
        row["strategy"].encode(),
        b"" if key is None else b"=" + key.encode(),
        row["body_hash"],
        row["payload"],
    ):
        content += struct.pack("<q", len(part)) + part
    return hashlib.sha256(content).digest()


def checksum_of(values: list[Any]) -> int:
    content = b""
    for value in values:
        part = value if isinstance(value, bytes) else repr(value).encode()
        content += b"%s %d %s" % (type(value).__name__.encode(), len(part), part)
    return zlib.crc32(content)


def payload_of(content: bytes) -> dict[str, Any]:
    if content.startswith(b"{"):
        return dict(json.loads(content))
    table = pa.ipc.open_stream(content).read_all()
    (row,) = table.to_pylist()
    others = {name.decode(): json.loads(text) for name, text in table.schema.metadata.items()}
    return {**row, **others}


def batches() -> list[Sent]:
    key = pa.array(["v0"], pa.string())
    sets = {"s": SetChange(key, key[:0], "replace"), "t": SetChange(key, key[:0], "replace")}
    given = columns(EDGES)
    times = pa.array([5.0] * len(EDGES), pa.float64())
    ranged = replace(given, times=times, sets=sets, range=SourceRange("r", "", None, "1-0"))
    first = batch(key="k").batch
    return [
        Sent(Batch.of(ranged, b"body", first.solve, "kéy")),
        timed_batch([("v0", "new", 7.0)], [EDGES[0]], remove=["v5"]),
        timed_batch([("late", "v1", 8.0)]),
    ]


def test_a_journal_and_a_checkpoint_are_what_their_documentation_says(tmp_path: Path) -> None:
    pipeline = opened(tmp_path, window=WINDOW)
    sent = batches()
    for one in sent[:2]:
        send(pipeline, one)
    pipeline.checkpoint().result(60)
    send(pipeline, sent[2])

    journal = sqlite3.connect(tmp_path / "journal.db")
    journal.row_factory = sqlite3.Row
    rows = [dict(row) for row in journal.execute("SELECT * FROM batches ORDER BY version")]
    chains = [bytes(32)]
    for row in rows:
        chains.append(chain_of(chains[-1], row))
        assert row["chain"] == chains[-1]
    for table in ("requests", "outcomes", "state"):
        for found in journal.execute(f"SELECT * FROM {table}"):
            *values, stated = (value for name, value in dict(found).items() if name != "only_row")
            assert checksum_of(values) == stated, table
    large, small, _ = (payload_of(row["payload"]) for row in rows)
    journal.close()
    assert list(zip(large["insert_sources"], large["insert_targets"], strict=True)) == EDGES
    assert large["sets"]["s"] == {"add": ["v0"], "remove": [], "whole": "replace"}
    assert large["range"] == ["r", "", None, "1-0"]
    assert (small["keys"], small["remove"], small["times"]) == ("string", ["v5"], [7.0])

    (checkpoint,) = (tmp_path / "checkpoints").iterdir()
    stated, _, text = (checkpoint / "manifest.json").read_bytes().partition(b"\n")
    assert hashlib.sha256(text).hexdigest().encode() == stated
    manifest = json.loads(text)
    assert (manifest["version"], bytes.fromhex(manifest["chain"])) == (2, chains[2])
    arrays = {}
    for name, array in manifest["arrays"].items():
        content = (checkpoint / f"{name}.bin").read_bytes()
        assert hashlib.sha256(content).hexdigest() == array["sha256"]
        arrays[name] = np.frombuffer(content, array["dtype"])
        assert len(arrays[name]) == array["length"]
    offsets, arena = arrays["keys-offsets"], arrays["keys-arena"].tobytes()
    keys = [
        arena[offsets[number] : offsets[number + 1]].decode()
        for number in arrays["keys-numbers"].tolist()
        if number >= 0
    ]
    edges = EDGES[1:4] + EDGES[6:] + [("v0", "new")]
    assert set(keys) == {end for edge in edges for end in edge} | {"v0", "v4"}
    ids = dict(zip(keys, np.flatnonzero(arrays["keys-numbers"] >= 0).tolist(), strict=True))
    packed = {ids[source] * 2**32 + ids[target] + 1 for source, target in edges}
    assert set(arrays["window-edges"].tolist()) == packed
    assert sorted(set(arrays["window-times"].tolist())) == [5.0, 7.0]
    numbers = manifest["numbers"]
    assert (numbers["newest-time"], numbers["engine"]["edges"]) == (7.0, len(edges))
    assert numbers["sets"] == {"s": 1, "t": 1}
    assert arrays["sets"].tolist() == [ids["v0"]] * 2
    assert [one["position"] for one in numbers["sources"]] == ["1-0"]
