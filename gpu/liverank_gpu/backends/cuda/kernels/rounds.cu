// The parts of a round of a push, for shards, which exchange data between them (liverank_gpu.operations.residual).
//
//     count_candidates  how many candidates are above each of LEVELS thresholds, and their out-edges
//     take_candidates   drops those that are not above the floor, and lists those above θ
//     push_vertices     step = r[u] / (1 - αℓ/d),  y[u] += step,  r[u] = what rounding of y leaves,  contribution = α·step/d
//
// Launch: BLOCK threads a block, grid-stride loops over a list.
// Traffic: a vertex of a list takes a 32-byte sector of each array over vertices that is named.
#include "work_lists.cuh"

constexpr int PUSHED_SUMS = 5;  // the changes of ‖r‖₁, Σr and Σy; Σ|r| before; vertices pushed for the first time

// θ that a vertex exceeds no more. The two kernels that ask have to agree, so nothing is left to the compiler.
__device__ __forceinline__ double scaled(double size, double edge_weight, int length) {
    return size / fma(edge_weight, (double)length, 1.0);
}

#if !WEIGHTED
__global__ void __launch_bounds__(BLOCK, 2) count_candidates(
    const int* __restrict__ candidates, int64 listed, const double* __restrict__ r, const int* __restrict__ out_lengths,
    double first, double second, double third, double fourth, double floor, double edge_weight, uint64* numbers) {
    const double thresholds[LEVELS] = {first, second, third, fourth};
    double counts[2 * LEVELS + 1] = {};
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < listed; at += (int64)gridDim.x * BLOCK) {
        const int v = candidates[at], length = out_lengths[v];
        const double size = fabs(r[v]), reached = scaled(size, edge_weight, length);
#pragma unroll
        for (int level = 0; level < LEVELS; ++level) {
            const bool above = reached > thresholds[level];
            counts[level] += above;
            counts[LEVELS + level] += above ? length : 0;
        }
        counts[2 * LEVELS] += size > floor;
    }
#pragma unroll
    for (int number = 0; number < 2 * LEVELS + 1; ++number) {
        const double sum = group_sum<BLOCK>(counts[number]);  // of integers: exact
        if (threadIdx.x == 0 && sum > 0.0) atomicAdd(&numbers[number], (uint64)sum);
    }
}

// counts: two, zero.
__global__ void __launch_bounds__(BLOCK, 2) take_candidates(
    const int* __restrict__ candidates, int64 listed, const double* __restrict__ r, const int* __restrict__ out_lengths,
    double threshold, double floor, double edge_weight, int* marks, int* kept, int* queue, uint64* counts) {
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < listed; at += (int64)gridDim.x * BLOCK) {
        const int v = candidates[at];
        const double size = fabs(r[v]);
        if (!(size > floor)) {
            marks[v] &= ~LISTED;
            continue;
        }
        kept[append(&counts[0])] = v;
        if (scaled(size, edge_weight, out_lengths[v]) > threshold) queue[append(&counts[1])] = v;
    }
}
#endif

__global__ void __launch_bounds__(BLOCK, 2) push_vertices(
    const int* __restrict__ vertices, int64 count, const Loop* __restrict__ loop, const Degree* __restrict__ degree,
    double* values, double* r, int* marks, int solve, double damping, double* __restrict__ contributions, double* sums) {
    ThreadSums thread = {};
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < count; at += (int64)gridDim.x * BLOCK) {
        const int u = vertices[at];
        const Degree d = degree[u];
        const double step = push_vertex(u, diagonal_of(d, loop[u], damping), values, r, thread);
        contributions[at] = sent_of(step, d, damping);
        thread.sums[VERTICES] += marks[u] >> SOLVE_SHIFT != solve;
        marks[u] = (marks[u] & LISTED) | solve << SOLVE_SHIFT;
    }
    const double own[PUSHED_SUMS] = {
        thread.sums[RESIDUAL_L1], thread.sums[RESIDUAL_SUM], thread.sums[MASS], thread.sums[MOVED], thread.sums[VERTICES]};
#pragma unroll
    for (int number = 0; number < PUSHED_SUMS; ++number) {
        const double sum = group_sum<BLOCK>(own[number]);
        if (threadIdx.x == 0 && sum != 0.0) atomicAdd(&sums[number], sum);
    }
}
