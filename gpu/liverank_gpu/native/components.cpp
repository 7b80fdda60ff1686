// Strongly connected components: finding them, and solving them in topological order (liverank_gpu.operations.analysis).
//
// Inside a component: Gauss-Seidel sweeps, accelerated by Anderson's method with a window of 2 (Walker and Ni, "Anderson
// Acceleration for Fixed-Point Iterations", 2011). The vertices of a large component are divided into chunks. A chunk uses its own
// new values and the last values of the others, so chunks can be swept at once, and results do not depend on the number of
// threads.
#include <limits>
#include <memory>
#include <tuple>
#include <vector>

#include "bind.h"
#include "rows.h"

namespace {

using namespace vertex;

// Looks at one edge of each of about `samples` vertices. Returns how many there are, and of how many the opposite edge exists.
template <class Weights>
std::tuple<int64, int64> count_reciprocal(Csr<Weights> outgoing, Csr<Weights> incoming, int64 most) {
    const int64 vertices = outgoing.row_lengths.size, samples = std::min(most, vertices);
    int64 seen = 0, reciprocal = 0;
    for (int64 sample = 0; sample < samples; ++sample) {
        const int v = static_cast<int>(sample * vertices / samples);
        const int64 length = outgoing.row_lengths[v];
        if (length == 0) continue;
        const int w = outgoing.column_indices[outgoing.row_starts[v] + sample % length];
        ++seen;
        // the edge w → v is in two lists
        const bool by_in_list = incoming.row_lengths[v] < outgoing.row_lengths[w];
        const Csr<Weights>& lists = by_in_list ? incoming : outgoing;
        const int row = by_in_list ? v : w, other = by_in_list ? w : v;
        const int* begin = lists.column_indices.data + lists.row_starts[row];
        const int* end = begin + lists.row_lengths[row];
        reciprocal += std::find(begin, end, other) != end;
    }
    return {seen, reciprocal};
}
KERNEL("count_reciprocal", count_reciprocal<Nothing>, count_reciprocal<Span<const float>>);

// Pearce, "An Improved Algorithm for Finding the Strongly Connected Components of a Directed Graph" (2005), without recursion.
// `component`, 0 before, receives the number of the component of each vertex: numbers end at n and ascend in topological order.
// Returns how many components there are.
int64 number_components(
    Span<const int64> row_starts, Span<const int> row_lengths, Span<const int> column_indices, Span<int> component) {
    const int64 vertices = component.size;
    // from the front the path to the current vertex, from the back what waits for its component
    const std::unique_ptr<int[]> stack(new int[vertices]), indices(new int[vertices]);
    const std::unique_ptr<int64[]> slots(new int64[vertices]);
    int64 waiting = vertices, depth;
    int index = 0, number = static_cast<int>(vertices);
    const auto enter = [&](int v) {
        stack[depth] = v;
        slots[depth] = row_starts[v];
        indices[depth] = component[v] = ++index;
    };
    for (int root = 0; root < vertices; ++root) {
        if (component[root] != 0) continue;
        depth = 0;
        enter(root);
        while (depth >= 0) {
            const int v = stack[depth];
            int lowest = component[v], found = -1;
            int64 slot = slots[depth];
            for (const int64 end = row_starts[v] + row_lengths[v]; slot < end; ++slot) {
                const int w = column_indices[slot], reached = component[w];
                if (reached == 0) {
                    found = w;
                    break;
                }
                lowest = std::min(lowest, reached);
            }
            component[v] = lowest;
            if (found >= 0) {
                slots[depth] = slot;  // this slot is read again on the way back
                ++depth;
                enter(found);
                continue;
            }
            if (lowest == indices[depth]) {
                --index;
                for (; waiting < vertices && component[stack[waiting]] >= lowest; ++waiting, --index)
                    component[stack[waiting]] = number;
                component[v] = number--;
            } else {
                stack[--waiting] = v;
            }
            --depth;
        }
    }
    return vertices - number;
}
KERNEL("number_components", number_components);

// Sorts the vertices by component, ascending inside each: component as `number_components` left it, first zero before. Returns
// the in-edges of components with a cycle, those of the one that has most, and the size of the largest.
std::tuple<int64, int64, int64> order_by_component(
    Span<const int> component, Span<const int> in_lengths, Span<int64> first, Span<int> order) {
    const int64 count = first.size - 1;
    const int64 smallest = component.size - count + 1;
    for (const int each : component) ++first[each - smallest + 1];
    for (int64 i = 0; i < count; ++i) first[i + 1] += first[i];
    std::vector<int64> at(first.begin(), first.end() - 1);
    for (int64 v = 0; v < component.size; ++v) order[at[component[v] - smallest]++] = static_cast<int>(v);
    int64 cyclic_edges = 0, largest_edges = 0, largest_size = 0;
    for (int64 i = 0; i < count; ++i) {
        const int64 size = first[i + 1] - first[i];
        if (size == 1) continue;
        int64 edges = 0;
        for (int64 place = first[i]; place < first[i + 1]; ++place) edges += in_lengths[order[place]];
        cyclic_edges += edges;
        largest_edges = std::max(largest_edges, edges);
        largest_size = std::max(largest_size, size);
    }
    return {cyclic_edges, largest_edges, largest_size};
}
KERNEL("order_by_component", order_by_component);

// ---- solving ----

// Chunks of a component: more could use more cores, but would take more sweeps. And in-edges of a chunk, at least.
constexpr int64 MOST_CHUNKS = 16, CHUNK_EDGES = 1 << 14;

// Sums of a sweep over a chunk: Σ|Δy|, Σy and max |Δy|; and with f the steps, d₁ = f - f' and d₂ = f' - f'', the products of d₁
// and d₂ with each other and with f.
enum Sum { STEP_L1, MASS, LARGEST_STEP, NEW_NEW, NEW_LAST, LAST_LAST, NEW_STEP, LAST_STEP, SUMS };

// One component as a graph of its own, with room for the largest.
template <class Kind>
struct Local {
    using Slots = std::unique_ptr<double[]>;

    int64 bounds[MOST_CHUNKS + 1];
    double sums[MOST_CHUNKS][SUMS];
    std::unique_ptr<int64[]> starts;        // rows of `indices`
    std::unique_ptr<int[]> lengths, indices;  // indices are places in `contributions`
    std::unique_ptr<float[]> weights;
    Slots rhs;                // β + α·Σ contributions from outside
    Slots diagonal, inverse;  // 1 - αℓ/d, and 1/d or 0
    Slots values;             // y
    Slots contributions;      // y/d as it is, and behind that as it was before the sweep
    Slots steps[3], targets[3];  // Δy and y of the last three sweeps, before they are accelerated

    Local(int64 size, int64 edges)
        : starts(new int64[size]), lengths(new int[size]), indices(new int[edges]),
          weights(Kind::weighted ? new float[edges] : nullptr), rhs(new double[size]), diagonal(new double[size]),
          inverse(new double[size]), values(new double[size]), contributions(new double[2 * size]) {
        for (int sweep = 0; sweep < 3; ++sweep) {
            steps[sweep].reset(new double[size]);
            targets[sweep].reset(new double[size]);
        }
    }

    double term(int64 slot) const {
        const double contribution = contributions[indices[slot]];
        if constexpr (Kind::weighted) return contribution * static_cast<double>(weights[slot]);
        else return contribution;
    }

    // Divides order[begin … begin + size] into chunks of about equal numbers of in-edges, of which it may use as many slots.
    // Returns how many chunks there are.
    int64 divide(const int* order, int64 size, Span<const int> in_lengths) {
        int64 slots = 0;
        for (int64 i = 0; i < size; ++i) {
            starts[i] = slots;
            slots += in_lengths[order[i]];
        }
        const int64 chunks = std::min(std::max<int64>(slots / CHUNK_EDGES, 1), MOST_CHUNKS);
        int64 chunk = 0;
        for (int64 i = 0; i < size; ++i)
            while (chunk < chunks && starts[i] * chunks >= chunk * slots) bounds[chunk++] = i;
        while (chunk <= chunks) bounds[chunk++] = size;
        return chunks;
    }

    // One Gauss-Seidel sweep over a chunk. history: how many of the sweeps before count.
    void sweep(int64 chunk, int64 number, int64 history, double damping) {
        double *now = steps[number % 3].get(), *last = steps[(number + 2) % 3].get(), *before = steps[(number + 1) % 3].get();
        double own[SUMS] = {};
        for (int64 i = bounds[chunk]; i < bounds[chunk + 1]; ++i) {
            int64 slot = starts[i];
            const int64 end = slot + lengths[i];
            double first = 0.0, second = 0.0;
            for (; slot + 2 <= end; slot += 2) {
                first += term(slot);
                second += term(slot + 1);
            }
            if (slot < end) first += term(slot);
            const double value = (rhs[i] + damping * (first + second)) / diagonal[i], step = value - values[i];
            values[i] = value;
            contributions[i] = value * inverse[i];
            now[i] = step;
            own[STEP_L1] += std::fabs(step);
            own[MASS] += value;
            own[LARGEST_STEP] = std::max(own[LARGEST_STEP], std::fabs(step));
            if (history == 0) continue;
            const double new_difference = step - last[i], weighted = new_difference / value;
            own[NEW_NEW] += weighted * new_difference;
            own[NEW_STEP] += weighted * step;
            if (history == 1) continue;
            const double old_difference = last[i] - before[i];
            own[NEW_LAST] += weighted * old_difference;
            own[LAST_LAST] += old_difference * old_difference / value;
            own[LAST_STEP] += old_difference * step / value;
        }
        std::copy_n(own, SUMS, sums[chunk]);
    }

    // y ← T(y) - a·(T(y) - T(y')) - b·(T(y') - T(y'')), with T(y) what the last sweep left.
    void mix(int64 chunk, int64 size, int64 number, int64 history, double new_part, double old_part, double least) {
        double *now = targets[number % 3].get(), *last = targets[(number + 2) % 3].get(),
               *before = targets[(number + 1) % 3].get();
        for (int64 i = bounds[chunk]; i < bounds[chunk + 1]; ++i) {
            double value = values[i];
            now[i] = value;
            if (history > 0) {
                double mixed = value - new_part * (value - last[i]);
                if (history > 1) mixed -= old_part * (last[i] - before[i]);
                value = std::max(mixed, least);
                values[i] = value;
                contributions[i] = value * inverse[i];
            }
            contributions[size + i] = contributions[i];
        }
    }
};

// The parts of the last two differences that minimise the weighted step.
std::tuple<double, double> mixture(const double* sums, int64 history) {
    if (history == 0 || !(sums[NEW_NEW] > 0.0)) return {0.0, 0.0};
    const double new_new = sums[NEW_NEW], new_last = sums[NEW_LAST], last_last = sums[LAST_LAST];
    const double new_step = sums[NEW_STEP], last_step = sums[LAST_STEP];
    const double determinant = new_new * last_last - new_last * new_last;
    if (history > 1 && determinant > 1e-12 * new_new * last_last)
        return {(new_step * last_last - last_step * new_last) / determinant,
                (new_new * last_step - new_last * new_step) / determinant};
    return {new_step / new_new, 0.0};
}

// Sweeps over an extracted component until it is solved. Returns the number of sweeps.
template <class Kind>
int64 iterate(
    Local<Kind>& local, int64 size, int64 chunks, double rhs_scale, double damping, double residual_goal, double largest_step,
    int64 most) {
    int64 history = 0;
    double last = std::numeric_limits<double>::infinity();
    double* sums = local.sums[0];
    for (int64 number = 0; number < most; ++number) {
        pool::each(chunks, [&](int64 chunk) { local.sweep(chunk, number, history, damping); });
        for (int64 chunk = 1; chunk < chunks; ++chunk) {
            const double largest = std::max(sums[LARGEST_STEP], local.sums[chunk][LARGEST_STEP]);
            for (int sum = 0; sum < SUMS; ++sum) sums[sum] += local.sums[chunk][sum];
            sums[LARGEST_STEP] = largest;
        }
        const double step = sums[STEP_L1];
        if (damping * step <= residual_goal * sums[MASS] || sums[LARGEST_STEP] <= largest_step) return number + 1;
        // a sweep that gains less than it must follows a mixture that did not help
        const bool plain = step > damping * last;
        last = step;
        if (plain) history = 0;
        const auto [new_part, old_part] = mixture(sums, history);
        pool::each(chunks, [&, a = new_part, b = old_part](int64 chunk) {
            local.mix(chunk, size, number, history, a, b, rhs_scale);
        });
        if (!plain) history = std::min<int64>(history + 1, 2);
    }
    return most;
}

// Returns the most sweeps over a component, and the edges read.
template <class Kind>
std::tuple<int64, int64> solve_components(
    Span<const int> order, Span<const int64> first, int64 largest_size, int64 largest_edges, Lists<Kind> incoming,
    Loops<Kind> loop, Degrees<Kind> degree, double rhs_scale, double damping, double residual_goal, double largest_step,
    int64 most_sweeps, Span<double> values, Span<double> contributions) {
    const std::unique_ptr<int[]> places(new int[order.size]);  // of each vertex in `order`
    for (int64 place = 0; place < order.size; ++place) places[order[place]] = static_cast<int>(place);
    Local<Kind> local(largest_size, largest_edges);
    int64 most = 0, edges = 0;
    for (int64 component = 0; component + 1 < first.size; ++component) {
        const int64 begin = first[component], size = first[component + 1] - begin;
        if (size == 1) {
            const uint32 v = static_cast<uint32>(order[begin]);
            const auto d = degree[v];
            const double mass = rhs_scale + damping * row_sum(incoming, v, Span<const double>(contributions));
            values[v] = mass / diagonal_of(d, loop[v], damping);
            contributions[v] = share_of(v, values, degree);
            edges += incoming.row_lengths[v];
            continue;
        }
        const int* members = order.data + begin;
        const int64 chunks = local.divide(members, size, incoming.row_lengths);
        pool::each(chunks, [&](int64 chunk) {
            const int64 low = local.bounds[chunk], high = local.bounds[chunk + 1];
            for (int64 i = low; i < high; ++i) {
                const uint32 v = static_cast<uint32>(members[i]);
                double outside = 0.0;
                int64 to = local.starts[i];
                for (int64 slot = incoming.row_starts[v], end = slot + incoming.row_lengths[v]; slot < end; ++slot) {
                    const int u = incoming.column_indices[slot];
                    const int64 place = places[u] - begin;
                    if (place < 0 || place >= size) {
                        outside += edge_amount(contributions[u], incoming.weights, slot);
                        continue;
                    }
                    local.indices[to] = static_cast<int>(low <= place && place < high ? place : place + size);
                    if constexpr (Kind::weighted) local.weights[to] = incoming.weights[slot];
                    ++to;
                }
                const auto d = degree[v];
                local.lengths[i] = static_cast<int>(to - local.starts[i]);
                local.rhs[i] = rhs_scale + damping * outside;
                local.diagonal[i] = diagonal_of(d, loop[v], damping);
                local.inverse[i] = d > 0 ? 1.0 / d : 0.0;
                local.values[i] = values[v];
                local.contributions[i] = local.contributions[size + i] = values[v] * local.inverse[i];
            }
        });
        int64 inner = 0;
        for (int64 i = 0; i < size; ++i) {
            inner += local.lengths[i];
            edges += incoming.row_lengths[members[i]];
        }
        const int64 sweeps = iterate(local, size, chunks, rhs_scale, damping, residual_goal, largest_step, most_sweeps);
        most = std::max(most, sweeps);
        edges += sweeps * inner;
        pool::each(chunks, [&](int64 chunk) {
            for (int64 i = local.bounds[chunk]; i < local.bounds[chunk + 1]; ++i) {
                values[members[i]] = local.values[i];
                contributions[members[i]] = local.contributions[i];
            }
        });
    }
    return {most, edges};
}
KERNEL("solve_components", solve_components<Unweighted>, solve_components<Weighted>);

}  // namespace
