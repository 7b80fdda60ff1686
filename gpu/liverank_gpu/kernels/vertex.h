// What happens at one vertex, for both backends: NVRTC compiles this for the GPU, a C++ compiler for the CPU. No loops over
// rows, no warps, no atomics: these are the backends' own. In formulas α is the damping, d the out-degree (or strength) of v,
// ℓ its loop: liverank_gpu.operations.csr.GraphView.
//
// NVRTC contracts a multiplication and an addition to one operation, the compiler of the CPU does not. So the bits of the
// backends differ, and the order of operations here is that of the records of tests/golden.
#pragma once

#if defined(__CUDACC__)
#define ON_DEVICE __device__ __forceinline__
#else
#include <math.h>
#define ON_DEVICE inline
#endif

namespace vertex {

#if defined(__CUDACC__)
ON_DEVICE double larger_of(double a, double b) { return fmax(a, b); }
ON_DEVICE double smaller_of(double a, double b) { return fmin(a, b); }
#else
// these would be calls
ON_DEVICE double larger_of(double a, double b) { return a < b ? b : a; }
ON_DEVICE double smaller_of(double a, double b) { return b < a ? b : a; }
#endif

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

// r = β + α·Σ contributions of the in-neighbours - (1 - αℓ/d)·y
template <class Degree, class Loop>
ON_DEVICE double residual_of(
    double rhs_scale, double incoming_mass, double value, Degree degree, Loop loop, double damping) {
    return rhs_scale + damping * incoming_mass - diagonal_of(degree, loop, damping) * value;
}

// y/d: what v sends along each edge of weight 1. Nothing without edges.
template <class Degree>
ON_DEVICE double share_of(double value, Degree degree) {
    return degree > 0 ? value / degree : 0.0;
}
// The same where y is read only if it is needed.
template <class Index, class Values, class Degrees>
ON_DEVICE double share_of(Index v, const Values& values, const Degrees& degree) {
    const auto d = degree[v];
    return d > 0 ? values[v] / d : 0.0;
}

// α·x/d: what v sends along each edge of weight 1 if x joins y. A dangling vertex sends nothing.
template <class Degree>
ON_DEVICE double sent_of(double amount, Degree degree, double damping) {
    return degree > 0 ? damping * amount / degree : 0.0;
}

// ---- pushes ----

// y takes all of r that it can represent: the step is what y' - y gives after rounding, and r keeps the rest.
struct Push {
    double value, step, residual;

    ON_DEVICE Push(double old_value, double old_residual, double diagonal)
        : value(old_value + old_residual / diagonal), step(value - old_value), residual(old_residual - diagonal * step) {}
};

// How much each edge weighs in the choice of vertices to push: |r| of a vertex must exceed θ·(1 + edge_weight·length).
ON_DEVICE double cost_of(double edge_weight, int length) { return 1.0 + edge_weight * length; }

// ---- what a vertex sends in a dense sweep ----

// A contribution is r / (1 - αℓ/d) / d, quantized: in float32 on the CPU, in bfloat16 on CUDA (contributions.cuh). Nothing is
// lost: the step is what the rounded contribution stands for, and the rest of the residual stays.
template <class Contribution>
ON_DEVICE double exact(Contribution contribution) {
    return contribution;
}

constexpr float LARGEST_FLOAT = 0x1.fffffep127f;

// A contribution that a tiny strength does not make infinite: the rest of the residual stays.
ON_DEVICE float bounded(float contribution, int) { return contribution; }
template <class Number>
ON_DEVICE Number bounded(Number contribution, double) {
    const Number above = contribution < -LARGEST_FLOAT ? -LARGEST_FLOAT : contribution;
    return above > LARGEST_FLOAT ? LARGEST_FLOAT : above;
}

template <class Contribution, class Degree>
ON_DEVICE Contribution quantized(double residual, Degree degree, double diagonal) {
    return bounded((float)residual / (float)(diagonal * degree), degree);
}

// Only the rounded value counts, so what is rounded need not be exact.
template <class Contribution, class Degree>
ON_DEVICE Contribution contribution_of(double residual, Degree degree, double diagonal) {
    if (degree == 0) return 0;
    return quantized<Contribution>(residual, degree, diagonal);
}

// The step δ that a contribution stands for. A dangling vertex takes all of r, and sends nothing.
template <class Contribution, class Degree>
ON_DEVICE double step_of(Contribution contribution, double residual, Degree degree) {
    return degree > 0 ? exact(contribution) * degree : residual;
}

// What Σr will contain because of v after a sweep, apart from the rounding of y: α·contribution·(d - ℓ) is sent, and
// r - (1 - αℓ/d)·contribution·d stays.
template <class Contribution, class Degree>
ON_DEVICE double next_residual(double residual, Contribution contribution, Degree degree, double damping) {
    return degree > 0 ? residual - (1.0 - damping) * (exact(contribution) * degree) : 0.0;
}

// ---- several columns at once ----

// A sweep at one vertex in one column. contribution: exact. out_weight: α for each out-edge, times its weight.
struct ColumnStep {
    double step, residual, sent;

    ON_DEVICE ColumnStep(double old_residual, double contribution, double degree, double diagonal, double out_weight)
        : step(degree > 0.0 ? contribution * degree : old_residual), residual(old_residual - diagonal * step),
          sent(out_weight * contribution) {}
};

// ---- ranks without residuals (Sahu, algorithms 3 and 5) ----

// A rank, from what it is without the loop of v: β + α·Σ contributions of the in-neighbours. closed_form: as the solution of
// the equation of v; else the loop sends what it sent before.
template <class Index, class Degrees, class Loops, class Contributions>
ON_DEVICE double with_loop(
    double rank, Index v, const Degrees& degree, const Loops& loop, const Contributions& contributions, double damping,
    bool closed_form) {
    if (closed_form) return rank / diagonal_of(degree[v], loop[v], damping);
    if (loop[v] != 0) return rank + damping * (double)loop[v] * contributions[v];
    return rank;
}

struct RankUpdate {
    double value, change, relative;

    ON_DEVICE RankUpdate(double old_value, double new_value)
        : value(new_value), change(fabs(new_value - old_value)), relative(change / larger_of(new_value, old_value)) {}
};

}  // namespace vertex
