// Contributions in bfloat16 (liverank_gpu/kernels/vertex.h): a quarter of the bytes of random reads, and more of them fit into
// the caches. The step that one stands for, contribution · d, is exact in float64, and the rest of the residual, 1/256 at most,
// stays for the next sweep.
// A strength is no integer: contribution · d is rounded then (liverank_gpu.pagerank.certificate). One so small that the
// contribution exceeds bfloat16 gets the largest there is, and the rest of the residual stays.
#include "common.cuh"

using Contribution = unsigned short;

namespace vertex {

template <>
ON_DEVICE double exact(Contribution contribution) {
    return (double)__uint_as_float((unsigned)contribution << 16);
}

template <>
ON_DEVICE Contribution quantized(double residual, Degree d, double diagonal) {
    return (Contribution)round_to_bfloat16(__fdividef((float)residual, (float)diagonal * (float)d));
}

}  // namespace vertex

// ---- Sums over in-lists as pages.cu forms them: integers, multiples of a unit.
//
// A contribution is rounded to the unit where it is used: by those who receive it, and by its own vertex, which takes the step
// that it has sent. So sums are exact, whatever their order, and what rounding leaves out stays in the residual. With weights
// each edge is rounded by itself, and the vertex takes the step as it is.
constexpr float EXACT_UNITS = 256.0f;  // bfloat16 has 8 digits: what measures as many units is a multiple of the unit

// How many units a contribution stands for; scale is 1/unit, a power of two.
__device__ __forceinline__ int64 units_of(unsigned short contribution, float scale) {
    return llrintf(scale * (float)exact(contribution));
}

struct PageSums {
    const int64* sums;  // of each vertex, in units
    float unit, scale;

    __device__ __forceinline__ double of(int64 v) const { return (double)unit * (double)sums[v]; }

    __device__ __forceinline__ unsigned short rounded(unsigned short contribution) const {
        if constexpr (WEIGHTED) return contribution;
        const float units = scale * (float)exact(contribution);
        if (fabsf(units) >= EXACT_UNITS) return contribution;
        return (unsigned short)(__float_as_uint(unit * (float)units_of(contribution, scale)) >> 16);
    }
};
