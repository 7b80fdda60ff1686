// What only weighted graphs need (liverank_gpu.operations.graph: deduplicate, sum_weights, scale_rows).
//
//     deduplicate_weighted  as `deduplicate` of rebuild.cu: drops repeats and loops from sorted keys, in place, and gives each
//                           edge its weight: 40 bytes a key
//     sum_weights           strengths: a warp a row, the whole block for long rows: 4 bytes an entry, 24 a row
//     scale_rows            weights, loops and strengths, a warp a row: 8 bytes an entry, a random read of 4 (a 32-byte
//                           sector), and 8 an entry of a row whose factor is not 1; 28 a row
//
// Launch: BLOCK threads a block; a block a tile for deduplicate_weighted, any grid for the others.
#include "scan.cuh"
#include "strengths.cuh"

// The weight of the edge whose first key is before `last`, which becomes the end of its keys. present: its weight before them.
__device__ __forceinline__ float weight_of_group(
    const int64* keys, const float* weights, int64 total, float present, int adds, int64& last) {
    const int64 key = keys[last - 1];
    double sum = (double)present + weights[last - 1];
#pragma unroll 1
    for (; last < total && keys[last] == key; ++last) sum += weights[last];
    return adds ? (float)sum : weights[last - 1];
}

#if WEIGHTED
// The first key of an edge reads the others, before its tile publishes its sum: no later tile writes before that.
// order[at]: the place of a key before the sort; edges that the graph has already are those below `kept`.
__global__ void __launch_bounds__(BLOCK, 4) deduplicate_weighted(
    int64* keys, float* weights, const int64* __restrict__ order, int64 total, uint64* scan, int adds, int64 kept_edges,
    float* __restrict__ loop, int64* __restrict__ counters) {
    const int64 tile = next_tile(scan);
    const int64 first = first_item(tile, ITEMS);
    int64 key[ITEMS], loops = 0, reweighted = 0, exceeded = 0;
    float weight[ITEMS];
    unsigned kept = 0;  // one bit an item
    uint64 sums[1][ITEMS];
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 at = first + item * WARP;
        sums[0][item] = 0;
        weight[item] = 0.0f;
        key[item] = at < total ? keys[at] : NO_KEY;
        const bool repeated = at > 0 && at < total && keys[at - 1] == key[item];
        if (key[item] == NO_KEY || repeated) continue;
        const int64 row = row_of_key(key[item]);
        const bool is_loop = row == neighbour_of_key(key[item]);
        int64 last = at + 1;
        weight[item] = weight_of_group(keys, weights, total, is_loop ? loop[row] : 0.0f, adds, last);
        if (isinf(weight[item]) && exceeded == 0) exceeded = LAST_PLACE - last;
        if (is_loop) {
            loops += 1;
            loop[row] = weight[item];
        } else {
            reweighted += order[at] < kept_edges && weight[item] != weights[at];
            kept |= 1u << item;
            sums[0][item] = 1;
        }
    }
    exclusive_sums(scan, tile, sums);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        uint64 place = sums[0][item];
        if (kept >> item & 1) {
            weights[place] = weight[item];
            keys[place++] = key[item];
        }
        if (first + item * WARP + 1 == total) counters[Counter::EDGES] = (int64)place;
    }
    count(counters + Counter::CHANGED, loops);
    count(counters + Counter::REWEIGHTED, reweighted);
    count_largest(counters + Counter::EXCEEDED, exceeded);
}

__global__ void __launch_bounds__(BLOCK) sum_weights(
    const int* __restrict__ vertices, int64 total, Lists rows, const float* __restrict__ loop, double* __restrict__ strength) {
    sum_strengths(vertices, total, rows, loop, strength);
}

// Multiplies out-lists, loops and strengths by the factors of their rows, in-lists by those of their neighbours.
__global__ void __launch_bounds__(BLOCK) scale_rows(
    int64 vertices, const int64* __restrict__ out_starts, const int* __restrict__ out_lengths,
    float* __restrict__ out_weights, const int64* __restrict__ in_starts, const int* __restrict__ in_lengths,
    const int* __restrict__ in_neighbours, float* __restrict__ in_weights, const float* __restrict__ factors,
    float* __restrict__ loop, double* __restrict__ strength) {
    const int lane = threadIdx.x % WARP;
    for (int64 v = (int64)blockIdx.x * WARPS + threadIdx.x / WARP; v < vertices; v += (int64)gridDim.x * WARPS) {
        const float factor = factors[v];
        if (factor != 1.0f) {
            for (int slot = lane; slot < out_lengths[v]; slot += WARP) out_weights[out_starts[v] + slot] *= factor;
            if (lane == 0) {
                loop[v] *= factor;
                strength[v] *= factor;
            }
        }
        for (int slot = lane; slot < in_lengths[v]; slot += WARP) {
            const int64 at = in_starts[v] + slot;
            const float of_source = factors[in_neighbours[at]];
            if (of_source != 1.0f) in_weights[at] *= of_source;
        }
    }
}
#endif
