// Several sweeps, or steps of Orthomin(1), in one launch (liverank_gpu.operations.sweeps: fused_sweeps, fused_orthomin): for
// graphs so small that launches, and waiting for the sums of each sweep, would take most of the time.
//
// Each does what sweep.cu does. The grid synchronises behind each pass over the rows or the vertices, one in a
// sweep and two in a step. Then every block adds up the sums of all blocks in the same order: all have the same bits, and so
// the same coefficients, and they end together.
//
// Launch: BLOCK threads a block, all blocks resident (cooperative).
// Traffic: that of sweep.cu; every block reads 40 bytes for each block, after each pass.
#include <cooperative_groups.h>
#include "sweep_step.cuh"

// liverank_gpu.operations.sweeps.FusedRun
struct FusedRun {
    double residual_l1, residual_sum, mass, next_residual_sum, image_sum, free_mass, residual_goal, step_goal, least_gain;
    double bounds[GAIN_SWEEPS];  // ‖r‖₁ + |Σr| relative to Σy of the last sweeps before, the newest first
    int64 known_bounds, least_bounds, most;
};

// How far a run is: in shared memory, written by one thread of each block.
struct Progress {
    double mass, residual_l1, bounds[GAIN_SWEEPS];
    int64 known_bounds, done;
    bool ends;

    __device__ void begin(const FusedRun& run) {
        mass = run.mass;
        residual_l1 = run.residual_l1;
        known_bounds = run.known_bounds;
        done = 0;
        for (int at = 0; at < GAIN_SWEEPS; ++at) bounds[at] = run.bounds[at];
    }

    // After a sweep that lowered the right-hand side by `lowered`. effective: whether ‖r‖₁ / Σy has to fall by α for the run to
    // go on.
    __device__ void add(
        const FusedRun& run, const double (&sums)[SWEEP_SUMS], double lowered, double damping, bool effective) {
        const double before = residual_l1 / mass;
        residual_l1 = sums[RESIDUAL_L1];
        mass += sums[MASS] + run.free_mass * lowered;
        const double total = fabs(sums[RESIDUAL_SUM]), bound = (residual_l1 + total) / mass;
        const int64 counted = known_bounds < GAIN_SWEEPS ? known_bounds : GAIN_SWEEPS;
        const double gain = counted > 0 ? log(bounds[counted - 1] / bound) / counted : 0.0;
        ends = ++done >= run.most || residual_l1 - total <= run.residual_goal * mass ||
               sums[LARGEST_STEP] <= run.step_goal * mass || (known_bounds >= run.least_bounds && gain < run.least_gain) ||
               (effective && residual_l1 / mass > damping * before);
        ++known_bounds;
        for (int at = GAIN_SWEEPS - 1; at > 0; --at) bounds[at] = bounds[at - 1];
        bounds[0] = bound;
    }
};

// The sums of all blocks, in every thread, once they have written theirs. Every thread of the grid takes part.
template <bool LARGEST>
__device__ __forceinline__ void meet(
    const cooperative_groups::grid_group& grid, double (&sums)[SWEEP_SUMS], double* partial_sums) {
    write_sums<LARGEST>(sums, partial_sums + (int64)blockIdx.x * SWEEP_SUMS);
    grid.sync();
#pragma unroll
    for (int at = 0; at < SWEEP_SUMS; ++at) sums[at] = 0.0;
    add_blocks<LARGEST>(partial_sums, (int)gridDim.x, sums);
#pragma unroll
    for (int at = 0; at < SWEEP_SUMS; ++at) {
        if (LARGEST && at == SWEEP_SUMS - 1) sums[at] = block_max(sums[at]);
        else sums[at] = group_sum<BLOCK>(sums[at]);
    }
}

// What the host reads of a sweep: its sums; by how much it lowered the right-hand side, or the mean of an image; and inner
// products.
__device__ __forceinline__ void write_result(double* row, const double (&sums)[SWEEP_SUMS], double amount) {
    for (int at = 0; at < SWEEP_SUMS; ++at) row[at] = sums[at];
    row[SWEEP_SUMS] = amount;
}

// contributions: of r, before and after an even number of sweeps; other_contributions: after an odd number.
// partial_sums: double[2][blocks][SWEEP_SUMS], used in turn: a block may be ahead of those that still read.
// results: double[most][FUSED_SUMS], and the number of sweeps behind them.
__global__ void __launch_bounds__(BLOCK, FUSED_BLOCKS) fused_sweeps(
    RowSums rows, RowPlan plan, const Loop* __restrict__ loop, const Degree* __restrict__ degree, Contribution* contributions,
    Contribution* other_contributions, double damping, double* values, double* r, FusedRun run, double* partial_sums,
    double* results) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    __shared__ Progress progress;
    if (threadIdx.x == 0) progress.begin(run);
    double next_residual_sum = run.next_residual_sum;
    for (int64 done = 0;; ++done) {
        const double shift = run.image_sum > 0.0 ? next_residual_sum / run.image_sum : 0.0;
        const bool odd = done % 2 != 0;
        const Sweep<false> step = {
            rows.lists.lengths, loop, degree, odd ? other_contributions : contributions, damping, shift, nullptr, nullptr,
            0.0, 0.0, values, r, odd ? contributions : other_contributions};
        double sums[SWEEP_SUMS] = {};
        const auto load = [&](int u) { return step.load(u); };
        const auto read = [&](int v, bool wanted) { return step.read(v, wanted); };
        const auto finish = [&](int v, const SweptVertex& own, double incoming_mass) {
            step.finish(v, own, incoming_mass, sums);
        };
        sum_rows_striding(rows, plan, load, read, finish);
        meet<true>(grid, sums, partial_sums + (odd ? (int64)gridDim.x * SWEEP_SUMS : 0));
        next_residual_sum = sums[NEXT_RESIDUAL_SUM];
        if (threadIdx.x == 0) {
            progress.add(run, sums, shift, damping, false);
            if (blockIdx.x == 0) write_result(results + done * FUSED_SUMS, sums, shift);
        }
        __syncthreads();
        if (progress.ends) break;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) results[run.most * FUSED_SUMS] = (double)progress.done;
}

// keeps_weights, floor and has_previous are those of the first step; weights and a direction are there then. image_mean: of q'.
// partial_sums and results: as above.
__global__ void __launch_bounds__(BLOCK, FUSED_BLOCKS) fused_orthomin(
    RowSums rows, RowPlan plan, int64 vertices, const Loop* __restrict__ loop, const Degree* __restrict__ degree,
    Contribution* contributions, double damping, double* values, double* r, int keeps_weights, double floor, float* weights,
    int has_previous, double image_mean, double* last_image, double* image, double* direction, FusedRun run,
    double* partial_sums, double* results) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    __shared__ Progress progress;
    if (threadIdx.x == 0) progress.begin(run);
    double residual_sum = run.residual_sum, next_residual_sum = run.next_residual_sum;
    for (int64 done = 0;; ++done) {
        const bool again = done > 0, previous = again || has_previous;
        const double mean = run.image_sum > 0.0 ? (residual_sum - next_residual_sum) / run.image_sum : 0.0;
        const OrthominImage imaging = {
            rows.lists.lengths, loop, degree, contributions, damping, mean, values, r, again || keeps_weights, floor, weights,
            previous, last_image, image};
        double sums[SWEEP_SUMS] = {};
        const auto load = [&](int u) { return imaging.load(u); };
        const auto read = [&](int v, bool wanted) { return imaging.read(v, wanted); };
        const auto finish = [&](int v, const ImageVertex& own, double incoming_mass) {
            imaging.finish(v, own, incoming_mass, sums);
        };
        sum_rows_striding(rows, plan, load, read, finish);
        meet<false>(grid, sums, partial_sums);
        const Coefficients coefficients(sums, previous);
        double* const result = results + done * FUSED_SUMS;
        if (blockIdx.x == 0 && threadIdx.x == 0)
            for (int at = 0; at < SWEEP_SUMS; ++at) result[SWEEP_SUMS + 1 + at] = sums[at];

        const OrthominUpdate step = {
            loop, degree, rows.lists.lengths, damping, mean, previous, image, direction, last_image, values, r, contributions};
#pragma unroll
        for (int at = 0; at < SWEEP_SUMS; ++at) sums[at] = 0.0;
        for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK)
            step.apply(v, coefficients, sums);
        meet<true>(grid, sums, partial_sums + (int64)gridDim.x * SWEEP_SUMS);
        residual_sum = sums[RESIDUAL_SUM];
        next_residual_sum = sums[NEXT_RESIDUAL_SUM];
        image_mean = mean - (previous ? coefficients.beta * image_mean : 0.0);
        if (threadIdx.x == 0) {
            progress.add(run, sums, -coefficients.alpha * image_mean, damping, true);
            if (blockIdx.x == 0) write_result(result, sums, mean);
        }
        __syncthreads();
        if (progress.ends || coefficients.alpha == 0.0) break;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) results[run.most * FUSED_SUMS] = (double)progress.done;
}
