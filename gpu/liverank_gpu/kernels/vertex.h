// What happens at one vertex, for both backends: NVRTC compiles this for the GPU, a C++ compiler for the CPU. No loops over rows,
// no warps, no atomics. In formulas α is the damping, d the out-degree (or strength) of v, ℓ its loop:
// liverank_gpu.operations.csr.GraphView.
#pragma once

#if defined(__CUDACC__)
#define ON_DEVICE __device__ __forceinline__
#else
#define ON_DEVICE inline
#endif

namespace vertex {

constexpr float LARGEST_FLOAT = 0x1.fffffep127f;

// 1 - αℓ/d: the diagonal entry of I - αP̄ᵀ.
ON_DEVICE double diagonal_of(int degree, unsigned char loop, double damping) { return loop ? 1.0 - damping / degree : 1.0; }
ON_DEVICE double diagonal_of(double degree, float loop, double damping) {
    return loop != 0 ? 1.0 - damping * ((double)loop / degree) : 1.0;
}

// Whether a vertex has no edge but its own loop. It receives nothing and sends nothing, so its y follows β at once.
template <class Degree, class Loop>
ON_DEVICE bool is_isolated(Degree degree, Loop loop, int in_length) {
    return degree == loop && in_length == 0;
}

// A contribution that a tiny strength does not make infinite: the rest of the residual stays.
ON_DEVICE float bounded(float contribution, int) { return contribution; }
template <class Number>
ON_DEVICE Number bounded(Number contribution, double) {
    const Number above = contribution < -LARGEST_FLOAT ? -LARGEST_FLOAT : contribution;
    return above > LARGEST_FLOAT ? LARGEST_FLOAT : above;
}

// What v sends along each edge of weight 1: r / (1 - αℓ/d) / d, quantized. Only the rounded value counts, so what is rounded need
// not be exact.
template <class Degree>
ON_DEVICE float contribution_of(double residual, Degree degree, double diagonal) {
    if (degree == 0) return 0.0f;
    return bounded((float)residual / (float)(diagonal * degree), degree);
}

// The step that a contribution stands for. A dangling vertex takes all of r, and sends nothing.
template <class Degree>
ON_DEVICE double step_of(float contribution, double residual, Degree degree) {
    return degree > 0 ? (double)contribution * degree : residual;
}

// What Σr will contain because of v after a sweep, apart from the rounding of y: α·contribution·(d - ℓ) is sent, and
// r - (1 - αℓ/d)·contribution·d stays.
template <class Number, class Degree>
ON_DEVICE double next_residual(double residual, Number contribution, Degree degree, double damping) {
    if (degree == 0) return 0.0;
    return residual - (1.0 - damping) * ((double)contribution * degree);
}

// y and r of an isolated vertex once y has taken all of r that it can represent.
struct IsolatedStep {
    double value, residual;

    ON_DEVICE IsolatedStep(double old_value, double old_residual, double diagonal)
        : value(old_value + old_residual / diagonal), residual(old_residual - diagonal * (value - old_value)) {}
};

}  // namespace vertex
