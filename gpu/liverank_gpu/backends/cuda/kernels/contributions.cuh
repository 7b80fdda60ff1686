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
