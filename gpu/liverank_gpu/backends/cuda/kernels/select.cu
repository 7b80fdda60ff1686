// The largest of many values, without sorting them, and bounds on the others (liverank_gpu.operations.select).
//
// The values are divided into groups, by their position modulo the number of groups. The k-th largest of the groups' maxima is
// at most the k-th largest value, and not far below it while few of the first k share a group. What is as large is listed. With
// as many groups as values it is the k-th largest itself.
//
// Values are a matrix of a few columns, row by row; a vector has one. Each thread stays in one column and one group: the number
// of threads is a multiple of columns · groups.
//
// Launch: BLOCK threads a block, grid-stride loops. Traffic: each value once in each of the two passes.
#include "common.cuh"

// Bits that are ordered as values are, and above 0: of negative ones all are flipped. Zeros are equal.
__device__ __forceinline__ uint64 ordered_bits(double value) {
    const uint64 bits = (uint64)__double_as_longlong(value + 0.0), sign = 1ull << 63;
    return bits & sign ? ~bits : bits | sign;
}

#if !WEIGHTED
// maxima: uint64[columns, groups], zero before.
__global__ void __launch_bounds__(BLOCK) group_maxima(
    const double* __restrict__ values, int64 size, int64 columns, int64 groups, uint64* maxima) {
    const int64 first = (int64)blockIdx.x * BLOCK + threadIdx.x, threads = (int64)gridDim.x * BLOCK;
    if (first >= size) return;
    double largest = values[first];
#pragma unroll 4
    for (int64 at = first + threads; at < size; at += threads) largest = fmax(largest, values[at]);
    atomicMax(maxima + first % columns * groups + first / columns % groups, ordered_bits(largest));
}

// How many values of each column are wanted.
struct Wanted {
    uint64 of[COLUMNS];
};

// Lists the values of each column that are at least as large as its maximum number `wanted` from the end of the ascending ones;
// none where that is 0. positions: int32[columns, room], entries: of the same shape; found: uint64[columns], zero before.
__global__ void __launch_bounds__(BLOCK) list_largest(
    const double* __restrict__ values, int64 size, int64 columns, int64 groups, const uint64* __restrict__ maxima,
    const Wanted wanted, int64 room, int* __restrict__ positions, double* __restrict__ entries, uint64* found) {
    const int64 first = (int64)blockIdx.x * BLOCK + threadIdx.x, threads = (int64)gridDim.x * BLOCK;
    const int64 column = first % columns;
    if (first >= size || wanted.of[column] == 0) return;
    const uint64 least = maxima[(column + 1) * groups - wanted.of[column]];
#pragma unroll 4
    for (int64 at = first; at < size; at += threads) {
        const double value = values[at];
        if (ordered_bits(value) < least) continue;
        const int64 place = (int64)atomicAdd(found + column, 1ull);
        if (place >= room) continue;
        positions[column * room + place] = (int)(at / columns);
        entries[column * room + place] = value;
    }
}

// Lists every rank that changed by more than a part of what it was: |values/mass - earlier| > threshold·earlier. What is minus
// infinity is no vertex.
// found: uint64, zero before. Traffic: 16 bytes a value, once.
__global__ void __launch_bounds__(BLOCK) list_changed(
    const double* __restrict__ values, const double* __restrict__ earlier, int64 count, double mass, double threshold,
    int64 capacity, int* __restrict__ listed, uint64* found) {
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < count; at += (int64)gridDim.x * BLOCK) {
        const double before = earlier[at];
        const double change = fabs(values[at] / mass - before);
        if (!(change > threshold * before) || isinf(change)) continue;
        const int64 place = append(found);
        if (place < capacity) listed[place] = (int)at;
    }
}
#endif

// The largest upper bound (liverank_gpu.operations.select.residual_bound) of the y up to `at_most`:
//
//     y + (r⁺(1-α) + α·Σr⁺) / (1 - αℓ/d - α²(1 - ℓ/d)), the divisor 1 where d = 0
//
// and minus infinity if there are none. highest: double[blocks].
// Traffic: 21 bytes a value, once.
__global__ void __launch_bounds__(BLOCK, 4) highest_bound(
    const double* __restrict__ values, const double* __restrict__ residuals, const Degree* __restrict__ degree,
    const Loop* __restrict__ loop, int64 count, double damping, double positive_residual, double at_most,
    double* __restrict__ highest) {
    double most = __longlong_as_double(0xfff0000000000000ll);  // minus infinity
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < count; v += (int64)gridDim.x * BLOCK) {
        const double value = values[v];
        if (!(value <= at_most)) continue;
        const Degree d = degree[v];
        double returning = damping * damping;
        if (d == 0) returning = 0.0;
        else if (loop[v] != 0) returning += (damping - damping * damping) / d * (WEIGHTED ? loop[v] : 1);
        const double added = fmax(residuals[v], 0.0) * (1.0 - damping) + damping * positive_residual;
        most = fmax(most, value + added / (1.0 - returning));
    }
    most = block_max(most);
    if (threadIdx.x == 0) highest[blockIdx.x] = most;
}
