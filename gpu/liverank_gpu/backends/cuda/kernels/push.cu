// The sparse phase: rounds of work-lists at a falling threshold θ, all in one launch (liverank_gpu.operations.residual: push).
//
//     step = r[u] / (1 - αℓ/d),  y[u] += step,  r[u] = what rounding of y leaves        for all u of the list above θ
//     r[v] += α·step/d(u), times w(u,v) if WEIGHTED                                    over their out-lists
//
// A vertex that this lifts above θ joins the next list. When a list is empty, or too short to fill the device, θ falls and the
// list is selected from the candidates.
//
// Launch: BLOCK threads a block, all blocks resident (cooperative), since they synchronise within a round. A list is divided
// into items of EDGE_CHUNK edges, and the items evenly among warps.
// Traffic: per edge 4 bytes of neighbour id (and 4 of weight if WEIGHTED), streamed, and one atomic addition to a random r.
#include "work_lists.cuh"

// liverank_gpu.operations.residual.PushLimits
struct PushLimits {
    double residual_l1, residual_sum, mass, goal, threshold, edge_weight;
    int64 round_edges, edges, rounds;
};

// A round at the floor that does not fill the device is the last one unless as many more like it would reach the goal: what
// gains so little is better done from a lower floor, or by sweeps.
constexpr double SHORT_ROUNDS = 16.0;

// Copies the candidates above the floor to lists.candidates and queues those above θ, whose marks say so. Returns, in thread 0,
// the largest θ that one of the block's others exceeds. An r too small to change y is not queued until it has grown.
__device__ __forceinline__ double select(
    const PushArrays& push, const int* candidates, int64 listed, const WorkLists& lists, ThreadSums& thread) {
    double largest = 0.0;
    for (int64 at = thread_of_grid(); at < listed; at += threads_of_grid()) {
        const int v = candidates[at];
        const double residual = push.r[v], size = fabs(residual);
        if (size <= lists.floor) {
            push.marks[v] &= ~(LISTED | QUEUED);
            continue;
        }
        lists.candidates[append(lists.listed)] = v;
        const double scaled = size / cost_of(lists.edge_weight, push.out.lengths[v]);
        const bool above = scaled > lists.threshold;
        const double value = above ? push.values[v] : 0.0;
        if (above && Push(value, residual, push.diagonal(v)).value != value) {
            push.marks[v] |= QUEUED;
            lists.queue[append(lists.queued)] = v;
            thread.sums[NEWLY_QUEUED_EDGES] += push.out.lengths[v];
        } else {
            push.marks[v] &= ~QUEUED;
            if (!above) largest = fmax(largest, scaled);
        }
    }
    return block_max(largest);
}

// Moves the residual of the vertices on the work-list that are above θ to y, and divides their out-lists into items. A list has
// no vertex twice. below_zero: counts those whose y is negative then.
__device__ __forceinline__ void push_list(
    const PushArrays& push, const int* queue, int64 queued, int solve, double threshold, double edge_weight,
    uint64* items, uint64* below_zero, ThreadSums& thread) {
    for (int64 block_first = (int64)blockIdx.x * BLOCK; block_first < queued; block_first += threads_of_grid()) {
        const int64 at = block_first + threadIdx.x;
        int chunks = 0;
        if (at < queued) {
            const int u = queue[at];
            int mark = push.marks[u] & ~QUEUED;
            const double residual = push.r[u];
            if (fabs(residual) > threshold * cost_of(edge_weight, push.out.lengths[u])) {
                if (mark >> SOLVE_SHIFT != solve) {
                    mark = (mark & LISTED) | solve << SOLVE_SHIFT;
                    thread.sums[VERTICES] += 1.0;
                }
                const Degree d = push.degree[u];
                const double step = push_vertex(u, push.diagonal(u), push.values, push.r, thread);
                if (push.values[u] < 0.0) append(below_zero);
                if (d > 0) {
                    push.contributions[at] = sent_of(step, d, push.damping);
                    chunks = (push.out.lengths[u] + EDGE_CHUNK - 1) / EDGE_CHUNK;
                }
            }
            push.marks[u] = mark;
        }
        list_chunks(chunks, at, push.items, items);
    }
}

// The largest ‖r‖₁ + |Σr| below `size` from which a whole number of sweeps leads to the goal. left: what one leaves of it.
__device__ __forceinline__ double size_to_reach(double size, double goal, double left) {
    if (left > 0.0 && goal > 0.0)
        while (goal < left * size) goal /= left;
    return goal;
}

// Between two syncs of the grid one block may run ahead of another. So what a decision reads is written only after the next
// sync, counts that restart at 0 have three places, used in turn, and every block decides by itself, from the same numbers.
__global__ void __launch_bounds__(BLOCK, 2) push(
    Lists out, const Loop* __restrict__ loop, const Degree* __restrict__ degree, double* values, Candidates first_listed,
    int* second_candidates, int* first_queue, int* second_queue, double* contributions, int64* items, int solve,
    double damping, PushLimits limits, double left, double sweep_edges, int64 fill, int64 listed_before, Answer answer) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    int64* const tally = answer.counts;
    begin_answer(answer, listed_before);
    grid.sync();
    const PushArrays arrays = {
        out, loop, degree, values, first_listed.r, first_listed.marks, contributions, items, damping};
    int* const marks = first_listed.marks;
    const int64 capacity = first_listed.capacity;
    const double floor = first_listed.floor, edge_weight = limits.edge_weight;
    double threshold = limits.threshold;
    __shared__ int64 seen[4];
    __shared__ double seen_sums[5];
    volatile int64* const numbers = tally;
    volatile double* const sums = reinterpret_cast<double*>(tally + Tally::SUMS);
    uint64* counts = reinterpret_cast<uint64*>(tally);
    const bool leader = thread_of_grid() == 0;
    int64 step = 0, selections = 0, rounds = 0, entries = 0, edges_before = 0;
    double size_before = 0.0;
    bool selected = false;
    int end;
    ThreadSums thread = {};

    for (;; ++step) {
        const int now = step % 3, next = (step + 1) % 3, after = (step + 2) % 3;
        const int list = selections % 3, next_list = (selections + 1) % 3, list_after = (selections + 2) % 3;
        int* candidates = selections % 2 ? second_candidates : first_listed.candidates;
        int* next_candidates = selections % 2 ? first_listed.candidates : second_candidates;
        int* queue = step % 2 ? second_queue : first_queue;
        int* next_queue = step % 2 ? first_queue : second_queue;
        if (threadIdx.x == 0) {
            seen[0] = numbers[Tally::LISTED_COUNT + list];
            seen[1] = numbers[Tally::QUEUED_COUNT + now];
            seen[2] = numbers[Tally::QUEUED_EDGES + now];
            seen[3] = numbers[Tally::ADDITIONS];
            seen_sums[0] = limits.residual_l1 + sums[RESIDUAL_L1];
            seen_sums[1] = limits.residual_sum + sums[RESIDUAL_SUM];
            seen_sums[2] = limits.mass + sums[MASS];
            seen_sums[3] = __longlong_as_double(numbers[Tally::LARGEST + now]);
            seen_sums[4] = size_to_reach(seen_sums[0] + fabs(seen_sums[1]), limits.goal * seen_sums[2], left);
        }
        __syncthreads();
        const int64 listed = seen[0], queued = seen[1], queued_edges = seen[2], edges = seen[3];
        const double size = seen_sums[0] + fabs(seen_sums[1]), largest = seen_sums[3];
        const double limit = limits.goal * seen_sums[2], reached = seen_sums[4];
        __syncthreads();

        if (size <= limit) {
            end = PushEnd::GOAL;
            break;
        }
        if (listed > capacity || edges > limits.edges) {
            end = PushEnd::WORK;
            break;
        }
        if (left > 0.0 && rounds > 0 && !selected) {
            const double spent = fmax((double)(edges - edges_before), (double)fill);
            if ((size - reached) * spent > (size_before - size) * sweep_edges) {
                end = PushEnd::WORK;
                break;
            }
        }
        if (leader) {
            numbers[Tally::QUEUED_COUNT + after] = 0;
            numbers[Tally::QUEUED_EDGES + after] = 0;
            numbers[Tally::LARGEST + after] = 0;
            numbers[Tally::ITEMS + next] = 0;
        }
        // a list that does not fill the device takes as long as one that does, so θ falls to make it longer
        const bool short_list = queued_edges < fill && !selected;
        if (short_list && queued > 0 && threshold <= floor && size - limit > SHORT_ROUNDS * (size_before - size)) {
            end = PushEnd::FLOOR;
            break;
        }
        const bool lower_early = short_list && threshold > floor;
        if (queued == 0 || lower_early) {
            if (selected) {
                if (listed == 0 || threshold <= fmax(floor, 0.0)) {
                    end = PushEnd::FLOOR;
                    break;
                }
                // nothing is above θ: it falls at once to where the next halving finds something
                threshold = fmin(threshold, 1.999 * largest);
            }
            if (selections > 0) threshold = fmax((lower_early ? 0.25 : 0.5) * threshold, floor);
            selected = true;
            if (leader) numbers[Tally::LISTED_COUNT + list_after] = 0;
            const WorkLists lists = {
                out.lengths, marks, next_candidates, counts + Tally::LISTED_COUNT + next_list, next_queue,
                counts + Tally::QUEUED_COUNT + next, capacity, floor, threshold, edge_weight};
            const double largest_left = select(arrays, candidates, listed, lists, thread);
            if (threadIdx.x == 0 && largest_left > 0.0)
                atomicMax(counts + Tally::LARGEST + next, (uint64)__double_as_longlong(largest_left));
            flush(thread, tally, counts + Tally::QUEUED_EDGES + next);
            ++selections;
            grid.sync();
            continue;
        }
        if (queued_edges > limits.round_edges) {
            end = PushEnd::WORK;
            break;
        }
        if (rounds == limits.rounds) {
            end = PushEnd::ROUNDS;
            break;
        }
        ++rounds;
        entries += queued;
        selected = false;
        edges_before = edges;
        size_before = size;

        push_list(
            arrays, queue, queued, solve, threshold, edge_weight, counts + Tally::ITEMS + now, counts + Tally::BELOW_ZERO,
            thread);
        grid.sync();
        const WorkLists lists = {
            out.lengths, marks, candidates, counts + Tally::LISTED_COUNT + list, next_queue,
            counts + Tally::QUEUED_COUNT + next, capacity, floor, threshold, edge_weight};
        spread_items(arrays, queue, numbers[Tally::ITEMS + now], thread, [&](int v, double amount) {
            accumulate(v, amount, arrays.r, lists, thread);
        });
        flush(thread, tally, counts + Tally::QUEUED_EDGES + next);
        grid.sync();
    }

    const int* queue = step % 2 ? second_queue : first_queue;
    int64 queued = numbers[Tally::QUEUED_COUNT + step % 3];
    queued = queued < capacity ? queued : capacity;
    for (int64 at = thread_of_grid(); at < queued; at += threads_of_grid()) marks[queue[at]] &= ~QUEUED;
    if (leader) {
        numbers[Tally::END] = end;
        numbers[Tally::ROUNDS] = rounds;
        numbers[Tally::ENTRIES] = entries;
        numbers[Tally::SELECTIONS] = selections;
        numbers[Tally::FINAL_LISTED] = numbers[Tally::LISTED_COUNT + selections % 3];
        reinterpret_cast<double*>(tally)[Tally::THRESHOLD] = threshold;
    }
    tell(grid, answer, Tally::SIZE);
}
