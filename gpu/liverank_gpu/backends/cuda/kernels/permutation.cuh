// Ids that callers know become positions when they enter a key (liverank_gpu.graph.vertices). `positions` holds those of the
// ids below `permuted`; every other id is its own position.
#include "common.cuh"

template <class Id>
__device__ __forceinline__ int64 position_of(Id id, const int* __restrict__ positions, int64 permuted) {
    return id >= 0 && id < permuted ? positions[id] : (int64)id;
}
