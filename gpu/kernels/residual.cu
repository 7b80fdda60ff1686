// What adds to the residual: spread, push, refresh, and the list of its large entries (backends/base.py).
//
// Launch: BLOCK threads a block, all blocks resident (cooperative), grid-stride loops.
// Out-lists are worked on in chunks of CHUNK edges, a warp at a time, so that a hub is no one's burden.
// Value: what y and r are stored as, double or float; every sum and amount is a double until it is stored.
// Traffic: per edge 4 bytes of neighbour id, streamed, and one atomic addition to a random Value.
// Atomic additions come in any order, so these operations are not the same to the last bit every time. What each changes in
// |r| is known from the value it returns; so the sums over r are kept without a pass over it.

#include <cooperative_groups.h>

constexpr int CHUNK = 128;
constexpr int MOST_TAILS = 8;  // rounds at the floor that do not fill the device
constexpr int LISTED = 1, QUEUED = 2, SOLVE_SHIFT = 2;  // marks, as in backends/base.py

// `tally`: int64 counts, then the sums as doubles; read back in one piece
enum Count { ENDED, ROUNDS, VERTICES, EDGES, STEPS, LISTS, LISTED_COUNT, QUEUED_COUNT = LISTED_COUNT + 3,
             QUEUED_EDGES = QUEUED_COUNT + 3, ITEMS = QUEUED_EDGES + 3, LARGEST = ITEMS + 3, COUNTS = LARGEST + 3 };
enum Sum { L1, SUM, TOTAL, MOVED, MAGNITUDE, SEEN_EDGES, SEEN_VERTICES, SEEN_QUEUED, SUMS };
constexpr int THRESHOLD = COUNTS + SUMS;  // the last θ, as a double
enum Ended { GOAL, FLOOR, WORK, OUT_OF_ROUNDS };

struct Partial {
    double sums[SUMS];
};

// Where a residual that has grown is noted. queued is null where there is no work-list.
struct Lists {
    const int* length;
    int* marks;
    int* candidates;
    uint64* listed;
    int* queue;
    uint64* queued;
    int64 capacity;
    double floor, threshold, weight;
};

// What |r| has to be above for a vertex with so long an out-list.
__device__ __forceinline__ double bar(double threshold, double weight, int length) {
    return threshold * (1.0 + weight * length);
}

__device__ __forceinline__ void join(int v, double size, const Lists& lists, Partial& partial) {
    int mark = lists.marks[v];
    if (!(mark & LISTED)) {
        mark = atomicOr(&lists.marks[v], LISTED);
        if (!(mark & LISTED)) {
            const int64 at = append(lists.listed);
            if (at < lists.capacity) lists.candidates[at] = v;
        }
    }
    if (lists.queued == nullptr || size <= lists.threshold || mark & QUEUED) return;
    const int length = lists.length[v];
    if (size <= bar(lists.threshold, lists.weight, length)) return;
    mark = atomicOr(&lists.marks[v], QUEUED);
    if (mark & QUEUED) return;
    const int64 at = append(lists.queued);
    if (at < lists.capacity) lists.queue[at] = v;
    partial.sums[SEEN_QUEUED] += length;
}

template <typename Value>
__device__ __forceinline__ void receive(int v, double amount, Value* r, const Lists& lists, Partial& partial) {
    const Value added = (Value)amount;
    const Value old_value = atomicAdd(&r[v], added);
    const Value new_value = old_value + added;  // rounded as the atomic addition is
    const double size = fabs((double)new_value);
    partial.sums[L1] += size - fabs((double)old_value);
    partial.sums[MAGNITUDE] += size;
    if (size > lists.floor) join(v, size, lists, partial);
}

// Adds what the block's threads saw to the tally, and what they queued to queued_edges. Every thread of the block takes part.
__device__ __forceinline__ void flush(Partial& partial, int64* tally, uint64* queued_edges) {
    __shared__ double warps[WARPS][SUMS];
    bool any = false;
#pragma unroll
    for (int sum = 0; sum < SUMS; ++sum) any |= partial.sums[sum] != 0.0;
    if (!__syncthreads_or(any)) return;
#pragma unroll
    for (int sum = 0; sum < SUMS; ++sum) {
        const double value = group_sum<WARP>(partial.sums[sum]);
        if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP][sum] = value;
        partial.sums[sum] = 0.0;
    }
    __syncthreads();
    if (threadIdx.x < SUMS) {
        const int sum = threadIdx.x;
        double value = 0.0;
        for (int warp = 0; warp < WARPS; ++warp) value += warps[warp][sum];
        uint64* counts = reinterpret_cast<uint64*>(tally);
        if (sum == SEEN_EDGES) atomicAdd(counts + EDGES, (uint64)value);
        else if (sum == SEEN_VERTICES) atomicAdd(counts + VERTICES, (uint64)value);
        else if (sum == SEEN_QUEUED) atomicAdd(queued_edges, (uint64)value);
        else atomicAdd(reinterpret_cast<double*>(tally + COUNTS) + sum, value);
    }
    __syncthreads();
}

__device__ __forceinline__ double leaving_of(int d, uint8 loop, double damping) {
    return d > 0 ? 1.0 - damping * loop / d : 1.0;
}

// The y of a vertex after a push of its residual `amount`.
template <typename Value>
__device__ __forceinline__ Value pushed(Value old_value, double amount, double leaving) {
    return (Value)(old_value + amount / leaving);
}

template <typename Value>
__device__ __forceinline__ double share_of(int u, int d, const Value* values, double damping) {
    return d > 0 ? damping * values[u] / d : 0.0;
}

// The place of u in sources[0 … count), which are ascending and have it.
__device__ __forceinline__ int64 place_of(int u, const int* sources, int64 count) {
    int64 low = 0, high = count - 1;
    while (low < high) {
        const int64 middle = (low + high) / 2;
        if (sources[middle] < u) low = middle + 1;
        else high = middle;
    }
    return low;
}

// What a batch adds to r, for spread_rows: shares and chunks of each touched source; and, as single additions, what goes
// through loops, removed edges and added edges.
template <typename Value>
__global__ void __launch_bounds__(BLOCK, 3) perturbation(
    const int* __restrict__ sources, const int* __restrict__ old_degree, int64 count,
    const int* __restrict__ removed_sources, const int* __restrict__ removed_targets, int64 removed,
    const int* __restrict__ added_sources, const int* __restrict__ added_targets, int64 added,
    const int* __restrict__ length, const uint8* __restrict__ loop, const int* __restrict__ degree,
    const Value* __restrict__ values, double damping,
    double* shares, int64* chunks, int* targets, double* amounts) {
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < count + removed + added;
         at += (int64)gridDim.x * BLOCK) {
        if (at < count) {
            const int u = sources[at];
            const double share =
                share_of(u, degree[u], values, damping) - share_of(u, old_degree[at], values, damping);
            const int needed = (length[u] + CHUNK - 1) / CHUNK;
            shares[at] = share;
            chunks[at] = needed > 0 ? needed : 1;
            targets[at] = u;
            amounts[at] = loop[u] ? share : 0.0;
            continue;
        }
        const bool gone = at < count + removed;
        const int64 edge = gone ? at - count : at - count - removed;
        const int u = gone ? removed_sources[edge] : added_sources[edge];
        const double share = share_of(u, old_degree[place_of(u, sources, count)], values, damping);
        targets[at] = gone ? removed_targets[edge] : added_targets[edge];
        amounts[at] = gone ? -share : share;
    }
}

// r[w] += share over one chunk of an out-list, by a warp.
template <typename Value>
__device__ __forceinline__ void spread_chunk(
    const int* neighbours, int count, double share, Value* r, const Lists& lists, Partial& partial) {
    for (int slot = threadIdx.x % WARP; slot < count; slot += WARP)
        receive(neighbours[slot], share, r, lists, partial);
    if (threadIdx.x % WARP == 0) {
        partial.sums[SUM] += share * count;
        partial.sums[MOVED] += fabs(share) * count;
        partial.sums[SEEN_EDGES] += count;
    }
}

// ends[i]: chunks of the out-lists of sources[0 … i], with at least one for each.
template <typename Value>
__global__ void __launch_bounds__(BLOCK, 3) spread_rows(
    const int* __restrict__ sources, const double* __restrict__ shares, const int64* __restrict__ ends, int64 count,
    const int* __restrict__ targets, const double* __restrict__ amounts, int64 singles,
    const int64* __restrict__ start, const int* __restrict__ length, const int* __restrict__ pool,
    Value* r, int* marks, double floor, int* candidates, int64 capacity, int64* tally) {
    uint64* counts = reinterpret_cast<uint64*>(tally);
    const Lists lists = {length, marks, candidates, counts + LISTED_COUNT, nullptr, nullptr, capacity, floor, 0.0, 0.0};
    Partial partial = {};
    const int64 chunks = count > 0 ? ends[count - 1] : 0;
    const int64 warps = (int64)gridDim.x * WARPS;
    for (int64 chunk = (int64)blockIdx.x * WARPS + threadIdx.x / WARP; chunk < chunks; chunk += warps) {
        int64 low = 0, high = count - 1;  // the first source whose chunks end beyond this one
        while (low < high) {
            const int64 middle = (low + high) / 2;
            if (ends[middle] > chunk) high = middle;
            else low = middle + 1;
        }
        const int u = sources[low];
        const int first = (int)(chunk - (low > 0 ? ends[low - 1] : 0)) * CHUNK;
        if (shares[low] != 0.0)
            spread_chunk(pool + start[u] + first, min(CHUNK, length[u] - first), shares[low], r, lists, partial);
    }
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < singles; at += (int64)gridDim.x * BLOCK) {
        receive((int)targets[at], amounts[at], r, lists, partial);
        partial.sums[SUM] += amounts[at];
        partial.sums[MOVED] += fabs(amounts[at]);
        partial.sums[SEEN_EDGES] += 1.0;
    }
    flush(partial, tally, counts + QUEUED_EDGES);
}

// Every v with |r[v]| > floor, in any order.
template <typename Value>
__global__ void __launch_bounds__(BLOCK, 3) collect_large(
    const Value* __restrict__ r, int64 vertices, double floor, int* marks, int* candidates, int64 capacity, int64* tally) {
    uint64* listed = reinterpret_cast<uint64*>(tally) + LISTED_COUNT;
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

// r = β + α·Σ y[u]/d(u) - (1 - αℓ/d)·y for the vertices first … last-1: a warp a row, the whole block for long rows.
template <typename Value>
__global__ void __launch_bounds__(BLOCK, 3) refresh_rows(
    int64 first, int64 last, const int64* __restrict__ start, const int* __restrict__ length, const int* __restrict__ pool,
    const uint8* __restrict__ loop, const int* __restrict__ degree, const Value* __restrict__ values,
    double base, double damping, const int* __restrict__ out_length,
    Value* r, int* marks, double floor, int* candidates, int64 capacity, int64* tally) {
    constexpr int LONG = 2048;
    __shared__ double arrived[WARPS];
    uint64* counts = reinterpret_cast<uint64*>(tally);
    const Lists lists = {out_length, marks, candidates, counts + LISTED_COUNT, nullptr, nullptr, capacity, floor, 0.0, 0.0};
    Partial partial = {};
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (int64 block_row = first + (int64)blockIdx.x * WARPS; block_row < last; block_row += (int64)gridDim.x * WARPS) {
        const int64 v = block_row + warp;
        const int own = v < last && length[v] <= LONG ? length[v] : 0;
        double arriving = 0.0;
        for (int slot = lane; slot < own; slot += WARP) {
            const int u = pool[start[v] + slot];
            arriving += (double)values[u] / degree[u];
        }
        arriving = group_sum<WARP>(arriving);
        if (lane == 0) arrived[warp] = arriving;
        __syncthreads();
        for (int row = 0; row < WARPS; ++row) {
            const int64 w = block_row + row;
            if (w >= last || length[w] <= LONG) continue;
            double part = 0.0;
#pragma unroll 4
            for (int slot = threadIdx.x; slot < length[w]; slot += BLOCK) {
                const int u = pool[start[w] + slot];
                part += (double)values[u] / degree[u];
            }
            part = group_sum<BLOCK>(part);
            if (threadIdx.x == 0) arrived[row] = part;
            __syncthreads();
        }
        if (lane == 0 && v < last) {
            const double old_value = r[v];
            const Value stored =
                (Value)(base + damping * arrived[warp] - leaving_of(degree[v], loop[v], damping) * values[v]);
            const double new_value = stored;
            r[v] = stored;
            partial.sums[MAGNITUDE] += fabs(new_value);
            partial.sums[L1] += fabs(new_value) - fabs(old_value);
            partial.sums[SUM] += new_value - old_value;
            if (fabs(new_value) > floor) join((int)v, fabs(new_value), lists, partial);
        }
        __syncthreads();
    }
    flush(partial, tally, counts + QUEUED_EDGES);
}

// The sparse phase, all rounds in one launch. Between two syncs of the grid a block may run ahead of another: so what a
// decision reads is written only after the next sync, counts that start anew have three places used in turn, and the
// decision itself is made by every block from the same numbers.
template <typename Value>
__global__ void __launch_bounds__(BLOCK, 2) push_rounds(
    const int64* __restrict__ start, const int* __restrict__ length, const int* __restrict__ pool,
    const uint8* __restrict__ loop, const int* __restrict__ degree, Value* values, Value* r, int* marks,
    double floor, int* first_candidates, int* second_candidates, int64 capacity, int* first_queue, int* second_queue,
    double* shares, int64* items, int solve, double damping, double l1, double residual_sum, double total, double goal,
    double threshold, double weight, int64 fill, int64 round_edges, int64 most_edges, int64 most_rounds, int64* tally) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    __shared__ int64 seen[4];
    __shared__ double seen_sums[4];
    volatile int64* const numbers = tally;
    volatile double* const sums = reinterpret_cast<double*>(tally + COUNTS);
    uint64* counts = reinterpret_cast<uint64*>(tally);
    const int lane = threadIdx.x % WARP;
    const int64 thread = (int64)blockIdx.x * BLOCK + threadIdx.x;
    const int64 threads = (int64)gridDim.x * BLOCK;
    const bool leader = thread == 0;
    int64 step = 0, selections = 0, rounds = 0;
    int tails = 0;
    bool selected = false;
    int ended;
    Partial partial = {};

    for (;; ++step) {
        const int now = step % 3, next = (step + 1) % 3, after = (step + 2) % 3;
        const int list = selections % 3;
        int* candidates = selections % 2 ? second_candidates : first_candidates;
        int* queue = step % 2 ? second_queue : first_queue;
        int* next_queue = step % 2 ? first_queue : second_queue;
        if (threadIdx.x == 0) {
            seen[0] = numbers[LISTED_COUNT + list];
            seen[1] = numbers[QUEUED_COUNT + now];
            seen[2] = numbers[QUEUED_EDGES + now];
            seen[3] = numbers[EDGES];
            seen_sums[0] = l1 + sums[L1];
            seen_sums[1] = residual_sum + sums[SUM];
            seen_sums[2] = total + sums[TOTAL];
            seen_sums[3] = __longlong_as_double(numbers[LARGEST + now]);
        }
        __syncthreads();
        const int64 listed = seen[0], queued = seen[1], queued_edges = seen[2], edges = seen[3];
        const double size = seen_sums[0] + fabs(seen_sums[1]), largest = seen_sums[3];
        const double limit = goal * seen_sums[2];
        __syncthreads();

        if (size <= limit) {
            ended = GOAL;
            break;
        }
        if (listed > capacity || edges > most_edges) {
            ended = WORK;
            break;
        }
        if (leader) {
            numbers[QUEUED_COUNT + after] = 0;
            numbers[QUEUED_EDGES + after] = 0;
            numbers[LARGEST + after] = 0;
            numbers[ITEMS + next] = 0;
        }
        // a list that does not fill the device takes as long as one that does: θ falls to make it longer
        const bool small = queued_edges < fill && !selected;
        if (small && queued > 0 && threshold <= floor && ++tails > MOST_TAILS) {
            ended = FLOOR;
            break;
        }
        const bool sparse = small && threshold > floor;
        if (queued == 0 || sparse) {
            if (selected) {
                if (listed == 0 || threshold <= fmax(floor, 0.0)) {
                    ended = FLOOR;
                    break;
                }
                // nothing is above θ: it falls at once to where the next halving finds something
                threshold = fmin(threshold, 1.999 * largest);
            }
            if (selections > 0) threshold = fmax((sparse ? 0.25 : 0.5) * threshold, floor);
            selected = true;
            const int next_list = (selections + 1) % 3;
            int* kept = selections % 2 ? first_candidates : second_candidates;
            if (leader) numbers[LISTED_COUNT + (selections + 2) % 3] = 0;
            double largest_left = 0.0;
            for (int64 at = thread; at < listed; at += threads) {
                const int v = candidates[at];
                const double amount = r[v], here = fabs(amount);
                if (here <= floor) {
                    marks[v] &= ~(LISTED | QUEUED);
                    continue;
                }
                kept[append(counts + LISTED_COUNT + next_list)] = v;
                const double worth = here / (1.0 + weight * length[v]);
                const bool above = worth > threshold;
                // what y has no digits for waits until it has grown
                const Value value = above ? values[v] : Value(0);
                if (above && pushed(value, amount, leaving_of(degree[v], loop[v], damping)) != value) {
                    marks[v] |= QUEUED;
                    next_queue[append(counts + QUEUED_COUNT + next)] = v;
                    partial.sums[SEEN_QUEUED] += length[v];
                } else {
                    marks[v] &= ~QUEUED;
                    if (!above) largest_left = fmax(largest_left, worth);
                }
            }
            largest_left = block_max(largest_left);
            if (threadIdx.x == 0 && largest_left > 0.0)
                atomicMax(counts + LARGEST + next, (uint64)__double_as_longlong(largest_left));
            flush(partial, tally, counts + QUEUED_EDGES + next);
            ++selections;
            grid.sync();
            continue;
        }
        if (queued_edges > round_edges) {
            ended = WORK;
            break;
        }
        if (rounds == most_rounds) {
            ended = OUT_OF_ROUNDS;
            break;
        }
        ++rounds;
        selected = false;

        // take: a list has no vertex twice
        for (int64 block_first = (int64)blockIdx.x * BLOCK; block_first < queued; block_first += threads) {
            const int64 at = block_first + threadIdx.x;
            int chunks = 0;
            if (at < queued) {
                const int u = queue[at];
                int mark = marks[u] & ~QUEUED;
                const double amount = r[u];
                if (fabs(amount) > bar(threshold, weight, length[u])) {
                    if (mark >> SOLVE_SHIFT != solve) {
                        mark = (mark & LISTED) | solve << SOLVE_SHIFT;
                        partial.sums[SEEN_VERTICES] += 1.0;
                    }
                    const int d = degree[u];
                    const double leaving = leaving_of(d, loop[u], damping);
                    const Value old_value = values[u];
                    const Value new_value = pushed(old_value, amount, leaving);
                    const double taken = (double)new_value - old_value;
                    const Value stored = (Value)(amount - leaving * taken);
                    const double left = stored;
                    values[u] = new_value;
                    r[u] = stored;
                    partial.sums[L1] += fabs(left) - fabs(amount);
                    partial.sums[SUM] += left - amount;
                    partial.sums[TOTAL] += taken;
                    partial.sums[MOVED] += fabs(amount);
                    if (d > 0) {
                        shares[at] = damping * taken / d;
                        chunks = (length[u] + CHUNK - 1) / CHUNK;
                    }
                }
                marks[u] = mark;
            }
            int before = chunks;
#pragma unroll
            for (int distance = 1; distance < WARP; distance *= 2) {
                const int other = __shfl_up_sync(FULL, before, distance);
                if (lane >= distance) before += other;
            }
            uint64 place = 0;
            if (lane == WARP - 1 && before > 0) place = atomicAdd(counts + ITEMS + now, (uint64)before);
            place = __shfl_sync(FULL, place, WARP - 1) + before - chunks;
            if (chunks == 1) items[place] = at << 32;
            unsigned many = __ballot_sync(FULL, chunks > 1);
            while (many) {
                const int from = __ffs((int)many) - 1;
                many &= many - 1;
                const int64 place_there = __shfl_sync(FULL, (int64)place, from);
                const int64 at_there = __shfl_sync(FULL, at, from);
                const int chunks_there = __shfl_sync(FULL, chunks, from);
                for (int chunk = lane; chunk < chunks_there; chunk += WARP)
                    items[place_there + chunk] = at_there << 32 | chunk;
            }
        }
        grid.sync();

        // spread: a few items to a warp, their edges one after the other
        const Lists lists = {length, marks, candidates, counts + LISTED_COUNT + list, next_queue,
                             counts + QUEUED_COUNT + next, capacity, floor, threshold, weight};
        const int64 count = numbers[ITEMS + now];
        const int64 warps = threads / WARP;
        int64 share_of_warp = (count + warps - 1) / warps;
        share_of_warp = share_of_warp < WARP ? share_of_warp : WARP;
        for (int64 first = thread / WARP * share_of_warp; first < count; first += warps * share_of_warp) {
            const int64 mine = first + lane;
            int64 begin = 0;
            int own = 0;
            double share = 0.0;
            if (lane < share_of_warp && mine < count) {
                const int64 item = items[mine];
                const int u = queue[item >> 32];
                const int64 offset = (item & 0xffffffff) * CHUNK;
                begin = start[u] + offset;
                own = (int)(length[u] - offset < CHUNK ? length[u] - offset : CHUNK);
                share = shares[item >> 32];
                partial.sums[SUM] += share * own;
                partial.sums[MOVED] += fabs(share) * own;
                partial.sums[SEEN_EDGES] += own;
            }
            int end = own;  // of this lane's edges among the warp's
#pragma unroll
            for (int distance = 1; distance < WARP; distance *= 2) {
                const int other = __shfl_up_sync(FULL, end, distance);
                if (lane >= distance) end += other;
            }
            const int all = __shfl_sync(FULL, end, WARP - 1);
            begin -= end - own;
            for (int base = 0; base < all; base += WARP) {
                const int edge = base + lane;
                int owner = 0;  // the first lane whose edges end beyond this one
#pragma unroll
                for (int distance = WARP / 2; distance > 0; distance /= 2)
                    if (__shfl_sync(FULL, end, owner + distance - 1) <= edge) owner += distance;
                const int64 begin_there = __shfl_sync(FULL, begin, owner);
                const double share_there = __shfl_sync(FULL, share, owner);
                if (edge < all) receive(pool[begin_there + edge], share_there, r, lists, partial);
            }
        }
        flush(partial, tally, counts + QUEUED_EDGES + next);
        grid.sync();
    }

    const int now = step % 3;
    const int* queue = step % 2 ? second_queue : first_queue;
    int64 queued = numbers[QUEUED_COUNT + now];
    queued = queued < capacity ? queued : capacity;
    for (int64 at = thread; at < queued; at += threads) marks[queue[at]] &= ~QUEUED;
    if (leader) {
        numbers[ENDED] = ended;
        numbers[ROUNDS] = rounds;
        numbers[STEPS] = selections;
        numbers[LISTS] = numbers[LISTED_COUNT + selections % 3];
        reinterpret_cast<double*>(tally)[THRESHOLD] = threshold;
    }
}
