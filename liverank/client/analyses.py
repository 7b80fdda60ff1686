"""Analyses: programs that a server runs on one version of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from liverank.choices import Key, Mode, Order, Program, ValuesOf
from liverank.client.call import (
    Call,
    member_of,
    operation,
    path_of,
    read,
    read_member,
    remove,
    write,
)
from liverank.client.exports import Format, export, export_call
from liverank.client.responses import AnalysisInfo, TopValues, ValueOfVertex
from liverank.options import LimitKeywords, given


class AnalysisCalls:
    """A part of Calls."""

    @operation
    def start_analysis(
        self,
        graph: str,
        program: Program | str,
        *,
        parameters: Mapping[str, Key | float] | None = None,
        fresh: bool = False,
        mode: Mode = "synchronous",
        limits: LimitKeywords | None = None,
        save_every: int | None = None,
    ) -> Call[str]:
        """Runs a program on the graph as it is once all batches sent before are applied; returns
        the id of the analysis.

        parameters  by name; others have their defaults. `source` is the key of a vertex
        fresh       whether it runs again after each published version
        mode        `asynchronous`: values change in place; of monotone programs
        limits      of each run: `supersteps`, `seconds`, `memory` in bytes
        save_every  supersteps of a vertex program after which its state is saved, to go on from
                    after a restart; 0: never; None: about every 30 seconds that it works
        """
        mode_of = None if mode == "synchronous" else mode
        more = given(mode=mode_of, limits=limits, save_every=save_every)
        body = {"parameters": dict(parameters or {}), "fresh": fresh, **more}
        call = write("POST", str, body, "graphs", graph, "analyses", program, repeatable=False)
        return replace(call, parse=member_of("id", str))

    @operation
    def analyses(self, graph: str) -> Call[list[AnalysisInfo]]:
        """All analyses of a graph, in the order of their requests."""
        return read_member("analyses", list[AnalysisInfo], "graphs", graph, "analyses")

    @operation
    def analysis(
        self,
        graph: str,
        identity: str,
        *,
        wait: float | None = None,
        min_version: int | None = None,
    ) -> Call[AnalysisInfo]:
        """The state and the progress of an analysis.

        wait         seconds to wait until it is neither queued nor running, up to 300; None: 0
        min_version  wait also until its answer is of this version or a later one
        """
        waited = {"wait": wait, "min_version": min_version}
        return read(AnalysisInfo, "graphs", graph, "analyses", identity, **waited)

    @operation
    def drop_analysis(self, graph: str, identity: str) -> Call[None]:
        """Cancels an analysis that is queued or runs; removes one that has ended."""
        return remove("graphs", graph, "analyses", identity)

    @operation
    def value(self, graph: str, identity: str, vertex: Key) -> Call[ValueOfVertex]:
        """The value of one vertex in the answer; of `support` and `trussness` the largest of its
        edges, of `dn-graphs` the vertex that names its DN-graph, of `paths` the distance. Raises
        ServerError 404 for an unknown vertex, 409 if there is no answer.
        """
        return read(ValueOfVertex, "graphs", graph, "analyses", identity, "values", vertex)

    @operation
    def top_values(
        self,
        graph: str,
        identity: str,
        k: int = 10,
        order: Order = "largest",
        *,
        of: ValuesOf | None = None,
    ) -> Call[TopValues]:
        """The vertices of the largest or the smallest values; of `components` and `labels` the
        groups by their numbers of vertices, of `dn-graphs` the DN-graphs by λ, of `support` and
        `trussness` the edges. Raises ServerError 409 if there is no answer.

        of  `edges`: those of edges, of a user's program that has both; None: those of vertices
        """
        which = {"k": k, "order": order, "of": of}
        return read(TopValues, "graphs", graph, "analyses", identity, "top", **which)

    @export
    def export_values(
        self,
        graph: str,
        identity: str,
        *,
        of: ValuesOf | None = None,
        format: Format = "arrow",  # noqa: A002
    ) -> Call[None]:
        """The values of all vertices, all edges, or those of DN-graphs, streamed: see Export.

        of  see top_values
        """
        return export_call(path_of("graphs", graph, "analyses", identity, "export"), format, of=of)
