// The iterations of the published strategies (gpu.operations.published; Sahu, algorithms 3 and 5). An iteration is
//
//     update_ranks<1> and <BLOCK>, or by bins   y' = β + α·c, or (β + α·(c - ℓ·y/d)) / (1 - αℓ/d); prunes, marks as expanding
//     send                                   contribution = y/d of what was recomputed
//     end_iteration                          tests and counts
//     expand<1>, expand<BLOCK>               out-neighbours of expanding vertices become affected
//     expand_backward, clear_expanding       the same from the other end, for many out-edges, in the accelerated form
//
// The host issues several iterations before it reads whether they have ended: behind the last one, kernels return at once.
// LANES: threads for a vertex, 1 for those of low degree and BLOCK for the others ("Partition G, G'" in the paper).
// Launch: BLOCK threads a block, grid-stride loops; end_iteration one block.
// Traffic: update_ranks per edge 4 bytes of neighbour id (and 4 of weight if WEIGHTED) and one random read of 8 bytes (a
// 32-byte sector); per row 5 bytes (order, state), and 34 if it is affected. send 1 byte a vertex, 21 if it was recomputed.

using Count = PublishedCount;

constexpr uint64 BACKWARD_PART = 8;  // expanding vertices with more than one in this many of all edges are expanded backward
constexpr int FEW = 8;               // entries of a row that one thread looks at

// The bits of numbers that are not negative ascend as the numbers do.
__device__ __forceinline__ void raise_to(uint64* largest, double value) {
    if (value > 0.0) atomicMax(largest, (uint64)__double_as_longlong(value));
}

__device__ __forceinline__ void add_of_block(uint64* count, double value) {
    const double sum = group_sum<BLOCK>(value);
    if (threadIdx.x == 0 && sum > 0.0) atomicAdd(count, (uint64)sum);
}

// What an iteration reads and writes beside the rows, as kernels take it. states and expanding may be null: then every vertex
// is recomputed.
struct Ranking {
    uint64* counts;
    const double* rhs_scale;
    const Loop* loop;
    const Degree* degree;
    double* values;
    const double* contributions;
    uint8* states;
    uint8* expanding;
    const int* out_lengths;  // null if out-edges are not counted
    double damping, prune_tolerance, frontier_tolerance;
    int closed_form, traced;

    __device__ __forceinline__ bool affected(int v) const { return states == nullptr || states[v] == AFFECTED; }
};

// What a thread counts of an iteration.
struct Counted {
    double largest = 0.0, largest_relative = 0.0, recomputed = 0.0, edges = 0.0, pruned = 0.0, expanding_edges = 0.0;

    // A new rank from the sum of contributions over the `length` entries of row v.
    __device__ __forceinline__ void update(const Ranking& ranking, int v, double sum, int length) {
        const double old_value = ranking.values[v];
        double new_value = *ranking.rhs_scale + ranking.damping * sum;
        if (ranking.closed_form) new_value /= diagonal_of(ranking.degree[v], ranking.loop[v], ranking.damping);
        else if (ranking.loop[v]) new_value += ranking.damping * (double)ranking.loop[v] * ranking.contributions[v];
        const double change = fabs(new_value - old_value), relative = change / fmax(new_value, old_value);
        if (relative <= ranking.prune_tolerance) {
            ranking.states[v] = PRUNED;
            pruned += 1.0;
        }
        if (relative > ranking.frontier_tolerance) {
            ranking.expanding[v] = 1;
            if (ranking.out_lengths != nullptr) expanding_edges += ranking.out_lengths[v];
        }
        ranking.values[v] = new_value;
        largest = fmax(largest, change);
        largest_relative = fmax(largest_relative, relative);
        recomputed += 1.0;
        edges += length;
    }

    // Every thread of the block takes part.
    __device__ __forceinline__ void add_to(const Ranking& ranking) {
        largest = block_max(largest);
        if (threadIdx.x == 0) raise_to(ranking.counts + Count::LARGEST, largest);
        if (ranking.out_lengths != nullptr) add_of_block(ranking.counts + Count::EXPANDING_EDGES, expanding_edges);
        if (!ranking.traced) return;
        largest_relative = block_max(largest_relative);
        if (threadIdx.x == 0) raise_to(ranking.counts + Count::LARGEST_RELATIVE, largest_relative);
        add_of_block(ranking.counts + Count::RECOMPUTED, recomputed);
        add_of_block(ranking.counts + Count::EDGES, edges);
        add_of_block(ranking.counts + Count::PRUNED, pruned);
    }
};

#define RANKING_PARAMETERS                                                                                                     \
    uint64 *counts, const double *__restrict__ rhs_scale, const Loop *__restrict__ loop, const Degree *__restrict__ degree,    \
        double *__restrict__ values, const double *__restrict__ contributions, uint8 *__restrict__ states,                     \
        uint8 *__restrict__ expanding, const int *__restrict__ out_lengths, double damping, double prune_tolerance,            \
        double frontier_tolerance, int closed_form, int traced
#define RANKING                                                                                                                \
    {counts, rhs_scale, loop, degree, values, contributions, states, expanding, out_lengths, damping, prune_tolerance,         \
     frontier_tolerance, closed_form, traced}

template <int LANES>
__global__ void __launch_bounds__(BLOCK, 4) update_ranks(
    const int* __restrict__ order, int64 rows, const int64* __restrict__ row_starts, const int* __restrict__ row_lengths,
    const int* __restrict__ column_indices, const float* __restrict__ weights, RANKING_PARAMETERS) {
    if (counts[Count::DONE]) return;
    const Ranking ranking = RANKING;
    Counted counted;
    const int first = threadIdx.x % LANES;
    const int64 step = (int64)gridDim.x * (BLOCK / LANES);
    for (int64 at = (int64)blockIdx.x * (BLOCK / LANES) + threadIdx.x / LANES; at < rows; at += step) {
        const int v = order[at];
        if (!ranking.affected(v)) continue;
        const int64 begin = row_starts[v], end = begin + row_lengths[v];
        double sum = 0.0;
        for (int64 slot = begin + first; slot < end; slot += LANES)
            sum += edge_amount(contributions[column_indices[slot]], weights, slot);
        // also keeps the threads of a block together, before one of them changes the state of v
        sum = group_sum<LANES>(sum);
        if (first == 0) counted.update(ranking, v, sum, row_lengths[v]);
    }
    counted.add_to(ranking);
}

// The same with as many threads for a row as suit its degree bin, for the accelerated form. Launch: as rows.cuh says.
__global__ void __launch_bounds__(BLOCK, WEIGHTED ? 2 : 4) update_ranks_by_bins(
    const int* __restrict__ order, const int64* __restrict__ row_starts, const int* __restrict__ row_lengths,
    const int* __restrict__ column_indices, const float* __restrict__ weights, double* parts, int* arrived, RowPlan plan,
    RANKING_PARAMETERS) {
    if (counts[Count::DONE]) return;
    const Ranking ranking = RANKING;
    Counted counted;
    const RowSums rows = {order, row_starts, row_lengths, column_indices, weights, parts, arrived};
    const auto load = [&](int u) { return contributions[u]; };
    const auto read = [&](int v, bool wanted) { return wanted ? row_lengths[v] : 0; };
    const auto finish = [&](int v, int length, double sum) { counted.update(ranking, v, sum, length); };
    const auto wanted = [&](int v) { return ranking.affected(v); };
    sum_rows(rows, plan, load, read, finish, wanted);
    counted.add_to(ranking);
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
        contributions[v] = d > 0 ? value / d : 0.0;
        if (!(d > 0)) dangling += value;
    }
    dangling = group_sum<BLOCK>(dangling);
    if (threadIdx.x == 0) dangling_sums[blockIdx.x] = dangling;
}

// Ends an iteration, or begins the first one. If dangling_mass > 0, β = ((1-α)·dangling_mass + α·Σ dangling_sums) / n for the
// next. trace: null, or a row of four numbers for each iteration (gpu.operations.published.IterationTrace).
__global__ void __launch_bounds__(BLOCK) end_iteration(
    uint64* counts, double* rhs_scale, const double* __restrict__ dangling_sums, int blocks, int64 vertices,
    int64 edges, double dangling_mass, double damping, double tolerance, int64 max_iterations, uint64* trace, int begins) {
    if (counts[Count::DONE]) return;
    double dangling = 0.0;
    if (dangling_mass > 0.0)
        for (int block = threadIdx.x; block < blocks; block += BLOCK) dangling += dangling_sums[block];
    dangling = group_sum<BLOCK>(dangling);
    if (threadIdx.x != 0) return;
    if (!begins) {
        const uint64 iterations = counts[Count::ITERATIONS]++;
        if (trace != nullptr && iterations < TRACED) {
            uint64* row = trace + 4 * iterations;
            row[0] = counts[Count::RECOMPUTED];
            row[1] = counts[Count::EDGES];
            row[2] = counts[Count::PRUNED];
            row[3] = counts[Count::LARGEST_RELATIVE];
        }
        counts[Count::CONVERGED] = __longlong_as_double((int64)counts[Count::LARGEST]) <= tolerance;
        counts[Count::DONE] = counts[Count::CONVERGED] || counts[Count::ITERATIONS] >= (uint64)max_iterations;
        counts[Count::BACKWARD] = counts[Count::EXPANDING_EDGES] * BACKWARD_PART > (uint64)edges;
        for (int at = 0; at < Count::ITERATIONS; ++at) counts[at] = 0;
    }
    if (dangling_mass > 0.0 && !counts[Count::DONE])
        *rhs_scale = ((1.0 - damping) * dangling_mass + damping * dangling) / vertices;
}

// The out-neighbours of expanding vertices become affected, loops included; then these vertices are not expanding.
template <int LANES>
__global__ void __launch_bounds__(BLOCK) expand(
    const int* __restrict__ order, int64 rows, const int64* __restrict__ row_starts, const int* __restrict__ row_lengths,
    const int* __restrict__ column_indices, const uint64* counts, const Loop* __restrict__ loop, uint8* states,
    uint8* __restrict__ expanding) {
    if (counts[Count::DONE] || counts[Count::BACKWARD]) return;
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
        const int64 begin = row_starts[u], end = begin + row_lengths[u];
        for (int64 slot = begin + first; slot < end; slot += LANES) states[column_indices[slot]] = AFFECTED;
    }
}

// The same from the other end: every vertex that is not affected looks for an expanding in-neighbour. One thread takes a
// vertex; if FEW entries are not enough, its warp looks at the others. (Beamer et al., as frontier.cu.)
__global__ void __launch_bounds__(BLOCK, 4) expand_backward(
    const uint64* counts, int64 vertices, const int64* __restrict__ row_starts, const int* __restrict__ row_lengths,
    const int* __restrict__ column_indices, const Loop* __restrict__ loop, uint8* __restrict__ states,
    const uint8* __restrict__ expanding) {
    if (counts[Count::DONE] || !counts[Count::BACKWARD]) return;
    const int lane = threadIdx.x % WARP;
    const int64 step = (int64)gridDim.x * BLOCK;
    for (int64 first = (int64)blockIdx.x * BLOCK + threadIdx.x - lane; first < vertices; first += step) {
        const int64 v = first + lane;
        const bool open = v < vertices && states[v] != AFFECTED;
        bool reached = open && loop[v] != 0 && expanding[v];
        const int count = open && !reached ? row_lengths[v] : 0;
        const int64 begin = count > 0 ? row_starts[v] : 0;
        for (int slot = 0; slot < count && slot < FEW && !reached; ++slot) reached = expanding[column_indices[begin + slot]];
        unsigned waiting = __ballot_sync(FULL, count > FEW && !reached);
        while (waiting) {
            const int row = __ffs((int)waiting) - 1;
            waiting &= waiting - 1;
            const int64 row_begin = __shfl_sync(FULL, begin, row);
            const int row_count = __shfl_sync(FULL, count, row);
            bool found = false;
            for (int slot = FEW; slot < row_count && !found; slot += WARP) {
                const int at = slot + lane;
                found = __any_sync(FULL, at < row_count && expanding[column_indices[row_begin + at]]);
            }
            if (lane == row) reached = found;
        }
        if (reached) states[v] = AFFECTED;
    }
}

// After expand_backward: no vertex is expanding.
__global__ void __launch_bounds__(BLOCK) clear_expanding(const uint64* counts, int64 vertices, uint8* __restrict__ expanding) {
    if (counts[Count::DONE] || !counts[Count::BACKWARD]) return;
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) expanding[v] = 0;
}
