"""The harness runs CUDA kernels correctly, and finds the faults planted here."""

from __future__ import annotations

import fcntl
import shutil
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from tests.cuda_emulator.harness import (
    CACHE,
    CompiledKernel,
    CpuLoader,
    KernelFault,
    require_compiler,
    runtime_library,
)

Order = Literal["forward", "shuffled"]
Load = Callable[[str], CompiledKernel]

WORKING = r"""
constexpr int BLOCK = 128;

__global__ void block_sums(const double* values, double* sums) {
    __shared__ double tree[BLOCK];
    const int thread = threadIdx.x;
    tree[thread] = values[blockIdx.x * BLOCK + thread];
    __syncthreads();
    for (int step = BLOCK / 2; step > 0; step /= 2) {
        if (thread < step) tree[thread] += tree[thread + step];
        __syncthreads();
    }
    if (thread == 0) sums[blockIdx.x] = tree[0];
}

struct Counted {
    const float* values;
    int counts[2];  // how often each value is taken
};
struct Sums {
    double scale;
    Counted counted;
    double* out;
    bool writes;
};

__global__ void structs(int first, Sums sums, unsigned char last) {
    if (!sums.writes) return;
    const Counted& each = sums.counted;
    const float sum = each.values[0] * each.counts[0] + each.values[1] * each.counts[1];
    sums.out[first + threadIdx.x] = sums.scale * sum + last;
}

__global__ void scalars(
    double real, float single, long long wide, unsigned char small, bool flag,
    const int* nothing, double* out) {
    out[0] = real;
    out[1] = single;
    out[2] = wide;
    out[3] = small;
    out[4] = flag;
    out[5] = nothing == nullptr;
}
"""
WORKING_NAMES = ("block_sums", "scalars", "structs")

FAULTY = r"""
#include <cooperative_groups.h>

__global__ void sum_without_barrier(const double* values, double* sum) {
    __shared__ double kept[64];
    kept[threadIdx.x] = values[threadIdx.x];
    if (threadIdx.x == 0) {
        double total = 0.0;
        for (int at = 0; at < 64; ++at) total += kept[at];
        *sum = total;
    }
}

__global__ void reversed_scan_without_barrier(int* values) {
    __shared__ int kept[64];
    kept[threadIdx.x] = values[threadIdx.x];
    values[threadIdx.x] = threadIdx.x > 0 ? kept[threadIdx.x - 1] : 0;
}

__device__ double sum_of_warps(double value) {
    __shared__ double warps[8];
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    double sum = 0.0;
    for (int warp = 0; warp < 8; ++warp) sum += warps[warp];
    return sum;
}

__global__ void sums_without_barrier_between(const double* values, double* sums) {
    const double first = sum_of_warps(values[threadIdx.x]);
    const double second = sum_of_warps(10.0 * values[threadIdx.x]);
    if (threadIdx.x % 32 == 0) {
        sums[threadIdx.x / 32] = first;
        sums[threadIdx.x / 32 + 8] = second;
    }
}

__global__ void add_without_atomic(int* count, int* order) {
    const int before = *count;
    atomicAdd(order, 1);
    *count = before + 1;
}

__global__ void half_a_barrier(int* out) {
    if (threadIdx.x < 32) __syncthreads();
    out[threadIdx.x] = 1;
}

__global__ void two_barriers(int* out) {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}

__global__ void half_a_warp(int* out) {
    constexpr unsigned all = 0xffffffffu;
    out[threadIdx.x] = threadIdx.x % 2 ? __shfl_sync(all, 1, 0) : __any_sync(all, 1);
}

__global__ void foreign_mask(int* out) { out[threadIdx.x] = __shfl_sync(0x0000ffffu, 1, 0); }

__global__ void half_a_grid(int* out) {
    if (blockIdx.x == 0) cooperative_groups::this_grid().sync();
    out[0] = 1;
}

__global__ void write_at(int* out, const int* in, int at) { out[at] = in[0]; }
__global__ void read_at(int* out, const int* in, int at) { out[0] = in[at]; }

__global__ void shared_at(int* out, int at) {
    __shared__ int kept[8];
    kept[at] = 1;
    out[0] = kept[at];
}

__global__ void dynamic_at(int* out, int at) {
    extern __shared__ int kept[];
    kept[at] = 1;
    out[0] = kept[at];
}

__global__ void unwritten(double* out) {
    __shared__ double kept[2];
    out[0] = kept[threadIdx.x];
}

__global__ void overflow(int* out, int value) { out[0] = value + 1; }

__global__ void spin(int* flag) {
    while (atomicAdd(flag, 0) == 0) {}
}

// Each of two warps waits for the other one.
__global__ void sleep_until_written(volatile int* flags) {
    const int warp = threadIdx.x / 32, other = 1 - warp;
    flags[warp] = 1;
    while (__any_sync(0xffffffffu, flags[other] == 0)) __nanosleep(10);
}
"""
FAULTY_NAMES = (
    "sum_without_barrier",
    "reversed_scan_without_barrier",
    "sums_without_barrier_between",
    "add_without_atomic",
    "half_a_barrier",
    "two_barriers",
    "half_a_warp",
    "foreign_mask",
    "half_a_grid",
    "write_at",
    "read_at",
    "shared_at",
    "dynamic_at",
    "unwritten",
    "overflow",
    "spin",
    "sleep_until_written",
)


def _loader(order: Order, seed: int = 1) -> CpuLoader:
    require_compiler()
    return CpuLoader(
        order,
        seed,
        source={"working": WORKING, "faulty": FAULTY}.__getitem__,
        names={"working": WORKING_NAMES, "faulty": FAULTY_NAMES}.__getitem__,
    )


@pytest.fixture(params=["forward", "shuffled"])
def working(request: pytest.FixtureRequest) -> Load:
    return _loader(request.param)("working")


@pytest.fixture
def faulty() -> Load:
    return _loader("forward")("faulty")


@pytest.fixture
def faulty_shuffled() -> Load:
    return _loader("shuffled")("faulty")


def _line(text: str) -> int:
    """The line of FAULTY that holds `text`, counted from 1."""
    return next(at for at, line in enumerate(FAULTY.splitlines(), 1) if text in line)


# --- what works ---


def test_structs_arrive_with_the_arrays_that_they_point_to(working: Load) -> None:
    out, values = np.zeros(4), np.array([2.0, 0.5], np.float32)
    working("structs")((1,), (3,), (1, (10.0, (values, 3, 4), out, True), 7))
    assert out.tolist() == [0.0, 87.0, 87.0, 87.0]
    with pytest.raises(KernelFault, match="element 4 of argument 5, which has 4 elements"):
        working("structs")((1,), (4,), (1, (10.0, (values, 3, 4), out, True), 7))
    with pytest.raises(TypeError, match="takes 3 arguments with 8 values, got 3 with 8"):
        working("structs")((1,), (3,), (1, (10.0, (values, 3), 4, out, True), 7))
    with pytest.raises(TypeError, match="argument 3 must be int32, got float"):
        working("structs")((1,), (3,), (1, (10.0, (values, 3.0, 4), out, True), 7))


def test_a_block_sums_by_barriers_and_static_shared_memory(working: Load) -> None:
    values = np.random.default_rng(2).integers(0, 100, 5 * 128).astype(np.float64)
    sums = np.zeros(5)
    working("block_sums")((5,), (128,), (values, sums))
    assert sums.tolist() == values.reshape(5, 128).sum(1).tolist()


def test_scalars_of_every_width_and_null_pointers_arrive(working: Load) -> None:
    out = np.zeros(6)
    arguments = (np.float64(0.1), np.float32(0.5), np.int64(2**40), np.uint8(200), np.bool_(True))
    working("scalars")((1,), (1,), (*arguments, None, out))
    assert out.tolist() == [0.1, 0.5, 2.0**40, 200.0, 1.0, 1.0]


def test_arrays_that_overlap_stay_overlapping(faulty: Load) -> None:
    values = np.array([1, 2, 3], np.int32)
    faulty("write_at")((1,), (1,), (values[:2], values[1:], np.int32(0)))
    assert values.tolist() == [2, 2, 3]


def test_kernels_may_be_launched_from_several_threads(working: Load) -> None:
    values = np.arange(128, dtype=np.float64)
    results = [np.zeros(1) for _ in range(4)]

    def launch(result: np.ndarray[Any, Any]) -> None:
        for _ in range(20):
            working("block_sums")((1,), (128,), (values, result))

    threads = [threading.Thread(target=launch, args=(result,)) for result in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result[0] for result in results] == [values.sum()] * 4


def test_a_library_is_compiled_once_for_the_same_source(tmp_path: Path) -> None:
    require_compiler()
    shutil.copy(runtime_library(CACHE), tmp_path)  # takes two seconds
    for value in (1, 2, 1):
        text = f"__global__ void store(int* out) {{ *out = {value}; }}"
        load = CpuLoader(
            source={"store": text}.__getitem__, names=lambda _: ("store",), cache=tmp_path
        )
        out = np.zeros(1, np.int32)
        load("store")("store")((1,), (1,), (out,))
        assert out[0] == value
    libraries = list(tmp_path.glob("store-*.so"))
    assert len(libraries) == 2
    for library in libraries:
        library.unlink()
    with ExitStack() as another:  # process, which compiles them
        for lock in tmp_path.glob("store-*.lock"):
            fcntl.flock(another.enter_context(lock.open()), fcntl.LOCK_EX)
        load.prepare("store")
        assert list(tmp_path.glob("store-*.so")) == []
    load.prepare("store")
    assert len(list(tmp_path.glob("store-*.so"))) == 1


# --- planted faults ---


def test_a_missing_barrier_gives_a_wrong_sum(faulty: Load, faulty_shuffled: Load) -> None:
    for load in (faulty, faulty_shuffled):
        total = np.zeros(1)
        load("sum_without_barrier")((1,), (64,), (np.ones(64), total))
        assert total[0] != 64.0


def test_a_missing_barrier_that_forward_order_hides_shows_in_shuffled_order(
    faulty: Load, faulty_shuffled: Load
) -> None:
    right = [0, *range(63)]
    values = np.arange(64, dtype=np.int32)
    faulty("reversed_scan_without_barrier")((1,), (64,), (values,))
    assert values.tolist() == right
    values = np.arange(64, dtype=np.int32)
    faulty_shuffled("reversed_scan_without_barrier")((1,), (64,), (values,))
    assert values.tolist() != right


def test_a_warp_that_overtakes_the_readers_of_shared_memory_shows_in_shuffled_order(
    faulty: Load, faulty_shuffled: Load
) -> None:
    right = [256.0] * 8 + [2560.0] * 8

    def outcome(load: Load) -> list[float]:
        sums = np.zeros(16)
        load("sums_without_barrier_between")((1,), (256,), (np.ones(256), sums))
        return [float(total) for total in sums]

    assert outcome(faulty) == right
    # half of the launches let warps run ahead
    assert sum(outcome(faulty_shuffled) != right for _ in range(20)) >= 5


def test_an_update_that_is_not_atomic_loses_counts_in_shuffled_order(faulty_shuffled: Load) -> None:
    count, order = np.zeros(1, np.int32), np.zeros(1, np.int32)
    faulty_shuffled("add_without_atomic")((1,), (64,), (count, order))
    assert order[0] == 64
    assert count[0] < 64


def test_shuffled_order_is_the_same_for_the_same_seed() -> None:
    def lost(seed: int) -> list[int]:
        kernel = _loader("shuffled", seed)("faulty")("add_without_atomic")
        counts = [np.zeros(2, np.int32) for _ in range(8)]
        for count in counts:
            kernel((2,), (64,), (count[:1], count[1:]))
        return [int(count[0]) for count in counts]

    assert lost(5) == lost(5)
    assert len(set(lost(5))) > 1, "each launch has its own order"
    assert lost(5) != lost(6)


@pytest.mark.parametrize("order", ["forward", "shuffled"])
def test_a_divergent_barrier_is_reported_with_the_kernels_name(order: Order) -> None:
    kernel = _loader(order)("faulty")("half_a_barrier")
    line = _line("x < 32) __sync")
    out = np.zeros(64, np.int32)
    with pytest.raises(
        KernelFault,
        match=r"^half_a_barrier: divergent barrier: of the 64 threads of block \([01], 0, 0\), "
        rf"32 exited and the others wait: 32 in __syncthreads\(\) at \S*faulty\.cu:{line}",
    ):
        kernel((2,), (64,), (out,))
    assert not out.any()


def _ints(count: int) -> np.ndarray[Any, Any]:
    return np.zeros(count, np.int32)


_MEET = r"two_barriers: divergent barrier: threads of a block meet in __syncthreads\(\) at "
FAULTS: list[tuple[str, int, int, tuple[Any, ...], str]] = [
    (
        *("two_barriers", 1, 64, (_ints(64),)),
        rf"{_MEET}\S*faulty\.cu:{_line('else') - 1} and at \S*faulty\.cu:{_line('else') + 1}",
    ),
    (
        *("half_a_warp", 1, 32, (_ints(32),)),
        r"0 exited and the others wait: 16 in __any_sync\(\).*16 in __shfl_sync\(\)",
    ),
    ("foreign_mask", 1, 32, (_ints(32),), "lane 16 is not in its own mask 0x0000ffff, in block"),
    (
        *("half_a_grid", 3, 32, (_ints(1),)),
        r"half_a_grid: divergent barrier: of the 3 blocks, 1 wait in grid.sync\(\)",
    ),
    (
        *("write_at", 1, 1, (_ints(5), _ints(5) + 1, np.int32(-1))),
        "write_at: wrote just before the beginning of argument 0",
    ),
    (
        *("read_at", 1, 1, (_ints(1), _ints(0), np.int32(0))),
        "element 0 of argument 1, which has 0 elements",
    ),
    (
        *("read_at", 1, 1, (_ints(1), None, np.int32(0))),
        r"null or misaligned pointer.* at \S*faulty\.cu:",
    ),
    (
        *("shared_at", 1, 1, (_ints(1), np.int32(8))),
        r"shared_at: out of bounds at \S*faulty\.cu:\d+: index 8 of an array",
    ),
    (
        *("overflow", 1, 1, (_ints(1), np.int32(2**31 - 1))),
        r"overflow: signed addition overflows at \S*faulty\.cu:",
    ),
    ("spin", 1, 2, (_ints(1),), "spin: yielded 10000000 times: it spins"),
]


@pytest.mark.parametrize(("name", "grid", "block", "arguments", "message"), FAULTS)
def test_a_fault_is_told(
    name: str, grid: int, block: int, arguments: tuple[Any, ...], message: str
) -> None:
    load = _loader("shuffled" if name == "spin" else "forward")("faulty")
    with pytest.raises(KernelFault, match=message):
        load(name)((grid,), (block,), arguments)
    assert not arguments[0].any()


@pytest.mark.parametrize("at", [5, 1000, -70000])
@pytest.mark.parametrize(
    ("name", "argument", "line"), [("write_at", 0, "out[at] ="), ("read_at", 1, "= in[at]")]
)
def test_an_access_out_of_bounds_names_argument_element_and_line(
    faulty: Load, name: str, argument: int, line: str, at: int
) -> None:
    arrays = (np.zeros(5, np.int32), np.ones(5, np.int32))
    with pytest.raises(
        KernelFault,
        match=rf"^{name}: out of bounds: element {at} of argument {argument}, which has 5 elements"
        rf" at faulty\.cu:{_line(line)}, in block \(0, 0, 0\), thread \(0, 0, 0\)$",
    ):
        faulty(name)((1,), (1,), (*arrays, np.int32(at)))
    assert not arrays[0].any()


def test_an_access_beyond_the_dynamic_shared_memory_is_reported(faulty: Load) -> None:
    out = np.zeros(1, np.int32)
    faulty("dynamic_at")((1,), (1,), (out, np.int32(7)), shared_mem=32)
    assert out[0] == 1
    with pytest.raises(KernelFault, match=r"dynamic_at: access to address .* at faulty\.cu:"):
        faulty("dynamic_at")((1,), (1,), (out, np.int32(8)), shared_mem=32)


def test_shared_memory_is_garbage_until_written(faulty: Load) -> None:
    out = np.zeros(1)
    faulty("unwritten")((1,), (1,), (out,))
    assert np.isnan(out[0])


def test_a_warp_that_sleeps_lets_the_other_one_run(faulty_shuffled: Load) -> None:
    for _ in range(20):  # in some launches a warp runs ahead
        flags = np.zeros(2, np.int32)
        faulty_shuffled("sleep_until_written")((1,), (64,), (flags,))
        assert flags.tolist() == [1, 1]


def test_a_launch_after_a_fault_is_sound(faulty: Load, working: Load) -> None:
    for name in ("half_a_barrier", "two_barriers", "half_a_warp"):
        with pytest.raises(KernelFault):
            faulty(name)((1,), (64,), (np.zeros(64, np.int32),))
        test_a_block_sums_by_barriers_and_static_shared_memory(working)


# --- launches that are rejected ---

_OUT, _IN, _AT = np.zeros(3, np.int32), np.zeros(3, np.int32), np.int32(0)
_READ_ONLY = np.zeros(3, np.int32)
_READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((_OUT, _IN), "write_at takes 3 arguments with 3 values, got 2 with 2"),
        ((_OUT, _IN, 2**31), "write_at: argument 2 must be int32, got int 2147483648"),
        ((_OUT, _IN, -(2**31) - 1), "write_at: argument 2 must be int32, got int -2147483649"),
        ((_OUT, _IN, 1.0), "write_at: argument 2 must be int32, got float 1.0"),
        ((_OUT, _IN, np.True_), "write_at: argument 2 must be int32, got bool np.True_"),
        ((_OUT, _IN, None), "write_at: argument 2 must be int32, got NoneType None"),
        (
            (np.uintp(8), _IN, _AT),
            "write_at: argument 0 must be an array of int32, got uint64 np.uint64(8)",
        ),
        ((_OUT, _IN, _IN), "write_at: argument 2 must be int32, got an array of int32"),
        (
            (np.zeros(3), _IN, _AT),
            "write_at: argument 0 must be an array of int32, got an array of float64",
        ),
        (
            (_OUT, _IN[::2], _AT),
            "write_at: argument 1 must be an array of int32, got an array that is not contiguous",
        ),
        (
            (_READ_ONLY, _IN, _AT),
            "write_at: argument 0 must be an array of int32, "
            "got a read-only array, and the parameter is not const",
        ),
        (
            (np.int32(1), _IN, _AT),
            "write_at: argument 0 must be an array of int32, got int32 np.int32(1)",
        ),
    ],
)
def test_arguments_that_do_not_fit_the_parameters_are_rejected(
    faulty: Load, arguments: tuple[object, ...], message: str
) -> None:
    with pytest.raises(TypeError) as caught:
        faulty("write_at")((1,), (1,), arguments)
    assert str(caught.value) == message


def test_a_read_only_array_fits_a_const_parameter(faulty: Load) -> None:
    faulty("write_at")((1,), (1,), (np.zeros(3, np.int32), _READ_ONLY, _AT))


@pytest.mark.parametrize(
    ("grid", "block", "shared_mem", "message"),
    [
        ((0,), (1,), 0, r"write_at: grid=\(0,\) is not 1 to 3 extents from 1 to"),
        ((1, 70000), (1,), 0, r"write_at: grid=\(1, 70000\) is not"),
        ((1,), (1, 1, 65), 0, r"write_at: block=\(1, 1, 65\) is not"),
        ((1,), (32, 33), 0, r"write_at: block=\(32, 33\) has more than 1024 threads"),
        ((1,), (1,), 49153, r"write_at: shared_mem=49153 is not from 0 to 49152"),
    ],
)
def test_shapes_that_cuda_rejects_are_rejected(
    faulty: Load, grid: tuple[int, ...], block: tuple[int, ...], shared_mem: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        faulty("write_at")(grid, block, (_OUT, _IN, _AT), shared_mem=shared_mem)


def test_an_unknown_kernel_is_rejected_by_name(faulty: Load) -> None:
    with pytest.raises(KeyError, match=r"'absent' is not among faulty's kernels"):
        faulty("absent")


def test_a_kernel_that_does_not_compile_shows_the_compilers_message() -> None:
    require_compiler()
    load = CpuLoader(source=lambda _: "__global__ void broken( {}", names=lambda _: ("broken",))
    with pytest.raises(RuntimeError, match=r"broken\.cu:1:\d+: error"):
        load("broken")
