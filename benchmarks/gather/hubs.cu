// A sweep over rows in two parts (hubs.py).
//
// The HUBS vertices of the highest out-degrees have numbers of 16 bits. Their contributions are copied into shared memory, and
// a row lists its in-neighbours among them by number, the others by their ids of 32 bits. So only the others are read at random
// from the L2 cache.
//
// A row is described by int4: first group of four of its others, their number, first group of eight of its hubs, their number.
// Traffic: per edge from a hub 2 bytes and a read of shared memory, per other edge 4 bytes and a random read of 2 bytes; per row
// 20 (order, description) + 5 (loop, degree) + 16 + 16 (y, r) + 4 (contributions).

constexpr int OTHERS_AT_ONCE = 4, HUBS_AT_ONCE = 8;

struct DividedRows {
    const int* order;
    const int4* rows;
    const int* others;
    const unsigned short* hubs;
    double* parts;
    int* arrived;
};

// Σ of the contributions of the hubs listed: a lane reads eight numbers at once.
template <int LANES>
__device__ __forceinline__ double sum_hubs(const unsigned short* entries, int count, const unsigned short* table) {
    double sum = 0.0;
    for (int slot = HUBS_AT_ONCE * (threadIdx.x % LANES); slot < count; slot += HUBS_AT_ONCE * LANES) {
        const uint4 packed = __ldcs(reinterpret_cast<const uint4*>(entries + slot));
        const unsigned pairs[] = {packed.x, packed.y, packed.z, packed.w};
        float term[HUBS_AT_ONCE];
#pragma unroll
        for (int hub = 0; hub < HUBS_AT_ONCE; ++hub)
            term[hub] = slot + hub < count ? (float)exact(table[pairs[hub / 2] >> (16 * (hub % 2)) & 0xffff]) : 0.0f;
#pragma unroll
        for (int hub = 0; hub < HUBS_AT_ONCE; hub += 4)
            sum += ((double)term[hub] + term[hub + 1]) + ((double)term[hub + 2] + term[hub + 3]);
    }
    return sum;
}

__device__ __forceinline__ SweptVertex read_vertex(
    const Sweep<false>& step, int v, int in_length, bool wanted) {
    if (!wanted) return {};
    const Degree d = step.degree[v];
    const Loop looping = step.loop[v];
    return {step.values[v], step.r[v], d, looping, is_isolated(d, looping, in_length), step.contributions[v]};
}

// One unit of work, as in rows.cuh.
template <int GROUP>
__device__ __forceinline__ void sweep_unit(
    const DividedRows& divided, const RowPlan& plan, int64 unit, const unsigned short* table, const Sweep<false>& step,
    double (&sums)[SWEEP_SUMS]) {
    if constexpr (GROUP + 1 < BINS)
        if (unit >= plan.first_unit[GROUP + 1]) return sweep_unit<GROUP + 1>(divided, plan, unit, table, step, sums);
    constexpr int LANES = GROUP_LANES[GROUP];
    const int64 index = unit - plan.first_unit[GROUP];
    const auto load = [&](int u) { return step.load(u); };
    if constexpr (LANES <= WARP) {
        const int64 at = plan.first_row[GROUP] + index * (WARP / LANES) + threadIdx.x % WARP / LANES;
        const bool inside = at < plan.first_row[GROUP + 1];
        const int v = inside ? divided.order[at] : 0;
        const int4 row = inside ? divided.rows[v] : int4{};
        const bool first = inside && threadIdx.x % LANES == 0;
        const auto own = read_vertex(step, v, row.y + row.w, first);
        const int* others = divided.others + (int64)row.x * OTHERS_AT_ONCE;
        double sum = sum_hubs<LANES>(divided.hubs + (int64)row.z * HUBS_AT_ONCE, row.w, table);
        if constexpr (LANES == WARP) sum += striped_sum(others, nullptr, row.y, load);
        else sum += quads_sum<LANES>(others, nullptr, row.y, load);
        sum = group_sum<LANES>(sum);
        if (first) step.finish(v, own, sum, sums);
    } else {
        constexpr int PARTS = LANES / WARP;
        const int64 at = plan.first_row[GROUP] + index / PARTS;
        const int part = (int)(index % PARTS), v = divided.order[at];
        const int4 row = divided.rows[v];
        const auto share_of = [](int length) { return ((length + PARTS - 1) / PARTS + WARP - 1) / WARP * WARP; };
        const int share = share_of(row.y), hub_share = share_of(row.w);
        const int count = min(share, max(0, row.y - part * share)), hubs = min(hub_share, max(0, row.w - part * hub_share));
        const int* others = divided.others + (int64)row.x * OTHERS_AT_ONCE + (int64)part * share;
        double sum = sum_hubs<WARP>(divided.hubs + (int64)row.z * HUBS_AT_ONCE + (int64)part * hub_share, hubs, table);
        sum = group_sum<WARP>(sum + striped_sum(others, nullptr, count, load));
        int before = 0;
        if (threadIdx.x % WARP == 0) {
            __stcg(divided.parts + unit, sum);
            __threadfence();
            before = atomicAdd(divided.arrived + at, 1);
        }
        if (__shfl_sync(FULL, before, 0) != PARTS - 1) return;
        __threadfence();
        sum = 0.0;
        for (int other = threadIdx.x % WARP; other < PARTS; other += WARP) sum += __ldcg(divided.parts + unit - part + other);
        sum = group_sum<WARP>(sum);
        if (threadIdx.x % WARP == 0) {
            divided.arrived[at] = 0;
            step.finish(v, read_vertex(step, v, row.y + row.w, true), sum, sums);
        }
    }
}

// table[i] = the contribution of hub i.
__global__ void __launch_bounds__(BLOCK) copy_hubs(
    const int* __restrict__ hub_ids, int count, const unsigned short* __restrict__ contributions,
    unsigned short* __restrict__ table) {
    const int hub = blockIdx.x * BLOCK + threadIdx.x;
    if (hub < count) table[hub] = contributions[hub_ids[hub]];
}

// A sweep. Launch: as many blocks as are resident; dynamic shared memory for the table.
__global__ void __launch_bounds__(BLOCK, 1) sweep_divided(
    const int* __restrict__ order, const int4* __restrict__ rows, const int* __restrict__ others,
    const unsigned short* __restrict__ hubs, double* parts, int* arrived, RowPlan plan, const uint4* __restrict__ table,
    const Loop* __restrict__ loop, const Degree* __restrict__ degree, const unsigned short* __restrict__ contributions,
    double damping, double shift, double* __restrict__ values, double* __restrict__ r,
    unsigned short* __restrict__ new_contributions, double* __restrict__ partial_sums) {
    extern __shared__ uint4 hub_table[];
    for (int word = threadIdx.x; word < HUBS / HUBS_AT_ONCE; word += BLOCK) hub_table[word] = table[word];
    __syncthreads();
    double sums[SWEEP_SUMS] = {};
    const Sweep<false> step = {
        nullptr, loop, degree, contributions, damping, shift, nullptr, nullptr, 0.0, 0.0, values, r, new_contributions};
    const DividedRows divided = {order, rows, others, hubs, parts, arrived};
    const unsigned short* const contributions_of_hubs = reinterpret_cast<const unsigned short*>(hub_table);
    // a warp takes units that are far apart, so long and short rows alike
    const int64 warps = (int64)gridDim.x * WARPS;
    for (int64 unit = (int64)blockIdx.x * WARPS + threadIdx.x / WARP; unit < plan.first_unit[BINS]; unit += warps)
        sweep_unit<0>(divided, plan, unit, contributions_of_hubs, step, sums);
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SWEEP_SUMS);
}

// The first of `count` ascending keys that is at least `key`.
__device__ __forceinline__ int64 lower_bound(const int64* keys, int64 count, int64 key) {
    int64 low = 0, high = count;
    while (low < high) {
        const int64 middle = (low + high) / 2;
        if (keys[middle] < key) low = middle + 1;
        else high = middle;
    }
    return low;
}

enum { REMOVED = 0, ADDED = 1 << 16, ROW_SHIFT = 17 };

// Changes the parts of rows that list hubs. changes, ascending: row << ROW_SHIFT | REMOVED or ADDED | number of the hub; those
// removed are in the row, those added are not. A part that outgrows its capacity moves behind *end, counted in groups of eight.
// Launch: a block a change; the first change of a row does the work.
__global__ void __launch_bounds__(BLOCK) change_hubs(
    const int64* __restrict__ changes, int64 count, int4* rows, int* __restrict__ capacities, unsigned short* hubs, int* end,
    int most_groups) {
    __shared__ int64 bounds[2];
    __shared__ int new_start, warp_counts[WARPS];
    const int64 change = blockIdx.x, v = changes[change] >> ROW_SHIFT;
    if (change > 0 && changes[change - 1] >> ROW_SHIFT == v) return;
    int4 row = rows[v];
    if (threadIdx.x < 2)
        bounds[threadIdx.x] = lower_bound(changes, count, (v << ROW_SHIFT) + (int64)ADDED * (threadIdx.x + 1)) - change;
    __syncthreads();
    const int gone = (int)bounds[0], more = (int)bounds[1] - gone, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    unsigned short* entries = hubs + (int64)row.z * HUBS_AT_ONCE;
    int kept = gone ? 0 : row.w;
    for (int begin = 0; gone && begin < row.w; begin += BLOCK) {
        const int at = begin + threadIdx.x;
        const unsigned short hub = at < row.w ? entries[at] : 0;
        const int64 key = v << ROW_SHIFT | REMOVED | hub, place = lower_bound(changes + change, gone, key);
        const bool stays = at < row.w && (place == gone || changes[change + place] != key);
        const unsigned staying = __ballot_sync(FULL, stays);
        if (lane == 0) warp_counts[warp] = __popc(staying);
        __syncthreads();
        int before = kept + __popc(staying & ((1u << lane) - 1));
#pragma unroll
        for (int other = 0; other < WARPS; ++other) {
            before += other < warp ? warp_counts[other] : 0;
            kept += warp_counts[other];
        }
        if (stays) entries[before] = hub;
        __syncthreads();
    }
    const int length = kept + more;
    if (length > capacities[v]) {
        const int groups = (length + length / 4 + HUBS_AT_ONCE - 1) / HUBS_AT_ONCE;
        if (threadIdx.x == 0) new_start = atomicAdd(end, groups);
        __syncthreads();
        if (new_start + groups > most_groups) return;  // the host sees *end
        unsigned short* const moved = hubs + (int64)new_start * HUBS_AT_ONCE;
        for (int at = threadIdx.x; at < kept; at += BLOCK) moved[at] = entries[at];
        entries = moved;
        row.z = new_start;
        if (threadIdx.x == 0) capacities[v] = groups * HUBS_AT_ONCE;
    }
    for (int at = threadIdx.x; at < more; at += BLOCK) entries[kept + at] = (unsigned short)(changes[change + gone + at] & 0xffff);
    row.w = length;
    if (threadIdx.x == 0) rows[v] = row;
}
