// The largest of many values, without sorting them (backends/base.py, top_k and top_columns): count them by size, choose the
// size from which enough are as large, and list those.
//
// A positive double's bits are ordered as it is, so its upper bits tell its size: BINS bins below the size `highest`, the last
// for all that is smaller, zero and negative. STEPS bins double a value.
// Launch: BLOCK threads a block, grid-stride loops. Traffic: 8 bytes a value, twice.

using uint32 = unsigned int;

template <int SHIFT>
__device__ __forceinline__ int64 size_of(double value) {
    return value > 0.0 ? __double_as_longlong(value) >> SHIFT : 0;
}

template <int SHIFT, int BINS>
__device__ __forceinline__ int bin_of(double value, int64 highest) {
    const int64 below = highest - size_of<SHIFT>(value);
    return below < 0 ? 0 : below < BINS ? (int)below : BINS - 1;
}

constexpr int SIZE_SHIFT = 46;    // 64 bins double a value
constexpr int SIZE_BINS = 4096;

// counts: int64[SIZE_BINS], zeroed before.
__global__ void __launch_bounds__(BLOCK) count_sizes(
    const double* __restrict__ values, int64 count, int64 highest, uint64* counts) {
    __shared__ uint32 seen[SIZE_BINS];
    for (int bin = threadIdx.x; bin < SIZE_BINS; bin += BLOCK) seen[bin] = 0;
    __syncthreads();
    uint32 smallest = 0;  // most values, as a rule: they are counted apart
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < count; at += (int64)gridDim.x * BLOCK) {
        const int bin = bin_of<SIZE_SHIFT, SIZE_BINS>(values[at], highest);
        if (bin == SIZE_BINS - 1) ++smallest;
        else atomicAdd(&seen[bin], 1u);
    }
    if (smallest > 0) atomicAdd(&seen[SIZE_BINS - 1], smallest);
    __syncthreads();
    for (int bin = threadIdx.x; bin < SIZE_BINS; bin += BLOCK)
        if (seen[bin] > 0) atomicAdd(counts + bin, (uint64)seen[bin]);
}

// Lists every value of at least the size `least`. found: uint64, zeroed before.
__global__ void __launch_bounds__(BLOCK) list_sizes(
    const double* __restrict__ values, int64 count, int64 least, int64 capacity, int* __restrict__ listed, uint64* found) {
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < count; at += (int64)gridDim.x * BLOCK) {
        if (size_of<SIZE_SHIFT>(values[at]) < least) continue;
        const int64 place = (int64)atomicAdd(found, 1ull);
        if (place < capacity) listed[place] = (int)at;
    }
}

constexpr int WIDTH = 32;
constexpr int COLUMN_SHIFT = 50;  // 4 bins double a value
constexpr int COLUMN_BINS = 256;

// counts: int64[COLUMN_BINS, WIDTH] of a matrix of WIDTH columns, zeroed before. A lane counts one column.
__global__ void __launch_bounds__(BLOCK) count_column_sizes(
    const double* __restrict__ values, int64 rows, int64 highest, uint64* counts) {
    __shared__ uint32 seen[COLUMN_BINS * WIDTH];
    for (int place = threadIdx.x; place < COLUMN_BINS * WIDTH; place += BLOCK) seen[place] = 0;
    __syncthreads();
    const int lane = threadIdx.x % WARP;
    const int64 warps = (int64)gridDim.x * WARPS;
    for (int64 row = ((int64)blockIdx.x * BLOCK + threadIdx.x) / WARP; row < rows; row += warps) {
        const int bin = bin_of<COLUMN_SHIFT, COLUMN_BINS>(values[row * WIDTH + lane], highest);
        if (bin < COLUMN_BINS - 1) atomicAdd(&seen[bin * WIDTH + lane], 1u);
    }
    __syncthreads();
    for (int place = threadIdx.x; place < COLUMN_BINS * WIDTH; place += BLOCK)
        if (seen[place] > 0) atomicAdd(counts + place, (uint64)seen[place]);
}

// Lists the rows of every value of at least its column's least size. listed: int32[WIDTH, capacity]; found: uint64[WIDTH],
// zeroed before.
__global__ void __launch_bounds__(BLOCK) list_column_sizes(
    const double* __restrict__ values, int64 rows, const int64* __restrict__ least, int64 capacity,
    int* __restrict__ listed, double* __restrict__ listed_values, uint64* found) {
    const int lane = threadIdx.x % WARP;
    const int64 mine = least[lane], warps = (int64)gridDim.x * WARPS;
    for (int64 row = ((int64)blockIdx.x * BLOCK + threadIdx.x) / WARP; row < rows; row += warps) {
        const double value = values[row * WIDTH + lane];
        if (size_of<COLUMN_SHIFT>(value) < mine) continue;
        const int64 place = (int64)atomicAdd(found + lane, 1ull);
        if (place >= capacity) continue;
        listed[lane * capacity + place] = (int)row;
        listed_values[lane * capacity + place] = value;
    }
}

// The largest upper bound of y* (gpu/backends/base.py, reach) among the y up to `at_most`: y + (r⁺(1-α) + α·rising) / (1 - αℓ/d -
// α²(1 - ℓ/d)), the divisor 1 where d = 0; minus infinity where there are none. highest: double[blocks].
// Traffic: 21 bytes a value, once.
__global__ void __launch_bounds__(BLOCK, 4) highest_bounds(
    const double* __restrict__ values, const double* __restrict__ residuals, const int* __restrict__ degree,
    const uint8* __restrict__ loop, int64 count, double damping, double rising, double at_most, double* __restrict__ highest) {
    double most = __longlong_as_double(0xfff0000000000000ll);  // minus infinity
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < count; v += (int64)gridDim.x * BLOCK) {
        const double value = values[v];
        if (!(value <= at_most)) continue;
        const int d = degree[v];
        double returning = damping * damping;
        if (d == 0) returning = 0.0;
        else if (loop[v]) returning += (damping - damping * damping) / d;
        most = fmax(most, value + (fmax(residuals[v], 0.0) * (1.0 - damping) + damping * rising) / (1.0 - returning));
    }
    most = block_max(most);
    if (threadIdx.x == 0) highest[blockIdx.x] = most;
}
