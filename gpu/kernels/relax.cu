// One push of every residual at once, as a pull (backends/base.py, relax):
//
//     δ = share·d, share = r / (1 - αℓ/d) / d rounded (shares.cuh);  y += δ
//     r = α·Σ shares of the in-neighbours + what y could not take - shift
//
// and the next shares, in another array, since other rows still read these. The sum of the next r is known before it is
// gathered: a share arrives once for every entry of an out-list. So a shift that makes it zero needs no pass of its own.
//
// Launch: as rows.cuh says.
// Traffic: per edge 4 bytes of neighbour id, streamed, and one random read of 2 bytes; per row 16 (order, start, length) +
// 5 (loop, degree) + 16 + 16 (y, r) + 4 (shares).

enum RelaxSum { L1, SUM, TAKEN, ARRIVING, LARGEST_STEP };

struct Vertex {
    double value, residual;
    int d;
    uint8 loop;
    Share share;
};

__global__ void __launch_bounds__(BLOCK, 4) relax_rows(
    const int* __restrict__ order, const int64* __restrict__ start, const int* __restrict__ length,
    const int* __restrict__ pool, double* parts, int* arrived, Plan plan,
    const uint8* __restrict__ loop, const int* __restrict__ degree, const Share* __restrict__ shares,
    double damping, double shift, double* __restrict__ values, double* __restrict__ r, Share* __restrict__ new_shares,
    double* __restrict__ partial_sums) {
    double sums[SUMS] = {};
    const auto load = [&](int u) { return exact(shares[u]); };
    const auto read = [&](int v, bool wanted) {
        return wanted ? Vertex{values[v], r[v], degree[v], loop[v], shares[v]} : Vertex{};
    };
    const auto finish = [&](int v, const Vertex& own, double arriving) {
        const double leaving = leaving_of(own.d, own.loop, damping);
        const double new_value = own.value + step_of(own.share, own.residual, own.d);
        const double taken = new_value - own.value;
        const double residual = damping * arriving + (own.residual - leaving * taken) - shift;
        const Share share = share_of(residual, own.d, leaving);
        values[v] = new_value;
        r[v] = residual;
        new_shares[v] = share;
        sums[L1] += fabs(residual);
        sums[SUM] += residual;
        sums[TAKEN] += taken;
        sums[ARRIVING] += sent_and_left(share, residual, own.d, own.loop, leaving, damping);
        sums[LARGEST_STEP] = fmax(sums[LARGEST_STEP], fabs(taken));
    };
    each_row({order, start, length, pool, parts, arrived}, plan, load, read, finish);
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SUMS);
}

// The shares of a residual that some other operation left, and the same sums. Launch: any grid.
__global__ void __launch_bounds__(BLOCK) round_shares(
    int64 vertices, const uint8* __restrict__ loop, const int* __restrict__ degree, double damping, double shift,
    double* __restrict__ r, Share* __restrict__ shares, double* __restrict__ partial_sums) {
    double sums[SUMS] = {};
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        const int d = degree[v];
        const double leaving = leaving_of(d, loop[v], damping);
        const double residual = r[v] - shift;
        const Share share = share_of(residual, d, leaving);
        if (shift != 0.0) r[v] = residual;
        shares[v] = share;
        sums[L1] += fabs(residual);
        sums[SUM] += residual;
        sums[ARRIVING] += sent_and_left(share, residual, d, loop[v], leaving, damping);
    }
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SUMS);
}
