"""The tools: what a language model may ask, and what it gets.

The docstring of a tool and the descriptions of its arguments are what the model reads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from inspect import getdoc
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from liverank.client import AsyncClient, PersonalizedQuery
from liverank.client.responses import RankedVertex
from liverank.errors import LiverankError

MAX_PLACES = 100
MAX_VERTICES = 100
MAX_EDGES = 1000

# Arguments

Vertex = StrictStr | StrictInt
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seeds = (
    Annotated[list[Vertex], Field(min_length=1, max_length=MAX_VERTICES)]
    | Annotated[dict[str, Weight], Field(min_length=1, max_length=MAX_VERTICES)]
)
Graph = Annotated[
    str | None, Field(description="Name of the graph. Leave it out for this server's usual graph.")
]
Among = Annotated[
    str | None,
    Field(
        description="Name of a set of vertices: only its members are returned, with their ranks in "
        "the whole graph. Leave it out for all vertices."
    ),
]
View = Annotated[
    str | None,
    Field(
        description="Name of a view of the graph: its ranks, as seen from some vertices or topic, "
        "in place of those of the whole graph. Leave it out for these."
    ),
]
Count = Annotated[int, Field(ge=1, le=MAX_PLACES, description="Number of vertices to return.")]


class Edge(BaseModel):
    """An edge; `weight` only in a weighted graph, where it is 1 if it is left out."""

    model_config = ConfigDict(extra="forbid")

    source: Vertex
    target: Vertex
    weight: Weight | None = None


# Answers


class Place(BaseModel):
    vertex: str | int
    rank: float


class Answer(BaseModel):
    graph: str
    version: int = Field(description="Number of batches of changes applied to the graph so far.")
    error_bound: float = Field(
        description="Proven bound: the differences between the ranks and the exact ones, summed "
        "over all vertices, are at most this. No single rank is off by more."
    )


class TopAnswer(Answer):
    ranks: list[Place] = Field(description="Highest rank first.")
    proven: int = Field(description="How many of the first places are proven to be correct.")


class RelatedAnswer(TopAnswer):
    ignored: list[str | int] = Field(description="Seeds that the graph does not have.")


class RankAnswer(Answer):
    ranks: list[Place] = Field(description="In the order of the request.")
    unknown: list[str | int] = Field(description="Vertices that the graph does not have.")


class AddedAnswer(Answer):
    inserted: int = Field(description="Edges that are new.")
    already_present: int = Field(description="Edges that the graph already had.")
    reweighted: int = Field(description="Edges whose weight changed.")
    new_vertices: int


class Tools:
    """The tools over one server."""

    def __init__(self, connect: Callable[[Mapping[str, str] | None], AsyncClient], graph: str):
        """connect  the client for a request with these headers; None: not over HTTP
        graph    the graph of calls that name none
        """
        self._connect = connect
        self._graph = graph

    def listed(self, allow_writes: bool) -> list[Tool]:
        """The tools as the SDK's server takes them."""
        reading = [_tool(one, read_only=True) for one in (self.related, self.top, self.rank)]
        return [*reading, _tool(self.add_edges, read_only=False)] if allow_writes else reading

    async def related(
        self,
        context: Context[Any, Any],
        seeds: Annotated[
            Seeds,
            Field(
                description="Where to start: vertices, which then count equally, or an object that "
                "has a weight for each vertex, such as the scores of a search. Only the "
                "proportions of weights count."
            ),
        ],
        k: Count = 10,
        graph: Graph = None,
        among: Among = None,
        within: Annotated[
            str | None,
            Field(
                description="Name of a set of vertices, which has all seeds: walk only between "
                "these vertices, as if the graph had no others."
            ),
        ] = None,
        damping: Annotated[
            float | None,
            Field(
                gt=0,
                lt=1,
                description="How far to look: 0.5 stays within two or three steps of the seeds, "
                "0.85 goes further. Leave it out for the graph's own.",
            ),
        ] = None,
        include_seeds: Annotated[
            bool, Field(description="Whether seeds themselves may be among the results.")
        ] = False,
        ignore_unknown: Annotated[
            bool,
            Field(
                description="Leave out seeds that the graph does not have, and name them in "
                "`ignored`, instead of failing."
            ),
        ] = False,
    ) -> RelatedAnswer:
        """Find what is most closely connected to one or more vertices of the graph.

        Ranks all vertices by personalized PageRank from the seeds: those that many short paths
        from the seeds lead to come first, also without an edge between them. Use it to find
        relevant context for things that you know already. Vertices are named by their exact keys.
        """
        weights = seeds if isinstance(seeds, dict) else dict.fromkeys(seeds, 1.0)
        names = {str(seed) for seed in weights}
        query = PersonalizedQuery(
            {seed: float(weight) for seed, weight in weights.items()},
            k=k if include_seeds else k + len(weights),
            unknown="ignore" if ignore_unknown else "error",
            damping=damping,
            among=among,
            within=within,
        )
        async with self._client(context) as client:
            found = await client.personalized_many(self._name(graph), [query])
        (answer,) = found.answers
        kept = [include_seeds or str(place.vertex) not in names for place in answer.ranks]
        places = [place for place, keep in zip(answer.ranks, kept, strict=True) if keep]
        return RelatedAnswer(
            graph=self._name(graph),
            version=found.version,
            error_bound=answer.error_bound,
            ranks=_places(places[:k]),
            proven=min(k, sum(kept[: answer.settled])),
            ignored=answer.ignored,
        )

    async def top(
        self,
        context: Context[Any, Any],
        k: Count = 10,
        graph: Graph = None,
        among: Among = None,
        view: View = None,
    ) -> TopAnswer:
        """List the most important vertices of the graph: those of highest PageRank.

        Use it for an overview of a graph, or to see what keys of vertices look like.
        """
        async with self._client(context) as client:
            found = await client.top(self._name(graph), k, among=among, view=view)
        return TopAnswer(
            graph=self._name(graph),
            version=found.version,
            error_bound=found.error_bound,
            ranks=_places(found.ranks),
            proven=found.settled,
        )

    async def rank(
        self,
        context: Context[Any, Any],
        vertices: Annotated[
            list[Vertex],
            Field(min_length=1, max_length=MAX_VERTICES, description="Exact keys of vertices."),
        ],
        graph: Graph = None,
        view: View = None,
    ) -> RankAnswer:
        """Look up the PageRank of vertices: how important each is in the whole graph.

        The ranks of all vertices sum to 1. Vertices that the graph does not have are in `unknown`.
        """
        async with self._client(context) as client:
            found = await client.ranks(self._name(graph), vertices, view=view)
        ranked = list(zip(vertices, found.ranks, strict=True))
        return RankAnswer(
            graph=self._name(graph),
            version=found.version,
            error_bound=found.error_bound,
            ranks=[Place(vertex=key, rank=rank) for key, rank in ranked if rank is not None],
            unknown=[key for key, rank in ranked if rank is None],
        )

    async def add_edges(
        self,
        context: Context[Any, Any],
        edges: Annotated[
            list[Edge],
            Field(
                min_length=1,
                max_length=MAX_EDGES,
                description="Edges from `source` to `target`; vertices that are new are added. A "
                "`weight` only in a weighted graph.",
            ),
        ],
        graph: Graph = None,
    ) -> AddedAnswer:
        """Add edges to the graph, all or none, and rank it again.

        The next calls of the other tools see them. An edge that is present stays once; in a
        weighted graph it gets the new weight.
        """
        weighted = any(edge.weight is not None for edge in edges)
        pairs = [
            (one.source, one.target, 1.0 if one.weight is None else one.weight)
            if weighted
            else (one.source, one.target)
            for one in edges
        ]
        async with self._client(context) as client:
            receipt = await client.send(self._name(graph), insert=pairs)
        return AddedAnswer(
            graph=self._name(graph),
            version=receipt.version,
            error_bound=receipt.error_bound,
            inserted=receipt.inserted,
            already_present=receipt.already_present,
            reweighted=receipt.reweighted,
            new_vertices=receipt.new_vertices,
        )

    def _name(self, graph: str | None) -> str:
        return self._graph if graph is None else graph

    @asynccontextmanager
    async def _client(self, context: Context[Any, Any]) -> AsyncIterator[AsyncClient]:
        """The client of a call; its errors become errors that the model can read."""
        client = self._connect(context.headers)
        try:
            yield client
        except LiverankError as error:
            raise ToolError(str(error)) from error


def _places(ranks: list[RankedVertex]) -> list[Place]:
    return [Place(vertex=place.vertex, rank=place.rank) for place in ranks]


def _tool(function: Callable[..., Any], read_only: bool) -> Tool:
    """Refuses arguments that the function does not have, which the SDK would drop silently."""
    hints = ToolAnnotations(
        read_only_hint=read_only,
        destructive_hint=False,
        idempotent_hint=True,
        open_world_hint=False,
    )
    tool = Tool.from_function(function, description=getdoc(function), annotations=hints)
    arguments = tool.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    tool.parameters = arguments.model_json_schema(by_alias=True)
    return tool
