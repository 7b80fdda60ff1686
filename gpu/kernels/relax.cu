// One push of every residual at once, as a pull (backends/base.py, relax):
//
//     δ = share·d, share = r / (1 - αℓ/d) / d rounded (shares.cuh);  y += δ
//     r = α·Σ shares of the in-neighbours + what y could not take - shift
//
// and the next shares, in another array, since other rows still read these. The sum of the next r is known before it is
// gathered: a share arrives once for every entry of an out-list. So a shift that makes it zero needs no pass of its own.
// A vertex without edges takes r - shift at once, and keeps none (shares.cuh, alone).
//
// LEANING: a multiple of a vector whose image is known joins y, at vertices with edges: y += amount·z, r -= amount·A·z with
// A·z = base - z's own residual.
//
// Value: what y and r are stored as.
// Launch: as rows.cuh says.
// Traffic, Value double: per edge 4 bytes of neighbour id, streamed, and one random read of 2 bytes; per row 16 (order, start, length) +
// 5 (loop, degree) + 16 + 16 (y, r) + 4 (shares); where LEANING, 16 more.

enum RelaxSum { L1, SUM, TAKEN, ARRIVING, LARGEST_STEP };

template <typename Value>
struct Vertex {
    double value, residual;
    int d;
    uint8 loop;
    bool alone;
    Share<Value> share;
};

template <typename Value, bool LEANING>
__global__ void __launch_bounds__(BLOCK, 4) relax_rows(
    const int* __restrict__ order, const int64* __restrict__ start, const int* __restrict__ length,
    const int* __restrict__ pool, double* parts, int* arrived, Plan plan,
    const uint8* __restrict__ loop, const int* __restrict__ degree, const Share<Value>* __restrict__ shares,
    double damping, double shift, const double* __restrict__ known, const double* __restrict__ known_residual,
    double known_base, double amount, Value* __restrict__ values, Value* __restrict__ r,
    Share<Value>* __restrict__ new_shares, double* __restrict__ partial_sums) {
    double sums[SUMS] = {};
    const auto load = [&](int u) { return exact(shares[u]); };
    const auto read = [&](int v, bool wanted) {
        if (!wanted) return Vertex<Value>{};
        const int d = degree[v];
        const uint8 looping = loop[v];
        return Vertex<Value>{(double)values[v], (double)r[v], d, looping, is_alone(d, looping, length[v]), shares[v]};
    };
    const auto finish = [&](int v, const Vertex<Value>& own, double arriving) {
        const double leaving = leaving_of(own.d, own.loop, damping);
        if (own.alone) {
            const Alone<Value> now = alone<Value>(own.value, own.residual - shift, leaving);
            values[v] = now.value;
            r[v] = now.left;
            new_shares[v] = 0;
            sums[L1] += fabs((double)now.left);
            sums[SUM] += now.left;
            sums[TAKEN] += now.value - own.value;
            sums[LARGEST_STEP] = fmax(sums[LARGEST_STEP], change_of<Value>(own.value, now.value));
            return;
        }
        if (!LEANING && arriving == 0.0 && own.residual == 0.0 && shift == 0.0) {  // most of a graph, in a personalized walk
            new_shares[v] = 0;
            return;
        }
        Value new_value = stepped<Value>(own.value, own.residual, own.share, own.d, leaving);
        double taken = new_value - own.value;
        Value residual = (Value)(damping * arriving + (own.residual - leaving * taken) - shift);
        if (LEANING) {  // read no earlier: registers are few
            new_value += amount * known[v];
            taken = new_value - own.value;
            residual -= amount * (known_base - known_residual[v]);
        }
        const Share<Value> share = share_of<Value>(new_value, residual, own.d, leaving);
        values[v] = new_value;
        r[v] = residual;
        new_shares[v] = share;
        sums[L1] += fabs((double)residual);
        sums[SUM] += residual;
        sums[TAKEN] += taken;
        sums[ARRIVING] += sent_and_left<Value>(residual, share, own.d, damping);
        sums[LARGEST_STEP] = fmax(sums[LARGEST_STEP], change_of<Value>(own.value, new_value));
    };
    each_row({order, start, length, pool, parts, arrived}, plan, load, read, finish);
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SUMS);
}

// r[places[i]] -= amount·weights[i], at distinct places (backends/base.py, lower). Launch: any grid.
__global__ void __launch_bounds__(BLOCK) lower(
    const int* __restrict__ places, const double* __restrict__ weights, int64 count, double amount, double* __restrict__ r) {
    for (int64 i = (int64)blockIdx.x * BLOCK + threadIdx.x; i < count; i += (int64)gridDim.x * BLOCK)
        r[places[i]] -= amount * weights[i];
}

// The shares of a residual that some other operation left, and the same sums. Launch: any grid.
template <typename Value>
__global__ void __launch_bounds__(BLOCK) round_shares(
    int64 vertices, const uint8* __restrict__ loop, const int* __restrict__ degree, const int* __restrict__ length,
    double damping, double shift, Value* __restrict__ values, Value* __restrict__ r, Share<Value>* __restrict__ shares,
    double* __restrict__ partial_sums) {
    double sums[SUMS] = {};
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        const int d = degree[v];
        const double leaving = leaving_of(d, loop[v], damping);
        const double value = values[v];
        if (is_alone(d, loop[v], length[v])) {
            const Alone<Value> now = alone<Value>(value, r[v] - shift, leaving);
            values[v] = now.value;
            r[v] = now.left;
            shares[v] = 0;
            sums[L1] += fabs((double)now.left);
            sums[SUM] += now.left;
            sums[TAKEN] += now.value - value;
            continue;
        }
        const Value residual = (Value)(r[v] - shift);
        const Share<Value> share = share_of<Value>(value, residual, d, leaving);
        if (shift != 0.0) r[v] = residual;
        shares[v] = share;
        sums[L1] += fabs((double)residual);
        sums[SUM] += residual;
        sums[ARRIVING] += sent_and_left<Value>(residual, share, d, damping);
    }
    write_sums<true>(sums, partial_sums + (int64)blockIdx.x * SUMS);
}
