// Ids that callers know become positions of a graph here, as they enter its keys (gpu/order.py).

// `positions` holds those of the ids below `renumbered`; every other id is its own position.
template <class Id>
__device__ __forceinline__ int64 position_of(Id id, const int* __restrict__ positions, int64 renumbered) {
    return id >= 0 && id < renumbered ? positions[id] : (int64)id;
}
