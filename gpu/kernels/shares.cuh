// What a vertex sends along each of its edges in one dense sweep, rounded to 16 bits (the upper half of a float32: 8 bits of
// precision, all of its range). Half the bytes at random, and more of them fit into the caches.
//
// Rounding costs no accuracy: the step is what the rounded shares stand for, share · d, which float64 holds exactly; what is
// left of the residual stays there for the next sweep, 1/256 of it at most.

using Share = unsigned short;

__device__ __forceinline__ Share rounded(float value) {
    const unsigned bits = __float_as_uint(value);
    return (Share)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);  // to the nearest, ties to even
}

__device__ __forceinline__ double exact(Share share) { return (double)__uint_as_float((unsigned)share << 16); }

// 1 - αℓ/d: the part of a vertex's value that its own loop does not give back.
__device__ __forceinline__ double leaving_of(int d, uint8 loop, double damping) {
    return loop ? 1.0 - damping / d : 1.0;
}

// The share that takes the residual of v, as far as it can; what it is rounded to matters, not what it is rounded from.
__device__ __forceinline__ Share share_of(double residual, int d, double leaving) {
    return d > 0 ? rounded(__fdividef((float)residual, (float)leaving * (float)d)) : (Share)0;
}

// The step of v that the share stands for; a dangling vertex takes all of its residual and sends nothing.
__device__ __forceinline__ double step_of(Share share, double residual, int d) {
    return d > 0 ? exact(share) * d : residual;
}

// What is in the residual of all vertices after a sweep because of v: its shares, and what it leaves.
__device__ __forceinline__ double sent_and_left(Share share, double residual, int d, uint8 loop, double leaving, double damping) {
    return d > 0 ? damping * exact(share) * (d - loop) + (residual - leaving * (exact(share) * d)) : 0.0;
}
