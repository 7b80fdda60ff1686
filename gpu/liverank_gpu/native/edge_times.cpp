// The hash table and the heap of liverank_service.pipeline.window, which documents their arrays.
#include <tuple>

#include "bind.h"

namespace {

constexpr uint64 EMPTY = 0;

template <class Slot, class Time>
struct Table {
    using fields = Fields<Span<Slot>, Span<Time>, uint64>;

    Span<Slot> slots;
    Span<Time> times;
    uint64 seed;

    uint64 mask() const { return slots.size - 1; }

    // The slot at which the search for an edge begins: a mix of all bits (MurmurHash3).
    uint64 home(uint64 edge) const {
        uint64 mixed = (edge ^ seed) * 0xFF51AFD7ED558CCD;
        mixed = (mixed ^ mixed >> 32) * 0xC4CEB9FE1A85EC53;
        return (mixed ^ mixed >> 32) & mask();
    }

    // The slot of the edge, or the empty one at which the search ended.
    uint64 slot_of(uint64 edge) const {
        uint64 slot = home(edge);
        while (slots[slot] != EMPTY && slots[slot] != edge) slot = (slot + 1) & mask();
        return slot;
    }

    bool has(uint64 edge, double time) const {
        const uint64 slot = slot_of(edge);
        return slots[slot] != EMPTY && times[slot] == time;
    }
};

using ReadTable = Table<const uint64, const double>;
using WrittenTable = Table<uint64, double>;

// The earliest entry is at the top; of equal times that of the lower edge.
template <class Edge, class Time>
struct Heap {
    using fields = Fields<Span<Edge>, Span<Time>, int64>;

    Span<Edge> edges;
    Span<Time> times;
    int64 size;

    bool is_before(int64 one, int64 other) const {
        return times[one] != times[other] ? times[one] < times[other] : edges[one] < edges[other];
    }
    void exchange(int64 one, int64 other) const {
        std::swap(times[one], times[other]);
        std::swap(edges[one], edges[other]);
    }
    void sift_up(int64 place) const {
        for (int64 above; place > 0 && is_before(place, above = (place - 1) / 2); place = above) exchange(place, above);
    }
    void sift_down(int64 place) const {
        for (int64 child; (child = 2 * place + 1) < size; place = child) {
            if (child + 1 < size && is_before(child + 1, child)) ++child;
            if (!is_before(child, place)) return;
            exchange(child, place);
        }
    }
};

using ReadHeap = Heap<const uint64, const double>;
using WrittenHeap = Heap<uint64, double>;

// Sets the times of edges, which must fit; returns the numbers of edges and heap entries.
std::tuple<int64, int64> put_times(
    WrittenTable table, int64 count, WrittenHeap heap, Span<const uint64> edges, Span<const double> given) {
    for (int64 i = 0; i < edges.size; ++i) {
        const uint64 slot = table.slot_of(edges[i]);
        if (table.slots[slot] == EMPTY) {
            table.slots[slot] = edges[i];
            ++count;
        }
        table.times[slot] = given[i];
        heap.edges[heap.size] = edges[i];
        heap.times[heap.size] = given[i];
        heap.sift_up(heap.size++);
    }
    return {count, heap.size};
}
KERNEL("put_times", put_times);

// Removes edges; returns the number of those left. Later entries of the same run move back, so that no search ends too early.
int64 take_times(WrittenTable table, int64 count, Span<const uint64> edges) {
    const uint64 mask = table.mask();
    for (const uint64 edge : edges) {
        uint64 hole = table.slot_of(edge);
        if (table.slots[hole] == EMPTY) continue;
        --count;
        for (uint64 slot = (hole + 1) & mask; table.slots[slot] != EMPTY; slot = (slot + 1) & mask) {
            if (((slot - table.home(table.slots[slot])) & mask) < ((slot - hole) & mask)) continue;
            table.slots[hole] = table.slots[slot];
            table.times[hole] = table.times[slot];
            hole = slot;
        }
        table.slots[hole] = EMPTY;
    }
    return count;
}
KERNEL("take_times", take_times);

// Writes the edges of some vertices to `found`, as many as fit; returns how many there are. is_vertex: by id, for ids below its
// length.
int64 edges_of(Span<const uint64> slots, Span<const bool> is_vertex, Span<uint64> found) {
    const auto chosen = [&](uint64 id) { return id < static_cast<uint64>(is_vertex.size) && is_vertex[id]; };
    int64 count = 0;
    for (const uint64 slot : slots) {
        if (slot == EMPTY || !(chosen((slot - 1) >> 32) || chosen((slot - 1) & 0xFFFFFFFF))) continue;
        if (count < found.size) found[count] = slot;
        ++count;
    }
    return count;
}
KERNEL("edges_of", edges_of);

// Removes entries from the top of the heap until one is valid; returns the heap's size.
int64 drop_stale(ReadTable table, WrittenHeap heap) {
    while (heap.size > 0 && !table.has(heap.edges[0], heap.times[0])) {
        --heap.size;
        heap.edges[0] = heap.edges[heap.size];
        heap.times[0] = heap.times[heap.size];
        heap.sift_down(0);
    }
    return heap.size;
}
KERNEL("drop_stale", drop_stale);

// Writes the edges with a time below `cutoff` to `found`, as many as fit, some of them several times; returns how many there are.
//
// The entries below the cutoff are a part of the heap that contains its top: it is walked in preorder, and nothing is removed.
int64 older(ReadTable table, ReadHeap heap, double cutoff, Span<uint64> found) {
    int64 count = 0, place = 0;
    while (place < heap.size) {
        if (heap.times[place] < cutoff) {
            if (table.has(heap.edges[place], heap.times[place])) {
                if (count < found.size) found[count] = heap.edges[place];
                ++count;
            }
            if (2 * place + 1 < heap.size) {
                place = 2 * place + 1;
                continue;
            }
        }
        // the next subtree: right children have even places
        while (place > 0 && (place % 2 == 0 || place + 1 >= heap.size)) place = (place - 1) / 2;
        if (place == 0) return count;
        ++place;
    }
    return count;
}
KERNEL("older", older);

// Copies a table to an empty one.
void refill_times(Span<const uint64> slots, Span<const double> times, WrittenTable fresh) {
    for (int64 i = 0; i < slots.size; ++i) {
        if (slots[i] == EMPTY) continue;
        const uint64 slot = fresh.slot_of(slots[i]);
        fresh.slots[slot] = slots[i];
        fresh.times[slot] = times[i];
    }
}
KERNEL("refill_times", refill_times);

// Makes a heap of a table, which must fit; returns its size.
int64 heapify(Span<const uint64> slots, Span<const double> times, Span<uint64> heap_edges, Span<double> heap_times) {
    WrittenHeap heap{heap_edges, heap_times, 0};
    for (int64 i = 0; i < slots.size; ++i) {
        if (slots[i] == EMPTY) continue;
        heap.edges[heap.size] = slots[i];
        heap.times[heap.size++] = times[i];
    }
    for (int64 place = heap.size / 2 - 1; place >= 0; --place) heap.sift_down(place);
    return heap.size;
}
KERNEL("heapify", heapify);

}  // namespace
