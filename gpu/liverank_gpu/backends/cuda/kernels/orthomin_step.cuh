// What a step of Orthomin(1) does at one vertex: see orthomin.cu.
#include "rows.cuh"
#include "sweeps.h"
#include "contributions.cuh"

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
