// A sum over each of many rows of the transpose, in one launch whatever their lengths.
//
// Rows come in classes of length, the longest first; in each class so many lanes work on a row (LANES). What one warp does
// at a time is a unit: 32 / lanes rows, or the lanes/32-th part of one row. The parts of a row meet in memory: each warp
// leaves its sum there, and the last to come adds them up, in the order of the parts. So the sums have a fixed shape, and no
// row is longer work than another.
// Launch: BLOCK threads a block; every warp takes `each` units, one after the other.
// Traffic: 4 bytes an entry, streamed, and what is loaded for it; 16 bytes a row.

constexpr int GROUP_LANES[] = {LANES_FIRST};  // of each class, the longest rows first
constexpr int GROUPS = CLASSES;

struct Plan {
    int64 row[GROUPS + 1];   // class i has order[row[i]] … order[row[i + 1] - 1]
    int64 unit[GROUPS + 1];  // and the units from unit[i] on
    int64 each;
};

// parts: double[units of the classes with more than a warp a row]; arrived: int[rows of those classes] of zeros, and left so.
struct RowsOf {
    const int* order;
    const int64* start;
    const int* length;
    const int* pool;
    double* parts;
    int* arrived;
};

// Σ load(u) over the entries that fall to this lane: neighbouring lanes read neighbouring entries, four at a time in flight.
template <class Load>
__device__ __forceinline__ double striped_sum(const int* entries, int count, const Load& load) {
    double sum = 0.0;
    for (int slot = threadIdx.x % WARP; slot < count; slot += 4 * WARP) {
        int u[4];
#pragma unroll
        for (int step = 0; step < 4; ++step)
            u[step] = slot + step * WARP < count ? __ldcs(entries + slot + step * WARP) : -1;
        double term[4];
#pragma unroll
        for (int step = 0; step < 4; ++step) term[step] = u[step] >= 0 ? load(u[step]) : 0.0;
        sum += (term[0] + term[1]) + (term[2] + term[3]);
    }
    return sum;
}

// The same for short rows: a lane reads four entries at once. What lies behind the row's end is read, but not used.
template <int LANES, class Load>
__device__ __forceinline__ double quads_sum(const int* entries, int count, const Load& load) {
    double sum = 0.0;
    for (int slot = 4 * (threadIdx.x % LANES); slot < count; slot += 4 * LANES) {
        const int4 u = __ldcs(reinterpret_cast<const int4*>(entries + slot));
        const double first = load(u.x);
        const double second = slot + 1 < count ? load(u.y) : 0.0;
        const double third = slot + 2 < count ? load(u.z) : 0.0;
        const double fourth = slot + 3 < count ? load(u.w) : 0.0;
        sum += (first + second) + (third + fourth);
    }
    return sum;
}

// The unit of one warp. One thread for each row calls finish(v, what read(v) returned, sum): what finish needs is on its way
// while the row is summed.
template <int GROUP, class Load, class Read, class Finish>
__device__ __forceinline__ void one_unit(
    const RowsOf& rows, const Plan& plan, int64 unit, const Load& load, const Read& read, const Finish& finish) {
    if constexpr (GROUP + 1 < GROUPS)
        if (unit >= plan.unit[GROUP + 1]) return one_unit<GROUP + 1>(rows, plan, unit, load, read, finish);
    constexpr int LANES = GROUP_LANES[GROUP];
    const int64 index = unit - plan.unit[GROUP];
    if constexpr (LANES <= WARP) {
        const int64 at = plan.row[GROUP] + index * (WARP / LANES) + threadIdx.x % WARP / LANES;
        const bool inside = at < plan.row[GROUP + 1];
        const int v = inside ? rows.order[at] : 0;
        const int count = inside ? rows.length[v] : 0;
        const int* entries = rows.pool + (inside ? rows.start[v] : 0);
        const bool first = inside && threadIdx.x % LANES == 0;
        const auto own = read(v, first);
        double sum;
        if constexpr (LANES == WARP) sum = striped_sum(entries, count, load);
        else sum = quads_sum<LANES>(entries, count, load);
        sum = group_sum<LANES>(sum);
        if (first) finish(v, own, sum);
    } else {
        constexpr int PARTS = LANES / WARP;
        const int64 at = plan.row[GROUP] + index / PARTS;
        const int part = (int)(index % PARTS);
        const int v = rows.order[at], length = rows.length[v];
        const int share = ((length + PARTS - 1) / PARTS + WARP - 1) / WARP * WARP;
        const int64 first = (int64)part * share;
        const int count = first < length ? (int)(length - first < share ? length - first : share) : 0;
        double sum = group_sum<WARP>(striped_sum(rows.pool + rows.start[v] + first, count, load));
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
template <class Load, class Read, class Finish>
__device__ __forceinline__ void each_row(
    const RowsOf& rows, const Plan& plan, const Load& load, const Read& read, const Finish& finish) {
    const int64 warp = (int64)blockIdx.x * WARPS + threadIdx.x / WARP;
    const int64 last = (warp + 1) * plan.each < plan.unit[GROUPS] ? (warp + 1) * plan.each : plan.unit[GROUPS];
    for (int64 unit = warp * plan.each; unit < last; ++unit) one_unit<0>(rows, plan, unit, load, read, finish);
}

constexpr double LAST_DIGITS = 1.0 / (1 << 21);  // what four steps of a float are at most, relative to it

// |y' - y|. A float that moved by a few of its steps counts as unmoved: rounding alone can do that for ever.
template <typename Value>
__device__ __forceinline__ double change_of(double old_value, double new_value) {
    const double change = fabs(new_value - old_value);
    return sizeof(Value) == sizeof(float) && change <= LAST_DIGITS * new_value ? 0.0 : change;
}

constexpr int SUMS = 5;  // that every sweep leaves

// Writes the sums of the block's threads; the last one is a maximum where LARGEST is set. Every thread takes part.
template <bool LARGEST>
__device__ __forceinline__ void write_sums(const double (&sums)[SUMS], double* out) {
#pragma unroll
    for (int at = 0; at < SUMS; ++at) {
        double value;
        if (LARGEST && at == SUMS - 1) value = block_max(sums[at]);
        else value = group_sum<BLOCK>(sums[at]);
        if (threadIdx.x == 0) out[at] = value;
    }
}

// Adds up what the blocks wrote. Launch: one block.
template <bool LARGEST>
__global__ void __launch_bounds__(BLOCK) add_up(const double* __restrict__ partial_sums, int count, double* __restrict__ out) {
    double sums[SUMS] = {};
#pragma unroll 4
    for (int block = threadIdx.x; block < count; block += BLOCK) {
#pragma unroll
        for (int at = 0; at < SUMS; ++at) {
            const double value = partial_sums[(int64)block * SUMS + at];
            sums[at] = LARGEST && at == SUMS - 1 ? fmax(sums[at], value) : sums[at] + value;
        }
    }
    write_sums<LARGEST>(sums, out);
}
