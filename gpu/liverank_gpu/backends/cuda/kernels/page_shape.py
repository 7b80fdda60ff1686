"""The sizes of pages.cu, for which it is compiled."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PageShape:
    """
    tile_bits   a tile has 2^tile_bits vertices, each with 8 bytes of shared memory; at most 15
    page_bytes  of a page, a power of two
    threads     of a block that adds pages
    blocks      of these that are resident on a multiprocessor
    """

    tile_bits: int
    page_bytes: int
    threads: int
    blocks: int

    @property
    def most_changed(self) -> int:
        """Changes of a page in one round of `rewrite_pages`."""
        return self.page_bytes // 4

    @property
    def key_bits(self) -> int:
        """Of a key below its tile: a source, and the place of the target in the tile."""
        return self.tile_bits + 31

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a tile."""
        return 8 << self.tile_bits

    @property
    def constants(self) -> dict[str, int]:
        """What the kernels must know, by name."""
        return {
            "TILE_BITS": self.tile_bits,
            "PAGE_BYTES": self.page_bytes,
            "PAGE_THREADS": self.threads,
            "PAGE_BLOCKS": self.blocks,
            "MOST_CHANGED": self.most_changed,
        }


PAGE_SHAPE = PageShape(tile_bits=14, page_bytes=4096, threads=1024, blocks=1)
"""On an H200 tiles of 8,192 vertices were as fast on R-MAT 24, slower by 2 % on R-MAT 26."""

_STATIC_BYTES = 1024
"""Shared memory of `add_pages` beside a tile, at most, and what a device keeps of each block."""


def page_shape(shared_bytes: int) -> PageShape | None:
    """The shape on a device; None if a block has too little shared memory.

    shared_bytes  that a block may ask for
    """
    return PAGE_SHAPE if shared_bytes >= PAGE_SHAPE.shared_bytes + _STATIC_BYTES else None
