// What a vertex program does at one vertex, for both backends (liverank_gpu.operations.programs).
//
// A program is a struct that liverank_gpu.operations.programs writes: its Value and EdgeValue, its Parameters (integers and
// floats of 64 bits), options (MERGE, AGGREGATOR, INTEGER, RECORD, EVERY_VERTEX, MONOTONE, BOTH, LOOPS, FIRST_WINS, PULLS,
// SENDS, EDGES) and the functions
//
//     program_initial     (vertex, out_degree, in_degree, parameters)
//     program_gather      (source_value, weight, share, parameters, sender, receiver, superstep, aggregate, edge)
//     program_merge       (a, b, parameters)
//     program_apply       (old, gathered, vertex, out_degree, in_degree, superstep, aggregate, parameters)
//     program_scatter     (old, new, parameters, superstep, aggregate)
//     program_aggregate   (value, vertex, out_degree, in_degree, parameters)
//     program_sends       as program_gather, if SENDS
//     program_edge_apply  as program_gather, if EDGES
//
// of which those behind the parameters are for programs whose vertices pull, and have defaults.
//
// What functions may know of vertices is a struct with ids, degree and in_lengths. Without functions that name them, neither
// these nor weights are read.
#pragma once
#include "vertex.h"

// ---- what functions call: liverank_gpu.device_functions translates them. The results are Python's. Nothing fails, and nothing
// is undefined: see there. ----

#if defined(__CUDACC__)
#define POSITIVE_INFINITY (__longlong_as_double(0x7ff0000000000000ll))
#else
#define POSITIVE_INFINITY (__builtin_huge_val())
#define __device__
#define __forceinline__ inline
#endif

// How messages are merged, and values aggregated.
enum { MERGE_OTHER, MERGE_MIN, MERGE_MAX, MERGE_SUM };

// the first of equal ones
template <typename T> __device__ __forceinline__ T smaller(T a, T b) { return b < a ? b : a; }
template <typename T> __device__ __forceinline__ T larger(T a, T b) { return b > a ? b : a; }

// An integer that 64 bits have no room for is what is left of it.
__device__ __forceinline__ long long sum_of(long long a, long long b) {
    return (long long)((unsigned long long)a + (unsigned long long)b);
}
__device__ __forceinline__ long long difference_of(long long a, long long b) {
    return (long long)((unsigned long long)a - (unsigned long long)b);
}
__device__ __forceinline__ long long product_of(long long a, long long b) {
    return (long long)((unsigned long long)a * (unsigned long long)b);
}
__device__ __forceinline__ long long negative_of(long long a) { return difference_of(0, a); }
__device__ __forceinline__ long long size_of(long long a) { return a < 0 ? negative_of(a) : a; }

// Rounded downwards; 0 where b is.
__device__ __forceinline__ long long floor_quotient(long long a, long long b) {
    if (b == 0) return 0;
    if (b == -1) return negative_of(a);
    const long long quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
__device__ __forceinline__ long long floor_remainder(long long a, long long b) {
    return b == 0 ? 0 : difference_of(a, product_of(floor_quotient(a, b), b));
}

// The integer towards 0; the lowest one where 64 bits have no room for it, and of what is not a number.
__device__ __forceinline__ long long whole(double x) {
    return x >= -0x1p63 && x < 0x1p63 ? (long long)x : (long long)0x8000000000000000ull;
}
__device__ __forceinline__ long long whole(long long x) { return x; }
__device__ __forceinline__ long long whole(bool x) { return x; }

// ---- what a program does ----

namespace vertex {

template <class Program>
using ValueOf = typename Program::Value;
template <class Program>
using ParametersOf = typename Program::Parameters;

// int64 of a record; 0 of a number.
template <class T, typename = int>
struct WordsOf {
    static constexpr int value = 0;
};
template <class T>
struct WordsOf<T, decltype((void)T::WORDS, 0)> {
    static constexpr int value = T::WORDS;
};

// The superstep that a vertex pulls in.
struct Step {
    long long superstep;
    double aggregate;
};

// What an edge carries from u.
template <class Program, class Index, class Degrees>
ON_DEVICE ValueOf<Program> message_of(
    ValueOf<Program> value, double weight, Index u, const Degrees& degree, const ParametersOf<Program>& parameters) {
    return Program::program_gather(value, weight, weight / (double)degree[u], parameters);
}

// Merges what comes to v from u along an edge, and gives the edge its new value. Returns whether u sends along it.
template <class Program, class Source, class Target, class Vertices>
ON_DEVICE bool take(
    ValueOf<Program>& gathered, ValueOf<Program> value, double weight, Source u, Target v, const Vertices& vertices,
    const Step& step, typename Program::EdgeValue* edge, const ParametersOf<Program>& parameters) {
    const double share = weight / (double)vertices.degree[u];
    typename Program::EdgeValue old_edge = typename Program::EdgeValue();
    if constexpr (Program::EDGES) old_edge = *edge;
    const long long sender = vertices.ids[u], receiver = vertices.ids[v], superstep = step.superstep;
    if constexpr (Program::SENDS) {
        if (!Program::program_sends(value, weight, share, parameters, sender, receiver, superstep, step.aggregate, old_edge))
            return false;
    }
    const ValueOf<Program> message =
        Program::program_gather(value, weight, share, parameters, sender, receiver, superstep, step.aggregate, old_edge);
    gathered = Program::program_merge(gathered, message, parameters);
    if constexpr (Program::EDGES)
        *edge = Program::program_edge_apply(
            value, weight, share, parameters, sender, receiver, superstep, step.aggregate, old_edge);
    return true;
}

// Merges what the loop of v carries.
template <class Program, class Index, class Loops, class Vertices>
ON_DEVICE void take_from_loop(
    ValueOf<Program>& gathered, ValueOf<Program> value, Index v, const Loops& loop, const Vertices& vertices, const Step& step,
    const ParametersOf<Program>& parameters) {
    if (!Program::LOOPS || loop[v] == 0) return;
    take<Program>(gathered, value, (double)loop[v], v, v, vertices, step, nullptr, parameters);
}

template <class Program, class Index, class Vertices>
ON_DEVICE ValueOf<Program> applied(
    ValueOf<Program> value, ValueOf<Program> gathered, Index v, const Vertices& vertices, long long superstep, double aggregate,
    const ParametersOf<Program>& parameters) {
    return Program::program_apply(
        value, gathered, vertices.ids[v], vertices.degree[v], vertices.in_lengths[v], superstep, aggregate, parameters);
}

// The same for one message, where the function names nothing else.
template <class Program>
ON_DEVICE ValueOf<Program> applied(
    ValueOf<Program> value, ValueOf<Program> message, const ParametersOf<Program>& parameters) {
    return Program::program_apply(value, message, 0, 0.0, 0, 0, 0.0, parameters);
}

// Whether along an edge comes the value that its target has. sender, receiver: the ids of its ends.
template <class Program>
ON_DEVICE bool supports_target(
    ValueOf<Program> source, ValueOf<Program> target, ValueOf<Program> identity, double weight, int sender, int receiver,
    const ParametersOf<Program>& parameters) {
    if (target == identity) return false;
    if constexpr (Program::SENDS)
        if (!Program::program_sends(source, weight, 0.0, parameters, sender, receiver)) return false;
    return Program::program_gather(source, weight, 0.0, parameters, sender, receiver) == target;
}

template <class Program>
ON_DEVICE double combined(double first, double second) {
    if constexpr (Program::AGGREGATOR == MERGE_SUM) return first + second;
    else if constexpr (Program::AGGREGATOR == MERGE_MIN) return smaller_of(first, second);
    else return larger_of(first, second);
}

// `total`, and the aggregate of v.
template <class Program, class Index, class Vertices>
ON_DEVICE double with_aggregate(
    double total, ValueOf<Program> value, Index v, const Vertices& vertices, const ParametersOf<Program>& parameters) {
    return combined<Program>(
        total, Program::program_aggregate(value, vertices.ids[v], vertices.degree[v], vertices.in_lengths[v], parameters));
}

}  // namespace vertex
