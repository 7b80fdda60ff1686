// What a sweep does at one vertex: see sweep.cu.

template <typename Value>
struct SweptVertex {
    double value, residual;
    Degree d;
    Loop loop;
    bool isolated;
    Contribution<Value> contribution;
};

// Stores an isolated vertex after its step. Returns its y.
template <typename Value>
__device__ __forceinline__ double step_isolated(
    int64 v, double value, double residual, double diagonal, Value* values, Value* r, Contribution<Value>* contributions,
    double (&sums)[SWEEP_SUMS]) {
    const IsolatedStep<Value> next(value, residual, diagonal);
    values[v] = next.value;
    r[v] = next.residual;
    contributions[v] = 0;
    sums[RESIDUAL_L1] += fabs((double)next.residual);
    sums[RESIDUAL_SUM] += next.residual;
    sums[MASS] += next.value - value;
    return next.value;
}

// One sweep, as `sum_rows` calls it. z and z_residual are not read unless DEFLATED.
template <typename Value, bool DEFLATED>
struct Sweep {
    const int* row_lengths;
    const Loop* loop;
    const Degree* degree;
    const Contribution<Value>* contributions;
    double damping, shift;
    const double* z;
    const double* z_residual;
    double z_rhs_scale, coefficient;
    Value* values;
    Value* r;
    Contribution<Value>* new_contributions;

    __device__ __forceinline__ double load(int u) const { return exact(contributions[u]); }

    __device__ __forceinline__ SweptVertex<Value> read(int v, bool wanted) const {
        if (!wanted) return {};
        const Degree d = degree[v];
        const Loop looping = loop[v];
        const bool isolated = is_isolated(d, looping, row_lengths[v]);
        return {(double)values[v], (double)r[v], d, looping, isolated, contributions[v]};
    }

    __device__ __forceinline__ void finish(
        int v, const SweptVertex<Value>& own, double incoming_mass, double (&sums)[SWEEP_SUMS]) const {
        const double diagonal = diagonal_of(own.d, own.loop, damping);
        if (own.isolated) {
            const double new_value =
                step_isolated(v, own.value, own.residual - shift, diagonal, values, r, new_contributions, sums);
            sums[LARGEST_STEP] = fmax(sums[LARGEST_STEP], change_of<Value>(own.value, new_value));
            return;
        }
        if (!DEFLATED && incoming_mass == 0.0 && own.residual == 0.0 && shift == 0.0) {  // most rows of a personalized vector
            new_contributions[v] = 0;
            return;
        }
        Value new_value = next_value<Value>(own.value, own.residual, own.contribution, own.d, diagonal);
        double step = new_value - own.value;
        Value residual = (Value)(damping * incoming_mass + (own.residual - diagonal * step) - shift);
        if (DEFLATED) {  // not read earlier: registers are scarce
            new_value += coefficient * z[v];
            step = new_value - own.value;
            residual -= coefficient * (z_rhs_scale - z_residual[v]);
        }
        const Contribution<Value> contribution = contribution_of<Value>(new_value, residual, own.d, diagonal);
        values[v] = new_value;
        r[v] = residual;
        new_contributions[v] = contribution;
        sums[RESIDUAL_L1] += fabs((double)residual);
        sums[RESIDUAL_SUM] += residual;
        sums[MASS] += step;
        sums[NEXT_RESIDUAL_SUM] += next_residual<Value>(residual, contribution, own.d, damping);
        sums[LARGEST_STEP] = fmax(sums[LARGEST_STEP], change_of<Value>(own.value, new_value));
    }
};
