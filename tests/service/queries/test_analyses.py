"""Parameters of analyses, as they are checked before one is queued."""

from __future__ import annotations

from typing import Any

import pytest

from liverank_gpu import PROGRAMS, InvalidValue
from liverank_service.queries.analyses import checked_parameters


@pytest.mark.parametrize(
    ("program", "name", "value"),
    [
        ("pagerank", "damping", 2.0),
        ("densest", "epsilon", -1),
        ("labels", "iterations", 0),
        ("trussness", "binary", 2),
        ("trussness", "iterations", 2**63),
    ],
)
def test_values_outside_the_limits_of_a_program_are_refused_by_name(
    program: str, name: str, value: Any
) -> None:
    with pytest.raises(InvalidValue) as error:
        checked_parameters(PROGRAMS[program], {name: value}, "string")
    assert (error.value.field, error.value.value) == (f"parameters.{name}", value)


def test_defaults_and_the_key_of_a_vertex_are_within_them() -> None:
    assert checked_parameters(PROGRAMS["densest"], {}, "string") == {"epsilon": 0.1}
    for kind, key in (("string", "ada"), ("integer", -(2**63))):
        found = checked_parameters(PROGRAMS["levels"], {"source": key}, kind)  # type: ignore[arg-type]
        assert found == {"source": key}
