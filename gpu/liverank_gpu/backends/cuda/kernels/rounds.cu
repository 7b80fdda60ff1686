// The parts of a round of a push, for shards, which exchange messages between them (liverank_gpu.operations.residual).
//
//     push_round    step = r[u] / (1 - αℓ/d),  y[u] += step,  r[u] = what rounding of y leaves     for candidates above θ
//                   r[w] or, if another shard owns w, sums[w] += α·step/d, times w(u,w) if WEIGHTED    over their out-lists
//                   and sends these sums
//     send_sums     moves sums to messages: pairs of a row of the owner and an amount
//     add_received  r[row] += amount for all pairs; counts the candidates above each of LEVELS thresholds, and their out-edges
//
// Launch: BLOCK threads a block, all blocks resident (cooperative), grid-stride loops over lists.
// Traffic: that of push.cu; a column that is sent takes a sector of its sum and its mark, and 16 bytes of a message, as often
// written as read.
#include "work_lists.cuh"

// liverank_gpu.operations.residual.Outbox, without its sums. Messages are `words` apart.
struct Messages {
    int64* sent;
    int64* received;
    int* rest;
    int64 words, capacity, columns;
    int shards, rank, room;

    // The next place in the message to the owner of a column; the threads of a warp that ask together count once for each.
    __device__ __forceinline__ int64 place_of(int column, int64*& message) const {
        const int part = column / room, owner = part == 0 ? rank : part - 1;
        int64 place = 0;
        message = sent + owner * words;
        for (int shard = 0; shard < shards; ++shard)
            if (shard == owner) place = append(reinterpret_cast<uint64*>(sent + shard * words));
        return place;
    }
};

// θ that a vertex exceeds no more. The two kernels that ask have to agree, so nothing is left to the compiler.
__device__ __forceinline__ double scaled(double size, double edge_weight, int length) {
    return size / fma(edge_weight, (double)length, 1.0);
}

// Before the sync of the grid that `send` comes after.
__device__ __forceinline__ void begin_messages(const Messages& messages) {
    if (thread_of_grid() < messages.shards) messages.sent[thread_of_grid() * messages.words] = 0;
}

// Moves the sums of the listed columns, or of all that have one if these are more than the list holds, to messages. Columns
// that find no room are listed in `rest`, and counted.
__device__ __forceinline__ void send(const Candidates& sums, int64 listed, const Messages& messages, int64* tally) {
    const bool all = listed > sums.capacity;
    const int64 count = all ? messages.columns : listed;
    uint64* const left = reinterpret_cast<uint64*>(tally) + Tally::FINAL_LISTED;
    for (int64 at = thread_of_grid(); at < count; at += threads_of_grid()) {
        const int column = all ? (int)at : sums.candidates[at];
        const double amount = sums.r[column];
        if (all && amount == 0.0 && sums.marks[column] == 0) continue;
        int64* message;
        const int64 place = messages.place_of(column, message);
        if (place < messages.capacity) {
            int64* const pair = message + MESSAGE_HEADER + 2 * place;
            pair[0] = column % messages.room;
            pair[1] = __double_as_longlong(amount);
            sums.r[column] = 0.0;
            sums.marks[column] = 0;
        } else {
            const int64 rest = append(left);
            if (rest < sums.capacity) messages.rest[rest] = column;
        }
    }
}

// Moves r of the candidates above θ to y and divides their out-lists into items. Candidates above the floor are kept.
__device__ __forceinline__ void take_candidates(
    const PushArrays& push, const Candidates& from, int64 listed, double threshold, double edge_weight, int solve, int* kept,
    int* queue, int64* tally, ThreadSums& thread) {
    uint64* const counts = reinterpret_cast<uint64*>(tally);
    for (int64 block_first = (int64)blockIdx.x * BLOCK; block_first < listed; block_first += threads_of_grid()) {
        const int64 candidate = block_first + threadIdx.x;
        int64 at = 0;
        int chunks = 0;
        if (candidate < listed) {
            const int u = from.candidates[candidate], length = push.out.lengths[u];
            const double size = fabs(push.r[u]);
            if (!(size > from.floor)) {
                push.marks[u] &= ~LISTED;
            } else {
                kept[append(counts + Tally::LISTED_COUNT + 1)] = u;
                if (scaled(size, edge_weight, length) > threshold) {
                    const int mark = push.marks[u];
                    const Degree d = push.degree[u];
                    at = append(counts + Tally::QUEUED_COUNT);
                    queue[at] = u;
                    const double step = push_vertex(u, push.diagonal(u), push.values, push.r, thread);
                    if (push.values[u] < 0.0) append(counts + Tally::BELOW_ZERO);
                    thread.sums[VERTICES] += mark >> SOLVE_SHIFT != solve;
                    thread.sums[ADDITIONS] += 1.0;
                    push.marks[u] = (mark & LISTED) | solve << SOLVE_SHIFT;
                    push.contributions[at] = sent_of(step, d, push.damping);
                    if (d > 0) chunks = (length + EDGE_CHUNK - 1) / EDGE_CHUNK;
                }
            }
        }
        list_chunks(chunks, at, push.items, counts + Tally::ITEMS);
    }
}

__global__ void __launch_bounds__(BLOCK, 2) push_round(
    GraphLists graph, double* values, Candidates from, int64 listed, double threshold, double edge_weight, int solve,
    double damping, int* kept, int* queue, double* contributions, int64* items, Candidates sums, Messages messages,
    Answer answer) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    uint64* const counts = reinterpret_cast<uint64*>(answer.counts);
    PushArrays push = {
        graph.out, graph.loop, graph.degree, values, from.r, from.marks, contributions, items, damping};
    ThreadSums thread = {};
    begin_messages(messages);
    take_candidates(push, from, listed, threshold, edge_weight, solve, kept, queue, answer.counts, thread);
    flush(thread, answer.counts, counts + Tally::QUEUED_EDGES);
    grid.sync();
    const WorkLists away = lists_of(sums, graph.out.lengths, answer.counts);
    const WorkLists own = {
        graph.out.lengths, from.marks, kept, counts + Tally::LISTED_COUNT + 1, nullptr, nullptr, from.capacity, from.floor};
    double own_sum = 0.0;
    spread_items(push, queue, answer.counts[Tally::ITEMS], thread, [&](int column, double amount) {
        if (column < messages.room) {  // a row of this shard
            own_sum += amount;
            accumulate(column, amount, from.r, own, thread);
        } else {
            const double size = fabs(atomicAdd(&sums.r[column], amount) + amount);
            thread.sums[MAGNITUDE] += size;
            enqueue(column, size, away, thread);
        }
    });
    thread.sums[RESIDUAL_SUM] = own_sum;  // what is sent changes r where it arrives
    flush(thread, answer.counts, counts + Tally::QUEUED_EDGES);
    grid.sync();
    send(sums, answer.counts[Tally::LISTED_COUNT], messages, answer.counts);
    tell(grid, answer, Tally::SIZE);
}

#if !WEIGHTED
// moved, magnitude, additions: see SendSums.done.
__global__ void __launch_bounds__(BLOCK, 2) send_sums(
    Candidates sums, int64 listed, Messages messages, double moved, double magnitude, int64 additions, Answer answer) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    begin_messages(messages);
    if (thread_of_grid() == 0) {
        double* const told = reinterpret_cast<double*>(answer.counts + Tally::SUMS);
        told[MOVED] = moved;
        told[MAGNITUDE] = magnitude;
        answer.counts[Tally::ADDITIONS] = additions;
    }
    grid.sync();
    send(sums, listed, messages, answer.counts);
    tell(grid, answer, Tally::SIZE);
}

// sent: what one of the others told, also how many candidates are listed since push_round; null if there are no messages.
// numbers: liverank_gpu.operations.residual.RoundNumbers, and the counts of each threshold.
__global__ void __launch_bounds__(BLOCK, 2) add_received(
    Candidates to, int64 listed, Messages messages, const int64* sent, const int* __restrict__ out_lengths, double first,
    double second, double third, double fourth, double edge_weight, int undone, double* numbers, Answer answer) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const double thresholds[LEVELS] = {first, second, third, fourth};
    uint64* const all = reinterpret_cast<uint64*>(answer.counts);
    begin_answer(answer, sent == nullptr ? listed : max(listed, sent[Tally::LISTED_COUNT + 1]));
    grid.sync();
    if (sent != nullptr) {
        const WorkLists lists = lists_of(to, out_lengths, answer.counts);
        ThreadSums thread = {};
        for (int shard = 0; shard < messages.shards; ++shard) {
            const int64* const message = (shard == messages.rank ? messages.sent : messages.received) + shard * messages.words;
            const int64 pairs = message[0] < messages.capacity ? message[0] : messages.capacity;
            for (int64 at = thread_of_grid(); at < pairs; at += threads_of_grid()) {
                const int64* const pair = message + MESSAGE_HEADER + 2 * at;
                const double amount = __longlong_as_double(pair[1]);
                accumulate((int)pair[0], amount, to.r, lists, thread);
                thread.sums[RESIDUAL_SUM] += amount;
            }
        }
        flush(thread, answer.counts, all + Tally::QUEUED_EDGES);
        grid.sync();
    }
    const int64 now = answer.counts[Tally::LISTED_COUNT], candidates = now <= to.capacity ? now : 0;
    double counts[2 * LEVELS + 1] = {};
    for (int64 at = thread_of_grid(); at < candidates; at += threads_of_grid()) {
        const int v = to.candidates[at], length = out_lengths[v];
        const double size = fabs(to.r[v]), reached = scaled(size, edge_weight, length);
#pragma unroll
        for (int level = 0; level < LEVELS; ++level) {
            const bool above = reached > thresholds[level];
            counts[level] += above;
            counts[LEVELS + level] += above ? length : 0;
        }
        counts[2 * LEVELS] += size > to.floor;
    }
#pragma unroll
    for (int number = 0; number < 2 * LEVELS + 1; ++number) {
        const double sum = group_sum<BLOCK>(counts[number]);  // of integers: exact
        if (threadIdx.x == 0 && sum > 0.0) atomicAdd(all + Tally::LEVELS_COUNTS + number, (uint64)sum);
    }
    grid.sync();
    const int at = threadIdx.x;
    if (blockIdx.x == 0 && at < RoundNumber::SIZE + 2 * LEVELS) {
        const double* const added = reinterpret_cast<const double*>(answer.counts + Tally::SUMS);
        const auto sum_of = [&](int sum) {
            return sent == nullptr ? 0.0 : reinterpret_cast<const double*>(sent + Tally::SUMS)[sum];
        };
        const auto count_of = [&](int count) { return sent == nullptr ? 0.0 : (double)sent[count]; };
        double number = 0.0;
        if (at == RoundNumber::RESIDUAL_L1) number = sum_of(RESIDUAL_L1) + added[RESIDUAL_L1];
        else if (at == RoundNumber::RESIDUAL_SUM) number = sum_of(RESIDUAL_SUM) + added[RESIDUAL_SUM];
        else if (at == RoundNumber::MASS) number = sum_of(MASS);
        else if (at == RoundNumber::MOVED) number = sum_of(MOVED);
        else if (at == RoundNumber::MAGNITUDE) number = sum_of(MAGNITUDE) + added[MAGNITUDE];
        else if (at == RoundNumber::ADDITIONS) number = count_of(Tally::ADDITIONS);
        else if (at == RoundNumber::VERTICES) number = count_of(Tally::VERTICES);
        else if (at == RoundNumber::BELOW_ZERO) number = count_of(Tally::BELOW_ZERO);
        else if (at == RoundNumber::LEFT) number = count_of(Tally::FINAL_LISTED);
        else if (at == RoundNumber::UNDONE) number = undone;
        else if (at == RoundNumber::LISTED) number = (double)candidates;
        else if (at == RoundNumber::FLOOR) number = now <= to.capacity ? to.floor : __longlong_as_double(0x7ff0000000000000ll);
        else if (at == RoundNumber::KEPT) number = (double)all[Tally::LEVELS_COUNTS + 2 * LEVELS];
        else number = (double)all[Tally::LEVELS_COUNTS + at - RoundNumber::SIZE];
        numbers[at] = number;
    }
    tell(grid, answer, Tally::SIZE);
}
#endif
