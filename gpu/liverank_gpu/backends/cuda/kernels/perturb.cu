// The residual under local changes (liverank_gpu.operations.residual: Perturb, Scatter, RecomputeRows, SelectCandidates).
//
//     perturb            r[w] += α·y[u]/d(u) - α·y[u]/d_old(u) for a touched source u, as contributions and single amounts
//     scatter            r[w] += contribution of u (times w(u,w) if WEIGHTED), over its out-list
//     recompute_rows     r = β + α·Σ y[u]/d(u) - (1 - αℓ/d)·y
//     select_candidates  every v with |r[v]| > floor
//
// Launch: BLOCK threads a block, grid-stride loops. A warp takes a chunk of EDGE_CHUNK edges of an out-list, so that a hub is
// shared by many. tally: int64[Tally::SIZE].
// Traffic of scatter: per edge 4 bytes of neighbour id, streamed, and one atomic addition to a random r.
#include "work_lists.cuh"

// Whether the strength grew so much that added edges are left out of the contribution (liverank_gpu.operations.residual:
// Perturb).
__device__ __forceinline__ bool is_spared(Degree d, Degree old_d) { return WEIGHTED && d > SPARED_GROWTH * old_d; }

// liverank_gpu.operations.graph.EdgeChanges
struct EdgeChanges {
    const int* sources;
    const Degree* old_degree;
    const int* removed_sources;
    const int* removed_targets;
    const int* added_sources;
    const int* added_targets;
    const float* removed_weights;
    const float* added_weights;
};

// The edges that a batch added, ascending by source and target.
struct AddedEdges {
    const int* sources;
    const int* targets;
    int64 count;

    __device__ __forceinline__ bool has(int source, int target) const {
        const int64 first = first_from<int64>(sources, 0, count, source);
        const int64 last = first_from<int64>(sources, first, count, source + 1);
        const int64 at = first_from<int64>(targets, first, last, target);
        return at < last && targets[at] == target;
    }
};

// What a batch adds to r, for `scatter`: the contribution and the chunks of each touched source; and single amounts, which are
// those through loops, removed edges and added edges.
__global__ void __launch_bounds__(BLOCK, 3) perturb(
    EdgeChanges changes, int64 count, int64 removed, int64 added, const int* __restrict__ out_lengths,
    const Loop* __restrict__ loop, const Degree* __restrict__ degree, const double* __restrict__ values, double damping,
    double* contributions, int64* chunks, int* targets, double* amounts, uint8* __restrict__ spared) {
    const int* const sources = changes.sources;
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < count + removed + added;
         at += (int64)gridDim.x * BLOCK) {
        if (at < count) {
            const int u = sources[at];
            const Degree d = degree[u], old_d = changes.old_degree[at];
            const double before = sent_of(values[u], old_d, damping);
            double difference = sent_of(values[u], d, damping) - before;
            if constexpr (WEIGHTED)  // else the rounding would be relative to the two
                if (d > 0 && old_d > 0) difference = (old_d - d) / d * before;
            const int needed = (out_lengths[u] + EDGE_CHUNK - 1) / EDGE_CHUNK;
            contributions[at] = difference;
            chunks[at] = needed > 0 ? needed : 1;
            targets[at] = u;
            amounts[at] = loop[u] != 0 ? (WEIGHTED ? difference * loop[u] : difference) : 0.0;
            if constexpr (WEIGHTED) {
                spared[at] = is_spared(d, old_d);
                if (spared[at] && AddedEdges{changes.added_sources, changes.added_targets, added}.has(u, u)) amounts[at] = 0.0;
            }
            continue;
        }
        const bool gone = at < count + removed;
        const int64 edge = gone ? at - count : at - count - removed;
        const int u = gone ? changes.removed_sources[edge] : changes.added_sources[edge];
        const int64 source = first_from<int64>(sources, 0, count - 1, u);  // sources has u
        const Degree old_d = changes.old_degree[source], d = !gone && is_spared(degree[u], old_d) ? degree[u] : old_d;
        const double contribution =
            edge_amount(sent_of(values[u], d, damping), gone ? changes.removed_weights : changes.added_weights, edge);
        targets[at] = gone ? changes.removed_targets[edge] : changes.added_targets[edge];
        amounts[at] = gone ? -contribution : contribution;
    }
}

// r[w] += contribution over one chunk of an out-list, by a warp.
__device__ __forceinline__ void scatter_chunk(
    const int* neighbours, const float* weights, int count, double contribution, double* r, const WorkLists& lists,
    ThreadSums& thread, int source, const AddedEdges& left_out) {
    for (int slot = threadIdx.x % WARP; slot < count; slot += WARP) {
        if (WEIGHTED && left_out.count > 0 && left_out.has(source, neighbours[slot])) continue;
        const double amount = edge_amount(contribution, weights, slot);
        accumulate(neighbours[slot], amount, r, lists, thread);
        if constexpr (WEIGHTED) {
            thread.sums[RESIDUAL_SUM] += amount;
            thread.sums[MOVED] += fabs(amount);
            thread.sums[ADDITIONS] += 1.0;
        }
    }
    if (!WEIGHTED && threadIdx.x % WARP == 0) {
        thread.sums[RESIDUAL_SUM] += contribution * count;
        thread.sums[MOVED] += fabs(contribution) * count;
        thread.sums[ADDITIONS] += count;
    }
}

// ends[i]: chunks of the out-lists of sources[0 … i], at least one each. Also r[targets[j]] += amounts[j].
// spared: null, or uint8[count], whether added edges are left out.
__global__ void __launch_bounds__(BLOCK, 3) scatter(
    const int* __restrict__ sources, const double* __restrict__ contributions, const int64* __restrict__ ends, int64 count,
    const int* __restrict__ targets, const double* __restrict__ amounts, int64 singles,
    Lists out, Candidates to, int64* tally, const uint8* __restrict__ spared, AddedEdges added) {
    uint64* counts = reinterpret_cast<uint64*>(tally);
    const WorkLists lists = lists_of(to, out.lengths, tally);
    ThreadSums thread = {};
    const int64 chunks = count > 0 ? ends[count - 1] : 0;
    const int64 warps = (int64)gridDim.x * WARPS;
    for (int64 chunk = (int64)blockIdx.x * WARPS + threadIdx.x / WARP; chunk < chunks; chunk += warps) {
        const int64 at = first_above(ends, count, chunk);
        const int u = sources[at];
        const int first = (int)(chunk - (at > 0 ? ends[at - 1] : 0)) * EDGE_CHUNK;
        if (contributions[at] == 0.0) continue;
        const int64 begin = out.starts[u] + first;
        const int count = min(EDGE_CHUNK, out.lengths[u] - first);
        const float* chunk_weights = WEIGHTED ? out.weights + begin : nullptr;
        const bool sparing = WEIGHTED && spared != nullptr && spared[at];
        const AddedEdges left_out = {added.sources, added.targets, sparing ? added.count : 0};
        scatter_chunk(out.indices + begin, chunk_weights, count, contributions[at], to.r, lists, thread, u, left_out);
    }
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < singles; at += (int64)gridDim.x * BLOCK) {
        accumulate((int)targets[at], amounts[at], to.r, lists, thread);
        thread.sums[RESIDUAL_SUM] += amounts[at];
        thread.sums[MOVED] += fabs(amounts[at]);
        thread.sums[ADDITIONS] += 1.0;
    }
    flush(thread, tally, counts + Tally::QUEUED_EDGES);
}

#if !WEIGHTED
// The list is in any order.
__global__ void __launch_bounds__(BLOCK, 3) select_candidates(
    Candidates to, int64 vertices, int64* tally) {
    uint64* listed = reinterpret_cast<uint64*>(tally) + Tally::LISTED_COUNT;
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        const bool large = fabs(to.r[v]) > to.floor;
        const int mark = to.marks[v];
        if (large != ((mark & LISTED) != 0)) to.marks[v] = mark ^ LISTED;
        if (large) {
            const int64 at = append(listed);
            if (at < to.capacity) to.candidates[at] = (int)v;
        }
    }
}
#endif

// For the vertices first … last-1: a warp a row, the whole block for long rows.
__global__ void __launch_bounds__(BLOCK, 3) recompute_rows(
    int64 first, int64 last, Lists in, const Loop* __restrict__ loop, const Degree* __restrict__ degree,
    const double* __restrict__ values, double rhs_scale, double damping, const int* __restrict__ out_lengths, Candidates to,
    int64* tally) {
    constexpr int LONG = 2048;
    __shared__ double row_sums[WARPS];
    uint64* counts = reinterpret_cast<uint64*>(tally);
    const WorkLists lists = lists_of(to, out_lengths, tally);
    ThreadSums thread = {};
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (int64 block_row = first + (int64)blockIdx.x * WARPS; block_row < last; block_row += (int64)gridDim.x * WARPS) {
        const int64 v = block_row + warp;
        const int count = v < last && in.lengths[v] <= LONG ? in.lengths[v] : 0;
        double row_sum = 0.0;
        for (int slot = lane; slot < count; slot += WARP) {
            const int u = in.indices[in.starts[v] + slot];
            row_sum += edge_amount(values[u] / degree[u], in.weights, in.starts[v] + slot);
        }
        row_sum = group_sum<WARP>(row_sum);
        if (lane == 0) row_sums[warp] = row_sum;
        __syncthreads();
        for (int row = 0; row < WARPS; ++row) {
            const int64 w = block_row + row;
            if (w >= last || in.lengths[w] <= LONG) continue;
            double part = 0.0;
#pragma unroll 4
            for (int slot = threadIdx.x; slot < in.lengths[w]; slot += BLOCK) {
                const int u = in.indices[in.starts[w] + slot];
                part += edge_amount(values[u] / degree[u], in.weights, in.starts[w] + slot);
            }
            part = group_sum<BLOCK>(part);
            if (threadIdx.x == 0) row_sums[row] = part;
            __syncthreads();
        }
        if (lane == 0 && v < last) {
            const double old_value = to.r[v];
            const double new_value = residual_of(rhs_scale, row_sums[warp], values[v], degree[v], loop[v], damping);
            to.r[v] = new_value;
            thread.sums[MAGNITUDE] += fabs(new_value);
            thread.sums[RESIDUAL_L1] += fabs(new_value) - fabs(old_value);
            thread.sums[RESIDUAL_SUM] += new_value - old_value;
            if (fabs(new_value) > to.floor) enqueue((int)v, fabs(new_value), lists, thread);
        }
        __syncthreads();
    }
    flush(thread, tally, counts + Tally::QUEUED_EDGES);
}
