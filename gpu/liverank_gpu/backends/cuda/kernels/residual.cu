// The residual of y = αP̄ᵀy + β·1 (liverank_gpu.operations.sweeps: compute_residual):
//
//     r = β + α·Σ contributions of the in-neighbours of v - (1 - αℓ/d)·y[v]
//
// Contributions are multiplied by the weight of the edge if WEIGHTED.
// Launch: compute_residual as rows.cuh says, compute_contributions any grid.
// Traffic of compute_residual: per edge 4 bytes of neighbour id, streamed, and one random read of 8 bytes (a 32-byte sector),
// and 4 bytes of weight, streamed, if WEIGHTED; per row 16 (order, row start, row length) + 5 (loop, degree) + 8 + 8 bytes (y
// in, r out).
#include "rows.cuh"
#include "sweeps.h"

INSTANCES(add_partial_sums<true>)

// y/d, and 0 where d = 0.
__global__ void __launch_bounds__(BLOCK, 4) compute_contributions(
    int64 vertices, const Degree* __restrict__ degree, const double* __restrict__ values, double* __restrict__ contributions) {
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        contributions[v] = share_of(v, values, degree);
    }
}

struct Vertex {
    double value;
    Degree d;
    Loop loop;
};

__global__ void __launch_bounds__(BLOCK, WEIGHTED ? 2 : 4) compute_residual(
    RowSums rows, RowPlan plan, const Loop* __restrict__ loop, const Degree* __restrict__ degree,
    const double* __restrict__ values, const double* __restrict__ contributions, double rhs_scale, double damping,
    double* __restrict__ r, double* __restrict__ partial_sums) {
    double sums[SWEEP_SUMS] = {};
    const auto load = [&](int u) { return contributions[u]; };
    const auto read = [&](int v, bool wanted) { return wanted ? Vertex{values[v], degree[v], loop[v]} : Vertex{}; };
    const auto finish = [&](int v, const Vertex& own, double incoming_mass) {
        const double residual = residual_of(rhs_scale, incoming_mass, own.value, own.d, own.loop, damping);
        r[v] = residual;
        add_residual(sums, residual);
    };
    sum_rows(rows, plan, load, read, finish);
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SWEEP_SUMS);
}
