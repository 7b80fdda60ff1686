"""The kernels of the CPU: loops in C++, compiled ahead of time into one extension.

``kernels`` has a function for each operation, and their files say what they compute. A call passes
arrays, None, numbers and named tuples; what a function is given is checked (bind.h), and the
interpreter lock is not held while it runs. Loops share a pool of threads (pool.h):
``kernels.set_threads`` bounds those of the calling thread's loops, LIVERANK_THREADS those of the
process.

The extension is loaded when a kernel is first named. An installation without one has those kernels
that are in ``in_numpy``, and the backend ``reference``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from liverank_gpu.errors import BackendUnavailable
from liverank_gpu.native import in_numpy
from liverank_gpu.native.compiler import level


def extension(path: Path, name: str) -> Any:
    """The module of an extension of this name. Raises ImportError."""
    spec = spec_from_loader(name, ExtensionFileLoader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def loaded() -> Any:
    """The extension. Raises BackendUnavailable."""
    folder, own = Path(__file__).parent, level()
    names = [f"_kernels_v{each}" for each in range(own, 1, -1)] or ["_kernels"]
    for name in names:
        if (path := folder / f"{name}.abi3.so").exists():
            try:
                return extension(path, name)
            except ImportError as error:  # of another machine, or damaged
                raise BackendUnavailable("cpu", f"{path} cannot be loaded: {error}") from error
    raise BackendUnavailable(
        "cpu",
        f"its kernels are not compiled for this machine ({folder} has none of {', '.join(names)}): "
        "install a wheel of liverank, or pip install -e . in its clone",
    )


class _Kernels(ModuleType):
    """The functions of the extension, loaded when one is first named. Raises BackendUnavailable for
    those that it alone has.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            found = getattr(loaded(), name)
        except BackendUnavailable:
            if name.startswith("_") or not hasattr(in_numpy, name):
                raise
            found = getattr(in_numpy, name)
        self.__dict__[name] = found  # not looked up here again
        return found

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        return _own_kernels, ()  # tasks that name it are sent to other processes


kernels: Any = _Kernels("kernels")


def _own_kernels() -> Any:
    """Those of the process that calls it."""
    return kernels
