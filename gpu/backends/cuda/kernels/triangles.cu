// The triangles of each edge (gpu.operations.programs: count_triangles).
//
// Edges go from the end of lower rank to the other. LANES threads take one edge u → v: what the row of u has behind v is
// intersected with the row of v; each thread looks up entries of the shorter list in the longer one.
// Launch: BLOCK threads a block, grid-stride loops over edges.
// Traffic: per entry of the shorter list, a binary search in the longer one; two atomic additions a triangle, the first of them
// once for each thread.

constexpr int LANES = 8;

__global__ void __launch_bounds__(BLOCK) count_triangles(
    const int64* __restrict__ row_starts, const int* __restrict__ row_lengths, const int* __restrict__ column_indices,
    const int* __restrict__ sources, int64 edges, int* __restrict__ triangles) {
    const int64 groups = (int64)gridDim.x * (BLOCK / LANES);
    for (int64 edge = ((int64)blockIdx.x * BLOCK + threadIdx.x) / LANES; edge < edges; edge += groups) {
        const int u = sources[edge], v = column_indices[edge];
        const int64 left = edge + 1, right = row_starts[v];
        const int left_count = (int)(row_starts[u] + row_lengths[u] - left), right_count = row_lengths[v];
        const bool search_left = right_count < left_count;
        const int* searched = column_indices + (search_left ? left : right);
        const int* taken = column_indices + (search_left ? right : left);
        const int count = search_left ? left_count : right_count, many = search_left ? right_count : left_count;
        int found = 0;
        for (int at = threadIdx.x % LANES; at < many; at += LANES) {
            const int w = taken[at];
            const int place = first_from(searched, 0, count, w);
            if (place == count || searched[place] != w) continue;
            ++found;
            atomicAdd(triangles + left + (search_left ? place : at), 1);
        }
        if (found > 0) atomicAdd(triangles + edge, found);
    }
}
