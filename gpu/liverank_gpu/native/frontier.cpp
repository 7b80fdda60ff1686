// Sets of vertices: their expansion along edges, Jacobi steps over them (liverank_gpu.operations.residual), and the iterations
// of the published strategies, by byte arrays over all vertices as in the paper, and of the published queries, by work-lists
// (liverank_gpu.operations.published).
#include <atomic>
#include <tuple>
#include <vector>

#include "bind.h"
#include "rows.h"

namespace {

using namespace vertex;

// Several threads may set the same flag.
template <class Flag>
void set(Span<Flag> flags, uint64 v, Flag value) {
    std::atomic_ref(flags[v]).store(value, std::memory_order_relaxed);
}

template <class Kind>
void expand_forward(Span<const int> vertices, Lists<Kind> outgoing, Loops<Kind> loop, Span<int> flags) {
    pool::parallel(vertices.size, STRIPE, [&](int64 first, int64 last) {
        for (int64 place = first; place < last; ++place) {
            const int u = vertices[place];
            if (loop[u] != 0) set(flags, u, 1);
            for (int64 slot = outgoing.row_starts[u], end = slot + outgoing.row_lengths[u]; slot < end; ++slot)
                set(flags, outgoing.column_indices[slot], 1);
        }
    });
}
KERNEL("expand_forward", expand_forward<Unweighted>, expand_forward<Weighted>);

// Lists the vertices that had no flag in `fresh` and returns their number.
template <class Kind>
int64 expand_forward_few(
    Span<const int> vertices, Lists<Kind> outgoing, Loops<Kind> loop, Span<int> flags, Span<int> fresh) {
    int64 found = 0;
    const auto reach = [&](int v) {
        if (flags[v]) return;
        flags[v] = 1;
        fresh[found++] = v;
    };
    for (const int u : vertices) {
        if (loop[u] != 0) reach(u);
        for (int64 slot = outgoing.row_starts[u], end = slot + outgoing.row_lengths[u]; slot < end; ++slot)
            reach(outgoing.column_indices[slot]);
    }
    return found;
}
KERNEL("expand_forward_few", expand_forward_few<Unweighted>, expand_forward_few<Weighted>);

template <class Kind>
void expand_backward(
    Span<const int64> groups, Span<const int> order, Lists<Kind> incoming, Loops<Kind> loop, Span<const uint8> frontier,
    Span<int> flags) {
    for_each_chunk(groups, [&](int64, int64 first, int64 last) {
        for (int64 place = first; place < last; ++place) {
            const int v = order[place];
            if (flags[v]) continue;
            bool reached = loop[v] != 0 && frontier[v];
            for (int64 slot = incoming.row_starts[v], end = slot + incoming.row_lengths[v]; !reached && slot < end; ++slot)
                reached = frontier[incoming.column_indices[slot]];
            if (reached) flags[v] = 1;
        }
    });
}
KERNEL("expand_backward", expand_backward<Unweighted>, expand_backward<Weighted>);

// Returns the largest change, and the numbers of vertices that expand and that stay affected, which are listed.
template <class Kind>
std::tuple<double, int64, int64> jacobi_step(
    Span<const int64> groups, Span<const int> order, Lists<Kind> incoming, Loops<Kind> loop, Degrees<Kind> degree,
    Span<double> values, Span<double> contributions, double rhs_scale, double damping, Span<double> new_values,
    Span<int> affected, Span<uint8> expanding, double prune_tolerance, double frontier_tolerance, Span<int> expanding_rows,
    Span<int> remaining_rows) {
    std::vector<double> largest_changes(groups.size - 1);
    const Span<const double> read = values, sent = contributions;
    for_each_chunk(groups, [&](int64 chunk, int64 first, int64 last) {
        double largest = 0.0;
        for (int64 place = first; place < last; ++place) {
            const uint32 v = static_cast<uint32>(order[place]);
            const double incoming_mass = contributions.size > 0 ? row_sum(incoming, v, sent)
                                                                : divided_sum(incoming, v, read, degree);
            const double old = values[v], residual = residual_of(rhs_scale, incoming_mass, old, degree[v], loop[v], damping);
            const RankUpdate next(old, Push(old, residual, diagonal_of(degree[v], loop[v], damping)).value);
            new_values[v] = next.value;
            largest = std::max(largest, next.change);
            if (next.relative <= prune_tolerance) affected[v] = 0;
            if (next.relative > frontier_tolerance) expanding[v] = 1;
        }
        largest_changes[chunk] = largest;
    });
    int64 expand = 0, remain = 0;
    for (const int v : order) {
        values[v] = new_values[v];
        if (contributions.size > 0) contributions[v] = degree[v] > 0 ? values[v] / degree[v] : 0.0;
        if (expanding[v]) expanding_rows[expand++] = v;
        if (affected[v]) remaining_rows[remain++] = v;
        expanding[v] = 0;
    }
    double largest = 0.0;
    for (const double change : largest_changes) largest = std::max(largest, change);
    return {largest, expand, remain};
}
KERNEL("jacobi_step", jacobi_step<Unweighted>, jacobi_step<Weighted>);

// ---- published strategies ----

constexpr uint8 AFFECTED = 1, PRUNED = 2;  // liverank_gpu.operations.published
enum UpdateSum { LARGEST, LARGEST_RELATIVE, RECOMPUTED, EDGES, PRUNED_COUNT, UPDATE_SUMS };

template <class Kind>
void update_ranks(
    Span<const int64> groups, Span<const int> order, Lists<Kind> incoming, Loops<Kind> loop, Degrees<Kind> degree,
    Span<double> values, Span<const double> contributions, Span<uint8> states, Span<uint8> expanding, double rhs_scale,
    double damping, bool closed_form, double prune_tolerance, double frontier_tolerance, Span<double> sums) {
    for_each_chunk(groups, [&](int64 chunk, int64 first, int64 last) {
        double* own = sums.data + UPDATE_SUMS * chunk;
        std::fill_n(own, UPDATE_SUMS, 0.0);
        for (int64 place = first; place < last; ++place) {
            const uint32 v = static_cast<uint32>(order[place]);
            if (states.size > 0 && states[v] != AFFECTED) continue;
            const double rank = rhs_scale + damping * row_sum(incoming, v, contributions);
            const RankUpdate next(values[v], with_loop(rank, v, degree, loop, contributions, damping, closed_form));
            if (next.relative <= prune_tolerance) {
                states[v] = PRUNED;
                ++own[PRUNED_COUNT];
            }
            if (next.relative > frontier_tolerance) expanding[v] = 1;
            values[v] = next.value;
            own[LARGEST] = std::max(own[LARGEST], next.change);
            own[LARGEST_RELATIVE] = std::max(own[LARGEST_RELATIVE], next.relative);
            ++own[RECOMPUTED];
            own[EDGES] += incoming.row_lengths[v];
        }
    });
}
KERNEL("update_ranks", update_ranks<Unweighted>, update_ranks<Weighted>);

// The contributions of recomputed vertices (all if there are no states), and Σy over the dangling ones, of each stripe.
template <class Degree>
void send(
    Span<const double> values, Span<const Degree> degree, Span<const uint8> states, Span<double> contributions,
    Span<double> dangling) {
    pool::parallel(values.size, STRIPE, [&](int64 first, int64 last) {
        double total = 0.0;
        for (int64 v = first; v < last; ++v) {
            if (states.size > 0 && states[v] == 0) continue;
            contributions[v] = share_of(v, values, degree);
            if (!(degree[v] > 0)) total += values[v];
        }
        dangling[first / STRIPE] = total;
    });
}
KERNEL("send", send<int>, send<double>);

template <class Kind>
void expand_affected(Lists<Kind> outgoing, Loops<Kind> loop, Span<uint8> states, Span<uint8> expanding) {
    pool::parallel(loop.size, STRIPE, [&](int64 first, int64 last) {
        for (int64 u = first; u < last; ++u) {
            if (!expanding[u]) continue;
            expanding[u] = 0;
            if (loop[u] != 0) set(states, u, AFFECTED);
            for (int64 slot = outgoing.row_starts[u], end = slot + outgoing.row_lengths[u]; slot < end; ++slot)
                set(states, outgoing.column_indices[slot], AFFECTED);
        }
    });
}
KERNEL("expand_affected", expand_affected<Unweighted>, expand_affected<Weighted>);

// ---- the iterations of published personalized PageRank: pushes run on one core; pulls and tests on all ----

// Moves the residual of the listed vertices to y.
template <class Kind>
void take(
    Span<const int> queue, Loops<Kind> loop, Degrees<Kind> degree, Span<double> values, Span<double> r,
    Span<double> contributions, double damping) {
    for (const int u : queue) {
        const double taken = r[u];
        values[u] += taken;
        contributions[u] = vertex::sent_of(taken, degree[u], damping);
        r[u] = static_cast<double>(loop[u]) * contributions[u];
    }
}
KERNEL("take", take<Unweighted>, take<Weighted>);

// Additions and tests together. Returns the length of the next list and its out-edges.
template <class Weights>
std::tuple<int64, int64> push_in_one_pass(
    Span<const int> queue, Csr<Weights> outgoing, Span<double> r, Span<const double> contributions, double threshold,
    Span<int> next_queue, Span<int> queued) {
    int64 listed = 0, edges = 0;
    const auto test = [&](int v) {
        if (!(r[v] > threshold) || queued[v]) return;
        queued[v] = 1;
        next_queue[listed++] = v;
        edges += outgoing.row_lengths[v];
    };
    for (const int u : queue) {
        test(u);  // its loop may have left enough
        for (int64 slot = outgoing.row_starts[u], end = slot + outgoing.row_lengths[u]; slot < end; ++slot) {
            const int v = outgoing.column_indices[slot];
            r[v] += edge_amount(contributions[u], outgoing.weights, slot);
            test(v);
        }
    }
    for (int64 place = 0; place < listed; ++place) queued[next_queue[place]] = 0;
    return {listed, edges};
}
KERNEL("push_in_one_pass", push_in_one_pass<Nothing>, push_in_one_pass<Span<const float>>);

// Additions alone.
template <class Weights>
void push_listed(Span<const int> queue, Csr<Weights> outgoing, Span<double> r, Span<const double> contributions) {
    for (const int u : queue)
        for (int64 slot = outgoing.row_starts[u], end = slot + outgoing.row_lengths[u]; slot < end; ++slot)
            r[outgoing.column_indices[slot]] += edge_amount(contributions[u], outgoing.weights, slot);
}
KERNEL("push_listed", push_listed<Nothing>, push_listed<Span<const float>>);

template <class Weights>
void pull_all(
    Span<const int64> groups, Span<const int> order, Csr<Weights> incoming, Span<double> r, Span<const double> contributions) {
    for_each_chunk(groups, [&](int64, int64 first, int64 end) {
        for (int64 place = first; place < end; ++place) {
            const uint32 v = static_cast<uint32>(order[place]);
            r[v] += row_sum(incoming, v, contributions);
        }
    });
}
KERNEL("pull_all", pull_all<Nothing>, pull_all<Span<const float>>);

// Lists what is above θ: first in each stripe from the stripe's own place on. Returns how many, and their out-edges.
std::tuple<int64, int64> detect(Span<const double> r, double threshold, Span<const int> out_lengths, Span<int> queue) {
    const int64 stripes = (r.size + STRIPE - 1) / STRIPE;
    std::vector<int64> found(stripes), edges(stripes);
    pool::parallel(r.size, STRIPE, [&](int64 first, int64 last) {
        int64 at = first, out_edges = 0;
        for (int64 v = first; v < last; ++v) {
            if (!(r[v] > threshold)) continue;
            queue[at++] = static_cast<int>(v);
            out_edges += out_lengths[v];
        }
        found[first / STRIPE] = at - first;
        edges[first / STRIPE] = out_edges;
    });
    int64 listed = 0, total = 0;
    for (int64 stripe = 0; stripe < stripes; ++stripe) {
        std::copy_n(queue.data + stripe * STRIPE, found[stripe], queue.data + listed);
        listed += found[stripe];
        total += edges[stripe];
    }
    return {listed, total};
}
KERNEL("detect", detect);

}  // namespace
