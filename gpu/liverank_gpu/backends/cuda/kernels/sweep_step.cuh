// What a sweep and a step of Orthomin(1) do at one vertex: see sweep.cu.
#include "rows.cuh"
#include "sweeps.h"
#include "contributions.cuh"

struct SweptVertex {
    double value, residual;
    Degree d;
    Loop loop;
    bool isolated;
    Contribution contribution;
};

// Stores an isolated vertex after its step, which it returns.
__device__ __forceinline__ double step_isolated(
    int64 v, double value, double residual, double diagonal, double* values, double* r, Contribution* contributions,
    double (&sums)[SWEEP_SUMS]) {
    const Push next(value, residual, diagonal);
    values[v] = next.value;
    r[v] = next.residual;
    contributions[v] = 0;
    add_residual(sums, next.residual);
    sums[MASS] += next.step;
    return next.step;
}

// One sweep, as `sum_rows` calls it. z and z_residual are not read unless DEFLATED.
template <bool DEFLATED>
struct Sweep {
    const int* row_lengths;
    const Loop* loop;
    const Degree* degree;
    const Contribution* contributions;
    double damping, shift;
    const double* z;
    const double* z_residual;
    double z_rhs_scale, coefficient;
    double* values;
    double* r;
    Contribution* new_contributions;

    __device__ __forceinline__ double load(int u) const { return exact(contributions[u]); }

    __device__ __forceinline__ SweptVertex read(int v, bool wanted) const {
        if (!wanted) return {};
        const Degree d = degree[v];
        const Loop looping = loop[v];
        const bool isolated = is_isolated(d, looping, row_lengths[v]);
        return {values[v], r[v], d, looping, isolated, contributions[v]};
    }

    __device__ __forceinline__ void finish(
        int v, const SweptVertex& own, double incoming_mass, double (&sums)[SWEEP_SUMS]) const {
        const double diagonal = diagonal_of(own.d, own.loop, damping);
        if (own.isolated) {
            const double step =
                step_isolated(v, own.value, own.residual - shift, diagonal, values, r, new_contributions, sums);
            sums[LARGEST_STEP] = larger_of(sums[LARGEST_STEP], fabs(step));
            return;
        }
        if (!DEFLATED && incoming_mass == 0.0 && own.residual == 0.0 && shift == 0.0) {  // most rows of a personalized vector
            new_contributions[v] = 0;
            return;
        }
        SweepStep next(own.value, own.residual, own.contribution, own.d, diagonal, incoming_mass, damping, shift);
        // z is not read earlier: registers are scarce
        if (DEFLATED) next.deflate(coefficient, v, z, z_rhs_scale, z_residual);
        const Contribution contribution = contribution_of<Contribution>(next.residual, own.d, diagonal);
        values[v] = next.value;
        r[v] = next.residual;
        new_contributions[v] = contribution;
        add_residual(sums, next.residual);
        const double step = next.value - own.value;
        sums[MASS] += step;
        sums[NEXT_RESIDUAL_SUM] += next_residual(next.residual, contribution, own.d, damping);
        sums[LARGEST_STEP] = larger_of(sums[LARGEST_STEP], fabs(step));
    }
};

// ---- Orthomin(1) ----

struct ImageVertex {
    double residual, last;
    float weight;
    Degree d;
    Loop loop;
    bool isolated;
    Contribution contribution;
};

// q̂ and the inner products, as `sum_rows` calls it. keeps_weights: whether weights are read; else they are computed from y and
// written. has_previous: whether there is a q'.
struct OrthominImage {
    const int* row_lengths;
    const Loop* loop;
    const Degree* degree;
    const Contribution* contributions;
    double damping, mean;
    const double* values;
    const double* r;
    bool keeps_weights;
    double floor;
    float* weights;
    bool has_previous;
    const double* last_image;
    double* image;

    __device__ __forceinline__ double load(int u) const { return exact(contributions[u]); }

    __device__ __forceinline__ ImageVertex read(int v, bool wanted) const {
        if (!wanted) return {};
        const double last = has_previous ? last_image[v] : 0.0;
        const Degree d = degree[v];
        const Loop looping = loop[v];
        const bool isolated = is_isolated(d, looping, row_lengths[v]);
        return {r[v], last, keeps_weights ? weights[v] : 0.0f, d, looping, isolated, contributions[v]};
    }

    __device__ __forceinline__ void finish(
        int v, const ImageVertex& own, double incoming_mass, double (&sums)[SWEEP_SUMS]) const {
        const double diagonal = diagonal_of(own.d, own.loop, damping);
        if (own.isolated) {
            image[v] = 0.0;
            return;
        }
        const double here = image_of(own.contribution, own.residual, own.d, diagonal, incoming_mass, damping, mean);
        image[v] = here;
        float weight = own.weight;
        if (!keeps_weights) {
            weight = weight_of(values[v], diagonal, floor);
            weights[v] = weight;
        }
        add_products(sums, weight, here, own.last, own.residual);
    }
};

// alpha and beta; alpha is 0 if no direction is left (OrthominStep.of is the same).
struct Coefficients {
    double alpha, beta;

    __device__ __forceinline__ Coefficients(const double* products, bool has_previous) {
        // the image of the last direction can be so small that its square is 0
        beta = has_previous && products[LAST_LAST] > 0.0 ? products[NEW_LAST] / products[LAST_LAST] : 0.0;
        const double squared = products[NEW_NEW] - beta * (2.0 * products[NEW_LAST] - beta * products[LAST_LAST]);
        alpha = squared > 0.0 ? (products[NEW_R] - beta * products[LAST_R]) / squared : 0.0;
    }
};

// The step. direction and last_image: p' and q' before, if has_previous; p and q after.
struct OrthominUpdate {
    const Loop* loop;
    const Degree* degree;
    const int* in_lengths;
    double damping, mean;
    bool has_previous;
    const double* image;
    double* direction;
    double* last_image;
    double* values;
    double* r;
    Contribution* contributions;

    __device__ __forceinline__ void apply(int64 v, const Coefficients& coefficients, double (&sums)[SWEEP_SUMS]) const {
        const double alpha = coefficients.alpha, beta = coefficients.beta;
        const Degree d = degree[v];
        const double diagonal = diagonal_of(d, loop[v], damping);
        const double old_value = values[v], old_residual = r[v];
        const bool isolated = is_isolated(d, loop[v], in_lengths[v]);
        double p = isolated ? mean / diagonal : step_of(contributions[v], old_residual, d), q = image[v];
        if (has_previous) {
            p -= beta * direction[v];
            q -= beta * last_image[v];
        }
        const OrthominStep next(old_value, old_residual, p, q, alpha, diagonal);
        const Contribution contribution = isolated ? 0 : contribution_of<Contribution>(next.residual, d, diagonal);
        direction[v] = p;
        last_image[v] = q;
        values[v] = next.value;
        r[v] = next.residual;
        contributions[v] = contribution;
        add_residual(sums, next.residual);
        if (!isolated) sums[NEXT_RESIDUAL_SUM] += next_residual(next.residual, contribution, d, damping);
        add_step(sums, next.step);
    }
};
