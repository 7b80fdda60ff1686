// The residual under local changes (liverank_gpu.operations.residual: Perturb, Scatter, RecomputeRows, SelectCandidates).
//
//     perturb            r[w] += α·y[u]/d(u) - α·y[u]/d_old(u) for a touched source u, as contributions and single amounts
//     scatter            r[w] += contribution of u (times w(u,w) if WEIGHTED), over its out-list
//     recompute_rows     r = β + α·Σ y[u]/d(u) - (1 - αℓ/d)·y
//     select_candidates  every v with |r[v]| > floor
//
// Launch: BLOCK threads a block, all blocks resident (cooperative), grid-stride loops. A warp takes a chunk of EDGE_CHUNK edges
// of an out-list, or of ROW_CHUNK of an in-list, so that a hub is shared by many.
// Traffic of scatter: per edge 4 bytes of neighbour id, streamed, and one atomic addition to a random r.
#include "perturb.cuh"

__global__ void __launch_bounds__(BLOCK, 2) perturb(
    EdgeChanges changes, int64 count, int64 removed, int64 added, GraphLists graph, const double* __restrict__ values,
    double damping, int64* memory, int64 limit, Candidates to, int64 listed, Answer answer) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    perturb_all(grid, changes, count, removed, added, graph, values, damping, memory, limit, to, listed, answer);
    tell(grid, answer, Tally::SIZE);
}

__global__ void __launch_bounds__(BLOCK, 2) scatter(
    const int* __restrict__ sources, int64 count, int64 singles, Perturbation by, Lists out, Candidates to, int64 listed,
    Answer answer) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    begin_answer(answer, listed);
    grid.sync();
    scatter_all(sources, count, singles, out, by, {nullptr, nullptr, 0}, to, answer);
    tell(grid, answer, Tally::SIZE);
}

#if !WEIGHTED
// The list is in any order.
__global__ void __launch_bounds__(BLOCK, 2) select_candidates(Candidates to, int64 vertices, Answer answer) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    uint64* listed = reinterpret_cast<uint64*>(answer.counts) + Tally::LISTED_COUNT;
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        const bool large = fabs(to.r[v]) > to.floor;
        const int mark = to.marks[v];
        if (large != ((mark & LISTED) != 0)) to.marks[v] = mark ^ LISTED;
        if (large) {
            const int64 at = append(listed);
            if (at < to.capacity) to.candidates[at] = (int)v;
        }
    }
    tell(grid, answer, Tally::SIZE);
}
#endif

// The new r of a vertex, from the sum over its in-list. Lane 0 of a warp.
__device__ __forceinline__ void replace_residual(
    int v, double row_sum, const GraphLists& graph, const double* values, double rhs_scale, double damping,
    const Candidates& to,
    const WorkLists& lists, ThreadSums& thread) {
    const double old_value = to.r[v];
    const double new_value = residual_of(rhs_scale, row_sum, values[v], graph.degree[v], graph.loop[v], damping);
    to.r[v] = new_value;
    thread.sums[MAGNITUDE] += fabs(new_value);
    thread.sums[RESIDUAL_L1] += fabs(new_value) - fabs(old_value);
    thread.sums[RESIDUAL_SUM] += new_value - old_value;
    if (fabs(new_value) > to.floor) enqueue(v, fabs(new_value), lists, thread);
}

// For the vertices first … last-1: a warp a row. Long rows are divided into chunks, whose sums are added up by a warp again.
// long_rows: int64[last - first], items, partial_sums: as many as the chunks of long rows.
__global__ void __launch_bounds__(BLOCK, 2) recompute_rows(
    int64 first, int64 last, Lists in, GraphLists graph, const double* __restrict__ values, double rhs_scale, double damping,
    int64* long_rows, int64* items, double* partial_sums, Candidates to, int64 listed, Answer answer) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    constexpr int CHUNK = ROW_CHUNK;
    const int lane = threadIdx.x % WARP;
    const int64 warps = threads_of_grid() / WARP;
    uint64* counts = reinterpret_cast<uint64*>(answer.counts);
    const WorkLists lists = lists_of(to, graph.out.lengths, answer.counts);
    ThreadSums thread = {};
    const auto sum_of = [&](int64 begin, int count) {
        double sum = 0.0;
#pragma unroll 4
        for (int slot = lane; slot < count; slot += WARP) {
            const int u = in.indices[begin + slot];
            sum += edge_amount(values[u] / graph.degree[u], in.weights, begin + slot);
        }
        return group_sum<WARP>(sum);
    };
    begin_answer(answer, listed);
    grid.sync();
    for (int64 v = first + thread_of_grid() / WARP; v < last; v += warps) {
        const int length = in.lengths[v], chunks = (length + CHUNK - 1) / CHUNK;
        if (chunks > 1) {  // listed: its first item << 32 | v, and its chunks
            int64 begin = 0;
            if (lane == 0) {
                begin = (int64)atomicAdd(counts + Tally::ITEMS, (uint64)chunks);
                long_rows[append(counts + Tally::QUEUED_COUNT)] = begin << 32 | v;
            }
            begin = __shfl_sync(FULL, begin, 0);
            for (int chunk = lane; chunk < chunks; chunk += WARP) items[begin + chunk] = v << 32 | chunk;
            continue;
        }
        const double row_sum = sum_of(in.starts[v], length);
        if (lane == 0) replace_residual((int)v, row_sum, graph, values, rhs_scale, damping, to, lists, thread);
    }
    grid.sync();
    const int64 listed_items = answer.counts[Tally::ITEMS], listed_rows = answer.counts[Tally::QUEUED_COUNT];
    for (int64 item = thread_of_grid() / WARP; item < listed_items; item += warps) {
        const int64 v = items[item] >> 32, offset = (items[item] & 0xffffffff) * CHUNK;
        const double sum = sum_of(in.starts[v] + offset, (int)min((int64)CHUNK, in.lengths[v] - offset));
        if (lane == 0) partial_sums[item] = sum;
    }
    grid.sync();
    for (int64 row = thread_of_grid() / WARP; row < listed_rows; row += warps) {
        const int v = (int)(long_rows[row] & 0xffffffff), chunks = (in.lengths[v] + CHUNK - 1) / CHUNK;
        const double* const own = partial_sums + (long_rows[row] >> 32);
        double sum = 0.0;
        for (int chunk = lane; chunk < chunks; chunk += WARP) sum += own[chunk];
        sum = group_sum<WARP>(sum);
        if (lane == 0) replace_residual(v, sum, graph, values, rhs_scale, damping, to, lists, thread);
    }
    flush(thread, answer.counts, counts + Tally::QUEUED_EDGES);
    tell(grid, answer, Tally::SIZE);
}
