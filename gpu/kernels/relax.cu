// One push of every residual at once, as a pull (backends/base.py, relax):
//
//     δ = r / (1 - αℓ/d),  y += δ,  r = what y could not take       take_all
//     r += α·Σ δ/d over the in-neighbours, less the shift           gather_rows
//
// δ/d is rounded to float32, which halves what is read at random, and δ is made d times that, which float64 holds exactly; the
// rest of δ stays in r.
// A y in float32 takes what it has digits for, and δ is what it took: then δ/d is rounded after it and sent, off by 2⁻²⁴ of
// δ, which is small against y. Value: what y and r are stored as.
// The sum of the new r is known before it is gathered: each δ/d arrives once for every entry of an out-list. So the shift
// that makes it zero needs no pass of its own.
// Launch: BLOCK threads a block; gather_rows LANES threads a row, a grid-stride loop over order[first … last).
// Traffic, Value double: take_all 25 + 20 bytes a vertex; gather_rows 8 bytes an edge, 16 + 16 a row.

struct Pair {
    double first, second;
};

__device__ __forceinline__ void write_pair(Pair pair, double* out) {
    pair.first = group_sum<BLOCK>(pair.first);
    pair.second = group_sum<BLOCK>(pair.second);
    if (threadIdx.x == 0) {
        out[0] = pair.first;
        out[1] = pair.second;
    }
}

// partial_sums: of the residual that will be, and of what y took.
template <typename Value>
__global__ void __launch_bounds__(BLOCK) take_all(
    int64 vertices, const int* __restrict__ length, const uint8* __restrict__ loop, const int* __restrict__ degree,
    double damping, Value* __restrict__ values, Value* __restrict__ r, float* __restrict__ contributions,
    double* __restrict__ partial_sums) {
    Pair sums = {0.0, 0.0};
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        const int d = degree[v];
        const double leaving = d > 0 ? 1.0 - damping * loop[v] / d : 1.0;
        const double old_value = values[v], residual = r[v];
        float contribution = d > 0 ? (float)(residual / leaving / d) : 0.0f;
        const double wanted = d > 0 ? (double)contribution * d : residual;
        const Value new_value = (Value)(old_value + wanted);
        const double taken = new_value - old_value;
        const Value left = (Value)(residual - leaving * taken);
        if constexpr (sizeof(Value) == sizeof(float)) contribution = d > 0 ? (float)(taken / d) : 0.0f;
        values[v] = new_value;
        r[v] = left;
        contributions[v] = contribution;
        sums.first += damping * (double)contribution * length[v] + left;
        sums.second += taken;
    }
    write_pair(sums, partial_sums + (int64)blockIdx.x * 2);
}

// totals[0]: the sum of the residual before any shift. partial_sums: |r| and r.
template <typename Value, int LANES>
__global__ void __launch_bounds__(BLOCK) gather_rows(
    const int* __restrict__ order, int64 first, int64 last,
    const int64* __restrict__ start, const int* __restrict__ length, const int* __restrict__ pool,
    const float* __restrict__ contributions, double damping, const double* __restrict__ totals, int64 vertices,
    int balance, Value* __restrict__ r, double* __restrict__ partial_sums) {
    constexpr int ROWS = BLOCK / LANES;
    const int lane = threadIdx.x % LANES;
    const double shift = balance ? totals[0] / vertices : 0.0;
    Pair sums = {0.0, 0.0};
    // the bound is the block's, so that all its threads meet in group_sum
    for (int64 block_row = first + (int64)blockIdx.x * ROWS; block_row < last; block_row += (int64)gridDim.x * ROWS) {
        const int64 row = block_row + threadIdx.x / LANES;
        const bool inside = row < last;
        const int v = inside ? order[row] : 0;
        double arriving = 0.0;
        if (inside) {
            const int* neighbours = pool + start[v];
            const int count = length[v];
#pragma unroll 4
            for (int slot = lane; slot < count; slot += LANES) arriving += contributions[neighbours[slot]];
        }
        arriving = group_sum<LANES>(arriving);
        if (!inside || lane != 0) continue;
        const Value stored = (Value)(damping * arriving + r[v] - shift);
        const double residual = stored;
        r[v] = stored;
        sums.first += fabs(residual);
        sums.second += residual;
    }
    write_pair(sums, partial_sums + (int64)blockIdx.x * 2);
}

// Adds the sums of all blocks. Launch: one block.
__global__ void __launch_bounds__(BLOCK) finish_pairs(
    const double* __restrict__ partial_sums, int count, double* __restrict__ out) {
    Pair sums = {0.0, 0.0};
    for (int block = threadIdx.x; block < count; block += BLOCK) {
        sums.first += partial_sums[(int64)block * 2];
        sums.second += partial_sums[(int64)block * 2 + 1];
    }
    write_pair(sums, out);
}
