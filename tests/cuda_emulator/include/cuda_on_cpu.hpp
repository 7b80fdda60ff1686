// CUDA C++ for g++: the keywords, built-in variables and intrinsics that kernels use, so that a `.cu` file compiles unmodified.
// Included ahead of the kernels. Not modelled: weak memory, warps in lockstep, the cost of anything.
#pragma once

#include <bit>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <math.h>
#include <stdlib.h>
#include <type_traits>

#include "cuda_on_cpu/launch.hpp"
#include "cuda_on_cpu/machine.hpp"

#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __CUDA_ARCH__ 900

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
// The shared memory of a block is the thread-local segment of the kernels' library: the machine can find it, fill it with
// garbage before each block and swap it between the blocks of a cooperative grid.
#define __shared__ thread_local

#define threadIdx (::cuda_on_cpu::position->thread)
#define blockIdx (::cuda_on_cpu::position->block)
#define blockDim (::cuda_on_cpu::block_shape)
#define gridDim (::cuda_on_cpu::grid_shape)
constexpr int warpSize = ::cuda_on_cpu::warp_size;

#undef assert
#define assert(condition)                                                                       \
    ((condition) ? void() : ::cuda_on_cpu::fail("assertion failed at %s:%d: %s", __FILE__, __LINE__, #condition))

// --- vector types ---

#define CUDA_ON_CPU_VECTORS(name, type)                                                         \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                                    \
    struct alignas(4 * sizeof(type) > 16 ? 16 : 4 * sizeof(type)) name##4 { type x, y, z, w; }; \
    constexpr name##2 make_##name##2(type x, type y) { return {x, y}; }                         \
    constexpr name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
CUDA_ON_CPU_VECTORS(int, int)
CUDA_ON_CPU_VECTORS(uint, unsigned)
CUDA_ON_CPU_VECTORS(float, float)
CUDA_ON_CPU_VECTORS(double, double)
#undef CUDA_ON_CPU_VECTORS

// --- barriers of a block ---

inline void __syncthreads(cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    cuda_on_cpu::meet_block("__syncthreads()", site, false);
}
inline int __syncthreads_or(int predicate, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    return cuda_on_cpu::meet_block("__syncthreads_or()", site, predicate != 0) != 0;
}

// --- warp operations ---

namespace cuda_on_cpu {

inline unsigned lane() { return position->rank % warp_size; }

inline void nothing(const Lane*, unsigned) {}

// A lane that exited, or that the mask leaves out, has no value: its reader gets garbage, as the CUDA guide warns.
template <class T>
void shuffle(const Lane* lanes, unsigned members) {
    for (unsigned reader = 0; reader < warp_size; ++reader) {
        if (!(members >> reader & 1)) continue;
        const unsigned source = lanes[reader].source;
        if (members >> source & 1) std::memcpy(lanes[reader].taken, lanes[source].given, sizeof(T));
        else std::memset(lanes[reader].taken, 0xff, sizeof(T));
    }
}

inline void vote(const Lane* lanes, unsigned members) {
    unsigned votes = 0;
    for (unsigned member = 0; member < warp_size; ++member)
        if (members >> member & 1) votes |= unsigned(*static_cast<const bool*>(lanes[member].given)) << member;
    for (unsigned member = 0; member < warp_size; ++member)
        if (members >> member & 1) *static_cast<unsigned*>(lanes[member].taken) = votes;
}

template <class T>
T shuffled(const char* operation, Site site, unsigned mask, T value, unsigned source) {
    static_assert(std::is_trivially_copyable_v<T>);
    T result;
    meet_warp(operation, site, mask, shuffle<T>, {&value, &result, source});
    return result;
}

inline unsigned ballot(const char* operation, Site site, unsigned mask, bool value) {
    unsigned result;
    meet_warp(operation, site, mask, vote, {&value, &result, 0});
    return result;
}

inline unsigned segment(int width) { return lane() & ~(unsigned(width) - 1); }

} // namespace cuda_on_cpu

inline void __syncwarp(unsigned mask = 0xffffffffu, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    cuda_on_cpu::meet_warp("__syncwarp()", site, mask, cuda_on_cpu::nothing, {});
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    const unsigned from = cuda_on_cpu::segment(width) + (unsigned(source) & (unsigned(width) - 1));
    return cuda_on_cpu::shuffled("__shfl_sync()", site, mask, value, from);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    const unsigned lane = cuda_on_cpu::lane();
    const unsigned from = lane >= cuda_on_cpu::segment(width) + delta ? lane - delta : lane;
    return cuda_on_cpu::shuffled("__shfl_up_sync()", site, mask, value, from);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    const unsigned lane = cuda_on_cpu::lane(), other = lane ^ unsigned(lane_mask);
    const unsigned from = other < cuda_on_cpu::segment(width) + unsigned(width) ? other : lane;
    return cuda_on_cpu::shuffled("__shfl_xor_sync()", site, mask, value, from);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    return cuda_on_cpu::ballot("__ballot_sync()", site, mask, predicate != 0);
}
inline int __any_sync(unsigned mask, int predicate, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    return cuda_on_cpu::ballot("__any_sync()", site, mask, predicate != 0) != 0;
}
inline int __all_sync(unsigned mask, int predicate, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    return cuda_on_cpu::ballot("__all_sync()", site, mask, predicate == 0) == 0;
}
// The hardware chooses which lanes run together; a single lane is always a valid answer.
inline unsigned __activemask() { return 1u << cuda_on_cpu::lane(); }

// --- atomics: only one thread runs at a time, so reading and writing back is atomic ---

namespace cuda_on_cpu {
template <class T, class Change>
T change(T* address, Change&& changed) {
    interleave();
    const T before = *address;
    *address = changed(before);
    return before;
}
// Integers wrap on a GPU; in C++ only unsigned ones do.
template <class T>
T sum(T left, T right) {
    if constexpr (std::is_integral_v<T>) return T(std::make_unsigned_t<T>(left) + std::make_unsigned_t<T>(right));
    else return left + right;
}
template <class T>
using Same = std::type_identity_t<T>;
} // namespace cuda_on_cpu

#define CUDA_ON_CPU_ATOMIC(name, expression)                                                             \
    template <class T>                                                                                   \
    T atomic##name(T* address, cuda_on_cpu::Same<T> value) {                                             \
        return cuda_on_cpu::change(address, [=]([[maybe_unused]] T before) -> T { return (expression); }); \
    }
CUDA_ON_CPU_ATOMIC(Add, cuda_on_cpu::sum(before, value))
CUDA_ON_CPU_ATOMIC(Exch, value)
CUDA_ON_CPU_ATOMIC(Max, value > before ? value : before)
CUDA_ON_CPU_ATOMIC(Or, before | value)
#undef CUDA_ON_CPU_ATOMIC

template <class T>
T atomicCAS(T* address, cuda_on_cpu::Same<T> expected, cuda_on_cpu::Same<T> value) {
    return cuda_on_cpu::change(address, [=](T before) { return before == expected ? value : before; });
}

inline void __threadfence() { cuda_on_cpu::interleave(); }
inline void __nanosleep(unsigned) { cuda_on_cpu::sleep(); }

// --- loads and stores with a cache hint ---

#define CUDA_ON_CPU_LOAD(name) \
    template <class T>         \
    T name(const T* address) { \
        return *address;       \
    }
CUDA_ON_CPU_LOAD(__ldg)
CUDA_ON_CPU_LOAD(__ldcg)
CUDA_ON_CPU_LOAD(__ldcs)
#undef CUDA_ON_CPU_LOAD

#define CUDA_ON_CPU_STORE(name)                           \
    template <class T>                                    \
    void name(T* address, cuda_on_cpu::Same<T> value) { \
        *address = value;                                 \
    }
CUDA_ON_CPU_STORE(__stcg)
CUDA_ON_CPU_STORE(__stcs)
#undef CUDA_ON_CPU_STORE

// --- arithmetic ---

template <class Left, class Right>
constexpr auto min(Left left, Right right) {
    using Common = std::common_type_t<Left, Right>;
    return Common(right) < Common(left) ? Common(right) : Common(left);
}
template <class Left, class Right>
constexpr auto max(Left left, Right right) {
    using Common = std::common_type_t<Left, Right>;
    return Common(left) < Common(right) ? Common(right) : Common(left);
}

inline int __popc(unsigned value) { return std::popcount(value); }
inline int __clz(int value) { return std::countl_zero(unsigned(value)); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline unsigned long long __umul64hi(unsigned long long left, unsigned long long right) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<unsigned long long>(Wide{left} * right >> 64);
}

inline float __fdividef(float a, float b) { return a / b; }

inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __uint_as_float(unsigned value) { return std::bit_cast<float>(value); }
inline long long __double_as_longlong(double value) { return std::bit_cast<long long>(value); }
inline double __longlong_as_double(long long value) { return std::bit_cast<double>(value); }
