"""The tables of the documents, from the records in benchmarks/results/.

A document has a table between the marks

    <!-- figures: SUITE-BACKEND -->
    <!-- end of figures -->

``python -m benchmarks.tables`` writes it. A test compares the documents with the records, so no
figure is edited by hand. The names of SUMMARIES stand for figures of several records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import DOCUMENTS, NOTES, RESULTS, ROOT, provenance
from benchmarks.tables import engine, kernels, papers, sahu, service, shards, wang
from benchmarks.tables.common import Record, figures_and_values
from benchmarks.tables.summaries import SUMMARIES

MARKS = re.compile(
    r"(<!-- figures: (?P<name>[\w.-]+) -->\n)(?P<table>.*?)(<!-- end of figures -->)", re.DOTALL
)

TABLES: dict[str, Callable[[Record], str]] = {
    "authors": papers.authors,
    "cold-start": service.cold_start,
    "compare": engine.compare,
    "compare-service": service.compare,
    "connections": figures_and_values,
    "continued": engine.continued,
    "crash": service.crash,
    "cuppa": papers.cuppa,
    "device-memory": shards.device_memory,
    "durability": figures_and_values,
    "feed": figures_and_values,
    "fuzz": service.fuzz,
    "graph": figures_and_values,
    "kim": papers.kim,
    "load": service.load,
    "long-stream": figures_and_values,
    "mutation": service.mutation,
    "out-of-core": engine.out_of_core,
    "overload": service.overload,
    "peers": engine.peers,
    "personalized": engine.personalized,
    "personalized-methods": engine.personalized_methods,
    "personalized-http": service.personalized_http,
    "preferential-attachment": papers.preferential_attachment,
    "profile": kernels.profile,
    "programs": engine.programs,
    "push-costs": engine.push_costs,
    "residual": engine.residual,
    "retrieval": service.retrieval,
    "sahu": sahu.sahu,
    "sanitize": kernels.sanitize,
    "schema": service.schema,
    "shard-checkpoints": shards.checkpoints,
    "shard-kills": shards.kills,
    "shard-recovery": figures_and_values,
    "shards": shards.shards,
    "sigps": papers.sigps,
    "small-batches": engine.small_batches,
    "solver": engine.solver,
    "sources": figures_and_values,
    "sources-kills": figures_and_values,
    "stream": figures_and_values,
    "sweep-kinds": engine.sweep_kinds,
    "temporal": engine.temporal,
    "trusses": papers.trusses,
    "vertex-keys": service.vertex_keys,
    "views": engine.views,
    "wang": wang.wang,
    "weights": figures_and_values,
    "window": figures_and_values,
    # what these two were called when their records were made
    "keys": service.vertex_keys,
    "ways": engine.sweep_kinds,
}
"""How the figures of each suite are shown."""


def documents() -> list[Path]:
    """The files that have such marks, or may."""
    return [ROOT / "README.md", *sorted(DOCUMENTS.rglob("*.md")), *sorted(NOTES.glob("*.md"))]


def rendered(name: str) -> str:
    """The text between one pair of marks."""
    if name in SUMMARIES:
        return SUMMARIES[name]()
    document = json.loads((RESULTS / f"{name}.json").read_text())
    return f"{provenance(document)}\n\n{TABLES[document['suite']](document)}"


def with_figures(text: str) -> str:
    """A document with the text of every pair of marks."""
    return MARKS.sub(lambda match: f"{match[1]}{rendered(match['name'])}\n{match[4]}", text)
