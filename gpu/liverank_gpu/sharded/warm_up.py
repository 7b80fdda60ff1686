"""What shards on GPUs compile before they start."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from liverank_gpu.graph.warm_up import dated, sample_batches, warm_up_pages
from liverank_gpu.operations.backend import Backend
from liverank_gpu.personalized.resolve import METHODS, PUBLISHED_METHODS, resolve
from liverank_gpu.sharded.communicator import SingleCommunicator
from liverank_gpu.sharded.merging import warm_up_merge
from liverank_gpu.sharded.shard import Shard
from liverank_gpu.types import EdgeBatch, Options, PersonalizedQuery


def warm_up(options: Options, backend: Backend) -> None:
    """Compiles what shards run, if their backend compiles kernels."""
    if not backend.compiles_kernels:
        return
    warm_up_pages(backend, options.dangling, options.weighted)
    warm_up_merge(backend, options.weighted)
    for batches in sample_batches(options):
        shard = Shard(SingleCommunicator(), options, backend)
        for batch in batches:
            shard.apply(batch)
            for strategy in ("dynamic-traversal", "static", "residual"):
                shard.update(strategy)
        if options.half_life:
            shard.apply(dated(options, EdgeBatch.of([(0, 1)]), 20.0))
            shard.update("residual")
        shard.top(1)
        queries = [PersonalizedQuery(np.array([0]), k=1, method=method) for method in METHODS]
        other = PersonalizedQuery(np.array([2]), k=1, method="pull")
        queries += [other] * backend.multivector.min_columns
        queries += [replace(other, method=method, form="published") for method in PUBLISHED_METHODS]
        shard.personalized(0, resolve(shard.graph.ids, options, queries), [], np.inf)
