// The PageRank kernels of Kim, "Towards exploiting GPUs for fast PageRank computation of large-scale networks" (2013): algorithms
// 1 to 3 as printed, with numThreads = blockDim.x and numBlocks = gridDim.x (benchmarks/kim.py).
//
// They iterate newPR = df · sum over in-neighbours of oldPR / outDegree + (1 - df) / |V|; the rank of dangling vertices is lost.

// Algorithm 1: newPR[v] = minPR. Traffic: a value a vertex.
template <class Value>
__global__ void set_minimum(int nodes, Value minimum, Value* new_ranks) {
    for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < nodes; index += gridDim.x * blockDim.x)
        new_ranks[index] = minimum;
}

// Algorithm 2: each edge (w, v) adds df · oldPR[w] / outDegree[w] to newPR[v]; UNDIRECTED: and the same in the other direction.
// edges: int32[count, 2]. Traffic: 8 bytes an edge; two gathers and an atomic addition for each direction.
template <class Value, bool UNDIRECTED>
__global__ void edge_centric(
    long long count, Value damping, const int* __restrict__ out_degree, const int2* __restrict__ edges,
    const Value* __restrict__ old_ranks, Value* new_ranks) {
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x; index < count; index += step) {
        const int w = edges[index].x, v = edges[index].y;
        atomicAdd(new_ranks + v, damping * old_ranks[w] / (Value)out_degree[w]);
        if (UNDIRECTED) atomicAdd(new_ranks + w, damping * old_ranks[v] / (Value)out_degree[v]);
    }
}

// Algorithm 3: one thread a vertex sums over its list of in-neighbours. Line 6 takes the out-degree of w from the pointers of
// these lists, which is right for symmetric graphs alone: pass the pointers of the out-lists as out_pointers where they differ.
// pointers, out_pointers: int32[nodes + 1]. Traffic: 4 bytes an edge, and three gathers.
template <class Value>
__global__ void node_centric(
    int nodes, Value damping, const int* __restrict__ pointers, const int* __restrict__ out_pointers,
    const int* __restrict__ in_neighbours, const Value* __restrict__ old_ranks, Value* __restrict__ new_ranks) {
    for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < nodes; index += gridDim.x * blockDim.x) {
        Value sum = 0;
        for (int at = pointers[index]; at < pointers[index + 1]; ++at) {
            const int w = in_neighbours[at], out_degree = out_pointers[w + 1] - out_pointers[w];
            sum += old_ranks[w] / (Value)out_degree;
        }
        new_ranks[index] = damping * sum + (1 - damping) / (Value)nodes;
    }
}
