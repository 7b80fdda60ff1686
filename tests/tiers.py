"""Which tests run when. All of it is said here, by the beginnings of their ids.

``quick``  what to run before a commit; below a minute
default    every feature, with what pip installs alone; of a test of the engine with many cases
           enough for each value of each parameter; on an emulated device one case of every other
           test, and none in shards
``deep``   the others: what is killed, cut off or recorded from real graphs, all combinations of
           parameters, more cases on an emulated device, and what needs programs that pip does not
           install

``pytest`` runs the default tier, ``pytest -m deep`` the others, and ``pytest PATH`` both. On
backends that emulate a device a test with many cases runs a sample of them in both together, and of
random graphs a test of the engine runs those of a few seeds; ``--all`` runs every case, and longer
streams.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

QUICK = (
    "tests/test_structure.py",
    "tests/test_project.py",
    "tests/gpu/pagerank/test_ranks.py",
    "tests/liverank/test_in_process.py",
    "tests/service/formats/test_decode.py",
    "tests/service/formats/test_edge",
    "tests/service/formats/test_times.py",
    "tests/service/formats/test_weights.py",
)
"""With the backend ``cpu`` alone."""

PROGRAMS = {
    "browser": ("tests/service/http/test_dashboard",),
    "proxy": ("tests/liverank/sources/test_replicas.py",),
    "brokers": (
        "tests/crash/test_sources.py",
        "tests/liverank/sources/test_brokers.py::test_rabbitmq_",
        "tests/liverank/sources/test_brokers.py::test_redis_",
        "tests/liverank/sources/test_brokers.py::test_the_commands_of_the_page",
        "tests/liverank/sources/test_failures.py",
    ),
}
"""Tests of what needs programs that pip does not install, by their marker. They are skipped without
the programs.
"""

DEEP = (
    *(prefix for prefixes in PROGRAMS.values() for prefix in prefixes),
    # what is killed, cut off or fails again and again
    "tests/crash/test_disk.py",
    "tests/crash/test_device.py::test_a_batch_that_ended_the_process_twice_is_rejected[apply",
    "tests/crash/test_simulator.py",
    "tests/gpu/sharded/test_cluster.py::test_a_frozen_shard",
    "tests/gpu/sharded/test_cut_network.py",
    "tests/gpu/sharded/test_device_memory.py::test_a_batch_is_applied",
    "tests/gpu/test_device_errors.py::test_every_error",
    "tests/liverank/sources/test_brokers.py::test_kafka_",
    "tests/service/http/test_cluster.py",
    "tests/service/http/test_shards.py::test_a_frozen_worker",
    "tests/service/http/test_shards.py::test_a_killed_worker",
    "tests/service/http/test_shards.py::test_a_worker_killed",
    "tests/service/http/test_shards.py::test_edges_leave_a_window",
    "tests/service/http/test_waits.py::test_sigterm_ends_a_server",
    "tests/service/storage/test_upgrade.py::test_so_they_do_in_shards",
    # thousands of bodies
    "tests/service/formats/test_arrow_readers.py::test_nothing_holds_a_body",
    "tests/service/http/test_arrow_types.py",
    "tests/service/http/test_body_memory.py",
    # real graphs, and shards in processes of their own
    "tests/golden/test_golden.py::test_nothing_has_changed_since_it_was_recorded[shards]",
    "tests/gpu/personalized/test_many.py::test_it_does_on_real_graphs_too",
    "tests/gpu/personalized/test_many.py::test_the_default_costs",
    "tests/gpu/sharded/test_suite.py::test_two_workers",
    "tests/service/formats/test_real_edge_files.py",
    # a minute of NVRTC; in the default tier it compiles the small files
    "tests/kernels/test_compile.py::test_a_compiler_that_takes_too_much_is_ended[-d 120000",
    *(
        f"tests/kernels/test_compile.py::test_kernels_compile_and_keep_their_variables_in_registers[{file}"
        for file in (
            *("batch", "fused-sm", "multivector-sm", "perturb-sm", "published-sm", "push-sm"),
            *("rebuild-sm", "rounds-sm", "sweep-sm", "triangles", "weighted"),
        )
    ),
    "tests/kernels/test_compile.py::test_programs_compile[components",
    "tests/kernels/test_compile.py::test_programs_compile[pagerank",
    "tests/kernels/test_compile.py::test_the_kernels_of_the_benchmarks",
    # what benchmarks measure, and the papers' kernels, which the emulator compiles
    "tests/benchmarks/test_device_memory.py",
    "tests/benchmarks/test_papers.py::test_a_kernel_that_selects",
    "tests/benchmarks/test_papers.py::test_each_way_of_dividing",
    # long streams, and what waits
    "tests/gpu/graph/test_dynamic_graph.py::test_a_batch_that_is_applied_at_once_leaves_what_a_planned_one_does[self-loop-kept-False",
    "tests/gpu/graph/test_dynamic_graph.py::test_a_batch_that_is_applied_at_once_leaves_what_a_planned_one_does[self-loop-none",
    "tests/gpu/graph/test_dynamic_graph.py::test_a_batch_that_is_applied_at_once_leaves_what_a_planned_one_does[uniform",
    "tests/gpu/generate/test_degrees.py::test_exponents_are_those",
    "tests/gpu/graph/test_pages.py::test_a_warm_up_builds_pages_that_follow_a_batch[True",
    "tests/gpu/pagerank/test_paged_sweeps.py::test_errors_are_within_their_bounds_through_a_stream[options0",
    "tests/gpu/pagerank/test_paged_sweeps.py::test_errors_are_within_their_bounds_through_a_stream[options1",
    "tests/gpu/pagerank/test_paged_sweeps.py::test_errors_are_within_their_bounds_through_a_stream[options2",
    "tests/gpu/pagerank/test_paged_sweeps.py::test_errors_are_within_their_bounds_through_a_stream[options3",
    "tests/gpu/pagerank/test_paged_sweeps.py::test_queries_do_not_change_a_bit_of_later_solves[False",
    "tests/gpu/sharded/test_device_memory.py::test_so_is_one_that_is_a_large_part_of_the_graph[True",
    "tests/gpu/sharded/test_pages.py::test_errors_are_within_their_bounds_through_a_stream[options1",
    "tests/gpu/sharded/test_pages.py::test_errors_are_within_their_bounds_through_a_stream[options2",
    "tests/gpu/sharded/test_views.py::test_views_stay_within_their_bounds[cpu-undirected",
    "tests/liverank/test_mcp.py::test_a_server_that_is_away",
    "tests/liverank/test_mcp.py::test_half_sent_heads",
    "tests/service/http/test_changes.py::test_a_subscriber_that_falls_behind",
    "tests/service/http/test_counted_edges.py::test_a_stream_of_weights_given_and_taken_is_that_of_a_dictionary_after_restarts[True",
    "tests/service/http/test_replace.py::test_a_stream_of_lists_is_that_of_a_dictionary_after_restarts[True",
    "tests/service/http/test_resumed_analyses.py::test_an_analysis_begins_again",
    "tests/service/pipeline/test_shard_windows.py::test_a_random_stream_is_that_of_one_device[event",
    "tests/service/pipeline/test_shard_windows.py::test_a_random_stream_is_that_of_one_device[wall",
    "tests/service/pipeline/test_shards.py::test_a_shard_lost_while_its_graph_is_opened_is_no_error[apply",
    "tests/service/pipeline/test_shards.py::test_a_shard_lost_while_its_graph_is_opened_is_no_error[update",
    "tests/service/pipeline/test_shards.py::test_a_shard_lost_while_its_graph_is_opened_is_no_error[values",
    "tests/service/pipeline/test_forgotten_vertices.py::test_vertices_leave_with_their_last_edge[1",
    "tests/service/pipeline/test_forgotten_vertices.py::test_vertices_leave_with_their_last_edge[2",
    "tests/gpu/graph/test_resolve.py::test_shards_have",
    "tests/gpu/sharded/test_large_batches.py::test_a_stream",
    # environments, compilers and sites that are built
    "tests/docs/test_notebooks.py::test_a_notebook_runs[live",
    "tests/docs/test_notebooks.py::test_a_notebook_runs[retrieval",
    "tests/docs/test_site.py::test_every_link_leads",
    "tests/docs/test_site.py::test_no_link_is_called",
    "tests/docs/test_site.py::test_nothing_is_loaded",
    "tests/docs/test_site.py::test_what_users_search",
    "tests/gpu/programs/test_compiled_programs.py::test_a_folder_that_others",
    "tests/gpu/programs/test_compiled_programs.py::test_a_program_is_compiled_once",
    "tests/liverank/test_networkx_backend.py::test_the_tests_of_networkx_pass",
    "tests/liverank/test_wheel.py",
    "tests/service/http/test_openapi.py::test_a_python_client",
    "tests/service/http/test_openapi.py::test_a_typescript",
    "tests/service/http/test_openapi.py::test_typescript",
    "tests/service/http/test_versions.py",
)

EMULATED = ("emulated", "shuffled")
"""Backends whose kernels are compiled for the CPU by g++, and which take most of the time."""

IN_SHARDS = " in shards"
"""At the end of the name of a backend: engines are in shards, each on that backend."""

MANY_CASES = 4
"""If a test of the engine has at least so many cases, the default tier on ``cpu`` runs only some of
them, enough for each value of each parameter, and deep runs the others. On an emulated device both
tiers together run a sixteenth of the cases if there are more, and of every test of programs; else
enough for each value.
"""


FEW_SEEDS, SEEDS = 6, frozenset((1, 4, 5, 6, 7, 10, 14, 15, 23, 29))
"""Of a test of the engine with more values of a parameter ``seed``, these are run: what streams
choose by it (weights, directions, loops, numbers of shards, methods: residues modulo 2 to 4, and
quotients) has every value among them.
"""


def mark(items: Sequence[pytest.Item]) -> None:
    """Gives each test the markers of its tiers."""
    chosen = set(items) - _of_other_seeds(items)
    alone = {item for item in chosen if not _is_in_shards(item)}
    first = _every_other(_cases(alone, emulated=True))
    on_cpu = _cases(chosen, emulated=False).values()
    combined = {
        case
        for cases in on_cpu
        if len(cases) >= MANY_CASES
        for case in set(cases).difference(_covering(cases))
    }
    for item in items:
        is_emulated = _is_emulated(item)
        if item.nodeid.startswith(QUICK) and not is_emulated and "[reference" not in item.nodeid:
            item.add_marker("quick")
        for marker, prefixes in PROGRAMS.items():
            if item.nodeid.startswith(prefixes):
                item.add_marker(marker)
        if is_emulated:
            item.add_marker("compiler")
        is_one_of_many = hasattr(item, "callspec") and item not in first
        is_left_out = is_emulated and (is_one_of_many or _is_in_shards(item))
        if item.nodeid.startswith(DEEP) or item in combined or is_left_out:
            item.add_marker("deep")


def is_needed(path: Path, root: Path, marker_expression: str) -> bool:
    """Whether a file may have tests of the tier that is asked for: others are not imported."""
    name = path.relative_to(root).as_posix()
    if marker_expression == "quick":
        return name.startswith(tuple(prefix.split("::")[0] for prefix in QUICK))
    if marker_expression == "deep":
        files = tuple(prefix.split("::")[0] for prefix in DEEP)
        return name.startswith(("tests/gpu/", *files))
    return bool(marker_expression) or not name.startswith(
        tuple(prefix for prefix in DEEP if "::" not in prefix)
    )


def beyond_the_sample(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """The cases that run with ``--all`` alone."""
    others = _of_other_seeds(items)
    return others | {
        case
        for cases in _cases(set(items) - others, emulated=True).values()
        for case in set(cases).difference(_sample(cases))
    }


def _of_other_seeds(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The cases with seeds that are not run: see SEEDS."""
    cases = defaultdict[str, dict[pytest.Item, Any]](dict)
    for item in items:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        if item.nodeid.startswith("tests/gpu") and "seed" in given:
            cases[item.nodeid.split("[")[0]][item] = given["seed"]
    return {
        item
        for seeds in cases.values()
        if len(set(seeds.values())) > FEW_SEEDS
        for item, seed in seeds.items()
        if seed not in SEEDS
    }


def _is_emulated(item: pytest.Item) -> bool:
    return item.nodeid.startswith("tests/gpu") and any(name in item.nodeid for name in EMULATED)


def _is_in_shards(item: pytest.Item) -> bool:
    return item.nodeid.startswith("tests/gpu/sharded") or IN_SHARDS in item.nodeid


def _cases(items: Iterable[pytest.Item], emulated: bool) -> dict[str, list[pytest.Function]]:
    """The cases of each test of the engine that has several, on emulated devices or on others, by
    its id without them.
    """
    cases = defaultdict[str, list[pytest.Function]](list)
    for item in items:
        of_engine = item.nodeid.startswith("tests/gpu") and _is_emulated(item) == emulated
        if of_engine and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            cases[item.nodeid.split("[")[0]].append(item)
    return cases


def _every_other(tests: dict[str, list[pytest.Function]]) -> set[pytest.Function]:
    """One case of every other test of each file."""
    of_files = defaultdict[str, list[pytest.Function]](list)
    for test, cases in tests.items():
        of_files[test.split("::")[0]].append(min(_sample(cases), key=_number))
    return {case for cases in of_files.values() for case in sorted(cases, key=_number)[::2]}


def _number(case: pytest.Item) -> int:
    """By which cases are chosen: the same in each run."""
    return crc32(case.nodeid.encode())


def _sample(cases: list[pytest.Function]) -> list[pytest.Function]:
    """The cases of one test that are run."""
    compiles = cases[0].nodeid.startswith("tests/gpu/programs")  # C++, for seconds a case
    if compiles or len(cases) > MANY_CASES:
        return sorted(cases, key=_number)[: -(-len(cases) // 16)]
    return _covering(cases)


def _covering(cases: list[pytest.Function]) -> list[pytest.Function]:
    """Enough of them for each value of each parameter."""
    rest = sorted(cases, key=_number)
    values = {
        case: {(name, repr(value)) for name, value in case.callspec.params.items()} for case in rest
    }
    chosen: list[pytest.Function] = []
    while uncovered := set().union(*values.values()).difference(*(values[case] for case in chosen)):
        chosen.append(max(rest, key=lambda case: len(values[case] & uncovered)))
    return chosen
