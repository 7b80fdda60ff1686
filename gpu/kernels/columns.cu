// One push of every residual of WIDTH walks at once, as a pull (backends/base.py, relax_columns). For each row v and column:
//
//     r  = left + α·Σ c[u] over the in-neighbours
//     c' = r / ((1 - αℓ/d)·d), rounded to bfloat16;  y += c'·d;  left' = r - (1 - αℓ/d)·c'·d
//
// so what is rounded off a share stays in the residual, and nothing is lost. A matrix has WIDTH columns a row, contiguous.
// Shares are the upper half of a float32 (bfloat16): its range, 8 digits.
// Launch: BLOCK threads a block; a warp a row, or a chunk of CHUNK edges of a long one. Half a warp reads one edge's WIDTH
// shares, two columns a thread, so that a warp reads two edges at once. What is known early is read early: with one row after
// the other, a sweep over rows of few edges waits for memory four times a row.
// Traffic: per edge 4 bytes of neighbour id and 64 of shares; per row and column 16 (y) + 8 (left) + 2 (c') bytes.

constexpr int WIDTH = 32;
constexpr int CHUNK = 1024;  // edges of a long row that one warp sums
constexpr int COLUMN_SUMS = 3;

using uint16 = unsigned short;
using uint32 = unsigned int;

// The nearest bfloat16, ties to even.
__device__ __forceinline__ uint16 rounded(float value) {
    const uint32 bits = __float_as_uint(value);
    return (uint16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

__device__ __forceinline__ double widened(uint32 upper_half) { return (double)__uint_as_float(upper_half); }

// The column that a lane writes: that of the first or the second of the two that it sums.
__device__ __forceinline__ int column_of(int lane) { return 2 * (lane % 16) + lane / 16; }

// Σ of the shares of count neighbours, for the lane's column. All threads of the warp take part.
__device__ __forceinline__ double gathered(const int* neighbours, int count, const uint16* shares) {
    const int lane = threadIdx.x % WARP, half = lane / 16;
    const uint32* pairs = reinterpret_cast<const uint32*>(shares) + lane % 16;
    double even = 0.0, odd = 0.0;
    for (int first = 0; first < count; first += WARP) {
        const int mine = first + lane < count ? neighbours[first + lane] : -1;
        const int some = min(WARP, count - first);
#pragma unroll 8
        for (int slot = 0; slot < some; slot += 2) {
            const int u = __shfl_sync(FULL, mine, slot + half);
            if (u >= 0) {
                const uint32 pair = pairs[(int64)u * (WIDTH / 2)];
                even += widened(pair << 16);
                odd += widened(pair & 0xffff0000u);
            }
        }
    }
    even += __shfl_xor_sync(FULL, even, 16);
    odd += __shfl_xor_sync(FULL, odd, 16);
    return half == 0 ? even : odd;
}

// ends[i]: chunks of the long rows order[0 … i]. partials: double[chunks, WIDTH].
__global__ void __launch_bounds__(BLOCK, 4) gather_chunks(
    const int* __restrict__ order, const int64* __restrict__ ends, int64 rows,
    const int64* __restrict__ start, const int* __restrict__ length, const int* __restrict__ pool,
    const uint16* __restrict__ shares, double* __restrict__ partials) {
    const int64 warp = ((int64)blockIdx.x * BLOCK + threadIdx.x) / WARP, warps = (int64)gridDim.x * WARPS;
    const int64 chunks = ends[rows - 1];
    for (int64 chunk = warp; chunk < chunks; chunk += warps) {
        int64 low = 0, high = rows - 1;  // the first row whose chunks end beyond this one
        while (low < high) {
            const int64 middle = (low + high) / 2;
            if (ends[middle] > chunk) high = middle;
            else low = middle + 1;
        }
        const int v = order[low];
        const int first = (int)(chunk - (low > 0 ? ends[low - 1] : 0)) * CHUNK;
        const double sum = gathered(pool + start[v] + first, min(CHUNK, length[v] - first), shares);
        partials[chunk * WIDTH + column_of(threadIdx.x % WARP)] = sum;
    }
}

struct ColumnSums {
    double size, sum, total;
};

// Takes what has arrived at a vertex, for the lane's column at `at` of its matrices.
__device__ __forceinline__ void take_column(
    double arriving, float kept, int64 at, int d, int loop, int out_length, double damping,
    double* values, float* left, uint16* new_shares, ColumnSums& sums) {
    const double residual = damping * arriving + kept;
    uint16 share = 0;
    if (residual != 0.0) {
        double taken = residual, rest = 0.0, sent = 0.0;
        if (d > 0) {
            const double leaving = 1.0 - damping * loop / d;
            share = rounded((float)(residual / (leaving * d)));
            const double exact = widened((uint32)share << 16);
            taken = exact * d;
            rest = residual - leaving * taken;
            sent = damping * exact * out_length;
        }
        values[at] += taken;
        left[at] = (float)rest;
        sums.size += fabs(sent) + fabs(rest);
        sums.sum += sent + rest;
        sums.total += taken;
    }
    new_shares[at] = share;
}

constexpr int SHORT = 4;     // edges of rows whose neighbours are all known before the first is read
constexpr int TOGETHER = 4;  // short rows that a warp has under way at once

// A warp takes ROWS of the rows order[from … rows) at a time, whose places and lengths its threads read together. partial_sums: double[blocks, COLUMN_SUMS, WIDTH]
// of α·|c'|·length + |left'|, the same signed, and what y took.
template <int ROWS>
__global__ void __launch_bounds__(BLOCK, 3) relax_rows(
    const int* __restrict__ order, int64 from, int64 rows, int64 long_rows, const int64* __restrict__ ends,
    const int64* __restrict__ start, const int* __restrict__ length, const int* __restrict__ pool,
    const int* __restrict__ out_length, const uint8* __restrict__ loop, const int* __restrict__ degree,
    const uint16* __restrict__ shares, const double* __restrict__ partials, double damping,
    double* __restrict__ values, float* __restrict__ left, uint16* __restrict__ new_shares,
    double* __restrict__ partial_sums) {
    __shared__ double all_sums[WARPS][COLUMN_SUMS][WIDTH];
    const int lane = threadIdx.x % WARP, column = column_of(lane), half = lane / 16;
    const uint32* pairs = reinterpret_cast<const uint32*>(shares) + lane % 16;
    const int64 warp = ((int64)blockIdx.x * BLOCK + threadIdx.x) / WARP, warps = (int64)gridDim.x * WARPS;
    ColumnSums sums = {0.0, 0.0, 0.0};
    for (int64 first = from + warp * ROWS; first < rows; first += warps * ROWS) {
        const bool inside = lane < ROWS && first + lane < rows;
        const int v = inside ? order[first + lane] : 0;
        const int count = inside ? length[v] : 0, d = inside ? degree[v] : 0, out = inside ? out_length[v] : 0;
        const int looping = inside ? loop[v] : 0;
        const int64 begin = inside ? start[v] : 0;
        const int some = (int)(rows - first < ROWS ? rows - first : ROWS);
        if (ROWS == WARP && __all_sync(FULL, count <= SHORT)) {
            int ids[SHORT];
#pragma unroll
            for (int slot = 0; slot < SHORT; ++slot) ids[slot] = slot < count ? pool[begin + slot] : -1;
            for (int base = 0; base < some; base += TOGETHER) {
                uint32 seen[TOGETHER][SHORT / 2];
                float kept[TOGETHER];
#pragma unroll
                for (int other = 0; other < TOGETHER; ++other) {
                    const int row = base + other;
                    const int there = __shfl_sync(FULL, v, row);
#pragma unroll
                    for (int slot = 0; slot < SHORT; slot += 2) {
                        const int even = __shfl_sync(FULL, ids[slot], row), odd = __shfl_sync(FULL, ids[slot + 1], row);
                        const int u = half == 0 ? even : odd;
                        seen[other][slot / 2] = u >= 0 ? pairs[(int64)u * (WIDTH / 2)] : 0u;
                    }
                    kept[other] = row < some ? left[(int64)there * WIDTH + column] : 0.0f;
                }
#pragma unroll
                for (int other = 0; other < TOGETHER; ++other) {
                    const int row = base + other;
                    double low = 0.0, high = 0.0;
#pragma unroll
                    for (int slot = 0; slot < SHORT / 2; ++slot) {
                        low += widened(seen[other][slot] << 16);
                        high += widened(seen[other][slot] & 0xffff0000u);
                    }
                    low += __shfl_xor_sync(FULL, low, 16);
                    high += __shfl_xor_sync(FULL, high, 16);
                    const int there = __shfl_sync(FULL, v, row), d_there = __shfl_sync(FULL, d, row);
                    const int looping_there = __shfl_sync(FULL, looping, row), out_there = __shfl_sync(FULL, out, row);
                    if (row < some)
                        take_column(
                            half == 0 ? low : high, kept[other], (int64)there * WIDTH + column, d_there, looping_there,
                            out_there, damping, values, left, new_shares, sums);
                }
            }
            continue;
        }
        for (int row = 0; row < some; ++row) {
            const int there = __shfl_sync(FULL, v, row), count_there = __shfl_sync(FULL, count, row);
            const int64 begin_there = __shfl_sync(FULL, begin, row), at = (int64)there * WIDTH + column;
            const float kept = left[at];
            double arriving = 0.0;
            if (first + row < long_rows) {
                for (int64 chunk = first + row > 0 ? ends[first + row - 1] : 0; chunk < ends[first + row]; ++chunk)
                    arriving += partials[chunk * WIDTH + column];
            } else {
                arriving = gathered(pool + begin_there, count_there, shares);
            }
            const int d_there = __shfl_sync(FULL, d, row), looping_there = __shfl_sync(FULL, looping, row);
            const int out_there = __shfl_sync(FULL, out, row);
            take_column(
                arriving, kept, at, d_there, looping_there, out_there, damping, values, left, new_shares, sums);
        }
    }
    all_sums[threadIdx.x / WARP][0][column] = sums.size;
    all_sums[threadIdx.x / WARP][1][column] = sums.sum;
    all_sums[threadIdx.x / WARP][2][column] = sums.total;
    __syncthreads();
    for (int place = threadIdx.x; place < COLUMN_SUMS * WIDTH; place += BLOCK) {
        double all = 0.0;
        for (int other = 0; other < WARPS; ++other) all += all_sums[other][place / WIDTH][place % WIDTH];
        partial_sums[(int64)blockIdx.x * COLUMN_SUMS * WIDTH + place] = all;
    }
}
