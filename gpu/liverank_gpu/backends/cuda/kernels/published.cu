// The iterations of the published strategies over all vertices, or states of all (liverank_gpu.operations.published; Sahu,
// algorithms 3 and 5). An iteration is
//
//     update_ranks<1>, update_ranks<BLOCK>   y' = β + α·c, or (β + α·(c - ℓ·y/d)) / (1 - αℓ/d) as a closed form (with_loop of
//                                            liverank_gpu/kernels/vertex.h); prunes, marks as expanding
//     send                                   contribution = y/d of what was recomputed
//     end_iteration                          tests and counts
//     expand<1>, expand<BLOCK>               out-neighbours of expanding vertices become affected
//
// The host issues several iterations before it reads whether they have ended: behind the last one, kernels return at once.
// LANES: threads for a vertex, 1 for those of low degree and BLOCK for the others ("Partition G, G'" in the paper).
// Launch: BLOCK threads a block, grid-stride loops; end_iteration one block.
// Traffic: update_ranks per edge 4 bytes of neighbour id (and 4 of weight if WEIGHTED) and one random read of 8 bytes (a
// 32-byte sector); per row 5 bytes (order, state), and 34 if it is affected. send 1 byte a vertex, 21 if it was recomputed.
#include "ranking.cuh"

INSTANCES(update_ranks<1>, update_ranks<BLOCK>)
template <int LANES>
__global__ void __launch_bounds__(BLOCK, 4) update_ranks(
    const int* __restrict__ order, int64 rows, Lists in, uint64* counts, uint8* __restrict__ expanding,
    const double* rhs_scale, const Loop* __restrict__ loop, const Degree* __restrict__ degree, double* values,
    double* contributions, uint8* states, double damping, double prune_tolerance, double frontier_tolerance, int closed_form,
    int traced) {
    if (counts[Count::DONE]) return;
    const Ranking ranking = {
        rhs_scale, loop, degree, values, contributions, states, damping, prune_tolerance, frontier_tolerance, closed_form,
        traced};
    Counted counted;
    const int first = threadIdx.x % LANES;
    const int64 step = (int64)gridDim.x * (BLOCK / LANES);
    for (int64 at = (int64)blockIdx.x * (BLOCK / LANES) + threadIdx.x / LANES; at < rows; at += step) {
        const int v = order[at];
        if (ranking.states != nullptr && ranking.states[v] != AFFECTED) continue;
        const int64 begin = in.starts[v], end = begin + in.lengths[v];
        double sum = 0.0;
        for (int64 slot = begin + first; slot < end; slot += LANES)
            sum += edge_amount(ranking.contributions[__ldg(in.indices + slot)], in.weights, slot);
        // also keeps the threads of a block together, before one of them changes the state of v
        sum = group_sum<LANES>(sum);
        if (first == 0 && counted.update(ranking, v, sum, in.lengths[v]).expands) expanding[v] = 1;
    }
    counted.add_to(counts, ranking.traced);
}

// y/d, and 0 where d = 0, at the vertices that have been affected, or at all if states is null. dangling_sums[block]: Σy of
// those with d = 0.
__global__ void __launch_bounds__(BLOCK) send(
    const uint64* counts, int64 vertices, const double* __restrict__ values, const Degree* __restrict__ degree,
    const uint8* __restrict__ states, double* __restrict__ contributions, double* __restrict__ dangling_sums) {
    if (counts[Count::DONE]) return;
    double dangling = 0.0;
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        if (states != nullptr && !states[v]) continue;
        const Degree d = degree[v];
        const double value = values[v];
        contributions[v] = share_of(value, d);
        if (!(d > 0)) dangling += value;
    }
    dangling = group_sum<BLOCK>(dangling);
    if (threadIdx.x == 0) dangling_sums[blockIdx.x] = dangling;
}

// Ends an iteration, or begins the first one. If dangling_mass > 0, β = ((1-α)·dangling_mass + α·Σ dangling_sums) / n for the
// next.
__global__ void __launch_bounds__(BLOCK) end_iteration(
    uint64* counts, double* rhs_scale, const double* __restrict__ dangling_sums, int blocks, int64 vertices,
    double dangling_mass, double damping, double tolerance, int64 max_iterations, uint64* trace, int begins) {
    if (counts[Count::DONE]) return;
    double dangling = 0.0;
    if (dangling_mass > 0.0)
        for (int block = threadIdx.x; block < blocks; block += BLOCK) dangling += dangling_sums[block];
    dangling = group_sum<BLOCK>(dangling);
    if (threadIdx.x != 0) return;
    if (!begins) {
        record_iteration(trace, counts[Count::ITERATIONS]++, counts);
        counts[Count::CONVERGED] = __longlong_as_double((int64)counts[Count::LARGEST]) <= tolerance;
        counts[Count::DONE] = counts[Count::CONVERGED] || counts[Count::ITERATIONS] >= (uint64)max_iterations;
        for (int at = 0; at < Count::ITERATIONS; ++at) counts[at] = 0;
    }
    if (dangling_mass > 0.0 && !counts[Count::DONE])
        *rhs_scale = ((1.0 - damping) * dangling_mass + damping * dangling) / vertices;
}

// The out-neighbours of expanding vertices become affected, loops included; then these vertices are not expanding.
INSTANCES(expand<1>, expand<BLOCK>)
template <int LANES>
__global__ void __launch_bounds__(BLOCK) expand(
    const int* __restrict__ order, int64 rows, Lists out, const uint64* counts, const Loop* __restrict__ loop, uint8* states,
    uint8* __restrict__ expanding) {
    if (counts[Count::DONE]) return;
    const int first = threadIdx.x % LANES;
    const int64 step = (int64)gridDim.x * (BLOCK / LANES);
    for (int64 at = (int64)blockIdx.x * (BLOCK / LANES) + threadIdx.x / LANES; at < rows; at += step) {
        const int u = order[at];
        const bool expands = expanding[u];
        if constexpr (LANES > 1) __syncthreads();
        if (!expands) continue;
        if (first == 0) {
            expanding[u] = 0;
            if (loop[u] != 0) states[u] = AFFECTED;
        }
        const int64 begin = out.starts[u], end = begin + out.lengths[u];
        for (int64 slot = begin + first; slot < end; slot += LANES) states[__ldg(out.indices + slot)] = AFFECTED;
    }
}
