"""The options of the interface, each said once: its name, type, default, limits and meaning.

The schemas of the HTTP interface, the options of the command and the reference pages are made of
these tables. `…Keywords` are the same options as keyword arguments, for type checkers and editors;
a test compares them. Limits that `about` has are there to be read: the server checks these values
itself, and says what is wrong in more words. Those of a `Meta` are checked as they are.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict, get_args, get_origin

from msgspec import Meta, Struct, field

from liverank.choices import (
    Clock,
    Dangling,
    Form,
    Key,
    KeyKind,
    Method,
    OnConflict,
    Rank,
    Refresh,
    Storage,
    Strategy,
    Target,
    Unknown,
    ViewDirection,
)


def about(description: str, help: str = "", **limits: Any) -> Meta:  # noqa: A002
    """What an option or a member means.

    help    of the option of the command; empty: the description, with the default
    limits  what JSON Schema says of its values
    """
    extra = {"help": help} if help else None
    return Meta(description=description, extra=extra, extra_json_schema=limits or None)


def given(**options: Any) -> dict[str, Any]:
    """The options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def described(annotation: Any) -> tuple[Any, Meta]:
    """The type of an option or a member, and what is said of it."""
    if get_origin(annotation) is not Annotated:
        return annotation, Meta()
    kind, *said = get_args(annotation)
    return kind, next((each for each in said if isinstance(each, Meta)), Meta())


_DAMPING = "Probability of following an edge. Default: the graph's"
_BELOW_ONE = {"exclusiveMinimum": 0, "exclusiveMaximum": 1}
_L1_ERROR = {"exclusiveMinimum": 0, "maximum": 2}
_ABOVE_ZERO = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}]}

MAX_K = 100_000
"""Places in an answer."""

MAX_POSITION = 255
"""Characters of the name of a source, of a partition, and of a position."""


def _position(description: str) -> Meta:
    return Meta(description=description, min_length=1, max_length=MAX_POSITION)


class GraphOptions(Struct, frozen=True):
    """What is fixed when a graph is created."""

    damping: Annotated[
        float, about("probability of following an edge; above 0, below 1", **_BELOW_ONE)
    ] = 0.85
    dangling: Annotated[Dangling, about("what a vertex without out-edges does with its rank")] = (
        "uniform"
    )
    strategy: Annotated[
        str, about("of batches that do not name one", enum=list(get_args(Strategy)))
    ] = "auto"
    target_error: Annotated[
        float, about("L1 error at which `auto` stops; above 0, at most 2", **_L1_ERROR)
    ] = 1e-6
    storage: Annotated[
        str,
        about(
            "type of the numbers stored for each vertex: always `float64`",
            enum=list(get_args(Storage)),
        ),
    ] = "float64"
    keys: KeyKind = "string"
    weighted: Annotated[
        bool, about("whether edges have weights, in proportion to which they are followed")
    ] = False
    directed: Annotated[
        bool,
        about(
            "false: an edge is followed either way",
            help="An edge is followed either way, and is one edge",
        ),
    ] = True
    form: Annotated[Form, about("how the published strategies run")] = "accelerated"
    tolerance: Annotated[
        float, about("L∞: a published strategy stops when no rank moves by more", **_BELOW_ONE)
    ] = 1e-10
    frontier_tolerance: Annotated[
        float,
        about(
            "relative change of a rank above which the out-neighbours become affected", **_BELOW_ONE
        ),
    ] = 1e-6
    prune_tolerance: Annotated[
        float,
        about(
            "relative change of a rank up to which a vertex leaves the affected set", **_BELOW_ONE
        ),
    ] = 1e-6
    max_iterations: Annotated[
        int,
        about(
            "of one solve, or twice as many where one has to start again",
            minimum=1,
            maximum=1_000_000,
        ),
    ] = 500
    half_life: Annotated[
        float | None,
        about(
            "seconds after which a weight is worth half of a new one; needs `dangling` `uniform`, "
            "and makes the graph `weighted`",
            **_ABOVE_ZERO,
        ),
    ] = None
    window: Annotated[
        float | None, about("seconds after which an edge leaves the graph", **_ABOVE_ZERO)
    ] = None
    clock: Annotated[
        Clock,
        about(
            "`event`: the largest time that was sent counts as now; only with `half_life` or "
            "`window`"
        ),
    ] = "wall"
    forget_vertices: Annotated[
        bool, about("whether vertices leave with their last edge by age; only with `window`")
    ] = False
    max_time_ahead: Annotated[
        float | None,
        about(
            "seconds that a time may be ahead of the server's clock; only with `half_life` or "
            "`window`, by default 60, and 86400 with the clock `event`",
            **_ABOVE_ZERO,
        ),
    ] = None

    @property
    def decays(self) -> bool:
        """Whether weights decay."""
        return self.half_life is not None

    @property
    def timed(self) -> bool:
        """Whether edges have times."""
        return self.decays or self.window is not None


class GraphKeywords(TypedDict, total=False):
    """GraphOptions as keyword arguments. None is as if it were left out."""

    damping: float | None
    dangling: Dangling | None
    strategy: Strategy | None
    target_error: float | None
    storage: Storage | None
    keys: KeyKind | None
    weighted: bool | None
    directed: bool | None
    form: Form | None
    tolerance: float | None
    frontier_tolerance: float | None
    prune_tolerance: float | None
    max_iterations: int | None
    half_life: float | None
    window: float | None
    clock: Clock | None
    forget_vertices: bool | None
    max_time_ahead: float | None


class SolveOptions(Struct, frozen=True):
    """How to rank; what is None is as the graph has it."""

    strategy: Annotated[
        str | None,
        about(
            "one of " + ", ".join(get_args(Strategy)),
            help="Strategy of the solve. Default: the graph's",
            enum=list(get_args(Strategy)),
        ),
    ] = None
    form: Annotated[
        Form | None,
        about(
            "how a published strategy runs; the graph's",
            help="How a published strategy runs. Default: the graph's, or accelerated",
        ),
    ] = None
    trace: Annotated[
        bool, about("whether the receipt has a `trace`", help="What each iteration did")
    ] = False


class BatchOptions(SolveOptions, frozen=True):
    """How a batch is applied, ranked and answered."""

    wait: Annotated[
        Literal["ranked", "durable"],
        about("`ranked`: respond 200 with the receipt; `durable`: 202 once the batch is on disk"),
    ] = "ranked"
    on_conflict: Annotated[
        OnConflict,
        about(
            "what a weight does to that of a present or repeated edge: `replace` or `add`",
            help="What a weight does to that of a present or repeated edge",
        ),
    ] = "replace"
    rank: Annotated[Rank, about("`later`: only apply it, and respond as for `wait=durable`")] = (
        "now"
    )


OF_SOME_BATCHES = ("wait", "on_conflict", "rank")
"""Options of batches that calls of the client, and commands, take for some alone."""


class RangeOptions(Struct, frozen=True):
    """The messages of an external source that a batch has."""

    source: Annotated[str | None, _position("the external source that the batch continues")] = None
    partition: Annotated[
        str, Meta(description="of `source`; empty if omitted", max_length=MAX_POSITION)
    ] = ""
    begin: Annotated[
        str | None, _position("the stored position of the partition; omitted for its first batch")
    ] = field(default=None, name="from")
    end: Annotated[
        str | None, _position("the position after the batch, another than `from`; with `source`")
    ] = field(default=None, name="to")


class RecomputeOptions(SolveOptions, frozen=True):
    """How to rank a graph again."""

    target: Annotated[
        Target,
        about(
            "`settled-top-k`: go on until the first k places are proven too; `settled-set`: until "
            "it is proven which vertices have them, in any order"
        ),
    ] = "error"
    k: Annotated[
        int | None, Meta(description="of settled-top-k and settled-set; 10", ge=1, le=MAX_K)
    ] = None


class SolveKeywords(TypedDict, total=False):
    """SolveOptions as keyword arguments."""

    strategy: Strategy | None
    form: Form | None
    trace: bool | None


class BatchKeywords(SolveKeywords, total=False):
    """BatchOptions as keyword arguments, but for those of some batches."""


class PersonalizedQuery(Struct, frozen=True, omit_defaults=True):
    """A personalized query. One to watch has the target `error`, no form, no trace and no
    `within`.
    """

    seeds: Annotated[
        dict[Key, float], about("weight of each seed, scaled to sum 1; a weight of 0 is ignored")
    ]
    k: Annotated[
        int,
        Meta(
            description="number of places; fewer if fewer vertices have a rank above 0",
            ge=1,
            le=MAX_K,
        ),
    ] = 10
    method: Annotated[
        Method,
        about(
            "`hybrid`, `push` or `pull`; `pushopt` of the published form",
            help="How to solve; pushopt: with --form published",
            enum=list(get_args(Method)),
        ),
    ] = "hybrid"
    target_error: Annotated[
        float | None, about("L1 error to reach; the graph's if omitted", **_L1_ERROR)
    ] = None
    target: Annotated[
        Target,
        about(
            "`error`; `settled-top-k`: stop once the k places are proven; `settled-set`: once it "
            "is proven which vertices have them, in any order",
            enum=list(get_args(Target)),
        ),
    ] = "error"
    unknown: Annotated[
        Unknown,
        about("`ignore`: a seed that is no vertex is left out, and named in the answer"),
    ] = "error"
    damping: Annotated[
        float | None,
        about("the graph's if omitted", help=_DAMPING, **_BELOW_ONE),
    ] = None
    among: Annotated[
        str | list[Key] | None,
        about(
            "keys, or the name of a set: only these vertices are in the answer, with their ranks "
            "in the whole graph. `unknown` is for keys too"
        ),
    ] = None
    form: Annotated[
        Form, about("`published`: by the algorithms of Wang et al., to compare with")
    ] = "accelerated"
    trace: Annotated[
        bool, about("whether the answer has a `trace`", help="What each iteration did")
    ] = False
    zeros: Annotated[
        bool,
        about(
            "whether vertices of rank 0, which walks from the seeds cannot reach, are in the "
            "answer too",
            help="Show vertices of rank 0 too, up to K",
        ),
    ] = False
    within: Annotated[
        str | list[Key] | None,
        about(
            "keys, or the name of a set, which has all seeds: the walk follows only the edges "
            "between these vertices, and they alone are in the answer, with their ranks in this "
            "part of the graph. `unknown` is for keys too"
        ),
    ] = None


class QueryKeywords(TypedDict, total=False):
    """Options of a PersonalizedQuery as keyword arguments."""

    method: Method | None
    target_error: float | None
    target: Target | None
    unknown: Unknown | None
    damping: float | None
    among: str | None
    form: Form | None
    trace: bool | None
    zeros: bool | None
    within: str | None


class RanksOptions(Struct, frozen=True):
    """Which ranks are read."""

    view: Annotated[str | None, about("name of a view: its ranks in place of the graph's")] = None


class RanksKeywords(TypedDict, total=False):
    """RanksOptions as keyword arguments."""

    view: str | None


class FeedOptions(RanksOptions, frozen=True):
    """Which ranks are followed."""

    watched: Annotated[
        str | None,
        about("name of a watched query: its places alone; without `view` and `among`"),
    ] = None


class FeedKeywords(RanksKeywords, total=False):
    """FeedOptions as keyword arguments."""

    watched: str | None


class AnalysisLimits(Struct, frozen=True):
    """What a run of an analysis may take."""

    supersteps: Annotated[
        int | None,
        about("of a vertex program, after which it ends with the values that it has then"),
    ] = None
    seconds: Annotated[
        float | None,
        about(
            "spent, looked at between supersteps; beyond them it fails. Of a program of a user "
            "at most LIVERANK_MAX_PROGRAM_SECONDS, which is its default"
        ),
    ] = None
    memory: Annotated[int | None, about("bytes beside the graph: it fails if it may need more")] = (
        None
    )


class LimitKeywords(TypedDict, total=False):
    """AnalysisLimits by name."""

    supersteps: int | None
    seconds: float | None
    memory: int | None


class ViewOptions(Struct, frozen=True):
    """A view: ranks of all vertices for a teleport distribution of its own."""

    teleport: Annotated[
        str | dict[str, Any],
        about(
            "where walks restart, and where the rank of vertices without out-edges goes: "
            '`"uniform"`, all vertices alike; `{"set": NAME}`; or `{"weights": {KEY: WEIGHT}}`'
        ),
    ]
    damping: Annotated[
        float | None,
        about("the graph's if omitted", help=_DAMPING, **_BELOW_ONE),
    ] = None
    direction: Annotated[
        ViewDirection,
        about(
            "`forward`: walks follow edges; `reversed`: they follow them backwards, by the weights "
            "of in-edges. Not in a graph with a `half_life`",
            enum=list(get_args(ViewDirection)),
        ),
    ] = "forward"
    target_error: Annotated[
        float | None, about("L1 error to reach; the graph's if omitted", **_L1_ERROR)
    ] = None
    refresh: Annotated[
        Refresh | float,
        about(
            "when it is solved, if its error bound has passed the target: `batch`, before the "
            "receipt of the batch; `read`, by the next read with `view=`, which waits for it; or "
            "seconds: by either, but no sooner than so long after it last met its target. The "
            "bound is of the present version in any case",
            help="When to solve it if its error bound has passed the target; a number: after "
            "so many seconds",
            anyOf=[
                {"enum": list(get_args(Refresh)), "type": "string"},
                {"exclusiveMinimum": 0, "type": "number"},
            ],
        ),
    ] = "batch"
    unknown: Annotated[
        Unknown,
        about(
            "`ignore`: a key of `weights` or `within` that is no vertex is left out, until it is "
            "one",
        ),
    ] = "error"
    within: Annotated[
        str | list[Key] | None,
        about(
            "keys, or the name of a set: walks follow only the edges between these vertices, as if "
            "the graph had no others, which have rank 0. A batch that changes these edges solves "
            "the view",
        ),
    ] = None


class ViewKeywords(TypedDict, total=False):
    """Options of a view as keyword arguments."""

    damping: float | None
    direction: ViewDirection | None
    target_error: float | None
    refresh: Refresh | float | None
    unknown: Unknown | None
    within: str | list[Key] | None
