// What a batch changes in the residual of a graph (liverank_gpu.operations.residual: Perturb), as contributions of touched
// sources and single amounts, and how they are added: see perturb.cu.
#include "work_lists.cuh"

// Whether the strength grew so much that added edges are left out of the contribution (liverank_gpu.operations.residual:
// Perturb).
__device__ __forceinline__ bool is_spared(Degree d, Degree old_d) { return WEIGHTED && d > SPARED_GROWTH * old_d; }

// liverank_gpu.operations.graph.EdgeChanges
struct EdgeChanges {
    int* sources;
    Degree* old_degree;
    int* removed_sources;
    int* removed_targets;
    int* added_sources;
    int* added_targets;
    float* removed_weights;
    float* added_weights;
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

// r after a batch. memory: see perturbation_in. Nothing is done if the additions exceed `limit`: END says so. The answer's
// counts are not told yet.
__device__ __forceinline__ void perturb_all(
    const cooperative_groups::grid_group& grid, const EdgeChanges& changes, int64 count, int64 removed, int64 added,
    const GraphLists& graph, const double* values, double damping, int64* memory, int64 limit, const Candidates& to,
    int64 listed, const Answer& answer) {
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
}
