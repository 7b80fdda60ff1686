// Which vertices are next to a set of vertices (backends/base.py, expand and reached).
//
// Launch: BLOCK threads a block, a warp a chunk of an out-list or an in-list, a grid-stride loop.
// Traffic: per edge 4 bytes of neighbour id, streamed, and one random access to a flag.

constexpr int CHUNK = 128;

__device__ __forceinline__ void flag(int v, int* flags, int* fresh, uint64* found) {
    if (flags[v]) return;
    if (atomicExch(&flags[v], 1)) return;
    fresh[atomicAdd(found, 1ull)] = v;
}

// Flags the out-neighbours of vertices[0 … count), and those of them that have a loop; lists who had no flag.
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

// Flags every vertex that has no flag and an in-neighbour in the frontier, which it is itself if it has a loop; lists them. A
// warp a vertex.
__global__ void __launch_bounds__(BLOCK, 4) look_back(
    int64 vertices, const int64* __restrict__ start, const int* __restrict__ length, const int* __restrict__ pool,
    const uint8* __restrict__ loop, const uint8* __restrict__ frontier, int* flags, int* fresh, uint64* found) {
    const int lane = threadIdx.x % WARP;
    for (int64 v = (int64)blockIdx.x * WARPS + threadIdx.x / WARP; v < vertices; v += (int64)gridDim.x * WARPS) {
        if (flags[v]) continue;
        if (loop[v] && frontier[v]) {
            if (lane == 0) flag((int)v, flags, fresh, found);
            continue;
        }
        const int* neighbours = pool + start[v];
        const int count = length[v];
        for (int base = 0; base < count; base += WARP) {
            const bool met = base + lane < count && frontier[neighbours[base + lane]];
            if (!__any_sync(FULL, met)) continue;
            if (lane == 0) flag((int)v, flags, fresh, found);
            break;
        }
    }
}
