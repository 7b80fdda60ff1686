// Strengths of weighted graphs, by kernels of rebuild.cu and batch.cu: the same sums in the same order.
#include "common.cuh"

#if WEIGHTED
// The strengths of vertices[0 … total), or of the vertices 0 … total-1 if it is null (liverank_gpu.operations.csr.GraphView):
// a warp a row, the whole block for long rows. Every thread of the grid takes part.
__device__ __forceinline__ void sum_strengths(
    const int* vertices, int64 total, const Lists& rows, const float* loop, double* strength) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    // a loop so heavy that it swallowed the other weights: the strength stays above it
    const auto finish = [&](int v, int length, double others) {
        const double own = loop[v], sum = own + others;
        strength[v] = length > 0 && sum == own ? __longlong_as_double(__double_as_longlong(own) + 1) : sum;
    };
    // rows that are named lie by degree: long ones go to different blocks
    const int64 apart = vertices != nullptr ? gridDim.x : 1;
    for (int64 first = blockIdx.x * (vertices != nullptr ? 1 : WARPS); first < total; first += (int64)gridDim.x * WARPS) {
        const auto vertex_of = [&](int row) {
            return vertices != nullptr ? vertices[first + row * apart] : (int)(first + row);
        };
        const bool inside = first + warp * apart < total;
        const int v = inside ? vertex_of(warp) : 0;
        const int length = inside ? rows.lengths[v] : 0, own_length = length <= LONG_STRENGTH ? length : 0;
        double sum = 0.0;
        for (int slot = lane; slot < own_length; slot += WARP) sum += rows.weights[rows.starts[v] + slot];
        sum = group_sum<WARP>(sum);
        if (lane == 0 && inside && length <= LONG_STRENGTH) finish(v, length, sum);
        for (int row = 0; row < WARPS && first + row * apart < total; ++row) {
            const int w = vertex_of(row);
            if (rows.lengths[w] <= LONG_STRENGTH) continue;
            double part = 0.0;
#pragma unroll 8
            for (int slot = threadIdx.x; slot < rows.lengths[w]; slot += BLOCK) part += rows.weights[rows.starts[w] + slot];
            part = group_sum<BLOCK>(part);
            if (threadIdx.x == 0) finish(w, rows.lengths[w], part);
        }
    }
}
#endif
