"""fast-graphrag with its personalized PageRank asked of a liverank server.

    python fast_graphrag_ranks.py --passages 3000

fast-graphrag ranks entities by a storage of graphs, which is igraph. `LiverankStorage` is the same
with its ranks from liverank. The first 20 entities of each question are those that igraph has,
which is checked; the graph grows between the questions, while another task keeps asking.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import absent  # noqa: F401  before fast_graphrag
import models
import numpy as np
from corpus import passages, questions
from fast_graphrag import GraphRAG, QueryParam
from fast_graphrag._llm._base import BaseEmbeddingService, BaseLLMService
from fast_graphrag._models import TQueryEntities
from fast_graphrag._storage._base import BaseVectorStorage
from fast_graphrag._storage._gdb_igraph import IGraphStorage, IGraphStorageConfig
from fast_graphrag._types import TEntity, TGraph, TRelation
from mirror import Mirror, same_places
from scipy.sparse import csr_matrix

from liverank import AsyncClient, Client

DAMPING = 0.85


@dataclass
class Language(BaseLLMService):
    """Reads sentences by a regular expression."""

    model: str = "none"

    async def send_message(self, prompt: str, response_model: Any = None, **_: Any) -> Any:
        if response_model is TGraph:
            found = models.triples(prompt)
            names = dict.fromkeys(name for one, _, other in found for name in (one, other))
            entities = [TEntity(name.upper(), "PERSON", "") for name in names]
            relations = [
                TRelation(one.upper(), other.upper(), f"{one} {what} {other}")
                for one, what, other in found
            ]
            return TGraph(entities, relations), []
        if response_model is TQueryEntities:
            named = [name.upper() for name in prompt_names(prompt)]
            return TQueryEntities(named=named, generic=[]), []
        raise NotImplementedError(f"no answer of the type {response_model}")


def prompt_names(prompt: str) -> list[str]:
    """The two names in a question of the corpus."""
    question = prompt[prompt.rindex("What did ") :]
    one, _, other = question.removeprefix("What did ").partition(" do with ")
    return [one, other[: other.index("?")]]


@dataclass
class Words(BaseEmbeddingService):
    embedding_dim: int = models.DIMENSIONS

    async def encode(self, texts: list[str], **_: Any) -> Any:
        return models.embedding(texts)


@dataclass
class Vectors(BaseVectorStorage[Any, Any]):
    """All embeddings in one matrix, which the library has in hnswlib."""

    config: Any = None
    _all: Any = field(default_factory=lambda: np.zeros((0, models.DIMENSIONS), np.float32))

    @property
    def size(self) -> int:
        return len(self._all)

    async def upsert(self, ids: Iterable[int], embeddings: Iterable[Any]) -> None:
        places = np.array(list(ids))
        grown = np.zeros((max(self.size, places.max() + 1), models.DIMENSIONS), np.float32)
        grown[: self.size] = self._all
        grown[places] = np.array(list(embeddings))
        self._all = grown

    async def get_knn(self, embeddings: Iterable[Any], top_k: int) -> Any:
        scores = 0.5 + 0.5 * (np.array(list(embeddings)) @ self._all.T)
        best = np.argsort(-scores, axis=1)[:, :top_k]
        return best, np.take_along_axis(scores, best, axis=1)

    async def score_all(
        self, embeddings: Any, top_k: int = 1, threshold: float | None = None
    ) -> Any:
        best, scores = await self.get_knn(embeddings, top_k)
        scores = np.where(scores < (threshold or 0.0), 0.0, scores)
        rows = np.repeat(np.arange(len(best)), best.shape[1])
        return csr_matrix((scores.ravel(), (rows, best.ravel())), shape=(len(best), self.size))


@dataclass
class LiverankStorage(IGraphStorage[TEntity, TRelation, str]):
    """The library's storage, with ranks from liverank."""

    mirror: Mirror | None = None
    checked: int = 0

    async def _insert_done(self) -> None:
        await super()._insert_done()
        await asyncio.to_thread(self.mirror.sync, self._graph)

    async def score_nodes(self, initial_weights: csr_matrix | None) -> csr_matrix:
        expected = (await super().score_nodes(initial_weights)).toarray()[0]
        names = self._graph.vs["name"]
        reset = np.ones(len(names)) if initial_weights is None else initial_weights.toarray()[0]
        found = await asyncio.to_thread(self.mirror.ranks, names, reset, len(names), DAMPING)
        order = np.argsort(-expected, kind="stable")
        same_places(found, {names[place]: float(expected[place]) for place in order})
        self.checked += 1
        return csr_matrix([[found[name] for name in names]], dtype=np.float32)


async def run(texts: list[str], asked: list[str], folder: str, client: Client) -> None:
    storage = LiverankStorage(
        config=IGraphStorageConfig(TEntity, TRelation, DAMPING),
        mirror=Mirror(client, "fast-graphrag", DAMPING),
    )
    config = GraphRAG.Config(
        llm_service=Language(),
        embedding_service=Words(),
        graph_storage=storage,
        entity_storage=Vectors(),
    )
    rag = GraphRAG(folder, "people", "\n".join(asked[:3]), ["person"], config=config)
    half = len(texts) // 2
    await rag.async_insert(texts[:half], show_progress=False)
    await answered(rag, asked)
    print(f"{storage.checked} questions: the first 20 entities are those of igraph")

    # the graph grows while another task asks
    seen: list[tuple[int, float]] = []
    seeds = {"seed": storage._graph.vs["name"][:1000]}

    async def ask() -> None:
        async with AsyncClient(client.url) as other:
            while True:
                started = time.perf_counter()
                answer = await other.personalized_table("fast-graphrag", seeds, k=20)
                seen.append((answer.version, time.perf_counter() - started))

    asking = asyncio.create_task(ask())
    for first in range(half, len(texts), 500):
        await rag.async_insert(texts[first : first + 500], show_progress=False)
        await answered(rag, asked[:2])
    asking.cancel()
    versions = sorted({version for version, _ in seen})
    print(f"{len(seen)} queries meanwhile, of versions {versions[0]} to {versions[-1]}")
    context = await answered(rag, asked)
    print(f"{storage.checked} questions: the first 20 entities are those of igraph")
    print(f"{asked[-1]} {context.chunks[0][0].content}")
    info = client.graph("fast-graphrag")
    print(f"{info.vertices:,} vertices, {info.edges:,} edges, version {info.version}")


async def answered(rag: Any, asked: list[str]) -> Any:
    """What the library finds for each question; returns the last."""
    await rag.state_manager.query_start()
    for question in asked:
        answer = await rag.async_query(question, QueryParam(only_context=True))
    await rag.state_manager.query_done()
    return answer.context


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--passages", type=int, default=3000)
    parser.add_argument("--questions", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Client() as client:
        texts, asked = passages(arguments.passages), questions(arguments.questions)
        asyncio.run(run(texts, asked, folder, client))


if __name__ == "__main__":
    main()
