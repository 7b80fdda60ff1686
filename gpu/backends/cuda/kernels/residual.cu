// The residual of y = αP̄ᵀy + β·1, and one Jacobi step over a set of rows of the transpose, loops in closed form
// (gpu.operations: compute_residual, jacobi_step):
//
//     r  = β + α·Σ contributions of the in-neighbours of v - (1 - αℓ/d)·y[v]
//     y' = y[v] + r / (1 - αℓ/d),     contribution' = y'/d
//
// Contributions are multiplied by the weight of the edge if WEIGHTED. DIVIDED: y/d is divided for each edge, and contributions
// are not read.
// Launch: compute_residual and jacobi_step as rows.cuh says, the others any grid.
// Traffic of these two: per edge 4 bytes of neighbour id, streamed, and one random read of 8 bytes (a 32-byte
// sector), and 4 bytes of weight, streamed, if WEIGHTED; per row 16 (order, row start, row length) + 5 (loop, degree) + 8 + 8
// bytes (y in; r or y' out).

enum Sum { RESIDUAL_L1, RESIDUAL_SUM, LARGEST_CHANGE = SWEEP_SUMS - 1 };

// y/d, and 0 where d = 0.
__global__ void __launch_bounds__(BLOCK, 4) compute_contributions(
    int64 vertices, const Degree* __restrict__ degree, const double* __restrict__ values, double* __restrict__ contributions) {
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        const Degree d = degree[v];
        contributions[v] = d > 0 ? values[v] / d : 0.0;
    }
}

struct Vertex {
    double value;
    Degree d;
    Loop loop;
};

// Calls use(v, y[v], 1 - αℓ/d, r) for every row, by one thread each.
template <bool DIVIDED, class Use>
__device__ __forceinline__ void each_residual(
    const RowSums& rows, const RowPlan& plan, const Loop* loop, const Degree* degree, const double* values,
    const double* contributions, double rhs_scale, double damping, const Use& use) {
    const auto load = [&](int u) {
        if constexpr (DIVIDED) return values[u] / degree[u];
        else return contributions[u];
    };
    const auto read = [&](int v, bool wanted) {
        return wanted ? Vertex{values[v], degree[v], loop[v]} : Vertex{};
    };
    const auto finish = [&](int v, const Vertex& own, double incoming_mass) {
        const double diagonal = diagonal_of(own.d, own.loop, damping);
        use(v, own.value, diagonal, rhs_scale + damping * incoming_mass - diagonal * own.value);
    };
    sum_rows(rows, plan, load, read, finish);
}

__global__ void __launch_bounds__(BLOCK, WEIGHTED ? 2 : 4) compute_residual(
    const int* __restrict__ order, const int64* __restrict__ row_starts, const int* __restrict__ row_lengths,
    const int* __restrict__ column_indices, const float* __restrict__ edge_weights, double* parts, int* arrived, RowPlan plan,
    const Loop* __restrict__ loop, const Degree* __restrict__ degree, const double* __restrict__ values,
    const double* __restrict__ contributions, double rhs_scale, double damping, double* __restrict__ r,
    double* __restrict__ partial_sums) {
    double sums[SWEEP_SUMS] = {};
    const RowSums rows = {order, row_starts, row_lengths, column_indices, edge_weights, parts, arrived};
    const auto use = [&](int v, double, double, double residual) {
        r[v] = residual;
        sums[RESIDUAL_L1] += fabs(residual);
        sums[RESIDUAL_SUM] += residual;
    };
    each_residual<false>(rows, plan, loop, degree, values, contributions, rhs_scale, damping, use);
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SWEEP_SUMS);
}

// Writes y' and updates the flags of the frontier; y is unchanged, since other rows still read it.
template <bool DIVIDED>
__global__ void __launch_bounds__(BLOCK, WEIGHTED ? 2 : DIVIDED ? 3 : 4) jacobi_step(
    const int* __restrict__ order, const int64* __restrict__ row_starts, const int* __restrict__ row_lengths,
    const int* __restrict__ column_indices, const float* __restrict__ edge_weights, double* parts, int* arrived, RowPlan plan,
    const Loop* __restrict__ loop, const Degree* __restrict__ degree, const double* __restrict__ values,
    const double* __restrict__ contributions, double rhs_scale, double damping, double* __restrict__ new_values,
    int* __restrict__ affected, uint8* __restrict__ expanding, double prune_tolerance, double frontier_tolerance,
    double* __restrict__ partial_sums) {
    double sums[SWEEP_SUMS] = {};
    const RowSums rows = {order, row_starts, row_lengths, column_indices, edge_weights, parts, arrived};
    const auto use = [&](int v, double value, double diagonal, double residual) {
        const double new_value = value + residual / diagonal;
        const double change = fabs(new_value - value);
        const double relative = change / fmax(new_value, value);
        new_values[v] = new_value;
        sums[LARGEST_CHANGE] = fmax(sums[LARGEST_CHANGE], change);
        if (relative <= prune_tolerance) affected[v] = 0;
        if (relative > frontier_tolerance) expanding[v] = 1;
    };
    each_residual<DIVIDED>(rows, plan, loop, degree, values, contributions, rhs_scale, damping, use);
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SWEEP_SUMS);
}

// After jacobi_step: y = y' for the rows order[0 … count). If `listing` it also lists the expanding rows, whose flags it
// clears, and the affected ones. contributions may be null. found: uint64[2], zero before.
__global__ void __launch_bounds__(BLOCK, 4) finish_step(
    const int* __restrict__ order, int64 count, const Degree* __restrict__ degree, const double* __restrict__ new_values,
    double* __restrict__ values, double* __restrict__ contributions, const int* __restrict__ affected,
    uint8* __restrict__ expanding, int listing, int* __restrict__ expanding_rows, int* __restrict__ remaining_rows,
    uint64* found) {
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < count; at += (int64)gridDim.x * BLOCK) {
        const int v = order[at];
        const double value = new_values[v];
        values[v] = value;
        if (contributions != nullptr) {
            const Degree d = degree[v];
            contributions[v] = d > 0 ? value / d : 0.0;
        }
        if (!listing) continue;
        if (expanding[v]) {
            expanding[v] = 0;
            expanding_rows[append(found)] = v;
        }
        if (affected[v]) remaining_rows[append(found + 1)] = v;
    }
}
