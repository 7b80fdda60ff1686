// One push of every residual of WIDTH walks at once, as a pull (backends/base.py, relax_columns). For each row v and column:
//
//     r  = left + α·Σ c[u] over the in-neighbours
//     c' = r / ((1 - αℓ/d)·d), rounded to bfloat16;  y += c'·d;  left' = r - (1 - αℓ/d)·c'·d
//
// so what is rounded off a share stays in the residual, and nothing is lost. Where it is leaning, a multiple of a vector z whose
// image is known joins every column, y += amount·z, r -= amount·A·z, A·z = base - z's own residual (backends/base.py, Known).
// A matrix has WIDTH columns a row, contiguous.
// Shares are the upper half of a float32 (bfloat16): its range, 8 digits.
// Launch: BLOCK threads a block. A warp takes a row, or a chunk of CHUNK edges of a long one; of rows of few edges, half a
// warp takes a row. 16 threads read one edge's WIDTH shares, two columns each, so a warp reads two edges at once. What is
// known early is asked for early: y with the shares, though a column that nothing has reached yet would not need it (in a
// walk that goes everywhere, such are rare after three sweeps), and the next neighbours before this one's shares are there.
// y and left are touched once a sweep, and marked as the first to leave the caches, which are for the shares.
// Traffic: per edge 4 bytes of neighbour id and 64 of shares; per column 12 (y and left, read) and 2 (c', written), and 12
// more (y and left, written) where r is not 0; of rows of few edges with d = 0 no c' and no left is written, both stay 0.
// Per row 25 of its place, lengths and loop, and 16 where leaning. A row that nothing can reach takes 9 bytes in all.

constexpr int WIDTH = 32;
constexpr int PAIRS = WIDTH / 2;  // of columns, one for each thread of half a warp
constexpr int CHUNK = 1024;       // edges of a long row that one warp sums
constexpr int COLUMN_SUMS = 3;

using uint16 = unsigned short;
using uint32 = unsigned int;

// The nearest bfloat16, ties to even.
__device__ __forceinline__ uint32 rounded(float value) {
    const uint32 bits = __float_as_uint(value);
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

// Shares are added up as RAISED times less than they are: then float32 becomes float64 by a shift of its exponent and digits,
// also where it is 0 or subnormal, and takes no conversion, which a device does for fewer threads at once. Exact: a sum so
// small that float64 has fewer digits for it, below 2^-1022, is one of multiples of 2^-1029, and 2^-1074 is the last digit.
constexpr double RAISED = 0x1p896;

__device__ __forceinline__ double lowered(uint32 upper_half) {
    const uint32 high = (uint32)((int)upper_half >> 3) & 0x8fffe000u;  // the sign stays where it is
    return __longlong_as_double((int64)((unsigned long long)high << 32));
}

struct Pair {
    double even, odd;
};

__device__ __forceinline__ void add_pair(Pair& sum, uint32 shares) {
    sum.even += lowered(shares << 16);
    sum.odd += lowered(shares);
}

// What those who work on a row need of it, found by one thread.
struct alignas(16) Row {
    double leaving;       // 1 - αℓ/d
    double degree;        // d
    double sending;       // α for each out-edge
    double known, image;  // z and A·z
    float part;           // 1 / ((1 - αℓ/d)·d), or 0
    int vertex;
    int64 begin;
    int count;
};

// What every column leans on.
struct Known {
    const double* values;
    const double* residual;
    double base;
};

template <bool LEANING>
__device__ __forceinline__ Row described(
    int vertex, int count, int64 begin, int out_length, int loop, int d, double damping, const Known& known) {
    const double leaving = loop ? 1.0 - damping / d : 1.0;
    // a share may be rounded from anything near it: what it is not stays in the residual
    const float part = d > 0 ? 1.0f / (float)(leaving * d) : 0.0f;
    const double value = LEANING ? known.values[vertex] : 0.0;
    const double image = LEANING ? known.base - known.residual[vertex] : 0.0;
    return {leaving, (double)d, damping * out_length, value, image, part, vertex, begin, count};
}

struct ColumnSums {
    double size, sum, total;
};

// Takes what has arrived at a row in one column: its y and what is left there become new. Returns the share.
template <bool LEANING>
__device__ __forceinline__ uint32 take(
    const Row& row, double arriving, double damping, double amount, double& value, float& left, ColumnSums& sums) {
    const double residual = damping * arriving + left - (LEANING ? amount * row.image : 0.0);
    const uint32 share = rounded((float)residual * row.part);
    const double exact = (double)__uint_as_float(share << 16);
    const double stepped = row.degree > 0.0 ? exact * row.degree : residual;
    const double rest = residual - row.leaving * stepped, sent = row.sending * exact;
    const double taken = LEANING ? stepped + amount * row.known : stepped;
    value += taken;
    left = (float)rest;
    sums.size += fabs(sent) + fabs(rest);
    sums.sum += sent + rest;
    sums.total += taken;
    return share;
}

// The column that a thread of a warp writes: that of the first or the second of the two that it sums.
__device__ __forceinline__ int column_of(int lane) { return 2 * (lane % PAIRS) + lane / PAIRS; }

using Address = unsigned long long;

// Of the thread's two columns of the shares of vertex 0: a number, to which the 64 bytes of rows are added in one instruction.
__device__ __forceinline__ Address first_pair(const uint16* shares) {
    return reinterpret_cast<Address>(shares) + threadIdx.x % PAIRS * sizeof(uint32);
}

__device__ __forceinline__ uint32 share_pair(Address first, int u) {
    return __ldg(reinterpret_cast<const uint32*>(first + (uint32)u * (Address)(WIDTH * sizeof(uint16))));
}

constexpr int EDGE_PAIRS = 8;  // pairs of edges whose shares a warp asks for at once

// Adds the shares of the neighbours that the warp holds from a slot on; SOME: not all of those are there.
template <bool SOME>
__device__ __forceinline__ void add_edges(Pair& sum, int ids, int slot, Address shares) {
    const int half = threadIdx.x % WARP / PAIRS;
    uint32 seen[EDGE_PAIRS];
#pragma unroll
    for (int pair = 0; pair < EDGE_PAIRS; ++pair) {
        const int u = __shfl_sync(FULL, ids, slot + 2 * pair + half);
        seen[pair] = !SOME || u >= 0 ? share_pair(shares, u) : 0u;
    }
#pragma unroll
    for (int pair = 0; pair < EDGE_PAIRS; ++pair) add_pair(sum, seen[pair]);
}

// The neighbour that a thread holds of those from `first`, or -1.
__device__ __forceinline__ int neighbour(const int* neighbours, int first, int count) {
    return first < count ? __ldg(neighbours + first) : -1;
}

// Σ of the shares of count neighbours, for the column of `column_of`; ids: those of the first WARP, one in each thread. All
// threads of the warp take part.
__device__ __forceinline__ double gathered(const int* neighbours, int count, int ids, Address shares) {
    const int lane = threadIdx.x % WARP;
    Pair sum = {0.0, 0.0};
    for (int first = 0; first < count; first += WARP) {
        const int next = neighbour(neighbours, first + WARP + lane, count);
        const int some = min(WARP, count - first);
        int slot = 0;
        for (; slot + 2 * EDGE_PAIRS <= some; slot += 2 * EDGE_PAIRS) add_edges<false>(sum, ids, slot, shares);
        if (slot < some) add_edges<true>(sum, ids, slot, shares);
        ids = next;
    }
    sum.even += __shfl_xor_sync(FULL, sum.even, PAIRS);
    sum.odd += __shfl_xor_sync(FULL, sum.odd, PAIRS);
    return RAISED * (lane < PAIRS ? sum.even : sum.odd);
}

// ends[i]: chunks of the long rows order[0 … i]. partials: double[chunks, WIDTH].
__global__ void __launch_bounds__(BLOCK, 4) gather_chunks(
    const int* __restrict__ order, const int64* __restrict__ ends, int64 rows,
    const int64* __restrict__ start, const int* __restrict__ length, const int* __restrict__ pool,
    const uint16* __restrict__ shares, double* __restrict__ partials) {
    const int64 warp = ((int64)blockIdx.x * BLOCK + threadIdx.x) / WARP, warps = (int64)gridDim.x * WARPS;
    const int lane = threadIdx.x % WARP;
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
        const int* neighbours = pool + start[v] + first;
        const int count = min(CHUNK, length[v] - first);
        const double sum = gathered(neighbours, count, neighbour(neighbours, lane, count), first_pair(shares));
        partials[chunk * WIDTH + column_of(lane)] = sum;
    }
}

// The block's sums, from each warp's for each column. partial_sums: double[blocks, COLUMN_SUMS, WIDTH].
__device__ __forceinline__ void add_up_columns(
    const double (&all_sums)[WARPS][COLUMN_SUMS][WIDTH], double* partial_sums) {
    __syncthreads();
    for (int place = threadIdx.x; place < COLUMN_SUMS * WIDTH; place += BLOCK) {
        double all = 0.0;
        for (int other = 0; other < WARPS; ++other) all += all_sums[other][place / WIDTH][place % WIDTH];
        partial_sums[(int64)blockIdx.x * COLUMN_SUMS * WIDTH + place] = all;
    }
}

constexpr int ROWS = 4;  // that a warp has before it at once, one after the other

// A warp a row, of the rows order[from … rows); those below long_rows are summed already. partial_sums: of
// α·|c'|·out_length + |left'|, the same signed, and what y took. amounts: double[WIDTH], 0 where it is not leaning.
template <bool LEANING>
__global__ void __launch_bounds__(BLOCK, 4) relax_rows(
    const int* __restrict__ order, int64 from, int64 rows, const int64* __restrict__ start,
    const int* __restrict__ length, const int* __restrict__ pool, const int* __restrict__ out_length,
    const uint8* __restrict__ loop, const int* __restrict__ degree, const uint16* __restrict__ shares, double damping,
    double* __restrict__ values, float* __restrict__ left, uint16* __restrict__ new_shares,
    double* __restrict__ partial_sums, const double* __restrict__ known_values,
    const double* __restrict__ known_residual, double known_base, const double* __restrict__ amounts, int64 long_rows,
    const int64* __restrict__ ends, const double* __restrict__ partials) {
    __shared__ double all_sums[WARPS][COLUMN_SUMS][WIDTH];
    __shared__ Row all_rows[WARPS][ROWS];
    const int lane = threadIdx.x % WARP, column = column_of(lane);
    const Known known = {known_values, known_residual, known_base};
    const double amount = LEANING ? amounts[column] : 0.0;
    const int64 warp = ((int64)blockIdx.x * BLOCK + threadIdx.x) / WARP, warps = (int64)gridDim.x * WARPS;
    Row* mine = all_rows[threadIdx.x / WARP];
    ColumnSums sums = {0.0, 0.0, 0.0};
    for (int64 first = from + warp * ROWS; first < rows; first += warps * ROWS) {
        const int some = (int)(rows - first < ROWS ? rows - first : ROWS);
        if (lane < some) {
            const int v = order[first + lane];
            mine[lane] = described<LEANING>(v, length[v], start[v], out_length[v], loop[v], degree[v], damping, known);
        }
        __syncwarp();
        int ahead = neighbour(pool + mine[0].begin, lane, mine[0].count);
        for (int place = 0; place < some; ++place) {
            const Row& row = mine[place];
            const int64 at = (int64)row.vertex * WIDTH + column;
            float kept = __ldcs(left + at);
            double value = __ldcs(values + at);
            const int ids = ahead;
            if (place + 1 < some) ahead = neighbour(pool + mine[place + 1].begin, lane, mine[place + 1].count);
            double arriving = 0.0;
            if (first + place < long_rows) {
                const int64 end = ends[first + place];
#pragma unroll 8
                for (int64 chunk = first + place > 0 ? ends[first + place - 1] : 0; chunk < end; ++chunk)
                    arriving += partials[chunk * WIDTH + column];
            } else {
                arriving = gathered(pool + row.begin, row.count, ids, first_pair(shares));
            }
            const bool changes = arriving != 0.0 || kept != 0.0f || LEANING;
            new_shares[at] = (uint16)take<LEANING>(row, arriving, damping, amount, value, kept, sums);
            if (changes) {
                __stcs(values + at, value);
                __stcs(left + at, kept);
            }
        }
        __syncwarp();
    }
    all_sums[threadIdx.x / WARP][0][column] = sums.size;
    all_sums[threadIdx.x / WARP][1][column] = sums.sum;
    all_sums[threadIdx.x / WARP][2][column] = sums.total;
    add_up_columns(all_sums, partial_sums);
}

// The matrices as half a warp sees them: two columns a thread. shares: of `first_pair`; of the others the place of a pair is
// row · PAIRS + thread.
struct Matrices {
    Address shares;
    double2* values;
    float2* left;
    uint32* new_shares;
    const double2* amounts;
};

// Takes what has arrived at a row, as RAISED times less, in two columns.
template <bool LEANING>
__device__ __forceinline__ void take_pair(
    const Row& row, int64 at, const Pair& arriving, double damping, double2 value, float2 kept, const Matrices& matrices,
    ColumnSums (&sums)[2]) {
    const bool held = kept.x != 0.0f || kept.y != 0.0f;
    const bool changes = held || arriving.even != 0.0 || arriving.odd != 0.0 || LEANING;
    double2 amounts = {0.0, 0.0};
    if (LEANING) amounts = matrices.amounts[threadIdx.x % PAIRS];
    const uint32 even = take<LEANING>(row, RAISED * arriving.even, damping, amounts.x, value.x, kept.x, sums[0]);
    const uint32 odd = take<LEANING>(row, RAISED * arriving.odd, damping, amounts.y, value.y, kept.y, sums[1]);
    // without out-edges nothing is sent, as ever, and nothing is left
    const bool sends = row.degree > 0.0;
    if (sends) matrices.new_shares[at] = even | odd << 16;
    if (changes) __stcs(matrices.values + at, value);
    if (changes && (sends || held)) __stcs(matrices.left + at, kept);
}

constexpr int SHORT = 4;     // edges of rows whose neighbours are all known before the first is read
constexpr int TOGETHER = 2;  // such rows that half a warp has under way at once

// Rows of up to SHORT edges, TOGETHER for each half of the warp at a time. ids: their neighbours, -1 behind the last.
template <bool LEANING>
__device__ __forceinline__ void relax_short(
    const Row* all, const int4* ids, int found, double damping, const Matrices& matrices, ColumnSums (&sums)[2]) {
    const int lane = threadIdx.x % WARP, half = lane / PAIRS;
    for (int base = 0; base < found; base += 2 * TOGETHER) {
        uint32 seen[TOGETHER][SHORT];
        double2 value[TOGETHER];
        float2 kept[TOGETHER];
#pragma unroll
        for (int other = 0; other < TOGETHER; ++other) {
            const int place = base + 2 * other + half;
#pragma unroll
            for (int slot = 0; slot < SHORT; ++slot) seen[other][slot] = 0u;
            if (place < found) {
                const int4 four = ids[place];
                if (four.x >= 0) seen[other][0] = share_pair(matrices.shares, four.x);
                if (four.y >= 0) seen[other][1] = share_pair(matrices.shares, four.y);
                if (four.z >= 0) seen[other][2] = share_pair(matrices.shares, four.z);
                if (four.w >= 0) seen[other][3] = share_pair(matrices.shares, four.w);
                const int64 at = (int64)all[place].vertex * PAIRS + lane % PAIRS;
                value[other] = __ldcs(matrices.values + at);
                kept[other] = __ldcs(matrices.left + at);
            }
        }
#pragma unroll
        for (int other = 0; other < TOGETHER; ++other) {
            const int place = base + 2 * other + half;
            if (place >= found) continue;
            Pair sum = {0.0, 0.0};
#pragma unroll
            for (int slot = 0; slot < SHORT; ++slot) add_pair(sum, seen[other][slot]);
            const int64 at = (int64)all[place].vertex * PAIRS + lane % PAIRS;
            take_pair<LEANING>(all[place], at, sum, damping, value[other], kept[other], matrices, sums);
        }
    }
}

// A neighbour of all[place], or -1 where there is none.
__device__ __forceinline__ int neighbour_of(const Row* all, int found, int place, int slot, const int* pool) {
    return place < found && slot < all[place].count ? __ldg(pool + all[place].begin + slot) : -1;
}

// Rows of any length, ABREAST for each half of the warp at a time, AHEAD edges of each at once.
template <bool LEANING, int ABREAST, int AHEAD>
__device__ __forceinline__ void relax_any(
    const Row* all, const int* pool, int found, double damping, const Matrices& matrices, ColumnSums (&sums)[2]) {
    const int lane = threadIdx.x % WARP, half = lane / PAIRS, thread = lane % PAIRS;
    for (int base = 0; base < found; base += 2 * ABREAST) {
        int ids[ABREAST], most = 0;
        double2 value[ABREAST];
        float2 kept[ABREAST];
        Pair sum[ABREAST];
#pragma unroll
        for (int other = 0; other < ABREAST; ++other) {
            const int place = base + 2 * other + half;
            sum[other] = {0.0, 0.0};
            ids[other] = neighbour_of(all, found, place, thread, pool);
            if (place < found) {
                most = max(most, all[place].count);
                const int64 at = (int64)all[place].vertex * PAIRS + thread;
                value[other] = __ldcs(matrices.values + at);
                kept[other] = __ldcs(matrices.left + at);
            }
        }
        most = max(most, __shfl_xor_sync(FULL, most, PAIRS));
        for (int first = 0; first < most; first += PAIRS) {
            int next[ABREAST];
#pragma unroll
            for (int other = 0; other < ABREAST; ++other)
                next[other] = neighbour_of(all, found, base + 2 * other + half, first + PAIRS + thread, pool);
            for (int slot = 0; slot < PAIRS && first + slot < most; slot += AHEAD) {
                uint32 seen[ABREAST][AHEAD];
#pragma unroll
                for (int other = 0; other < ABREAST; ++other)
#pragma unroll
                    for (int step = 0; step < AHEAD; ++step) {
                        const int u = __shfl_sync(FULL, ids[other], slot + step, PAIRS);
                        seen[other][step] = u >= 0 ? share_pair(matrices.shares, u) : 0u;
                    }
#pragma unroll
                for (int other = 0; other < ABREAST; ++other)
#pragma unroll
                    for (int step = 0; step < AHEAD; ++step) add_pair(sum[other], seen[other][step]);
            }
#pragma unroll
            for (int other = 0; other < ABREAST; ++other) ids[other] = next[other];
        }
#pragma unroll
        for (int other = 0; other < ABREAST; ++other) {
            const int place = base + 2 * other + half;
            if (place >= found) continue;
            const int64 at = (int64)all[place].vertex * PAIRS + thread;
            take_pair<LEANING>(all[place], at, sum[other], damping, value[other], kept[other], matrices, sums);
        }
    }
}

// Half a warp a row, of the rows order[from … rows), WARP before a warp at once; MOSTLY_SHORT: of which few are longer than
// SHORT. Those without in-edges are left out but for the seeds, and for all with out-edges where leaning: else their y, what is left and
// both shares are 0 for ever.
// partial_sums: as of relax_rows.
template <bool MOSTLY_SHORT, bool LEANING>
__global__ void __launch_bounds__(BLOCK, MOSTLY_SHORT && !LEANING ? 4 : 3) relax_few(
    const int* __restrict__ order, int64 from, int64 rows, const int64* __restrict__ start,
    const int* __restrict__ length, const int* __restrict__ pool, const int* __restrict__ out_length,
    const uint8* __restrict__ loop, const int* __restrict__ degree, const uint16* __restrict__ shares, double damping,
    double* __restrict__ values, float* __restrict__ left, uint16* __restrict__ new_shares,
    double* __restrict__ partial_sums, const double* __restrict__ known_values,
    const double* __restrict__ known_residual, double known_base, const double* __restrict__ amounts,
    const uint8* __restrict__ seeded) {
    __shared__ double all_sums[WARPS][COLUMN_SUMS][WIDTH];
    __shared__ Row all_rows[WARPS][WARP];
    __shared__ int4 all_ids[MOSTLY_SHORT ? WARPS : 1][WARP];
    const int lane = threadIdx.x % WARP;
    Row* mine = all_rows[threadIdx.x / WARP];
    int4* ids = all_ids[MOSTLY_SHORT ? threadIdx.x / WARP : 0];
    const Matrices matrices = {
        first_pair(shares), reinterpret_cast<double2*>(values), reinterpret_cast<float2*>(left),
        reinterpret_cast<uint32*>(new_shares), reinterpret_cast<const double2*>(amounts)};
    const Known known = {known_values, known_residual, known_base};
    ColumnSums sums[2] = {};
    // places fit 32 bits, and registers are few
    const uint32 step = gridDim.x * BLOCK, last = (uint32)rows;
    for (uint32 at = (uint32)from + blockIdx.x * BLOCK + threadIdx.x; at - lane < last; at += step) {
        const bool inside = at < last;
        const int v = inside ? order[at] : 0;
        const int count = inside ? length[v] : 0;
        const bool chosen = count > 0 || (inside && seeded[v]);
        const unsigned all_chosen = __ballot_sync(FULL, chosen);
        const bool all_short = MOSTLY_SHORT && __all_sync(FULL, count <= SHORT);
        if (chosen) {
            const int place = __popc(all_chosen & ((1u << lane) - 1));
            const int64 begin = start[v];
            if (MOSTLY_SHORT && all_short) {
                // a row's place is a multiple of four slots, which are read at once
                int4 four = make_int4(-1, -1, -1, -1);
                if (count > 0) four = *reinterpret_cast<const int4*>(pool + begin);
                if (count < 2) four.y = -1;
                if (count < 3) four.z = -1;
                if (count < 4) four.w = -1;
                ids[place] = four;
            }
            mine[place] = described<LEANING>(v, count, begin, out_length[v], loop[v], degree[v], damping, known);
        }
        __syncwarp();
        const int found = __popc(all_chosen);
        if (all_short) relax_short<LEANING>(mine, ids, found, damping, matrices, sums);
        else if (MOSTLY_SHORT) relax_any<LEANING, 1, 4>(mine, pool, found, damping, matrices, sums);
        else relax_any<LEANING, 2, 8>(mine, pool, found, damping, matrices, sums);
        __syncwarp();
    }
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
        ColumnSums& own = sums[odd];
        own.size += __shfl_xor_sync(FULL, own.size, PAIRS);
        own.sum += __shfl_xor_sync(FULL, own.sum, PAIRS);
        own.total += __shfl_xor_sync(FULL, own.total, PAIRS);
        if (lane < PAIRS) {
            all_sums[threadIdx.x / WARP][0][2 * lane + odd] = own.size;
            all_sums[threadIdx.x / WARP][1][2 * lane + odd] = own.sum;
            all_sums[threadIdx.x / WARP][2][2 * lane + odd] = own.total;
        }
    }
    add_up_columns(all_sums, partial_sums);
}

// Adds to left[at], at distinct places; what float32 does not hold of a sum is carried to the next time.
__global__ void add_carried(
    const int64* __restrict__ at, const double* __restrict__ amounts, int64 count, double* __restrict__ carry,
    float* __restrict__ left) {
    for (int64 i = (int64)blockIdx.x * BLOCK + threadIdx.x; i < count; i += (int64)gridDim.x * BLOCK) {
        const double exact = left[at[i]] + amounts[i] + carry[i];
        const float held = (float)exact;
        left[at[i]] = held;
        carry[i] = exact - held;
    }
}
