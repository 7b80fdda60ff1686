// One push of every residual of WIDTH walks at once, as a pull (backends/base.py, relax_columns). For each row v and column:
//
//     r  = left + α·Σ c[u] over the in-neighbours
//     c' = r / ((1 - αℓ/d)·d), rounded to bfloat16;  y += c'·d;  left' = r - (1 - αℓ/d)·c'·d
//
// so what is rounded off a share stays in the residual, and nothing is lost. A matrix has WIDTH columns a row, contiguous.
// Shares are the upper half of a float32 (bfloat16): its range, 8 digits.
// Launch: BLOCK threads a block; a warp a row, or a chunk of CHUNK edges of a long one. Half a warp reads one edge's WIDTH
// shares, two columns a thread, so that a warp reads two edges at once.
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

// partial_sums: double[blocks, COLUMN_SUMS, WIDTH] of α·|c'|·length + |left'|, the same signed, and what y took.
__global__ void __launch_bounds__(BLOCK, 4) relax_rows(
    const int* __restrict__ order, int64 rows, int64 long_rows, const int64* __restrict__ ends,
    const int64* __restrict__ start, const int* __restrict__ length, const int* __restrict__ pool,
    const int* __restrict__ out_length, const uint8* __restrict__ loop, const int* __restrict__ degree,
    const uint16* __restrict__ shares, const double* __restrict__ partials, double damping,
    double* __restrict__ values, float* __restrict__ left, uint16* __restrict__ new_shares,
    double* __restrict__ partial_sums) {
    __shared__ double sums[WARPS][COLUMN_SUMS][WIDTH];
    const int lane = threadIdx.x % WARP, column = column_of(lane);
    const int64 warp = ((int64)blockIdx.x * BLOCK + threadIdx.x) / WARP, warps = (int64)gridDim.x * WARPS;
    double size = 0.0, sum = 0.0, total = 0.0;
    for (int64 row = warp; row < rows; row += warps) {
        const int v = order[row];
        const int64 at = (int64)v * WIDTH + column;
        double arriving = 0.0;
        if (row < long_rows) {
            for (int64 chunk = row > 0 ? ends[row - 1] : 0; chunk < ends[row]; ++chunk)
                arriving += partials[chunk * WIDTH + column];
        } else if (length[v] > 0) {
            arriving = gathered(pool + start[v], length[v], shares);
        }
        const float kept = left[at];
        const double residual = damping * arriving + kept;
        uint16 share = 0;
        if (residual != 0.0) {
            const int d = degree[v];
            double taken = residual, rest = 0.0, sent = 0.0;
            if (d > 0) {
                const double leaving = 1.0 - damping * loop[v] / d;
                share = rounded((float)(residual / leaving / d));
                const double exact = widened((uint32)share << 16);
                taken = exact * d;
                rest = residual - leaving * taken;
                sent = damping * exact * out_length[v];
            }
            values[at] += taken;
            left[at] = (float)rest;
            size += fabs(sent) + fabs(rest);
            sum += sent + rest;
            total += taken;
        }
        new_shares[at] = share;
    }
    sums[threadIdx.x / WARP][0][column] = size;
    sums[threadIdx.x / WARP][1][column] = sum;
    sums[threadIdx.x / WARP][2][column] = total;
    __syncthreads();
    for (int place = threadIdx.x; place < COLUMN_SUMS * WIDTH; place += BLOCK) {
        double all = 0.0;
        for (int other = 0; other < WARPS; ++other) all += sums[other][place / WIDTH][place % WIDTH];
        partial_sums[(int64)blockIdx.x * COLUMN_SUMS * WIDTH + place] = all;
    }
}
