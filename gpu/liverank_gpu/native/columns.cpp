// Columns of edges and ranks on the host, by all threads: one alone reads and writes them at a fraction of the bandwidth of
// memory, and takes the page faults of new arrays one after the other (liverank_gpu.columns, liverank_gpu.backends.cuda.device).
// And, by one, ranks that changed (liverank_gpu.operations.select).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <tuple>

#include "bind.h"
#include "pool.h"

namespace {

constexpr int64 RANGE = 1 << 17;

// The lowest and the highest of at least one id.
template <class Id>
std::tuple<int64, int64> extent(Span<const Id> ids) {
    Id lowest = ids[0], highest = ids[0];
    std::mutex mutex;
    pool::parallel(ids.size, RANGE, [&](int64 first, int64 last) {
        Id low = ids[first], high = ids[first];
        for (int64 at = first; at < last; ++at) {
            low = std::min(low, ids[at]);
            high = std::max(high, ids[at]);
        }
        const std::lock_guard lock(mutex);
        lowest = std::min(lowest, low);
        highest = std::max(highest, high);
    });
    return {lowest, highest};
}
KERNEL("extent", extent<int>, extent<int64>);

// Ids that no graph has, negative or above 31 bits, become 2³¹-1, which none has either.
template <class Id>
void narrow(Span<const Id> ids, Span<int> narrowed) {
    constexpr uint64 NONE = std::numeric_limits<int>::max();
    pool::parallel(ids.size, RANGE, [&](int64 first, int64 last) {
        for (int64 at = first; at < last; ++at)
            narrowed[at] = static_cast<int>(std::min(static_cast<uint64>(static_cast<int64>(ids[at])), NONE));
    });
}
KERNEL("narrow", narrow<int>, narrow<int64>);

void copy(Span<const uint8> from, Span<uint8> to) {
    pool::parallel(from.size, 1 << 19, [&](int64 first, int64 last) {
        std::memcpy(to.data + first, from.data + first, static_cast<std::size_t>(last - first));
    });
}
KERNEL("copy", copy);

// Not on all cores: the writer would wait for them. Returns how many changed, listed or not.
int64 list_changed(
    Span<const double> values, double mass, Span<const double> earlier, double threshold, Span<int> listed) {
    int64 found = 0;
    for (int64 position = 0; position < values.size; ++position) {
        const double before = earlier[position], change = std::fabs(values[position] / mass - before);
        if (threshold * before < change && change < std::numeric_limits<double>::infinity()) {
            if (found < listed.size) listed[found] = static_cast<int>(position);
            ++found;
        }
    }
    return found;
}
KERNEL("list_changed", list_changed);

}  // namespace
