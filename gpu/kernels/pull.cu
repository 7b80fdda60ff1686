// One Jacobi step of y = αP̄ᵀy + β·1 over a set of rows of the transpose, loops in closed form (backends/base.py, pull):
//
//     r  = β + α·Σ contributions[in-neighbours of v] - (1 - αℓ/d)·y[v]
//     y' = y[v] + r / (1 - αℓ/d),     contribution' = y'/d
//
// Launch: BLOCK threads a block, LANES threads a row (1, 4, 32 or the whole block, by the length of the row), a
// grid-stride loop over order[first … last).
// MODE: SWEEP, over all rows; FRONTIER, which also sets and clears flags; DIVIDED, a FRONTIER that divides y/d for each edge
// and needs no contributions.
// Value: what y and r are stored as. A change by a float's last digits counts as none: rounding alone can make changes of
// that size go on for ever.
// Traffic: per edge 4 bytes of neighbour id, streamed, and one random read of 8 bytes (a 32-byte sector); per row
// 4 (order) + 12 (start, length) + 5 (loop, degree) + 8 + 16 bytes (y in; y', contribution' out).

struct Sums {
    double residual_l1, residual_sum, largest_change, total, dangling;
};
constexpr int SUMS = 5;

__device__ __forceinline__ void write_sums(Sums sums, double* out) {
    sums.residual_l1 = group_sum<BLOCK>(sums.residual_l1);
    sums.residual_sum = group_sum<BLOCK>(sums.residual_sum);
    sums.largest_change = block_max(sums.largest_change);
    sums.total = group_sum<BLOCK>(sums.total);
    sums.dangling = group_sum<BLOCK>(sums.dangling);
    if (threadIdx.x == 0) {
        out[0] = sums.residual_l1;
        out[1] = sums.residual_sum;
        out[2] = sums.largest_change;
        out[3] = sums.total;
        out[4] = sums.dangling;
    }
}

constexpr double LAST_DIGITS = 1.0 / (1 << 21);  // what four steps of a float are at most, relative to it

enum Mode { SWEEP, FRONTIER, DIVIDED };

template <typename Value, int LANES, int MODE>
__global__ void __launch_bounds__(BLOCK, MODE == DIVIDED ? 4 : 5) pull_rows(
    const int* __restrict__ order, int64 first, int64 last,
    const int64* __restrict__ start, const int* __restrict__ length, const int* __restrict__ pool,
    const uint8* __restrict__ loop, const int* __restrict__ degree,
    const Value* __restrict__ values, const double* __restrict__ contributions,
    double base, double damping, Value* __restrict__ new_values, double* __restrict__ new_contributions,
    Value* __restrict__ residuals, int residual_wanted, int* __restrict__ affected, uint8* __restrict__ spreading,
    double prune_tolerance, double frontier_tolerance, double* __restrict__ partial_sums) {
    constexpr int ROWS = BLOCK / LANES;
    const int lane = threadIdx.x % LANES;
    Sums sums = {0.0, 0.0, 0.0, 0.0, 0.0};
    // the bound is the block's, so that all its threads meet in group_sum
    for (int64 block_row = first + (int64)blockIdx.x * ROWS; block_row < last;
         block_row += (int64)gridDim.x * ROWS) {
        const int64 row = block_row + threadIdx.x / LANES;
        const bool inside = row < last;
        const int v = inside ? order[row] : 0;
        double arriving = 0.0;
        if (inside) {
            const int* neighbours = pool + start[v];
            const int count = length[v];
#pragma unroll 4
            for (int slot = lane; slot < count; slot += LANES) {
                const int u = neighbours[slot];
                if constexpr (MODE == DIVIDED) arriving += (double)values[u] / degree[u];
                else arriving += contributions[u];
            }
        }
        arriving = group_sum<LANES>(arriving);
        if (!inside || lane != 0) continue;
        const int d = degree[v];
        const double leaving = d > 0 ? 1.0 - damping * loop[v] / d : 1.0;
        const double old_value = values[v];
        const double residual = base + damping * arriving - leaving * old_value;
        const Value stored = (Value)(old_value + residual / leaving);
        const double new_value = stored;
        double change = fabs(new_value - old_value);
        if constexpr (sizeof(Value) == sizeof(float)) change = change > LAST_DIGITS * new_value ? change : 0.0;
        new_values[v] = stored;
        if constexpr (MODE != DIVIDED) new_contributions[v] = d > 0 ? new_value / d : 0.0;
        if (residual_wanted) residuals[v] = (Value)residual;
        sums.residual_l1 += fabs(residual);
        sums.residual_sum += residual;
        sums.largest_change = fmax(sums.largest_change, change);
        sums.total += new_value;
        if (d == 0) sums.dangling += new_value;
        if constexpr (MODE != SWEEP) {
            const double relative = change / fmax(new_value, old_value);
            if (relative <= prune_tolerance) affected[v] = 0;
            if (relative > frontier_tolerance) spreading[v] = 1;
        }
    }
    write_sums(sums, partial_sums + (int64)blockIdx.x * SUMS);
}

// Adds the sums of all blocks of all launches of one sweep. Launch: one block.
__global__ void __launch_bounds__(BLOCK) finish_sums(
    const double* __restrict__ partial_sums, int count, double* __restrict__ out) {
    Sums sums = {0.0, 0.0, 0.0, 0.0, 0.0};
    for (int block = threadIdx.x; block < count; block += BLOCK) {
        const double* partial = partial_sums + (int64)block * SUMS;
        sums.residual_l1 += partial[0];
        sums.residual_sum += partial[1];
        sums.largest_change = fmax(sums.largest_change, partial[2]);
        sums.total += partial[3];
        sums.dangling += partial[4];
    }
    write_sums(sums, out);
}
