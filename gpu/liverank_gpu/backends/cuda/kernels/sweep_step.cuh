// What a sweep does at one vertex: see sweep.cu.

struct SweptVertex {
    double value, residual;
    Degree d;
    Loop loop;
    bool isolated;
    Contribution contribution;
};

// Stores an isolated vertex after its step. Returns its y.
__device__ __forceinline__ double step_isolated(
    int64 v, double value, double residual, double diagonal, double* values, double* r, Contribution* contributions,
    double (&sums)[SWEEP_SUMS]) {
    const IsolatedStep next(value, residual, diagonal);
    values[v] = next.value;
    r[v] = next.residual;
    contributions[v] = 0;
    sums[RESIDUAL_L1] += fabs(next.residual);
    sums[RESIDUAL_SUM] += next.residual;
    sums[MASS] += next.value - value;
    return next.value;
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
            const double new_value =
                step_isolated(v, own.value, own.residual - shift, diagonal, values, r, new_contributions, sums);
            sums[LARGEST_STEP] = fmax(sums[LARGEST_STEP], fabs(new_value - own.value));
            return;
        }
        if (!DEFLATED && incoming_mass == 0.0 && own.residual == 0.0 && shift == 0.0) {  // most rows of a personalized vector
            new_contributions[v] = 0;
            return;
        }
        double new_value = own.value + step_of(own.contribution, own.residual, own.d);
        double step = new_value - own.value;
        double residual = damping * incoming_mass + (own.residual - diagonal * step) - shift;
        if (DEFLATED) {  // not read earlier: registers are scarce
            new_value += coefficient * z[v];
            step = new_value - own.value;
            residual -= coefficient * (z_rhs_scale - z_residual[v]);
        }
        const Contribution contribution = contribution_of(residual, own.d, diagonal);
        values[v] = new_value;
        r[v] = residual;
        new_contributions[v] = contribution;
        sums[RESIDUAL_L1] += fabs(residual);
        sums[RESIDUAL_SUM] += residual;
        sums[MASS] += step;
        sums[NEXT_RESIDUAL_SUM] += next_residual(residual, contribution, own.d, damping);
        sums[LARGEST_STEP] = fmax(sums[LARGEST_STEP], fabs(new_value - own.value));
    }
};
