// What vertices that are pushed add to r along their out-lists, in one launch or in rounds of shards: see push.cu, rounds.cu.
#include "work_lists.cuh"

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
