// The iterations of published personalized PageRank (liverank_gpu.operations.published). Pushes run on one core; pulls and
// tests on all.
#include <tuple>
#include <vector>

#include "bind.h"
#include "rows.h"

namespace {

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
