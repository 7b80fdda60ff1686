// Triangles of an oriented graph, and bounds of its edges; core numbers (liverank_gpu.operations.analysis).
//
// Edges go from the end of lower rank to the other, so that no row is long. LANES threads take one edge u → v: what the row
// of u has behind v is intersected with the row of v. Between two windows of rows a warp takes a row of one.
// Launch: BLOCK threads a block, grid-stride loops over edges.
// Traffic: per entry of the shorter list, a binary search in the longer one; two or three atomic additions a triangle, the
// first of them once for each thread. A list of triangles has 24 bytes a triangle, 8 for each of its edges.
#include <cooperative_groups.h>
#include "common.cuh"

constexpr int LANES = 8;

// The other two edges of a triangle.
struct alignas(8) Pair {
    int first, second;
};

// Calls found(place in left, place in right) for each entry of two ascending lists. Each of some lanes looks up entries of the
// shorter one in the longer one.
template <class Found>
__device__ __forceinline__ void intersect_lists(
    const int* left, int left_count, const int* right, int right_count, int lane, int lanes, const Found& found) {
    const bool search_left = right_count < left_count;
    const int* searched = search_left ? left : right;
    const int* taken = search_left ? right : left;
    const int count = search_left ? left_count : right_count, many = search_left ? right_count : left_count;
    for (int at = lane; at < many; at += lanes) {
        const int w = taken[at];
        const int place = first_from(searched, 0, count, w);
        if (place == count || searched[place] != w) continue;
        found(search_left ? place : at, search_left ? at : place);
    }
}

struct Oriented {
    const int64* starts;
    const int* lengths;
    const int* entries;
    const int* sources;

    // Calls found(u → w, v → w) for each triangle u, v, w of the edge u → v that is this thread's.
    template <class Found>
    __device__ __forceinline__ void intersect(int64 edge, int u, int v, const Found& found) const {
        const int64 left = edge + 1, right = starts[v];
        const int left_count = (int)(starts[u] + lengths[u] - left), right_count = lengths[v];
        intersect_lists(entries + left, left_count, entries + right, right_count, threadIdx.x % LANES, LANES,
                        [&](int here, int there) { found(left + here, right + there); });
    }
};

__device__ __forceinline__ int64 first_group() { return ((int64)blockIdx.x * BLOCK + threadIdx.x) / LANES; }
__device__ __forceinline__ int64 groups_of_grid() { return (int64)gridDim.x * (BLOCK / LANES); }

#if !WEIGHTED
// triangles: zero before. Unless EVERY_EDGE, v → w is not counted.
INSTANCES(count_triangles<false>, count_triangles<true>)
template <bool EVERY_EDGE>
__global__ void __launch_bounds__(BLOCK) count_triangles(
    const int64* __restrict__ starts, const int* __restrict__ lengths, const int* __restrict__ entries,
    const int* __restrict__ sources, int64 edges, int* __restrict__ triangles) {
    const Oriented graph = {starts, lengths, entries, sources};
    for (int64 edge = first_group(); edge < edges; edge += groups_of_grid()) {
        int found = 0;
        graph.intersect(edge, sources[edge], entries[edge], [&](int64 longer, int64 third) {
            ++found;
            atomicAdd(triangles + longer, 1);
            if constexpr (EVERY_EDGE) atomicAdd(triangles + third, 1);
        });
        if (found > 0) atomicAdd(triangles + edge, found);
    }
}

// Two windows of rows, which may have slack between them: rows first_row … end_row - 1 in `entries`, and first_middle …
// end_middle - 1 in `others`. Of each triangle u, v, w, in ascending order, u is one of the former and v of the latter.
struct Between {
    const int64* starts;
    const int* lengths;
    const int* entries;
    const int64* other_starts;
    const int* other_lengths;
    const int* others;
    int first_row, end_row, first_middle, end_middle;

    // A warp takes a row u at a time. Calls found(w, slots of u → v, u → w and v → w) for the triangles that are this thread's;
    // edge(v, slot of u → v, triangles) for each edge, and row(u, triangles) for each row, by all threads.
    template <class Found, class Edge, class Row>
    __device__ __forceinline__ void each(const Found& found, const Edge& edge, const Row& row) const {
        const int lane = threadIdx.x % WARP;
        // below 2³¹ plus the warps of a grid: no overflow
        const unsigned first = first_row + (blockIdx.x * BLOCK + threadIdx.x) / WARP, step = gridDim.x * (BLOCK / WARP);
        for (unsigned u = first; u < (unsigned)end_row; u += step) {
            const int* list = entries + starts[u];
            const int count = lengths[u];
            uint64 of_row = 0;
            for (int at = first_from(list, 0, count, first_middle); at < count && list[at] < end_middle; ++at) {
                const int v = list[at];
                const int* left = list + at + 1;
                const int* right = others + other_starts[v];
                uint64 of_edge = 0;
                intersect_lists(left, count - at - 1, right, other_lengths[v], lane, WARP, [&](int here, int there) {
                    ++of_edge;
                    found(left[here], starts[u] + at, starts[u] + at + 1 + here, other_starts[v] + there);
                });
                of_edge = warp_sum(of_edge);
                edge(v, starts[u] + at, of_edge);
                of_row += of_edge;
            }
            row(u, of_row);
        }
    }
};

// Adds the triangles to `triangles`, by vertex.
__global__ void __launch_bounds__(BLOCK) count_between(
    const int64* __restrict__ starts, const int* __restrict__ lengths, const int* __restrict__ entries,
    const int64* __restrict__ other_starts, const int* __restrict__ other_lengths, const int* __restrict__ others,
    int first_row, int end_row, int first_middle, int end_middle, uint64* __restrict__ triangles) {
    const Between windows = {starts, lengths, entries, other_starts, other_lengths, others, first_row, end_row, first_middle,
        end_middle};
    const int lane = threadIdx.x % WARP;
    windows.each(
        [&](int w, int64, int64, int64) { atomicAdd(triangles + w, 1ull); },
        [&](int v, int64, uint64 of_edge) { if (lane == 0 && of_edge > 0) atomicAdd(triangles + v, of_edge); },
        [&](int u, uint64 of_row) { if (lane == 0 && of_row > 0) atomicAdd(triangles + u, of_row); });
}

// Adds the triangles to `counts`: if OF_LOWEST to those of u → v and u → w, else of v → w. They are at the slot of the edge
// in its window; if BY_BOUND, at places[slot] plus the least of the bounds of the three edges.
INSTANCES(
    count_entries_between<false, false>,
    count_entries_between<false, true>,
    count_entries_between<true, false>,
    count_entries_between<true, true>)
template <bool OF_LOWEST, bool BY_BOUND>
__global__ void __launch_bounds__(BLOCK) count_entries_between(
    const int64* __restrict__ starts, const int* __restrict__ lengths, const int* __restrict__ entries,
    const int64* __restrict__ other_starts, const int* __restrict__ other_lengths, const int* __restrict__ others,
    int first_row, int end_row, int first_middle, int end_middle, int* __restrict__ counts, const int* __restrict__ bounds,
    const int* __restrict__ other_bounds, const int64* __restrict__ places) {
    const Between windows = {starts, lengths, entries, other_starts, other_lengths, others, first_row, end_row, first_middle,
        end_middle};
    const int lane = threadIdx.x % WARP;
    windows.each(
        [&](int, int64 edge, int64 longer, int64 third) {
            if constexpr (BY_BOUND) {
                const int least = min(min(bounds[edge], bounds[longer]), other_bounds[third]);
                if constexpr (OF_LOWEST) atomicAdd(counts + places[edge] + least, 1);
                atomicAdd(counts + places[OF_LOWEST ? longer : third] + least, 1);
            } else {
                atomicAdd(counts + (OF_LOWEST ? longer : third), 1);
            }
        },
        [&](int, int64 edge, uint64 of_edge) {
            if (OF_LOWEST && !BY_BOUND && lane == 0 && of_edge > 0) atomicAdd(counts + edge, (int)of_edge);
        },
        [](int, uint64) {});
}

// Lists the triangles of the edges of the rows first_row … end_row - 1; the first of these edges is first_edge.
// ends: where each list ends so far.
__global__ void __launch_bounds__(BLOCK) list_triangles(
    const int64* __restrict__ starts, const int* __restrict__ lengths, const int* __restrict__ entries,
    const int* __restrict__ sources, int64 edges, int first_row, int end_row, int64 first_edge, uint64* __restrict__ ends,
    Pair* __restrict__ others) {
    const Oriented graph = {starts, lengths, entries, sources};
    const auto put = [&](int64 edge, int64 one, int64 other) {
        others[atomicAdd(ends + (edge - first_edge), 1ull)] = {(int)one, (int)other};
    };
    for (int64 edge = first_group(); edge < edges; edge += groups_of_grid()) {
        const int u = sources[edge], v = entries[edge];
        const bool is_source = first_row <= u && u < end_row, is_target = first_row <= v && v < end_row;
        if (!is_source && !is_target) continue;
        graph.intersect(edge, u, v, [&](int64 longer, int64 third) {
            if (is_source) {
                put(edge, longer, third);
                put(longer, edge, third);
            }
            if (is_target) put(third, edge, longer);
        });
    }
}

// Another thread may write it: never from a cache that is not coherent.
template <typename T> __device__ __forceinline__ T newest(const T* address) { return *(const volatile T*)address; }

// How many of a list's triangles have at least this bound on both edges; the warp counts until there are `bound` of them.
__device__ __forceinline__ int supporting(const Pair* others, int64 begin, int64 end, const int* bounds, int bound) {
    int found = 0;
    for (int64 base = begin; base < end && found < bound; base += WARP) {
        const int64 at = base + threadIdx.x % WARP;
        bool supports = false;
        if (at < end) {
            const Pair pair = others[at];
            supports = newest(bounds + pair.first) >= bound && newest(bounds + pair.second) >= bound;
        }
        found += __popc(__ballot_sync(FULL, supports));
    }
    return found;
}

// Examines the marked edges first_edge … first_edge + count - 1, a warp each. counts: examined, fallen; zero before.
INSTANCES(lower_bounds<false>, lower_bounds<true>)
template <bool BY_BISECTION>
__global__ void __launch_bounds__(BLOCK, 6) lower_bounds(
    int64 first_edge, int64 count, const int64* __restrict__ starts, const Pair* __restrict__ others, int* bounds, int* marks,
    uint64* falls, uint64* counts) {
    const int lane = threadIdx.x % WARP;
    int examined = 0, fallen = 0;
    for (int64 base = (int64)blockIdx.x * BLOCK + threadIdx.x - lane; base < count; base += (int64)gridDim.x * BLOCK) {
        const bool is_marked = base + lane < count && newest(marks + first_edge + base + lane) != 0;
        unsigned waiting = __ballot_sync(FULL, is_marked);
        examined += __popc(waiting);
        while (waiting) {
            const int64 item = base + __ffs((int)waiting) - 1, edge = first_edge + item;
            waiting &= waiting - 1;
            // before others' bounds are read: who lowers one later sets it again
            if (lane == 0) atomicExch(marks + edge, 0);
            __threadfence();
            __syncwarp();
            const int64 begin = starts[item], end = starts[item + 1];
            const int old_bound = newest(bounds + edge);
            int low = supporting(others, begin, end, bounds, old_bound), high = old_bound - 1;
            if (low >= old_bound) continue;
            if constexpr (!BY_BISECTION) low = high;
            while (low < high) {
                const int middle = (low + high + 1) / 2;
                if (supporting(others, begin, end, bounds, middle) >= middle) low = middle;
                else high = middle - 1;
            }
            ++fallen;
            // the mark: another edge may have fallen below old_bound while it saw this bound, and this one as well
            if (lane == 0) {
                // behind the reading of others' bounds, before the writing: what falls later was counted as it was
                falls[edge + 1] = atomicAdd(falls, 1ull) + 1;
                __threadfence();
                atomicExch(bounds + edge, low);
                atomicExch(marks + edge, 1);
            }
            __threadfence();
            __syncwarp();
            for (int64 at = begin + lane; at < end; at += WARP) {
                const Pair pair = others[at];
                const int first = newest(bounds + pair.first), second = newest(bounds + pair.second);
                if (low < first && first <= old_bound) atomicExch(marks + pair.first, 1);
                if (low < second && second <= old_bound) atomicExch(marks + pair.second, 1);
            }
        }
    }
    if (lane == 0 && examined > 0) {
        atomicAdd(counts, (uint64)examined);
        atomicAdd(counts + 1, (uint64)fallen);
    }
}
#endif

// ---- core numbers, by peeling ----
//
// For k = 0, 1, …, vertices of degree k leave until there are none, and lower the degrees of their neighbours.
// Launch: BLOCK threads a block, all blocks resident (cooperative), since they synchronise after each step.
// Traffic: per edge and direction 4 bytes of neighbour id, and a random atomic addition unless the neighbour has left; for
// each k twice the list of vertices that remain.

__device__ __forceinline__ int warp_minimum(int value) {
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) {
        const int other = __shfl_xor_sync(FULL, value, step);
        value = other < value ? other : value;
    }
    return value;
}

#if !WEIGHTED
// degree: the row lengths, and the core numbers in the end. remaining, others: int[n], of which the first has all vertices.
// queue: int[n]. counts: zero, but for REMAINING.
__global__ void __launch_bounds__(BLOCK, 2) core_numbers(
    const int64* __restrict__ starts, const int* __restrict__ lengths, const int* __restrict__ entries, int* degree,
    int* remaining, int* others, int* queue, int64* counts) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const int64 thread = (int64)blockIdx.x * BLOCK + threadIdx.x, threads = (int64)gridDim.x * BLOCK;
    const int lane = threadIdx.x % WARP;
    volatile int64* const numbers = counts;
    uint64* const counters = reinterpret_cast<uint64*>(counts);
    int64 left = 0;  // vertices that have left, the first ones of the queue
    int k = 0;
    int64 step = 0;  // each kind of count has three places, used in turn
    for (int64 level = 0;; ++level) {
        const int64 count = numbers[CoreCount::REMAINING + level % 3];
        if (count == 0) return;
        if (thread == 0) {
            numbers[CoreCount::REMAINING + (level + 2) % 3] = 0;
            numbers[CoreCount::LEAST + (level + 1) % 3] = 0;
            numbers[CoreCount::QUEUED + (step + 2) % 3] = 0;
        }
        int least = 0x7fffffff;
        for (int64 at = thread; at < count; at += threads) {
            const int v = remaining[at], d = newest(degree + v);
            if (d < k) continue;  // it has left
            if (d == k) {
                queue[left + append(counters + CoreCount::QUEUED + (step + 1) % 3)] = v;
            } else {
                others[append(counters + CoreCount::REMAINING + (level + 1) % 3)] = v;
                least = d < least ? d : least;
            }
        }
        least = warp_minimum(least);
        // the largest distance from the top: the counts begin at 0
        if (lane == 0) atomicMax(counters + CoreCount::LEAST + level % 3, (uint64)(0x7fffffff - least));
        grid.sync();
        ++step;
        bool found = false;
        for (;;) {
            const int64 first = left, queued = numbers[CoreCount::QUEUED + step % 3];
            if (queued == 0) break;
            found = true;
            left += queued;
            if (thread == 0) numbers[CoreCount::QUEUED + (step + 2) % 3] = 0;
            for (int64 at = first + thread / WARP; at < left; at += threads / WARP) {
                const int v = newest(queue + at);
                const int64 begin = starts[v];
                for (int entry = lane; entry < lengths[v]; entry += WARP) {
                    const int u = entries[begin + entry];
                    if (newest(degree + u) <= k) continue;
                    const int before = atomicAdd(degree + u, -1);
                    if (before <= k) atomicAdd(degree + u, 1);  // others were faster
                    else if (before == k + 1) queue[left + append(counters + CoreCount::QUEUED + (step + 1) % 3)] = u;
                }
            }
            grid.sync();
            ++step;
        }
        k = found ? k + 1 : 0x7fffffff - (int)numbers[CoreCount::LEAST + level % 3];
        int* const swapped = remaining;
        remaining = others;
        others = swapped;
    }
}

// How many neighbours have at least this bound; the warp counts until there are `least` of them.
__device__ __forceinline__ int reaching(const int* row, int length, const int* bounds, int least) {
    int found = 0;
    for (int base = 0; base < length && found < least; base += WARP) {
        const int at = base + threadIdx.x % WARP;
        found += __popc(__ballot_sync(FULL, at < length && newest(bounds + row[at]) >= least));
    }
    return found;
}

// Lowers the bounds of some rows to the largest h of which h neighbours have bounds of at least h, a warp each.
// fallen: zero before; how many fell.
__global__ void __launch_bounds__(BLOCK) lower_cores(
    const int64* __restrict__ starts, const int* __restrict__ lengths, const int* __restrict__ entries,
    const int* __restrict__ order, int64 rows, int* bounds, int* __restrict__ blocks, int shift, int now,
    uint64* __restrict__ fallen) {
    const int lane = threadIdx.x % WARP;
    uint64 fell = 0;
    for (int64 at = ((int64)blockIdx.x * BLOCK + threadIdx.x) / WARP; at < rows; at += (int64)gridDim.x * (BLOCK / WARP)) {
        const int v = order[at], length = lengths[v], bound = newest(bounds + v);
        const int* row = entries + starts[v];
        int low = reaching(row, length, bounds, bound), high = bound - 1;
        if (low >= bound) continue;
        while (low < high) {
            const int middle = (low + high + 1) / 2;
            if (reaching(row, length, bounds, middle) >= middle) low = middle;
            else high = middle - 1;
        }
        ++fell;
        if (lane == 0) {
            atomicExch(bounds + v, low);
            blocks[v >> shift] = now;
        }
    }
    if (lane == 0 && fell > 0) atomicAdd(fallen, fell);
}
#endif
