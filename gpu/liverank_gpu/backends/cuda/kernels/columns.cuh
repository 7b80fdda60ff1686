// Rows of a matrix of COLUMNS columns, contiguous in memory, and sums of contributions over them.
//
// Contributions are bfloat16. 16 threads read the COLUMNS contributions of one edge, two columns each, so a warp reads two
// edges at once. Loads are issued early: y with the contributions, though it is not needed where nothing arrives (rare after
// three sweeps of a vector that spreads over the graph), and the next neighbours before these contributions have arrived.
// y and remainder are touched once a sweep and marked as the first to be evicted: the caches are for the contributions.
#include "common.cuh"

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
