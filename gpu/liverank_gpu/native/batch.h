// Keys of operations on edges (liverank_gpu.operations.graph): row << 32 | neighbour << 1 | operation.
#pragma once
#include <cmath>
#include <limits>

#include "arrays.h"

constexpr int64 NO_KEY = std::numeric_limits<int64>::max();

inline int row_of(int64 key) { return static_cast<int>(key >> 32); }
inline int neighbour_of(int64 key) { return static_cast<int>(key >> 1 & 0x7FFFFFFF); }
inline bool inserts(int64 key) { return key & 1; }
inline int64 key_of(int row, int neighbour, bool inserts) {
    return static_cast<int64>(row) << 32 | static_cast<int64>(neighbour) << 1 | static_cast<int64>(inserts);
}

// Slots of a row without slack, and of one that outgrew its capacity: a quarter more than it needs. Multiples of
// liverank_gpu.operations.csr.ALIGNMENT.
inline int64 packed_slots(int64 length) { return (length + 3) / 4 * 4; }
inline int64 roomy_slots(int64 length) { return packed_slots(length + length / 4); }

// The weight of an edge after these insertions, in the order in which they were sent. present: its weight before them, 0 if it
// is absent.
inline double summed_weight(const Span<const float>& weights, int64 first, int64 last, double present, bool adds) {
    if (!adds) return weights[last - 1];
    double total = present;
    for (int64 at = first; at < last; ++at) total += weights[at];
    return static_cast<float>(total);
}

// Edges, rows or slots that a core takes at a time; and units of work, rows and entries.
constexpr int64 ITEMS = 1 << 12, UNITS = 1 << 13;
