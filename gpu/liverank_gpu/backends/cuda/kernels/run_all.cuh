// Supersteps in which every vertex gathers from its in-neighbours (liverank_gpu.operations.programs).
//
// Launch: BLOCK threads a block, all blocks resident (cooperative), since they synchronise after each superstep.
// Traffic: per edge 4 bytes of neighbour id (and 4 of weight), streamed, and a random access to a value, and to a degree if the
// program names shares.
#include "programs.cuh"

// The aggregate of the block's threads, in thread 0.
__device__ __forceinline__ double block_aggregate(double value) {
    __shared__ double warps[WARPS];
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) value = combined<Program>(value, __shfl_xor_sync(FULL, value, step));
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = value;
    __syncthreads();
    value = warps[0];
    for (int warp = 1; warp < WARPS; ++warp) value = combined<Program>(value, warps[warp]);
    __syncthreads();
    return value;
}

// What a superstep of run_all reads and writes. No pointer may be __restrict__: values may be new_values.
struct Gathering {
    Lists lists;
    Vertices vertices;
    const Loop* loop;
    const uint8* absent;
    const int* order;
    Value* values;
    Value* new_values;
    int64 superstep;
    double aggregate;
};

// Gives v its new value, after what it gathered from others. Adds to `total` its aggregate. Returns whether it changed.
__device__ __forceinline__ bool finish(
    const Gathering& all, int64 v, Value gathered, const Parameters& parameters, double& total) {
    if (all.absent[v]) return false;
    const Value old_value = all.values[v];
    take_from_loop<Program>(gathered, old_value, v, all.loop, all.vertices, {all.superstep, all.aggregate}, parameters);
    const Value new_value =
        applied<Program>(old_value, gathered, v, all.vertices, all.superstep, all.aggregate, parameters);
    total = with_aggregate<Program>(total, new_value, v, all.vertices, parameters);
    all.new_values[v] = new_value;
    return Program::program_scatter(old_value, new_value, parameters, all.superstep, all.aggregate);
}

// The rows of the groups with LANES threads for each row. Adds to `total` the aggregate of the new values. Returns whether any
// changed. Adds to `messages` what was sent, if vertices choose along which edges.
template <int LANES>
__device__ __forceinline__ bool gather_rows(
    const Gathering& all, const Rows& rows, const Parameters& parameters, double& total, int64& messages) {
    const Step step = {all.superstep, all.aggregate};
    bool changed = false;
#pragma unroll
    for (int group = 0; group < BINS; ++group) {
        if ((GROUP_LANES[group] < BLOCK ? GROUP_LANES[group] : BLOCK) != LANES) continue;
        const int64 last = rows.first[group + 1];
        for (int64 base = rows.first[group] + (int64)blockIdx.x * (BLOCK / LANES); base < last;
             base += (int64)gridDim.x * (BLOCK / LANES)) {
            const int64 at = base + threadIdx.x / LANES;
            const int v = at < last ? all.order[at] : -1;
            Value gathered = IDENTITY;
            if (v >= 0) {
                const int64 begin = all.lists.starts[v];
                const int length = all.lists.lengths[v];
                for (int entry = threadIdx.x % LANES; entry < length; entry += LANES) {
                    const int u = all.lists.indices[begin + entry];
                    const double weight = all.lists.weight(begin + entry);
                    messages += take<Program>(gathered, all.values[u], weight, u, v, all.vertices, step, nullptr, parameters);
                }
            }
            gathered = merged_group<LANES>(gathered, parameters);
            if (v >= 0 && threadIdx.x % LANES == 0) changed |= finish(all, v, gathered, parameters, total);
        }
    }
    return changed;
}

// Supersteps of a program whose vertices are all active. partial: double[3, blocks]. The result is in `values` after an even
// number of supersteps, else in `new_values`.
__global__ void __launch_bounds__(BLOCK, ALL_BLOCKS) run_all(
    Lists lists, const Loop* loop, const Degree* degree, const int* ids, const uint8* absent, const int* order, Rows rows,
    int64 count, Parameters parameters, Value* values, Value* new_values, double* partial, int64 superstep,
    int64 supersteps, int64* counts, double* aggregate) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    volatile int64* const numbers = counts;
    Gathering all = {lists, {ids, degree, lists.lengths}, loop, absent, order, values, new_values, superstep, 0.0};
    double total = AGGREGATE_IDENTITY;
    int64 messages = 0;
    for (int64 v = thread_of_grid(); v < count; v += threads_of_grid()) {
        if (absent[v]) continue;
        total = with_aggregate<Program>(total, values[v], v, all.vertices, parameters);
    }
    int64 step = 0;
    bool finished = false;
    __shared__ double everyone;
    for (;; ++step) {
        const int now = step % 3, after = (step + 2) % 3;
        total = block_aggregate(total);
        if (threadIdx.x == 0) partial[now * gridDim.x + blockIdx.x] = total;
        grid.sync();
        double mine = AGGREGATE_IDENTITY;  // in a fixed order
        for (int block = threadIdx.x; block < gridDim.x; block += BLOCK)
            mine = combined<Program>(mine, newest(partial + now * gridDim.x + block));
        mine = block_aggregate(mine);
        if (threadIdx.x == 0) everyone = mine;
        __syncthreads();
        all.aggregate = everyone;
        __syncthreads();
        finished = step > 0 && numbers[ProgramCount::CHANGED + now] == 0;
        if (finished || step == supersteps) break;
        if (thread_of_grid() == 0) numbers[ProgramCount::CHANGED + after] = 0;
        all.values = step % 2 ? new_values : values;
        all.new_values = step % 2 ? values : new_values;
        all.superstep = superstep + step;
        total = AGGREGATE_IDENTITY;
        bool changed = false;
        changed |= gather_rows<BLOCK>(all, rows, parameters, total, messages);
        changed |= gather_rows<32>(all, rows, parameters, total, messages);
        changed |= gather_rows<8>(all, rows, parameters, total, messages);
        changed |= gather_rows<2>(all, rows, parameters, total, messages);
        changed |= gather_rows<1>(all, rows, parameters, total, messages);
        if (__syncthreads_or(changed) && threadIdx.x == 0) numbers[ProgramCount::CHANGED + (step + 1) % 3] = 1;
    }
    const uint64 sent = warp_sum((uint64)messages);
    if (threadIdx.x % WARP == 0 && sent > 0) atomicAdd(reinterpret_cast<uint64*>(counts) + ProgramCount::MESSAGES, sent);
    if (thread_of_grid() == 0) {
        numbers[ProgramCount::SUPERSTEPS] = step;
        numbers[ProgramCount::FINAL] = finished ? 0 : 1;
        *aggregate = all.aggregate;
    }
}
