// Random numbers, and graphs drawn from them (liverank_gpu.operations.generate).
//
// Numbers are SplitMix64's, counter-based. So a graph does not depend on the launch shape, nor on the order in which threads
// run.
#include "common.cuh"

#if !WEIGHTED
// numbers: uint64[count], numbers skipped, skipped + 1, … of the sequence from `start`.
// Launch: BLOCK threads a block, grid-stride. Traffic: 8 bytes a number.
__global__ void __launch_bounds__(BLOCK) random_numbers(
    uint64 start, int64 skipped, int64 count, uint64* __restrict__ numbers) {
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < count; at += (int64)gridDim.x * BLOCK)
        numbers[at] = mix(start + (uint64)(skipped + at + 1) * GOLDEN_GAMMA);
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

// Uniform random edges: edge i is the pair of vertices to which a permutation of all pairs maps i. The permutation is a Feistel
// network over 2 · bits bits, applied again while the result is no pair (cycle walking): less than four times on average.
//
// Launch: BLOCK threads a block, grid-stride. Traffic: 8 bytes an edge.
__global__ void __launch_bounds__(BLOCK) uniform_pairs(
    uint64 start, int64 vertices, int bits, int64 edges, int* __restrict__ sources, int* __restrict__ targets) {
    const uint64 others = (uint64)vertices - 1, pairs = (uint64)vertices * others, mask = (1ull << bits) - 1;
    for (int64 edge = (int64)blockIdx.x * BLOCK + threadIdx.x; edge < edges; edge += (int64)gridDim.x * BLOCK) {
        uint64 value = (uint64)edge;
        do {
            uint64 left = value >> bits, right = value & mask;
            for (int round = 0; round < FEISTEL_ROUNDS; ++round) {
                const uint64 counter = ((uint64)round << bits) + right + 1;
                const uint64 swapped = left ^ (mix(start + counter * GOLDEN_GAMMA) & mask);
                left = right;
                right = swapped;
            }
            value = left << bits | right;
        } while (value >= pairs);
        const uint64 source = value / others, target = value - source * others;
        sources[edge] = (int)source;
        targets[edge] = (int)(target + (target >= source));
    }
}
#endif
