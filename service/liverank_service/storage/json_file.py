"""JSON files of a data directory, validated field by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from liverank_service.errors import FileDamaged, StorageFailed
from liverank_service.storage.files import storage_errors

Model = TypeVar("Model", bound=BaseModel)


def read_validated(
    model: type[Model], formats: tuple[int, ...], path: Path, what: str
) -> Model | None:
    """The file at `path`; None if it is missing. Raises as `validated`, and StorageFailed if it
    cannot be read.
    """
    with storage_errors(path):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
    return validated(model, formats, path, content, what)


def validated(
    model: type[Model], formats: tuple[int, ...], path: Path, content: bytes, what: str
) -> Model:
    """The content of the file at `path`, which has a member `format`.

    formats  that can be read
    what     the file is, for messages

    Raises FileDamaged, which names the first wrong field, and StorageFailed for another format.
    """
    try:
        found = json.loads(content)["format"]
    except (ValueError, TypeError, KeyError) as error:
        raise FileDamaged(path, f"is not {what}: {error!r}") from error
    if isinstance(found, int) and found not in formats:
        expected = " or ".join(map(str, formats))
        raise StorageFailed(path, f"has format {found}, expected {expected}")
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]
        ).removeprefix(".")
        given = repr(first["input"])[:100]
        raise FileDamaged(path, f"is not {what}: {place} {given}: {first['msg']}") from error
