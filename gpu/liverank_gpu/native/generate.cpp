// Graphs drawn from counter-based random numbers (liverank_gpu.operations.generate).
#include <algorithm>
#include <tuple>
#include <vector>

#include "../kernels/random.h"
#include "bind.h"
#include "pool.h"

namespace {

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
                int64 candidate = below(draw(), v);
                const bool is_copy = draw() >> 11 >= threshold;
                key += GOLDEN_GAMMA;
                if (is_copy && candidate >= d) {
                    if (candidate >= known) {
                        row[d - 1] = -1;
                        return;
                    }
                    candidate = links[d * (candidate - d) + below(mix(key), d)];
                } else if (is_copy && d > 1) {
                    const int64 other = below(mix(key), d - 1);
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

// Pairs 0 … of a permutation.
void permuted_pairs(uint64 start, uint64 vertices, int64 bits, int64 rounds, Span<int> sources, Span<int> targets) {
    pool::parallel(sources.size, 1 << 12, [&](int64 first, int64 last) {
        for (int64 edge = first; edge < last; ++edge)
            permuted_pair(edge, start, vertices, static_cast<int>(bits), static_cast<int>(rounds), sources[edge], targets[edge]);
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

// ---- cuPPA, algorithm 1 of Alam and Perumalla (2017), for one segment of vertices: liverank_gpu.generate.published, which says
// what of the text is corrected.

// F_ℓ(v), and F_l(u), for which it waits: places in `links`.
struct Waiting {
    long long place, origin;
};

// Thread i of T executes vertices first + i, first + i + T, …. Any number of cores runs the threads, so none waits for another
// one: all execute phase 1, and then in turns a pass over their queues. Q and Q' share memory: what is appended to one has left
// the other. Returns how many edges waited, how many at one thread at most, and the passes.
std::tuple<int64, int64, int64> execute_copy_model(
    int64 first, int64 last, int64 d, uint64 threshold, uint64 start, int64 threads, Span<int> links) {
    const copy_model::CopyModel model{links.data, d, threshold, start};
    std::vector<std::vector<Waiting>> queues(threads);
    // phase 1: execute the copy model
    pool::each(threads, [&](int64 thread) {
        for (int64 v = first + thread; v < last; v += threads)
            for (int64 place = (v - d) * d; place < (v - d + 1) * d; ++place)
                if (long long origin; !model.execute(place, origin)) queues[thread].push_back({place, origin});
    });
    int64 queued = 0, largest = 0, passes = 0;
    for (const auto& queue : queues) {
        queued += static_cast<int64>(queue.size());
        largest = std::max(largest, static_cast<int64>(queue.size()));
    }
    // phase 2: resolve incomplete edges
    const auto waits = [](const std::vector<Waiting>& queue) { return !queue.empty(); };
    for (; std::any_of(queues.begin(), queues.end(), waits); ++passes)
        pool::each(threads, [&](int64 thread) {
            auto& queue = queues[thread];
            std::size_t kept = 0;
            for (Waiting edge : queue)
                if (model.newest(edge.origin) < 0 || !model.execute(edge.place, edge.origin)) queue[kept++] = edge;
            queue.resize(kept);
        });
    return {queued, largest, passes};
}
KERNEL("execute_copy_model", execute_copy_model);

}  // namespace
