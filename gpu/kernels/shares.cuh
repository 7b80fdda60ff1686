// What a vertex sends along each of its edges in one dense sweep.
//
// Where y is float64, shares are rounded to 16 bits, the upper half of a float32: 8 bits of precision, all of its range. Half
// the bytes at random, and more of them fit into the caches. It costs no accuracy: the step is what the rounded share stands
// for, share · d, which float64 holds exactly; what is left of the residual stays there for the next sweep, 1/256 at most.
// Where y is float32 it takes what it has digits for, and the share, a float32, is made of what it took.

template <typename Value> struct SharesOf;
template <> struct SharesOf<double> { using Share = unsigned short; };
template <> struct SharesOf<float> { using Share = float; };
template <typename Value> using Share = typename SharesOf<Value>::Share;

__device__ __forceinline__ unsigned short rounded(float value) {
    const unsigned bits = __float_as_uint(value);
    return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);  // to the nearest, ties to even
}

__device__ __forceinline__ double exact(unsigned short share) { return (double)__uint_as_float((unsigned)share << 16); }
__device__ __forceinline__ double exact(float share) { return (double)share; }

// 1 - αℓ/d: the part of a vertex's value that its own loop does not give back.
__device__ __forceinline__ double leaving_of(int d, uint8 loop, double damping) {
    return loop ? 1.0 - damping / d : 1.0;
}

// The share that takes the residual of v, as far as it can; what it is rounded to matters, not what it is rounded from.
template <typename Value>
__device__ __forceinline__ Share<Value> share_of(double value, double residual, int d, double leaving) {
    if (d == 0) return (Share<Value>)0;
    if constexpr (sizeof(Value) == sizeof(float)) return (float)(((Value)(value + residual / leaving) - value) / d);
    else return rounded(__fdividef((float)residual, (float)leaving * (float)d));
}

// y after the step. A dangling vertex takes all of its residual and sends nothing.
template <typename Value>
__device__ __forceinline__ Value stepped(double value, double residual, Share<Value> share, int d, double leaving) {
    if constexpr (sizeof(Value) == sizeof(float)) return (Value)(value + residual / leaving);
    else return value + (d > 0 ? exact(share) * d : residual);
}

// Whether a vertex has no edge but its own loop; entries: of its in-list.
__device__ __forceinline__ bool is_alone(int d, uint8 loop, int entries) { return d == loop && entries == 0; }

// What a vertex without any edge but its own loop has after a sweep. Nothing arrives and nothing leaves, so its y follows β at
// once, and no residual waits there for the next sweep: `left` is what y has no digits for.
template <typename Value>
struct Alone {
    Value value, left;
};

template <typename Value>
__device__ __forceinline__ Alone<Value> alone(double value, double residual, double leaving) {
    const Value new_value = (Value)(value + residual / leaving);
    return {new_value, (Value)(residual - leaving * (new_value - value))};
}

// What is in the residual of all vertices after a sweep because of v, but for what y rounds away: α·share·(d - ℓ) is sent, and
// r - (1 - αℓ/d)·share·d stays.
template <typename Value>
__device__ __forceinline__ double sent_and_left(double residual, Share<Value> share, int d, double damping) {
    return d > 0 ? residual - (1.0 - damping) * (exact(share) * d) : 0.0;
}
