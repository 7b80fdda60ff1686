// What a batch changes in one direction of a graph, found, planned and applied: the steps of batch.cu, on the same arrays
// (liverank_gpu.operations.graph).
//
// The named rows are read, and rows that move are copied, on all cores, which share them by work. The other steps go along the
// sorted batch, which is cheaper than its sort.
#include "batch.h"

#include <bit>
#include <tuple>
#include <utility>

#include "bind.h"
#include "rows.h"

namespace {

// liverank_gpu.operations.graph.COUNTERS
enum Counter {
    EDGES, ROWS, INSERTED, DELETED, REMOVED, ADDED, CHANGED, NEEDED, MOST, GROWTH, EMPTIED, MISBINNED, OVERFLOWED, LONGEST,
    HOLES, REWEIGHTED, EXCEEDED, CONNECTED
};

constexpr int LOOP_REWEIGHTED = 2;
constexpr int64 LAST_PLACE = int64{1} << 62;

// Edges of a row up to which each is compared with all entries, instead of a search per entry; and entries that are compared
// with an edge before the result is tested.
constexpr int FEW_EDGES = 8, STRIP = 256;

// liverank_gpu.operations.graph.BatchPlan, without the arrays that the GPU alone has: parts of its blocks.
template <class Kind>
struct Plan {
    using Floats = typename Kind::MutableWeights;
    using Ints = Span<int>;
    using Longs = Span<int64>;
    using fields = Fields<Longs, Ints, Span<signed char>, Floats, Longs>;

    Longs counters, row_work, move_work, new_start, opposite;
    Ints edge_operation, edge_neighbour, edge_row, edge_slot;
    Ints row_edge, row_vertex, row_removed, row_added;
    Ints removed_row, removed_neighbour, removed_slot;
    Ints added_row, added_neighbour;
    Ints new_length, changed_row;
    Span<signed char> row_loop;
    Floats removed_weights, added_weights, opposite_weights, filler_weights;

    Plan(Longs longs, Ints ints, Span<signed char> chars, Floats floats, Longs counts) : counters(counts), row_loop(chars) {
        const auto cut = [size = chars.size](auto block, auto&... parts) { ((parts = {block.data, size}, block.data += size), ...); };
        cut(longs, row_work, move_work, new_start, opposite);
        cut(ints, edge_operation, edge_neighbour, edge_row, edge_slot, row_edge, row_vertex, row_removed, row_added, removed_row,
            removed_neighbour, removed_slot, added_row, added_neighbour, new_length, changed_row);
        if constexpr (Kind::weighted) cut(floats, removed_weights, added_weights, opposite_weights, filler_weights);
    }
};

template <class Id>
void pack_keys(
    Span<const Id> sources, Span<const Id> targets, int64 operation, int64 vertices, Span<const int> positions,
    Span<int64> keys) {
    pool::parallel(keys.size, ITEMS, [&](int64 first, int64 last) {
        for (int64 edge = first; edge < last; ++edge) {
            int64 source = sources[edge], target = targets[edge];
            if (source < 0 || source >= vertices || target < 0 || target >= vertices) {
                keys[edge] = NO_KEY;
                continue;
            }
            if (source < positions.size) source = positions[source];
            if (target < positions.size) target = positions[target];
            keys[edge] = source << 32 | target << 1 | operation;
        }
    });
}
KERNEL("pack_keys", pack_keys<int>, pack_keys<int64>);

// ---- resolve ----

// Lists the distinct edges and rows of sorted keys. Returns the units of work to read these rows: a row and each of its entries,
// unless all its edges are known to be absent.
template <class Kind>
int64 find_rows(Span<const int64> keys, bool inserts_absent, Span<const int> row_lengths, const Plan<Kind>& plan) {
    int64 edges = 0, rows = 0, work = 0, unread = 0, operations = 0, before = -1;
    for (int64 at = 0; at < keys.size; ++at) {
        plan.opposite[at] = NO_KEY;
        const int64 key = keys[at];
        if (key == NO_KEY) continue;
        operations = at + 1;
        if (key >> 32 != before >> 32) {
            const int64 vertex = row_of(key);
            plan.row_edge[rows] = static_cast<int>(edges);
            plan.row_vertex[rows] = static_cast<int>(vertex);
            plan.row_loop[rows] = 0;
            plan.row_work[rows] = work++;
            unread = vertex < row_lengths.size ? row_lengths[vertex] : 0;
            ++rows;
        }
        if (!inserts_absent || !inserts(key)) work += std::exchange(unread, 0);
        if (key >> 1 != before >> 1) {
            plan.edge_operation[edges] = static_cast<int>(at);
            plan.edge_neighbour[edges] = neighbour_of(key);
            plan.edge_row[edges] = static_cast<int>(rows - 1);
            plan.edge_slot[edges] = -1;
            ++edges;
        }
        before = key;
    }
    plan.edge_operation[edges] = static_cast<int>(operations);
    plan.row_edge[rows] = static_cast<int>(edges);
    plan.row_work[rows] = work;
    plan.counters[EDGES] = edges;
    plan.counters[ROWS] = rows;
    return work;
}

int64 index_of(int neighbour, const int* entries, int64 count) {
    for (int64 first = 0; first < count; first += STRIP) {
        const int64 last = std::min<int64>(first + STRIP, count);
        // this loop has no exit, so that it is vectorised
        int found = 0;
        for (int64 slot = first; slot < last; ++slot) found |= entries[slot] == neighbour;
        if (found) return std::find(entries + first, entries + last, neighbour) - entries;
    }
    return -1;
}

// The row that a unit of work belongs to; `work` has the units before each of `rows` rows.
int64 row_at(const Span<int64>& work, int64 rows, int64 unit) {
    return std::upper_bound(work.data, work.data + rows, unit) - work.data - 1;
}

// A set of neighbours, and of some others: few of these while it has up to 4,096, and all where it would have too many.
class Filter {
    static constexpr int WIDTH = 16;
    static constexpr int64 MANY = 1 << WIDTH;
    uint64 words[(1 << WIDTH) / 64];
    int shift;

    // the highest bits of a product by the golden ratio
    uint64 bit_of(int neighbour) const { return static_cast<uint32>(neighbour) * 0x9E3779B97F4A7C15u >> shift; }

  public:
    Filter(const int* first, const int* end) {
        const int width = std::clamp<int>(std::bit_width(static_cast<uint64>(end - first)) + 4, 6, WIDTH);
        shift = 64 - width;
        if (end - first > MANY) {
            std::fill_n(words, MANY / 64, ~uint64{0});
            return;
        }
        std::fill_n(words, (1 << width) / 64, 0);
        for (; first < end; ++first) words[bit_of(*first) / 64] |= uint64{1} << bit_of(*first) % 64;
    }

    bool may_have(int neighbour) const { return words[bit_of(neighbour) / 64] >> bit_of(neighbour) % 64 & 1; }
};

// Finds the slots of the named edges.
template <class Kind>
void locate(int64 work, const Lists<Kind>& csr, const Plan<Kind>& plan) {
    const int64 rows = plan.counters[ROWS];
    pool::parallel(work, UNITS, [&](int64 first, int64 last) {
        for (int64 row = row_at(plan.row_work, rows, first); plan.row_work[row] < last; ++row) {
            const int64 base = plan.row_work[row] + 1, first_edge = plan.row_edge[row], last_edge = plan.row_edge[row + 1];
            const int64 from = std::max<int64>(0, first - base), to = std::min(plan.row_work[row + 1], last) - base;
            if (from >= to) continue;
            const int* entries = csr.column_indices.data + csr.row_starts[plan.row_vertex[row]];
            if (last_edge - first_edge <= FEW_EDGES) {
                for (int64 edge = first_edge; edge < last_edge; ++edge) {
                    const int64 index = index_of(plan.edge_neighbour[edge], entries + from, to - from);
                    if (index >= 0) plan.edge_slot[edge] = static_cast<int>(from + index);
                }
                continue;
            }
            const int *named = plan.edge_neighbour.data + first_edge, *end = plan.edge_neighbour.data + last_edge;
            const Filter filter(named, end);
            for (int64 slot = from; slot < to; ++slot) {
                if (!filter.may_have(entries[slot])) continue;
                const int* found = std::lower_bound(named, end, entries[slot]);
                if (found < end && *found == entries[slot]) plan.edge_slot[first_edge + (found - named)] = static_cast<int>(slot);
            }
        }
    });
}

// Lists the removed and the added edges, and their keys for the transpose.
template <class Kind>
void decide(
    Span<const int64> keys, typename Kind::Weights weights, Loops<Kind> loop, bool fixed_loops, bool directed, bool adds,
    const Lists<Kind>& csr, const Plan<Kind>& plan) {
    const Span<int64>& counters = plan.counters;
    int removals = 0, additions = 0;
    for (int64 edge = 0; edge < counters[EDGES]; ++edge) {
        const int row = plan.edge_row[edge], vertex = plan.row_vertex[row], neighbour = plan.edge_neighbour[edge];
        if (plan.row_edge[row] == edge) {
            plan.row_removed[row] = removals;
            plan.row_added[row] = additions;
        }
        const bool is_loop = vertex == neighbour;
        if (is_loop && fixed_loops) continue;
        int64 first = plan.edge_operation[edge];
        const int64 last = plan.edge_operation[edge + 1];
        const bool is_deleted = !inserts(keys[first]), is_inserted = inserts(keys[last - 1]);
        const bool present = is_loop ? vertex < loop.size && loop[vertex] != 0 : plan.edge_slot[edge] >= 0;
        const bool counted = directed || vertex <= neighbour;
        if (counted && present && is_deleted) ++counters[DELETED];
        if (counted && is_inserted && (is_deleted || !present)) ++counters[INSERTED];
        bool removed = present && is_deleted && !is_inserted, added = is_inserted && !present;
        [[maybe_unused]] double weight_before = 0.0, weight_after = 0.0;
        if constexpr (Kind::weighted) {
            if (present)
                weight_before = is_loop ? loop[vertex] : csr.weights[csr.row_starts[vertex] + plan.edge_slot[edge]];
            weight_after = is_deleted ? 0.0 : weight_before;
            if (is_inserted) {
                while (!inserts(keys[first])) ++first;
                weight_after = summed_weight(weights, first, last, weight_after, adds);
                if (std::isinf(weight_after) && counters[EXCEEDED] == 0) counters[EXCEEDED] = LAST_PLACE - last;
                if (counted && present && !is_deleted && weight_after != weight_before) ++counters[REWEIGHTED];
            }
            removed = present && weight_after != weight_before;
            added = weight_after > 0.0 && weight_after != weight_before;
        }
        if (!removed && !added) continue;
        if (is_loop) {
            plan.row_loop[row] = removed && added ? LOOP_REWEIGHTED : added ? 1 : -1;
        } else if constexpr (Kind::weighted) {
            // an edge with another weight is counted twice
            plan.opposite[edge] = key_of(neighbour, vertex, added);
            plan.opposite_weights[edge] = static_cast<float>(weight_after);
        } else {
            plan.opposite[removals + additions] = key_of(neighbour, vertex, added);
        }
        if (removed) {
            plan.removed_row[removals] = row;
            plan.removed_neighbour[removals] = neighbour;
            plan.removed_slot[removals] = plan.edge_slot[edge];
            if constexpr (Kind::weighted) plan.removed_weights[removals] = static_cast<float>(weight_before);
            ++removals;
        }
        if (added) {
            plan.added_row[additions] = row;
            plan.added_neighbour[additions] = neighbour;
            if constexpr (Kind::weighted) plan.added_weights[additions] = static_cast<float>(weight_after);
            ++additions;
        }
    }
    const int64 rows = counters[ROWS];
    plan.row_removed[rows] = removals;
    plan.row_added[rows] = additions;
    counters[REMOVED] = removals;
    counters[ADDED] = additions;
}

// inserts_absent: whether all insertions are of edges that are absent.
template <class Kind>
void resolve_update(
    Span<const int64> keys, typename Kind::Weights weights, Loops<Kind> loop, bool fixed_loops, bool directed, bool adds,
    bool inserts_absent, Lists<Kind> csr, Plan<Kind> plan) {
    locate(find_rows(keys, inserts_absent, csr.row_lengths, plan), csr, plan);
    decide(keys, weights, loop, fixed_loops, directed, adds, csr, plan);
}
KERNEL("resolve_update", resolve_update<Unweighted>, resolve_update<Weighted>);

// ---- plan ----

bool loses_loop(int change) { return change < 0 || change == LOOP_REWEIGHTED; }

// A row's vertex, change of its loop, and numbers of entries removed and added.
struct RowChange {
    int vertex, loop, removed, added;

    template <class Kind>
    RowChange(const Plan<Kind>& plan, int64 row)
        : vertex(plan.row_vertex[row]),
          loop(plan.row_loop[row]),
          removed(plan.row_removed[row + 1] - plan.row_removed[row] - loses_loop(loop)),
          added(plan.row_added[row + 1] - plan.row_added[row] - (loop > 0)) {}
};

template <class Kind>
void plan_rows(Span<const int> row_lengths, Span<const int> capacities, Plan<Kind> plan) {
    const Span<int64>& counters = plan.counters;
    const int64 rows = counters[ROWS];
    int64 work = 0;
    for (int64 row = 0; row < rows; ++row) {
        const RowChange change(plan, row);
        const bool known = change.vertex < row_lengths.size;
        const int64 before = known ? row_lengths[change.vertex] : 0, after = before + change.added - change.removed;
        plan.new_length[row] = static_cast<int>(after);
        plan.move_work[row] = work;
        ++work;
        if (after > (known ? capacities[change.vertex] : 0)) {
            plan.new_start[row] = counters[NEEDED];
            counters[NEEDED] += roomy_slots(after);
            work += before;
        } else {
            plan.new_start[row] = -1;
        }
        if (change.removed != 0 || change.added != 0 || change.loop != 0)
            plan.changed_row[counters[CHANGED]++] = static_cast<int>(row);
        if (change.added > change.removed) counters[MOST] += roomy_slots(after);
        else counters[EMPTIED] += change.removed - change.added;
        counters[GROWTH] += packed_slots(after) - packed_slots(before);
        // chunks have equal work, so what counts is by how much that changes
        counters[MISBINNED] += std::abs(after - before);
        counters[LONGEST] = std::max(counters[LONGEST], after);
    }
    plan.move_work[rows] = work;
}
KERNEL("plan_rows", plan_rows<Unweighted>, plan_rows<Weighted>);

// Counts by how many vertices those with an edge other than a loop become more. The rows of both plans ascend.
template <class Kind>
void count_connected(Span<const int> out_lengths, Span<const int> in_lengths, Plan<Kind> out, Plan<Kind> in) {
    const int64 out_rows = out.counters[ROWS], in_rows = in.counters[ROWS];
    int64 more = 0;
    for (int64 out_row = 0, in_row = 0; out_row < out_rows || in_row < in_rows;) {
        const int last = std::numeric_limits<int>::max();
        const int out_vertex = out_row < out_rows ? out.row_vertex[out_row] : last;
        const int in_vertex = in_row < in_rows ? in.row_vertex[in_row] : last;
        const int vertex = std::min(out_vertex, in_vertex);
        const int64 before = vertex < out_lengths.size ? int64{out_lengths[vertex]} + in_lengths[vertex] : 0;
        int64 after = before;
        for (const auto& [plan, own, row] : {std::tuple{&out, out_vertex, &out_row}, std::tuple{&in, in_vertex, &in_row}}) {
            if (own != vertex) continue;
            const RowChange change(*plan, (*row)++);
            after += change.added - change.removed;
        }
        more += (after > 0) - (before > 0);
    }
    out.counters[CONNECTED] = more;
}
KERNEL("count_connected", count_connected<Unweighted>, count_connected<Weighted>);

// ---- apply ----

// What the out-lists report: liverank_gpu.operations.graph.EdgeChanges. Empty arrays for the in-lists.
template <class Kind>
struct Changes {
    using Floats = typename Kind::MutableWeights;
    using fields = Fields<
        Span<int>, Span<typename Kind::Degree>, Span<int>, Span<int>, Span<int>, Span<int>, Floats, Floats>;

    Span<int> sources;
    Span<typename Kind::Degree> old_degree;
    Span<int> removed_sources, removed_targets, added_sources, added_targets;
    Floats removed_weights, added_weights;
};

template <class Kind>
using MutableLists = MutableCsr<typename Kind::MutableWeights>;

// Copies the rows that outgrow their capacity behind slot `end`.
template <class Kind>
void move_rows(int64 end, const MutableLists<Kind>& csr, const Plan<Kind>& plan) {
    const int64 rows = plan.counters[ROWS];
    pool::parallel(plan.move_work[rows], UNITS, [&](int64 first, int64 last) {
        for (int64 row = row_at(plan.move_work, rows, first); plan.move_work[row] < last; ++row) {
            if (plan.new_start[row] < 0) continue;
            const int vertex = plan.row_vertex[row];
            const int64 base = plan.move_work[row] + 1, from = std::max<int64>(0, first - base);
            const int64 count = std::min<int64>(csr.row_lengths[vertex], last - base) - from;
            const int64 source = csr.row_starts[vertex] + from, target = end + plan.new_start[row] + from;
            if (count <= 0) continue;
            std::copy_n(csr.column_indices.data + source, count, csr.column_indices.data + target);
            if constexpr (Kind::weighted) std::copy_n(csr.weights.data + source, count, csr.weights.data + target);
        }
    });
}

// Writes the additions, and -1 into the slots of removed entries that none of them takes. For the out-lists also updates loops
// and lists the ends and weights of the changed edges.
template <class Kind>
void place_changes(
    bool outgoing, int64 end, const MutableLists<Kind>& csr, Span<typename Kind::Loop> loop, const Plan<Kind>& plan,
    const Changes<Kind>& changes) {
    const int64 removals = plan.counters[REMOVED];
    pool::parallel(removals + plan.counters[ADDED], ITEMS, [&](int64 first, int64 last) {
        for (int64 item = first; item < last; ++item) {
            const bool adds = item >= removals;
            const int64 at = adds ? item - removals : item, row = adds ? plan.added_row[at] : plan.removed_row[at];
            const int neighbour = adds ? plan.added_neighbour[at] : plan.removed_neighbour[at];
            const RowChange change(plan, row);
            if (outgoing) {
                (adds ? changes.added_sources : changes.removed_sources)[at] = change.vertex;
                (adds ? changes.added_targets : changes.removed_targets)[at] = neighbour;
                if constexpr (Kind::weighted)
                    (adds ? changes.added_weights : changes.removed_weights)[at] =
                        (adds ? plan.added_weights : plan.removed_weights)[at];
            }
            if (neighbour == change.vertex) {
                if constexpr (Kind::weighted) {
                    if (adds) loop[change.vertex] = plan.added_weights[at];
                    else if (change.loop < 0) loop[change.vertex] = 0.0f;
                } else {
                    loop[change.vertex] = adds;
                }
                continue;
            }
            const int64 base = plan.new_start[row] >= 0 ? end + plan.new_start[row] : csr.row_starts[change.vertex];
            const bool later = neighbour > change.vertex;
            if (!adds) {
                const int64 rank = at - plan.row_removed[row] - (loses_loop(change.loop) && later);
                if (rank >= change.added) csr.column_indices[base + plan.removed_slot[at]] = -1;
                continue;
            }
            const int64 rank = at - plan.row_added[row] - (change.loop > 0 && later);
            int64 slot = csr.row_lengths[change.vertex] + rank - change.removed;
            if (rank < change.removed) {
                int64 reused = plan.row_removed[row] + rank;
                if (loses_loop(change.loop) && plan.removed_neighbour[reused] >= change.vertex) ++reused;
                slot = plan.removed_slot[reused];
            }
            csr.column_indices[base + slot] = neighbour;
            if constexpr (Kind::weighted) csr.weights[base + slot] = plan.added_weights[at];
        }
    });
}

// Moves the entries behind the new end of each row that shrinks into its empty slots.
template <class Kind>
void fill_holes(const MutableLists<Kind>& csr, const Plan<Kind>& plan) {
    // in arrays that are no longer needed: work and the slots of edges
    const Span<int64>& hole = plan.row_work;
    const Span<int>& filler = plan.edge_slot;
    int64 holes = 0, fillers = 0;
    for (int64 at = 0; at < plan.counters[REMOVED]; ++at) {
        const int row = plan.removed_row[at], neighbour = plan.removed_neighbour[at];
        const RowChange change(plan, row);
        const int64 rank = at - plan.row_removed[row] - (loses_loop(change.loop) && neighbour > change.vertex);
        if (neighbour == change.vertex || rank < change.added) continue;
        const int64 begin = csr.row_starts[change.vertex], end = plan.new_length[row];
        if (plan.removed_slot[at] < end) hole[holes++] = begin + plan.removed_slot[at];
        const int64 last = begin + end + rank - change.added;
        if (csr.column_indices[last] >= 0) {
            filler[fillers] = csr.column_indices[last];
            if constexpr (Kind::weighted) plan.filler_weights[fillers] = csr.weights[last];
            ++fillers;
        }
    }
    plan.counters[HOLES] = holes;
    for (int64 at = 0; at < holes; ++at) {
        csr.column_indices[hole[at]] = filler[at];
        if constexpr (Kind::weighted) csr.weights[hole[at]] = plan.filler_weights[at];
    }
}

// Updates starts, lengths and capacities; for the out-lists also lists the changed rows with their old degrees or strengths, and
// updates the degrees. (Strengths are summed afterwards.)
template <class Kind>
void finish_rows(
    bool outgoing, int64 end, const MutableLists<Kind>& csr, Span<int> capacities, Loops<Kind> loop,
    Span<typename Kind::Degree> degree, const Plan<Kind>& plan, const Changes<Kind>& changes) {
    pool::parallel(plan.counters[CHANGED], ITEMS, [&](int64 first, int64 last) {
        for (int64 at = first; at < last; ++at) {
            const int row = plan.changed_row[at], vertex = plan.row_vertex[row], length = plan.new_length[row];
            if (outgoing) {
                changes.sources[at] = vertex;
                if constexpr (Kind::weighted) {
                    changes.old_degree[at] = degree[vertex];
                } else {
                    changes.old_degree[at] = csr.row_lengths[vertex] + loop[vertex] - plan.row_loop[row];
                    degree[vertex] = length + loop[vertex];
                }
            }
            csr.row_lengths[vertex] = length;
            if (plan.new_start[row] >= 0) {
                csr.row_starts[vertex] = end + plan.new_start[row];
                capacities[vertex] = static_cast<int>(roomy_slots(length));
            }
        }
    });
}

template <class Kind>
void apply_update(
    bool outgoing, int64 end, MutableLists<Kind> csr, Span<int> capacities, Span<typename Kind::Loop> loop,
    Span<typename Kind::Degree> degree, Plan<Kind> plan, Changes<Kind> changes) {
    if (plan.counters[NEEDED] > 0) move_rows(end, csr, plan);
    place_changes(outgoing, end, csr, loop, plan, changes);
    if (plan.counters[EMPTIED] > 0) fill_holes(csr, plan);
    finish_rows<Kind>(outgoing, end, csr, capacities, loop, degree, plan, changes);
}
KERNEL("apply_update", apply_update<Unweighted>, apply_update<Weighted>);

}  // namespace
