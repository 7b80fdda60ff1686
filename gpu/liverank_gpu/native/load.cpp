// Rows from edges: loading, packing, listing and weighing all rows of a graph (liverank_gpu.operations.graph), and edges in any
// order to rows that are written to a file (liverank_gpu.out_of_core.spool).
#include <cmath>
#include <limits>
#include <tuple>
#include <type_traits>

#include "batch.h"
#include "bind.h"
#include "rows.h"

namespace {

using Floats = Span<float>;
using ConstFloats = Span<const float>;

// Keeps one of equal keys, in front; loops are set. Returns how many are kept, how many loops there are, how many kept edges
// have another weight now, and the place of a sum that exceeds float32.
template <class Weights, class Order, class Loop>
std::tuple<int64, int64, int64, int64> deduplicate(
    Span<int64> keys, Weights weights, Order order, Span<Loop> loop, bool adds, int64 kept_edges) {
    int64 kept = 0, loops = 0, reweighted = 0, exceeded = -1;
    for (int64 at = 0; at < keys.size && keys[at] != NO_KEY;) {
        const int64 key = keys[at], first = at;
        while (at < keys.size && keys[at] == key) ++at;
        const int row = row_of(key);
        const bool is_loop = row == neighbour_of(key);
        if constexpr (!std::is_same_v<Weights, Nothing>) {
            const double weight = summed_weight(weights, first, at, is_loop ? loop[row] : 0.0, adds);
            if (std::isinf(weight) && exceeded < 0) exceeded = order[at - 1];
            if (!is_loop && order[first] < kept_edges && weight != static_cast<double>(weights[first])) ++reweighted;
            (is_loop ? loop[row] : weights[kept]) = static_cast<float>(weight);
        } else if (is_loop) {
            loop[row] = 1;
        }
        if (is_loop) ++loops;
        else keys[kept++] = key;
    }
    return {kept, loops, reweighted, exceeded};
}
KERNEL(
    "deduplicate", deduplicate<Nothing, Nothing, uint8>, deduplicate<Floats, Span<const int64>, float>,
    deduplicate<Floats, Span<const int>, float>);

// liverank_gpu.operations.graph.SortedKeys
template <class Weights, class Order>
struct Sorted {
    using fields = Fields<Span<int64>, Weights, Order>;

    Span<int64> keys;
    Weights weights;
    Order order;
};

template <class Weights, class Order>
void merge(Sorted<Weights, Order> own, Sorted<Weights, Order> other, Sorted<Weights, Order> merged) {
    const auto take = [&](int64 at, const Sorted<Weights, Order>& from, int64 place) {
        merged.keys[at] = from.keys[place];
        if constexpr (!std::is_same_v<Weights, Nothing>) {
            merged.weights[at] = from.weights[place];
            merged.order[at] = from.order[place];
        }
    };
    int64 first = 0, second = 0;
    for (int64 at = 0; at < merged.keys.size; ++at) {
        if (second == other.keys.size || (first < own.keys.size && own.keys[first] <= other.keys[second]))
            take(at, own, first++);
        else take(at, other, second++);
    }
}
KERNEL("merge_keys", merge<Nothing, Nothing>, merge<Floats, Span<int64>>);

// Adds to `length`, and sets where the keys of each row begin. Returns the slots of all rows, and the length of the longest.
std::tuple<int64, int64> count_rows(Span<const int64> keys, int64 edges, int64 low, Span<int64> first, Span<int> length) {
    for (int64 at = 0; at < edges; ++at) {
        const int64 row = row_of(keys[at]) - low;
        if (length[row]++ == 0) first[row] = at;
    }
    int64 packed = 0, longest = 0;
    for (const int each : length) {
        packed += packed_slots(each);
        longest = std::max<int64>(longest, each);
    }
    return {packed, longest};
}
KERNEL("count_rows", count_rows);

void count_neighbours(Span<const int64> keys, int64 edges, Span<int> counts) {
    for (int64 at = 0; at < edges; ++at) ++counts[neighbour_of(keys[at])];
}
KERNEL("count_neighbours", count_neighbours);

template <class Weights, class NewWeights>
void fill_rows(
    int64 edges, Span<const int64> keys, int64 low, Span<const int64> first_key, Span<const int64> start,
    Span<int> column_indices, Weights key_weights, NewWeights weights) {
    pool::parallel(edges, ITEMS, [&](int64 first, int64 last) {
        for (int64 at = first; at < last; ++at) {
            const int64 row = row_of(keys[at]) - low, slot = start[row] + at - first_key[row];
            column_indices[slot] = neighbour_of(keys[at]);
            if constexpr (!std::is_same_v<Weights, Nothing>) weights[slot] = key_weights[at];
        }
    });
}
KERNEL("fill_rows", fill_rows<Nothing, Nothing>, fill_rows<ConstFloats, Floats>);

void pack_rows(Span<const int> length, int64 begin, Span<int64> start, Span<int> capacity) {
    int64 end = begin;
    for (int64 row = 0; row < length.size; ++row) {
        start[row] = end;
        capacity[row] = static_cast<int>(packed_slots(length[row]));
        end += capacity[row];
    }
}
KERNEL("pack_rows", pack_rows);

// Copies each row to its new start; these ascend.
template <class Weights, class NewWeights>
void copy_rows(
    int64 slots, Csr<Weights> csr, Span<const int64> new_start, Span<int> new_indices, NewWeights new_weights) {
    const int64 vertices = csr.row_lengths.size;
    pool::parallel(slots, UNITS, [&](int64 first, int64 last) {
        for (int64 row = std::lower_bound(new_start.data, new_start.data + vertices, first) - new_start.data;
             row < vertices && new_start[row] < last; ++row) {
            std::copy_n(
                csr.column_indices.data + csr.row_starts[row], csr.row_lengths[row], new_indices.data + new_start[row]);
            if constexpr (!std::is_same_v<Weights, Nothing>)
                std::copy_n(csr.weights.data + csr.row_starts[row], csr.row_lengths[row], new_weights.data + new_start[row]);
        }
    });
}
KERNEL("copy_rows", copy_rows<Nothing, Nothing>, copy_rows<ConstFloats, Floats>);

// Copies the rows one after the other, each aligned.
template <class T>
void pack_entries(Span<const int64> starts, Span<const int> lengths, Span<const T> entries, Span<T> packed) {
    int64 place = 0;
    for (int64 row = 0; row < lengths.size; ++row) {
        std::copy_n(entries.data + starts[row], lengths[row], packed.data + place);
        place += packed_slots(lengths[row]);
    }
}
KERNEL("pack_entries", pack_entries<int>, pack_entries<float>);

// The entries of each row from before[row] on.
template <class Weights, class NewWeights>
void list_entries(
    Csr<Weights> csr, Span<const int64> before, Span<int> rows, Span<int> neighbours, NewWeights listed_weights) {
    pool::parallel(csr.row_lengths.size, ITEMS, [&](int64 first, int64 last) {
        for (int64 row = first; row < last; ++row) {
            const int64 count = csr.row_lengths[row], start = csr.row_starts[row];
            std::fill_n(rows.data + before[row], count, static_cast<int>(row));
            std::copy_n(csr.column_indices.data + start, count, neighbours.data + before[row]);
            if constexpr (!std::is_same_v<Weights, Nothing>)
                std::copy_n(csr.weights.data + start, count, listed_weights.data + before[row]);
        }
    });
}
KERNEL("list_entries", list_entries<Nothing, Nothing>, list_entries<ConstFloats, Floats>);

// The strengths of some vertices: see liverank_gpu.operations.csr.GraphView.
void sum_weights(Span<const int> vertices, Csr<ConstFloats> csr, ConstFloats loop, Span<double> strength) {
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
    Csr<Floats> outgoing, Csr<Floats> incoming, ConstFloats factors, Floats loop, Span<double> strength) {
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

// ---- edges in any order to rows in a file: a key is target << 32 | source ----

int64 target_of(int64 key) { return key >> 32; }
int64 source_of(int64 key) { return key & 0xFFFFFFFF; }

// Adds the number of keys of each target and of each source. Returns the largest in-degree of these targets.
int64 count_ends(Span<const int64> keys, Span<int64> in_degree, Span<int> out_degree) {
    int64 largest = 0;
    for (const int64 key : keys) {
        largest = std::max(largest, ++in_degree[target_of(key)]);
        ++out_degree[source_of(key)];
    }
    return largest;
}
KERNEL("count_ends", count_ends);

// Replaces ids, in keys, by their positions.
void renumber(Span<int64> keys, Span<const int> positions) {
    for (int64& key : keys) key = static_cast<int64>(positions[target_of(key)]) << 32 | positions[source_of(key)];
}
KERNEL("renumber", renumber);

// The index of the last of some ascending numbers that is ≤ most; the first one is.
int64 last_from(Span<const int64> numbers, int64 most) {
    int64 low = 0;
    for (int64 span = numbers.size; span > 1; span -= span / 2)  // without branches to mispredict
        low = numbers[low + span / 2] <= most ? low + span / 2 : low;
    return low;
}

// The values beside keys are only moved: bits of their size.
template <class Values, class NewValues>
void sort_by_bucket(
    Span<const int64> keys, Values values, Span<const int64> first_keys, Span<int> buckets, Span<int64> bounds,
    Span<int64> sorted_keys, NewValues sorted_values) {
    for (int64 at = 0; at < keys.size; ++at) {
        const int64 bucket = last_from(first_keys, keys[at]);
        buckets[at] = static_cast<int>(bucket);
        ++bounds[bucket + 2];
    }
    for (int64 bucket = 0; bucket < first_keys.size; ++bucket) bounds[bucket + 2] += bounds[bucket + 1];
    for (int64 at = 0; at < keys.size; ++at) {
        const int64 place = bounds[buckets[at] + 1]++;
        sorted_keys[place] = keys[at];
        if constexpr (!std::is_same_v<Values, Nothing>) sorted_values[place] = values[at];
    }
}
KERNEL(
    "sort_by_bucket", sort_by_bucket<Nothing, Nothing>, sort_by_bucket<Span<const uint32>, Span<uint32>>,
    sort_by_bucket<Span<const uint64>, Span<uint64>>);

template <class Value>
void sort_by_digit(
    Span<const int64> keys, Span<const Value> values, int64 shift, Span<int64> places, Span<int64> sorted_keys,
    Span<Value> sorted_values) {
    const int64 mask = places.size - 2;
    std::fill(places.begin(), places.end(), 0);
    for (const int64 key : keys) ++places[(key >> shift & mask) + 1];
    for (int64 digit = 0; digit <= mask; ++digit) places[digit + 1] += places[digit];
    for (int64 at = 0; at < keys.size; ++at) {
        const int64 place = places[keys[at] >> shift & mask]++;
        sorted_keys[place] = keys[at];
        sorted_values[place] = values[at];
    }
}
KERNEL("sort_by_digit", sort_by_digit<uint32>, sort_by_digit<uint64>);

// Repeats the last entry up to the begin of the next row. Returns that slot.
int64 filled(Span<int> column_indices, int64 slot) {
    const int64 end = packed_slots(slot);
    for (int64 place = slot; place < end; ++place) column_indices[place] = column_indices[slot - 1];
    return end;
}

// Writes rows one after the other, each from a multiple of ALIGNMENT slots on: see liverank_gpu.out_of_core.spool. Without
// weights `sent` is `out_lengths`. Returns the number of slots, and of edges.
template <class Kind>
std::tuple<int64, int64> write_rows(
    Span<const int64> keys, typename Kind::Weights weights, bool keep_repeats, bool fixed_loops, Span<typename Kind::Loop> loop,
    Span<int> row_lengths, Span<int> out_lengths, Span<typename Kind::Degree> sent, Span<int> column_indices,
    typename Kind::MutableWeights row_weights) {
    int64 slot = 0, edges = 0, row = -1;
    for (int64 at = 0; at < keys.size; ++at) {
        const int64 key = keys[at], target = target_of(key), source = source_of(key);
        if (!keep_repeats && at + 1 < keys.size && keys[at + 1] == key) continue;
        if (source == target) {
            if (fixed_loops) continue;
            if constexpr (Kind::weighted) loop[target] = weights[at];
            else loop[target] = 1;
            continue;
        }
        if (target != row) {
            row = target;
            slot = filled(column_indices, slot);
        }
        column_indices[slot] = static_cast<int>(source);
        if constexpr (Kind::weighted) {
            row_weights[slot] = weights[at];
            sent[source] += static_cast<double>(weights[at]);
        }
        ++row_lengths[target];
        ++out_lengths[source];
        ++slot;
        ++edges;
    }
    return {filled(column_indices, slot), edges};
}
KERNEL("write_rows", write_rows<Unweighted>, write_rows<Weighted>);

}  // namespace
