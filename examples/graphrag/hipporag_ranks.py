"""HippoRAG with its personalized PageRank asked of a liverank server.

    python hipporag_ranks.py --passages 3000

HippoRAG keeps its graph in igraph, and ranks it there for each question, from every passage and
the best facts. Here the graph is also in liverank, which follows it batch by batch, and the ranks
come from there. The first 20 passages of each question are those that igraph has, which is checked.
While the last passages are indexed, another thread keeps asking.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import absent  # noqa: F401  before hipporag
import models
import numpy as np
from corpus import passages, questions
from hipporag.utils.config_utils import BaseConfig
from hipporag.utils.misc_utils import NerRawOutput, TripleRawOutput
from mirror import Mirror, same_places

from liverank import Client

np.seterr(invalid="ignore")  # the library divides 0 by 0
library = import_module("hipporag.HippoRAG")  # the package has a class of this name


class Extractor:
    """Instead of a language model: the triples in each passage."""

    def batch_openie(self, chunks: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        entities, triples = {}, {}
        for key, chunk in chunks.items():
            found = models.triples(chunk["content"])
            names = list(dict.fromkeys(name for one, _, other in found for name in (one, other)))
            entities[key] = NerRawOutput(key, "", unique_entities=names, metadata={})
            triples[key] = TripleRawOutput(
                key, "", triples=[list(one) for one in found], metadata={}
            )
        return entities, triples


class Embedding:
    def __init__(self, **_: Any) -> None:
        """No model is loaded."""

    def batch_encode(self, texts: str | Sequence[str], **_: Any) -> Any:
        return models.embedding([texts] if isinstance(texts, str) else texts)


class Language:
    def infer(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("nothing is asked of a language model here")


def nearest(query_ids: Any, key_ids: Any, query_vecs: Any, key_vecs: Any, **_: Any) -> Any:
    """The most similar keys of each query, as the library finds them with torch: the first 20."""
    scores = np.asarray(query_vecs) @ np.asarray(key_vecs).T
    best = np.argsort(-scores, axis=1)[:, :20]
    return {
        key: ([key_ids[place] for place in places], scores[row, places].tolist())
        for row, (key, places) in enumerate(zip(query_ids, best, strict=True))
    }


library._get_llm_class = lambda _: Language()
library._get_embedding_model_class = lambda **_: Embedding
library.retrieve_knn = nearest


class LiverankHippoRAG(library.HippoRAG):
    """HippoRAG whose ranks are those of a server."""

    def __init__(self, client: Client, folder: str) -> None:
        config = BaseConfig()
        config.save_dir, config.llm_name, config.embedding_model_name = folder, "none", "words"
        super().__init__(config)
        self.openie = Extractor()
        self.rerank_filter = lambda _, facts, indices, len_after_rerank: (
            indices[:len_after_rerank],
            facts[:len_after_rerank],
            {},
        )
        self.mirror = Mirror(client, "hipporag", self.global_config.damping)
        self.checked = 0

    def save_igraph(self) -> None:
        """The library calls it whenever the graph has changed."""
        super().save_igraph()
        self.mirror.sync(self.graph, "weight" if self.graph.ecount() else None)

    def run_ppr(self, reset_prob: Any, damping: float = 0.5) -> tuple[Any, Any]:
        reset = np.where(np.isnan(reset_prob) | (reset_prob < 0), 0, reset_prob)
        keys, names = self.passage_node_keys, self.graph.vs["name"]
        found = self.mirror.ranks(names, reset, len(keys), damping, "passages")
        self._check(found, *super().run_ppr(reset_prob, damping))
        places = {key: place for place, key in enumerate(keys)}
        return np.array([places[key] for key in found]), np.array([*found.values()])

    def _check(self, found: dict[str, float], order: Any, ranks: Any) -> None:
        keys = [self.passage_node_keys[place] for place in order]
        same_places(found, dict(zip(keys, ranks.tolist(), strict=True)))
        self.checked += 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--passages", type=int, default=3000)
    parser.add_argument("--questions", type=int, default=20)
    arguments = parser.parse_args()
    texts, asked = passages(arguments.passages), questions(arguments.questions)
    half = len(texts) // 2
    with tempfile.TemporaryDirectory() as folder, Client() as client:
        rag = LiverankHippoRAG(client, folder)
        rag.index(texts[:half])
        rag.retrieve(asked, num_to_retrieve=5)
        print(f"{rag.checked} questions: the first 20 passages are those of igraph")

        # the graph grows while another thread asks
        seeds = {"seed": rag.graph.vs["name"][:1000]}
        seen: list[tuple[int, float]] = []
        done = threading.Event()

        def ask() -> None:
            while not done.is_set():
                started = time.perf_counter()
                answer = client.personalized_table(
                    "hipporag", seeds, k=20, damping=0.5, among="passages"
                )
                seen.append((answer.version, time.perf_counter() - started))

        thread = threading.Thread(target=ask)
        thread.start()
        for first in range(half, len(texts), 500):
            rag.index(texts[: first + 500])
        done.set()
        thread.join()
        versions = sorted({version for version, _ in seen})
        seconds = sorted(spent for _, spent in seen)
        print(
            f"{len(seen)} queries meanwhile, of versions {versions[0]} to {versions[-1]}; "
            f"{1e3 * seconds[len(seconds) // 2]:.1f} ms (median)"
        )
        rag.ready_to_retrieve = False
        answers = rag.retrieve(asked, num_to_retrieve=5)
        print(f"{rag.checked} questions: the first 20 passages are those of igraph")
        print(f"{asked[-1]} {answers[-1].docs[0]}")
        info = client.graph("hipporag")
        print(f"{info.vertices:,} vertices, {info.edges:,} edges, version {info.version}")


if __name__ == "__main__":
    main()
