"""Keys of vertices, as clients name them, and the dense ids that the engine numbers them with."""

from service.vertex_keys.kinds import ARROW_TYPES, KeyKind, key_from_text
from service.vertex_keys.table import KeyCapture, KeyTable

__all__ = ["ARROW_TYPES", "KeyCapture", "KeyKind", "KeyTable", "key_from_text"]
