"""The profile of the kernels: its operations, and what is read from Nsight Compute."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from benchmarks import harness
from benchmarks.profile import __main__ as profile
from benchmarks.profile.figures import combined
from benchmarks.profile.launches import Launches, Operation, to_profile
from benchmarks.profile.nsight import METRICS, parsed, profiler
from benchmarks.profile.workload import Workload
from benchmarks.tables import TABLES
from benchmarks.traffic import MODELS
from benchmarks.traffic.model import Sizes
from liverank_gpu import EdgeBatch, Engine, Options, PersonalizedQuery
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from liverank_gpu.personalized.block import Block
from tests.cuda_emulator.emulated import emulated_backend

LOG = """\
==PROF== Connected to process 4711 (/usr/bin/python3.11)
==PROF== Profiling "sweep" - 0 (1/4): 0%....50%....100% - 1 pass
==PROF== Profiling "add_partial_sums" - 1 (2/4): 0%....50%....100% - 1 pass
==PROF== Profiling "sweep" - 2 (3/4): 0%....50%....100% - 1 pass
==PROF== Profiling "compute_contributions" - 3 (4/4): 0%....50%....100% - 1 pass
==PROF== Disconnected from process 4711
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",\
"Grid Size","Device","CC","dram__bytes_read.sum","dram__bytes_write.sum",\
"gpu__time_duration.sum","lts__t_sectors.avg.pct_of_peak_sustained_elapsed",\
"lts__t_sectors.sum","sm__warps_active.avg.pct_of_peak_sustained_active",\
"smsp__issue_active.avg.pct_of_peak_sustained_active"
"","","","","","","","","","","","byte","byte","ns","%","sector","%","%"
"0","4711","python3.11","127.0.0.1","void sweep<false>(const int *, const long long *)",\
"1","7","(256, 1, 1)","(8192, 1, 1)","0","9.0","1,900,000,000","300,000,000","1,800,000",\
"88.5","252,000,000","70.25","23.0"
"1","4711","python3.11","127.0.0.1","void add_partial_sums<true>(const double *, int, double *)",\
"1","7","(256, 1, 1)","(1, 1, 1)","0","9.0","400000","0","9000","0.5","13000","12.5","3"
==WARNING== a message among the rows
"2","4711","python3.11","127.0.0.1","void sweep<false>(const int *, const long long *)",\
"1","7","(256, 1, 1)","(8192, 1, 1)","0","9.0","1900000000","100000000","2000000",\
"88.5","252000000","70.25","23.0"
"3","4711","python3.11","127.0.0.1","compute_contributions(long long, const double *)",\
"1","7","(256, 1, 1)","(8192, 1, 1)","0","9.0","200000000","134000000","90000",\
"n/a","n/a","n/a","nan"
"""


def _operation(launches: list[tuple[str, float, float | None]]) -> Operation:
    """Launches of a solve: kernel, milliseconds, bytes needed."""
    solve = Operation("solve", 4.5)
    for kernel, milliseconds, needed in launches:
        solve.launches[kernel] = solve.launches.get(kernel, 0) + 1
        taken = solve.kernel_milliseconds.get(kernel, 0.0)
        solve.kernel_milliseconds[kernel] = taken + milliseconds
        solve.profiled.append({"kernel": kernel, "needed": needed})
    return solve


SOLVE = _operation(
    [
        ("sweep: sweep<false>", 1.9, 2e9),
        ("sweep: add_partial_sums<true>", 0.03, None),
        ("push: push", 0.4, 1e6),
        ("sweep: sweep<false>", 2.0, 2e9),
        ("sweep: compute_contributions", 0.09, 3.2e8),
    ]
)


def test_a_log_is_read_with_its_messages_separators_and_missing_numbers() -> None:
    rows = parsed(LOG)
    assert [row["kernel"] for row in rows] == [
        "sweep",
        "add_partial_sums",
        "sweep",
        "compute_contributions",
    ]
    first = [rows[0][name] for name in METRICS]
    assert first == pytest.approx([1.8e-3, 1.9e9, 3e8, 2.52e8, 88.5, 70.25, 23.0])
    assert [rows[3][name] for name in METRICS[3:]] == [None] * 4


def test_units_that_are_not_base_units_are_understood() -> None:
    scaled = LOG.replace('"byte","byte","ns"', '"Mbyte","Kbyte","usecond"')
    first = parsed(scaled)[0]
    seen = [first[name] for name in METRICS[:3]]
    assert seen == pytest.approx([1.8, 1.9e15, 3e11])
    with pytest.raises(ValueError, match="unknown unit: furlong"):
        parsed(LOG.replace('"ns"', '"furlong"'))


def test_a_log_without_a_page_says_what_the_profiler_said() -> None:
    said = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"
    with pytest.raises(ValueError, match="ERR_NVGPUCTRPERM"):
        parsed(f"==PROF== Connected to process 4711\n{said}\n")


def test_rows_are_the_hot_kernels_and_say_which_could_not_be_profiled() -> None:
    rows = combined([SOLVE], parsed(LOG))
    assert [row["kernel"] for row in rows] == [
        "sweep: sweep<false>",
        "push: push",
        "sweep: compute_contributions",
        "sweep: add_partial_sums<true>",
    ]
    sweep, push, contribute, _ = rows
    assert (sweep["launches"], sweep["milliseconds"]) == (2, 2.0)
    assert sweep["share"] == pytest.approx(3.9 / 4.5)
    assert (sweep["read_bytes"], sweep["written_bytes"]) == (1.9e9, 1e8)
    assert sweep["l2_bytes"] == 32 * 2.52e8
    assert push["not_profiled"] == "the profiler has no figures"
    assert contribute["needed_bytes"] == 3.2e8
    assert contribute["l2_bytes"] is None
    once = replace(SOLVE, profiled=[])
    (first, *_) = combined([once], [])
    assert first["not_profiled"] == "not launched again"
    with pytest.raises(ValueError, match="compute_contributions that was not to be profiled"):
        combined([_operation([("sweep: sweep<false>", 1.0, 1.0)] * 2)], parsed(LOG)[2:])


def test_the_table_shows_ratios_and_rates_and_leaves_out_what_is_not_known() -> None:
    figures = {
        "graph": "R-MAT 24",
        **asdict(Sizes(16, 256, 8, 4)),
        "copy_rate": 4e12,
        "rows": combined([SOLVE], parsed(LOG)),
    }
    lines = TABLES["profile"]({"figures": figures}).splitlines()
    assert lines[0] == "R-MAT 24, 16 vertices, 256 edges."
    assert lines[4] == (
        "| solve | `sweep: sweep<false>` | 2 | 86.7% | 2 | 2.00 GB | 2.00 GB | 1.00 | 1,000"
        " | 25% | 8.06 GB | 88 % | 70 % | 23 % |"
    )
    assert lines[5].startswith("| solve | `push: push` | 1 | 8.9% | the p")
    assert lines[6].endswith("| 320 MB | 334 MB | 1.04 | 3,711 | 93% |  |  |  |  |")
    # a launch of 0.009 ms is not shown
    assert len(lines) == 7
    assert {line.count(" | ") for line in lines[2:] if not line.startswith("| ---")} <= {13}


def test_a_kept_log_gives_the_figures_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = asdict(Sizes(16, 256, 8, 4))
    operations = {"graph": "R-MAT 4", "sizes": sizes, "operations": [asdict(SOLVE)]}
    (tmp_path / "ncu.log").write_text(LOG)
    (tmp_path / "operations.json").write_text(json.dumps(operations))
    command = ["--scale", "4", "--logs", str(tmp_path), "--results", str(tmp_path)]
    monkeypatch.setattr("sys.argv", [profile.__file__, *command])
    monkeypatch.setattr(harness, "machine", lambda _: {"device": "none"})
    monkeypatch.setenv("LIVERANK_COMMIT", "0123456789ab")
    profile.main()
    document = json.loads((tmp_path / "profile-cuda.json").read_text())
    assert document["command"] == "python -m benchmarks.profile --scale 4"
    assert document["figures"]["rows"] == combined([SOLVE], parsed(LOG))
    assert TABLES["profile"](document).startswith("R-MAT 4, 16 vertices, 256 edges")


def test_the_profiler_is_told_to_leave_the_device_as_it_is() -> None:
    command = profiler(Path("ncu.log"))
    options = dict(zip(command[1::2], command[2::2], strict=False))
    assert options["--clock-control"] == options["--cache-control"] == "none"
    assert options["--profile-from-start"] == "off"
    assert options["--metrics"].split(",") == list(METRICS)


def test_the_launches_profiled_are_all_where_few_and_else_the_longest() -> None:
    assert to_profile([3.0, 1.0]) == {0, 1}
    assert to_profile([1.0, 9.0, 2.0, 8.0, 7.0, 3.0]) == {1, 3, 4}


def test_the_operations_run_on_cpu() -> None:
    backend = backend_named("cpu")
    launches = Launches(backend)
    sizes = Workload(backend, 12, (100, 1_000, 50, 6_000), launches).run()
    assert sizes.vertices == 1 << 12
    assert sizes.sending + sizes.isolated < sizes.vertices < sizes.entries
    assert len(launches.operations) == 14
    assert not any(operation.launches for operation in launches.operations)


HUB_KERNELS = {
    "multivector: gather_chunks",
    "multivector: sweep_many<true>",
}


def test_the_operations_launch_what_is_modelled() -> None:
    with (
        patch("liverank_gpu.graph.packed_csr.LOADED_AT_ONCE", 4_000),
        # sweeps of the graphs that are profiled are not fused
        patch("liverank_gpu.backends.cuda.sweeps._FUSED_EDGES", 0),
        patch("benchmarks.profile.launches.NEGLIGIBLE", 0.0),
        patch("benchmarks.profile.launches.FEW", 1_000),
    ):
        backend = emulated_backend()
        launches = Launches(backend)
        Workload(backend, 9, (100, 300, 20, 17_000), launches).run()
        _with_a_hub(backend, launches)
    launched = {kernel for operation in launches.operations for kernel in operation.launches}
    assert set(MODELS) <= launched
    needed = {
        launch["kernel"]
        for operation in launches.operations
        for launch in operation.profiled
        if (launch["needed"] or 0.0) > 0.0
    }
    assert needed == set(MODELS)


def _with_a_hub(backend: Backend, launches: Launches) -> None:
    """What happens in a larger graph: rows of several chunks, and searches from a few vertices."""
    vertices = 4_096
    spokes = np.arange(vertices)
    engine = Engine(Options(), backend)
    graph = engine.internals.graph

    def loaded() -> None:
        engine.apply(EdgeBatch(spokes, np.zeros_like(spokes)))
        engine.update("auto")

    def work(_: Any) -> None:
        number = batch.pop()
        engine.apply(EdgeBatch.of(insert=[(number, 5)]))
        engine.update("dynamic-frontier-prune")
        engine.apply(EdgeBatch(spokes[1:3000], np.roll(spokes, number)[1:3000]))
        engine.update("dynamic-traversal")
        query = PersonalizedQuery(np.array([7]), k=1, target_error=1e-6)
        block = Block(engine.internals.queries, engine.resolve([query]))
        block.step()
        block.step()

    batch = [9, 8, 7]
    loaded()
    launches.run("with a hub", lambda: graph, lambda: None, work)
    assert set(launches.operations[-1].launches) >= HUB_KERNELS
