"""The kernels of the CPU: loops in C++, compiled ahead of time into one extension.

``kernels`` has a function for each operation, and their files say what they compute. A call passes
arrays, None, numbers and named tuples; what a function is given is checked (bind.h), and the
interpreter lock is not held while it runs. Loops share a pool of threads (pool.h):
``kernels.set_threads`` bounds those of the calling thread's loops, LIVERANK_THREADS those of the
process.
"""

from __future__ import annotations

from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

from liverank_gpu.native.level import level


def extension(path: Path, name: str) -> Any:
    """The module of an extension of this name. Raises ImportError."""
    spec = spec_from_loader(name, ExtensionFileLoader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _loaded() -> Any:
    folder, own = Path(__file__).parent, level()
    names = [f"_kernels_v{each}" for each in range(own, 1, -1)] or ["_kernels"]
    for name in names:
        if (path := folder / f"{name}.abi3.so").exists():
            return extension(path, name)
    raise ImportError(
        f"the kernels of the CPU are not compiled for this machine: {folder} has none of "
        f"{', '.join(names)}. From a clone, `pip install -e .` compiles them"
    )


kernels: Any = _loaded()
