// Dense sweeps, of one vector and of several: liverank_gpu.operations.sweeps. Each operation has one row of sums for every chunk
// or stripe, and adds them up in order.
#include <tuple>
#include <type_traits>
#include <vector>

#include "../kernels/sweeps.h"
#include "bind.h"
#include "rows.h"

namespace {

using namespace vertex;

constexpr int SUMS = SWEEP_SUM_COUNT;

using SweepResult = std::tuple<double, double, double, double, double>;

// Rows of sums, of as many chunks or stripes.
struct SweepSums {
    std::vector<double> rows;
    double* data;

    explicit SweepSums(int64 count) : rows(SUMS * count), data(rows.data()) {}

    operator Span<double>() { return {data, static_cast<int64>(rows.size())}; }

    SweepResult total() const {
        double own[SUMS] = {};
        for (std::size_t place = 0; place < rows.size(); place += SUMS) {
            for (int each = 0; each < LARGEST_STEP; ++each) own[each] += rows[place + each];
            own[LARGEST_STEP] = std::max(own[LARGEST_STEP], rows[place + LARGEST_STEP]);
        }
        return {own[RESIDUAL_L1], own[RESIDUAL_SUM], own[MASS], own[NEXT_RESIDUAL_SUM], own[LARGEST_STEP]};
    }
};

int64 stripes(int64 vertices) { return (vertices + STRIPE - 1) / STRIPE; }

// Vertices of a block that is summed after it was changed, while it is in the fastest cache.
constexpr int64 VECTORISED = 256;

template <class Kind>
std::tuple<double, double> compute_residual(
    Span<const int64> groups, Span<const int> order, Lists<Kind> incoming, Loops<Kind> loop, Degrees<Kind> degree,
    Span<const double> values, Span<const double> contributions, double rhs_scale, double damping, Span<double> residuals) {
    std::vector<double> sums(2 * (groups.size - 1));
    for_each_chunk(groups, [&](int64 chunk, int64 place, int64 end) {
        double residual_l1 = 0.0, residual_sum = 0.0;
        while (place < end) {
            const int64 stop = std::min(place + BLOCK, end);
            double block_l1 = 0.0, block_sum = 0.0;
            for (; place < stop; ++place) {
                const uint32 v = static_cast<uint32>(order[place]);
                const double incoming_mass = row_sum(incoming, v, contributions);
                const double residual = residual_of(rhs_scale, incoming_mass, values[v], degree[v], loop[v], damping);
                residuals[v] = residual;
                block_l1 += std::fabs(residual);
                block_sum += residual;
            }
            residual_l1 += block_l1;
            residual_sum += block_sum;
        }
        sums[2 * chunk] = residual_l1;
        sums[2 * chunk + 1] = residual_sum;
    });
    double residual_l1 = 0.0, residual_sum = 0.0;
    for (std::size_t place = 0; place < sums.size(); place += 2) {
        residual_l1 += sums[place];
        residual_sum += sums[place + 1];
    }
    return {residual_l1, residual_sum};
}
KERNEL("compute_residual", compute_residual<Unweighted>, compute_residual<Weighted>);

template <class Kind>
SweepResult sweep(
    Span<const int64> groups, Span<const int> order, Lists<Kind> incoming, Loops<Kind> loop, Degrees<Kind> degree,
    Span<const float> contributions, double damping, double shift, Deflation deflation, double coefficient, float fresh,
    float kept, Span<double> values, Span<double> r, Span<float> new_contributions) {
    SweepSums sums(groups.size - 1);
    const bool deflated = deflation.values.size > 0;
    pull<SUMS>(groups, order, incoming, contributions, sums, [&](uint32 v, double incoming_mass, double* own) {
        const auto d = degree[v];
        const double diagonal = diagonal_of(d, loop[v], damping), old = values[v], before = r[v];
        if (is_isolated(d, loop[v], incoming.row_lengths[v])) {
            const Push next(old, before - shift, diagonal);
            values[v] = next.value;
            r[v] = next.residual;
            new_contributions[v] = 0.0f;
            add_residual(own, next.residual);
            add_step(own, next.step);
            return;
        }
        SweepStep next(old, before, contributions[v], d, diagonal, incoming_mass, damping, shift);
        if (deflated) next.deflate(coefficient, v, deflation.values, deflation.rhs_scale, deflation.residual);
        // of a weighted graph, the sum of both is rounded when it is stored
        std::conditional_t<Kind::weighted, double, float> contribution = contribution_of<float>(next.residual, d, diagonal);
        if (kept != 0.0f) contribution = bounded(fresh * contribution + kept * contributions[v], d);
        values[v] = next.value;
        r[v] = next.residual;
        new_contributions[v] = static_cast<float>(contribution);
        add_residual(own, next.residual);
        add_step(own, next.value - old);
        own[NEXT_RESIDUAL_SUM] += next_residual(next.residual, contribution, d, damping);
    });
    return sums.total();
}
KERNEL("sweep", sweep<Unweighted>, sweep<Weighted>);

// q̂ = A·δ - mean, and the inner products in the order of OrthominStep.of.
template <class Kind>
void orthomin_image(
    Span<const int64> groups, Span<const int> order, Lists<Kind> incoming, Loops<Kind> loop, Degrees<Kind> degree,
    Span<const float> contributions, double damping, double mean, Span<const double> values, Span<const double> r, double floor,
    bool has_previous, Span<float> weights, Span<const double> last_image, Span<double> image, Span<double> products) {
    pull<PRODUCTS>(groups, order, incoming, contributions, products, [&](uint32 v, double incoming_mass, double* own) {
        const auto d = degree[v];
        const double diagonal = diagonal_of(d, loop[v], damping);
        if (is_isolated(d, loop[v], incoming.row_lengths[v])) {
            image[v] = 0.0;
            return;
        }
        const double here = image_of(contributions[v], r[v], d, diagonal, incoming_mass, damping, mean);
        image[v] = here;
        if (floor > 0.0) weights[v] = weight_of(values[v], diagonal, floor);
        add_products(own, weights[v], here, has_previous ? last_image[v] : 0.0, r[v]);
    });
}
KERNEL("orthomin_image", orthomin_image<Unweighted>, orthomin_image<Weighted>);

template <class Kind>
SweepResult quantize_contributions(
    Span<const int> in_lengths, Loops<Kind> loop, Degrees<Kind> degree, double damping, double shift, Span<double> values,
    Span<double> r, Span<float> contributions) {
    SweepSums sums(stripes(degree.size));
    pool::parallel(degree.size, STRIPE, [&](int64 first, int64 last) {
        double own[SUMS] = {};
        for (int64 v = first; v < last; ++v) {
            const auto d = degree[v];
            const double diagonal = diagonal_of(d, loop[v], damping), old = values[v];
            if (is_isolated(d, loop[v], in_lengths[v])) {
                const Push next(old, r[v] - shift, diagonal);
                values[v] = next.value;
                r[v] = next.residual;
                contributions[v] = 0.0f;
                add_residual(own, next.residual);
                own[MASS] += next.step;
                continue;
            }
            const double residual = r[v] - shift;
            r[v] = residual;
            contributions[v] = contribution_of<float>(residual, d, diagonal);
            add_residual(own, residual);
            own[NEXT_RESIDUAL_SUM] += next_residual(residual, contributions[v], d, damping);
        }
        std::copy_n(own, SUMS, sums.data + SUMS * (first / STRIPE));
    });
    return sums.total();
}
KERNEL("quantize_contributions", quantize_contributions<Unweighted>, quantize_contributions<Weighted>);

void subtract_at(Span<double> residual, Span<const int> places, Span<const double> weights, double amount) {
    for (int64 index = 0; index < places.size; ++index) residual[places[index]] -= amount * weights[index];
}
KERNEL("subtract_at", subtract_at);

// p = δ - β·p', q = q̂ - β·q', y += α·p, r -= α·q, and the contributions of the new r; Δy in place of q̂. A block is changed first
// and summed then: in one loop with the sums, which have to keep their order, nothing would be vectorised.
template <class Kind>
SweepResult orthomin_step(
    Span<const int> in_lengths, Loops<Kind> loop, Degrees<Kind> degree, double damping, double mean, double alpha, double beta,
    bool has_previous, Span<double> image, Span<double> direction, Span<double> last_image, Span<double> values, Span<double> r,
    Span<float> contributions) {
    SweepSums sums(stripes(degree.size));
    pool::parallel(degree.size, STRIPE, [&](int64 first_of_stripe, int64 last) {
        double own[SUMS] = {};
        for (int64 first = first_of_stripe; first < last; first += VECTORISED) {
            const int64 end = std::min(first + VECTORISED, last);
            for (int64 v = first; v < end; ++v) {
                const auto d = degree[v];
                const double diagonal = diagonal_of(d, loop[v], damping);
                const bool isolated = is_isolated(d, loop[v], in_lengths[v]);
                const double sent = step_of(contributions[v], r[v], d);
                // without a previous step both arrays are uninitialised, and may hold NaN
                const double kept = has_previous ? beta * direction[v] : 0.0;
                const double kept_image = has_previous ? beta * last_image[v] : 0.0;
                const double p = (isolated ? mean / diagonal : sent) - kept, q = image[v] - kept_image;
                const OrthominStep next(values[v], r[v], p, q, alpha, diagonal);
                direction[v] = p;
                last_image[v] = q;
                values[v] = next.value;
                r[v] = next.residual;
                image[v] = next.step;
                contributions[v] = isolated ? 0.0f : contribution_of<float>(next.residual, d, diagonal);
            }
            for (int64 v = first; v < end; ++v) {
                add_residual(own, r[v]);
                add_step(own, image[v]);
                if (!is_isolated(degree[v], loop[v], in_lengths[v]))
                    own[NEXT_RESIDUAL_SUM] += next_residual(r[v], contributions[v], degree[v], damping);
            }
        }
        std::copy_n(own, SUMS, sums.data + SUMS * ((last - 1) / STRIPE));
    });
    return sums.total();
}
KERNEL("orthomin_step", orthomin_step<Unweighted>, orthomin_step<Weighted>);

// The start from in-degrees (liverank_gpu.pagerank.sweeps): what (β + α·c·i) / (1 - αℓ/d) sends to other vertices, of β and of
// c; and the edges.
template <class Kind>
void sum_in_degrees(Span<const int> in_lengths, Loops<Kind> loop, Degrees<Kind> degree, double damping, Span<double> sums) {
    pool::parallel(degree.size, STRIPE, [&](int64 first, int64 last) {
        double constant = 0.0, linear = 0.0, edges = 0.0;
        for (int64 v = first; v < last; ++v) {
            const auto d = degree[v];
            edges += in_lengths[v];
            if (d > 0) {
                const double sent = passed_on(d, loop[v], damping);
                constant += sent;
                linear += sent * damping * in_lengths[v];
            }
        }
        double* own = sums.data + SUMS * (first / STRIPE);
        own[0] = constant;
        own[1] = linear;
        own[2] = edges;
    });
}
KERNEL("sum_in_degrees", sum_in_degrees<Unweighted>, sum_in_degrees<Weighted>);

template <class Kind>
SweepResult start_from_in_degrees(
    Span<const int> in_lengths, Loops<Kind> loop, Degrees<Kind> degree, double damping, double rhs_scale, double mean,
    Span<double> values, Span<double> r, Span<float> contributions) {
    SweepSums sums(stripes(degree.size));
    pool::parallel(degree.size, STRIPE, [&](int64 first, int64 last) {
        double residual_sum = 0.0, mass = 0.0, next_residual_sum = 0.0;
        for (int64 v = first; v < last; ++v) {
            const auto d = degree[v];
            const double diagonal = diagonal_of(d, loop[v], damping);
            if (is_isolated(d, loop[v], in_lengths[v])) {
                values[v] = rhs_scale / diagonal;
                r[v] = 0.0;
                contributions[v] = 0.0f;
                mass += values[v];
                continue;
            }
            values[v] = 0.0;
            r[v] = rhs_scale;
            contributions[v] = contribution_of<float>(rhs_scale + damping * mean * in_lengths[v], d, diagonal);
            residual_sum += rhs_scale;
            next_residual_sum += next_residual(rhs_scale, contributions[v], d, damping);
        }
        double* own = sums.data + SUMS * (first / STRIPE);
        own[RESIDUAL_L1] = own[RESIDUAL_SUM] = residual_sum;
        own[MASS] = mass;
        own[NEXT_RESIDUAL_SUM] = next_residual_sum;
    });
    return sums.total();
}
KERNEL("start_from_in_degrees", start_from_in_degrees<Unweighted>, start_from_in_degrees<Weighted>);

// ---- several personalized vectors at once: one push of every residual of each column, as a pull ----

constexpr int64 COLUMN_SUMS = 3, MOST_COLUMNS = 32;

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

// values, remainder, contributions, new_contributions: [n, columns]; sums: [groups, COLUMN_SUMS, columns], zero
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
            double* size = sums.data + COLUMN_SUMS * columns * chunk;
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
