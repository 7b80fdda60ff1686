"""What says that it runs operations is found, and what is wrong with that is refused."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from liverank_gpu.operations import csr
from liverank_gpu.operations.csr import Kernels, Operation, runs
from liverank_gpu.operations.residual import JacobiStep


@dataclass(slots=True, eq=False)
class Double(Operation[int]):
    number: int


@dataclass(slots=True, eq=False)
class Halve(Operation[int]):
    number: int


class Doubles:
    @runs
    def _double(self, operation: Double) -> int:
        return self._times(operation, 2)

    def _times(self, do: Double, factor: int = 2) -> int:
        return do.number * factor

    def _noted(self, do: Halve) -> int:
        raise AssertionError(do)


class DoublesToo:
    @runs
    def _double_too(self, do: Double) -> int:
        return do.number


def test_only_what_says_so_runs_an_operation() -> None:
    run = Kernels(Doubles())
    assert run(Double(21)) == 42
    assert run.operations == {Double}
    with pytest.raises(NotImplementedError, match="Halve"):
        run(Halve(2))


def test_two_that_run_the_same_operation_are_named() -> None:
    with pytest.raises(TypeError, match=r"Double is run by _one and by _two of .*\.Both"):

        class Both:
            @runs
            def _one(self, do: Double) -> None: ...

            @runs
            def _two(self, do: Double) -> None: ...

    with pytest.raises(TypeError, match=r"by .*\.Doubles\._double and by .*\.DoublesToo\._double_"):
        Kernels(Doubles(), DoublesToo())


def test_what_is_no_operation_is_not_run() -> None:
    with pytest.raises(TypeError, match=r"Wrong\._double is to run <class 'int'>"):

        class Wrong:
            @runs
            def _double(self, number: int) -> int:
                return 2 * number


def test_an_owner_and_an_operation_that_are_missing_are_named() -> None:
    with pytest.raises(TypeError, match=r"operations\.csr runs no operation"):
        Kernels(csr)
    with pytest.raises(TypeError, match=r"\bPush\b.*: run by none of .*\.Doubles") as raised:
        Kernels(Doubles(), lacks=(JacobiStep,))
    assert "JacobiStep" not in str(raised.value)
