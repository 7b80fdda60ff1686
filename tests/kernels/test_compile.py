"""Without a GPU: kernels compile for every architecture and keep their variables in registers."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks import kim, sahu_programs
from liverank_gpu.backends.compiling import run_compiler
from liverank_gpu.backends.cuda.kernels import loader
from liverank_gpu.backends.cuda.kernels.binaries import OPTIONS, compile_apart, compile_source
from liverank_gpu.backends.cuda.kernels.parameters import KERNEL, parameters_of
from liverank_gpu.backends.cuda.programs import Unit, program_kernels, program_source
from liverank_gpu.errors import BackendUnavailable
from liverank_gpu.operations.programs import VertexProgram
from liverank_gpu.programs.algorithms import COMPONENTS, PAGERANK, PATHS
from tests.cuda_emulator.harness import missing

TUNED = ("sm_80", "sm_90", "sm_100")
"""Those whose kernels keep everything in registers."""
ARCHITECTURES = (*TUNED, "sm_120")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Compiles each file for one architecture in turn; with ``--all`` for all of them."""
    if {"file", "architecture"} <= set(metafunc.fixturenames):
        everything = metafunc.config.getoption("--all")
        cases = [
            (file, architecture)
            for number, file in enumerate(loader.units())
            for architecture in (ARCHITECTURES if everything else (TUNED[number % len(TUNED)],))
        ]
        ids = [
            f"weighted-{file}-{architecture}" if file.endswith("_weighted") else None
            for file, architecture in cases
        ]
        metafunc.parametrize(("file", "architecture"), cases, ids=ids)


@dataclass(frozen=True, slots=True)
class Usage:
    """What ptxas reports for one kernel; the last three in bytes a thread."""

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int


_USAGE = re.compile(
    r"Function properties for (?P<kernel>\S+)\s+"
    r"ptxas\s+\.?\s*(?P<stack>\d+) bytes stack frame, "
    r"(?P<spill_stores>\d+) bytes spill stores, (?P<spill_loads>\d+) bytes spill loads\s+"
    r"ptxas info\s+: Used (?P<registers>\d+) registers"
)


class Nvrtc:
    """The compiler, which also reports what each kernel uses."""

    def usage(
        self, source: str, file: str, expressions: tuple[str, ...], architecture: str
    ) -> dict[str, Usage]:
        """What each kernel uses, by name expression. Errors and warnings fail the test."""
        options = (*OPTIONS, "--ptxas-options=-v")
        try:
            compiled = compile_source(file, source, expressions, architecture, options)
        except RuntimeError as error:
            pytest.fail(str(error))
        if "warning" in compiled.log:
            pytest.fail(f"{file}.cu for {architecture}:\n{compiled.log}")
        found = {
            usage["kernel"]: Usage(
                *(
                    int(usage[field])
                    for field in ("registers", "stack", "spill_stores", "spill_loads")
                )
            )
            for usage in _USAGE.finditer(compiled.log)
        }
        return {expression: found[name] for expression, name in compiled.names.items()}


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    try:
        compile_source("empty", "", (), "sm_90", OPTIONS)
    except BackendUnavailable as error:
        missing(f"NVRTC is not available: {error}")
    return Nvrtc()


def test_kernels_compile_and_keep_their_variables_in_registers(
    nvrtc: Nvrtc, file: str, architecture: str
) -> None:
    source, kernels = loader.source(file), loader.kernels(file)
    usages = nvrtc.usage(source + _layouts(source, kernels), file, kernels, architecture)
    if architecture not in TUNED:
        return
    for expression, usage in usages.items():
        print(f"{architecture} {file}.cu {expression}: {usage.registers} registers")
    in_memory = {
        expression: usage
        for expression, usage in usages.items()
        if usage.stack or usage.spill_stores or usage.spill_loads
    }
    assert in_memory == {}


_LAYOUT = """
template <class Function> struct LayoutOf;
template <class... Types> struct LayoutOf<void (*)(Types...)> {
    __device__ static constexpr bool is(const int (&begins)[sizeof...(Types)], int size) {
        constexpr int sizes[] = {sizeof(Types)...}, alignments[] = {alignof(Types)...};
        int end = 0;
        for (int at = 0; at < sizeof...(Types); ++at) {
            const int alignment = alignments[at];
            const int begin = (end + alignment - 1) / alignment * alignment;
            if (begin != begins[at]) return false;
            end = begin + sizes[at];
        }
        return end == size;
    }
};
"""


def _layouts(source: str, expressions: tuple[str, ...]) -> str:
    """Assertions that the compiler lays out parameters, and the structs among them, as a launch
    does.
    """
    lines = [_LAYOUT]
    types = {
        kernel["name"]: [
            each.replace("const ", "").split()[0] for each in kernel["parameters"].split(",")
        ]
        for kernel in KERNEL.finditer(source)
    }
    for expression, declared in parameters_of(source, expressions).items():
        offsets = ", ".join(map(str, declared.offsets))
        layout = f"LayoutOf<decltype(&{expression})>::is({{{offsets}}}, {declared.size})"
        lines.append(f'static_assert({layout}, "{expression}");')
        for member in declared.members:
            at, (_, _, path) = member.place[0], member.name.partition(".")
            if path:
                kind, offset = types[declared.kernel][at], member.offset - declared.offsets[at]
                same = f"__INTADDR__(&((({kind}*)0)->{path})) == {offset}"
                lines.append(f'static_assert({same}, "{expression}: {member.name}");')
    return "\n".join(lines)


def test_a_kernel_that_synchronises_all_blocks_is_launched_so() -> None:
    source = """
__global__ void alone(int n) { if (n > 0) { n = 1; } }
__global__ void together(int n) { cooperative_groups::this_grid().sync(); }
"""
    found = parameters_of(source, ("alone", "together"))
    assert [each.cooperative for each in found.values()] == [False, True]


def test_the_kernels_of_the_benchmarks_compile(nvrtc: Nvrtc) -> None:
    assert nvrtc.usage(kim.SOURCE.read_text("utf-8"), "kim", kim.NAMES, "sm_90")
    text, names = sahu_programs.selecting_text(), sahu_programs.SELECTING
    assert nvrtc.usage(text, "dont_partition", names, "sm_90")


@pytest.mark.parametrize(
    ("program", "unit"),
    [(COMPONENTS, "window"), (PAGERANK, "vertices"), (PATHS, "vertices")],
    ids=lambda each: getattr(each, "name", each),
)
def test_programs_compile(nvrtc: Nvrtc, program: VertexProgram, unit: Unit) -> None:
    source, kernels = program_source(program, True, unit), program_kernels(program, unit)
    source += _layouts(source, kernels)
    for usage in nvrtc.usage(source, program.name, kernels, "sm_90").values():
        assert usage.stack == usage.spill_stores == usage.spill_loads == 0


@pytest.mark.parametrize("architecture", TUNED)
def test_variables_that_do_not_fit_into_registers_are_reported(
    nvrtc: Nvrtc, architecture: str
) -> None:
    source = """
    template <int COUNT>
    __global__ void __launch_bounds__(1024, 2) squares(const double* in, double* out) {
        double kept[COUNT];
        for (int at = 0; at < COUNT; ++at) kept[at] = in[at * 32 + threadIdx.x];
        __syncthreads();
        for (int at = 0; at < COUNT; ++at) out[at * 32 + threadIdx.x] = kept[at] * kept[at];
    }
    """
    usages = nvrtc.usage(source, "squares", ("squares<2>", "squares<48>"), architecture)
    assert usages["squares<2>"].stack == usages["squares<2>"].spill_stores == 0
    assert usages["squares<48>"].stack > 0
    assert usages["squares<48>"].spill_stores > 0


def test_a_kernel_that_does_not_compile_fails_with_the_compilers_message(nvrtc: Nvrtc) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"broken\.cu\(1\): error"):
        nvrtc.usage(
            "__global__ void broken(int* out) { *out = absent; }", "broken", ("broken",), "sm_90"
        )


@pytest.mark.usefixtures("nvrtc")
def test_a_process_of_its_own_compiles_the_same_code() -> None:
    source = "template <class T> __global__ void twice(T* out) { out[threadIdx.x] *= 2; }"
    asked = ("own", source, ("twice<int>", "twice<double>"), "sm_90")
    assert compile_apart(*asked) == compile_source(*asked, OPTIONS)
    with pytest.raises(RuntimeError, match=r"(?s)broken\.cu does not compile .* error: .*absent"):
        compile_apart("broken", "__global__ void f() { absent(); }", ("f",), "sm_90")


_LARGE = """
template <int DEPTH> __device__ double twice(double x) {
    if constexpr (DEPTH == 0) return x * 1.5 + 1;
    else return twice<DEPTH - 1>(x) * twice<DEPTH - 1>(x + DEPTH);
}
__global__ void large(double* out) { *out = twice<24>(*out); }
"""
"""Takes NVRTC minutes and about a GB."""


@pytest.mark.parametrize("limit", ["-t 1", "-d 60000", "-d 120000"])
@pytest.mark.usefixtures("nvrtc")
def test_a_compiler_that_takes_too_much_is_ended(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nulimit {limit}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(BackendUnavailable, match="large was not compiled within 300 s and 4 GiB"):
        compile_apart("large", _LARGE, ("large",), "sm_90")


def test_a_compiler_that_waits_is_ended() -> None:
    begun = time.monotonic()
    with pytest.raises(BackendUnavailable, match=r"own was not compiled within 0\.2 s"):
        run_compiler("cuda", "own", ["sleep", "1000"], {}, seconds=0.2)
    assert time.monotonic() - begun < 60
