"""Values as records, and what a later value differs in: exactly, to the last bit.

A float is written in hexadecimal. An array is all of its numbers if they are few, else its SHA-256,
and what says where a difference begins: checksums of 16 blocks, and four numbers. A list of many
items is its length, the first item, and a checksum of each. Members of records that are added later
are no difference; times are left out.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

FEW_BYTES, WHOLE_BYTES, BLOCKS, FEW_ITEMS = 256, 4096, 16, 4
_BLOCK_DIGITS = 4


def _is_time(name: str) -> bool:
    return name == "created" or name.endswith("seconds")


def plain(value: Any) -> Any:
    """The value with numbers, texts, lists, dicts and arrays alone."""
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value)
    if isinstance(value, float | np.floating):
        return float(value).hex()
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if value is None or isinstance(value, str):
        return value
    if dataclasses.is_dataclass(value):
        value = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items() if not _is_time(str(key))}
    return [plain(each) for each in value]


def recorded(value: Any, few_bytes: int = FEW_BYTES) -> Any:
    """What is kept of a plain value, as JSON. few_bytes: arrays of up to as many are kept whole."""
    if isinstance(value, np.ndarray):
        return _recorded_array(value, few_bytes)
    if isinstance(value, dict):
        return {key: recorded(each) for key, each in value.items()}
    if isinstance(value, list):
        if len(value) <= FEW_ITEMS:
            return [recorded(each) for each in value]
        first = [recorded(each) for each in value[:1]]
        return {"items": len(value), "first": first, "each": "".join(map(_checksum, value))}
    return value


def _checksum(value: Any) -> str:
    return f"{crc32(json.dumps(recorded(value), sort_keys=True).encode()):08x}"


def _recorded_array(values: NDArray[Any], few_bytes: int) -> dict[str, Any]:
    record: dict[str, Any] = {"dtype": values.dtype.str, "shape": list(values.shape)}
    if values.nbytes <= few_bytes:
        return record | {"all": _encoded(values)}
    flat = values.ravel()
    return record | {
        "sha256": _digest(values),
        "blocks": "".join(map(_block_checksum, np.array_split(flat, BLOCKS))),
        "samples": _encoded(flat[_sampled(flat.size)]),
    }


def _digest(values: NDArray[Any]) -> str:
    return sha256(values.tobytes()).hexdigest()[:16]


def _block_checksum(values: NDArray[Any]) -> str:
    return f"{crc32(values.tobytes()):08x}"[:_BLOCK_DIGITS]


def _sampled(size: int) -> NDArray[np.int64]:
    return np.linspace(0, size - 1, BLOCKS).astype(np.int64)[::5]


def _encoded(values: NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode()


def _decoded(text: str, dtype: str) -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(text), np.dtype(dtype))


def difference(record: Any, value: Any, at: str = "") -> str | None:
    """Where a plain value differs first from what was recorded; None if it does not."""
    if isinstance(value, np.ndarray):
        return _difference_of_arrays(record, value, at)
    if isinstance(value, dict):
        if not isinstance(record, dict):
            return f"{at}: is a record now, was {record!r}"
        for key, each in record.items():
            if key not in value:
                return f"{at}.{key}: is gone"
            found = difference(each, value[key], f"{at}.{key}")
            if found:
                return found
        return None
    if isinstance(value, list):
        return _difference_of_lists(record, value, at)
    if record == value and type(record) is type(value):
        return None
    return f"{at}: was {_shown(record)}, is {_shown(value)}{_ulps_of(record, value)}"


def _difference_of_lists(record: Any, value: list[Any], at: str) -> str | None:
    if isinstance(record, list):
        if len(record) != len(value):
            return f"{at}: was {len(record)} items, is {len(value)}"
        pairs = zip(record, value, strict=True)
        found = (difference(old, new, f"{at}[{place}]") for place, (old, new) in enumerate(pairs))
        return next((each for each in found if each), None)
    if not isinstance(record, dict) or "each" not in record:
        return f"{at}: is a list of {len(value)} items, was {record!r}"
    for place, new in enumerate(value[: record["items"]]):
        if _checksum(new) != record["each"][8 * place : 8 * place + 8]:
            if place < len(record["first"]):
                return difference(record["first"][place], new, f"{at}[{place}]")
            return f"{at}[{place}]: was another one, is {_shown(new)}"
    if len(value) != record["items"]:
        return f"{at}: was {record['items']} items, is {len(value)}; those of both are equal"
    return None


def _difference_of_arrays(record: Any, values: NDArray[Any], at: str) -> str | None:
    if not isinstance(record, dict) or "dtype" not in record:
        return f"{at}: is an array now, was {record!r}"
    stated = (record["dtype"], record["shape"])
    if stated != (values.dtype.str, list(values.shape)):
        return f"{at}: was {stated[0]}{stated[1]}, is {values.dtype.str}{list(values.shape)}"
    if record.get("sha256") == _digest(values) or record.get("all") == _encoded(values):
        return None
    flat = values.ravel()
    if "all" in record:
        known, places, where = _decoded(record["all"], record["dtype"]), np.arange(flat.size), ""
    else:
        known, places = _decoded(record["samples"], record["dtype"]), _sampled(flat.size)
        parts = np.array_split(np.arange(flat.size), BLOCKS)
        changed = [
            f"{part[0]}…{part[-1]}"
            for block, part in enumerate(parts)
            if _block_checksum(flat[part])
            != record["blocks"][_BLOCK_DIGITS * block : _BLOCK_DIGITS * (block + 1)]
        ]
        where = f" of {len(changed)} of {BLOCKS} blocks that differ, the first {changed[0]};"
    differ = np.flatnonzero(_bits(known) != _bits(flat[places]))
    if len(differ) == 0:
        return f"{at}:{where} no sample differs"
    first = differ[0]
    old, new = known[first].item(), flat[places[first]].item()
    text = f"{at}:{where} {len(differ)} of {len(known)} known values differ, first at "
    text += f"{places[first]}: was {old!r}, is {new!r}"
    if flat.dtype.kind == "f":
        apart = [_ulps(known[place], flat[places[place]]) for place in differ]
        text += f", {apart[0]} ulps apart; at most {max(apart)} ulps"
    return text


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def _ulps(one: Any, other: Any) -> int:
    """How many numbers of this type lie between two, and 1."""
    kind = f"i{one.dtype.itemsize}"
    numbers = [int(np.array([each]).view(kind)[0]) for each in (one, other)]
    least = -(1 << (8 * int(one.dtype.itemsize) - 1))
    first, second = (each if each >= 0 else least - each for each in numbers)
    return abs(first - second)


def _ulps_of(record: Any, value: Any) -> str:
    if not (_is_float(record) and _is_float(value)):
        return ""
    return f", {_ulps(np.float64(float.fromhex(record)), np.float64(float.fromhex(value)))} ulps"


def _is_float(value: Any) -> bool:
    return (
        isinstance(value, str) and re.fullmatch(r"-?0x[01]\.[0-9a-f]+p[+-]\d+", value) is not None
    )


def _shown(value: Any) -> str:
    return repr(float.fromhex(value)) if _is_float(value) else repr(value)[:300]
