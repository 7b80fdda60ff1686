"""PageRank that stays fresh on a changing graph: the package that users import.

    from liverank import Client

    with Client() as client:
        client.send("default", insert=[("ada", "grace"), ("grace", "ada")])
        print(client.top("default", k=3).to_dict())

`Client` and `AsyncClient` talk to a server and need only the core install. `pagerank` ranks a frame
or a graph in this process, and `Engine`, with `EdgeBatch` and `Options`, is the engine itself:
`pip install -e '.[engine]'`. Everything is imported on first use, so that `import liverank` is
fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from liverank.client import AsyncClient as AsyncClient
    from liverank.client import Batch as Batch
    from liverank.client import Client as Client
    from liverank.client import PersonalizedQuery as PersonalizedQuery
    from liverank.client import SetChange as SetChange
    from liverank.client import SourceRange as SourceRange
    from liverank.errors import ClientError as ClientError
    from liverank.errors import InvalidInput as InvalidInput
    from liverank.errors import LiverankError as LiverankError
    from liverank.errors import MissingPackage as MissingPackage
    from liverank.errors import ServerError as ServerError
    from liverank.errors import ServerUnreachable as ServerUnreachable
    from liverank.errors import UnusedWeights as UnusedWeights
    from liverank.in_process import Ranking as Ranking
    from liverank.in_process import pagerank as pagerank
    from liverank_gpu import EdgeBatch as EdgeBatch
    from liverank_gpu import Engine as Engine
    from liverank_gpu import NotConverged as NotConverged
    from liverank_gpu import Options as Options
    from liverank_gpu import VertexProgram as VertexProgram

    __version__: str

_MODULES = {
    "liverank_gpu": ("EdgeBatch", "Engine", "NotConverged", "Options", "VertexProgram"),
    "liverank.client": (
        "AsyncClient",
        "Batch",
        "Client",
        "PersonalizedQuery",
        "SetChange",
        "SourceRange",
    ),
    "liverank.errors": (
        "ClientError",
        "InvalidInput",
        "LiverankError",
        "MissingPackage",
        "ServerError",
        "ServerUnreachable",
        "UnusedWeights",
    ),
    "liverank.in_process": ("Ranking", "pagerank"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("liverank")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'liverank' has no attribute {name!r}")
    module = _MODULE_OF[name]
    if module == "liverank_gpu":
        from liverank.errors import needs

        with needs("engine"):
            found = getattr(import_module(module), name)
    else:
        found = getattr(import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
