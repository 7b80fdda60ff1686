// Additions to the residual, and the lists of its large entries: candidates above the floor, and the next work-list of a push
// (liverank_gpu.operations.residual).
//
// Atomic additions come in any order, so results differ in the last bits from run to run. What an addition changes in |r|
// follows from the value that it returns, so the sums over r are kept without a pass over it. Every amount and every sum is a
// double until it is stored.
#include <cooperative_groups.h>
#include "scan.cuh"

// The out-lists, loops and degrees of a graph.
struct GraphLists {
    Lists out;
    const Loop* loop;
    const Degree* degree;
};

// The residual, the marks of vertices, and the list of the candidates above the floor.
struct Candidates {
    double* r;
    int* marks;
    double floor;
    int* candidates;
    int64 capacity;
};

// What a thread adds up until `flush`. The first five are those of liverank_gpu.operations.residual.ResidualDelta.
enum Sum { RESIDUAL_L1, RESIDUAL_SUM, MASS, MOVED, MAGNITUDE, ADDITIONS, VERTICES, NEWLY_QUEUED_EDGES, SUMS };

struct ThreadSums {
    double sums[SUMS];
};

// queued is null if there is no work-list.
struct WorkLists {
    const int* out_lengths;
    int* marks;
    int* candidates;
    uint64* listed;
    int* queue;
    uint64* queued;
    int64 capacity;
    double floor, threshold, edge_weight;
};

// The candidates before, in the counts of an answer: to be called before the first sync of the grid.
__device__ __forceinline__ void begin_answer(const Answer& answer, int64 listed) {
    if (thread_of_grid() == 0) answer.counts[Tally::LISTED_COUNT] = listed;
}

// Without a work-list.
__device__ __forceinline__ WorkLists lists_of(const Candidates& to, const int* out_lengths, int64* tally) {
    uint64* const listed = reinterpret_cast<uint64*>(tally) + Tally::LISTED_COUNT;
    return {out_lengths, to.marks, to.candidates, listed, nullptr, nullptr, to.capacity, to.floor, 0.0, 0.0};
}

// Lists v as a candidate, and queues it if it is above its threshold. size: |r[v]|, above the floor.
__device__ __forceinline__ void enqueue(int v, double size, const WorkLists& lists, ThreadSums& thread) {
    int mark = lists.marks[v];
    if (!(mark & LISTED)) {
        mark = atomicOr(&lists.marks[v], LISTED);
        if (!(mark & LISTED)) {
            const int64 at = append(lists.listed);
            if (at < lists.capacity) lists.candidates[at] = v;
        }
    }
    if (lists.queued == nullptr || size <= lists.threshold || mark & QUEUED) return;
    const int length = lists.out_lengths[v];
    if (size <= lists.threshold * cost_of(lists.edge_weight, length)) return;
    mark = atomicOr(&lists.marks[v], QUEUED);
    if (mark & QUEUED) return;
    const int64 at = append(lists.queued);
    if (at < lists.capacity) lists.queue[at] = v;
    thread.sums[NEWLY_QUEUED_EDGES] += length;
}

// r[v] += amount.
__device__ __forceinline__ void accumulate(int v, double amount, double* r, const WorkLists& lists, ThreadSums& thread) {
    const double old_value = atomicAdd(&r[v], amount);
    const double new_value = old_value + amount;  // rounded as the atomic addition is
    const double size = fabs(new_value);
    thread.sums[RESIDUAL_L1] += size - fabs(old_value);
    thread.sums[MAGNITUDE] += size;
    if (size > lists.floor) enqueue(v, size, lists, thread);
}

// Moves r[u] to y[u], but for what rounding of y leaves. Returns by how much y[u] changed.
__device__ __forceinline__ double push_vertex(int u, double diagonal, double* values, double* r, ThreadSums& thread) {
    const double residual = r[u];
    const Push push(values[u], residual, diagonal);
    values[u] = push.value;
    r[u] = push.residual;
    thread.sums[RESIDUAL_L1] += fabs(push.residual) - fabs(residual);
    thread.sums[RESIDUAL_SUM] += push.residual - residual;
    thread.sums[MASS] += push.step;
    thread.sums[MOVED] += fabs(residual);
    return push.step;
}

// Adds the block's sums to the tally, and the edges of what it queued to queued_edges. Every thread of the block takes part.
__device__ __forceinline__ void flush(ThreadSums& thread, int64* tally, uint64* queued_edges) {
    __shared__ double warps[WARPS][SUMS];
    bool any = false;
#pragma unroll
    for (int sum = 0; sum < SUMS; ++sum) any |= thread.sums[sum] != 0.0;
    if (!__syncthreads_or(any)) return;
#pragma unroll
    for (int sum = 0; sum < SUMS; ++sum) {
        const double value = group_sum<WARP>(thread.sums[sum]);
        if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP][sum] = value;
        thread.sums[sum] = 0.0;
    }
    __syncthreads();
    if (threadIdx.x < SUMS) {
        const int sum = threadIdx.x;
        double value = 0.0;
        for (int warp = 0; warp < WARPS; ++warp) value += warps[warp][sum];
        uint64* counts = reinterpret_cast<uint64*>(tally);
        if (sum == ADDITIONS) atomicAdd(counts + Tally::ADDITIONS, (uint64)value);
        else if (sum == VERTICES) atomicAdd(counts + Tally::VERTICES, (uint64)value);
        else if (sum == NEWLY_QUEUED_EDGES) atomicAdd(queued_edges, (uint64)value);
        else atomicAdd(reinterpret_cast<double*>(tally + Tally::SUMS) + sum, value);
    }
    __syncthreads();
}

// ---- what pushed vertices add to r along their out-lists, in one launch (push.cu) or in rounds of shards (rounds.cu) ----

// The arrays of a push. items: position in the work-list << 32 | chunk of the out-list.
struct PushArrays {
    Lists out;
    const Loop* loop;
    const Degree* degree;
    double* values;
    double* r;
    int* marks;
    double* contributions;
    int64* items;
    double damping;

    __device__ __forceinline__ double diagonal(int v) const { return diagonal_of(degree[v], loop[v], damping); }
};

// Calls add(v, contribution) over all items: a few items to a warp, their edges one after the other.
template <typename Add>
__device__ __forceinline__ void spread_items(
    const PushArrays& push, const int* queue, int64 count, ThreadSums& thread, const Add& add) {
    const int lane = threadIdx.x % WARP;
    const int64 warps = threads_of_grid() / WARP;
    int64 each = (count + warps - 1) / warps;
    each = each < WARP ? each : WARP;
    for (int64 first = thread_of_grid() / WARP * each; first < count; first += warps * each) {
        const int64 mine = first + lane;
        int64 begin = 0;
        int edges = 0;
        double contribution = 0.0;
        if (lane < each && mine < count) {
            const int64 item = push.items[mine];
            const int u = queue[item >> 32];
            const int64 offset = (item & 0xffffffff) * EDGE_CHUNK;
            begin = push.out.starts[u] + offset;
            edges = (int)(push.out.lengths[u] - offset < EDGE_CHUNK ? push.out.lengths[u] - offset : EDGE_CHUNK);
            contribution = push.contributions[item >> 32];
            if constexpr (!WEIGHTED) {
                thread.sums[RESIDUAL_SUM] += contribution * edges;
                thread.sums[MOVED] += fabs(contribution) * edges;
            }
            thread.sums[ADDITIONS] += edges;
        }
        const int end = inclusive_sum(edges);  // of this lane's edges among those of the warp
        const int all = __shfl_sync(FULL, end, WARP - 1);
        begin -= end - edges;
        for (int base = 0; base < all; base += WARP) {
            const int edge = base + lane;
            const int owner = lane_of(end, edge);
            const int64 owner_begin = __shfl_sync(FULL, begin, owner);
            const double owner_contribution = __shfl_sync(FULL, contribution, owner);
            if (edge < all) {
                const double amount = edge_amount(owner_contribution, push.out.weights, owner_begin + edge);
                add(push.out.indices[owner_begin + edge], amount);
                if constexpr (WEIGHTED) {
                    thread.sums[RESIDUAL_SUM] += amount;
                    thread.sums[MOVED] += fabs(amount);
                }
            }
        }
    }
}
