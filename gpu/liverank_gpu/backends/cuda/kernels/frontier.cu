// The neighbours of a set of vertices (liverank_gpu.operations.residual: expand_forward, expand_backward).
//
// Launch: BLOCK threads a block, grid-stride loops.
// Traffic: per edge 4 bytes of neighbour id, streamed, and one random access to a flag.
#include "common.cuh"

__device__ __forceinline__ void flag(int v, int* flags, int* fresh, uint64* found) {
    if (flags[v]) return;
    if (atomicExch(&flags[v], 1)) return;
    fresh[append(found)] = v;
}

// Flags the out-neighbours of vertices[0 … count), and the vertices with a loop; lists those that had no flag. A warp takes a
// chunk of EDGE_CHUNK edges of an out-list. ends[i]: chunks of the out-lists of vertices[0 … i], at least one each.
__global__ void __launch_bounds__(BLOCK, 4) expand_forward(
    const int* __restrict__ vertices, const int64* __restrict__ ends, int64 count, Lists out, const Loop* __restrict__ loop,
    int* flags, int* fresh, uint64* found) {
    const int64 chunks = ends[count - 1];
    const int lane = threadIdx.x % WARP;
    for (int64 chunk = (int64)blockIdx.x * WARPS + threadIdx.x / WARP; chunk < chunks; chunk += (int64)gridDim.x * WARPS) {
        const int64 at = first_above(ends, count, chunk);
        const int u = vertices[at];
        const int64 offset = (chunk - (at > 0 ? ends[at - 1] : 0)) * EDGE_CHUNK;
        const int64 last = out.lengths[u] - offset < EDGE_CHUNK ? out.lengths[u] : offset + EDGE_CHUNK;
        const int* neighbours = out.indices + out.starts[u];
        for (int64 slot = offset + lane; slot < last; slot += WARP) flag(neighbours[slot], flags, fresh, found);
        if (lane == 0 && offset == 0 && loop[u] != 0) flag(u, flags, fresh, found);
    }
}

// Flags and lists every vertex that has no flag and has an in-neighbour in the frontier; it is its own if it has a loop.
__global__ void __launch_bounds__(BLOCK, 4) expand_backward(
    int64 vertices, Lists in, const Loop* __restrict__ loop, const uint8* __restrict__ frontier, int* flags, int* fresh,
    uint64* found) {
    const int lane = threadIdx.x % WARP;
    const int64 step = (int64)gridDim.x * BLOCK;
    int64 read = 0;
    for (int64 first = (int64)blockIdx.x * BLOCK + threadIdx.x - lane; first < vertices; first += step) {
        const int64 v = first + lane;
        const bool open = v < vertices && !flags[v], own = open && loop[v] != 0 && frontier[v];
        if (find_marked(open && !own, v, in, frontier, read) < 0 && !own) continue;
        flags[v] = 1;
        fresh[append(found)] = (int)v;
    }
}
