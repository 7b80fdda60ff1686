"""Contract: vertex programs on a graph of which a window of in-lists is in memory at a time.

Vertices pull: a window has the in-lists of an interval of vertices, and each of these gathers from
those of its in-neighbours that changed since the window was last processed. Steps number this: in
a synchronous run supersteps, in an asynchronous one windows as they are processed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from liverank_gpu.operations.device import Array
from liverank_gpu.operations.programs import ProgramGraph, VertexProgram


@dataclass(slots=True)
class WindowState:
    """A program that runs window by window.

    values, new_values  dtype[n]: the values that are read, and written. One array if values change
                        in place; else two, which are equal before each superstep unless every
                        vertex is active
    steps, new_steps    int32[n]: the last step in which a vertex became active, read and written,
                        as values are; -1 if it never did. Two arrays change places after each
                        superstep and are not copied: what is read has the steps of the superstep
                        before, and of every other one. Empty if every vertex is active
    blocks              int32[b]: the last step in which one of the vertices v with this v >> shift
                        became active
    superstep           from 0 on
    aggregate           that of the values before the superstep
    """

    values: Array
    new_values: Array
    steps: Array
    new_steps: Array
    blocks: Array
    shift: int
    superstep: int = 0
    aggregate: float = 0.0


class Gathered(NamedTuple):
    """What a window did.

    active    vertices that became active
    messages  messages that were sent
    """

    active: int
    messages: int


class ProgramWindowOperations(ABC):
    """Vertex programs in windows: see liverank_gpu.operations.programs."""

    @abstractmethod
    def gather_window(
        self,
        program: VertexProgram,
        parameters: Mapping[str, float],
        graph: ProgramGraph,
        state: WindowState,
        since: int,
        now: int,
    ) -> Gathered:
        """The vertices of `graph.in_rows` gather from those of their in-neighbours that became
        active in step `since` or later, or from all if every vertex is active. Those that receive
        something apply it, and where `scatter` is true become active in step `now`.

        since  if values do not change in place, the step of the superstep before
        graph  its view has the in-lists of the window. Where `both` is true, vertices that became
               active also send against their in-edges, which changes values in place
        """
