// A dense sweep that keeps the last direction in mind: Orthomin(1) (backends/base.py, image and descend):
//
//     z = step of the rounded shares (shares.cuh; y is float64 here)
//     q̂ = (1 - αℓ/d)·z - α·Σ shares of the in-neighbours - mean                       image_rows
//     p = z - c·p',  q = q̂ - c·q',  y += a·p,  r -= a·q, and the next shares            descend
//
// with c = <Wq̂,q'> / <Wq',q'> and a = <Wq,r> / <Wq,q> from the sums that image_rows leaves; W = 1 / (1 - αℓ/d) / max(y, floor).
// The y of a vertex without edges follows β alone: its p is what the mean asks for, and its q is 0.
//
// Launch: image_rows as rows.cuh says, descend any grid.
// Traffic: image_rows per edge 4 bytes of neighbour id, streamed, and one random read of 2 bytes; per row 16 + 5 + 2 + 8 (r) +
// 4 (weight) + 8 (q') + 8 (q̂). descend 5 + 4 + 40 in and 32 out a vertex (y, r, p, q; q̂ in).

enum ImageSum { NEW_NEW, NEW_R, NEW_LAST, LAST_LAST, LAST_R };

enum DescendSum { L1, SUM, TAKEN, ARRIVING, LARGEST_STEP };

__device__ __forceinline__ double step_of(Share<double> share, double residual, int d) {
    return d > 0 ? exact(share) * d : residual;
}

struct Vertex {
    double residual, last;
    float weight;
    int d;
    uint8 loop;
    bool alone;
    Share<double> share;
};

// weighted: whether weights are there already; they are computed from y and kept otherwise. followed: whether there is a q'.
__global__ void __launch_bounds__(BLOCK, 4) image_rows(
    const int* __restrict__ order, const int64* __restrict__ start, const int* __restrict__ length,
    const int* __restrict__ pool, double* parts, int* arrived, Plan plan,
    const uint8* __restrict__ loop, const int* __restrict__ degree, const Share<double>* __restrict__ shares,
    double damping, double mean, const double* __restrict__ values, const double* __restrict__ r,
    int weighted, double floor, float* __restrict__ weights, int followed, const double* __restrict__ last_image,
    double* __restrict__ image, double* __restrict__ partial_sums) {
    double sums[SUMS] = {};
    const auto load = [&](int u) { return exact(shares[u]); };
    const auto read = [&](int v, bool wanted) {
        if (!wanted) return Vertex{};
        const double last = followed ? last_image[v] : 0.0;
        const int d = degree[v];
        const uint8 looping = loop[v];
        const bool alone = is_alone(d, looping, length[v]);
        return Vertex{r[v], last, weighted ? weights[v] : 0.0f, d, looping, alone, shares[v]};
    };
    const auto finish = [&](int v, const Vertex& own, double arriving) {
        const double leaving = leaving_of(own.d, own.loop, damping);
        if (own.alone) {
            image[v] = 0.0;
            return;
        }
        const double here = leaving * step_of(own.share, own.residual, own.d) - damping * arriving - mean;
        image[v] = here;
        float weight = own.weight;
        if (!weighted) {
            weight = 1.0f / (float)(leaving * fmax(values[v], floor));
            weights[v] = weight;
        }
        const double weighted_here = weight * here;
        sums[NEW_NEW] += weighted_here * here;
        sums[NEW_R] += weighted_here * own.residual;
        sums[NEW_LAST] += weighted_here * own.last;
        sums[LAST_LAST] += weight * own.last * own.last;
        sums[LAST_R] += weight * own.last * own.residual;
    };
    each_row({order, start, length, pool, parts, arrived}, plan, load, read, finish);
    write_sums<false>(sums, partial_sums + (int64)blockIdx.x * SUMS);
}

// products: what image_rows summed up. Where no direction is left the step is 0.
// direction and last_image: p' and q' come in, where there are any (followed), p and q go out.
__global__ void __launch_bounds__(BLOCK) descend(
    int64 vertices, const uint8* __restrict__ loop, const int* __restrict__ degree, const int* __restrict__ length,
    double damping, double mean, const double* __restrict__ products, int followed, const double* __restrict__ image,
    double* __restrict__ direction, double* __restrict__ last_image, double* __restrict__ values, double* __restrict__ r,
    Share<double>* __restrict__ shares, double* __restrict__ partial_sums) {
    double sums[SUMS] = {};
    const double mixed = followed ? products[NEW_LAST] / products[LAST_LAST] : 0.0;
    const double squared = products[NEW_NEW] - mixed * (2.0 * products[NEW_LAST] - mixed * products[LAST_LAST]);
    const double size = squared > 0.0 ? (products[NEW_R] - mixed * products[LAST_R]) / squared : 0.0;
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        const int d = degree[v];
        const double leaving = leaving_of(d, loop[v], damping);
        const double old_value = values[v], old_residual = r[v];
        const bool alone = is_alone(d, loop[v], length[v]);
        double p = alone ? mean / leaving : step_of(shares[v], old_residual, d), q = image[v];
        if (followed) {
            p -= mixed * direction[v];
            q -= mixed * last_image[v];
        }
        const double new_value = old_value + size * p;
        const double taken = new_value - old_value;
        const double residual = old_residual - size * q + leaving * (size * p - taken);
        const Share<double> share = alone ? 0 : share_of<double>(new_value, residual, d, leaving);
        direction[v] = p;
        last_image[v] = q;
        values[v] = new_value;
        r[v] = residual;
        shares[v] = share;
        sums[L1] += fabs(residual);
        sums[SUM] += residual;
        sums[TAKEN] += taken;
        if (!alone) sums[ARRIVING] += sent_and_left<double>(residual, share, d, damping);
        sums[LARGEST_STEP] = fmax(sums[LARGEST_STEP], fabs(taken));
    }
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SUMS);
}
