// One step of Orthomin(1), for a y in float64: a sweep that uses the previous direction (liverank_gpu.operations.sweeps:
// orthomin_step).
//
//     δ = the step that the contributions stand for (liverank_gpu/kernels/vertex.h)
//     q̂ = (1 - αℓ/d)·δ - α·Σ contributions of the in-neighbours - mean                                 orthomin_image
//     p = δ - beta·p',  q = q̂ - beta·q',  y += alpha·p,  r -= alpha·q, and the next contributions       orthomin_step
//
// with beta = ⟨Wq̂,q'⟩ / ⟨Wq',q'⟩ and alpha = ⟨Wq,r⟩ / ⟨Wq,q⟩ from the inner products of orthomin_image, and
// W = 1 / (1 - αℓ/d) / max(y, floor). At an isolated vertex p follows the right-hand side, and q is 0.
//
// Launch: orthomin_image as rows.cuh says, orthomin_step any grid.
// Traffic: orthomin_image per edge 4 bytes of neighbour id, streamed, and one random read of 2 bytes, and 4 bytes of weight,
// streamed, if WEIGHTED; per row 16 + 5 + 2 +
// 8 (r) + 4 (weight) + 8 (q') + 8 (q̂). orthomin_step per vertex 5 + 4 + 40 in and 32 out (y, r, p, q; q̂ in).
#include "orthomin_step.cuh"

INSTANCES(add_partial_sums<false>, add_partial_sums<true>)

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
