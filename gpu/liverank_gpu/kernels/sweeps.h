// What a dense sweep and a step of Orthomin(1) do at one vertex, for both backends (liverank_gpu.operations.sweeps: Sweep,
// OrthominUpdate).
#pragma once
#include "vertex.h"

namespace vertex {

// liverank_gpu.operations.sweeps.SweepResult
enum SweepSum { RESIDUAL_L1, RESIDUAL_SUM, MASS, NEXT_RESIDUAL_SUM, LARGEST_STEP, SWEEP_SUM_COUNT };

ON_DEVICE void add_residual(double* sums, double residual) {
    sums[RESIDUAL_L1] += fabs(residual);
    sums[RESIDUAL_SUM] += residual;
}

ON_DEVICE void add_step(double* sums, double step) {
    sums[MASS] += step;
    sums[LARGEST_STEP] = larger_of(sums[LARGEST_STEP], fabs(step));
}

// A push of the residual, as a pull:
//
//     δ = contribution·d,  y += δ
//     r = α·Σ contributions of the in-neighbours + (r - (1 - αℓ/d)·δ) - shift
struct SweepStep {
    double value, residual;

    template <class Contribution, class Degree>
    ON_DEVICE SweepStep(
        double old_value, double old_residual, Contribution contribution, Degree degree, double diagonal, double incoming_mass,
        double damping, double shift)
        : value(old_value + step_of(contribution, old_residual, degree)),
          residual(damping * incoming_mass + (old_residual - diagonal * (value - old_value)) - shift) {}

    // y += coefficient·z, r -= coefficient·A·z, with A·z = rhs_scale - residual of z
    template <class Index, class Values>
    ON_DEVICE void deflate(double coefficient, Index v, const Values& z, double rhs_scale, const Values& z_residual) {
        value += coefficient * z[v];
        residual -= coefficient * (rhs_scale - z_residual[v]);
    }
};

// The part of a step that goes to other vertices: (1 - ℓ/d) / (1 - αℓ/d) = (d - ℓ) / (d - αℓ). Not for dangling vertices.
template <class Degree, class Loop>
ON_DEVICE double passed_on(Degree degree, Loop loop, double damping) {
    // without a loop there would be a division for 1
    return loop != 0 ? ((double)degree - loop) / (degree - damping * loop) : 1.0;
}

// ---- Orthomin(1) ----

// Inner products, weighted by W = 1 / (1 - αℓ/d) / max(y, floor): of the image of the step and of the previous one.
enum Product { NEW_NEW, NEW_R, NEW_LAST, LAST_LAST, LAST_R, PRODUCTS };

ON_DEVICE float weight_of(double value, double diagonal, double floor) {
    return (float)(1.0 / (diagonal * larger_of(value, floor)));
}

// q̂ = (1 - αℓ/d)·δ - α·Σ contributions of the in-neighbours - mean
template <class Contribution, class Degree>
ON_DEVICE double image_of(
    Contribution contribution, double residual, Degree degree, double diagonal, double incoming_mass, double damping,
    double mean) {
    return diagonal * step_of(contribution, residual, degree) - damping * incoming_mass - mean;
}

// last: q' of the previous step, 0 if there is none.
ON_DEVICE void add_products(double* sums, float weight, double image, double last, double residual) {
    const double weighted = weight * image;
    sums[NEW_NEW] += weighted * image;
    sums[NEW_R] += weighted * residual;
    sums[NEW_LAST] += weighted * last;
    sums[LAST_LAST] += weight * last * last;
    sums[LAST_R] += weight * last * residual;
}

// y += alpha·p, r -= alpha·q, and what rounding of y leaves stays in r.
struct OrthominStep {
    double value, step, residual;

    ON_DEVICE OrthominStep(
        double old_value, double old_residual, double direction, double image, double alpha, double diagonal)
        : value(old_value + alpha * direction), step(value - old_value),
          residual(old_residual - alpha * image + diagonal * (alpha * direction - step)) {}
};

}  // namespace vertex
