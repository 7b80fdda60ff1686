// What a sweep does at one vertex: see sweep.cu.
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
