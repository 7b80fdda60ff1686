"""Vertex keys, which clients use, and the dense ids that the engine uses instead."""

from service.vertex_keys.kinds import ARROW_TYPES, KeyKind, key_from_text, keys_from_texts
from service.vertex_keys.table import KeyCapture, KeyTable

__all__ = [
    "ARROW_TYPES",
    "KeyCapture",
    "KeyKind",
    "KeyTable",
    "key_from_text",
    "keys_from_texts",
]
