// Several personalized vectors at once: one push of every residual of each column, as a pull
// (liverank_gpu.operations.sweeps).
#include <type_traits>

#include "bind.h"
#include "rows.h"

namespace {

using namespace vertex;

constexpr int64 SUMS = 3, MOST_COLUMNS = 32;

// Calls function with the number of columns: as a constant if it is a usual one, so that sums of a row are in registers.
template <class Function>
void with_columns(int64 columns, const Function& function) {
    switch (columns) {
        case 4: return function(std::integral_constant<int64, 4>{});
        case 8: return function(std::integral_constant<int64, 8>{});
        case 16: return function(std::integral_constant<int64, 16>{});
        case 32: return function(std::integral_constant<int64, 32>{});
        default: return function(columns);
    }
}

// The sum of the weights of a vertex's out-edges, its loop excluded.
double sent_weight(int, uint8, int out_length) { return out_length; }
double sent_weight(double degree, float loop, int) { return degree - static_cast<double>(loop); }

// values, remainder, contributions, new_contributions: [n, columns]; sums: [groups, SUMS, columns], zero
template <class Kind>
void sweep_many(
    Span<const int64> groups, Span<const int> order, Lists<Kind> incoming, Span<const int> out_lengths, Loops<Kind> loop,
    Degrees<Kind> degree, Span<const float> contributions, Span<const uint8> seeded, double damping, Deflation deflation,
    Span<const double> coefficients, Span<double> values, Span<float> remainder, Span<float> new_contributions,
    Span<double> sums) {
    const bool deflated = deflation.values.size > 0;
    with_columns(coefficients.size, [&](auto columns) {
        for_each_chunk(groups, [&](int64 chunk, int64 first, int64 last) {
            double incoming_mass[MOST_COLUMNS], block[MOST_COLUMNS];
            double* size = sums.data + SUMS * columns * chunk;
            double *sum = size + columns, *mass = sum + columns;
            for (int64 place = first; place < last; ++place) {
                const uint64 v = static_cast<uint32>(order[place]);
                if (incoming.row_lengths[v] == 0 && seeded[v] == 0) continue;
                for (int64 column = 0; column < columns; ++column) incoming_mass[column] = 0.0;
                uint64 slot = incoming.row_starts[v];
                const uint64 end = slot + incoming.row_lengths[v];
                while (slot < end) {
                    const uint64 stop = std::min<uint64>(slot + BLOCK, end);
                    for (int64 column = 0; column < columns; ++column) block[column] = 0.0;
                    for (; slot < stop; ++slot) {
                        const float* sent =
                            contributions.data + columns * static_cast<uint32>(incoming.column_indices[slot]);
                        for (int64 column = 0; column < columns; ++column)
                            block[column] += edge_amount(sent[column], incoming.weights, slot);
                    }
                    for (int64 column = 0; column < columns; ++column) incoming_mass[column] += block[column];
                }
                double value = 0.0, image = 0.0;
                if (deflated) {
                    value = deflation.values[v];
                    image = deflation.rhs_scale - deflation.residual[v];
                }
                const auto d = degree[v];
                const double diagonal = diagonal_of(d, loop[v], damping);
                const double out_weight = damping * sent_weight(d, loop[v], out_lengths[v]);
                // a division takes as long as several edges; what it rounds off remains in the residual
                const double scale = d > 0 ? 1.0 / (diagonal * d) : 0.0;
                double* y = values.data + columns * v;
                float *rest = remainder.data + columns * v, *next = new_contributions.data + columns * v;
                for (int64 column = 0; column < columns; ++column) {
                    const double residual = damping * incoming_mass[column] + rest[column] - coefficients[column] * image;
                    const float contribution = bounded(static_cast<float>(residual * scale), d);
                    const ColumnStep push(residual, contribution, d, diagonal, out_weight);
                    const double step = push.step + coefficients[column] * value;
                    next[column] = contribution;
                    y[column] += step;
                    rest[column] = static_cast<float>(push.residual);
                    size[column] += std::fabs(push.sent) + std::fabs(push.residual);
                    sum[column] += push.sent + push.residual;
                    mass[column] += step;
                }
            }
        });
    });
}
KERNEL("sweep_many", sweep_many<Unweighted>, sweep_many<Weighted>);

}  // namespace
