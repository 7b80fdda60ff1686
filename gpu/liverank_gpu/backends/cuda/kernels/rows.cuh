// Sums over many rows of the transpose in one launch, whatever their lengths.
//
//     sum[v] = Σ load(u) over the entries u of row v, then finish(v, sum); if WEIGHTED, Σ w(u,v)·load(u)
//
// Rows are grouped into degree bins, the longest rows first, and BIN_LANES threads work on each row of a bin. A warp takes one
// unit of work at a time: 32 / lanes rows, or one of the lanes / 32 parts of a row. Each warp stores the sum of its part, and
// the last one to arrive adds up the parts in their order. So sums have a fixed shape, and no row delays the others.
// Launch: BLOCK threads a block; each warp takes `units_per_warp` consecutive units.
// Traffic: per entry 4 bytes (8 if WEIGHTED), streamed, and what `load` reads; per row 16 bytes.
#include "common.cuh"

constexpr int GROUP_LANES[] = {LANES_OF_GROUPS};  // BIN_LANES, the longest rows first

struct RowPlan {
    int64 first_row[BINS + 1];   // group i has the rows order[first_row[i]] … order[first_row[i + 1] - 1]
    int64 first_unit[BINS + 1];  // and the units from first_unit[i] on
    int64 units_per_warp;
};

// parts: double[units of rows with several parts], arrived: int[rows with several parts] of zeros, left at 0.
struct RowSums {
    const int* order;
    Lists lists;
    double* parts;
    int* arrived;
};

// Σ load(u) over this lane's entries: neighbouring lanes read neighbouring entries, four loads in flight.
template <class Load>
__device__ __forceinline__ double striped_sum(const int* entries, const float* weights, int count, const Load& load) {
    double sum = 0.0;
    for (int slot = threadIdx.x % WARP; slot < count; slot += 4 * WARP) {
        int u[4];
#pragma unroll
        for (int step = 0; step < 4; ++step)
            u[step] = slot + step * WARP < count ? __ldcs(entries + slot + step * WARP) : -1;
        double term[4];
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            term[step] = u[step] >= 0 ? load(u[step]) : 0.0;
            if constexpr (WEIGHTED)
                if (u[step] >= 0) term[step] *= __ldcs(weights + slot + step * WARP);
        }
        sum += (term[0] + term[1]) + (term[2] + term[3]);
    }
    return sum;
}

// The same for short rows: a lane reads four entries at once. Entries behind the end of the row are read, but not used.
template <int LANES, class Load>
__device__ __forceinline__ double quads_sum(const int* entries, const float* weights, int count, const Load& load) {
    double sum = 0.0;
    for (int slot = 4 * (threadIdx.x % LANES); slot < count; slot += 4 * LANES) {
        const int4 u = __ldcs(reinterpret_cast<const int4*>(entries + slot));
        double first = load(u.x);
        double second = slot + 1 < count ? load(u.y) : 0.0;
        double third = slot + 2 < count ? load(u.z) : 0.0;
        double fourth = slot + 3 < count ? load(u.w) : 0.0;
        if constexpr (WEIGHTED) {
            const float4 w = __ldcs(reinterpret_cast<const float4*>(weights + slot));
            first *= w.x;
            second = slot + 1 < count ? second * w.y : 0.0;
            third = slot + 2 < count ? third * w.z : 0.0;
            fourth = slot + 3 < count ? fourth * w.w : 0.0;
        }
        sum += (first + second) + (third + fourth);
    }
    return sum;
}

struct EveryRow {
    __device__ __forceinline__ bool operator()(int) const { return true; }
};

// One unit of work. One thread for each wanted row calls finish(v, read(v), sum); the loads of `read` are issued before the
// sum. wanted(v) stays the same until then.
template <int GROUP, class Load, class Read, class Finish, class Wanted>
__device__ __forceinline__ void sum_unit(
    const RowSums& rows, const RowPlan& plan, int64 unit, const Load& load, const Read& read, const Finish& finish,
    const Wanted& wanted) {
    if constexpr (GROUP + 1 < BINS)
        if (unit >= plan.first_unit[GROUP + 1])
            return sum_unit<GROUP + 1>(rows, plan, unit, load, read, finish, wanted);
    constexpr int LANES = GROUP_LANES[GROUP];
    const int64 index = unit - plan.first_unit[GROUP];
    if constexpr (LANES <= WARP) {
        const int64 at = plan.first_row[GROUP] + index * (WARP / LANES) + threadIdx.x % WARP / LANES;
        int v = 0;
        bool inside = at < plan.first_row[GROUP + 1];
        if (inside) v = rows.order[at], inside = wanted(v);
        const int count = inside ? rows.lists.lengths[v] : 0;
        const int64 begin = inside ? rows.lists.starts[v] : 0;
        const int* entries = rows.lists.indices + begin;
        const float* weights = WEIGHTED ? rows.lists.weights + begin : nullptr;
        const bool first = inside && threadIdx.x % LANES == 0;
        const auto own = read(v, first);
        double sum;
        if constexpr (LANES == WARP) sum = striped_sum(entries, weights, count, load);
        else sum = quads_sum<LANES>(entries, weights, count, load);
        sum = group_sum<LANES>(sum);
        if (first) finish(v, own, sum);
    } else {
        constexpr int PARTS = LANES / WARP;
        const int64 at = plan.first_row[GROUP] + index / PARTS;
        const int part = (int)(index % PARTS);
        const int v = rows.order[at], length = rows.lists.lengths[v];
        if (!wanted(v)) return;
        const int share = ((length + PARTS - 1) / PARTS + WARP - 1) / WARP * WARP;
        const int64 first = (int64)part * share;
        const int count = first < length ? (int)(length - first < share ? length - first : share) : 0;
        const int64 begin = rows.lists.starts[v] + first;
        const float* weights = WEIGHTED ? rows.lists.weights + begin : nullptr;
        double sum = group_sum<WARP>(striped_sum(rows.lists.indices + begin, weights, count, load));
        int before = 0;
        if (threadIdx.x % WARP == 0) {
            __stcg(rows.parts + unit, sum);
            __threadfence();
            before = atomicAdd(rows.arrived + at, 1);
        }
        if (__shfl_sync(FULL, before, 0) != PARTS - 1) return;
        __threadfence();
        sum = 0.0;
        for (int other = threadIdx.x % WARP; other < PARTS; other += WARP) sum += __ldcg(rows.parts + unit - part + other);
        sum = group_sum<WARP>(sum);
        if (threadIdx.x % WARP == 0) {
            rows.arrived[at] = 0;
            finish(v, read(v, true), sum);
        }
    }
}

// All units of this warp.
template <class Load, class Read, class Finish, class Wanted = EveryRow>
__device__ __forceinline__ void sum_rows(
    const RowSums& rows, const RowPlan& plan, const Load& load, const Read& read, const Finish& finish,
    const Wanted& wanted = {}) {
    const int64 warp = (int64)blockIdx.x * WARPS + threadIdx.x / WARP, end = (warp + 1) * plan.units_per_warp;
    const int64 last = end < plan.first_unit[BINS] ? end : plan.first_unit[BINS];
    for (int64 unit = warp * plan.units_per_warp; unit < last; ++unit) 
        sum_unit<0>(rows, plan, unit, load, read, finish, wanted);
}

// The same for a grid of any size. A warp takes units that are far apart, so long and short rows alike.
template <class Load, class Read, class Finish>
__device__ __forceinline__ void sum_rows_striding(
    const RowSums& rows, const RowPlan& plan, const Load& load, const Read& read, const Finish& finish) {
    const int64 warps = (int64)gridDim.x * WARPS;
    for (int64 unit = (int64)blockIdx.x * WARPS + threadIdx.x / WARP; unit < plan.first_unit[BINS]; unit += warps)
        sum_unit<0>(rows, plan, unit, load, read, finish, EveryRow{});
}

// Writes the sums of the block's threads; the last one is a maximum if LARGEST is set. Every thread takes part.
template <bool LARGEST>
__device__ __forceinline__ void write_sums(const double (&sums)[SWEEP_SUMS], double* out) {
#pragma unroll
    for (int at = 0; at < SWEEP_SUMS; ++at) {
        double value;
        if (LARGEST && at == SWEEP_SUMS - 1) value = block_max(sums[at]);
        else value = group_sum<BLOCK>(sums[at]);
        if (threadIdx.x == 0) out[at] = value;
    }
}

// Adds to the thread's sums what some of the blocks wrote; the threads of a block take all.
template <bool LARGEST>
__device__ __forceinline__ void add_blocks(const double* partial_sums, int count, double (&sums)[SWEEP_SUMS]) {
#pragma unroll 4
    for (int block = threadIdx.x; block < count; block += BLOCK) {
#pragma unroll
        for (int at = 0; at < SWEEP_SUMS; ++at) {
            const double value = partial_sums[(int64)block * SWEEP_SUMS + at];
            sums[at] = LARGEST && at == SWEEP_SUMS - 1 ? fmax(sums[at], value) : sums[at] + value;
        }
    }
}

// Adds up what the blocks wrote. Launch: one block.
template <bool LARGEST>
__global__ void __launch_bounds__(BLOCK) add_partial_sums(
    const double* __restrict__ partial_sums, int count, double* __restrict__ out) {
    double sums[SWEEP_SUMS] = {};
    add_blocks<LARGEST>(partial_sums, count, sums);
    write_sums<LARGEST>(sums, out);
}
