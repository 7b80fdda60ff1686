// Vertices with the same in-list (liverank_gpu.operations.graph).
//
// Rows have no order and no repeats. So a row is the same as one of equal length if that has each of its entries; and a sum of
// mixed entries is the same for the same rows.
//
// Launch: BLOCK threads a block, a warp a row or a pair of rows, grid-stride.
#include "common.cuh"
#include "random.h"

struct InLists {
    Lists in;
    const Loop* loop;
    const Degree* degree;

    // The source in a slot, and the bits of its weight.
    __device__ __forceinline__ uint64 entry(int64 slot) const {
        const uint64 source = (uint64)in.indices[slot] << 32;
        if constexpr (WEIGHTED) return source | __float_as_uint(in.weights[slot]);
        else return source;
    }

    // liverank_gpu.operations.graph.returned_parts
    __device__ __forceinline__ int64 returned(int64 v) const {
        if (loop[v] == 0) return 0;
        if (degree[v] == loop[v]) return 1;
        if constexpr (WEIGHTED) return NO_PART;
        else return degree[v];
    }

    // Whether a row has an entry, most often at this place: rows are filled in the same order, and changed.
    __device__ __forceinline__ bool has(int64 start, int length, uint64 wanted, int place) const {
        if (entry(start + place) == wanted) return true;
        for (int other = 0; other < length; ++other)
            if (entry(start + other) == wanted) return true;
        return false;
    }

    // Every lane takes part.
    __device__ __forceinline__ bool are_same(int64 v, int64 w) const {
        const int length = in.lengths[v];
        if (in.lengths[w] != length || returned(w) != returned(v)) return false;
        const int64 start = in.starts[v], other = in.starts[w];
        for (int first = 0; first < length; first += WARP) {
            const int place = first + threadIdx.x % WARP;
            if (!__all_sync(FULL, place >= length || has(start, length, entry(other + place), place))) return false;
        }
        return true;
    }
};

__device__ __forceinline__ int64 warp_min(int64 value) {
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) {
        const int64 other = __shfl_xor_sync(FULL, value, step);
        if (other < value) value = other;
    }
    return value;
}

// found: int64[5, count], the columns of Fingerprints.
// Traffic: 4 bytes an entry and 4 at random; WEIGHTED 4 more.
__global__ void __launch_bounds__(BLOCK) fingerprints(
    const int64* __restrict__ positions, int64 count, int longest, InLists lists, const int* __restrict__ out_lengths,
    int64* __restrict__ found) {
    const Lists& in = lists.in;
    const int lane = threadIdx.x % WARP;
    const int64 warps = (int64)gridDim.x * WARPS;
    for (int64 at = ((int64)blockIdx.x * BLOCK + threadIdx.x) / WARP; at < count; at += warps) {
        const int64 v = positions[at], returned = lists.returned(v), start = in.starts[v];
        const int length = in.lengths[v] > longest || returned == NO_PART ? 0 : in.lengths[v];
        uint64 sum = 0;
        int64 nearest = length > 0 ? 0x7fffffffffffffffll : 0;
        for (int place = lane; place < length; place += WARP) {
            const int source = in.indices[start + place];
            const int64 key = (int64)out_lengths[source] << 32 | source;
            if (key < nearest) nearest = key;
            sum += mix(lists.entry(start + place));
        }
        sum = warp_sum(sum);
        nearest = warp_min(nearest);
        if (lane != 0) continue;
        found[at] = v;
        found[count + at] = length;
        // mixed twice, as no entry is
        found[2 * count + at] = length > 0 ? (int64)(sum + mix(mix((uint64)length << 32 | (uint64)returned))) : 0;
        found[3 * count + at] = nearest & 0xffffffff;
        found[4 * count + at] = nearest >> 32;
    }
}

// asked: int64[3, count], of each list: how many out-edges its source and those of the lists before it have; its vertex; and
// its source. found: zero before; how many pairs there are, and the pairs, number of a list << 32 | position.
// Traffic: a few numbers at random for each out-edge; for a row of equal length 4 bytes an entry of both, WEIGHTED 8; more for
// entries at other places.
__global__ void __launch_bounds__(BLOCK) find_same(
    const int64* __restrict__ asked, int64 count, Lists out, InLists lists, uint64* __restrict__ found) {
    const int64* const ends = asked;
    const int64 pairs = ends[count - 1], warps = (int64)gridDim.x * WARPS;
    for (int64 at = ((int64)blockIdx.x * BLOCK + threadIdx.x) / WARP; at < pairs; at += warps) {
        const int64 number = first_above(ends, count, at), place = at - (number > 0 ? ends[number - 1] : 0);
        const int64 vertex = asked[count + number], source = asked[2 * count + number];
        const int candidate = out.indices[out.starts[source] + place];
        if (candidate == vertex || !lists.are_same(vertex, candidate) || threadIdx.x % WARP != 0) continue;
        found[1 + append(found)] = (uint64)number << 32 | (uint64)candidate;
    }
}
