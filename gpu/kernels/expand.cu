// Flags the out-neighbours of a set of vertices, and those of them that have a loop (backends/base.py, expand).
//
// Launch: BLOCK threads a block, LANES threads a row, a grid-stride loop over order[first … last).
// Traffic: per edge 4 bytes of neighbour id, streamed, and one random write of a byte. Threads that meet at a
// flag write the same value.

template <int LANES>
__global__ void __launch_bounds__(BLOCK) expand_rows(
    const int* __restrict__ order, int64 first, int64 last,
    const int64* __restrict__ start, const int* __restrict__ length, const int* __restrict__ pool,
    const uint8* __restrict__ loop, uint8* __restrict__ flags) {
    constexpr int ROWS = BLOCK / LANES;
    const int lane = threadIdx.x % LANES;
    for (int64 row = first + (int64)blockIdx.x * ROWS + threadIdx.x / LANES; row < last;
         row += (int64)gridDim.x * ROWS) {
        const int u = order[row];
        const int* neighbours = pool + start[u];
        const int count = length[u];
        for (int slot = lane; slot < count; slot += LANES) flags[neighbours[slot]] = 1;
        if (lane == 0 && loop[u]) flags[u] = 1;
    }
}
