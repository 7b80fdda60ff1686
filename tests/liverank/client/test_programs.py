"""Programs of users: a class of Python travels, and an analysis runs it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from math import isinf as is_infinite
from typing import Any, ClassVar

import pytest

from liverank import Client, ServerError
from liverank.client.programs import source_of
from liverank.errors import InvalidInput
from liverank_gpu import program_of_source
from liverank_gpu.programs.algorithms import LEVELS
from tests.service.server import running

UNREACHED = 2**31 - 1
NOWHERE = math.inf


class Levels:
    """Breadth-first search."""

    dtype = "int32"
    identity = UNREACHED
    merge = "min"
    parameters: ClassVar = {"source": 0}
    monotone = True
    first_wins = True

    @staticmethod
    def initial(vertex: Any, source: Any) -> Any:
        return 0 if vertex == source else UNREACHED

    @staticmethod
    def gather(source_value: Any) -> Any:
        return source_value + 1

    @staticmethod
    def apply(old: Any, gathered: Any) -> Any:
        return min(old, gathered)

    @staticmethod
    def scatter(old: Any, new: Any) -> Any:
        return old != new


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    data = tmp_path_factory.mktemp("programs")
    with running(data, programs=True) as server, Client(str(server.http.base_url)) as client:
        yield client


def test_a_class_travels_and_is_the_program_of_its_functions(client: Client) -> None:
    assert program_of_source("levels", source_of(Levels)).digest == LEVELS.digest
    put = client.put_program(Levels)
    assert (put.name, put.dtype, put.monotone) == ("Levels", "int32", True)
    assert client.program("Levels") == put
    client.insert("default", [("a", "b"), ("b", "c"), ("x", "y")])
    identity = client.start_analysis(
        "default",
        "Levels",
        parameters={"source": "a"},
        mode="asynchronous",
        limits={"supersteps": 1},
    )
    found = client.analysis("default", identity, wait=60)
    assert (found.mode, found.limits.supersteps, found.limits.memory) == ("asynchronous", 1, None)
    assert found.receipt is not None
    assert not found.receipt.finished
    identity = client.start_analysis("default", "Levels", parameters={"source": "a"})
    assert client.analysis("default", identity, wait=60).state == "finished"
    assert client.value("default", identity, "c").value == 2
    client.put_program(put.source, "again")
    assert [each.name for each in client.programs()] == ["Levels", "again"]
    client.drop_program("again")
    client.drop_program("Levels")
    assert client.programs() == []


def test_what_a_class_names_travels_with_it() -> None:
    near = 3

    class Near:
        dtype = "float64"
        identity = NOWHERE
        merge = "min"

        @staticmethod
        def initial(vertex: Any) -> Any:
            return math.sqrt(vertex) if vertex < near else NOWHERE

        @staticmethod
        def gather(source_value: Any) -> Any:
            return source_value + near

        @staticmethod
        def apply(old: Any, gathered: Any) -> Any:
            return old if is_infinite(gathered) else gathered

        @staticmethod
        def scatter(old: Any, new: Any) -> Any:
            return old != new

    source = source_of(Near)
    lines = ("NOWHERE = math.inf", "from math import isinf as is_infinite", "near = 3")
    assert all(line in source.splitlines() for line in lines)
    assert "3LL" in program_of_source("near", source).functions["gather"].cpp


def test_a_refusal_has_the_line_of_the_class(client: Client) -> None:
    source = source_of(Levels).replace("old != new", "open('/etc/passwd')")
    with pytest.raises(ServerError, match="a call of min") as refused:
        client.put_program(source, "bad")
    line: int = refused.value.problem["line"]
    assert "open" in source.splitlines()[line - 1]


def test_what_has_no_source_or_no_name_is_refused(client: Client) -> None:
    with pytest.raises(InvalidInput, match="a class with its source in a file"):
        client.put_program(type("Made", (), {}))
    with pytest.raises(InvalidInput, match="a name"):
        client.put_program("class A: pass")
