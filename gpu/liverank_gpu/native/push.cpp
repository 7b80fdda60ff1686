// The residual under local changes: additions along out-lists, pushes, recomputation and candidates
// (liverank_gpu.operations.residual).
//
// Few additions run on one core, in order, which is fastest there. Many run on all cores without atomics: they are first written
// to buckets by target, and then each bucket is added by one core, in the order in which one core alone would add them. The
// number of buckets is fixed, so results do not depend on the number of threads.
//
// Of a push, the step Δy is what y' - y gives after rounding, and r keeps the rest.
#include <limits>
#include <memory>
#include <tuple>
#include <vector>

#include "bind.h"
#include "rows.h"

namespace {

using namespace vertex;

// Positions in Tally.sums and Tally.counts.
enum Sum { RESIDUAL_L1, RESIDUAL_SUM, MASS, MOVED, MAGNITUDE, SUMS };
enum Count { LISTED_COUNT, QUEUED_COUNT, QUEUED_EDGES, ADDITIONS, ROUNDS, VERTICES, ENTRIES, COUNTS };

// Bits of marks, and how a push ends: liverank_gpu.operations.residual.
constexpr int LISTED = 1, QUEUED = 2, SOLVE_SHIFT = 2;
enum End : int64 { GOAL, FLOOR, WORK, OUT_OF_ROUNDS };

// Fewer additions run on one core.
constexpr int64 PARALLEL_EDGES = 1 << 17;
constexpr int64 BUCKETS = 64;

// Out-edges of a work-list below which θ falls before the list is empty: near the end of a θ, mass moves to and fro between a few
// vertices for hundreds of rounds. And the rounds with such lists at the floor before the push ends.
constexpr int64 SHORT_EDGES = 1 << 11, SHORT_ROUNDS = 8;

// liverank_gpu.operations.residual
constexpr double SPARED_GROWTH = 4.0;

constexpr double INFINITE = std::numeric_limits<double>::infinity();

// What an operation counts and adds up.
struct Tally {
    int64 counts[COUNTS] = {};
    double sums[SUMS] = {};

    explicit Tally(int64 listed) { counts[LISTED_COUNT] = listed; }

    // The number of candidates, and the members of liverank_gpu.operations.residual.ResidualDelta.
    auto delta() const {
        const auto& [l1, sum, mass, moved, magnitude] = sums;
        return std::tuple(counts[LISTED_COUNT], l1, sum, mass, moved, magnitude, counts[ADDITIONS]);
    }
};
using Delta = decltype(Tally(0).delta());

// r, the marks of its vertices, and its candidates: see liverank_gpu.operations.residual.Residual.
struct Residual {
    using fields = Fields<Span<double>, Span<int>, Span<int>, int64, double>;

    Span<double> r;
    Span<int> marks;
    Span<int> candidates;
    int64 listed;
    double floor;
};

// What an addition to r may list: candidates, and the next work-list, of what is above θ·(1 + edge_weight·length).
struct WorkLists : Residual {
    Span<const int> out_lengths;
    int* queue = nullptr;  // room for as many as there are candidates
    double threshold = INFINITE, edge_weight = 0.0;

    double threshold_of(int v) const { return threshold * cost_of(edge_weight, out_lengths[v]); }
};

template <class T>
using Scratch = std::unique_ptr<T[]>;

template <class T>
Scratch<T> scratch(int64 size) {
    return Scratch<T>(new T[size]);
}

// Lists every v of `vertices` whose |r[v]| is above the floor as a candidate, and queues it if it is above its threshold. The
// queue is never longer than the candidates.
void enqueue(const int* vertices, int64 count, const WorkLists& lists, int64* counts) {
    int64 listed = counts[LISTED_COUNT], queued = counts[QUEUED_COUNT], queued_edges = counts[QUEUED_EDGES];
    for (int64 place = 0; place < count; ++place) {
        const int v = vertices[place];
        const double size = std::fabs(lists.r[v]);
        if (size <= lists.floor) continue;
        int mark = lists.marks[v];
        if (!(mark & LISTED)) {
            if (listed < lists.candidates.size) {
                lists.candidates[listed] = v;
                mark |= LISTED;
            }
            ++listed;
        }
        if (size > lists.threshold && (mark & LISTED) && !(mark & QUEUED) && size > lists.threshold_of(v)) {
            lists.queue[queued++] = v;
            queued_edges += lists.out_lengths[v];
            mark |= QUEUED;
        }
        lists.marks[v] = mark;
    }
    counts[LISTED_COUNT] = listed;
    counts[QUEUED_COUNT] = queued;
    counts[QUEUED_EDGES] = queued_edges;
}

// The number of entries of row u, or the sum of their weights.
double row_weight(const Csr<Nothing>& csr, int u) { return csr.row_lengths[u]; }
double row_weight(const Csr<Span<const float>>& csr, int u) {
    double total = 0.0;
    for (int64 slot = csr.row_starts[u], end = slot + csr.row_lengths[u]; slot < end; ++slot) total += csr.weights[slot];
    return total;
}

// Contributions of some vertices to the targets of their out-lists.
struct Sources {
    const int* vertices;
    const double* contributions;
    int64 count, edges;
};

// r[v] += contributions[i] for every v in the out-list of vertices[i], times the weight of the edge.
template <class Weights>
void scatter_in_order(const Sources& sources, const Csr<Weights>& outgoing, const WorkLists& lists, Tally& tally) {
    const auto above_floor = scratch<int>(sources.edges + 1);
    const double floor = lists.floor;
    int64 found = 0;
    double residual_l1 = 0.0, residual_sum = 0.0, moved = 0.0, magnitude = 0.0;
    for (int64 place = 0; place < sources.count; ++place) {
        const int u = sources.vertices[place];
        const double contribution = sources.contributions[place], sent = row_weight(outgoing, u);
        residual_sum += contribution * sent;
        moved += std::fabs(contribution) * sent;
        for (int64 slot = outgoing.row_starts[u], end = slot + outgoing.row_lengths[u]; slot < end; ++slot) {
            const int v = outgoing.column_indices[slot];
            const double old = lists.r[v], now = old + edge_amount(contribution, outgoing.weights, slot), size = std::fabs(now);
            lists.r[v] = now;
            residual_l1 += size - std::fabs(old);
            magnitude += size;
            above_floor[found] = v;  // without a branch, which would be unpredictable
            found += size > floor;
        }
    }
    tally.sums[RESIDUAL_L1] += residual_l1;
    tally.sums[RESIDUAL_SUM] += residual_sum;
    tally.sums[MOVED] += moved;
    tally.sums[MAGNITUDE] += magnitude;
    tally.counts[ADDITIONS] += sources.edges;
    enqueue(above_floor.get(), found, lists, tally.counts);
}

// The edges of `sources` in chunks of equal numbers, since a hub has many: visit(place, slot) for each edge of a chunk.
template <class Weights, class Visit>
void visit_chunk(
    const Sources& sources, const std::vector<int64>& ends, const Csr<Weights>& outgoing, int64 chunk, const Visit& visit) {
    int64 first = sources.edges * chunk / BUCKETS;
    const int64 last = sources.edges * (chunk + 1) / BUCKETS;
    for (auto end = std::upper_bound(ends.begin(), ends.end(), first); first < last; ++end) {
        const int64 place = end - ends.begin(), stop = std::min(last, *end);
        const int u = sources.vertices[place];
        const int64 before = *end - outgoing.row_lengths[u], start = outgoing.row_starts[u] - before;
        for (int64 slot = start + first; slot < start + stop; ++slot) visit(place, slot);
        first = stop;
    }
}

// `scatter_in_order` on all cores.
template <class Weights>
void scatter_in_buckets(const Sources& sources, const Csr<Weights>& outgoing, const WorkLists& lists, Tally& tally) {
    std::vector<int64> ends(sources.count);
    int64 end = 0;
    for (int64 place = 0; place < sources.count; ++place) ends[place] = end += outgoing.row_lengths[sources.vertices[place]];
    int shift = 0;
    while (lists.r.size > BUCKETS << shift) ++shift;
    std::vector<int64> offsets(BUCKETS * BUCKETS);  // by chunk and bucket: first sizes, then where the next addition goes
    pool::each(BUCKETS, [&](int64 chunk) {
        visit_chunk(sources, ends, outgoing, chunk, [&](int64, int64 slot) {
            ++offsets[BUCKETS * chunk + (outgoing.column_indices[slot] >> shift)];
        });
    });
    std::vector<int64> limits(BUCKETS + 1);
    int64 position = 0;
    for (int64 bucket = 0; bucket < BUCKETS; ++bucket) {
        limits[bucket] = position;
        for (int64 chunk = 0; chunk < BUCKETS; ++chunk) {
            const int64 size = offsets[BUCKETS * chunk + bucket];
            offsets[BUCKETS * chunk + bucket] = position;
            position += size;
        }
    }
    limits[BUCKETS] = position;
    const auto targets = scratch<int>(sources.edges);
    const auto amounts = scratch<double>(sources.edges);
    pool::each(BUCKETS, [&](int64 chunk) {
        visit_chunk(sources, ends, outgoing, chunk, [&](int64 place, int64 slot) {
            const int v = outgoing.column_indices[slot];
            const int64 at = offsets[BUCKETS * chunk + (v >> shift)]++;
            targets[at] = v;
            amounts[at] = edge_amount(sources.contributions[place], outgoing.weights, slot);
        });
    });
    std::vector<double> sums(BUCKETS * SUMS);
    std::vector<int64> above_floor(BUCKETS);
    pool::each(BUCKETS, [&](int64 bucket) {
        double residual_l1 = 0.0, residual_sum = 0.0, moved = 0.0, magnitude = 0.0;
        int64 found = limits[bucket];
        for (int64 at = limits[bucket]; at < limits[bucket + 1]; ++at) {
            const int v = targets[at];
            const double amount = amounts[at], old = lists.r[v], now = old + amount, size = std::fabs(now);
            lists.r[v] = now;
            residual_l1 += size - std::fabs(old);
            residual_sum += amount;
            moved += std::fabs(amount);
            magnitude += size;
            if (size > lists.floor) targets[found++] = v;  // this slot has been read already
        }
        double* own = &sums[SUMS * bucket];
        own[RESIDUAL_L1] = residual_l1;
        own[RESIDUAL_SUM] = residual_sum;
        own[MOVED] = moved;
        own[MAGNITUDE] = magnitude;
        above_floor[bucket] = found;
    });
    for (int64 bucket = 0; bucket < BUCKETS; ++bucket) {
        for (int place = 0; place < SUMS; ++place) tally.sums[place] += sums[SUMS * bucket + place];
        enqueue(&targets[limits[bucket]], above_floor[bucket] - limits[bucket], lists, tally.counts);
    }
    tally.counts[ADDITIONS] += sources.edges;
}

template <class Weights>
void scatter_rows(const Sources& sources, const Csr<Weights>& outgoing, const WorkLists& lists, Tally& tally) {
    if (sources.edges >= PARALLEL_EDGES) scatter_in_buckets(sources, outgoing, lists, tally);
    else scatter_in_order(sources, outgoing, lists, tally);
}

template <class Weights>
Delta scatter(
    Span<const int> sources, Span<const double> contributions, Span<const int> targets, Span<const double> amounts,
    Csr<Weights> outgoing, Residual residual) {
    const WorkLists lists{residual, outgoing.row_lengths};
    Tally tally(residual.listed);
    int64 edges = 0;
    for (const int u : sources) edges += outgoing.row_lengths[u];
    scatter_rows({sources.data, contributions.data, sources.size, edges}, outgoing, lists, tally);
    for (int64 place = 0; place < targets.size; ++place) {
        const int v = targets[place];
        const double amount = amounts[place], old = residual.r[v], now = old + amount, size = std::fabs(now);
        residual.r[v] = now;
        tally.sums[RESIDUAL_L1] += size - std::fabs(old);
        tally.sums[MAGNITUDE] += size;
        tally.sums[RESIDUAL_SUM] += amount;
        tally.sums[MOVED] += std::fabs(amount);
    }
    tally.counts[ADDITIONS] += targets.size;
    enqueue(targets.data, targets.size, lists, tally.counts);
    return tally.delta();
}
KERNEL("scatter", scatter<Nothing>, scatter<Span<const float>>);

// liverank_gpu.operations.graph.EdgeChanges
template <class Kind>
struct Changes {
    using fields = Fields<
        Span<const int>, Degrees<Kind>, Span<const int>, Span<const int>, Span<const int>, Span<const int>,
        typename Kind::Weights, typename Kind::Weights>;

    Span<const int> sources;
    Degrees<Kind> old_degree;
    Span<const int> removed_sources, removed_targets, added_sources, added_targets;
    typename Kind::Weights removed_weights, added_weights;

    int64 place_of(int source) const { return std::lower_bound(sources.begin(), sources.end(), source) - sources.begin(); }
};

// Makes r the residual after a batch: see liverank_gpu.operations.residual.Perturb. Nothing is done, and the
// number of candidates is -1, if that takes more than `most` additions.
template <class Kind>
Delta perturb(
    Lists<Kind> outgoing, Loops<Kind> loop, Degrees<Kind> degree, Changes<Kind> changes, Span<const double> values,
    double damping, int64 most, Residual residual) {
    int64 additions = changes.removed_targets.size + changes.added_targets.size;
    for (const int u : changes.sources) additions += outgoing.row_lengths[u] + (loop[u] != 0);
    if (additions > most) return Tally(-1).delta();

    // what an edge of weight 1 got before, and gets now; of spared sources, each edge is an addition of its own
    std::vector<double> before, after, contributions, amounts;
    std::vector<int> sources, targets;
    std::vector<bool> spared;
    std::vector<std::tuple<int, double>> loops, spared_sources;
    for (int64 place = 0; place < changes.sources.size; ++place) {
        const int u = changes.sources[place];
        const auto old_degree = changes.old_degree[place], new_degree = degree[u];
        const double flow = damping * values[u], old = old_degree > 0 ? flow / old_degree : 0.0;
        const double now = new_degree > 0 ? flow / new_degree : 0.0;
        double difference = now - old;
        bool is_spared = false;
        if constexpr (Kind::weighted) {
            // not now - old, whose rounding would be relative to these
            if (old_degree > 0 && new_degree > 0) difference = (old_degree - new_degree) / new_degree * old;
            is_spared = new_degree > SPARED_GROWTH * old_degree;
            loops.emplace_back(u, difference * loop[u]);
        } else if (loop[u] != 0) {
            loops.emplace_back(u, difference);
        }
        before.push_back(old);
        after.push_back(now);
        spared.push_back(is_spared);
        if (is_spared) {
            spared_sources.emplace_back(u, difference);
        } else {
            sources.push_back(u);
            contributions.push_back(difference);
        }
    }
    const auto add = [&](int target, double amount) {
        targets.push_back(target);
        amounts.push_back(amount);
    };
    for (int64 edge = 0; edge < changes.removed_targets.size; ++edge)
        add(changes.removed_targets[edge],
            edge_amount(-before[changes.place_of(changes.removed_sources[edge])], changes.removed_weights, edge));
    std::vector<std::tuple<int, int>> added;  // edges of spared sources
    for (int64 edge = 0; edge < changes.added_targets.size; ++edge) {
        const int u = changes.added_sources[edge], v = changes.added_targets[edge];
        const int64 place = changes.place_of(u);
        add(v, edge_amount(spared[place] ? after[place] : before[place], changes.added_weights, edge));
        if (spared[place]) added.emplace_back(u, v);
    }
    std::sort(added.begin(), added.end());
    const auto is_added = [&](int u, int v) { return std::binary_search(added.begin(), added.end(), std::tuple(u, v)); };
    for (const auto& [u, amount] : loops) add(u, is_added(u, u) ? 0.0 : amount);
    for (const auto& [u, difference] : spared_sources)
        for (int64 slot = outgoing.row_starts[u], end = slot + outgoing.row_lengths[u]; slot < end; ++slot)
            if (const int v = outgoing.column_indices[slot]; !is_added(u, v)) add(v, edge_amount(difference, outgoing.weights, slot));
    const auto span = [](const auto& values) { return Span{values.data(), static_cast<int64>(values.size())}; };
    return scatter(span(sources), span(contributions), span(targets), span(amounts), outgoing, residual);
}
KERNEL("perturb", perturb<Unweighted>, perturb<Weighted>);

// What of a graph a push reads besides its out-lists.
template <class Kind>
struct Diagonal {
    Loops<Kind> loop;
    Degrees<Kind> degree;
    double damping;

    double at(int v) const { return diagonal_of(degree[v], loop[v], damping); }
};

// Replaces the queue by the candidates above θ, drops candidates that are no longer above the floor, and returns the largest θ
// that one of the others exceeds. An r too small to change y is not queued until it has grown.
template <class Kind>
double requeue(const Diagonal<Kind>& diagonal, Span<const double> values, const WorkLists& lists, int64* counts) {
    int64 kept = 0, queued = 0, queued_edges = 0;
    double largest = 0.0;
    for (int64 place = 0; place < counts[LISTED_COUNT]; ++place) {
        const int v = lists.candidates[place];
        const double size = std::fabs(lists.r[v]);
        int mark = lists.marks[v] & ~QUEUED;
        if (size <= lists.floor) {
            lists.marks[v] = mark & ~LISTED;
            continue;
        }
        lists.candidates[kept++] = v;
        const int length = lists.out_lengths[v];
        const double scaled = size / cost_of(lists.edge_weight, length);
        if (scaled > lists.threshold) {
            if (Push(values[v], lists.r[v], diagonal.at(v)).value != values[v]) {
                mark |= QUEUED;
                lists.queue[queued++] = v;
                queued_edges += length;
            }
        } else {
            largest = std::max(largest, scaled);
        }
        lists.marks[v] = mark;
    }
    counts[LISTED_COUNT] = kept;
    counts[QUEUED_COUNT] = queued;
    counts[QUEUED_EDGES] = queued_edges;
    return largest;
}

// Moves the residual of each vertex of `queue` that is above its threshold to y. Those with out-edges are moved to the front of
// the queue, and what each contributes is written. Returns them.
template <class Kind>
Sources push_queued(
    int* queue, int solve, const Diagonal<Kind>& diagonal, Span<double> values, const WorkLists& lists, double* contributions,
    Tally& tally) {
    Sources pushed{queue, contributions, 0, 0};
    for (int64 place = 0; place < tally.counts[QUEUED_COUNT]; ++place) {
        const int u = queue[place];
        int mark = lists.marks[u] & ~QUEUED;
        const double residual = lists.r[u];
        if (std::fabs(residual) <= lists.threshold_of(u)) {
            lists.marks[u] = mark;
            continue;
        }
        if (mark >> SOLVE_SHIFT != solve) {
            mark = (mark & LISTED) | solve << SOLVE_SHIFT;
            ++tally.counts[VERTICES];
        }
        lists.marks[u] = mark;
        const Push push(values[u], residual, diagonal.at(u));
        values[u] = push.value;
        lists.r[u] = push.residual;
        tally.sums[RESIDUAL_L1] += std::fabs(push.residual) - std::fabs(residual);
        tally.sums[RESIDUAL_SUM] += push.residual - residual;
        tally.sums[MASS] += push.step;
        tally.sums[MOVED] += std::fabs(residual);
        if (const auto d = diagonal.degree[u]; d > 0) {
            queue[pushed.count] = u;
            contributions[pushed.count++] = sent_of(push.step, d, diagonal.damping);
            pushed.edges += lists.out_lengths[u];
        }
    }
    tally.counts[QUEUED_COUNT] = tally.counts[QUEUED_EDGES] = 0;
    return pushed;
}

// liverank_gpu.operations.residual.PushLimits
struct Limits {
    using fields = Fields<double, double, double, double, double, double, int64, int64, int64>;

    double residual_l1, residual_sum, mass, goal, threshold, edge_weight;
    int64 round_edges, edges, rounds;
};

// Returns how it ended, the last θ, the rounds, distinct vertices and entries of work-lists, and what changed.
template <class Kind>
auto push(
    Lists<Kind> outgoing, Loops<Kind> loop, Degrees<Kind> degree, Span<double> values, double damping, Residual residual,
    int64 solve, Limits limits) {
    Tally tally(residual.listed);
    const Diagonal<Kind> diagonal{loop, degree, damping};
    const int64 capacity = residual.candidates.size;
    const auto both_queues = scratch<int>(2 * capacity);
    const auto contributions = scratch<double>(capacity);
    int *queue = both_queues.get(), *next_queue = queue + capacity;
    WorkLists lists{residual, outgoing.row_lengths, queue, limits.threshold, limits.edge_weight};
    auto& counts = tally.counts;
    const auto& sums = tally.sums;
    double& threshold = lists.threshold;
    bool first = true, selected = false;
    int64 short_rounds = 0;
    End end;
    for (;;) {
        const double size =
            limits.residual_l1 + sums[RESIDUAL_L1] + std::fabs(limits.residual_sum + sums[RESIDUAL_SUM]);
        if (size <= limits.goal * (limits.mass + sums[MASS])) {
            end = GOAL;
            break;
        }
        if (counts[LISTED_COUNT] > capacity || counts[ADDITIONS] > limits.edges) {
            end = WORK;
            break;
        }
        const bool is_short = counts[QUEUED_EDGES] < SHORT_EDGES && !selected;
        if (is_short && counts[QUEUED_COUNT] > 0 && threshold <= residual.floor && ++short_rounds > SHORT_ROUNDS) {
            end = FLOOR;
            break;
        }
        if (counts[QUEUED_COUNT] == 0 || (is_short && threshold > residual.floor)) {
            if (!first) threshold = std::max(0.5 * threshold, residual.floor);
            first = false;
            lists.queue = queue;
            const double largest = requeue(diagonal, values, lists, counts);
            if (counts[QUEUED_COUNT] == 0) {
                if (counts[LISTED_COUNT] == 0 || threshold <= std::max(residual.floor, 0.0)) {
                    end = FLOOR;
                    break;
                }
                // nothing is above θ: it falls at once to where the next halving finds something
                threshold = std::min(threshold, 1.999 * largest);
                continue;
            }
            selected = true;
        }
        if (counts[QUEUED_EDGES] > limits.round_edges) {
            end = WORK;
            break;
        }
        if (counts[ROUNDS] == limits.rounds) {
            end = OUT_OF_ROUNDS;
            break;
        }
        ++counts[ROUNDS];
        counts[ENTRIES] += counts[QUEUED_COUNT];
        selected = false;
        lists.queue = next_queue;
        const Sources pushed = push_queued(
            queue, static_cast<int>(solve), diagonal, values, lists, contributions.get(), tally);
        scatter_rows(pushed, outgoing, lists, tally);
        std::swap(queue, next_queue);
    }
    for (int64 place = 0; place < counts[QUEUED_COUNT]; ++place) residual.marks[queue[place]] &= ~QUEUED;
    return std::tuple_cat(
        std::tuple(static_cast<int64>(end), threshold, counts[ROUNDS], counts[VERTICES], counts[ENTRIES]), tally.delta());
}
KERNEL("push", push<Unweighted>, push<Weighted>);

template <class Kind>
Delta recompute_rows(
    int64 first, int64 last, Lists<Kind> incoming, Loops<Kind> loop, Degrees<Kind> degree, Span<const double> values,
    double rhs_scale, double damping, Span<const int> out_lengths, Residual residual) {
    Tally tally(residual.listed);
    const WorkLists lists{residual, out_lengths};
    const auto above_floor = scratch<int>(last - first);
    int64 found = 0;
    for (int64 v = first; v < last; ++v) {
        const double old = residual.r[v], incoming_mass = divided_sum(incoming, v, values, degree);
        const double now = residual_of(rhs_scale, incoming_mass, values[v], degree[v], loop[v], damping), size = std::fabs(now);
        residual.r[v] = now;
        tally.sums[RESIDUAL_L1] += size - std::fabs(old);
        tally.sums[RESIDUAL_SUM] += now - old;
        tally.sums[MAGNITUDE] += size;
        if (size > residual.floor) above_floor[found++] = static_cast<int>(v);
    }
    enqueue(above_floor.get(), found, lists, tally.counts);
    return tally.delta();
}
KERNEL("recompute_rows", recompute_rows<Unweighted>, recompute_rows<Weighted>);

// Returns how many entries are above the floor.
int64 select_candidates(Span<const double> r, Span<int> marks, double floor, Span<int> candidates) {
    int64 listed = 0;
    for (int64 v = 0; v < r.size; ++v) {
        if (std::fabs(r[v]) > floor) {
            if (listed < candidates.size) candidates[listed] = static_cast<int>(v);
            ++listed;
            marks[v] |= LISTED;
        } else {
            marks[v] &= ~LISTED;
        }
    }
    return listed;
}
KERNEL("select_candidates", select_candidates);

}  // namespace
