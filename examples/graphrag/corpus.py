"""Passages about people that no one has heard of, and questions about them."""

from __future__ import annotations

import random
import re

_FIRST = ("Ada", "Alan", "Barbara", "Claude", "Donald", "Edsger", "Grace", "Hedy", "John", "Leslie")
_LAST = ("Abel", "Bolyai", "Cantor", "Euler", "Fermat", "Galois", "Hilbert", "Ito", "Jacobi", "Li")
_NAMES = [f"{first} {last}{number}" for first in _FIRST for last in _LAST for number in range(20)]
_PREDICATES = ("founded", "visited", "taught", "wrote", "married", "hired", "painted", "moved")

SENTENCE = re.compile(rf"(\w+ \w+\d+) ({'|'.join(_PREDICATES)}) (\w+ \w+\d+)\.")


def passages(count: int) -> list[str]:
    """Three or four sentences each, most of them about people of one circle."""
    generator = random.Random(7)
    found = []
    for number in range(count):
        circle = _NAMES[number * 11 % len(_NAMES) :][:12] or _NAMES
        sentences = []
        for _ in range(generator.choice((3, 4))):
            one, other = generator.choice(circle), generator.choice(_NAMES)
            if one != other:
                sentences.append(f"{one} {generator.choice(_PREDICATES)} {other}.")
        found.append(f"Passage {number}. " + " ".join(sentences))
    return found


def questions(count: int) -> list[str]:
    generator = random.Random(8)
    return [
        f"What did {generator.choice(_NAMES)} do with {generator.choice(_NAMES)}?"
        for _ in range(count)
    ]
