// What a vertex sends along each of its edges in one dense sweep: r / (1 - αℓ/d) / d, quantized.
//
// Contributions are bfloat16: a quarter of the bytes of random reads, and more of them fit into the caches. Nothing is lost:
// the step is what the rounded contribution stands for, contribution · d, which float64 holds exactly, and the rest of the
// residual, 1/256 at most, stays for the next sweep.
// A strength is no integer: contribution · d is rounded then (liverank_gpu.pagerank.certificate). One so small that the
// contribution exceeds bfloat16 gets the largest there is, and the rest of the residual stays.

using Contribution = unsigned short;

__device__ __forceinline__ double exact(Contribution contribution) {
    return (double)__uint_as_float((unsigned)contribution << 16);
}

// Only the rounded value counts, so what is rounded need not be exact.
__device__ __forceinline__ Contribution contribution_of(double residual, Degree d, double diagonal) {
    if (d == 0) return 0;
    return (Contribution)round_to_bfloat16(bounded(__fdividef((float)residual, (float)diagonal * (float)d)));
}

// The step δ that a contribution stands for. A dangling vertex takes all of its residual and sends nothing.
__device__ __forceinline__ double step_of(Contribution contribution, double residual, Degree d) {
    return d > 0 ? exact(contribution) * d : residual;
}

// What Σr will contain because of v after a sweep, apart from the rounding of y: α·contribution·(d - ℓ) is sent, and
// r - (1 - αℓ/d)·contribution·d stays.
__device__ __forceinline__ double next_residual(double residual, Contribution contribution, Degree d, double damping) {
    return d > 0 ? residual - (1.0 - damping) * (exact(contribution) * d) : 0.0;
}

// Whether a vertex has no edge but its own loop. It receives nothing and sends nothing, so its y follows β at once.
__device__ __forceinline__ bool is_isolated(Degree d, Loop loop, int in_length) { return d == loop && in_length == 0; }

// y and r of an isolated vertex once y has taken all of a residual that it can represent.
struct IsolatedStep {
    double value, residual;

    __device__ __forceinline__ IsolatedStep(double old_value, double old_residual, double diagonal) {
        value = old_value + old_residual / diagonal;
        residual = old_residual - diagonal * (value - old_value);
    }
};

// The sums of a sweep: see liverank_gpu.operations.sweeps.SweepResult.
enum SweepSum { RESIDUAL_L1, RESIDUAL_SUM, MASS, NEXT_RESIDUAL_SUM, LARGEST_STEP };
