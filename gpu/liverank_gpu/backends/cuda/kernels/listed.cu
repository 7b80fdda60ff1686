// The iterations of published.cu over lists of the affected vertices, all in one launch: for sets so small that launches and
// passes over the states of all vertices would take most of the time (liverank_gpu.operations.published).
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
#include <cooperative_groups.h>
#include "rows.cuh"
#include "ranking.cuh"

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
