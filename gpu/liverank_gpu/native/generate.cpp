// Graphs drawn from counter-based random numbers (liverank_gpu.operations.generate).
#include <algorithm>

#include "bind.h"
#include "pool.h"
#include "random.h"

namespace {

// Number i of the sequence that begins at `start`.
uint64 random_number(uint64 start, int64 index) {
    return mix(start + (static_cast<uint64>(index) + 1) * GOLDEN_GAMMA);
}

// An integer in 0 … limit - 1 from a 64-bit number: ⌊number · limit / 2⁶⁴⌋. limit < 2³¹.
uint64 below(uint64 number, uint64 limit) {
    return ((number >> 32) * limit + ((number & 0xFFFFFFFF) * limit >> 32)) >> 32;
}

// Numbers of a sequence.
void fill_random(uint64 start, int64 skipped, Span<uint64> numbers) {
    pool::parallel(numbers.size, 1 << 14, [&](int64 first, int64 last) {
        for (int64 index = first; index < last; ++index) numbers[index] = random_number(start, skipped + index);
    });
}
KERNEL("fill_random", fill_random);

// The copy model of liverank_gpu.generate.graphs.
struct CopyModel {
    int* links;  // [n - d, d]
    int64 d;
    uint64 start, threshold;

    // Draws the edges of v. If a copy edge needs an edge of a vertex from `known` on, the last entry of the row is -1 instead.
    void attach(int64 v, int64 known) const {
        int* row = links + d * (v - d);
        for (int64 edge = 0; edge < d; ++edge) {
            uint64 key = random_number(start, v * d + edge);
            for (;;) {
                const auto draw = [&] { return mix(key += GOLDEN_GAMMA); };
                int64 candidate = static_cast<int64>(below(draw(), static_cast<uint64>(v)));
                const bool is_copy = draw() >> 11 >= threshold;
                key += GOLDEN_GAMMA;
                if (is_copy && candidate >= d) {
                    if (candidate >= known) {
                        row[d - 1] = -1;
                        return;
                    }
                    candidate = links[d * (candidate - d) + static_cast<int64>(below(mix(key), static_cast<uint64>(d)))];
                } else if (is_copy && d > 1) {
                    const int64 other = static_cast<int64>(below(mix(key), static_cast<uint64>(d - 1)));
                    candidate = other + (other >= candidate);
                }
                if (std::find(row, row + edge, static_cast<int>(candidate)) == row + edge) {
                    row[edge] = static_cast<int>(candidate);
                    break;
                }
            }
        }
    }
};

// Draws the edges of vertices first … last: at once those that depend on none of them, then the others in order.
void attach(int64 first, int64 last, Span<int> links, int64 d, uint64 start, uint64 threshold) {
    const CopyModel model{links.data, d, start, threshold};
    pool::parallel(last - first, 256, [&](int64 begin, int64 end) {
        for (int64 v = first + begin; v < first + end; ++v) model.attach(v, first);
    });
    for (int64 v = first; v < last; ++v)
        if (links[d * (v - d) + d - 1] < 0) model.attach(v, v);
}
KERNEL("attach", attach);

// Pairs 0 … of a permutation: a Feistel network over 2 · bits bits, applied again while the result is no pair (cycle walking).
void permuted_pairs(uint64 start, uint64 vertices, int64 bits, int64 rounds, Span<int> sources, Span<int> targets) {
    const uint64 pairs = vertices * (vertices - 1), mask = (uint64{1} << bits) - 1;
    pool::parallel(sources.size, 1 << 12, [&](int64 first, int64 last) {
        for (int64 edge = first; edge < last; ++edge) {
            uint64 value = static_cast<uint64>(edge);
            do {
                uint64 left = value >> bits, right = value & mask;
                for (int64 round = 0; round < rounds; ++round) {
                    const uint64 index = (static_cast<uint64>(round) << bits) + right;
                    const uint64 swapped = left ^ (random_number(start, static_cast<int64>(index)) & mask);
                    left = right;
                    right = swapped;
                }
                value = left << bits | right;
            } while (value >= pairs);
            const uint64 source = value / (vertices - 1), target = value - source * (vertices - 1);
            sources[edge] = static_cast<int>(source);
            targets[edge] = static_cast<int>(target + (target >= source));
        }
    });
}
KERNEL("permuted_pairs", permuted_pairs);

// Each edge descends `scale` levels into the quarter of the matrix that its random number of the level names
// (liverank_gpu.generate.graphs).
void draw_rmat(
    uint64 start, int64 scale, Span<const uint64> thresholds, Span<int64> sources, Span<int64> targets) {
    pool::parallel(sources.size, 1 << 10, [&](int64 first, int64 last) {
        for (int64 edge = first; edge < last; ++edge) {
            int64 source = 0, target = 0;
            for (int64 level = 0; level < scale; ++level) {
                const uint64 number = random_number(start, edge * scale + level);
                const bool lower = number >= thresholds[1];
                const bool right = (number >= thresholds[0] && !lower) || number >= thresholds[2];
                source = source * 2 + lower;
                target = target * 2 + right;
            }
            sources[edge] = source;
            targets[edge] = target;
        }
    });
}
KERNEL("draw_rmat", draw_rmat);

}  // namespace
