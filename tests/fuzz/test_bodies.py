"""Mutated bodies in every format: decoded, or refused in words; never a crash."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from service.keys import KeyKind
from tests.fuzz.bodies import cases
from tests.fuzz.oracle import Oracle, decoded

_oracles: dict[KeyKind, Oracle] = {}


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases)
def test_any_body_is_a_batch_or_refused_and_is_applied_whole(
    case: tuple[tuple[str, bytes], KeyKind],
) -> None:
    (content_type, body), kind = case
    columns = decoded(content_type, body, kind)
    if columns is not None:
        if kind not in _oracles:
            _oracles[kind] = Oracle()
        _oracles[kind].apply(columns)
