// One push of every residual of COLUMNS vectors at once, as a pull (liverank_gpu.operations.sweeps: sweep_many). For each
// row v and each column, with contributions c:
//
//     r  = remainder + α·Σ c[u] over the in-neighbours
//     c' = r / ((1 - αℓ/d)·d), rounded to bfloat16;  y += c'·d;  remainder' = r - (1 - αℓ/d)·c'·d
//
// so the rounding error stays in the residual, and nothing is lost. DEFLATED: y += coefficient·z, r -= coefficient·A·z in every
// column, with A·z = rhs_scale - residual of z.
//
// If WEIGHTED, each contribution is multiplied by the weight of the edge.
//
// Launch: BLOCK threads a block. A warp takes a row (sweep_many), or a chunk of ROW_CHUNK edges of a long row (gather_chunks,
// before it); half a warp takes a short row (sweep_many_short).
// Traffic: per edge 4 bytes of neighbour id (and 4 of weight if WEIGHTED) and 64 of contributions; per row and column 12 bytes
// read (y and remainder), 2 written (c'), and 12 more written (y and remainder) where r is not 0; per row 25 of its place,
// lengths and loop, and 16 if DEFLATED. sweep_many_short writes neither c' nor remainder where d = 0: both stay 0. A row that
// nothing can reach takes 9 bytes in all.
#include "common.cuh"

// ---- rows of a matrix, and sums of contributions over them ----
//
// Contributions are bfloat16. 16 threads read the COLUMNS contributions of one edge, two columns each, so a warp reads two
// edges at once. Loads are issued early: y with the contributions, though it is not needed where nothing arrives (rare after
// three sweeps of a vector that spreads over the graph), and the next neighbours before these contributions have arrived.
// y and remainder are touched once a sweep and marked as the first to be evicted: the caches are for the contributions.

static_assert(COLUMNS == WARP, "each lane takes a column");
constexpr int PAIRS = COLUMNS / 2;  // of columns, one for each thread of half a warp

using uint16 = unsigned short;
using uint32 = unsigned int;

// Contributions are added up divided by SCALE. Then a float32 becomes a float64 by a shift of its exponent and digits, also if
// it is 0 or subnormal, instead of a conversion, which a device does for fewer threads at once. Exact: a sum so small that
// float64 has fewer digits for it, below 2^-1022, is a multiple of 2^-1029, and the last digit is 2^-1074.
constexpr double SCALE = 0x1p896;

__device__ __forceinline__ double scaled_down(uint32 upper_half) {
    const uint32 high = (uint32)((int)upper_half >> 3) & 0x8fffe000u;  // the sign bit stays
    return __longlong_as_double((int64)((unsigned long long)high << 32));
}

struct Pair {
    double even, odd;
};

// The weight of an edge as `add_pair` takes it: multiplied by SCALE, so that its product with a contribution is neither
// rounded nor too small, and the sum needs no factor. Exact: SCALE·w is below 2^1024.
using EdgeWeight = Either<WEIGHTED, double, int>::Type;
constexpr double SUM_SCALE = WEIGHTED ? 1.0 : SCALE;

__device__ __forceinline__ EdgeWeight edge_weight(const float* weights, int64 slot) {
    if constexpr (WEIGHTED) return SCALE * __ldg(weights + slot);
    else return 1;
}

__device__ __forceinline__ EdgeWeight shuffled(EdgeWeight weight, int lane, int width) {
    if constexpr (WEIGHTED) return __shfl_sync(FULL, weight, lane, width);
    else return weight;
}

__device__ __forceinline__ void add_pair(Pair& sum, uint32 contributions, EdgeWeight weight) {
    if constexpr (WEIGHTED) {
        sum.even += weight * scaled_down(contributions << 16);
        sum.odd += weight * scaled_down(contributions);
    } else {
        sum.even += scaled_down(contributions << 16);
        sum.odd += scaled_down(contributions);
    }
}

// What all threads of a row need, computed by one thread.
struct alignas(16) Row {
    double diagonal;    // 1 - αℓ/d
    double degree;      // d, or the strength
    double out_weight;  // α for each out-edge, times its weight
    double z, image;    // z and A·z
    float scale;        // 1 / ((1 - αℓ/d)·d), or 0
    int vertex;
    int64 begin;
    int count;
};

// A vector with a known image: see liverank_gpu.operations.sweeps.DeflationVector.
struct Deflation {
    const double* z;
    const double* residual;
    double rhs_scale;
};

template <bool DEFLATED>
__device__ __forceinline__ Row row_of(
    int vertex, int count, int64 begin, int out_length, Loop loop, Degree d, double damping, const Deflation& deflation) {
    const double diagonal = diagonal_of(d, loop, damping);
    // a contribution need not be exact: the rounding stays in the residual
    const float scale = d > 0 ? 1.0f / (float)(diagonal * d) : 0.0f;
    const double z = DEFLATED ? deflation.z[vertex] : 0.0;
    const double image = DEFLATED ? deflation.rhs_scale - deflation.residual[vertex] : 0.0;
    const double sent = WEIGHTED ? damping * ((double)d - loop) : damping * out_length;
    return {diagonal, (double)d, sent, z, image, scale, vertex, begin, count};
}

// COLUMN_SUMS sums: an upper bound on ‖r‖₁, Σr, and the change of Σy.
struct ColumnSums {
    double residual_l1, residual_sum, mass;
};

// The new y and remainder of a row in one column. Returns the contribution.
template <bool DEFLATED>
__device__ __forceinline__ uint32 step_row(
    const Row& row, double incoming_mass, double damping, double coefficient, double& value, float& remainder,
    ColumnSums& sums) {
    const double residual = damping * incoming_mass + remainder - (DEFLATED ? coefficient * row.image : 0.0);
    const uint32 contribution = round_to_bfloat16((float)residual * row.scale);
    const double exact = (double)__uint_as_float(contribution << 16);
    const ColumnStep push(residual, exact, row.degree, row.diagonal, row.out_weight);
    const double step = DEFLATED ? push.step + coefficient * row.z : push.step;
    value += step;
    remainder = (float)push.residual;
    sums.residual_l1 += fabs(push.sent) + fabs(push.residual);
    sums.residual_sum += push.sent + push.residual;
    sums.mass += step;
    return contribution;
}

// The column that a thread of a warp writes: the first or the second of the two that it sums.
__device__ __forceinline__ int column_of(int lane) { return 2 * (lane % PAIRS) + lane / PAIRS; }

using Address = unsigned long long;

// The address of the thread's two columns of the contributions of vertex 0. As a number, so that the 64 bytes of each row are
// added in one instruction.
__device__ __forceinline__ Address first_pair(const uint16* contributions) {
    return reinterpret_cast<Address>(contributions) + threadIdx.x % PAIRS * sizeof(uint32);
}

__device__ __forceinline__ uint32 contribution_pair(Address first, int u) {
    return __ldg(reinterpret_cast<const uint32*>(first + (uint32)u * (Address)(COLUMNS * sizeof(uint16))));
}

constexpr int EDGE_PAIRS = 8;  // pairs of edges whose contributions a warp loads at once

// Adds the contributions of the neighbours that the warp holds from a slot on; SOME: some of them may be missing.
template <bool SOME>
__device__ __forceinline__ void add_edges(Pair& sum, int ids, EdgeWeight weights, int slot, Address contributions) {
    const int half = threadIdx.x % WARP / PAIRS;
    uint32 seen[EDGE_PAIRS];
#pragma unroll
    for (int pair = 0; pair < EDGE_PAIRS; ++pair) {
        const int u = __shfl_sync(FULL, ids, slot + 2 * pair + half);
        seen[pair] = !SOME || u >= 0 ? contribution_pair(contributions, u) : 0u;
    }
#pragma unroll
    for (int pair = 0; pair < EDGE_PAIRS; ++pair) add_pair(sum, seen[pair], shuffled(weights, slot + 2 * pair + half, WARP));
}

// The neighbour in a slot, or -1.
__device__ __forceinline__ int neighbour(const int* neighbours, int slot, int count) {
    return slot < count ? __ldg(neighbours + slot) : -1;
}

// The weight of the edge in a slot; 0 behind the last.
__device__ __forceinline__ EdgeWeight weight_in(const float* weights, int slot, int count) {
    return slot < count ? edge_weight(weights, slot) : 0;
}

// Σ contributions of `count` neighbours, for the column of `column_of`. ids: the first WARP of them, one in each thread. All
// threads of the warp take part.
__device__ __forceinline__ double gathered(
    const int* neighbours, const float* weights, int count, int ids, Address contributions) {
    const int lane = threadIdx.x % WARP;
    Pair sum = {0.0, 0.0};
    for (int first = 0; first < count; first += WARP) {
        const int next = neighbour(neighbours, first + WARP + lane, count);
        const EdgeWeight own = weight_in(weights, first + lane, count);
        const int some = min(WARP, count - first);
        int slot = 0;
        for (; slot + 2 * EDGE_PAIRS <= some; slot += 2 * EDGE_PAIRS) add_edges<false>(sum, ids, own, slot, contributions);
        if (slot < some) add_edges<true>(sum, ids, own, slot, contributions);
        ids = next;
    }
    sum.even += __shfl_xor_sync(FULL, sum.even, PAIRS);
    sum.odd += __shfl_xor_sync(FULL, sum.odd, PAIRS);
    return SUM_SCALE * (lane < PAIRS ? sum.even : sum.odd);
}

// The block's sums, from those of each warp for each column. partial_sums: double[blocks, COLUMN_SUMS, COLUMNS].
__device__ __forceinline__ void write_column_sums(
    const double (&all_sums)[WARPS][COLUMN_SUMS][COLUMNS], double* partial_sums) {
    __syncthreads();
    for (int place = threadIdx.x; place < COLUMN_SUMS * COLUMNS; place += BLOCK) {
        double all = 0.0;
        for (int other = 0; other < WARPS; ++other) all += all_sums[other][place / COLUMNS][place % COLUMNS];
        partial_sums[(int64)blockIdx.x * COLUMN_SUMS * COLUMNS + place] = all;
    }
}

// ---- sweeps ----

// Blocks on a multiprocessor for which the variables of sweep_many_short fit into registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int MOST_BLOCKS = 3;
#else
constexpr int MOST_BLOCKS = 4;
#endif

// ends[i]: chunks of the long rows order[0 … i]. partials: double[chunks, COLUMNS].
__global__ void __launch_bounds__(BLOCK, 4) gather_chunks(
    const int* __restrict__ order, const int64* __restrict__ ends, int64 rows, Lists in,
    const uint16* __restrict__ contributions, double* __restrict__ partials) {
    const int64 warp = ((int64)blockIdx.x * BLOCK + threadIdx.x) / WARP, warps = (int64)gridDim.x * WARPS;
    const int lane = threadIdx.x % WARP;
    const int64 chunks = ends[rows - 1];
    for (int64 chunk = warp; chunk < chunks; chunk += warps) {
        const int64 at = first_above(ends, rows, chunk);
        const int v = order[at];
        const int first = (int)(chunk - (at > 0 ? ends[at - 1] : 0)) * ROW_CHUNK;
        const int64 begin = in.starts[v] + first;
        const int* neighbours = in.indices + begin;
        const float* own_weights = WEIGHTED ? in.weights + begin : nullptr;
        const int count = min(ROW_CHUNK, in.lengths[v] - first), ids = neighbour(neighbours, lane, count);
        const double sum = gathered(neighbours, own_weights, count, ids, first_pair(contributions));
        partials[chunk * COLUMNS + column_of(lane)] = sum;
    }
}

// The rows order[from … to), a warp each; those before long_rows are summed already, in `partials`. ROWS_PER_WARP at once, one
// after the other.
// coefficients: double[COLUMNS]; it, z and z_residual may be null if not DEFLATED. partial_sums: see write_column_sums.
INSTANCES(sweep_many<false>, sweep_many<true>)
template <bool DEFLATED>
__global__ void __launch_bounds__(BLOCK, WEIGHTED ? 3 : 4) sweep_many(
    const int* __restrict__ order, int64 from, int64 to, const int64* __restrict__ row_starts,
    const int* __restrict__ row_lengths, const int* __restrict__ column_indices, const float* __restrict__ weights,
    const int* __restrict__ out_lengths, const Loop* __restrict__ loop, const Degree* __restrict__ degree,
    const uint16* __restrict__ contributions, double damping,
    double* __restrict__ values, float* __restrict__ remainder, uint16* __restrict__ new_contributions,
    double* __restrict__ partial_sums, const double* __restrict__ z, const double* __restrict__ z_residual,
    double z_rhs_scale, const double* __restrict__ coefficients, int64 long_rows, const int64* __restrict__ ends,
    const double* __restrict__ partials) {
    __shared__ double all_sums[WARPS][COLUMN_SUMS][COLUMNS];
    __shared__ Row all_rows[WARPS][ROWS_PER_WARP];
    const int lane = threadIdx.x % WARP, column = column_of(lane);
    const Deflation deflation = {z, z_residual, z_rhs_scale};
    const double coefficient = DEFLATED ? coefficients[column] : 0.0;
    const int64 warp = ((int64)blockIdx.x * BLOCK + threadIdx.x) / WARP, warps = (int64)gridDim.x * WARPS;
    Row* rows = all_rows[threadIdx.x / WARP];
    ColumnSums sums = {0.0, 0.0, 0.0};
    for (int64 first = from + warp * ROWS_PER_WARP; first < to; first += warps * ROWS_PER_WARP) {
        const int some = (int)(to - first < ROWS_PER_WARP ? to - first : ROWS_PER_WARP);
        if (lane < some) {
            const int v = order[first + lane];
            rows[lane] = row_of<DEFLATED>(
                v, row_lengths[v], row_starts[v], out_lengths[v], loop[v], degree[v], damping, deflation);
        }
        __syncwarp();
        int ahead = neighbour(column_indices + rows[0].begin, lane, rows[0].count);
        for (int place = 0; place < some; ++place) {
            const Row& row = rows[place];
            const int64 at = (int64)row.vertex * COLUMNS + column;
            float rest = __ldcs(remainder + at);
            double value = __ldcs(values + at);
            const int ids = ahead;
            if (place + 1 < some) ahead = neighbour(column_indices + rows[place + 1].begin, lane, rows[place + 1].count);
            double incoming_mass = 0.0;
            if (first + place < long_rows) {
                const int64 end = ends[first + place];
#pragma unroll 8
                for (int64 chunk = first + place > 0 ? ends[first + place - 1] : 0; chunk < end; ++chunk)
                    incoming_mass += partials[chunk * COLUMNS + column];
            } else {
                const float* own_weights = WEIGHTED ? weights + row.begin : nullptr;
                incoming_mass =
                    gathered(column_indices + row.begin, own_weights, row.count, ids, first_pair(contributions));
            }
            const bool changes = incoming_mass != 0.0 || rest != 0.0f || DEFLATED;
            new_contributions[at] =
                (uint16)step_row<DEFLATED>(row, incoming_mass, damping, coefficient, value, rest, sums);
            if (changes) {
                __stcs(values + at, value);
                __stcs(remainder + at, rest);
            }
        }
        __syncwarp();
    }
    all_sums[threadIdx.x / WARP][0][column] = sums.residual_l1;
    all_sums[threadIdx.x / WARP][1][column] = sums.residual_sum;
    all_sums[threadIdx.x / WARP][2][column] = sums.mass;
    write_column_sums(all_sums, partial_sums);
}

// The matrices as half a warp reads them, two columns a thread. contributions: of `first_pair`; in the others a pair is at
// row · PAIRS + thread.
struct Matrices {
    Address contributions;
    double2* values;
    float2* remainder;
    uint32* new_contributions;
    const double2* coefficients;
};

// The new y and remainder of a row in two columns. incoming_mass: divided by SUM_SCALE.
template <bool DEFLATED>
__device__ __forceinline__ void step_pair(
    const Row& row, int64 at, const Pair& incoming_mass, double damping, double2 value, float2 rest,
    const Matrices& matrices, ColumnSums (&sums)[2]) {
    const bool had_rest = rest.x != 0.0f || rest.y != 0.0f;
    const bool changes = had_rest || incoming_mass.even != 0.0 || incoming_mass.odd != 0.0 || DEFLATED;
    double2 coefficients = {0.0, 0.0};
    if (DEFLATED) coefficients = matrices.coefficients[threadIdx.x % PAIRS];
    const uint32 even =
        step_row<DEFLATED>(row, SUM_SCALE * incoming_mass.even, damping, coefficients.x, value.x, rest.x, sums[0]);
    const uint32 odd =
        step_row<DEFLATED>(row, SUM_SCALE * incoming_mass.odd, damping, coefficients.y, value.y, rest.y, sums[1]);
    // without out-edges nothing is sent and nothing remains, in any sweep
    const bool sends = row.degree > 0.0;
    if (sends) matrices.new_contributions[at] = even | odd << 16;
    if (changes) __stcs(matrices.values + at, value);
    if (changes && (sends || had_rest)) __stcs(matrices.remainder + at, rest);
}

constexpr int SHORT = 4;      // edges of a row that are read at once
constexpr int IN_FLIGHT = 2;  // such rows that half a warp works on at once

// Rows of up to SHORT edges, IN_FLIGHT for each half of the warp at a time. ids: their neighbours, -1 behind the last.
template <bool DEFLATED>
__device__ __forceinline__ void sweep_shortest(
    const Row* rows, const int4* ids, const float* weights, int found, double damping, const Matrices& matrices,
    ColumnSums (&sums)[2]) {
    const int lane = threadIdx.x % WARP, half = lane / PAIRS;
    for (int base = 0; base < found; base += 2 * IN_FLIGHT) {
        uint32 seen[IN_FLIGHT][SHORT];
        double2 value[IN_FLIGHT];
        float2 rest[IN_FLIGHT];
#pragma unroll
        for (int other = 0; other < IN_FLIGHT; ++other) {
            const int place = base + 2 * other + half;
#pragma unroll
            for (int slot = 0; slot < SHORT; ++slot) seen[other][slot] = 0u;
            if (place < found) {
                const int4 four = ids[place];
                if (four.x >= 0) seen[other][0] = contribution_pair(matrices.contributions, four.x);
                if (four.y >= 0) seen[other][1] = contribution_pair(matrices.contributions, four.y);
                if (four.z >= 0) seen[other][2] = contribution_pair(matrices.contributions, four.z);
                if (four.w >= 0) seen[other][3] = contribution_pair(matrices.contributions, four.w);
                const int64 at = (int64)rows[place].vertex * PAIRS + lane % PAIRS;
                value[other] = __ldcs(matrices.values + at);
                rest[other] = __ldcs(matrices.remainder + at);
            }
        }
#pragma unroll
        for (int other = 0; other < IN_FLIGHT; ++other) {
            const int place = base + 2 * other + half;
            if (place >= found) continue;
            Pair sum = {0.0, 0.0};
#pragma unroll
            for (int slot = 0; slot < SHORT; ++slot) {
                const bool used = !WEIGHTED || slot < rows[place].count;
                add_pair(sum, seen[other][slot], used ? edge_weight(weights, rows[place].begin + slot) : 0);
            }
            const int64 at = (int64)rows[place].vertex * PAIRS + lane % PAIRS;
            step_pair<DEFLATED>(rows[place], at, sum, damping, value[other], rest[other], matrices, sums);
        }
    }
}

// A neighbour of rows[place], or -1 if there is none.
__device__ __forceinline__ int neighbour_of(const Row* rows, int found, int place, int slot, const int* column_indices) {
    return place < found && slot < rows[place].count ? __ldg(column_indices + rows[place].begin + slot) : -1;
}

// The weight of an edge of rows[place]; 0 if there is none.
__device__ __forceinline__ EdgeWeight weight_of(const Row* rows, int found, int place, int slot, const float* weights) {
    if constexpr (WEIGHTED)
        return place < found && slot < rows[place].count ? edge_weight(weights, rows[place].begin + slot) : 0;
    else return 1;
}

// Rows of any length, ABREAST for each half of the warp at a time, AHEAD edges of each at once.
template <bool DEFLATED, int ABREAST, int AHEAD>
__device__ __forceinline__ void sweep_abreast(
    const Row* rows, const int* column_indices, const float* weights, int found, double damping, const Matrices& matrices,
    ColumnSums (&sums)[2]) {
    const int lane = threadIdx.x % WARP, half = lane / PAIRS, thread = lane % PAIRS;
    for (int base = 0; base < found; base += 2 * ABREAST) {
        int ids[ABREAST], most = 0;
        double2 value[ABREAST];
        float2 rest[ABREAST];
        Pair sum[ABREAST];
#pragma unroll
        for (int other = 0; other < ABREAST; ++other) {
            const int place = base + 2 * other + half;
            sum[other] = {0.0, 0.0};
            ids[other] = neighbour_of(rows, found, place, thread, column_indices);
            if (place < found) {
                most = max(most, rows[place].count);
                const int64 at = (int64)rows[place].vertex * PAIRS + thread;
                value[other] = __ldcs(matrices.values + at);
                rest[other] = __ldcs(matrices.remainder + at);
            }
        }
        most = max(most, __shfl_xor_sync(FULL, most, PAIRS));
        for (int first = 0; first < most; first += PAIRS) {
            int next[ABREAST];
            EdgeWeight own[ABREAST];
#pragma unroll
            for (int other = 0; other < ABREAST; ++other)
                own[other] = weight_of(rows, found, base + 2 * other + half, first + thread, weights);
#pragma unroll
            for (int other = 0; other < ABREAST; ++other)
                next[other] = neighbour_of(rows, found, base + 2 * other + half, first + PAIRS + thread, column_indices);
            for (int slot = 0; slot < PAIRS && first + slot < most; slot += AHEAD) {
                uint32 seen[ABREAST][AHEAD];
#pragma unroll
                for (int other = 0; other < ABREAST; ++other)
#pragma unroll
                    for (int step = 0; step < AHEAD; ++step) {
                        const int u = __shfl_sync(FULL, ids[other], slot + step, PAIRS);
                        seen[other][step] = u >= 0 ? contribution_pair(matrices.contributions, u) : 0u;
                    }
#pragma unroll
                for (int other = 0; other < ABREAST; ++other)
#pragma unroll
                    for (int step = 0; step < AHEAD; ++step)
                        add_pair(sum[other], seen[other][step], shuffled(own[other], slot + step, PAIRS));
            }
#pragma unroll
            for (int other = 0; other < ABREAST; ++other) ids[other] = next[other];
        }
#pragma unroll
        for (int other = 0; other < ABREAST; ++other) {
            const int place = base + 2 * other + half;
            if (place >= found) continue;
            const int64 at = (int64)rows[place].vertex * PAIRS + thread;
            step_pair<DEFLATED>(rows[place], at, sum[other], damping, value[other], rest[other], matrices, sums);
        }
    }
}

// The rows order[from … to), half a warp each, WARP rows a warp at once. MOSTLY_SHORT: few have more than SHORT edges. Rows
// without in-edges are skipped unless they are seeded: their y, remainder and contributions are 0 for ever.
// Other parameters as of sweep_many.
INSTANCES(
    sweep_many_short<false, false>,
    sweep_many_short<false, true>,
    sweep_many_short<true, false>,
    sweep_many_short<true, true>)
template <bool MOSTLY_SHORT, bool DEFLATED>
__global__ void __launch_bounds__(BLOCK, WEIGHTED ? 2 : MOSTLY_SHORT && !DEFLATED ? MOST_BLOCKS : 3) sweep_many_short(
    const int* __restrict__ order, int64 from, int64 to, const int64* __restrict__ row_starts,
    const int* __restrict__ row_lengths, const int* __restrict__ column_indices, const float* __restrict__ weights,
    const int* __restrict__ out_lengths, const Loop* __restrict__ loop, const Degree* __restrict__ degree,
    const uint16* __restrict__ contributions, double damping,
    double* __restrict__ values, float* __restrict__ remainder, uint16* __restrict__ new_contributions,
    double* __restrict__ partial_sums, const double* __restrict__ z, const double* __restrict__ z_residual,
    double z_rhs_scale, const double* __restrict__ coefficients, const uint8* __restrict__ seeded) {
    __shared__ double all_sums[WARPS][COLUMN_SUMS][COLUMNS];
    __shared__ Row all_rows[WARPS][WARP];
    __shared__ int4 all_ids[MOSTLY_SHORT ? WARPS : 1][WARP];
    const int lane = threadIdx.x % WARP;
    Row* rows = all_rows[threadIdx.x / WARP];
    int4* ids = all_ids[MOSTLY_SHORT ? threadIdx.x / WARP : 0];
    const Matrices matrices = {
        first_pair(contributions), reinterpret_cast<double2*>(values), reinterpret_cast<float2*>(remainder),
        reinterpret_cast<uint32*>(new_contributions), reinterpret_cast<const double2*>(coefficients)};
    const Deflation deflation = {z, z_residual, z_rhs_scale};
    ColumnSums sums[2] = {};
    // positions fit 32 bits, and registers are scarce
    const uint32 step = gridDim.x * BLOCK, last = (uint32)to;
    for (uint32 at = (uint32)from + blockIdx.x * BLOCK + threadIdx.x; at - lane < last; at += step) {
        const bool inside = at < last;
        const int v = inside ? order[at] : 0;
        const int count = inside ? row_lengths[v] : 0;
        const bool chosen = count > 0 || (inside && seeded[v]);
        const unsigned all_chosen = __ballot_sync(FULL, chosen);
        const bool all_short = MOSTLY_SHORT && __all_sync(FULL, count <= SHORT);
        if (chosen) {
            const int place = __popc(all_chosen & ((1u << lane) - 1));
            const int64 begin = row_starts[v];
            if (MOSTLY_SHORT && all_short) {
                // row starts are multiples of four slots, which are read at once
                int4 four = make_int4(-1, -1, -1, -1);
                if (count > 0) four = *reinterpret_cast<const int4*>(column_indices + begin);
                if (count < 2) four.y = -1;
                if (count < 3) four.z = -1;
                if (count < 4) four.w = -1;
                ids[place] = four;
            }
            rows[place] =
                row_of<DEFLATED>(v, count, begin, out_lengths[v], loop[v], degree[v], damping, deflation);
        }
        __syncwarp();
        const int found = __popc(all_chosen);
        if (all_short) sweep_shortest<DEFLATED>(rows, ids, weights, found, damping, matrices, sums);
        else if (MOSTLY_SHORT) sweep_abreast<DEFLATED, 1, 4>(rows, column_indices, weights, found, damping, matrices, sums);
        else sweep_abreast<DEFLATED, 2, 8>(rows, column_indices, weights, found, damping, matrices, sums);
        __syncwarp();
    }
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
        ColumnSums& own = sums[odd];
        own.residual_l1 += __shfl_xor_sync(FULL, own.residual_l1, PAIRS);
        own.residual_sum += __shfl_xor_sync(FULL, own.residual_sum, PAIRS);
        own.mass += __shfl_xor_sync(FULL, own.mass, PAIRS);
        if (lane < PAIRS) {
            all_sums[threadIdx.x / WARP][0][2 * lane + odd] = own.residual_l1;
            all_sums[threadIdx.x / WARP][1][2 * lane + odd] = own.residual_sum;
            all_sums[threadIdx.x / WARP][2][2 * lane + odd] = own.mass;
        }
    }
    write_column_sums(all_sums, partial_sums);
}

#if !WEIGHTED
// remainder[places[i]] += amounts[i], at distinct places. What a float32 cannot represent is carried over to the next call.
__global__ void add_compensated(
    const int64* __restrict__ places, const double* __restrict__ amounts, int64 count, double* __restrict__ carry,
    float* __restrict__ remainder) {
    for (int64 i = (int64)blockIdx.x * BLOCK + threadIdx.x; i < count; i += (int64)gridDim.x * BLOCK) {
        const double exact = remainder[places[i]] + amounts[i] + carry[i];
        const float stored = (float)exact;
        remainder[places[i]] = stored;
        carry[i] = exact - stored;
    }
}
#endif
