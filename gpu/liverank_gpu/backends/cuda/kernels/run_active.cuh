// Supersteps in which the active vertices send (liverank_gpu.operations.programs).
//
// Launch: BLOCK threads a block, all blocks resident (cooperative), since they synchronise within a superstep.
// Traffic: per message 4 bytes of neighbour id (and 4 of weight), streamed, and a random access to a value; an atomic operation
// more if it changes something. Lists of active vertices stay on the device.
#include "programs.cuh"

struct Delivery {
    Value* values;
    Value* accumulated;
    int* marks;
    int* listed;
    uint64* found;
};

// A message arrives at v: it is merged with others, or changes the value at once.
template <bool IN_PLACE>
__device__ __forceinline__ void deliver(int v, Value message, const Parameters& parameters, const Delivery& to) {
    if constexpr (IN_PLACE) {
        Value old_value, new_value;
        do {
            old_value = newest(to.values + v);
            new_value = applied<Program>(old_value, message, parameters);
            if (new_value == old_value) return;
        } while (!compare_and_swap(to.values + v, old_value, new_value));
        if (!Program::program_scatter(old_value, new_value, parameters)) return;
        __threadfence();
    } else {
        if constexpr (Program::MONOTONE) {
            const Value old_value = to.values[v];
            if (applied<Program>(old_value, message, parameters) == old_value) return;
        }
        merge_into(to.accumulated + v, message, parameters);
    }
    if (newest(to.marks + v) == 0 && atomicExch(to.marks + v, 1) == 0) to.listed[append(to.found)] = v;
}

constexpr int SHORT = 8;  // edges of a vertex that one thread sends along

// Sends along the entries first, first + step, … of u's list.
template <bool IN_PLACE>
__device__ __forceinline__ void send(
    int u, Value value, const Lists& lists, const Degree* degree, int first, int last, int step, const Parameters& parameters,
    const Delivery& to) {
    const int64 begin = lists.starts[u];
    for (int entry = first; entry < last; entry += step) {
        const double weight = lists.weight(begin + entry);
        const Value message = message_of<Program>(value, weight, u, degree, parameters);
        deliver<IN_PLACE>(lists.indices[begin + entry], message, parameters, to);
    }
}

// Supersteps of a program whose vertices are active where something changed. directions: 2 if messages go along in-lists too.
// items: position in the list << 32 | chunk; the chunks of out-lists, then those of in-lists. counts: zero but for the number
// of active vertices; each kind has three, used in turn.
template <bool IN_PLACE>
__global__ void __launch_bounds__(BLOCK, ACTIVE_BLOCKS) run_active(
    Lists outgoing, Lists incoming, const Degree* degree, const int* ids, Parameters parameters, Value* values,
    Value* accumulated, int* marks, int* first_active, int* second_active, int* received, int64* items, int directions,
    int64 vertices, int64 edges, int64 superstep, int64 supersteps, int64* counts) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const Vertices vertex = {ids, degree, incoming.lengths};
    volatile int64* const numbers = counts;
    uint64* const counters = reinterpret_cast<uint64*>(counts);
    const int lane = threadIdx.x % WARP;
    int64 messages = 0, step = 0;
    for (; step < supersteps; ++step) {
        const int now = step % 3, next = (step + 1) % 3, after = (step + 2) % 3;
        const int* active = step % 2 ? second_active : first_active;
        int* next_active = step % 2 ? first_active : second_active;
        const int64 count = numbers[ProgramCount::ACTIVE + now];
        if (count == 0) break;
        if (thread_of_grid() == 0) {
            numbers[ProgramCount::ACTIVE + after] = 0;
            numbers[ProgramCount::ITEMS + next] = 0;
            numbers[ProgramCount::RECEIVED + next] = 0;
            numbers[ProgramCount::ACTIVE_EDGES + after] = 0;
        }
        if constexpr (Program::FIRST_WINS && !IN_PLACE) {
            if (numbers[ProgramCount::ACTIVE_EDGES + now] * LOOKING_PART > edges) {
                // vertices without a value look for an active in-neighbour
                for (int64 at = thread_of_grid(); at < count; at += threads_of_grid()) marks[active[at]] = 1;
                grid.sync();
                int64 following = 0;
                for (int64 first = thread_of_grid() - lane; first < vertices; first += threads_of_grid()) {
                    const int64 v = first + lane;
                    const bool open = v < vertices && values[v] == IDENTITY;
                    const int64 slot = find_marked(open, v, incoming, marks, messages);
                    if (slot < 0) continue;
                    const int u = incoming.indices[slot];
                    const double weight = incoming.weight(slot);
                    const Value message = message_of<Program>(newest(values + u), weight, u, degree, parameters);
                    const Value new_value = applied<Program>(IDENTITY, message, parameters);
                    values[v] = new_value;
                    if (!Program::program_scatter(IDENTITY, new_value, parameters)) continue;
                    next_active[append(counters + ProgramCount::ACTIVE + next)] = (int)v;
                    following += outgoing.lengths[v];
                }
                following = (int64)warp_sum((uint64)following);
                if (lane == 0 && following > 0) atomicAdd(counters + ProgramCount::ACTIVE_EDGES + next, (uint64)following);
                grid.sync();
                for (int64 at = thread_of_grid(); at < count; at += threads_of_grid()) marks[active[at]] = 0;
                grid.sync();
                continue;
            }
        }
        if constexpr (IN_PLACE) {
            // whoever improves their values from here on lists them again
            for (int64 at = thread_of_grid(); at < count; at += threads_of_grid()) marks[active[at]] = 0;
            grid.sync();
        }
        const Delivery to = {
            values, accumulated, marks, IN_PLACE ? next_active : received,
            counters + (IN_PLACE ? ProgramCount::ACTIVE + next : ProgramCount::RECEIVED + now)};

        for (int64 block_first = (int64)blockIdx.x * BLOCK; block_first < count; block_first += threads_of_grid()) {
            const int64 at = block_first + threadIdx.x;
            int chunks = 0;
            if (at < count) {
                const int u = active[at];
#pragma unroll
                for (int against = 0; against < (Program::BOTH ? 2 : 1); ++against) {
                    if (Program::BOTH && against == directions) break;
                    const Lists& lists = against ? incoming : outgoing;
                    const int length = lists.lengths[u];
                    messages += length;
                    if (length > SHORT) chunks += (length + EDGE_CHUNK - 1) / EDGE_CHUNK;
                    else if (length) send<IN_PLACE>(u, newest(values + u), lists, degree, 0, length, 1, parameters, to);
                }
            }
            __syncwarp();
            list_chunks(chunks, at, items, counters + ProgramCount::ITEMS + now);
        }
        grid.sync();
        const int64 item_count = numbers[ProgramCount::ITEMS + now];
        for (int64 item = thread_of_grid() / WARP; item < item_count; item += threads_of_grid() / WARP) {
            const int u = active[items[item] >> 32];
            int chunk = (int)(items[item] & 0x7fffffff);
            Lists lists = outgoing;
            if constexpr (Program::BOTH) {
                const int length = outgoing.lengths[u], chunks = length > SHORT ? (length + EDGE_CHUNK - 1) / EDGE_CHUNK : 0;
                if (chunk >= chunks) lists = incoming, chunk -= chunks;
            }
            const int first = chunk * EDGE_CHUNK, length = lists.lengths[u];
            const int last = length - first < EDGE_CHUNK ? length : first + EDGE_CHUNK;
            send<IN_PLACE>(u, newest(values + u), lists, degree, first + lane, last, WARP, parameters, to);
        }
        grid.sync();
        if constexpr (!IN_PLACE) {
            const int64 received_count = numbers[ProgramCount::RECEIVED + now];
            int64 following = 0;
            for (int64 at = thread_of_grid(); at < received_count; at += threads_of_grid()) {
                const int v = received[at];
                const Value old_value = values[v], gathered = newest(accumulated + v);
                accumulated[v] = IDENTITY;
                marks[v] = 0;
                const Value new_value = applied<Program>(old_value, gathered, v, vertex, superstep + step, 0.0, parameters);
                values[v] = new_value;
                if (!Program::program_scatter(old_value, new_value, parameters)) continue;
                next_active[append(counters + ProgramCount::ACTIVE + next)] = v;
                if constexpr (Program::FIRST_WINS) following += outgoing.lengths[v];
            }
            if constexpr (Program::FIRST_WINS) {
                following = (int64)warp_sum((uint64)following);
                if (lane == 0 && following > 0) atomicAdd(counters + ProgramCount::ACTIVE_EDGES + next, (uint64)following);
            }
            grid.sync();
        }
    }
    const uint64 sent = warp_sum((uint64)messages);
    if (lane == 0 && sent > 0) atomicAdd(counters + ProgramCount::MESSAGES, sent);
    if (thread_of_grid() == 0) {
        numbers[ProgramCount::SUPERSTEPS] = step;
        numbers[ProgramCount::FINAL] = numbers[ProgramCount::ACTIVE + step % 3];
    }
}
