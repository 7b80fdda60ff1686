// One push of every residual at once, as a pull, and what sweeps start from (liverank_gpu.operations.sweeps).
//
// What it does at a vertex: liverank_gpu/kernels/sweeps.h. The contributions of the new r (contributions.cuh) go to another
// array, since other rows still read the old ones. Σr after the next sweep is known now, since a contribution arrives once for
// every entry of an out-list; so a shift that makes it zero needs no pass of its own. An isolated vertex takes r - shift at
// once.
// If WEIGHTED, each contribution is multiplied by the weight of the edge.
// DEFLATED: y += coefficient·z, r -= coefficient·A·z at vertices with edges, with A·z = rhs_scale - residual of z.
//
// finish_sweep: no weights.
// Launch: sweep, orthomin_image and compute_residual as rows.cuh says, the others any grid.
// Traffic: per edge 4 bytes of neighbour id, streamed, and one random read of 2 bytes, and 4 bytes of weight, streamed, if
// WEIGHTED; per row 16 (order, row start, row length) + 5 (loop, degree) + 16 + 16 (y, r) + 4 (contributions); if DEFLATED 16
// more.
//
// compute_residual: the residual of y = αP̄ᵀy + β·1, r = β + α·Σ contributions of the in-neighbours of v - (1 - αℓ/d)·y[v].
// Traffic: as that of sweep, but 8 bytes of each random read (a 32-byte sector), 8 + 8 (y in, r out), and no contributions.
//
// A step of Orthomin(1), for a y in float64: a sweep that uses the previous direction.
//
//     δ = the step that the contributions stand for (liverank_gpu/kernels/vertex.h)
//     q̂ = (1 - αℓ/d)·δ - α·Σ contributions of the in-neighbours - mean                                 orthomin_image
//     p = δ - beta·p',  q = q̂ - beta·q',  y += alpha·p,  r -= alpha·q, and the next contributions       orthomin_step
//
// with beta = ⟨Wq̂,q'⟩ / ⟨Wq',q'⟩ and alpha = ⟨Wq,r⟩ / ⟨Wq,q⟩ from the inner products of orthomin_image, and
// W = 1 / (1 - αℓ/d) / max(y, floor). At an isolated vertex p follows the right-hand side, and q is 0.
// Traffic: orthomin_image per edge as sweep; per row 16 + 5 + 2 + 8 (r) + 4 (weight) + 8 (q') + 8 (q̂). orthomin_step per
// vertex 5 + 4 + 40 in and 32 out (y, r, p, q; q̂ in).
#include "sweep_step.cuh"

INSTANCES(add_partial_sums<false>, add_partial_sums<true>)

INSTANCES(sweep<false>, sweep<true>)
template <bool DEFLATED>
__global__ void __launch_bounds__(BLOCK, WEIGHTED ? 3 : 4) sweep(
    RowSums rows, RowPlan plan, const Loop* __restrict__ loop, const Degree* __restrict__ degree,
    const Contribution* __restrict__ contributions, double damping, double shift, const double* __restrict__ z,
    const double* __restrict__ z_residual, double z_rhs_scale, double coefficient, double* __restrict__ values,
    double* __restrict__ r, Contribution* __restrict__ new_contributions, double* __restrict__ partial_sums) {
    double sums[SWEEP_SUMS] = {};
    const Sweep<DEFLATED> step = {
        rows.lists.lengths, loop, degree, contributions, damping, shift, z, z_residual, z_rhs_scale, coefficient, values, r,
        new_contributions};
    const auto load = [&](int u) { return step.load(u); };
    const auto read = [&](int v, bool wanted) { return step.read(v, wanted); };
    const auto finish = [&](int v, const SweptVertex& own, double incoming_mass) {
        step.finish(v, own, incoming_mass, sums);
    };
    sum_rows(rows, plan, load, read, finish);
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SWEEP_SUMS);
}

// The same where pages.cu has formed the sums. Traffic: 8 bytes a vertex more, none for edges. Without a shift, as of a
// personalized vector, an isolated vertex takes 17 bytes: half of those of R-MAT.
INSTANCES(finish_sweep<false>, finish_sweep<true>)
template <bool DEFLATED>
__global__ void __launch_bounds__(BLOCK) finish_sweep(
    int64 vertices, const Loop* __restrict__ loop, const Degree* __restrict__ degree, const int* __restrict__ row_lengths,
    const int64* __restrict__ page_sums, float unit, float scale, const Contribution* __restrict__ contributions,
    double damping, double shift, const double* __restrict__ z,
    const double* __restrict__ z_residual, double z_rhs_scale, double coefficient, double* __restrict__ values,
    double* __restrict__ r, Contribution* __restrict__ new_contributions, double* __restrict__ partial_sums) {
    double sums[SWEEP_SUMS] = {};
    const Sweep<DEFLATED> step = {
        row_lengths, loop, degree, contributions, damping, shift, z, z_residual, z_rhs_scale, coefficient, values, r,
        new_contributions};
    const PageSums incoming = {page_sums, unit, scale};
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        if (shift == 0.0 && is_isolated(degree[v], loop[v], row_lengths[v]) && r[v] == 0.0) continue;
        SweptVertex own = step.read((int)v, true);
        own.contribution = incoming.rounded(own.contribution);
        step.finish((int)v, own, own.isolated ? 0.0 : incoming.of(v), sums);
    }
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SWEEP_SUMS);
}

#if !WEIGHTED
// r[places[i]] -= amount·weights[i], at distinct places.
__global__ void __launch_bounds__(BLOCK) subtract_at(
    const int* __restrict__ places, const double* __restrict__ weights, int64 count, double amount, double* __restrict__ r) {
    for (int64 i = (int64)blockIdx.x * BLOCK + threadIdx.x; i < count; i += (int64)gridDim.x * BLOCK)
        r[places[i]] -= amount * weights[i];
}
#endif

// r -= shift, the contributions of r, and the sums of a sweep.
__global__ void __launch_bounds__(BLOCK) quantize_contributions(
    int64 vertices, const Loop* __restrict__ loop, const Degree* __restrict__ degree, const int* __restrict__ in_lengths,
    double damping, double shift, double* __restrict__ values, double* __restrict__ r,
    Contribution* __restrict__ contributions, double* __restrict__ partial_sums) {
    double sums[SWEEP_SUMS] = {};
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        const Degree d = degree[v];
        const double diagonal = diagonal_of(d, loop[v], damping);
        const double residual = r[v] - shift;
        if (is_isolated(d, loop[v], in_lengths[v])) {
            step_isolated(v, values[v], residual, diagonal, values, r, contributions, sums);
            continue;
        }
        const Contribution contribution = contribution_of<Contribution>(residual, d, diagonal);
        if (shift != 0.0) r[v] = residual;
        contributions[v] = contribution;
        add_residual(sums, residual);
        sums[NEXT_RESIDUAL_SUM] += next_residual(residual, contribution, d, damping);
    }
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SWEEP_SUMS);
}

enum InDegreeSum { CONSTANT, LINEAR, EDGES };

#if !WEIGHTED
// Σ|values[v]|, the first sum. Traffic: 8 bytes a value.
__global__ void __launch_bounds__(BLOCK) sum_sizes(
    int64 count, const double* __restrict__ values, double* __restrict__ partial_sums) {
    double sums[SWEEP_SUMS] = {};
#pragma unroll 4
    for (int64 v = thread_of_grid(); v < count; v += threads_of_grid()) sums[0] += fabs(values[v]);
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SWEEP_SUMS);
}
#endif

// What (β + α·c·i) / (1 - αℓ/d), i the length of the in-list, sends to other vertices: CONSTANT·β + LINEAR·c; and the edges.
// Traffic per vertex: 9 bytes.
__global__ void __launch_bounds__(BLOCK) sum_in_degrees(
    int64 vertices, const Loop* __restrict__ loop, const Degree* __restrict__ degree, const int* __restrict__ in_lengths,
    double damping, double* __restrict__ partial_sums) {
    double sums[SWEEP_SUMS] = {};
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        const Degree d = degree[v];
        sums[EDGES] += in_lengths[v];
        if (d == 0) continue;
        const double sent = passed_on(d, loop[v], damping);
        sums[CONSTANT] += sent;
        sums[LINEAR] += sent * damping * in_lengths[v];
    }
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SWEEP_SUMS);
}

// y = 0, r = β, and the contributions of (β + α·c·i) / (1 - αℓ/d), with the c that such values send along an edge in the mean.
// in_degrees: of sum_in_degrees. Traffic per vertex: 9 bytes in, 18 out.
__global__ void __launch_bounds__(BLOCK) start_from_in_degrees(
    int64 vertices, const Loop* __restrict__ loop, const Degree* __restrict__ degree, const int* __restrict__ in_lengths,
    double damping, double rhs_scale, const double* __restrict__ in_degrees, double* __restrict__ values,
    double* __restrict__ r, Contribution* __restrict__ contributions, double* __restrict__ partial_sums) {
    double sums[SWEEP_SUMS] = {};
    const double kept = in_degrees[EDGES] - in_degrees[LINEAR];
    const double mean = kept > 0.0 ? rhs_scale * in_degrees[CONSTANT] / kept : 0.0;
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        const Degree d = degree[v];
        const double diagonal = diagonal_of(d, loop[v], damping);
        if (is_isolated(d, loop[v], in_lengths[v])) {
            const double value = rhs_scale / diagonal;
            values[v] = value;
            r[v] = 0.0;
            contributions[v] = 0;
            sums[MASS] += value;
            continue;
        }
        const double step = rhs_scale + damping * mean * in_lengths[v];
        const Contribution contribution = contribution_of<Contribution>(step, d, diagonal);
        values[v] = 0.0;
        r[v] = rhs_scale;
        contributions[v] = contribution;
        sums[RESIDUAL_L1] += rhs_scale;
        sums[RESIDUAL_SUM] += rhs_scale;
        sums[NEXT_RESIDUAL_SUM] += next_residual(rhs_scale, contribution, d, damping);
    }
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SWEEP_SUMS);
}

// y/d, and 0 where d = 0.
__global__ void __launch_bounds__(BLOCK, 4) compute_contributions(
    int64 vertices, const Degree* __restrict__ degree, const double* __restrict__ values, double* __restrict__ contributions) {
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        contributions[v] = share_of(v, values, degree);
    }
}

struct Valued {
    double value;
    Degree d;
    Loop loop;
};

__global__ void __launch_bounds__(BLOCK, WEIGHTED ? 2 : 4) compute_residual(
    RowSums rows, RowPlan plan, const Loop* __restrict__ loop, const Degree* __restrict__ degree,
    const double* __restrict__ values, const double* __restrict__ contributions, double rhs_scale, double damping,
    double* __restrict__ r, double* __restrict__ partial_sums) {
    double sums[SWEEP_SUMS] = {};
    const auto load = [&](int u) { return contributions[u]; };
    const auto read = [&](int v, bool wanted) { return wanted ? Valued{values[v], degree[v], loop[v]} : Valued{}; };
    const auto finish = [&](int v, const Valued& own, double incoming_mass) {
        const double residual = residual_of(rhs_scale, incoming_mass, own.value, own.d, own.loop, damping);
        r[v] = residual;
        add_residual(sums, residual);
    };
    sum_rows(rows, plan, load, read, finish);
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SWEEP_SUMS);
}

__global__ void __launch_bounds__(BLOCK, WEIGHTED ? 3 : 4) orthomin_image(
    RowSums rows, RowPlan plan, const Loop* __restrict__ loop, const Degree* __restrict__ degree,
    const Contribution* __restrict__ contributions, double damping, double mean, const double* __restrict__ values,
    const double* __restrict__ r, int keeps_weights, double floor, float* __restrict__ weights, int has_previous,
    const double* __restrict__ last_image, double* __restrict__ image, double* __restrict__ partial_sums) {
    double sums[SWEEP_SUMS] = {};
    const OrthominImage step = {
        rows.lists.lengths, loop, degree, contributions, damping, mean, values, r, keeps_weights != 0, floor, weights,
        has_previous != 0, last_image, image};
    const auto load = [&](int u) { return step.load(u); };
    const auto read = [&](int v, bool wanted) { return step.read(v, wanted); };
    const auto finish = [&](int v, const ImageVertex& own, double incoming_mass) { step.finish(v, own, incoming_mass, sums); };
    sum_rows(rows, plan, load, read, finish);
    write_sums<false>(sums, partial_sums + (int64)blockIdx.x * SWEEP_SUMS);
}

#if !WEIGHTED
// The same where pages.cu has formed the sums. Contributions become those that were summed, which orthomin_step then takes.
__global__ void __launch_bounds__(BLOCK) finish_image(
    int64 vertices, const Loop* __restrict__ loop, const Degree* __restrict__ degree, const int* __restrict__ row_lengths,
    const int64* __restrict__ page_sums, float unit, float scale,
    Contribution* __restrict__ contributions, double damping, double mean, const double* __restrict__ values,
    const double* __restrict__ r, int keeps_weights, double floor, float* __restrict__ weights, int has_previous,
    const double* __restrict__ last_image, double* __restrict__ image, double* __restrict__ partial_sums) {
    double sums[SWEEP_SUMS] = {};
    const OrthominImage step = {
        row_lengths, loop, degree, contributions, damping, mean, values, r, keeps_weights != 0, floor, weights,
        has_previous != 0, last_image, image};
    const PageSums incoming = {page_sums, unit, scale};
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        ImageVertex own = step.read((int)v, true);
        const unsigned short rounded = incoming.rounded(own.contribution);
        if (rounded != own.contribution) contributions[v] = own.contribution = rounded;
        step.finish((int)v, own, incoming.of(v), sums);
    }
    write_sums<false>(sums, partial_sums + (int64)blockIdx.x * SWEEP_SUMS);
}
#endif

// products: of orthomin_image.
__global__ void __launch_bounds__(BLOCK) orthomin_step(
    int64 vertices, const Loop* __restrict__ loop, const Degree* __restrict__ degree, const int* __restrict__ in_lengths,
    double damping, double mean, const double* __restrict__ products, int has_previous, const double* __restrict__ image,
    double* __restrict__ direction, double* __restrict__ last_image, double* __restrict__ values, double* __restrict__ r,
    Contribution* __restrict__ contributions, double* __restrict__ partial_sums) {
    double sums[SWEEP_SUMS] = {};
    const Coefficients coefficients(products, has_previous != 0);
    const OrthominUpdate step = {
        loop, degree, in_lengths, damping, mean, has_previous != 0, image, direction, last_image, values, r, contributions};
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK)
        step.apply(v, coefficients, sums);
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SWEEP_SUMS);
}
