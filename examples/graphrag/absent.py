"""Lets the two libraries be imported without what they need for language models and clouds.

Import this module before them. The modules in `_ABSENT` can then be imported, and have every name,
each a class that does nothing.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from types import ModuleType
from typing import Any, ClassVar

_ABSENT = {
    *("aiolimiter", "boto3", "botocore", "google", "gritlm", "hnswlib", "instructor"),
    *("json_repair", "litellm", "openai", "requests", "tiktoken", "torch", "transformers"),
    *("vertexai", "vllm", "voyageai"),
}


class _Names(type):
    """A type of classes that have every name."""

    def __getattr__(cls, name: str) -> type:
        return _class(name)


def _class(name: str) -> type:
    """A class that does nothing: an exception for `except`, callable for decorators."""
    if name.startswith("__"):
        raise AttributeError(name)
    return _Names(name, (Exception,), {"__call__": lambda _, function=None: function})


class _Anything(ModuleType):
    """A module in which every name is a class."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> type:
        setattr(self, name, found := _class(name))
        return found


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        absent = name.split(".")[0] in _ABSENT
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if absent else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Anything(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


sys.meta_path.insert(0, _Finder())
os.environ.setdefault("TQDM_DISABLE", "1")  # no progress bars
