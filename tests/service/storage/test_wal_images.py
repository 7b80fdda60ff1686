"""Frames of a write-ahead log that SQLite wrote."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from liverank_service.storage.salvage import read_frames

PAGE = 1024


@pytest.fixture
def log(tmp_path: Path) -> Path:
    database = tmp_path / "data.db"
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute(f"PRAGMA page_size = {PAGE}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE numbers (content BLOB)")
    for number in range(20):
        content = np.random.default_rng(number).bytes(700)
        connection.execute("INSERT INTO numbers VALUES (?)", (content,))
    copied = tmp_path / "copied-wal"
    shutil.copyfile(tmp_path / "data.db-wal", copied)
    connection.close()
    return copied


def test_every_frame_is_intact_and_one_damaged_byte_spoils_its_frame_alone(log: Path) -> None:
    frames = read_frames(log, PAGE)
    assert frames is not None
    assert len(frames.intact) > 30
    assert frames.intact.all()
    content = bytearray(log.read_bytes())
    content[32 + 12 * (24 + PAGE) + 24 + 500] ^= 16
    log.write_bytes(content)
    frames = read_frames(log, PAGE)
    assert frames is not None
    assert np.flatnonzero(~frames.intact).tolist() == [12]
