"""The options of a graph."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from math import inf, isfinite
from typing import Any, get_args

from msgspec.structs import force_setattr

import liverank.options
from liverank.choices import Clock, KeyKind
from liverank_gpu import MOST_HALF_LIVES, Form, InvalidValue, Options, SettledTarget, Solve
from liverank_service.formats.columns import Attributes
from liverank_service.formats.values import TimeRule
from liverank_service.pipeline.window import WindowOptions

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
EXPECTED_NAME = "1 to 64 of the characters A-Z a-z 0-9 . _ - and begin with a letter or digit"

_MAX_AHEAD: dict[Clock, float] = {"wall": 60.0, "event": 86_400.0}
"""Seconds that a time may be ahead of the server's clock, unless the graph says otherwise. By the
clock ``event``, one wrong time far ahead would make all other edges too old.
"""


class GraphOptions(liverank.options.GraphOptions, frozen=True):
    """The options of a graph, valid and complete: `weighted` is true with `half_life`, and
    `max_time_ahead` None only in a graph without times. liverank_gpu.Options says what the engine
    makes of them, liverank_service.pipeline.window.WindowOptions what a window is.
    """

    def __post_init__(self) -> None:
        self.solve(self.strategy)
        self._check_times()
        if self.decays:
            force_setattr(self, "weighted", True)
        if self.timed and self.max_time_ahead is None:
            force_setattr(self, "max_time_ahead", _MAX_AHEAD[self.clock])
        if self.keys not in get_args(KeyKind):
            raise InvalidValue("keys", self.keys, "'string' or 'integer'")

    def _check_times(self) -> None:
        """Raises InvalidValue."""
        window = self.window
        for name, seconds in (("window", window), ("max_time_ahead", self.max_time_ahead)):
            if seconds is not None:
                number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
                if not number or not isfinite(seconds) or seconds <= 0.0:
                    raise InvalidValue(name, seconds, "a number of seconds above 0")
        if self.clock not in get_args(Clock):
            raise InvalidValue("clock", self.clock, "'wall' or 'event'")
        if self.clock != "wall" and not self.timed:
            raise InvalidValue("clock", self.clock, "left out without half_life or window")
        if self.max_time_ahead is not None and not self.timed:
            expected = "left out without half_life or window"
            raise InvalidValue("max_time_ahead", self.max_time_ahead, expected)
        if not isinstance(self.forget_vertices, bool):
            raise InvalidValue("forget_vertices", self.forget_vertices, "true or false")
        if self.forget_vertices and window is None:
            raise InvalidValue("forget_vertices", True, "left out without window")

    def attributes(self, now: float, adds: bool = False) -> Attributes:
        """What the insertions of a batch that arrives now, in Unix seconds, may have."""
        rule = None
        if self.max_time_ahead is not None:
            farthest = inf if self.half_life is None else self.half_life * MOST_HALF_LIVES
            rule = TimeRule(self.clock, now, self.max_time_ahead, farthest)
        return Attributes(self.weighted, rule, adds)

    def window_options(self, max_share: float, hold_seconds: float) -> WindowOptions | None:
        """None for a graph whose edges stay. For the limits see WindowOptions."""
        if self.window is None:
            return None
        rules = self.clock, self.forget_vertices, self.solve()
        return WindowOptions(self.window, *rules, max_share, hold_seconds)

    @lru_cache(maxsize=64)  # noqa: B019 - a graph's own are few and small
    def engine_options(self) -> Options:
        names = {each.name for each in fields(Options)} & set(self.__struct_fields__)
        return Options(**{name: getattr(self, name) for name in names})

    def solve(
        self,
        strategy: str | None = None,
        form: Form | None = None,
        trace: bool = False,
        settle: int = 0,
        target: SettledTarget = "settled-top-k",
    ) -> Solve:
        """How to rank; None for what the graph does. Raises InvalidValue."""
        strategy = self.strategy if strategy is None else strategy
        return Solve(strategy, form, trace, settle, target).checked(self.engine_options())


def stored_options(stored: Mapping[str, Any]) -> GraphOptions:
    """The options in the manifest of a graph. Ranks that an earlier release kept as float32 become
    float64: see liverank_service.pipeline.checkpointer. Raises InvalidValue and TypeError.
    """
    given = {**stored}
    if given.get("storage") == "float32":
        given["storage"] = "float64"
    return GraphOptions(**given)


def requested_options(name: str, given: Mapping[str, Any]) -> GraphOptions:
    """The options of a graph that a client names. Raises InvalidValue for the name or an option."""
    if NAME.fullmatch(name) is None:
        raise InvalidValue("graph", name, EXPECTED_NAME)
    options = GraphOptions(**given)
    if options.decays and given.get("weighted") is False:
        raise InvalidValue("weighted", False, "true, or left out, where half_life is given")
    return options
