// What a vertex program does at one vertex, for both backends (liverank_gpu.operations.programs).
//
// A program is a struct that liverank_gpu.operations.programs writes: its Value, its Parameters (integers and floats of
// 64 bits), options (MERGE, AGGREGATOR, INTEGER, EVERY_VERTEX, MONOTONE, BOTH, LOOPS, FIRST_WINS) and the functions
//
//     program_initial    (vertex, out_degree, in_degree, parameters)
//     program_gather     (source_value, weight, share, parameters)
//     program_merge      (a, b, parameters)
//     program_apply      (old, gathered, vertex, out_degree, in_degree, superstep, aggregate, parameters)
//     program_scatter    (old, new, parameters)
//     program_aggregate  (value, vertex, out_degree, in_degree, parameters)
//
// What functions may know of vertices is a struct with ids, degree and in_lengths. Without functions that name them, neither
// these nor weights are read.
#pragma once
#include "program_functions.h"
#include "vertex.h"

namespace vertex {

template <class Program>
using ValueOf = typename Program::Value;
template <class Program>
using ParametersOf = typename Program::Parameters;

// What an edge carries from u.
template <class Program, class Index, class Degrees>
ON_DEVICE ValueOf<Program> message_of(
    ValueOf<Program> value, double weight, Index u, const Degrees& degree, const ParametersOf<Program>& parameters) {
    return Program::program_gather(value, weight, weight / (double)degree[u], parameters);
}

// What v has gathered from others, and what its loop carries.
template <class Program, class Index, class Loops, class Degrees>
ON_DEVICE ValueOf<Program> gathered_with_loop(
    ValueOf<Program> gathered, ValueOf<Program> value, Index v, const Loops& loop, const Degrees& degree,
    const ParametersOf<Program>& parameters) {
    if (!Program::LOOPS || loop[v] == 0) return gathered;
    return Program::program_merge(gathered, message_of<Program>(value, loop[v], v, degree, parameters), parameters);
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

// Whether along an edge comes the value that its target has.
template <class Program>
ON_DEVICE bool supports_target(
    ValueOf<Program> source, ValueOf<Program> target, ValueOf<Program> identity, double weight,
    const ParametersOf<Program>& parameters) {
    return target != identity && Program::program_gather(source, weight, 0.0, parameters) == target;
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
