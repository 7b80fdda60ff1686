// Shared by every kernel: block size, sums of a fixed shape, row sums by 1 to 256 threads, places in lists.
//
// Sums are reduced by shuffles and shared memory in an order that depends on the launch shape alone, never by
// floating-point atomics: the same input gives the same bits.

using int64 = long long;
using uint8 = unsigned char;
using uint64 = unsigned long long;

constexpr int BLOCK = 256;  // threads of a block, in every launch
constexpr int WARP = 32;
constexpr int WARPS = BLOCK / WARP;
constexpr unsigned FULL = 0xffffffffu;

// The sum of `value` over each group of LANES neighbouring threads, in all of them. LANES is a power of two up to 32,
// or BLOCK. Every thread of the block takes part.
template <int LANES>
__device__ __forceinline__ double group_sum(double value) {
    constexpr int WIDTH = LANES < WARP ? LANES : WARP;
#pragma unroll
    for (int step = WIDTH / 2; step > 0; step /= 2) value += __shfl_xor_sync(FULL, value, step);
    if constexpr (LANES == BLOCK) {
        __shared__ double warps[WARPS];
        if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = value;
        __syncthreads();
        value = 0.0;
#pragma unroll
        for (int warp = 0; warp < WARPS; ++warp) value += warps[warp];
        __syncthreads();
    }
    return value;
}

__device__ __forceinline__ double block_max(double value) {
    __shared__ double warps[WARPS];
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2)
        value = fmax(value, __shfl_xor_sync(FULL, value, step));
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = value;
    __syncthreads();
    value = warps[0];
#pragma unroll
    for (int warp = 1; warp < WARPS; ++warp) value = fmax(value, warps[warp]);
    __syncthreads();
    return value;
}

// The next place of a list, for every thread that comes here; those of a warp that come together add once.
__device__ __forceinline__ int64 append(uint64* count) {
    const unsigned together = __activemask();
    const int lane = threadIdx.x % WARP, first = __ffs((int)together) - 1;
    uint64 base = 0;
    if (lane == first) base = atomicAdd(count, (uint64)__popc(together));
    base = __shfl_sync(together, base, first);
    return (int64)base + __popc(together & ((1u << lane) - 1));
}
