// The iterations of the published strategies over all vertices, or states of all (liverank_gpu.operations.published; Sahu,
// algorithms 3 and 5). An iteration is
//
//     update_ranks<1>, update_ranks<BLOCK>   y' = β + α·c, or (β + α·(c - ℓ·y/d)) / (1 - αℓ/d) as a closed form (with_loop of
//                                            liverank_gpu/kernels/vertex.h); prunes, marks as expanding
//     send                                   contribution = y/d of what was recomputed
//     end_iteration                          tests and counts
//     expand<1>, expand<BLOCK>               out-neighbours of expanding vertices become affected
//
// The host issues several iterations before it reads whether they have ended: behind the last one, kernels return at once.
// LANES: threads for a vertex, 1 for those of low degree and BLOCK for the others ("Partition G, G'" in the paper).
// Launch: BLOCK threads a block, grid-stride loops; end_iteration one block.
// Traffic: update_ranks per edge 4 bytes of neighbour id (and 4 of weight if WEIGHTED) and one random read of 8 bytes (a
// 32-byte sector); per row 5 bytes (order, state), and 34 if it is affected. send 1 byte a vertex, 21 if it was recomputed.
#include <cooperative_groups.h>
#include "rows.cuh"

// ---- the rank of one vertex in an iteration, and what is counted of it ----

using Count = PublishedCount;

// The bits of numbers that are not negative ascend as the numbers do.
__device__ __forceinline__ void raise_to(uint64* largest, double value) {
    if (value > 0.0) atomicMax(largest, (uint64)__double_as_longlong(value));
}

__device__ __forceinline__ void add_of_block(uint64* count, double value) {
    const double sum = group_sum<BLOCK>(value);
    if (threadIdx.x == 0 && sum > 0.0) atomicAdd(count, (uint64)sum);
}

// What an iteration reads and writes beside the rows, as kernels take it. states and expanding may be null: then every vertex
// is recomputed.
struct Ranking {
    const double* rhs_scale;
    const Loop* loop;
    const Degree* degree;
    double* values;
    double* contributions;
    uint8* states;
    double damping, prune_tolerance, frontier_tolerance;
    int closed_form, traced;
};

// What becomes of a vertex that was recomputed.
struct Outcome {
    bool pruned, expands;
};

// What a thread counts of an iteration.
struct Counted {
    double largest = 0.0, largest_relative = 0.0, recomputed = 0.0, edges = 0.0, pruned = 0.0;

    // A new rank from the sum of contributions over the `length` entries of row v.
    __device__ __forceinline__ Outcome update(const Ranking& ranking, int v, double sum, int length) {
        const double old_value = ranking.values[v], rank = *ranking.rhs_scale + ranking.damping * sum;
        const double new_value = with_loop(
            rank, v, ranking.degree, ranking.loop, ranking.contributions, ranking.damping, ranking.closed_form);
        const RankUpdate next(old_value, new_value);
        const Outcome outcome = {next.relative <= ranking.prune_tolerance, next.relative > ranking.frontier_tolerance};
        if (outcome.pruned) {
            ranking.states[v] = PRUNED;
            pruned += 1.0;
        }
        ranking.values[v] = next.value;
        largest = larger_of(largest, next.change);
        largest_relative = larger_of(largest_relative, next.relative);
        recomputed += 1.0;
        edges += length;
        return outcome;
    }

    // Every thread of the block takes part.
    __device__ __forceinline__ void add_to(uint64* counts, bool traced) {
        largest = block_max(largest);
        if (threadIdx.x == 0) raise_to(counts + Count::LARGEST, largest);
        if (!traced) return;
        largest_relative = block_max(largest_relative);
        if (threadIdx.x == 0) raise_to(counts + Count::LARGEST_RELATIVE, largest_relative);
        add_of_block(counts + Count::RECOMPUTED, recomputed);
        add_of_block(counts + Count::EDGES, edges);
        add_of_block(counts + Count::PRUNED, pruned);
    }
};

// A row of four numbers for an iteration (liverank_gpu.operations.published.IterationTrace); none if trace is null.
__device__ __forceinline__ void record_iteration(uint64* trace, uint64 iteration, const uint64* counts) {
    if (trace == nullptr || iteration >= TRACED) return;
    uint64* row = trace + 4 * iteration;
    row[0] = counts[Count::RECOMPUTED];
    row[1] = counts[Count::EDGES];
    row[2] = counts[Count::PRUNED];
    row[3] = counts[Count::LARGEST_RELATIVE];
}

// ---- iterations over all vertices, or states of all ----

INSTANCES(update_ranks<1>, update_ranks<BLOCK>)
template <int LANES>
__global__ void __launch_bounds__(BLOCK, 4) update_ranks(
    const int* __restrict__ order, int64 rows, Lists in, uint64* counts, uint8* __restrict__ expanding,
    const double* rhs_scale, const Loop* __restrict__ loop, const Degree* __restrict__ degree, double* values,
    double* contributions, uint8* states, double damping, double prune_tolerance, double frontier_tolerance, int closed_form,
    int traced) {
    if (counts[Count::DONE]) return;
    const Ranking ranking = {
        rhs_scale, loop, degree, values, contributions, states, damping, prune_tolerance, frontier_tolerance, closed_form,
        traced};
    Counted counted;
    const int first = threadIdx.x % LANES;
    const int64 step = (int64)gridDim.x * (BLOCK / LANES);
    for (int64 at = (int64)blockIdx.x * (BLOCK / LANES) + threadIdx.x / LANES; at < rows; at += step) {
        const int v = order[at];
        if (ranking.states != nullptr && ranking.states[v] != AFFECTED) continue;
        const int64 begin = in.starts[v], end = begin + in.lengths[v];
        double sum = 0.0;
        for (int64 slot = begin + first; slot < end; slot += LANES)
            sum += edge_amount(ranking.contributions[__ldg(in.indices + slot)], in.weights, slot);
        // also keeps the threads of a block together, before one of them changes the state of v
        sum = group_sum<LANES>(sum);
        if (first == 0 && counted.update(ranking, v, sum, in.lengths[v]).expands) expanding[v] = 1;
    }
    counted.add_to(counts, ranking.traced);
}

// y/d, and 0 where d = 0, at the vertices that have been affected, or at all if states is null. dangling_sums[block]: Σy of
// those with d = 0.
__global__ void __launch_bounds__(BLOCK) send(
    const uint64* counts, int64 vertices, const double* __restrict__ values, const Degree* __restrict__ degree,
    const uint8* __restrict__ states, double* __restrict__ contributions, double* __restrict__ dangling_sums) {
    if (counts[Count::DONE]) return;
    double dangling = 0.0;
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        if (states != nullptr && !states[v]) continue;
        const Degree d = degree[v];
        const double value = values[v];
        contributions[v] = share_of(value, d);
        if (!(d > 0)) dangling += value;
    }
    dangling = group_sum<BLOCK>(dangling);
    if (threadIdx.x == 0) dangling_sums[blockIdx.x] = dangling;
}

// Ends an iteration, or begins the first one. If dangling_mass > 0, β = ((1-α)·dangling_mass + α·Σ dangling_sums) / n for the
// next.
__global__ void __launch_bounds__(BLOCK) end_iteration(
    uint64* counts, double* rhs_scale, const double* __restrict__ dangling_sums, int blocks, int64 vertices,
    double dangling_mass, double damping, double tolerance, int64 max_iterations, uint64* trace, int begins) {
    if (counts[Count::DONE]) return;
    double dangling = 0.0;
    if (dangling_mass > 0.0)
        for (int block = threadIdx.x; block < blocks; block += BLOCK) dangling += dangling_sums[block];
    dangling = group_sum<BLOCK>(dangling);
    if (threadIdx.x != 0) return;
    if (!begins) {
        record_iteration(trace, counts[Count::ITERATIONS]++, counts);
        counts[Count::CONVERGED] = __longlong_as_double((int64)counts[Count::LARGEST]) <= tolerance;
        counts[Count::DONE] = counts[Count::CONVERGED] || counts[Count::ITERATIONS] >= (uint64)max_iterations;
        for (int at = 0; at < Count::ITERATIONS; ++at) counts[at] = 0;
    }
    if (dangling_mass > 0.0 && !counts[Count::DONE])
        *rhs_scale = ((1.0 - damping) * dangling_mass + damping * dangling) / vertices;
}

// The out-neighbours of expanding vertices become affected, loops included; then these vertices are not expanding.
INSTANCES(expand<1>, expand<BLOCK>)
template <int LANES>
__global__ void __launch_bounds__(BLOCK) expand(
    const int* __restrict__ order, int64 rows, Lists out, const uint64* counts, const Loop* __restrict__ loop, uint8* states,
    uint8* __restrict__ expanding) {
    if (counts[Count::DONE]) return;
    const int first = threadIdx.x % LANES;
    const int64 step = (int64)gridDim.x * (BLOCK / LANES);
    for (int64 at = (int64)blockIdx.x * (BLOCK / LANES) + threadIdx.x / LANES; at < rows; at += step) {
        const int u = order[at];
        const bool expands = expanding[u];
        if constexpr (LANES > 1) __syncthreads();
        if (!expands) continue;
        if (first == 0) {
            expanding[u] = 0;
            if (loop[u] != 0) states[u] = AFFECTED;
        }
        const int64 begin = out.starts[u], end = begin + out.lengths[u];
        for (int64 slot = begin + first; slot < end; slot += LANES) states[__ldg(out.indices + slot)] = AFFECTED;
    }
}

// ---- iterations over lists of the affected vertices, all in one launch: for sets so small that launches and passes over the
// states of all vertices would take most of the time ----
//
// An iteration has two steps, and the grid synchronises after each. First a rank for every vertex of the list; those that stay
// affected join the next list, and the out-lists of those that expand are divided into items. Then the contributions of these
// ranks, and the out-neighbours in the items join the next list. A vertex joins with an atomic operation, so no list has
// one twice. Lists are in any order, but the sum over a row has a shape that follows from its length alone: the
// same input gives the same bits.
//
// A row has 8 threads, or a warp if it is longer than SHORT_ROW, or a warp for each part of LONG_ROW entries.
// Launch: BLOCK threads a block, all blocks resident (cooperative).
// Traffic: per vertex and edge as update_ranks, with 4 bytes of list for the order and the state. Two synchronisations and two
// chains of about six dependent reads make a short iteration.

constexpr int SHORT_ROW = 64, SHORT_LANES = 8;
constexpr int SIZES = ListedCount::SHORT;  // and MIDDLE and PARTS behind it

// The affected vertices of one iteration. vertices: those with short rows from the front, those with middle rows from the back.
// parts: v << 32 | part of the long rows, neighbouring for a row. counts: PublishedCount and ListedCount of the iteration.
struct List {
    int* vertices;
    int64* parts;
    uint64* counts;
};

// What a thread has added to the next list.
struct Listed {
    double vertices = 0.0, edges = 0.0;

    __device__ __forceinline__ void add(int v, int length, const List& list, int64 capacity) {
        vertices += 1.0;
        edges += length;
        if (length > LONG_ROW) {
            const int parts = (length + LONG_ROW - 1) / LONG_ROW;
            const int64 first = (int64)atomicAdd(list.counts + ListedCount::PARTS, (uint64)parts);
            for (int part = 0; part < parts; ++part) list.parts[first + part] = (int64)v << 32 | part;
        } else if (length > SHORT_ROW) {
            const int64 at = append(list.counts + ListedCount::MIDDLE);
            if (at < capacity) list.vertices[capacity - 1 - at] = v;
        } else {
            const int64 at = append(list.counts + ListedCount::SHORT);
            if (at < capacity) list.vertices[at] = v;
        }
    }

    // Every thread of the block takes part.
    __device__ __forceinline__ void add_to(const List& list) {
        add_of_block(list.counts + Count::RECOMPUTED, vertices);
        add_of_block(list.counts + Count::EDGES, edges);
        vertices = edges = 0.0;
    }
};

// Makes v affected after an iteration; whether it was not.
__device__ __forceinline__ bool join(uint8* states, int* joined, int iteration, int v) {
    if (states[v] == AFFECTED || atomicExch(&joined[v], iteration) == iteration) return false;
    states[v] = AFFECTED;
    return true;
}

__device__ __forceinline__ void send_contribution(const Ranking& ranking, int v) {
    ranking.contributions[v] = share_of(v, ranking.values, ranking.degree);
}

// most_edges: the kernel ends where the list has more in-edges, or more vertices than `capacity`.
// items: vertex << 32 | chunk of its out-list. part_sums: of the parts of a list.
// arrived: parts that have arrived of each row, at its first part; zeros. joined: the last iteration after which a vertex
// joined; zeros.
__global__ void __launch_bounds__(BLOCK, 2) iterate_listed(
    int64 vertices, Lists in, Lists out, double tolerance, int64 max_iterations, int64 most_edges, int64 capacity,
    int* first_vertices, int* second_vertices, int64* first_parts, int64* second_parts, int64* items, double* part_sums,
    int* arrived, int* joined, uint64* counts, uint64* trace,
    const double* rhs_scale, const Loop* __restrict__ loop, const Degree* __restrict__ degree, double* values,
    double* contributions, uint8* states, double damping, double prune_tolerance, double frontier_tolerance, int closed_form,
    int traced) {
    const Ranking ranking = {
        rhs_scale, loop, degree, values, contributions, states, damping, prune_tolerance, frontier_tolerance, closed_form,
        traced};
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const int64 thread = (int64)blockIdx.x * BLOCK + threadIdx.x, threads = (int64)gridDim.x * BLOCK;
    const int64 warp = thread / WARP, warps = threads / WARP;
    const int lane = threadIdx.x % WARP;
    const auto load = [&](int u) { return ranking.contributions[u]; };
    // counts of an iteration restart at 0 in three places, used in turn: one block may run ahead of another
    const auto list_of = [&](int64 step) -> List {
        uint64* const own = counts + ListedCount::SIZE * (1 + step % 3);
        return step % 2 ? List{second_vertices, second_parts, own} : List{first_vertices, first_parts, own};
    };
    __shared__ int64 seen[4];
    Listed listed;

    const List begin = list_of(0);
    for (int64 v = thread; v < vertices; v += threads) {
        send_contribution(ranking, (int)v);
        if (ranking.states[v] == AFFECTED) listed.add((int)v, in.lengths[v], begin, capacity);
    }
    listed.add_to(begin);
    grid.sync();

    int64 step = 0;
    bool converged = false, small = true;
    while (true) {
        const List list = list_of(step), next = list_of(step + 1);
        if (threadIdx.x < 4) {
            const int count = threadIdx.x < 3 ? SIZES + (int)threadIdx.x : (int)Count::EDGES;
            seen[threadIdx.x] = (int64)__ldcg(list.counts + count);
        }
        __syncthreads();
        const int64 shorts = seen[0], middles = seen[1], parts = seen[2];
        small = seen[3] <= most_edges && shorts + middles <= capacity;
        __syncthreads();
        if (!small) break;
        if (blockIdx.x == 0 && threadIdx.x < ListedCount::SIZE) list_of(step + 2).counts[threadIdx.x] = 0;

        Counted counted;
        const auto finish = [&](int v, double sum) {
            const int length = in.lengths[v];
            const Outcome outcome = counted.update(ranking, v, sum, length);
            if (!outcome.pruned || (outcome.expands && ranking.loop[v] != 0)) {
                ranking.states[v] = AFFECTED;
                listed.add(v, length, next, capacity);
            }
            if (!outcome.expands) return;
            const int chunks = (out.lengths[v] + EDGE_CHUNK - 1) / EDGE_CHUNK;
            if (chunks == 0) return;
            const int64 first = (int64)atomicAdd(list.counts + ListedCount::ITEMS, (uint64)chunks);
            for (int chunk = 0; chunk < chunks; ++chunk) items[first + chunk] = (int64)v << 32 | chunk;
        };
        constexpr int ROWS = WARP / SHORT_LANES;
        const int64 short_units = (shorts + ROWS - 1) / ROWS, units = parts + middles + short_units;
        for (int64 unit = warp; unit < units; unit += warps) {
            if (unit < parts) {
                const int64 item = list.parts[unit];
                const int v = (int)(item >> 32), part = (int)(item & 0xffffffff), length = in.lengths[v];
                const int64 first = in.starts[v] + (int64)part * LONG_ROW;
                const int count = length - part * LONG_ROW < LONG_ROW ? length - part * LONG_ROW : LONG_ROW;
                const float* weights = WEIGHTED ? in.weights + first : nullptr;
                double sum = group_sum<WARP>(striped_sum(in.indices + first, weights, count, load));
                const int all = (length + LONG_ROW - 1) / LONG_ROW;
                int before = 0;
                if (lane == 0) {
                    __stcg(part_sums + unit, sum);
                    __threadfence();
                    before = atomicAdd(arrived + unit - part, 1);
                }
                if (__shfl_sync(FULL, before, 0) != all - 1) continue;
                __threadfence();
                sum = 0.0;
                for (int other = lane; other < all; other += WARP) sum += __ldcg(part_sums + unit - part + other);
                sum = group_sum<WARP>(sum);
                if (lane == 0) {
                    arrived[unit - part] = 0;
                    finish(v, sum);
                }
            } else if (unit < parts + middles) {
                const int v = list.vertices[capacity - 1 - (unit - parts)];
                const int64 first = in.starts[v];
                const float* weights = WEIGHTED ? in.weights + first : nullptr;
                const double sum = group_sum<WARP>(striped_sum(in.indices + first, weights, in.lengths[v], load));
                if (lane == 0) finish(v, sum);
            } else {
                const int64 at = (unit - parts - middles) * ROWS + lane / SHORT_LANES;
                const bool inside = at < shorts;
                const int v = inside ? list.vertices[at] : 0;
                const int64 first = inside ? in.starts[v] : 0;
                const float* weights = WEIGHTED ? in.weights + first : nullptr;
                const int count = inside ? in.lengths[v] : 0;
                const double sum = group_sum<SHORT_LANES>(quads_sum<SHORT_LANES>(in.indices + first, weights, count, load));
                if (inside && lane % SHORT_LANES == 0) finish(v, sum);
            }
        }
        counted.recomputed = counted.edges = 0.0;  // counted when the vertices were listed
        counted.add_to(list.counts, ranking.traced);
        grid.sync();

        if (threadIdx.x < 2)
            seen[threadIdx.x] = (int64)__ldcg(list.counts + (threadIdx.x == 0 ? (int)Count::LARGEST : (int)ListedCount::ITEMS));
        __syncthreads();
        converged = __longlong_as_double(seen[0]) <= tolerance;
        const int64 chunks = seen[1];
        __syncthreads();
        if (thread == 0) record_iteration(trace, (uint64)step, list.counts);
        if (++step == max_iterations || converged) break;

        for (int64 at = thread; at < shorts; at += threads) send_contribution(ranking, list.vertices[at]);
        for (int64 at = thread; at < middles; at += threads) send_contribution(ranking, list.vertices[capacity - 1 - at]);
        for (int64 at = thread; at < parts; at += threads)
            if ((list.parts[at] & 0xffffffff) == 0) send_contribution(ranking, (int)(list.parts[at] >> 32));
        for (int64 at = warp; at < chunks; at += warps) {
            const int u = (int)(items[at] >> 32);
            const int64 offset = (items[at] & 0xffffffff) * EDGE_CHUNK;
            const int64 last = out.lengths[u] - offset < EDGE_CHUNK ? out.lengths[u] : offset + EDGE_CHUNK;
            for (int64 slot = offset + lane; slot < last; slot += WARP) {
                const int v = out.indices[out.starts[u] + slot];
                if (join(ranking.states, joined, (int)step, v)) listed.add(v, in.lengths[v], next, capacity);
            }
        }
        listed.add_to(next);
        grid.sync();
    }

    if (thread == 0) {
        counts[Count::ITERATIONS] = step;
        counts[Count::CONVERGED] = converged;
        counts[Count::DONE] = small;
    }
}

// ---- the iterations of published personalized PageRank (Wang et al., sections 2 to 4) ----
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
