// The vertices of a window gather from in-neighbours that became active (liverank_gpu.operations.programs).
//
// Launch: BLOCK threads a block.
// Traffic: per edge 4 bytes of neighbour id (and 4 of weight), streamed, and a random access to a step; where the neighbour
// became active, also to a value, and to a degree if the program names shares.
#include "programs.cuh"

// No pointer may be __restrict__: what is read and what is written may be one array.
struct Window {
    Lists lists;
    Lists outgoing;
    Vertices vertices;
    const Loop* loop;
    const uint8* absent;
    const int* order;
    Value* values;
    Value* new_values;
    const int* steps;
    int* new_steps;
    int* blocks;
    int shift;
    int since;
    int now;
    int both;  // whether vertices send against edges too
    int64 superstep;
    double aggregate;
    EdgeValue* edge_values;
};

__device__ __forceinline__ bool is_active(const Window& all, int64 v) {
    return Program::EVERY_VERTEX || newest(all.steps + v) >= all.since;
}

// Gives v its new value. Returns whether it became active.
__device__ __forceinline__ bool receive(const Window& all, int64 v, Value gathered, const Parameters& parameters) {
    Value old_value, new_value;
    for (;;) {
        old_value = newest(all.values + v);
        new_value = applied<Program>(old_value, gathered, v, all.vertices, all.superstep, all.aggregate, parameters);
        if (Program::MONOTONE && new_value == old_value) return false;
        if constexpr (!Program::MONOTONE || Program::RECORD) {
            all.new_values[v] = new_value;
            break;
        } else {
            if (compare_and_swap(all.new_values + v, old_value, new_value)) break;
        }
    }
    if (!Program::program_scatter(old_value, new_value, parameters, all.superstep, all.aggregate)) return false;
    if constexpr (!Program::EVERY_VERTEX) {
        __threadfence();
        all.new_steps[v] = all.now;
        all.blocks[v >> all.shift] = all.now;
    }
    return true;
}

// Merges what the active of v's neighbours send, of its list those of every LANES-th entry. Returns whether any did.
template <int LANES>
__device__ __forceinline__ bool take_all(
    Value& gathered, const Window& all, const Lists& lists, int64 v, const Parameters& parameters, uint64& messages) {
    const Step step = {all.superstep, all.aggregate};
    const int64 begin = lists.starts[v];
    const int length = lists.lengths[v];
    bool received = false;
    for (int entry = threadIdx.x % LANES; entry < length; entry += LANES) {
        const int64 u = lists.indices[begin + entry];
        if (!is_active(all, u)) continue;
        const double weight = lists.weight(begin + entry);
        EdgeValue* edge = Program::EDGES ? all.edge_values + begin + entry : nullptr;
        if (!take<Program>(gathered, newest(all.values + u), weight, u, v, all.vertices, step, edge, parameters)) continue;
        received = true;
        ++messages;
    }
    return received;
}

// Sends from v against its in-edges.
template <int LANES>
__device__ __forceinline__ void send_back(
    const Window& all, int64 v, const Parameters& parameters, uint64& active, uint64& messages) {
    const int64 begin = all.lists.starts[v];
    const int length = all.lists.lengths[v];
    for (int entry = threadIdx.x % LANES; entry < length; entry += LANES) {
        const int u = all.lists.indices[begin + entry];
        const double weight = all.lists.weight(begin + entry);
        const Value message = message_of<Program>(newest(all.values + v), weight, v, all.vertices.degree, parameters);
        active += receive(all, u, message, parameters);
        ++messages;
    }
}

template <int LANES>
__device__ __forceinline__ bool any_of_group(bool flag) {
    constexpr int WIDTH = LANES < WARP ? LANES : WARP;
    int any = flag;
#pragma unroll
    for (int step = WIDTH / 2; step > 0; step /= 2) any |= __shfl_xor_sync(FULL, any, step);
    if constexpr (LANES == BLOCK) any = __syncthreads_or(any);
    return any;
}

// The rows of the groups with LANES threads for each row.
template <int LANES>
__device__ __forceinline__ void gather_rows(
    const Window& all, const Rows& rows, const Parameters& parameters, uint64& active, uint64& messages) {
    const bool pulls_both = Program::PULLS || all.values != all.new_values;
#pragma unroll
    for (int group = 0; group < BINS; ++group) {
        if ((GROUP_LANES[group] < BLOCK ? GROUP_LANES[group] : BLOCK) != LANES) continue;
        const int64 last = rows.first[group + 1];
        for (int64 base = rows.first[group] + (int64)blockIdx.x * (BLOCK / LANES); base < last;
             base += (int64)gridDim.x * (BLOCK / LANES)) {
            const int64 at = base + threadIdx.x / LANES;
            int64 v = at < last ? all.order[at] : -1;
            if (v >= 0 && all.absent[v]) v = -1;
            Value gathered = IDENTITY;
            bool received = Program::EVERY_VERTEX;
            if (v >= 0) {
                if constexpr (Program::BOTH && !Program::PULLS)
                    if (all.both && !pulls_both && is_active(all, v))
                        send_back<LANES>(all, v, parameters, active, messages);
                received |= take_all<LANES>(gathered, all, all.lists, v, parameters, messages);
                if (Program::BOTH && pulls_both && all.both)
                    received |= take_all<LANES>(gathered, all, all.outgoing, v, parameters, messages);
            }
            gathered = merged_group<LANES>(gathered, parameters);
            received = any_of_group<LANES>(received);
            if (v < 0 || threadIdx.x % LANES != 0) continue;
            take_from_loop<Program>(
                gathered, newest(all.values + v), (int64)v, all.loop, all.vertices, {all.superstep, all.aggregate}, parameters);
            if (received) active += receive(all, v, gathered, parameters);
        }
    }
}

// counts: uint64[2], zero before: vertices that became active, and messages.
__global__ void __launch_bounds__(BLOCK, ALL_BLOCKS) gather_window(
    Window all, Rows rows, Parameters parameters, uint64* counts) {
    uint64 active = 0, messages = 0;
    gather_rows<BLOCK>(all, rows, parameters, active, messages);
    gather_rows<32>(all, rows, parameters, active, messages);
    gather_rows<8>(all, rows, parameters, active, messages);
    gather_rows<2>(all, rows, parameters, active, messages);
    gather_rows<1>(all, rows, parameters, active, messages);
    active = warp_sum(active);
    messages = warp_sum(messages);
    if (threadIdx.x % WARP == 0 && active > 0) atomicAdd(counts, active);
    if (threadIdx.x % WARP == 0 && messages > 0) atomicAdd(counts + 1, messages);
}
