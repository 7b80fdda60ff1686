// What functions of vertex programs call, for both backends: liverank_gpu.device_functions translates them. The results are
// Python's. Nothing fails, and nothing is undefined: see there.
#pragma once

#if defined(__CUDACC__)
#define POSITIVE_INFINITY (__longlong_as_double(0x7ff0000000000000ll))
#else
#include <math.h>
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
