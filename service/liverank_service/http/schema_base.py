"""What the models of all bodies have in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


def like(example: dict[str, Any]) -> ConfigDict:
    """The configuration of a body with an example."""
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [example]})
