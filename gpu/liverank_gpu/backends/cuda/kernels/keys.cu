// Operations on edges as sorted keys (liverank_gpu.operations.graph: sorted_keys, sort, plan). Keys: see GraphOperations;
// NO_KEY, above all keys, is no operation.
//
//     pack_keys       columns of ids to keys: 8 to 16 bytes read, 8 written an operation; two random reads more if the graph
//                     has an order of its own
//     sort_small      sorts up to 4096 keys in one launch, by comparing each with all; if WEIGHTED also gives their order
//     transpose_keys  keys of the out-lists to those of the in-lists: 8 bytes read, 8 written
//
// Launch: BLOCK threads a block; a warp a key for sort_small, a thread an item for the others.
#include "scan.cuh"

#if !WEIGHTED
INSTANCES(pack_keys<int>, pack_keys<int64>)
template <class Id>
__global__ void __launch_bounds__(BLOCK) pack_keys(
    const Id* __restrict__ sources, const Id* __restrict__ targets, int64 edges, int64 vertices, int operation,
    const int* __restrict__ positions, int64 permuted, int64* __restrict__ keys) {
    for (int64 edge = (int64)blockIdx.x * BLOCK + threadIdx.x; edge < edges; edge += (int64)gridDim.x * BLOCK) {
        const int64 source = position_of(sources[edge], positions, permuted);
        const int64 target = position_of(targets[edge], positions, permuted);
        const bool known = source >= 0 && source < vertices && target >= 0 && target < vertices;
        keys[edge] = known ? key_of(source, target, operation) : NO_KEY;
    }
}
#endif

__global__ void __launch_bounds__(BLOCK) sort_small(
    const int64* __restrict__ keys, int total, int64* __restrict__ sorted, int* __restrict__ order) {
    const int at = (blockIdx.x * BLOCK + threadIdx.x) / WARP;
    const int before = keys_before(keys, total, at);
    if (threadIdx.x % WARP != 0 || at >= total) return;
    sorted[before] = keys[at];
    if constexpr (WEIGHTED) order[before] = at;
}

#if !WEIGHTED
// The same operations with rows and neighbours exchanged, for the in-lists, which have no loops.
__global__ void __launch_bounds__(BLOCK) transpose_keys(
    const int64* __restrict__ keys, int64 total, int64* __restrict__ transposed) {
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < total; at += (int64)gridDim.x * BLOCK) {
        const int64 key = keys[at], row = row_of_key(key), neighbour = neighbour_of_key(key);
        transposed[at] = key == NO_KEY || row == neighbour ? NO_KEY : key_of(neighbour, row, key & 1);
    }
}
#endif
