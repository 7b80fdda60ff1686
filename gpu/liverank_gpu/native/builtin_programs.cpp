// Written by `python -m tools.programs`, from liverank_gpu/programs/algorithms.py.
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wparentheses"
#include "programs.h"

// levels
struct program_14ec8b8eece18345 {
using Value = int;
static constexpr int MERGE = 1;
static constexpr int AGGREGATOR = 3;
static constexpr bool INTEGER = true;
static constexpr bool EVERY_VERTEX = false;
static constexpr bool MONOTONE = true;
static constexpr bool BOTH = false;
static constexpr bool LOOPS = false;
static constexpr bool FIRST_WINS = true;
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
static __device__ __forceinline__ int program_initial(long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (int)user_initial((long long)vertex_, parameters.source_); }
static __device__ __forceinline__ int program_gather(int source_value_, double weight_, double share_, const Parameters& parameters) { return (int)user_gather((long long)source_value_); }
static __device__ __forceinline__ int program_merge(int a_, int b_, const Parameters& parameters) { return (int)user_merge((long long)a_, (long long)b_); }
static __device__ __forceinline__ int program_apply(int old_, int gathered_, long long vertex_, double out_degree_, long long in_degree_, long long superstep_, double aggregate_, const Parameters& parameters) { return (int)user_apply((long long)old_, (long long)gathered_); }
static __device__ __forceinline__ bool program_scatter(int old_, int new_, const Parameters& parameters) { return (bool)user_scatter((long long)old_, (long long)new_); }
static __device__ __forceinline__ double program_aggregate(int value_, long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (double)user_aggregate((long long)value_); }
static constexpr Value IDENTITY = (Value)(2147483647LL);
};
PROGRAM_KERNEL(14ec8b8eece18345, initialise);
PROGRAM_KERNEL(14ec8b8eece18345, send);
PROGRAM_KERNEL(14ec8b8eece18345, receive);
PROGRAM_KERNEL(14ec8b8eece18345, gather);
PROGRAM_KERNEL(14ec8b8eece18345, send_in_place);
PROGRAM_KERNEL(14ec8b8eece18345, supports);
PROGRAM_KERNEL(14ec8b8eece18345, look);

// distances
struct program_420ccf053beaf313 {
using Value = double;
static constexpr int MERGE = 1;
static constexpr int AGGREGATOR = 3;
static constexpr bool INTEGER = false;
static constexpr bool EVERY_VERTEX = false;
static constexpr bool MONOTONE = true;
static constexpr bool BOTH = false;
static constexpr bool LOOPS = false;
static constexpr bool FIRST_WINS = false;
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
static __device__ __forceinline__ double program_initial(long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (double)user_initial((long long)vertex_, parameters.source_); }
static __device__ __forceinline__ double program_gather(double source_value_, double weight_, double share_, const Parameters& parameters) { return (double)user_gather((double)source_value_, (double)weight_); }
static __device__ __forceinline__ double program_merge(double a_, double b_, const Parameters& parameters) { return (double)user_merge((double)a_, (double)b_); }
static __device__ __forceinline__ double program_apply(double old_, double gathered_, long long vertex_, double out_degree_, long long in_degree_, long long superstep_, double aggregate_, const Parameters& parameters) { return (double)user_apply((double)old_, (double)gathered_); }
static __device__ __forceinline__ bool program_scatter(double old_, double new_, const Parameters& parameters) { return (bool)user_scatter((double)old_, (double)new_); }
static __device__ __forceinline__ double program_aggregate(double value_, long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (double)user_aggregate((double)value_); }
static constexpr Value IDENTITY = (Value)(POSITIVE_INFINITY);
};
PROGRAM_KERNEL(420ccf053beaf313, initialise);
PROGRAM_KERNEL(420ccf053beaf313, send);
PROGRAM_KERNEL(420ccf053beaf313, receive);
PROGRAM_KERNEL(420ccf053beaf313, gather);
PROGRAM_KERNEL(420ccf053beaf313, send_in_place);
PROGRAM_KERNEL(420ccf053beaf313, supports);

// components
struct program_ee10d4df3b2843e8 {
using Value = int;
static constexpr int MERGE = 1;
static constexpr int AGGREGATOR = 3;
static constexpr bool INTEGER = true;
static constexpr bool EVERY_VERTEX = false;
static constexpr bool MONOTONE = true;
static constexpr bool BOTH = true;
static constexpr bool LOOPS = false;
static constexpr bool FIRST_WINS = false;
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
static __device__ __forceinline__ int program_initial(long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (int)user_initial((long long)vertex_); }
static __device__ __forceinline__ int program_gather(int source_value_, double weight_, double share_, const Parameters& parameters) { return (int)user_gather((long long)source_value_); }
static __device__ __forceinline__ int program_merge(int a_, int b_, const Parameters& parameters) { return (int)user_merge((long long)a_, (long long)b_); }
static __device__ __forceinline__ int program_apply(int old_, int gathered_, long long vertex_, double out_degree_, long long in_degree_, long long superstep_, double aggregate_, const Parameters& parameters) { return (int)user_apply((long long)old_, (long long)gathered_); }
static __device__ __forceinline__ bool program_scatter(int old_, int new_, const Parameters& parameters) { return (bool)user_scatter((long long)old_, (long long)new_); }
static __device__ __forceinline__ double program_aggregate(int value_, long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (double)user_aggregate((long long)value_); }
static constexpr Value IDENTITY = (Value)(2147483647LL);
};
PROGRAM_KERNEL(ee10d4df3b2843e8, initialise);
PROGRAM_KERNEL(ee10d4df3b2843e8, send);
PROGRAM_KERNEL(ee10d4df3b2843e8, receive);
PROGRAM_KERNEL(ee10d4df3b2843e8, gather);
PROGRAM_KERNEL(ee10d4df3b2843e8, send_in_place);
PROGRAM_KERNEL(ee10d4df3b2843e8, supports);

// pagerank
struct program_6650e83af5ace352 {
using Value = double;
static constexpr int MERGE = 3;
static constexpr int AGGREGATOR = 3;
static constexpr bool INTEGER = false;
static constexpr bool EVERY_VERTEX = true;
static constexpr bool MONOTONE = false;
static constexpr bool BOTH = false;
static constexpr bool LOOPS = true;
static constexpr bool FIRST_WINS = false;
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
static __device__ __forceinline__ double program_initial(long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (double)user_initial(parameters.vertices_); }
static __device__ __forceinline__ double program_gather(double source_value_, double weight_, double share_, const Parameters& parameters) { return (double)user_gather((double)source_value_, (double)share_); }
static __device__ __forceinline__ double program_merge(double a_, double b_, const Parameters& parameters) { return (double)user_merge((double)a_, (double)b_); }
static __device__ __forceinline__ double program_apply(double old_, double gathered_, long long vertex_, double out_degree_, long long in_degree_, long long superstep_, double aggregate_, const Parameters& parameters) { return (double)user_apply((double)gathered_, (double)aggregate_, parameters.vertices_, parameters.damping_); }
static __device__ __forceinline__ bool program_scatter(double old_, double new_, const Parameters& parameters) { return (bool)user_scatter((double)old_, (double)new_, parameters.tolerance_, parameters.vertices_); }
static __device__ __forceinline__ double program_aggregate(double value_, long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (double)user_aggregate((double)value_, (double)out_degree_); }
static constexpr Value IDENTITY = (Value)0.0;
};
PROGRAM_KERNEL(6650e83af5ace352, initialise);
PROGRAM_KERNEL(6650e83af5ace352, aggregate);
PROGRAM_KERNEL(6650e83af5ace352, gather_all);

// peel
struct program_2e7e9773abfbdc28 {
using Value = int;
static constexpr int MERGE = 3;
static constexpr int AGGREGATOR = 3;
static constexpr bool INTEGER = true;
static constexpr bool EVERY_VERTEX = false;
static constexpr bool MONOTONE = false;
static constexpr bool BOTH = false;
static constexpr bool LOOPS = false;
static constexpr bool FIRST_WINS = false;
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
static __device__ __forceinline__ int program_initial(long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (int)user_initial(); }
static __device__ __forceinline__ int program_gather(int source_value_, double weight_, double share_, const Parameters& parameters) { return (int)user_gather(); }
static __device__ __forceinline__ int program_merge(int a_, int b_, const Parameters& parameters) { return (int)user_merge((long long)a_, (long long)b_); }
static __device__ __forceinline__ int program_apply(int old_, int gathered_, long long vertex_, double out_degree_, long long in_degree_, long long superstep_, double aggregate_, const Parameters& parameters) { return (int)user_apply((long long)old_, (long long)gathered_); }
static __device__ __forceinline__ bool program_scatter(int old_, int new_, const Parameters& parameters) { return (bool)user_scatter((long long)old_, (long long)new_); }
static __device__ __forceinline__ double program_aggregate(int value_, long long vertex_, double out_degree_, long long in_degree_, const Parameters& parameters) { return (double)user_aggregate((long long)value_); }
static constexpr Value IDENTITY = (Value)(0LL);
};
PROGRAM_KERNEL(2e7e9773abfbdc28, initialise);
PROGRAM_KERNEL(2e7e9773abfbdc28, send);
PROGRAM_KERNEL(2e7e9773abfbdc28, receive);
PROGRAM_KERNEL(2e7e9773abfbdc28, gather);
