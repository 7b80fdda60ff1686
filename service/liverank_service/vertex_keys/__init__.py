"""Vertex keys, which clients use, and the dense ids that the engine uses instead."""

from liverank.choices import KeyKind
from liverank_service.vertex_keys.kinds import (
    ARROW_TYPES,
    arrow_numbers,
    key_from_text,
    keys_from_texts,
)
from liverank_service.vertex_keys.table import KeyTable
from liverank_service.vertex_keys.vertices import VertexCapture, VertexKeys, VertexTable

__all__ = [
    "ARROW_TYPES",
    "KeyKind",
    "KeyTable",
    "VertexCapture",
    "VertexKeys",
    "VertexTable",
    "arrow_numbers",
    "key_from_text",
    "keys_from_texts",
]
