// Triangles of an oriented graph and bounds of its edges (liverank_gpu.operations.analysis); core numbers
// (liverank_gpu.operations.analysis).
#include <algorithm>
#include <atomic>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "bind.h"
#include "rows.h"

namespace {

using Rows = Csr<Nothing>;

template <class T>
T fetch_and_add(T& number, T value) {
    return std::atomic_ref(number).fetch_add(value, std::memory_order_relaxed);
}

template <class T>
T read(const T& number) {
    return std::atomic_ref(const_cast<T&>(number)).load(std::memory_order_relaxed);
}

template <class T>
void write(T& number, T value) {
    std::atomic_ref(number).store(value, std::memory_order_relaxed);
}

// ---- counting and listing ----

// Of the entries of one row, 1 + the place of each; zero for all others.
class PlaceOf {
public:
    PlaceOf(int* places, const Rows& rows, int u)
        : _places(places), _entries(rows.column_indices.data + rows.row_starts[u]), _count(rows.row_lengths[u]) {
        for (int place = 0; place < _count; ++place) _places[_entries[place]] = 1 + place;
    }
    ~PlaceOf() {
        for (int place = 0; place < _count; ++place) _places[_entries[place]] = 0;
    }
    int operator[](int v) const { return _places[v]; }

private:
    int* _places;
    const int* _entries;
    int _count;
};

// places: [parts, n], zero. third: counts of edges whose triangle has a lower third vertex.
void count_triangles(
    Span<const int64> groups, Rows oriented, Span<int> places, bool every_edge, Span<int> triangles, Span<int> third) {
    const int64 vertices = oriented.row_lengths.size;
    pool::parallel(groups.size - 1, 1, [&](int64 first, int64 last) {
        for (int64 part = first; part < last; ++part)
            for (int64 u = groups[part]; u < groups[part + 1]; ++u) {
                const PlaceOf place_of(places.data + vertices * part, oriented, static_cast<int>(u));
                const int64 begin = oriented.row_starts[u], end = begin + oriented.row_lengths[u];
                for (int64 entry = begin; entry < end; ++entry) {
                    const int v = oriented.column_indices[entry];
                    int found = 0;
                    for (int64 slot = oriented.row_starts[v], stop = slot + oriented.row_lengths[v]; slot < stop; ++slot) {
                        const int place = place_of[oriented.column_indices[slot]];
                        if (!place) continue;
                        ++found;
                        ++triangles[begin + place - 1];
                        if (every_edge) fetch_and_add(third[slot], 1);
                    }
                    triangles[entry] += found;
                }
            }
    });
}
KERNEL("count_triangles", count_triangles);

// liverank_gpu.operations.analysis.RowWindow
struct Window {
    using fields = Fields<int64, int64, Rows>;

    int64 first_row, end_row;
    Rows rows;
};

// liverank_gpu.operations.analysis.EdgeBounds
struct Bounds {
    using fields = Fields<Span<const int>, Span<const int>, Span<const int64>>;

    Span<const int> of_lowest, of_middle;
    Span<const int64> places;

    int least(int64 edge, int64 longer, int64 third) const {
        return std::min(std::min(of_lowest[edge], of_lowest[longer]), of_middle[third]);
    }
};

// Calls visit(one, entry, here, there) for each triangle u < v < w with u in `lowest` and v in `middle`: u → v and u → w are
// entries `entry` and `here`, v → w is `there`. Then calls of_pair(v, entry, triangles), and of_row(u, triangles).
template <class Visit, class OfPair, class OfRow>
void between(const Window& lowest, const Window& middle, const Visit& visit, const OfPair& of_pair, const OfRow& of_row) {
    const auto& indices = lowest.rows.column_indices;
    pool::parallel(lowest.end_row - lowest.first_row, 1 << 7, [&](int64 first, int64 last) {
        for (int64 u = lowest.first_row + first; u < lowest.first_row + last; ++u) {
            const int64 begin = lowest.rows.row_starts[u], end = begin + lowest.rows.row_lengths[u];
            int64 entry = std::lower_bound(indices.data + begin, indices.data + end, middle.first_row) - indices.data;
            int64 in_row = 0;
            for (; entry < end && indices[entry] < middle.end_row; ++entry) {
                const int v = indices[entry];
                int64 here = entry + 1, there = middle.rows.row_starts[v];
                const int64 end_there = there + middle.rows.row_lengths[v];
                int64 found = 0;
                while (here < end && there < end_there) {
                    const int one = indices[here], other = middle.rows.column_indices[there];
                    if (one == other) {
                        ++found;
                        visit(one, entry, here, there);
                    }
                    here += one <= other;
                    there += other <= one;
                }
                if (found) of_pair(v, entry, found);
                in_row += found;
            }
            if (in_row) of_row(u, in_row);
        }
    });
}

constexpr auto nothing = [](auto...) {};

// Triangles of each vertex.
void count_between(Window lowest, Window middle, Span<int64> triangles) {
    const auto add = [&](int64 v, int64 count) { fetch_and_add(triangles[v], count); };
    between(
        lowest, middle, [&](int w, int64, int64, int64) { add(w, 1); }, [&](int v, int64, int64 found) { add(v, found); },
        [&](int64 u, int64 found) { add(u, found); });
}
KERNEL("count_between", count_between);

// Triangles of each entry: of the lowest rows, or of the middle ones.
void count_entries_between(Window lowest, Window middle, bool of_lowest, Span<int> counts, Nothing) {
    if (of_lowest)
        between(
            lowest, middle, [&](int, int64, int64 here, int64) { ++counts[here]; },
            [&](int, int64 entry, int64 found) { counts[entry] += static_cast<int>(found); }, nothing);
    else between(lowest, middle, [&](int, int64, int64, int64 there) { fetch_and_add(counts[there], 1); }, nothing, nothing);
}

// The same by the least bound of the three edges.
void count_bounds_between(Window lowest, Window middle, bool of_lowest, Span<int> counts, Bounds bounds) {
    const auto& places = bounds.places;
    if (of_lowest)
        between(
            lowest, middle,
            [&](int, int64 entry, int64 here, int64 there) {
                const int least = bounds.least(entry, here, there);
                ++counts[places[entry] + least];
                ++counts[places[here] + least];
            },
            nothing, nothing);
    else
        between(
            lowest, middle,
            [&](int, int64 entry, int64 here, int64 there) {
                fetch_and_add(counts[places[there] + bounds.least(entry, here, there)], 1);
            },
            nothing, nothing);
}
KERNEL("count_entries_between", count_entries_between, count_bounds_between);

// liverank_gpu.operations.analysis.Interval
struct Interval {
    using fields = Fields<int64, int64, int64, int64>;

    int64 first_row, end_row, first_edge, end_edge;

    bool has(int64 row) const { return first_row <= row && row < end_row; }
};

// ends: where the list of each edge of the interval ends so far. others: [triangles, 2]
void list_triangles(
    Span<const int64> groups, Rows oriented, Span<int> places, Interval interval, Span<int64> ends, Span<int> others) {
    const int64 vertices = oriented.row_lengths.size;
    const auto put = [&](int64 edge, int64 one, int64 another) {
        const int64 place = fetch_and_add(ends[edge - interval.first_edge], int64{1});
        others[2 * place] = static_cast<int>(one);
        others[2 * place + 1] = static_cast<int>(another);
    };
    pool::parallel(groups.size - 1, 1, [&](int64 first, int64 last) {
        for (int64 part = first; part < last; ++part)
            for (int64 u = groups[part]; u < groups[part + 1]; ++u) {
                const int64 begin = oriented.row_starts[u], end = begin + oriented.row_lengths[u];
                const bool is_source = interval.has(u);
                bool reached = is_source;
                for (int64 entry = begin; entry < end; ++entry) reached |= interval.has(oriented.column_indices[entry]);
                if (!reached) continue;
                const PlaceOf place_of(places.data + vertices * part, oriented, static_cast<int>(u));
                for (int64 entry = begin; entry < end; ++entry) {
                    const int v = oriented.column_indices[entry];
                    const bool is_target = interval.has(v);
                    if (!is_source && !is_target) continue;
                    for (int64 slot = oriented.row_starts[v], stop = slot + oriented.row_lengths[v]; slot < stop; ++slot) {
                        const int place = place_of[oriented.column_indices[slot]];
                        if (!place) continue;
                        const int64 longer = begin + place - 1;
                        if (is_source) {
                            put(entry, longer, slot);
                            put(longer, entry, slot);
                        }
                        if (is_target) put(slot, entry, longer);
                    }
                }
            }
    });
}
KERNEL("list_triangles", list_triangles);

// The largest number ≤ high that reaches(number) says is reached; `low` is.
template <class Reaches>
int largest_reached(int low, int high, const Reaches& reaches) {
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (reaches(middle)) low = middle;
        else high = middle - 1;
    }
    return low;
}

// starts: int64[edges + 1] of the interval; others: [triangles, 2]. Returns how many edges were examined, and how many fell.
std::tuple<int64, int64> lower_bounds(
    int64 first_edge, Span<const int64> starts, Span<const int> others, bool by_bisection, Span<int> bounds, Span<int> marks,
    Span<int64> falls) {
    int64 all_examined = 0, all_fallen = 0;
    pool::parallel(starts.size - 1, 1 << 10, [&](int64 first, int64 last) {
        int64 examined = 0, fallen = 0;
        for (int64 item = first; item < last; ++item) {
            const int64 edge = first_edge + item, begin = starts[item], end = starts[item + 1];
            // the mark is taken before bounds of other edges are read: if one of these falls later, the mark is set again
            if (read(marks[edge]) == 0 || std::atomic_ref(marks[edge]).exchange(0) == 0) continue;
            ++examined;
            // triangles whose other edges have at least this bound; `bound` of them are enough
            const auto supporting = [&](int bound) {
                int found = 0;
                for (int64 place = begin; place < end && found < bound; ++place)
                    found += read(bounds[others[2 * place]]) >= bound && read(bounds[others[2 * place + 1]]) >= bound;
                return found;
            };
            const int old = bounds[edge];
            int low = supporting(old);
            if (low >= old) continue;
            low = by_bisection ? largest_reached(low, old - 1, [&](int middle) { return supporting(middle) >= middle; }) : old - 1;
            // numbered behind the reading of others' bounds, before the writing: what falls later was counted as it was
            falls[edge + 1] = std::atomic_ref(falls[0]).fetch_add(1) + 1;
            std::atomic_ref(bounds[edge]).exchange(low);
            ++fallen;
            // another edge may have fallen below `old` while it saw this bound, and this one as well
            write(marks[edge], 1);
            for (int64 side = 2 * begin; side < 2 * end; ++side) {
                const int other = others[side], bound = read(bounds[other]);
                if (low < bound && bound <= old) write(marks[other], 1);
            }
        }
        fetch_and_add(all_examined, examined);
        fetch_and_add(all_fallen, fallen);
    });
    return {all_examined, all_fallen};
}
KERNEL("lower_bounds", lower_bounds);

// ---- cores ----

// Batagelj and Zaveršnik, "An O(m) algorithm for cores decomposition of networks" (2003).
//
// degree  receives the core numbers
// order, place  receive the vertices by degree, and the place of each
// first   [longest row + 2], zero before: where vertices of each degree begin in `order`
void core_numbers(Rows lists, Span<int> degree, Span<int> order, Span<int> place, Span<int64> first) {
    for (const int d : degree) ++first[d + 1];
    for (int64 d = 1; d < first.size; ++d) first[d] += first[d - 1];
    for (int64 v = 0; v < degree.size; ++v) {
        place[v] = static_cast<int>(first[degree[v]]++);
        order[place[v]] = static_cast<int>(v);
    }
    for (int64 d = first.size - 1; d > 0; --d) first[d] = first[d - 1];
    first[0] = 0;
    for (int64 at = 0; at < order.size; ++at) {
        const int v = order[at], core = degree[v];
        for (int64 slot = lists.row_starts[v], end = slot + lists.row_lengths[v]; slot < end; ++slot) {
            const int u = lists.column_indices[slot], above = degree[u];
            if (above <= core) continue;
            // u changes places with the first vertex of its degree, which then begins behind it
            const int old = place[u], now = static_cast<int>(first[above]), w = order[now];
            std::swap(order[old], order[now]);
            place[w] = old;
            place[u] = now;
            ++first[above];
            degree[u] = above - 1;
        }
    }
}
KERNEL("core_numbers", core_numbers);

// Lowers each bound to the largest b of which as many neighbours have a bound of at least b. Returns how many fell.
int64 lower_cores(
    Span<const int64> groups, Span<const int> order, Rows lists, Span<int> bounds, Span<int> blocks, int64 shift, int64 now) {
    int64 all_fallen = 0;
    for_each_chunk(groups, [&](int64, int64 first, int64 last) {
        int64 fallen = 0;
        for (int64 place = first; place < last; ++place) {
            const int v = order[place], bound = read(bounds[v]);
            const int64 begin = lists.row_starts[v], end = begin + lists.row_lengths[v];
            // neighbours whose bounds are at least this, of which as many are enough
            const auto reaching = [&](int least) {
                int found = 0;
                for (int64 slot = begin; slot < end; ++slot)
                    if (read(bounds[lists.column_indices[slot]]) >= least && ++found >= least) break;
                return found;
            };
            const int low = reaching(bound);
            if (low >= bound) continue;
            write(bounds[v], largest_reached(low, bound - 1, [&](int middle) { return reaching(middle) >= middle; }));
            write(blocks[v >> shift], static_cast<int>(now));
            ++fallen;
        }
        fetch_and_add(all_fallen, fallen);
    });
    return all_fallen;
}
KERNEL("lower_cores", lower_cores);

// The set X of liverank_gpu.programs.continued. Vertices are examined in the order of bounds and places, and those that follow a
// candidate. One is a candidate if more neighbours than its bound have a higher one, or the same one and follow or are
// candidates; it is one no longer when so many of them have turned out to be none.
//
// both     whether neighbours are those of both lists, else of the first
// state, support, stamp  [n], zero before
// found    [n], receives X; still [suspects], the suspects that have too many neighbours with a higher bound or behind them
// Returns how many these are, and the entries that were read, which are more than `most` if it gave up.
std::tuple<int64, int64, int64> core_candidates(
    Rows outgoing, Rows incoming, bool both, Span<const int> bounds, Span<const int> places, Span<const int> suspects,
    Span<int> state, Span<int> support, Span<int> stamp, Span<int> found, Span<int> still, int64 most) {
    enum { UNSEEN, QUEUED, SUSPECT, CANDIDATE, REJECTED };
    int64 read = 0, count = 0, left = 0;
    int walk = 0;
    const auto each = [&](int v, const auto& visit) {
        ++walk;
        for (const Rows* lists : {&outgoing, &incoming}) {
            const int64 begin = lists->row_starts[v], length = lists->row_lengths[v];
            read += length;
            for (int64 slot = begin; slot < begin + length; ++slot) {
                const int u = lists->column_indices[slot];
                if (both && std::exchange(stamp[u], walk) == walk) continue;  // an edge in each direction
                visit(u);
            }
            if (!both) return;
        }
    };
    using Place = std::pair<int, int>;  // bound and place, of which no two are equal
    std::priority_queue<std::pair<Place, int>, std::vector<std::pair<Place, int>>, std::greater<>> queue;
    const auto examine_later = [&](int v, int as) {
        state[v] = as;
        queue.push({{bounds[v], places[v]}, v});
    };
    std::vector<int> gone;
    for (const int v : suspects) examine_later(v, SUSPECT);
    while (!queue.empty() && read <= most) {
        const int v = queue.top().second, bound = bounds[v];
        queue.pop();
        int behind = 0, before = 0;
        each(v, [&](int u) {
            if (bounds[u] > bound || (bounds[u] == bound && places[u] > places[v])) ++behind;
            else if (bounds[u] == bound && state[u] == CANDIDATE) ++before;
        });
        if (state[v] == SUSPECT && behind > bound) still[left++] = v;
        if (behind + before > bound) {
            state[v] = CANDIDATE;
            support[v] = behind + before;
            found[count++] = v;
            each(v, [&](int u) {
                if (bounds[u] == bound && places[u] > places[v] && state[u] == UNSEEN) examine_later(u, QUEUED);
            });
            continue;
        }
        state[v] = REJECTED;
        gone.push_back(v);
        while (!gone.empty()) {
            const int w = gone.back();
            gone.pop_back();
            each(w, [&](int u) {
                if (bounds[u] != bound || state[u] != CANDIDATE || --support[u] > bound) return;
                state[u] = REJECTED;
                gone.push_back(u);
            });
        }
    }
    count = std::remove_if(found.data, found.data + count, [&](int v) { return state[v] != CANDIDATE; }) - found.data;
    return {count, left, read};
}
KERNEL("core_candidates", core_candidates);

}  // namespace
