// The rank of one vertex in an iteration of published.cu and listed.cu, and what is counted of it.
#include "common.cuh"

using Count = PublishedCount;

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
    const double* rhs_scale;
    const Loop* loop;
    const Degree* degree;
    double* values;
    double* contributions;
    uint8* states;
    double damping, prune_tolerance, frontier_tolerance;
    int closed_form, traced;
};

// What becomes of a vertex that was recomputed.
struct Outcome {
    bool pruned, expands;
};

// What a thread counts of an iteration.
struct Counted {
    double largest = 0.0, largest_relative = 0.0, recomputed = 0.0, edges = 0.0, pruned = 0.0;

    // A new rank from the sum of contributions over the `length` entries of row v.
    __device__ __forceinline__ Outcome update(const Ranking& ranking, int v, double sum, int length) {
        const double old_value = ranking.values[v], rank = *ranking.rhs_scale + ranking.damping * sum;
        const double new_value = with_loop(
            rank, v, ranking.degree, ranking.loop, ranking.contributions, ranking.damping, ranking.closed_form);
        const RankUpdate next(old_value, new_value);
        const Outcome outcome = {next.relative <= ranking.prune_tolerance, next.relative > ranking.frontier_tolerance};
        if (outcome.pruned) {
            ranking.states[v] = PRUNED;
            pruned += 1.0;
        }
        ranking.values[v] = next.value;
        largest = larger_of(largest, next.change);
        largest_relative = larger_of(largest_relative, next.relative);
        recomputed += 1.0;
        edges += length;
        return outcome;
    }

    // Every thread of the block takes part.
    __device__ __forceinline__ void add_to(uint64* counts, bool traced) {
        largest = block_max(largest);
        if (threadIdx.x == 0) raise_to(counts + Count::LARGEST, largest);
        if (!traced) return;
        largest_relative = block_max(largest_relative);
        if (threadIdx.x == 0) raise_to(counts + Count::LARGEST_RELATIVE, largest_relative);
        add_of_block(counts + Count::RECOMPUTED, recomputed);
        add_of_block(counts + Count::EDGES, edges);
        add_of_block(counts + Count::PRUNED, pruned);
    }
};

// A row of four numbers for an iteration (liverank_gpu.operations.published.IterationTrace); none if trace is null.
__device__ __forceinline__ void record_iteration(uint64* trace, uint64 iteration, const uint64* counts) {
    if (trace == nullptr || iteration >= TRACED) return;
    uint64* row = trace + 4 * iteration;
    row[0] = counts[Count::RECOMPUTED];
    row[1] = counts[Count::EDGES];
    row[2] = counts[Count::PRUNED];
    row[3] = counts[Count::LARGEST_RELATIVE];
}
