// One step of Orthomin(1), for a y in float64: a sweep that uses the previous direction (gpu.operations.sweeps: orthomin_step).
//
//     δ = the step that the contributions stand for (contributions.cuh)
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

enum Product { NEW_NEW, NEW_R, NEW_LAST, LAST_LAST, LAST_R };

struct Vertex {
    double residual, last;
    float weight;
    Degree d;
    Loop loop;
    bool isolated;
    Contribution<double> contribution;
};

// keeps_weights: whether weights are read; else they are computed from y and written. has_previous: whether there is a q'.
__global__ void __launch_bounds__(BLOCK, WEIGHTED ? 3 : 4) orthomin_image(
    const int* __restrict__ order, const int64* __restrict__ row_starts, const int* __restrict__ row_lengths,
    const int* __restrict__ column_indices, const float* __restrict__ edge_weights, double* parts, int* arrived, RowPlan plan,
    const Loop* __restrict__ loop, const Degree* __restrict__ degree, const Contribution<double>* __restrict__ contributions,
    double damping, double mean, const double* __restrict__ values, const double* __restrict__ r, int keeps_weights,
    double floor, float* __restrict__ weights, int has_previous, const double* __restrict__ last_image,
    double* __restrict__ image, double* __restrict__ partial_sums) {
    double sums[SWEEP_SUMS] = {};
    const auto load = [&](int u) { return exact(contributions[u]); };
    const auto read = [&](int v, bool wanted) {
        if (!wanted) return Vertex{};
        const double last = has_previous ? last_image[v] : 0.0;
        const Degree d = degree[v];
        const Loop looping = loop[v];
        const bool isolated = is_isolated(d, looping, row_lengths[v]);
        return Vertex{r[v], last, keeps_weights ? weights[v] : 0.0f, d, looping, isolated, contributions[v]};
    };
    const auto finish = [&](int v, const Vertex& own, double incoming_mass) {
        const double diagonal = diagonal_of(own.d, own.loop, damping);
        if (own.isolated) {
            image[v] = 0.0;
            return;
        }
        const double here = diagonal * step_of(own.contribution, own.residual, own.d) - damping * incoming_mass - mean;
        image[v] = here;
        float weight = own.weight;
        if (!keeps_weights) {
            weight = 1.0f / (float)(diagonal * fmax(values[v], floor));
            weights[v] = weight;
        }
        const double weighted = weight * here;
        sums[NEW_NEW] += weighted * here;
        sums[NEW_R] += weighted * own.residual;
        sums[NEW_LAST] += weighted * own.last;
        sums[LAST_LAST] += weight * own.last * own.last;
        sums[LAST_R] += weight * own.last * own.residual;
    };
    sum_rows({order, row_starts, row_lengths, column_indices, edge_weights, parts, arrived}, plan, load, read, finish);
    write_sums<false>(sums, partial_sums + (int64)blockIdx.x * SWEEP_SUMS);
}

// products: of orthomin_image; alpha is 0 if no direction is left (OrthominStep.of is the same).
// direction and last_image: p' and q' before, if has_previous; p and q after.
__global__ void __launch_bounds__(BLOCK) orthomin_step(
    int64 vertices, const Loop* __restrict__ loop, const Degree* __restrict__ degree, const int* __restrict__ in_lengths,
    double damping, double mean, const double* __restrict__ products, int has_previous, const double* __restrict__ image,
    double* __restrict__ direction, double* __restrict__ last_image, double* __restrict__ values, double* __restrict__ r,
    Contribution<double>* __restrict__ contributions, double* __restrict__ partial_sums) {
    double sums[SWEEP_SUMS] = {};
    const double beta = has_previous ? products[NEW_LAST] / products[LAST_LAST] : 0.0;
    const double squared = products[NEW_NEW] - beta * (2.0 * products[NEW_LAST] - beta * products[LAST_LAST]);
    const double alpha = squared > 0.0 ? (products[NEW_R] - beta * products[LAST_R]) / squared : 0.0;
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        const Degree d = degree[v];
        const double diagonal = diagonal_of(d, loop[v], damping);
        const double old_value = values[v], old_residual = r[v];
        const bool isolated = is_isolated(d, loop[v], in_lengths[v]);
        double p = isolated ? mean / diagonal : step_of(contributions[v], old_residual, d), q = image[v];
        if (has_previous) {
            p -= beta * direction[v];
            q -= beta * last_image[v];
        }
        const double new_value = old_value + alpha * p;
        const double step = new_value - old_value;
        const double residual = old_residual - alpha * q + diagonal * (alpha * p - step);
        const Contribution<double> contribution = isolated ? 0 : contribution_of<double>(new_value, residual, d, diagonal);
        direction[v] = p;
        last_image[v] = q;
        values[v] = new_value;
        r[v] = residual;
        contributions[v] = contribution;
        sums[RESIDUAL_L1] += fabs(residual);
        sums[RESIDUAL_SUM] += residual;
        sums[MASS] += step;
        if (!isolated) sums[NEXT_RESIDUAL_SUM] += next_residual<double>(residual, contribution, d, damping);
        sums[LARGEST_STEP] = fmax(sums[LARGEST_STEP], fabs(step));
    }
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SWEEP_SUMS);
}
