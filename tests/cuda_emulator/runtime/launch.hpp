// The runtime's interface to the harness.
#pragma once

#include <cstdint>

#include "cuda_on_cpu/launch.hpp"
#include "cuda_on_cpu/machine.hpp"
#include "fault.hpp"
#include "guarded.hpp"

namespace cuda_on_cpu {

struct Shape {
    uint3 grid, block;
    std::uint64_t shared_bytes; // dynamic shared memory of a block
    std::uint64_t seed;         // 0: threads and blocks run in order; others: permuted and interleaved by it
};

extern const GuardedArrays* running_arrays;

// Runs a kernel to its end on the calling thread, one launch at a time in the process. Returns false, with `out` filled and
// no array changed, if the kernel is at fault.
extern "C" bool cuda_on_cpu_launch(const Library* library, const Kernel* kernel, const Shape* shape,
                                   const Arguments* arguments, Fault* out);

} // namespace cuda_on_cpu
