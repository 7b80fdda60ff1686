// The residual under local changes (gpu.operations.residual: perturb, spread, recompute_rows, select_candidates).
//
//     perturb            r[w] += α·y[u]/d(u) - α·y[u]/d_old(u) for a touched source u, as contributions and single amounts
//     spread             r[w] += contribution of u, over its out-list
//     recompute_rows     r = β + α·Σ y[u]/d(u) - (1 - αℓ/d)·y
//     select_candidates  every v with |r[v]| > floor
//
// Value: the type of y and r, double or float.
// Launch: BLOCK threads a block, grid-stride loops. A warp takes a chunk of EDGE_CHUNK edges of an out-list, so that a hub is
// shared by many. tally: int64[Tally::SIZE].
// Traffic of spread: per edge 4 bytes of neighbour id, streamed, and one atomic addition to a random Value.

template <typename Value>
__device__ __forceinline__ double contribution_of(int u, int d, const Value* values, double damping) {
    return d > 0 ? damping * values[u] / d : 0.0;
}

// What a batch adds to r, for `spread`: the contribution and the chunks of each touched source; and single amounts, which are
// those through loops, removed edges and added edges.
template <typename Value>
__global__ void __launch_bounds__(BLOCK, 3) perturb(
    const int* __restrict__ sources, const int* __restrict__ old_degree, int64 count,
    const int* __restrict__ removed_sources, const int* __restrict__ removed_targets, int64 removed,
    const int* __restrict__ added_sources, const int* __restrict__ added_targets, int64 added,
    const int* __restrict__ out_lengths, const uint8* __restrict__ loop, const int* __restrict__ degree,
    const Value* __restrict__ values, double damping, double* contributions, int64* chunks, int* targets, double* amounts) {
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < count + removed + added;
         at += (int64)gridDim.x * BLOCK) {
        if (at < count) {
            const int u = sources[at];
            const double difference = contribution_of(u, degree[u], values, damping)
                - contribution_of(u, old_degree[at], values, damping);
            const int needed = (out_lengths[u] + EDGE_CHUNK - 1) / EDGE_CHUNK;
            contributions[at] = difference;
            chunks[at] = needed > 0 ? needed : 1;
            targets[at] = u;
            amounts[at] = loop[u] ? difference : 0.0;
            continue;
        }
        const bool gone = at < count + removed;
        const int64 edge = gone ? at - count : at - count - removed;
        const int u = gone ? removed_sources[edge] : added_sources[edge];
        const int64 source = first_from<int64>(sources, 0, count - 1, u);  // sources has u
        const double contribution = contribution_of(u, old_degree[source], values, damping);
        targets[at] = gone ? removed_targets[edge] : added_targets[edge];
        amounts[at] = gone ? -contribution : contribution;
    }
}

// r[w] += contribution over one chunk of an out-list, by a warp.
template <typename Value>
__device__ __forceinline__ void spread_chunk(
    const int* neighbours, int count, double contribution, Value* r, const WorkLists& lists, ThreadSums& thread) {
    for (int slot = threadIdx.x % WARP; slot < count; slot += WARP)
        accumulate(neighbours[slot], contribution, r, lists, thread);
    if (threadIdx.x % WARP == 0) {
        thread.sums[RESIDUAL_SUM] += contribution * count;
        thread.sums[MOVED] += fabs(contribution) * count;
        thread.sums[ADDITIONS] += count;
    }
}

// ends[i]: chunks of the out-lists of sources[0 … i], at least one each. Also r[targets[j]] += amounts[j].
template <typename Value>
__global__ void __launch_bounds__(BLOCK, 3) spread(
    const int* __restrict__ sources, const double* __restrict__ contributions, const int64* __restrict__ ends, int64 count,
    const int* __restrict__ targets, const double* __restrict__ amounts, int64 singles,
    const int64* __restrict__ row_starts, const int* __restrict__ row_lengths, const int* __restrict__ column_indices,
    Value* r, int* marks, double floor, int* candidates, int64 capacity, int64* tally) {
    uint64* counts = reinterpret_cast<uint64*>(tally);
    const WorkLists lists = {
        row_lengths, marks, candidates, counts + Tally::LISTED_COUNT, nullptr, nullptr, capacity, floor, 0.0, 0.0};
    ThreadSums thread = {};
    const int64 chunks = count > 0 ? ends[count - 1] : 0;
    const int64 warps = (int64)gridDim.x * WARPS;
    for (int64 chunk = (int64)blockIdx.x * WARPS + threadIdx.x / WARP; chunk < chunks; chunk += warps) {
        const int64 at = first_above(ends, count, chunk);
        const int u = sources[at];
        const int first = (int)(chunk - (at > 0 ? ends[at - 1] : 0)) * EDGE_CHUNK;
        if (contributions[at] == 0.0) continue;
        const int* neighbours = column_indices + row_starts[u] + first;
        spread_chunk(neighbours, min(EDGE_CHUNK, row_lengths[u] - first), contributions[at], r, lists, thread);
    }
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < singles; at += (int64)gridDim.x * BLOCK) {
        accumulate((int)targets[at], amounts[at], r, lists, thread);
        thread.sums[RESIDUAL_SUM] += amounts[at];
        thread.sums[MOVED] += fabs(amounts[at]);
        thread.sums[ADDITIONS] += 1.0;
    }
    flush(thread, tally, counts + Tally::QUEUED_EDGES);
}

// The list is in any order.
template <typename Value>
__global__ void __launch_bounds__(BLOCK, 3) select_candidates(
    const Value* __restrict__ r, int64 vertices, double floor, int* marks, int* candidates, int64 capacity, int64* tally) {
    uint64* listed = reinterpret_cast<uint64*>(tally) + Tally::LISTED_COUNT;
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        const bool large = fabs((double)r[v]) > floor;
        const int mark = marks[v];
        if (large != ((mark & LISTED) != 0)) marks[v] = mark ^ LISTED;
        if (large) {
            const int64 at = append(listed);
            if (at < capacity) candidates[at] = (int)v;
        }
    }
}

// For the vertices first … last-1: a warp a row, the whole block for long rows.
template <typename Value>
__global__ void __launch_bounds__(BLOCK, 3) recompute_rows(
    int64 first, int64 last, const int64* __restrict__ row_starts, const int* __restrict__ row_lengths,
    const int* __restrict__ column_indices, const uint8* __restrict__ loop, const int* __restrict__ degree,
    const Value* __restrict__ values, double rhs_scale, double damping, const int* __restrict__ out_lengths,
    Value* r, int* marks, double floor, int* candidates, int64 capacity, int64* tally) {
    constexpr int LONG = 2048;
    __shared__ double row_sums[WARPS];
    uint64* counts = reinterpret_cast<uint64*>(tally);
    const WorkLists lists = {
        out_lengths, marks, candidates, counts + Tally::LISTED_COUNT, nullptr, nullptr, capacity, floor, 0.0, 0.0};
    ThreadSums thread = {};
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (int64 block_row = first + (int64)blockIdx.x * WARPS; block_row < last; block_row += (int64)gridDim.x * WARPS) {
        const int64 v = block_row + warp;
        const int count = v < last && row_lengths[v] <= LONG ? row_lengths[v] : 0;
        double row_sum = 0.0;
        for (int slot = lane; slot < count; slot += WARP) {
            const int u = column_indices[row_starts[v] + slot];
            row_sum += (double)values[u] / degree[u];
        }
        row_sum = group_sum<WARP>(row_sum);
        if (lane == 0) row_sums[warp] = row_sum;
        __syncthreads();
        for (int row = 0; row < WARPS; ++row) {
            const int64 w = block_row + row;
            if (w >= last || row_lengths[w] <= LONG) continue;
            double part = 0.0;
#pragma unroll 4
            for (int slot = threadIdx.x; slot < row_lengths[w]; slot += BLOCK) {
                const int u = column_indices[row_starts[w] + slot];
                part += (double)values[u] / degree[u];
            }
            part = group_sum<BLOCK>(part);
            if (threadIdx.x == 0) row_sums[row] = part;
            __syncthreads();
        }
        if (lane == 0 && v < last) {
            const double old_value = r[v], diagonal = diagonal_of(degree[v], loop[v], damping);
            const Value stored = (Value)(rhs_scale + damping * row_sums[warp] - diagonal * values[v]);
            const double new_value = stored;
            r[v] = stored;
            thread.sums[MAGNITUDE] += fabs(new_value);
            thread.sums[RESIDUAL_L1] += fabs(new_value) - fabs(old_value);
            thread.sums[RESIDUAL_SUM] += new_value - old_value;
            if (fabs(new_value) > floor) enqueue((int)v, fabs(new_value), lists, thread);
        }
        __syncthreads();
    }
    flush(thread, tally, counts + Tally::QUEUED_EDGES);
}
