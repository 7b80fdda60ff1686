// Random numbers, and graphs drawn from them (liverank_gpu.operations.generate).
//
// Numbers are SplitMix64's, counter-based. So a graph does not depend on the launch shape, nor on the order in which threads
// run.
#include "common.cuh"
#include "random.h"

#if !WEIGHTED
// numbers: uint64[count], numbers skipped, skipped + 1, … of the sequence from `start`.
// Launch: BLOCK threads a block, grid-stride. Traffic: 8 bytes a number.
__global__ void __launch_bounds__(BLOCK) random_numbers(
    uint64 start, int64 skipped, int64 count, uint64* __restrict__ numbers) {
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < count; at += (int64)gridDim.x * BLOCK)
        numbers[at] = random_number(start, skipped + at);
}

// Preferential attachment by the copy model (liverank_gpu.generate.graphs): d edges of each vertex from d on.
//
// links: int32[vertices - d, d], all -1 before. tickets: uint64, zero before.
//
// A ticket is `per_ticket` consecutive vertices, and a warp that is free takes the next one. A lane draws its vertices of the
// ticket one after another. In each turn of the loop, which the lanes of a warp go through together, every lane that is not
// done makes one attempt at its current edge. A copy edge whose origin is not written yet is tried again in the next turn.
//
// It ends: an edge depends on edges of smaller vertices only. Let v be the smallest vertex that is not done. Tickets are given
// in the order of vertices, so v's ticket has been taken, by a warp that is running; a lane takes its vertices in ascending
// order, so v is its current one, and all that v can depend on is written. So v advances whatever other warps do, and no block
// needs to wait for one that is not resident.
//
// A value is written once and is all that a reader needs, so relaxed (volatile) accesses are enough.
//
// A candidate is compared with the vertex's earlier links only if its bit is set in a filter, which has a bit for each link so
// far: WORDS words a lane, in registers if it is one, else in shared memory.
//
// Launch: any number of blocks, of one warp; of any number of whole warps if WORDS = 1. Fastest in blocks of one warp
// (docs/papers.md, figure 15).
// Traffic an edge: 4 bytes written twice (-1 and the link), and one sector of 32 bytes read at random for a copy.
INSTANCES(preferential_attachment<1>, preferential_attachment<8>)
template <int WORDS>
__global__ void preferential_attachment(
    int vertices, int edges_per_vertex, uint64 threshold, uint64 start, int per_ticket, uint64* tickets, int* links) {
    constexpr unsigned PAUSE = 100;  // nanoseconds between two looks at an edge that is not written
    const int d = edges_per_vertex, lane = threadIdx.x % WARP;
    volatile int* const shared_links = links;
    __shared__ uint64 filters[WORDS == 1 ? 1 : WORDS][WORDS == 1 ? 1 : WARP];
    if (WORDS > 1)
        for (int word = 0; word < WORDS; ++word) filters[word][lane] = 0;
    for (;;) {
        uint64 ticket = 0;
        if (lane == 0) ticket = atomicAdd(tickets, 1ull);
        ticket = __shfl_sync(FULL, ticket, 0);
        const int64 first = d + (int64)ticket * per_ticket;
        if (first >= vertices) return;
        const int64 last = min(first + per_ticket, (int64)vertices);
        int64 v = first + lane, row = (v - d) * d;
        int edge = 0;
        uint64 attempt = 0;
        uint64 filter = 0;
        while (__any_sync(FULL, v < last)) {
            if (v >= last) continue;
            const uint64 key = mix(start + (uint64)(v * d + edge + 1) * GOLDEN_GAMMA) + 3 * attempt * GOLDEN_GAMMA;
            int candidate = (int)__umul64hi(mix(key + GOLDEN_GAMMA), (uint64)v);
            if (mix(key + 2 * GOLDEN_GAMMA) >> 11 >= threshold) {
                const uint64 number = mix(key + 3 * GOLDEN_GAMMA);
                if (candidate >= d) {
                    candidate = shared_links[(int64)(candidate - d) * d + (int64)__umul64hi(number, (uint64)d)];
                    if (candidate < 0) {
                        __nanosleep(PAUSE);
                        continue;
                    }
                } else if (d > 1) {
                    const int other = (int)__umul64hi(number, (uint64)(d - 1));
                    candidate = other + (other >= candidate);
                }
            }
            const unsigned hash = (unsigned)candidate * 0x9e3779b1u;
            const uint64 bit = 1ull << (hash >> 26);
            uint64& word = WORDS == 1 ? filter : filters[hash >> 16 & WORDS - 1][lane];
            bool linked = false;
            if (word & bit)
                for (int earlier = 0; earlier < edge && !linked; ++earlier) linked = links[row + earlier] == candidate;
            if (linked) {
                ++attempt;
                continue;
            }
            shared_links[row + edge] = candidate;
            word |= bit;
            attempt = 0;
            if (++edge == d) {
                edge = 0;
                filter = 0;
                if (WORDS > 1)
                    for (int each = 0; each < WORDS; ++each) filters[each][lane] = 0;
                v += WARP;
                row += (int64)WARP * d;
            }
        }
    }
}

// Uniform random edges: edge i is the pair of vertices to which a permutation of all pairs maps i.
//
// Launch: BLOCK threads a block, grid-stride. Traffic: 8 bytes an edge.
__global__ void __launch_bounds__(BLOCK) uniform_pairs(
    uint64 start, int64 vertices, int bits, int64 edges, int* __restrict__ sources, int* __restrict__ targets) {
    for (int64 edge = (int64)blockIdx.x * BLOCK + threadIdx.x; edge < edges; edge += (int64)gridDim.x * BLOCK)
        permuted_pair(edge, start, vertices, bits, FEISTEL_ROUNDS, sources[edge], targets[edge]);
}

// cuPPA, algorithm 1 of Alam and Perumalla (2017), for one segment of vertices: liverank_gpu.generate.published, which says
// what of the text is corrected.
//
// Thread i of T executes vertices first + i, first + i + T, …. An edge waits in the thread's queue as the places in `links` of
// F_ℓ(v), in the upper half of a number, and of F_l(u). Q and Q' share memory: what is appended to one has left the other. A
// thread with a full queue resolves edges before it goes on.
//
// It ends if all blocks run at the same time (section 3.4): so there are no more of them than multiprocessors. Let v be the
// smallest vertex that is not done. All that it can wait for is done, and its thread has no edges of smaller vertices: what
// waits there of v's own is resolved by the next pass, so v advances.
//
// Launch: any number of threads, each with room for `room` edges in dynamic shared memory, or in `queues` unless it is null.
// Traffic an edge: 4 bytes written twice (-1 and the link), a row of links compared, one sector read at random for a copy.
__global__ void __launch_bounds__(1024) execute_copy_model(
    int64 first, int64 last, int64 edges_per_vertex, uint64 threshold, uint64 start, int64 room, uint64* queues, int* links,
    uint64* counts) {
    constexpr unsigned PAUSE = 50;  // nanoseconds between two passes
    extern __shared__ uint64 shared_queues[];
    const int64 d = edges_per_vertex, threads = (int64)gridDim.x * blockDim.x;
    const int64 thread = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    const copy_model::CopyModel model = {links, d, threshold, start};
    uint64* const queue = queues != nullptr ? queues + thread : shared_queues + threadIdx.x;
    const int64 stride = queues != nullptr ? threads : (int64)blockDim.x;
    uint64 waiting = 0, queued = 0, largest = 0, passes = 0;
    const auto resolve = [&] {  // lines 23 to 29
        __nanosleep(PAUSE);
        ++passes;
        uint64 kept = 0;
        for (uint64 at = 0; at < waiting; ++at) {
            const uint64 pair = queue[at * stride];
            const int64 place = (int64)(pair >> 32);
            int64 origin = (int64)(pair & 0xffffffff);
            if (model.newest(origin) < 0 || !model.execute(place, origin))
                queue[kept++ * stride] = (uint64)place << 32 | (uint64)origin;
        }
        waiting = kept;
    };
    __syncthreads();  // none waits for a thread of its block that has not begun
    int64 v = first + thread, edge = 0;
    // lanes of a warp go through these turns together, so that none waits for another one that cannot go on
    while (v < last || waiting > 0) {
        if (v < last && waiting < (uint64)room) {  // phase 1: execute the copy model
            const int64 place = (v - d) * d + edge;
            int64 origin = 0;
            if (!model.execute(place, origin)) {
                queue[waiting++ * stride] = (uint64)place << 32 | (uint64)origin;
                ++queued;
                if (waiting > largest) largest = waiting;
            }
            if (++edge == d) edge = 0, v += threads;
        } else {  // phase 2: resolve incomplete edges
            resolve();
        }
    }
    if (queued > 0) atomicAdd(counts, queued);
    if (largest > ((volatile uint64*)counts)[1]) atomicMax(counts + 1, largest);
    if (passes > ((volatile uint64*)counts)[2]) atomicMax(counts + 2, passes);
}
#endif
