"""Instead of a language model and of a model of embeddings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
from corpus import SENTENCE

DIMENSIONS = 512


def triples(text: str) -> list[tuple[str, str, str]]:
    """(subject, predicate, object) of the sentences in a text."""
    return [(found[0], found[1], found[2]) for found in SENTENCE.findall(text)]


def embedding(texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """float32[texts, DIMENSIONS] of length 1: how often each word occurs, by a hash of it."""
    vectors = np.zeros((len(texts), DIMENSIONS), np.float32)
    for row, text in enumerate(texts):
        for word in re.findall(r"\w+", text.lower()):
            vectors[row, crc32(word.encode()) % DIMENSIONS] += 1.0
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-9)
