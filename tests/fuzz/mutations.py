"""Millions of bodies from a seed: small valid batches, then damaged.

Hypothesis (tests.fuzz.bodies) chooses better and shrinks failures, but makes a few dozen cases per
second; this makes thousands.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa

from liverank.choices import KeyKind

JSON, LINES, CSV, ARROW = FORMATS = (
    "application/json",
    "application/x-ndjson",
    "text/csv",
    "application/vnd.apache.arrow.stream",
)

_TEXTS = (*"abcdefgh", "ab", "é", "😀", "\0", '"', "\\", ":", ",", "\n", " ", "1", "-1", "null")
_NUMBERS = (*range(-3, 8), 2**31, 2**63 - 1, -(2**63))
_ODD: tuple[Any, ...] = (
    None,
    True,
    "",
    0.5,
    -0.0,
    1e400,
    float("nan"),
    2**63,
    -(2**63) - 1,
    2**64,
    10**400,
    [],
    ["a"],
    {},
    {"source": ["a"]},
    "\ud800",
    "x" * 5000,
)

_TOKENS = (
    *(b"null", b"true", b"-0", b"1e400", b"1.5", b"9223372036854775808", b"-9223372036854775809"),
    *(b"NaN", b"Infinity", b"00", b"+1", b"0x1", b"1_000", b'"', b'""', b"\\", b"\\u0000"),
    *(b"\\ud800", b"\\ud83d\\ude00", b"\xed\xa0\x80", b"\xc0\x80", b"\xff", b"\xfe\xff"),
    *(b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"{", b"}", b"[", b"]", b",", b":", b"\n", b"\r", b"\r\n"),
    *(b"\t", b" ", b"\0", b"/*", b"#", b"'", b";", b"[" * 2000, b'{"a":' * 1500, b" " * 70_000),
    *(b'"insert":', b'"delete":[["a","b"]],', b'"vertices":["a"],', b'"source"', b'"target":"a",'),
    *(
        b'"operation":"delete"',
        b"source,target",
        b",delete",
        b"a,b\n",
        b'{"source":"a","target":1}',
    ),
    *(b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x01\0\0\0", b"\xff\xff\xff\x7f", b"\0\0\0\x80"),
    *(b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd", b"ARROW1\0\0"),
)

_OTHER_TYPES = (
    "",
    "application/json; charset=utf-8",
    'APPLICATION/JSON;charset="UTF8"',
    "application/json; charset=utf-16",
    "text/csv; header=absent",
    "application/vnd.apache.arrow.file",
    "application/octet-stream",
    "*/*",
    ";;;",
)


@dataclass(frozen=True)
class Case:
    content_type: str
    body: bytes
    kind: KeyKind


class Maker:
    """Cases determined by a seed; later ones reuse parts of earlier ones."""

    def __init__(self, seed: str) -> None:
        self.random = Random(seed)
        self._earlier: list[bytes] = [b"{}"]

    def case(self) -> Case:
        random = self.random
        kind: KeyKind = "string" if random.random() < 0.6 else "integer"
        written = random.choice(FORMATS)
        body = _WRITERS[written](self, kind)
        content_type = written
        chance = random.random()
        if chance < 0.02:
            content_type = random.choice((*FORMATS, *_OTHER_TYPES))
        if len(body) < 4096:
            self._earlier.append(body)
            del self._earlier[:-20]
        if chance > 0.4:
            for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
                body = self.damaged(body)
        return Case(content_type, body, kind)

    def damaged(self, body: bytes) -> bytes:
        """The body with one change, usually an error."""
        random = self.random
        place = random.randrange(len(body) + 1)
        end = min(len(body), place + random.choice((1, 1, 2, 4, 8, 64)))
        match random.randrange(7):
            case 0:
                return body[:place] + bytes([random.randrange(256)]) + body[place + 1 :]
            case 1 if place < len(body):
                flipped = body[place] ^ (1 << random.randrange(8))
                return body[:place] + bytes([flipped]) + body[place + 1 :]
            case 2:
                return body[:place] + body[end:]
            case 3:
                return body[:end] + body[place:end] * random.choice((1, 1, 2, 30)) + body[end:]
            case 4:
                return body[:place]
            case 5:
                other = random.choice(self._earlier)
                return body[:place] + other[random.randrange(len(other) + 1) :]
            case _:
                token = random.choice(_TOKENS)
                if len(token) > 100 and random.random() < 0.8:  # they take most of the time
                    token = random.choice(_TOKENS[:50])
                return body[:place] + token + body[end if random.random() < 0.5 else place :]

    def key(self, kind: KeyKind) -> Any:
        chance = self.random.random()
        if chance < 0.01:
            return self.random.choice(_ODD)
        if chance < 0.02:
            return self.random.choice(_NUMBERS if kind == "string" else _TEXTS)
        return self.random.choice(_TEXTS if kind == "string" else _NUMBERS)

    def keys(self, kind: KeyKind, count: int) -> list[Any]:
        return [self.key(kind) for _ in range(count)]

    def json(self, kind: KeyKind) -> bytes:
        random = self.random
        members = []
        for name in random.sample(("insert", "delete", "vertices"), random.randrange(4)):
            count = random.randrange(5)
            value: Any = self.keys(kind, count)
            if name != "vertices":
                if random.random() < 0.3:
                    value = {"source": value, "target": self.keys(kind, count)}
                else:
                    value = [self.keys(kind, 2) for _ in range(count)]
            members.append(f'"{name}": {json.dumps(value, ensure_ascii=random.random() < 0.5)}')
        if members and random.random() < 0.02:
            members.append(random.choice(members))
        space = random.choice(("", "", " ", "\n"))
        text = "{" + space + f",{space}".join(members) + space + "}"
        return text.encode("utf-8", "surrogatepass")

    def lines(self, kind: KeyKind) -> bytes:
        rows = []
        for _ in range(self.random.randrange(5)):
            row = {"source": self.key(kind), "target": self.key(kind)}
            if self.random.random() < 0.4:
                row["operation"] = self._operation()
            rows.append(json.dumps(row, ensure_ascii=self.random.random() < 0.5))
        return self.random.choice(("\n", "\n", "\r\n")).join(rows).encode("utf-8", "surrogatepass")

    def csv(self, kind: KeyKind) -> bytes:
        operation = self.random.random() < 0.4
        rows = ["source,target" + ",operation" * operation]
        for _ in range(self.random.randrange(5)):
            cells = [str(key) for key in self.keys(kind, 2)]
            if operation:
                cells.append(str(self._operation()))
            quoted = ['"' + cell.replace('"', '""') + '"' for cell in cells]
            rows.append(",".join(quoted if self.random.random() < 0.5 else cells))
        return "\n".join(rows).encode("utf-8", "surrogatepass")

    def arrow(self, kind: KeyKind) -> bytes:
        random = self.random
        count = random.randrange(5)
        columns: dict[str, Any] = {name: self.keys(kind, count) for name in ("source", "target")}
        if random.random() < 0.4:
            columns["operation"] = [self._operation() for _ in range(count)]
        try:
            arrays = {name: pa.array(values) for name, values in columns.items()}
            if random.random() < 0.2:
                arrays["source"] = arrays["source"].dictionary_encode()
            batch = pa.record_batch(arrays)
            sink = pa.BufferOutputStream()
            options = pa.ipc.IpcWriteOptions(compression=random.choice((None, None, "zstd", "lz4")))
            with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
                for _ in range(random.choice((1, 1, 0, 2))):
                    writer.write_batch(batch)
        except (pa.ArrowException, UnicodeEncodeError, OverflowError):
            return b""  # keys that cannot be in one column
        body: bytes = sink.getvalue().to_pybytes()
        return body

    def _operation(self) -> Any:
        if self.random.random() < 0.02:
            return self.random.choice((None, "Delete", "", "upsert", 1))
        return self.random.choice(("insert", "delete"))


_WRITERS = {JSON: Maker.json, LINES: Maker.lines, CSV: Maker.csv, ARROW: Maker.arrow}
