// The loops of vertex programs (liverank_gpu.operations.programs): liverank_gpu.backends.cpu.programs says when each runs.
//
// They are templates over a program (liverank_gpu/kernels/program_vertex.h) that has the IDENTITY of its values too.
// PROGRAM_KERNEL(digest, loop) makes a loop for program_DIGEST the kernel loop_DIGEST.
#pragma once
#include <atomic>
#include <cstring>

#include "../kernels/program_vertex.h"
#include "bind.h"
#include "rows.h"

namespace programs {

using namespace vertex;

// Positions in the counts of a superstep: vertices that are active next, and that received.
constexpr int NEXT = 0, RECEIVED = 1;

// What functions may know of a vertex.
template <class Kind>
struct Vertices {
    using fields = Fields<Span<const int>, Degrees<Kind>, Span<const int>>;

    Span<const int> ids;
    Degrees<Kind> degree;
    Span<const int> in_lengths;
};

// The number of vertices and the parameters, as liverank_gpu.operations.programs packs them.
using Packed = Span<const int64>;

template <class Program>
typename Program::Parameters unpacked(Packed packed) {
    typename Program::Parameters parameters;
    static_assert(sizeof parameters % sizeof(int64) == 0);
    std::memcpy(&parameters, packed.data, sizeof parameters);
    return parameters;
}

// Another thread may write it.
template <class T>
T newest(T& number) {
    if constexpr (WordsOf<T>::value > 0) return number;  // nobody writes records that others read
    else return std::atomic_ref<T>(number).load(std::memory_order_relaxed);
}

// Stores `value` if the element has the bits of `expected`.
template <class T>
bool compare_and_swap(T& number, T expected, T value) {
    return std::atomic_ref<T>(number).compare_exchange_strong(expected, value);
}

inline void append(Span<int> list, int64& count, uint64 v) {
    list[std::atomic_ref(count).fetch_add(1, std::memory_order_relaxed)] = static_cast<int>(v);
}

// Whether this thread is the first to mark it.
inline bool mark(int& flag) { return newest(flag) == 0 && std::atomic_ref(flag).exchange(1) == 0; }

// What the edge in a slot carries from u.
template <class Program, class Weights, class Degree>
inline typename Program::Value message_in(
    const Weights& weights, uint64 slot, const Degree& degree, uint64 u, typename Program::Value value,
    const typename Program::Parameters& parameters) {
    return message_of<Program>(value, edge_amount(1.0, weights, slot), u, degree, parameters);
}

// Calls visit(slot, neighbour) for each entry of a row.
template <class Weights, class Visit>
inline void for_each_entry(const Csr<Weights>& lists, uint64 v, const Visit& visit) {
    const uint64 begin = lists.row_starts[v], end = begin + lists.row_lengths[v];
    for (uint64 slot = begin; slot < end; ++slot) visit(slot, static_cast<uint32>(lists.column_indices[slot]));
}

// Calls visit(group, first place, end of its places) for each group, groups on all threads. What is called holds copies of arrays
// and parameters, and each range has a copy of it: nobody else can change that, so it stays in registers across atomic operations.
template <class Visit>
void for_each_group(Span<const int64> groups, const Visit& visit) {
    for_each_chunk(groups, [&](int64 group, int64 first, int64 last) {
        const Visit own = visit;
        own(group, first, last);
    });
}

// Calls visit(v) for each number below `items`, on all threads.
template <class Visit>
void for_each(int64 items, const Visit& visit) {
    pool::parallel(items, STRIPE, [&](int64 first, int64 last) {
        const Visit own = visit;
        for (int64 v = first; v < last; ++v) own(v);
    });
}

// Sets the values of positions `begin` … n - 1, and lists those that are active.
template <class Program, class Kind>
void initialise(
    int64 begin, Vertices<Kind> vertex, Span<const uint8> absent, Packed packed, Span<typename Program::Value> values,
    Span<int> active, Span<int64> counts) {
    const auto parameters = unpacked<Program>(packed);
    for_each(values.size - begin, [=](int64 place) {
        const uint64 v = begin + place;
        auto value = Program::IDENTITY;
        if (!absent[v]) value = Program::program_initial(vertex.ids[v], vertex.degree[v], vertex.in_lengths[v], parameters);
        values[v] = value;
        if (Program::program_scatter(Program::IDENTITY, value, parameters)) append(active, counts[NEXT], v);
    });
}

// The active vertices, in groups, send; what arrives is merged in `accumulated`, and its vertex marked and listed.
template <class Program, class Kind>
void send(
    Span<const int64> groups, Span<const int> active, Lists<Kind> lists, Degrees<Kind> degree, Packed packed,
    Span<const typename Program::Value> values, Span<typename Program::Value> accumulated, Span<int> marks, Span<int> listed,
    Span<int64> counts) {
    using Value = typename Program::Value;
    const auto parameters = unpacked<Program>(packed);
    const auto deliver = [=](uint64 v, Value message) {
        if constexpr (Program::MONOTONE) {
            const Value old_value = values[v];
            if (applied<Program>(old_value, message, parameters) == old_value) return;
        }
        for (;;) {
            const Value old_value = newest(accumulated[v]);
            const Value new_value = Program::program_merge(old_value, message, parameters);
            if (new_value == old_value || compare_and_swap(accumulated[v], old_value, new_value)) break;
        }
        if (mark(marks[v])) append(listed, counts[RECEIVED], v);
    };
    for_each_group(groups, [=](int64, int64 first, int64 last) {
        for (int64 place = first; place < last; ++place) {
            const uint32 u = static_cast<uint32>(active[place]);
            const Value value = values[u];
            for_each_entry(lists, u, [&](uint64 slot, uint64 v) {
                deliver(v, message_in<Program>(lists.weights, slot, degree, u, value, parameters));
            });
        }
    });
}

// The active vertices send their newest values, which change others at once.
template <class Program, class Kind>
void send_in_place(
    Span<const int64> groups, Span<const int> active, Lists<Kind> lists, Degrees<Kind> degree, Packed packed,
    Span<typename Program::Value> values, Span<int> marks, Span<int> listed, Span<int64> counts) {
    using Value = typename Program::Value;
    const auto parameters = unpacked<Program>(packed);
    const auto improves = [=](uint64 v, Value message) {
        for (;;) {
            const Value old_value = newest(values[v]);
            const Value new_value = applied<Program>(old_value, message, parameters);
            if (new_value == old_value) return false;
            if (compare_and_swap(values[v], old_value, new_value))
                return Program::program_scatter(old_value, new_value, parameters);
        }
    };
    for_each_group(groups, [=](int64, int64 first, int64 last) {
        for (int64 place = first; place < last; ++place) {
            const uint32 u = static_cast<uint32>(active[place]);
            for_each_entry(lists, u, [&](uint64 slot, uint64 v) {
                const Value message = message_in<Program>(lists.weights, slot, degree, u, newest(values[u]), parameters);
                if (improves(v, message) && mark(marks[v])) append(listed, counts[NEXT], v);
            });
        }
    });
}

// Vertices without a value look for a marked in-neighbour. found: those of each group that are active, at its places; then their
// number and that of the entries read, for each group.
template <class Program, class Kind>
void look(
    Span<const int64> groups, Span<const int> order, Lists<Kind> lists, Degrees<Kind> degree, Packed packed,
    Span<typename Program::Value> values, Span<const int> marks, Span<int> found) {
    const auto parameters = unpacked<Program>(packed);
    const auto identity = Program::IDENTITY;
    for_each_group(groups, [=](int64 group, int64 first, int64 last) {
        int read = 0;
        int64 listed = first;
        for (int64 place = first; place < last; ++place) {
            const uint32 v = static_cast<uint32>(order[place]);
            if (values[v] != identity) continue;
            const uint64 begin = lists.row_starts[v], end = begin + lists.row_lengths[v];
            for (uint64 slot = begin; slot < end; ++slot) {
                ++read;
                const uint32 u = static_cast<uint32>(lists.column_indices[slot]);
                if (marks[u] == 0) continue;
                const auto message = message_in<Program>(lists.weights, slot, degree, u, values[u], parameters);
                const auto value = applied<Program>(identity, message, parameters);
                values[v] = value;
                if (Program::program_scatter(identity, value, parameters)) found[listed++] = static_cast<int>(v);
                break;
            }
        }
        found[order.size + 2 * group] = static_cast<int>(listed - first);
        found[order.size + 2 * group + 1] = read;
    });
}

// The vertices that received get their new values.
template <class Program, class Kind>
void receive(
    Span<const int> received, Vertices<Kind> vertex, int64 superstep, Packed packed, Span<typename Program::Value> values,
    Span<typename Program::Value> accumulated, Span<int> marks, Span<int> active, Span<int64> counts) {
    const auto parameters = unpacked<Program>(packed);
    for_each(counts[RECEIVED], [=](int64 place) {
        const uint32 v = static_cast<uint32>(received[place]);
        const auto old_value = values[v], gathered = accumulated[v];
        accumulated[v] = Program::IDENTITY;
        marks[v] = 0;
        const auto new_value = applied<Program>(old_value, gathered, v, vertex, superstep, 0.0, parameters);
        values[v] = new_value;
        if (Program::program_scatter(old_value, new_value, parameters)) append(active, counts[NEXT], v);
    });
}

// Aggregates the values of each group of rows, after what `aggregates` has.
template <class Program, class Kind>
void aggregate(
    Span<const int64> groups, Span<const int> order, Vertices<Kind> vertex, Span<const uint8> absent, Packed packed,
    Span<const typename Program::Value> values, Span<double> aggregates) {
    const auto parameters = unpacked<Program>(packed);
    for_each_group(groups, [=](int64 group, int64 first, int64 last) {
        double total = aggregates[group];
        for (int64 place = first; place < last; ++place) {
            const uint32 v = static_cast<uint32>(order[place]);
            if (absent[v]) continue;
            total = with_aggregate<Program>(total, values[v], v, vertex, parameters);
        }
        aggregates[group] = total;
    });
}

// Whether along any of these edges comes the value that its target has.
template <class Program, class Kind>
bool supports(
    Span<const int> sources, Span<const int> targets, typename Kind::Weights weights, Span<const int> source_ids,
    Span<const int> target_ids, Packed packed, Span<const typename Program::Value> values) {
    const auto parameters = unpacked<Program>(packed);
    const auto identity = Program::IDENTITY;
    for (int64 place = 0; place < sources.size; ++place) {
        const auto source = values[static_cast<uint32>(sources[place])], target = values[static_cast<uint32>(targets[place])];
        const double weight = edge_amount(1.0, weights, place);
        const int from = source_ids[place], to = target_ids[place];
        if (supports_target<Program>(source, target, identity, weight, from, to, parameters)) return true;
        if (Program::BOTH && supports_target<Program>(target, source, identity, weight, to, from, parameters)) return true;
    }
    return false;
}

// liverank_gpu.operations.programs.WindowState, and the steps of liverank_gpu.operations.programs.Gather.
template <class Program>
struct WindowState {
    using Value = typename Program::Value;
    using EdgeValue = typename Program::EdgeValue;
    using fields =
        Fields<Span<Value>, Span<Value>, Span<int>, Span<int>, Span<int>, int64, int64, double, Span<EdgeValue>, int, int>;

    Span<Value> values, new_values;
    Span<int> steps, new_steps, blocks;
    int64 shift, superstep;
    double aggregate;
    Span<EdgeValue> edge_values;
    int since, now;

    Step step() const { return {superstep, aggregate}; }

    // Gives v its new value. Returns whether it became active.
    template <class Kind>
    bool receive(uint64 v, Value gathered, const Vertices<Kind>& vertex, const typename Program::Parameters& parameters) const {
        Value old_value, new_value;
        do {
            old_value = newest(values[v]);
            new_value = applied<Program>(old_value, gathered, v, vertex, superstep, aggregate, parameters);
            if (Program::MONOTONE && new_value == old_value) return false;
            if constexpr (!Program::MONOTONE || Program::RECORD) {
                new_values[v] = new_value;
                break;
            } else if (compare_and_swap(new_values[v], old_value, new_value)) {
                break;
            }
        } while (true);
        if (!Program::program_scatter(old_value, new_value, parameters, superstep, aggregate)) return false;
        std::atomic_ref(new_steps[v]).store(now, std::memory_order_relaxed);
        std::atomic_ref(blocks[v >> shift]).store(now, std::memory_order_relaxed);
        return true;
    }
};

// What Gather returns, of all groups.
struct Gathered {
    int64 active = 0, messages = 0;

    void add(int64 others_active, int64 others_messages) {
        std::atomic_ref(active).fetch_add(others_active, std::memory_order_relaxed);
        std::atomic_ref(messages).fetch_add(others_messages, std::memory_order_relaxed);
    }
    std::tuple<int64, int64> result() const { return {active, messages}; }
};

// Rows gather from those of their in-neighbours that became active.
template <class Program, class Kind>
std::tuple<int64, int64> gather(
    Span<const int64> groups, Span<const int> order, Lists<Kind> lists, Lists<Kind> outgoing, Loops<Kind>, Vertices<Kind> vertex,
    Span<const uint8> absent, bool both, Packed packed, WindowState<Program> state) {
    const auto parameters = unpacked<Program>(packed);
    Gathered all;
    const auto is_active = [=](uint64 v) { return newest(state.steps[v]) >= state.since; };
    const bool pulls_both = Program::PULLS || state.values.data != state.new_values.data;
    for_each_group(groups, [=, &all](int64, int64 first, int64 last) {
        int64 became_active = 0, messages = 0;
        for (int64 place = first; place < last; ++place) {
            const uint32 v = static_cast<uint32>(order[place]);
            if (absent[v]) continue;
            auto gathered = Program::IDENTITY;
            bool received = false;
            const auto take_from = [&](const Lists<Kind>& own, uint64 slot, uint64 u) {
                if (!is_active(u)) return;
                const double weight = edge_amount(1.0, own.weights, slot);
                auto* edge = Program::EDGES ? &state.edge_values[slot] : nullptr;
                if (!take<Program>(gathered, newest(state.values[u]), weight, u, v, vertex, state.step(), edge, parameters)) return;
                received = true;
                ++messages;
            };
            const bool sends_back = Program::BOTH && !pulls_both && both && is_active(v);
            for_each_entry(lists, v, [&](uint64 slot, uint64 u) {
                take_from(lists, slot, u);
                if (sends_back) {
                    const auto value = newest(state.values[v]);
                    const auto message = message_in<Program>(lists.weights, slot, vertex.degree, v, value, parameters);
                    became_active += state.receive(u, message, vertex, parameters);
                    ++messages;
                }
            });
            if (Program::BOTH && pulls_both && both)
                for_each_entry(outgoing, v, [&](uint64 slot, uint64 u) { take_from(outgoing, slot, u); });
            if (received) became_active += state.receive(v, gathered, vertex, parameters);
        }
        all.add(became_active, messages);
    });
    return all.result();
}

// Rows gather from all of their in-neighbours.
template <class Program, class Kind>
std::tuple<int64, int64> gather_all(
    Span<const int64> groups, Span<const int> order, Lists<Kind> lists, Lists<Kind>, Loops<Kind> loop, Vertices<Kind> vertex,
    Span<const uint8> absent, bool, Packed packed, WindowState<Program> state) {
    const auto parameters = unpacked<Program>(packed);
    const Span<const typename Program::Value> values{state.values.data, state.values.size};
    const auto new_values = state.new_values;
    const auto edge_values = state.edge_values;
    const Step step = state.step();
    Gathered all;
    for_each_group(groups, [=, &all](int64, int64 first, int64 last) {
        int64 became_active = 0, messages = 0;
        for (int64 place = first; place < last; ++place) {
            const uint32 v = static_cast<uint32>(order[place]);
            if (absent[v]) continue;
            auto gathered = Program::IDENTITY;
            for_each_entry(lists, v, [&](uint64 slot, uint64 u) {
                const double weight = edge_amount(1.0, lists.weights, slot);
                auto* edge = Program::EDGES ? &edge_values[slot] : nullptr;
                messages += take<Program>(gathered, values[u], weight, u, v, vertex, step, edge, parameters);
            });
            const auto old_value = values[v];
            take_from_loop<Program>(gathered, old_value, v, loop, vertex, step, parameters);
            const auto new_value = applied<Program>(old_value, gathered, v, vertex, step.superstep, step.aggregate, parameters);
            new_values[v] = new_value;
            became_active += Program::program_scatter(old_value, new_value, parameters, step.superstep, step.aggregate);
        }
        all.add(became_active, messages);
    });
    return all.result();
}

}  // namespace programs

#define PROGRAM_KERNEL(digest, loop)                                                                                             \
    static const bind::Kernel<                                                                                                   \
        #loop "_" #digest, false, programs::loop<program_##digest, Unweighted>, programs::loop<program_##digest, Weighted>>       \
        loop##_##digest
