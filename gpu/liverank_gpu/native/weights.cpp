// What only weighted graphs need (liverank_gpu.operations.graph: sum_weights, scale_rows), and entries of ranks that changed
// (liverank_gpu.operations.select).
#include <cmath>
#include <limits>

#include "bind.h"
#include "rows.h"

namespace {

using Weights = Span<const float>;

// The strengths of some vertices: see liverank_gpu.operations.csr.GraphView.
void sum_weights(Span<const int> vertices, Csr<Weights> csr, Span<const float> loop, Span<double> strength) {
    pool::parallel(vertices.size, 1 << 9, [&](int64 first, int64 last) {
        for (int64 place = first; place < last; ++place) {
            const int v = vertices[place];
            const double own = loop[v];
            double total = own;
            for (int64 slot = csr.row_starts[v], end = slot + csr.row_lengths[v]; slot < end;) {
                const int64 stop = std::min(slot + BLOCK, end);
                double block = 0.0;
                for (; slot < stop; ++slot) block += csr.weights[slot];
                total += block;
            }
            // a loop so heavy that it swallowed the other weights: GraphView.degree is above it
            if (csr.row_lengths[v] > 0 && total == own) total = std::nextafter(own, std::numeric_limits<double>::infinity());
            strength[v] = total;
        }
    });
}
KERNEL("sum_weights", sum_weights);

// Once in several half-lives.
void scale_rows(
    Csr<Span<float>> outgoing, Csr<Span<float>> incoming, Span<const float> factors, Span<float> loop, Span<double> strength) {
    for (int64 v = 0; v < loop.size; ++v) {
        const float factor = factors[v];
        if (factor != 1.0f) {
            for (int64 slot = outgoing.row_starts[v], end = slot + outgoing.row_lengths[v]; slot < end; ++slot)
                outgoing.weights[slot] *= factor;
            loop[v] *= factor;
            strength[v] *= factor;
        }
        for (int64 slot = incoming.row_starts[v], end = slot + incoming.row_lengths[v]; slot < end; ++slot)
            incoming.weights[slot] *= factors[incoming.column_indices[slot]];
    }
}
KERNEL("scale_rows", scale_rows);

// Not on all cores: the writer would wait for them. Returns how many changed, listed or not.
int64 list_changed(
    Span<const double> values, double mass, Span<const double> earlier, double threshold, Span<int> listed) {
    int64 found = 0;
    for (int64 position = 0; position < values.size; ++position) {
        const double before = earlier[position], change = std::fabs(values[position] / mass - before);
        if (threshold * before < change && change < std::numeric_limits<double>::infinity()) {
            if (found < listed.size) listed[found] = static_cast<int>(position);
            ++found;
        }
    }
    return found;
}
KERNEL("list_changed", list_changed);

}  // namespace
