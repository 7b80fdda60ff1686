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

// What a batch adds to r: contributions of touched sources, which go along their out-lists, with the ends of the chunks of
// these; and single amounts, which are those through loops, removed edges and added edges.
struct Perturbation {
    double* contributions;
    int64* ends;
    double* amounts;
    int* targets;
    uint8* spared;  // null, or whether added edges are left out
};

// That of a batch, in int64[3 · sources + 2 · singles + 3 + sources / TILE]; its scan comes last.
__device__ __forceinline__ Perturbation perturbation_in(int64* memory, int64 count, int64 singles, uint64*& scan) {
    int64* const ends = memory + count;
    int64* const amounts = ends + count;
    int64* const targets = amounts + singles;
    int64* const spared = targets + (singles + 1) / 2;
    scan = reinterpret_cast<uint64*>(spared + (count + 7) / 8);
    return {reinterpret_cast<double*>(memory), ends, reinterpret_cast<double*>(amounts), reinterpret_cast<int*>(targets),
            reinterpret_cast<uint8*>(spared)};
}

// The source at `at`. Returns the chunks of its out-list, at least one.
__device__ __forceinline__ int perturb_source(
    int64 at, const EdgeChanges& changes, int64 added, const GraphLists& graph, const double* values, double damping,
    const Perturbation& to) {
    const int u = changes.sources[at];
    const Degree d = graph.degree[u], old_d = changes.old_degree[at];
    const Loop own = graph.loop[u];
    const double before = sent_of(values[u], old_d, damping);
    double difference = sent_of(values[u], d, damping) - before;
    if constexpr (WEIGHTED)  // else the rounding would be relative to the two
        if (d > 0 && old_d > 0) difference = (old_d - d) / d * before;
    const int needed = (graph.out.lengths[u] + EDGE_CHUNK - 1) / EDGE_CHUNK;
    to.contributions[at] = difference;
    to.targets[at] = u;
    to.amounts[at] = own != 0 ? (WEIGHTED ? difference * own : difference) : 0.0;
    if constexpr (WEIGHTED) {
        to.spared[at] = is_spared(d, old_d);
        if (to.spared[at] && AddedEdges{changes.added_sources, changes.added_targets, added}.has(u, u)) to.amounts[at] = 0.0;
    }
    return needed > 0 ? needed : 1;
}

// The edge at `edge` of those that are gone or new; its amount is at `at`.
__device__ __forceinline__ void perturb_edge(
    int64 edge, bool gone, int64 at, const EdgeChanges& changes, int64 count, const GraphLists& graph, const double* values,
    double damping, const Perturbation& to) {
    const int u = gone ? changes.removed_sources[edge] : changes.added_sources[edge];
    const int64 source = first_from<int64>(changes.sources, 0, count - 1, u);  // sources has u
    const Degree now = graph.degree[u], old_d = changes.old_degree[source], d = !gone && is_spared(now, old_d) ? now : old_d;
    const double contribution =
        edge_amount(sent_of(values[u], d, damping), gone ? changes.removed_weights : changes.added_weights, edge);
    to.targets[at] = gone ? changes.removed_targets[edge] : changes.added_targets[edge];
    to.amounts[at] = gone ? -contribution : contribution;
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

// r[w] += contributions over the out-lists of `count` sources, and amounts at `singles` targets. ends[i]: chunks of the
// out-lists of sources 0 … i, at least one each.
__device__ __forceinline__ void scatter_all(
    const int* sources, int64 count, int64 singles, const Lists& out, const Perturbation& from, const AddedEdges& added,
    const Candidates& to, const Answer& answer) {
    uint64* counts = reinterpret_cast<uint64*>(answer.counts);
    const WorkLists lists = lists_of(to, out.lengths, answer.counts);
    ThreadSums thread = {};
    const int64 chunks = count > 0 ? from.ends[count - 1] : 0;
    for (int64 chunk = thread_of_grid() / WARP; chunk < chunks; chunk += threads_of_grid() / WARP) {
        const int64 at = first_above(from.ends, count, chunk);
        const int u = sources[at];
        const int first = (int)(chunk - (at > 0 ? from.ends[at - 1] : 0)) * EDGE_CHUNK;
        const double contribution = from.contributions[at];
        if (contribution == 0.0) continue;
        const int64 begin = out.starts[u] + first;
        const int edges = min(EDGE_CHUNK, out.lengths[u] - first);
        const float* chunk_weights = WEIGHTED ? out.weights + begin : nullptr;
        const bool sparing = WEIGHTED && from.spared != nullptr && from.spared[at];
        const AddedEdges left_out = {added.sources, added.targets, sparing ? added.count : 0};
        scatter_chunk(out.indices + begin, chunk_weights, edges, contribution, to.r, lists, thread, u, left_out);
    }
    for (int64 at = thread_of_grid(); at < singles; at += threads_of_grid()) {
        const double amount = from.amounts[at];
        accumulate((int)from.targets[at], amount, to.r, lists, thread);
        thread.sums[RESIDUAL_SUM] += amount;
        thread.sums[MOVED] += fabs(amount);
        thread.sums[ADDITIONS] += 1.0;
    }
    flush(thread, answer.counts, counts + Tally::QUEUED_EDGES);
}

// memory: see perturbation_in. Nothing is done if the additions exceed `limit`: END says so.
__global__ void __launch_bounds__(BLOCK, 2) perturb(
    EdgeChanges changes, int64 count, int64 removed, int64 added, GraphLists graph, const double* __restrict__ values,
    double damping, int64* memory, int64 limit, Candidates to, int64 listed, Answer answer) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const int64 singles = count + removed + added;
    uint64* scan;
    const Perturbation by = perturbation_in(memory, count, singles, scan);
    begin_answer(answer, listed);
    for (int64 at = thread_of_grid(); at < 2 + count / TILE; at += threads_of_grid()) scan[at] = 0;
    for (int64 at = count + thread_of_grid(); at < singles; at += threads_of_grid()) {
        const bool gone = at < count + removed;
        perturb_edge(gone ? at - count : at - count - removed, gone, at, changes, count, graph, values, damping, by);
    }
    grid.sync();
    over_tiles(scan, count, blockIdx.x, [&](int64 tile) {
        const int64 first = first_item(tile, ITEMS);
        uint64 chunks[1][ITEMS];
        int own[ITEMS];
#pragma unroll
        for (int item = 0; item < ITEMS; ++item) {
            const int64 at = first + item * WARP;
            own[item] = at < count ? perturb_source(at, changes, added, graph, values, damping, by) : 0;
            chunks[0][item] = own[item];
        }
        exclusive_sums(scan, tile, chunks);
#pragma unroll
        for (int item = 0; item < ITEMS; ++item)
            if (first + item * WARP < count) by.ends[first + item * WARP] = (int64)chunks[0][item] + own[item];
    });
    grid.sync();
    if ((by.ends[count - 1] - count) * EDGE_CHUNK + singles > limit) {
        if (thread_of_grid() == 0) answer.counts[Tally::END] = 1;
    } else {
        const AddedEdges edges = {changes.added_sources, changes.added_targets, added};
        scatter_all(changes.sources, count, singles, graph.out, by, edges, to, answer);
    }
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
