// The iterations of published personalized PageRank (liverank_gpu.operations.published; Wang et al., sections 2 to 4).
//
//     take         y[u] += x, r[u] = αℓx/d, contribution = α·x/d, x = r[u]     for all u of the work-list
//     push<true>   r[v] += contribution (times w(u,v) if WEIGHTED) over the out-lists. One pass: the value that each addition
//                  leaves is tested, and v is locked when it is listed, so that others do not list it too
//     push<false>  the additions alone
//     pull         the same from the other end: each v adds up the contributions of its in-neighbours, most of which may be 0,
//                  as a tree (the paper's binary combination, figure 1 c), and adds the sum to r[v]: nothing is shared
//     detect       lists every v with r[v] > θ. Each vertex is tested once, after all additions: no locks
//     unlock       after a one-pass push
//
// counts: the length of the next list and its out-edges (WorkList), and the items of this one; 0 at first.
// Launch: BLOCK threads a block, grid-stride loops. An out-list is divided into items of EDGE_CHUNK edges, and the items evenly
// among the warps of push; pull is launched as rows.cuh says.
// Traffic: push per edge 4 bytes of neighbour id (and 4 of weight if WEIGHTED), streamed, and one atomic addition to a random
// double; push<true> another random read, and an atomic exchange where r[v] > θ. pull per edge 4 bytes (and 4), streamed, and
// one random read of 8 bytes; per row 24 bytes. detect 8 bytes a vertex.
#include "rows.cuh"

struct NextList {
    const int* out_lengths;
    double threshold;
    int* queue;
    uint64* counts;

    // Every thread that lists a vertex calls this.
    __device__ __forceinline__ void add(int v, double& edges) const {
        queue[append(counts)] = v;
        edges += out_lengths[v];
    }

    // Every thread of the block takes part.
    __device__ __forceinline__ void add_edges(double edges) const {
        const double sum = group_sum<BLOCK>(edges);
        if (threadIdx.x == 0 && sum > 0.0) atomicAdd(counts + 1, (uint64)sum);
    }
};

// v is above θ: lists it, unless another thread has.
__device__ __forceinline__ void list_locked(int v, int* queued, const NextList& next, double& edges) {
    if (atomicExch(&queued[v], 1) == 0) next.add(v, edges);
}

// Each vertex adds its items, the chunks of its out-list: position in the work-list << 32 | chunk.
__global__ void __launch_bounds__(BLOCK) take(
    const int* __restrict__ queue, int64 listed, const int* __restrict__ out_lengths, const Loop* __restrict__ loop,
    const Degree* __restrict__ degree, double* __restrict__ values, double* __restrict__ r,
    double* __restrict__ contributions, double damping, int64* __restrict__ items, uint64* counts) {
    const int lane = threadIdx.x % WARP;
    for (int64 first = (int64)blockIdx.x * BLOCK + threadIdx.x - lane; first < listed; first += (int64)gridDim.x * BLOCK) {
        const int64 at = first + lane;
        int chunks = 0;
        if (at < listed) {
            const int u = queue[at];
            const double taken = r[u];
            const Degree d = degree[u];
            const double contribution = sent_of(taken, d, damping);
            values[u] += taken;
            contributions[u] = contribution;
            r[u] = (double)loop[u] * contribution;
            // at least one, for the test of what a loop leaves
            chunks = max(1, (out_lengths[u] + EDGE_CHUNK - 1) / EDGE_CHUNK);
        }
        if (items != nullptr) list_chunks(chunks, at, items, counts + 2);
    }
}

// A lane takes an item, and a warp the edges of its items one after the other, so that short lists leave no lane idle.
INSTANCES(push<false>, push<true>)
template <bool ONE_PASS>
__global__ void __launch_bounds__(BLOCK, 4) push(
    const int* __restrict__ queue, const int64* __restrict__ items, Lists out, const Loop* __restrict__ loop,
    const double* __restrict__ contributions, double* r, int* queued, double threshold, int* next_queue, uint64* counts) {
    const NextList next = {out.lengths, threshold, next_queue, counts};
    double listed_edges = 0.0;
    const int64 count = (int64)counts[2], warps = (int64)gridDim.x * WARPS;
    const int lane = threadIdx.x % WARP;
    int64 each = (count + warps - 1) / warps;
    each = each < WARP ? each : WARP;
    for (int64 first = ((int64)blockIdx.x * WARPS + threadIdx.x / WARP) * each; first < count; first += warps * each) {
        int64 begin = 0;
        int edges = 0;
        double contribution = 0.0;
        if (lane < each && first + lane < count) {
            const int64 item = items[first + lane];
            const int u = queue[item >> 32], offset = (int)(item & 0xffffffff) * EDGE_CHUNK;
            begin = out.starts[u] + offset;
            edges = min(EDGE_CHUNK, out.lengths[u] - offset);
            contribution = contributions[u];
            // what its loop has left may be enough, with no addition after it
            if (ONE_PASS && offset == 0 && (double)loop[u] * contribution > threshold)
                list_locked(u, queued, next, listed_edges);
        }
        const int end = inclusive_sum(edges);  // of this lane's edges among those of the warp
        const int all = __shfl_sync(FULL, end, WARP - 1);
        begin -= end - edges;
        for (int base = 0; base < all; base += WARP) {
            const int edge = base + lane;
            const int owner = lane_of(end, edge);
            const int64 slot = __shfl_sync(FULL, begin, owner) + edge;
            const double sent = __shfl_sync(FULL, contribution, owner);
            if (edge >= all) continue;
            const int v = out.indices[slot];
            const double amount = edge_amount(sent, out.weights, slot), before = atomicAdd(&r[v], amount);
            if (ONE_PASS && before + amount > threshold) list_locked(v, queued, next, listed_edges);
        }
    }
    if (ONE_PASS) next.add_edges(listed_edges);
}

__global__ void __launch_bounds__(BLOCK) unlock(const int* __restrict__ queue, const uint64* counts, int* __restrict__ queued) {
    const int64 listed = (int64)counts[0];
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < listed; at += (int64)gridDim.x * BLOCK) queued[queue[at]] = 0;
}

__global__ void __launch_bounds__(BLOCK, WEIGHTED ? 2 : 4) pull(
    RowSums rows, RowPlan plan, const double* __restrict__ contributions, double* __restrict__ r) {
    const auto load = [&](int u) { return contributions[u]; };
    const auto read = [&](int v, bool wanted) { return wanted ? r[v] : 0.0; };
    const auto finish = [&](int v, double before, double sum) { r[v] = before + sum; };
    sum_rows(rows, plan, load, read, finish);
}

__global__ void __launch_bounds__(BLOCK) detect(
    int64 vertices, const double* __restrict__ r, double threshold, const int* __restrict__ out_lengths,
    int* __restrict__ queue, uint64* counts) {
    const NextList next = {out_lengths, threshold, queue, counts};
    double edges = 0.0;
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK)
        if (r[v] > threshold) next.add((int)v, edges);
    next.add_edges(edges);
}
