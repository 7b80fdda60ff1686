// Vertex programs (liverank_gpu.operations.programs). `Program` (liverank_gpu/kernels/program_vertex.h) comes before this
// (liverank_gpu.backends.cuda.programs), so that each program has a translation unit of its own.
//
// What follows does many supersteps in one launch: run_active.cuh where vertices are active if something changed, run_all.cuh
// where all of them are. run_window.cuh passes once over a part of the rows.
#include <cooperative_groups.h>
#include "program_vertex.h"
#include "common.cuh"

using Value = Program::Value;
using EdgeValue = Program::EdgeValue;
using Parameters = Program::Parameters;

// What functions may know of a vertex.
struct Vertices {
    const int* ids;
    const Degree* degree;
    const int* in_lengths;
};

// Another thread may write it: never from a cache that is not coherent.
template <typename T> __device__ __forceinline__ T newest(const T* address) {
    if constexpr (WordsOf<T>::value > 0) return *address;  // nobody writes records that others read
    else return *(const volatile T*)address;
}

template <typename T> struct Bits { using Type = int; };
template <> struct Bits<long long> { using Type = uint64; };
template <> struct Bits<double> { using Type = uint64; };

// Stores `value` if the element is `expected`.
template <typename V> __device__ __forceinline__ bool compare_and_swap(V* address, V expected, V value) {
    using Word = typename Bits<V>::Type;
    Word before, after;
    memcpy(&before, &expected, sizeof(V));
    memcpy(&after, &value, sizeof(V));
    return atomicCAS(reinterpret_cast<Word*>(address), before, after) == before;
}

template <typename V> __device__ __forceinline__ void merge_into(V* address, V message, const Parameters& parameters) {
    if constexpr (Program::MERGE == MERGE_SUM) {
        if constexpr (Program::INTEGER && sizeof(V) == 8) atomicAdd(reinterpret_cast<uint64*>(address), (uint64)message);
        else atomicAdd(reinterpret_cast<typename Either<Program::INTEGER, int, V>::Type*>(address), message);
    } else {
        for (;;) {
            const V old_value = newest(address), merged = Program::program_merge(old_value, message, parameters);
            if (merged == old_value || compare_and_swap(address, old_value, merged)) return;
        }
    }
}

struct Rows {
    int64 first[BINS + 1];  // group i has the rows order[first[i]] … order[first[i + 1] - 1], the longest rows first
};

constexpr int GROUP_LANES[] = {LANES_OF_GROUPS};

// The value of another thread of the warp.
template <typename V> __device__ __forceinline__ V shuffled(V value, int step) {
    if constexpr (WordsOf<V>::value > 0) {
        uint64 words[WordsOf<V>::value];
        memcpy(words, &value, sizeof(V));
#pragma unroll
        for (int word = 0; word < WordsOf<V>::value; ++word) words[word] = __shfl_xor_sync(FULL, words[word], step);
        memcpy(&value, words, sizeof(V));
        return value;
    } else {
        return __shfl_xor_sync(FULL, value, step);
    }
}

// What the LANES threads of a row gathered, for each of them.
template <int LANES>
__device__ __forceinline__ Value merged_group(Value value, const Parameters& parameters) {
    constexpr int WIDTH = LANES < WARP ? LANES : WARP;
#pragma unroll
    for (int step = WIDTH / 2; step > 0; step /= 2)
        value = Program::program_merge(value, shuffled(value, step), parameters);
    if constexpr (LANES == BLOCK) {
        __shared__ Value warps[WARPS];
        if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = value;
        __syncthreads();
        value = warps[0];
        for (int warp = 1; warp < WARPS; ++warp) value = Program::program_merge(value, warps[warp], parameters);
        __syncthreads();
    }
    return value;
}

// Sets the values of positions first … count - 1 and lists those that are active.
__global__ void __launch_bounds__(BLOCK) initialise(
    int64 first, int64 count, const int* __restrict__ ids, const Degree* __restrict__ degree,
    const int* __restrict__ in_lengths, const uint8* __restrict__ absent, Parameters parameters, Value* __restrict__ values,
    int* __restrict__ active, uint64* found) {
    for (int64 v = first + thread_of_grid(); v < count; v += threads_of_grid()) {
        Value value = IDENTITY;
        if (!absent[v]) value = Program::program_initial(ids[v], degree[v], in_lengths[v], parameters);
        values[v] = value;
        if (Program::program_scatter(IDENTITY, value, parameters)) active[append(found)] = (int)v;
    }
}

// Whether along any of these edges comes the value that its target has. found: int, zero before.
__global__ void __launch_bounds__(BLOCK) supports_any(
    const int* __restrict__ sources, const int* __restrict__ targets, const float* __restrict__ weights,
    const int* __restrict__ source_ids, const int* __restrict__ target_ids, int64 count, Parameters parameters,
    const Value* __restrict__ values, int* found) {
    for (int64 at = thread_of_grid(); at < count; at += threads_of_grid()) {
        const Value source = values[sources[at]], target = values[targets[at]];
        const double weight = WEIGHTED ? weights[at] : 1.0;
        const int from = source_ids[at], to = target_ids[at];
        bool supports = supports_target<Program>(source, target, IDENTITY, weight, from, to, parameters);
        if constexpr (Program::BOTH)
            supports |= supports_target<Program>(target, source, IDENTITY, weight, to, from, parameters);
        if (supports) *found = 1;
    }
}
