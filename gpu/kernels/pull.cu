// One Jacobi step of y = αP̄ᵀy + β·1 over a set of rows of the transpose, loops in closed form (backends/base.py, pull):
//
//     r  = β + α·Σ contributions[in-neighbours of v] - (1 - αℓ/d)·y[v]
//     y' = y[v] + r / (1 - αℓ/d),     contribution' = y'/d
//
// MODE: RESIDUAL, r alone; SWEEP, y' too; FRONTIER, which also sets and clears flags. DIVIDED: y/d is divided for each edge, and
// no contributions are needed. Value: what y and r are stored as.
// Launch: as rows.cuh says.
// Traffic, Value double: per edge 4 bytes of neighbour id, streamed, and one random read of 8 bytes (a 32-byte sector); per row
// 16 (order, start, length) + 5 (loop, degree) + 8 + 16 bytes (y in; y', contribution' out).

enum PullSum { RESIDUAL_L1, RESIDUAL_SUM, TOTAL, DANGLING, LARGEST_CHANGE };
enum Mode { RESIDUAL, SWEEP, FRONTIER };

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

template <typename Value, int MODE, bool DIVIDED>
__global__ void __launch_bounds__(BLOCK, DIVIDED ? 3 : 4) pull_rows(
    const int* __restrict__ order, const int64* __restrict__ start, const int* __restrict__ length,
    const int* __restrict__ pool, double* parts, int* arrived, Plan plan,
    const uint8* __restrict__ loop, const int* __restrict__ degree,
    const Value* __restrict__ values, const double* __restrict__ contributions,
    double base, double damping, Value* __restrict__ new_values, double* __restrict__ new_contributions,
    Value* __restrict__ residuals, int residual_wanted, int* __restrict__ affected, uint8* __restrict__ spreading,
    double prune_tolerance, double frontier_tolerance, double* __restrict__ partial_sums) {
    double sums[SUMS] = {};
    const auto load = [&](int u) {
        if constexpr (DIVIDED) return (double)values[u] / degree[u];
        else return contributions[u];
    };
    const auto read = [&](int v, bool wanted) {
        return wanted ? Vertex{(double)values[v], degree[v], loop[v]} : Vertex{};
    };
    const auto finish = [&](int v, const Vertex& own, double arriving) {
        const int d = own.d;
        const double leaving = own.loop ? 1.0 - damping / d : 1.0;
        const double residual = base + damping * arriving - leaving * own.value;
        if (MODE == RESIDUAL || residual_wanted) residuals[v] = (Value)residual;
        sums[RESIDUAL_L1] += fabs(residual);
        sums[RESIDUAL_SUM] += residual;
        if constexpr (MODE != RESIDUAL) {
            const Value new_value = (Value)(own.value + residual / leaving);
            const double change = change_of<Value>(own.value, new_value);
            new_values[v] = new_value;
            if constexpr (!DIVIDED) new_contributions[v] = d > 0 ? new_value / d : 0.0;
            sums[TOTAL] += new_value;
            if (d == 0) sums[DANGLING] += new_value;
            sums[LARGEST_CHANGE] = fmax(sums[LARGEST_CHANGE], change);
            if constexpr (MODE == FRONTIER) {
                const double relative = change / fmax((double)new_value, own.value);
                if (relative <= prune_tolerance) affected[v] = 0;
                if (relative > frontier_tolerance) spreading[v] = 1;
            }
        }
    };
    each_row({order, start, length, pool, parts, arrived}, plan, load, read, finish);
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SUMS);
}
