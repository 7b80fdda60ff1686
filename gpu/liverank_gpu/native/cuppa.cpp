// cuPPA, algorithm 1 of Alam and Perumalla (2017), for one segment of vertices: liverank_gpu.generate.published, which says
// what of the text is corrected.
#include <algorithm>
#include <tuple>
#include <vector>

#include "bind.h"
#include "pool.h"
#include "random.h"

#include "../kernels/copy_model.h"

namespace {

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
