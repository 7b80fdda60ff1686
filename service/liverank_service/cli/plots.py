"""Figures of ranks and of replays, as SVG or PNG. Needs matplotlib: the extra `plot`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from liverank.files import whole_file
from liverank_service.cli import CommandError

if TYPE_CHECKING:
    from liverank_service.cli.ingest import ReplayedBatch

KINDS = (".svg", ".png")
_MAX_POINTS = 2000


def check_plot(path: Path) -> None:
    """Raises CommandError for a path that cannot be written, and without matplotlib."""
    if path.suffix not in KINDS:
        raise CommandError(f"{path}: the name must end in {' or '.join(KINDS)}")
    if not path.parent.is_dir():
        raise CommandError(f"{path}: there is no directory {path.parent}")
    _matplotlib()


def plot_ranks(path: Path, ranks: NDArray[np.float64], title: str) -> None:
    """Ranks by place, best first, both on logarithmic axes. Of many, evenly spaced ones."""
    figure, (axes,) = _figure(1)
    places = np.unique(np.geomspace(1, len(ranks), _MAX_POINTS).astype(np.int64))
    axes.loglog(places, ranks[places - 1], marker="." if len(places) < 50 else None)
    axes.set(xlabel="place", ylabel="rank", title=title)
    _save(figure, path)


def plot_replay(path: Path, batches: Sequence[ReplayedBatch]) -> None:
    """Latency, time of the solve and error bound of each batch, by strategy."""
    figure, (times, errors) = _figure(2)
    for strategy in dict.fromkeys(batch.receipt.strategy for batch in batches):
        chosen = [batch for batch in batches if batch.receipt.strategy == strategy]
        numbers = [batch.number for batch in chosen]
        latency = [1e3 * batch.latency for batch in chosen]
        solve = [1e3 * batch.receipt.seconds["solve"] for batch in chosen]
        times.semilogy(numbers, latency, label=f"{strategy}: response", marker=".")
        times.semilogy(numbers, solve, label=f"{strategy}: solve", marker=".", linestyle="--")
        bounds = [batch.receipt.error_bound for batch in chosen]
        errors.semilogy(numbers, bounds, label=strategy, marker=".")
    times.set(ylabel="ms")
    errors.set(xlabel="batch", ylabel="error bound (L1)")
    for axes in (times, errors):
        axes.legend()
    _save(figure, path)


def _matplotlib() -> Any:
    try:
        import matplotlib.figure
    except ModuleNotFoundError:
        raise CommandError(
            "--plot needs matplotlib, which is not installed: "
            "pip install -e '.[plot]' in the clone of liverank"
        ) from None
    return matplotlib.figure


def _figure(rows: int) -> tuple[Any, Sequence[Any]]:
    figure = _matplotlib().Figure(figsize=(8, 3 + 2 * rows), layout="constrained")
    axes = figure.subplots(rows, sharex=True, squeeze=False)[:, 0]
    for each in axes:
        each.grid(alpha=0.3)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    with whole_file(path) as partial:
        figure.savefig(partial, metadata={"Date": None} if path.suffix == ".svg" else None)
