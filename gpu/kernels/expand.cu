// Which vertices are next to a set of vertices (backends/base.py, expand and reached).
//
// Launch: BLOCK threads a block, grid-stride loops.
// Traffic: per edge 4 bytes of neighbour id, streamed, and one random access to a flag.

constexpr int CHUNK = 128;

__device__ __forceinline__ void flag(int v, int* flags, int* fresh, uint64* found) {
    if (flags[v]) return;
    if (atomicExch(&flags[v], 1)) return;
    fresh[append(found)] = v;
}

// Flags the out-neighbours of vertices[0 … count), and those of them that have a loop; lists who had no flag. A warp a chunk of
// an out-list.
// ends[i]: chunks of the out-lists of vertices[0 … i], with at least one for each.
__global__ void __launch_bounds__(BLOCK, 4) expand_rows(
    const int* __restrict__ vertices, const int64* __restrict__ ends, int64 count,
    const int64* __restrict__ start, const int* __restrict__ length, const int* __restrict__ pool,
    const uint8* __restrict__ loop, int* flags, int* fresh, uint64* found) {
    const int64 chunks = ends[count - 1];
    const int lane = threadIdx.x % WARP;
    for (int64 chunk = (int64)blockIdx.x * WARPS + threadIdx.x / WARP; chunk < chunks; chunk += (int64)gridDim.x * WARPS) {
        int64 low = 0, high = count - 1;  // the first vertex whose chunks end beyond this one
        while (low < high) {
            const int64 middle = (low + high) / 2;
            if (ends[middle] > chunk) high = middle;
            else low = middle + 1;
        }
        const int u = vertices[low];
        const int64 offset = (chunk - (low > 0 ? ends[low - 1] : 0)) * CHUNK;
        const int64 last = length[u] - offset < CHUNK ? length[u] : offset + CHUNK;
        const int* neighbours = pool + start[u];
        for (int64 slot = offset + lane; slot < last; slot += WARP) flag(neighbours[slot], flags, fresh, found);
        if (lane == 0 && offset == 0 && loop[u]) flag(u, flags, fresh, found);
    }
}

constexpr int FEW = 8;  // entries of a row that a thread looks at alone

// Flags every vertex that has no flag and an in-neighbour in the frontier, which it is itself if it has a loop; lists them. A
// thread a vertex, until it has looked at FEW entries in vain: then its warp helps it.
__global__ void __launch_bounds__(BLOCK, 4) look_back(
    int64 vertices, const int64* __restrict__ start, const int* __restrict__ length, const int* __restrict__ pool,
    const uint8* __restrict__ loop, const uint8* __restrict__ frontier, int* flags, int* fresh, uint64* found) {
    const int lane = threadIdx.x % WARP;
    const int64 step = (int64)gridDim.x * BLOCK;
    for (int64 first = (int64)blockIdx.x * BLOCK + threadIdx.x - lane; first < vertices; first += step) {
        const int64 v = first + lane;
        const bool open = v < vertices && !flags[v];
        bool met = open && loop[v] && frontier[v];
        const int count = open && !met ? length[v] : 0;
        const int64 begin = count > 0 ? start[v] : 0;
        for (int slot = 0; slot < count && slot < FEW && !met; ++slot) met = frontier[pool[begin + slot]];
        unsigned waiting = __ballot_sync(FULL, count > FEW && !met);
        while (waiting) {
            const int row = __ffs((int)waiting) - 1;
            waiting &= waiting - 1;
            const int64 begin_there = __shfl_sync(FULL, begin, row);
            const int count_there = __shfl_sync(FULL, count, row);
            for (int base = FEW; base < count_there; base += WARP) {
                const bool here = base + lane < count_there && frontier[pool[begin_there + base + lane]];
                if (!__any_sync(FULL, here)) continue;
                if (lane == row) met = true;
                break;
            }
        }
        if (!met) continue;
        flags[v] = 1;
        fresh[append(found)] = (int)v;
    }
}
