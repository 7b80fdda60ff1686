// Written by `python -m tools.programs`, from liverank_gpu/programs/algorithms.py.
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wparentheses"
#include "programs.h"

// levels
struct program_2ccf5578c0ef73e9 {
using Value = int;
using EdgeValue = unsigned char;
static constexpr int MERGE = 1, AGGREGATOR = 3;
static constexpr bool INTEGER = true, RECORD = false, EVERY_VERTEX = false, MONOTONE = true, BOTH = false, LOOPS = false, FIRST_WINS = true, PULLS = false, SENDS = false, EDGES = false;
struct Parameters {
    long long vertices_;
    long long source_;
};
static __device__ __forceinline__ long long user_initial(long long vertex_, long long source_) {
    return (((vertex_ == source_)) ? (long long)0LL : (long long)2147483647LL);
}
static __device__ __forceinline__ long long user_gather(long long source_value_) {
    return sum_of(source_value_, 1LL);
}
static __device__ __forceinline__ long long user_merge(long long a_, long long b_) {
    return smaller((long long)a_, (long long)b_);
}
static __device__ __forceinline__ long long user_apply(long long old_, long long gathered_) {
    return smaller((long long)old_, (long long)gathered_);
}
static __device__ __forceinline__ bool user_scatter(long long old_, long long new_) {
    return ((old_ != new_));
}
static __device__ __forceinline__ double user_aggregate(long long value_) {
    return (0x0.0p+0);
}
static __device__ __forceinline__ Value program_initial(long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (Value)user_initial((long long)vertex_, parameters.source_); }
static __device__ __forceinline__ Value program_gather(Value source_value_, double weight_, double share_, const Parameters& parameters, long long sender_ = 0, long long receiver_ = 0, long long superstep_ = -1, double aggregate_ = 0.0, EdgeValue = EdgeValue()) { return (Value)user_gather((long long)source_value_); }
static __device__ __forceinline__ Value program_merge(Value a_, Value b_, const Parameters& parameters) { return (Value)user_merge((long long)a_, (long long)b_); }
static __device__ __forceinline__ Value program_apply(Value old_, Value gathered_, long long vertex_, double out_degree_, long long in_degree_, long long superstep_, double aggregate_, const Parameters& parameters) { return (Value)user_apply((long long)old_, (long long)gathered_); }
static __device__ __forceinline__ bool program_scatter(Value old_, Value new_, const Parameters& parameters, long long superstep_ = -1, double aggregate_ = 0.0) { return (bool)user_scatter((long long)old_, (long long)new_); }
static __device__ __forceinline__ double program_aggregate(Value value_, long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (double)user_aggregate((long long)value_); }
static constexpr Value IDENTITY = (Value)(2147483647LL);
};
PROGRAM_KERNEL(2ccf5578c0ef73e9, initialise); PROGRAM_KERNEL(2ccf5578c0ef73e9, gather); PROGRAM_KERNEL(2ccf5578c0ef73e9, send); PROGRAM_KERNEL(2ccf5578c0ef73e9, receive); PROGRAM_KERNEL(2ccf5578c0ef73e9, send_in_place); PROGRAM_KERNEL(2ccf5578c0ef73e9, supports); PROGRAM_KERNEL(2ccf5578c0ef73e9, look);

// distances
struct program_6959e72ffcf1e599 {
using Value = double;
using EdgeValue = unsigned char;
static constexpr int MERGE = 1, AGGREGATOR = 3;
static constexpr bool INTEGER = false, RECORD = false, EVERY_VERTEX = false, MONOTONE = true, BOTH = false, LOOPS = false, FIRST_WINS = false, PULLS = false, SENDS = false, EDGES = false;
struct Parameters {
    long long vertices_;
    long long source_;
};
static __device__ __forceinline__ double user_initial(long long vertex_, long long source_) {
    return (((vertex_ == source_)) ? (double)(0x0.0p+0) : (double)(POSITIVE_INFINITY));
}
static __device__ __forceinline__ double user_gather(double source_value_, double weight_) {
    return ((double)source_value_ + (double)weight_);
}
static __device__ __forceinline__ double user_merge(double a_, double b_) {
    return smaller((double)a_, (double)b_);
}
static __device__ __forceinline__ double user_apply(double old_, double gathered_) {
    return smaller((double)old_, (double)gathered_);
}
static __device__ __forceinline__ bool user_scatter(double old_, double new_) {
    return ((old_ != new_));
}
static __device__ __forceinline__ double user_aggregate(double value_) {
    return (0x0.0p+0);
}
static __device__ __forceinline__ Value program_initial(long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (Value)user_initial((long long)vertex_, parameters.source_); }
static __device__ __forceinline__ Value program_gather(Value source_value_, double weight_, double share_, const Parameters& parameters, long long sender_ = 0, long long receiver_ = 0, long long superstep_ = -1, double aggregate_ = 0.0, EdgeValue = EdgeValue()) { return (Value)user_gather((double)source_value_, (double)weight_); }
static __device__ __forceinline__ Value program_merge(Value a_, Value b_, const Parameters& parameters) { return (Value)user_merge((double)a_, (double)b_); }
static __device__ __forceinline__ Value program_apply(Value old_, Value gathered_, long long vertex_, double out_degree_, long long in_degree_, long long superstep_, double aggregate_, const Parameters& parameters) { return (Value)user_apply((double)old_, (double)gathered_); }
static __device__ __forceinline__ bool program_scatter(Value old_, Value new_, const Parameters& parameters, long long superstep_ = -1, double aggregate_ = 0.0) { return (bool)user_scatter((double)old_, (double)new_); }
static __device__ __forceinline__ double program_aggregate(Value value_, long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (double)user_aggregate((double)value_); }
static constexpr Value IDENTITY = (Value)(POSITIVE_INFINITY);
};
PROGRAM_KERNEL(6959e72ffcf1e599, initialise); PROGRAM_KERNEL(6959e72ffcf1e599, gather); PROGRAM_KERNEL(6959e72ffcf1e599, send); PROGRAM_KERNEL(6959e72ffcf1e599, receive); PROGRAM_KERNEL(6959e72ffcf1e599, send_in_place); PROGRAM_KERNEL(6959e72ffcf1e599, supports);

// paths
struct program_96f2e717e3853280 {
struct Value {
    static constexpr int WORDS = 2;
    double distance_;
    int predecessor_;
    int padding;
    static __device__ __forceinline__ Value of(double distance_, long long predecessor_) {
        return {(double)distance_, (int)predecessor_, 0};
    }
    __device__ __forceinline__ bool operator==(const Value& other) const { return distance_ == other.distance_ && predecessor_ == other.predecessor_; }
    __device__ __forceinline__ bool operator!=(const Value& other) const {
        return !(*this == other);
    }
};
using EdgeValue = unsigned char;
static constexpr int MERGE = 0, AGGREGATOR = 3;
static constexpr bool INTEGER = false, RECORD = true, EVERY_VERTEX = false, MONOTONE = true, BOTH = false, LOOPS = false, FIRST_WINS = false, PULLS = true, SENDS = false, EDGES = false;
struct Parameters {
    long long vertices_;
    long long source_;
};
static __device__ __forceinline__ Value user_initial(long long vertex_, long long source_) {
    return Value::of((double)(((vertex_ == source_)) ? (double)(0x0.0p+0) : (double)(POSITIVE_INFINITY)), whole((-1LL)));
}
static __device__ __forceinline__ Value user_gather(Value source_value_, double weight_, long long sender_) {
    return Value::of((double)((double)((double)source_value_.distance_) + (double)weight_), whole(sender_));
}
static __device__ __forceinline__ Value user_merge(Value a_, Value b_) {
    if (((((double)b_.distance_) == ((double)a_.distance_)))) {
        return (((((long long)b_.predecessor_) < ((long long)a_.predecessor_))) ? b_ : a_);
    }
    return (((((double)b_.distance_) < ((double)a_.distance_))) ? b_ : a_);
}
static __device__ __forceinline__ Value user_apply(Value old_, Value gathered_) {
    if (((((double)gathered_.distance_) == ((double)old_.distance_)))) {
        return (((((long long)gathered_.predecessor_) < ((long long)old_.predecessor_))) ? gathered_ : old_);
    }
    return (((((double)gathered_.distance_) < ((double)old_.distance_))) ? gathered_ : old_);
}
static __device__ __forceinline__ bool user_scatter(Value old_, Value new_) {
    return ((((double)old_.distance_) != ((double)new_.distance_)));
}
static __device__ __forceinline__ double user_aggregate(Value value_) {
    return (0x0.0p+0);
}
static __device__ __forceinline__ Value program_initial(long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (Value)user_initial((long long)vertex_, parameters.source_); }
static __device__ __forceinline__ Value program_gather(Value source_value_, double weight_, double share_, const Parameters& parameters, long long sender_ = 0, long long receiver_ = 0, long long superstep_ = -1, double aggregate_ = 0.0, EdgeValue = EdgeValue()) { return (Value)user_gather((Value)source_value_, (double)weight_, (long long)sender_); }
static __device__ __forceinline__ Value program_merge(Value a_, Value b_, const Parameters& parameters) { return (Value)user_merge((Value)a_, (Value)b_); }
static __device__ __forceinline__ Value program_apply(Value old_, Value gathered_, long long vertex_, double out_degree_, long long in_degree_, long long superstep_, double aggregate_, const Parameters& parameters) { return (Value)user_apply((Value)old_, (Value)gathered_); }
static __device__ __forceinline__ bool program_scatter(Value old_, Value new_, const Parameters& parameters, long long superstep_ = -1, double aggregate_ = 0.0) { return (bool)user_scatter((Value)old_, (Value)new_); }
static __device__ __forceinline__ double program_aggregate(Value value_, long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (double)user_aggregate((Value)value_); }
static constexpr Value IDENTITY = (Value{(double)(POSITIVE_INFINITY), (int)(-1LL), 0});
};
PROGRAM_KERNEL(96f2e717e3853280, initialise); PROGRAM_KERNEL(96f2e717e3853280, gather); PROGRAM_KERNEL(96f2e717e3853280, supports);

// components
struct program_3b1a9cf546254112 {
using Value = int;
using EdgeValue = unsigned char;
static constexpr int MERGE = 1, AGGREGATOR = 3;
static constexpr bool INTEGER = true, RECORD = false, EVERY_VERTEX = false, MONOTONE = true, BOTH = true, LOOPS = false, FIRST_WINS = false, PULLS = false, SENDS = false, EDGES = false;
struct Parameters {
    long long vertices_;
};
static __device__ __forceinline__ long long user_initial(long long vertex_) {
    return vertex_;
}
static __device__ __forceinline__ long long user_gather(long long source_value_) {
    return source_value_;
}
static __device__ __forceinline__ long long user_merge(long long a_, long long b_) {
    return smaller((long long)a_, (long long)b_);
}
static __device__ __forceinline__ long long user_apply(long long old_, long long gathered_) {
    return smaller((long long)old_, (long long)gathered_);
}
static __device__ __forceinline__ bool user_scatter(long long old_, long long new_) {
    return ((old_ != new_));
}
static __device__ __forceinline__ double user_aggregate(long long value_) {
    return (0x0.0p+0);
}
static __device__ __forceinline__ Value program_initial(long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (Value)user_initial((long long)vertex_); }
static __device__ __forceinline__ Value program_gather(Value source_value_, double weight_, double share_, const Parameters& parameters, long long sender_ = 0, long long receiver_ = 0, long long superstep_ = -1, double aggregate_ = 0.0, EdgeValue = EdgeValue()) { return (Value)user_gather((long long)source_value_); }
static __device__ __forceinline__ Value program_merge(Value a_, Value b_, const Parameters& parameters) { return (Value)user_merge((long long)a_, (long long)b_); }
static __device__ __forceinline__ Value program_apply(Value old_, Value gathered_, long long vertex_, double out_degree_, long long in_degree_, long long superstep_, double aggregate_, const Parameters& parameters) { return (Value)user_apply((long long)old_, (long long)gathered_); }
static __device__ __forceinline__ bool program_scatter(Value old_, Value new_, const Parameters& parameters, long long superstep_ = -1, double aggregate_ = 0.0) { return (bool)user_scatter((long long)old_, (long long)new_); }
static __device__ __forceinline__ double program_aggregate(Value value_, long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (double)user_aggregate((long long)value_); }
static constexpr Value IDENTITY = (Value)(2147483647LL);
};
PROGRAM_KERNEL(3b1a9cf546254112, initialise); PROGRAM_KERNEL(3b1a9cf546254112, gather); PROGRAM_KERNEL(3b1a9cf546254112, send); PROGRAM_KERNEL(3b1a9cf546254112, receive); PROGRAM_KERNEL(3b1a9cf546254112, send_in_place); PROGRAM_KERNEL(3b1a9cf546254112, supports);

// pagerank
struct program_6dd5ffcc51f70cc9 {
using Value = double;
using EdgeValue = unsigned char;
static constexpr int MERGE = 3, AGGREGATOR = 3;
static constexpr bool INTEGER = false, RECORD = false, EVERY_VERTEX = true, MONOTONE = false, BOTH = false, LOOPS = true, FIRST_WINS = false, PULLS = false, SENDS = false, EDGES = false;
struct Parameters {
    long long vertices_;
    double damping_;
    double tolerance_;
};
static __device__ __forceinline__ double user_initial(long long vertices_) {
    return ((double)(0x1.0000000000000p+0) / (double)vertices_);
}
static __device__ __forceinline__ double user_gather(double source_value_, double share_) {
    return ((double)source_value_ * (double)share_);
}
static __device__ __forceinline__ double user_merge(double a_, double b_) {
    return ((double)a_ + (double)b_);
}
static __device__ __forceinline__ double user_apply(double gathered_, double aggregate_, long long vertices_, double damping_) {
    return ((double)((double)((double)(0x1.0000000000000p+0) - (double)damping_) / (double)vertices_) + (double)((double)damping_ * (double)((double)gathered_ + (double)((double)aggregate_ / (double)vertices_))));
}
static __device__ __forceinline__ bool user_scatter(double old_, double new_, double tolerance_, long long vertices_) {
    return ((fabs(((double)new_ - (double)old_)) > ((double)tolerance_ / (double)vertices_)));
}
static __device__ __forceinline__ double user_aggregate(double value_, double out_degree_) {
    return (((out_degree_ == (0x0.0p+0))) ? (double)value_ : (double)(0x0.0p+0));
}
static __device__ __forceinline__ Value program_initial(long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (Value)user_initial(parameters.vertices_); }
static __device__ __forceinline__ Value program_gather(Value source_value_, double weight_, double share_, const Parameters& parameters, long long sender_ = 0, long long receiver_ = 0, long long superstep_ = -1, double aggregate_ = 0.0, EdgeValue = EdgeValue()) { return (Value)user_gather((double)source_value_, (double)share_); }
static __device__ __forceinline__ Value program_merge(Value a_, Value b_, const Parameters& parameters) { return (Value)user_merge((double)a_, (double)b_); }
static __device__ __forceinline__ Value program_apply(Value old_, Value gathered_, long long vertex_, double out_degree_, long long in_degree_, long long superstep_, double aggregate_, const Parameters& parameters) { return (Value)user_apply((double)gathered_, (double)aggregate_, parameters.vertices_, parameters.damping_); }
static __device__ __forceinline__ bool program_scatter(Value old_, Value new_, const Parameters& parameters, long long superstep_ = -1, double aggregate_ = 0.0) { return (bool)user_scatter((double)old_, (double)new_, parameters.tolerance_, parameters.vertices_); }
static __device__ __forceinline__ double program_aggregate(Value value_, long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (double)user_aggregate((double)value_, (double)out_degree_); }
static constexpr Value IDENTITY = (Value)(0.0);
};
PROGRAM_KERNEL(6dd5ffcc51f70cc9, initialise); PROGRAM_KERNEL(6dd5ffcc51f70cc9, aggregate); PROGRAM_KERNEL(6dd5ffcc51f70cc9, gather_all);

// peel
struct program_32fb8dc84d8b2d5a {
using Value = int;
using EdgeValue = unsigned char;
static constexpr int MERGE = 3, AGGREGATOR = 3;
static constexpr bool INTEGER = true, RECORD = false, EVERY_VERTEX = false, MONOTONE = false, BOTH = false, LOOPS = false, FIRST_WINS = false, PULLS = false, SENDS = false, EDGES = false;
struct Parameters {
    long long vertices_;
};
static __device__ __forceinline__ long long user_initial() {
    return 0LL;
}
static __device__ __forceinline__ long long user_gather() {
    return 1LL;
}
static __device__ __forceinline__ long long user_merge(long long a_, long long b_) {
    return sum_of(a_, b_);
}
static __device__ __forceinline__ long long user_apply(long long old_, long long gathered_) {
    return difference_of(old_, gathered_);
}
static __device__ __forceinline__ bool user_scatter(long long old_, long long new_) {
    return false;
}
static __device__ __forceinline__ double user_aggregate(long long value_) {
    return (0x0.0p+0);
}
static __device__ __forceinline__ Value program_initial(long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (Value)user_initial(); }
static __device__ __forceinline__ Value program_gather(Value source_value_, double weight_, double share_, const Parameters& parameters, long long sender_ = 0, long long receiver_ = 0, long long superstep_ = -1, double aggregate_ = 0.0, EdgeValue = EdgeValue()) { return (Value)user_gather(); }
static __device__ __forceinline__ Value program_merge(Value a_, Value b_, const Parameters& parameters) { return (Value)user_merge((long long)a_, (long long)b_); }
static __device__ __forceinline__ Value program_apply(Value old_, Value gathered_, long long vertex_, double out_degree_, long long in_degree_, long long superstep_, double aggregate_, const Parameters& parameters) { return (Value)user_apply((long long)old_, (long long)gathered_); }
static __device__ __forceinline__ bool program_scatter(Value old_, Value new_, const Parameters& parameters, long long superstep_ = -1, double aggregate_ = 0.0) { return (bool)user_scatter((long long)old_, (long long)new_); }
static __device__ __forceinline__ double program_aggregate(Value value_, long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (double)user_aggregate((long long)value_); }
static constexpr Value IDENTITY = (Value)(0LL);
};
PROGRAM_KERNEL(32fb8dc84d8b2d5a, initialise); PROGRAM_KERNEL(32fb8dc84d8b2d5a, gather); PROGRAM_KERNEL(32fb8dc84d8b2d5a, send); PROGRAM_KERNEL(32fb8dc84d8b2d5a, receive);
