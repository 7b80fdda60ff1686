// The largest of many values, without sorting them, and bounds on the others (gpu.operations.select).
//
// A histogram selection: count the values by magnitude, find the magnitude that at least k values reach, and list those values.
// The bits of a positive double are ordered as it is, so its upper bits are its magnitude. A histogram has its bins downward
// from the magnitude `highest`; the last one has all that is smaller, zero and negative.
//
// Launch: BLOCK threads a block, grid-stride loops. Traffic: 8 bytes a value, twice.

using uint32 = unsigned int;

static_assert(COLUMNS == WARP, "each lane takes a column");

template <int SHIFT>
__device__ __forceinline__ int64 magnitude_of(double value) {
    return value > 0.0 ? __double_as_longlong(value) >> SHIFT : 0;
}

template <int SHIFT, int COUNT>
__device__ __forceinline__ int histogram_bin(double value, int64 highest) {
    const int64 below = highest - magnitude_of<SHIFT>(value);
    return below < 0 ? 0 : below < COUNT ? (int)below : COUNT - 1;
}

// counts: int64[TOP_BINS], zero before.
__global__ void __launch_bounds__(BLOCK) top_k_histogram(
    const double* __restrict__ values, int64 count, int64 highest, uint64* counts) {
    __shared__ uint32 seen[TOP_BINS];
    for (int bin = threadIdx.x; bin < TOP_BINS; bin += BLOCK) seen[bin] = 0;
    __syncthreads();
    uint32 smallest = 0;  // usually most values: counted without atomics
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < count; at += (int64)gridDim.x * BLOCK) {
        const int bin = histogram_bin<TOP_SHIFT, TOP_BINS>(values[at], highest);
        if (bin == TOP_BINS - 1) ++smallest;
        else atomicAdd(&seen[bin], 1u);
    }
    if (smallest > 0) atomicAdd(&seen[TOP_BINS - 1], smallest);
    __syncthreads();
    for (int bin = threadIdx.x; bin < TOP_BINS; bin += BLOCK)
        if (seen[bin] > 0) atomicAdd(counts + bin, (uint64)seen[bin]);
}

// Lists every value whose magnitude is at least `least`. found: uint64, zero before.
__global__ void __launch_bounds__(BLOCK) top_k_list(
    const double* __restrict__ values, int64 count, int64 least, int64 capacity, int* __restrict__ listed, uint64* found) {
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < count; at += (int64)gridDim.x * BLOCK) {
        if (magnitude_of<TOP_SHIFT>(values[at]) < least) continue;
        const int64 place = (int64)atomicAdd(found, 1ull);
        if (place < capacity) listed[place] = (int)at;
    }
}

// The same for a matrix of COLUMNS columns: each lane counts one column. counts: int64[COLUMN_TOP_BINS, COLUMNS], zero before.
__global__ void __launch_bounds__(BLOCK) top_k_columns_histogram(
    const double* __restrict__ values, int64 rows, int64 highest, uint64* counts) {
    __shared__ uint32 seen[COLUMN_TOP_BINS * COLUMNS];
    for (int place = threadIdx.x; place < COLUMN_TOP_BINS * COLUMNS; place += BLOCK) seen[place] = 0;
    __syncthreads();
    const int lane = threadIdx.x % WARP;
    const int64 warps = (int64)gridDim.x * WARPS;
    for (int64 row = ((int64)blockIdx.x * BLOCK + threadIdx.x) / WARP; row < rows; row += warps) {
        const int bin = histogram_bin<COLUMN_TOP_SHIFT, COLUMN_TOP_BINS>(values[row * COLUMNS + lane], highest);
        if (bin < COLUMN_TOP_BINS - 1) atomicAdd(&seen[bin * COLUMNS + lane], 1u);
    }
    __syncthreads();
    for (int place = threadIdx.x; place < COLUMN_TOP_BINS * COLUMNS; place += BLOCK)
        if (seen[place] > 0) atomicAdd(counts + place, (uint64)seen[place]);
}

// Lists the rows of every value whose magnitude is at least `least` of its column. listed: int32[COLUMNS, capacity]; found:
// uint64[COLUMNS], zero before.
__global__ void __launch_bounds__(BLOCK) top_k_columns_list(
    const double* __restrict__ values, int64 rows, const int64* __restrict__ least, int64 capacity,
    int* __restrict__ listed, double* __restrict__ listed_values, uint64* found) {
    const int lane = threadIdx.x % WARP;
    const int64 own_least = least[lane], warps = (int64)gridDim.x * WARPS;
    for (int64 row = ((int64)blockIdx.x * BLOCK + threadIdx.x) / WARP; row < rows; row += warps) {
        const double value = values[row * COLUMNS + lane];
        if (magnitude_of<COLUMN_TOP_SHIFT>(value) < own_least) continue;
        const int64 place = (int64)atomicAdd(found + lane, 1ull);
        if (place >= capacity) continue;
        listed[lane * capacity + place] = (int)row;
        listed_values[lane * capacity + place] = value;
    }
}

// Lists every rank that changed by more than a part of what it was: |values/mass - earlier| > threshold·earlier. What is minus
// infinity is no vertex.
// found: uint64, zero before. Traffic: 16 bytes a value (12 of float32), once.
template <class Value>
__global__ void __launch_bounds__(BLOCK) list_changed(
    const Value* __restrict__ values, const double* __restrict__ earlier, int64 count, double mass, double threshold,
    int64 capacity, int* __restrict__ listed, uint64* found) {
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < count; at += (int64)gridDim.x * BLOCK) {
        const double before = earlier[at];
        const double change = fabs((double)values[at] / mass - before);
        if (!(change > threshold * before) || isinf(change)) continue;
        const int64 place = append(found);
        if (place < capacity) listed[place] = (int)at;
    }
}

// The largest upper bound (gpu.operations.select.residual_bound) of the y up to `at_most`:
//
//     y + (r⁺(1-α) + α·Σr⁺) / (1 - αℓ/d - α²(1 - ℓ/d)), the divisor 1 where d = 0
//
// and minus infinity if there are none. highest: double[blocks].
// Traffic: 21 bytes a value, once.
__global__ void __launch_bounds__(BLOCK, 4) highest_bound(
    const double* __restrict__ values, const double* __restrict__ residuals, const Degree* __restrict__ degree,
    const Loop* __restrict__ loop, int64 count, double damping, double positive_residual, double at_most,
    double* __restrict__ highest) {
    double most = __longlong_as_double(0xfff0000000000000ll);  // minus infinity
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < count; v += (int64)gridDim.x * BLOCK) {
        const double value = values[v];
        if (!(value <= at_most)) continue;
        const Degree d = degree[v];
        double returning = damping * damping;
        if (d == 0) returning = 0.0;
        else if (loop[v] != 0) returning += (damping - damping * damping) / d * (WEIGHTED ? loop[v] : 1);
        const double added = fmax(residuals[v], 0.0) * (1.0 - damping) + damping * positive_residual;
        most = fmax(most, value + added / (1.0 - returning));
    }
    most = block_max(most);
    if (threadIdx.x == 0) highest[blockIdx.x] = most;
}
