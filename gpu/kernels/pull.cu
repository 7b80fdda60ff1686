// The residual of y = αP̄ᵀy + β·1, and one Jacobi step over a set of rows of the transpose, loops in closed form
// (backends/base.py, find_residual and step):
//
//     r  = β + α·Σ contributions[in-neighbours of v] - (1 - αℓ/d)·y[v]
//     y' = y[v] + r / (1 - αℓ/d),     contribution' = y'/d
//
// DIVIDED: y/d is divided for each edge, and no contributions are needed. Value: what y and r are stored as.
// Launch: pull_rows as rows.cuh says, the others any grid.
// Traffic of pull_rows, Value double: per edge 4 bytes of neighbour id, streamed, and one random read of 8 bytes (a 32-byte
// sector); per row 16 (order, start, length) + 5 (loop, degree) + 8 + 8 bytes (y in; r or y' out).

enum PullSum { RESIDUAL_L1, RESIDUAL_SUM, LARGEST_CHANGE = SUMS - 1 };

// What the vertices contribute to each of their out-neighbours: y/d, and 0 where d = 0. Launch: any grid.
__global__ void __launch_bounds__(BLOCK, 4) contribute(
    int64 vertices, const int* __restrict__ degree, const double* __restrict__ values, double* __restrict__ contributions) {
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        const int d = degree[v];
        contributions[v] = d > 0 ? values[v] / d : 0.0;
    }
}

struct Vertex {
    double value;
    int d;
    uint8 loop;
};

// STEPPING: y' goes to `out`, and the flags of the affected set are set and cleared; otherwise r goes there.
template <typename Value, bool STEPPING, bool DIVIDED>
__global__ void __launch_bounds__(BLOCK, DIVIDED ? 3 : 4) pull_rows(
    const int* __restrict__ order, const int64* __restrict__ start, const int* __restrict__ length,
    const int* __restrict__ pool, double* parts, int* arrived, Plan plan,
    const uint8* __restrict__ loop, const int* __restrict__ degree,
    const Value* __restrict__ values, const double* __restrict__ contributions, double base, double damping,
    Value* __restrict__ out, int* __restrict__ affected, uint8* __restrict__ spreading, double prune_tolerance,
    double frontier_tolerance, double* __restrict__ partial_sums) {
    double sums[SUMS] = {};
    const auto load = [&](int u) {
        if constexpr (DIVIDED) return (double)values[u] / degree[u];
        else return contributions[u];
    };
    const auto read = [&](int v, bool wanted) {
        return wanted ? Vertex{(double)values[v], degree[v], loop[v]} : Vertex{};
    };
    const auto finish = [&](int v, const Vertex& own, double arriving) {
        const double leaving = own.loop ? 1.0 - damping / own.d : 1.0;
        const double residual = base + damping * arriving - leaving * own.value;
        if constexpr (STEPPING) {
            const Value new_value = (Value)(own.value + residual / leaving);
            const double change = change_of<Value>(own.value, new_value);
            const double relative = change / fmax((double)new_value, own.value);
            out[v] = new_value;
            sums[LARGEST_CHANGE] = fmax(sums[LARGEST_CHANGE], change);
            if (relative <= prune_tolerance) affected[v] = 0;
            if (relative > frontier_tolerance) spreading[v] = 1;
        } else {
            out[v] = (Value)residual;
            sums[RESIDUAL_L1] += fabs(residual);
            sums[RESIDUAL_SUM] += residual;
        }
    };
    each_row({order, start, length, pool, parts, arrived}, plan, load, read, finish);
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SUMS);
}

// Takes over what a step found for the rows order[0 … count); where lists are wanted it lists those that spread, whose flags it
// clears, and those that stay affected. found: uint64[2], zeroed before.
template <typename Value>
__global__ void __launch_bounds__(BLOCK, 4) adopt_rows(
    const int* __restrict__ order, int64 count, const int* __restrict__ degree, const Value* __restrict__ new_values,
    Value* __restrict__ values, double* __restrict__ contributions, int contributing, const int* __restrict__ affected,
    uint8* __restrict__ spreading, int listing, int* __restrict__ spread, int* __restrict__ stay, uint64* found) {
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < count; at += (int64)gridDim.x * BLOCK) {
        const int v = order[at];
        const Value value = new_values[v];
        values[v] = value;
        if (contributing) {
            const int d = degree[v];
            contributions[v] = d > 0 ? (double)value / d : 0.0;
        }
        if (!listing) continue;
        if (spreading[v]) {
            spreading[v] = 0;
            spread[append(found)] = v;
        }
        if (affected[v]) stay[append(found + 1)] = v;
    }
}
