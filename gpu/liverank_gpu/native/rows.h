// Sums over rows. The order of additions is fixed: results do not depend on the number of threads, nor on the compiler.
#pragma once
#include <algorithm>
#include <cmath>

#include "../kernels/vertex.h"
#include "arrays.h"
#include "pool.h"

// Vertices that a core takes at a time in passes over all of them.
constexpr int64 STRIPE = 1 << 12;

// Terms added to one partial sum before it joins the row's: limits the rounding in long rows.
constexpr int64 BLOCK = 1024;

// Rows of up to as many entries have one partial sum: more cost more than they save.
constexpr int64 SHORT_ROW = 8;

// What goes along the edge in a slot if an edge of weight 1 gets `amount`.
inline double edge_amount(double amount, Nothing, uint64) { return amount; }
inline double edge_amount(double amount, const Span<const float>& weights, uint64 slot) {
    return amount * static_cast<double>(weights[slot]);
}

// Σ values over the entries of row v, each times the weight of its edge.
template <class Weights, class Value>
inline double row_sum(const Csr<Weights>& csr, uint64 v, Span<const Value> values) {
    uint64 slot = csr.row_starts[v];
    const uint64 end = slot + csr.row_lengths[v];
    const auto term = [&](uint64 at) {
        return edge_amount(values[static_cast<uint32>(csr.column_indices[at])], csr.weights, at);
    };
    double total = 0.0;
    if (end - slot <= SHORT_ROW) {
        for (; slot < end; ++slot) total += term(slot);
        return total;
    }
    while (slot < end) {
        const uint64 stop = std::min<uint64>(slot + BLOCK, end);
        // four partial sums: an addition must wait for the one whose result it needs
        double first = 0.0, second = 0.0, third = 0.0, fourth = 0.0;
        for (; slot + 4 <= stop; slot += 4) {
            first += term(slot);
            second += term(slot + 1);
            third += term(slot + 2);
            fourth += term(slot + 3);
        }
        for (; slot < stop; ++slot) first += term(slot);
        total += (first + second) + (third + fourth);
    }
    return total;
}

// Σ values/degree over the entries of row v, each times the weight of its edge.
template <class Weights, class Degree>
inline double divided_sum(const Csr<Weights>& csr, uint64 v, Span<const double> values, Span<const Degree> degree) {
    uint64 slot = csr.row_starts[v];
    const uint64 end = slot + csr.row_lengths[v];
    double total = 0.0;
    while (slot < end) {
        const uint64 stop = std::min<uint64>(slot + BLOCK, end);
        double block = 0.0;
        for (; slot < stop; ++slot) {
            const uint32 u = static_cast<uint32>(csr.column_indices[slot]);
            block += edge_amount(values[u] / degree[u], csr.weights, slot);
        }
        total += block;
    }
    return total;
}

// Calls visit(chunk, first place, end of its places) for each chunk of rows, on all threads. Chunk i is
// order[groups[i] … groups[i+1]): liverank_gpu.backends.cpu.sweeps.chunk_rows makes them.
template <class Visit>
void for_each_chunk(Span<const int64> groups, const Visit& visit) {
    pool::each(groups.size - 1, [&](int64 chunk) { visit(chunk, groups[chunk], groups[chunk + 1]); });
}

// Calls visit(v, Σ values over the entries of row v, sums) for each row of each chunk, and leaves one row of SUMS sums for every
// chunk.
template <int SUMS, class Weights, class Value, class Visit>
void pull(
    Span<const int64> groups, Span<const int> order, const Csr<Weights>& csr, Span<const Value> values, Span<double> sums,
    const Visit& visit) {
    for_each_chunk(groups, [&](int64 chunk, int64 first, int64 end) {
        double own[SUMS] = {};
        for (int64 place = first; place < end; ++place) {
            const uint32 v = static_cast<uint32>(order[place]);
            visit(v, row_sum(csr, v, values), own);
        }
        std::copy_n(own, SUMS, sums.data + SUMS * chunk);
    });
}
