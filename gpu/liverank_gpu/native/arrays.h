// Arrays as kernels see them, and the records of liverank_gpu.operations that hold them.
#pragma once
#include <cstdint>

using int64 = std::int64_t;
using uint64 = std::uint64_t;
using uint32 = std::uint32_t;
using uint8 = std::uint8_t;

// A contiguous NumPy array. Indices are never negative: as `uint64` they cost no sign extension.
template <class T>
struct Span {
    T* data;
    int64 size;

    T& operator[](uint64 index) const { return data[index]; }
    operator Span<const T>() const { return {data, size}; }
    T* begin() const { return data; }
    T* end() const { return data + size; }
};

// None in the place of an array.
struct Nothing {};

template <class... Types>
struct Fields {};

// liverank_gpu.operations.csr.Csr. Weights is Nothing if the graph has none.
template <class Weights>
struct Csr {
    using fields = Fields<Span<const int64>, Span<const int>, Span<const int>, Weights>;

    Span<const int64> row_starts;
    Span<const int> row_lengths;
    Span<const int> column_indices;
    Weights weights;
};

// The same, to be written.
template <class Weights>
struct MutableCsr {
    using fields = Fields<Span<int64>, Span<int>, Span<int>, Weights>;

    Span<int64> row_starts;
    Span<int> row_lengths;
    Span<int> column_indices;
    Weights weights;
};

// What a graph without weights has, and one with: see liverank_gpu.operations.csr.GraphView.
struct Unweighted {
    static constexpr bool weighted = false;
    using Weights = Nothing;
    using MutableWeights = Nothing;
    using Loop = uint8;
    using Degree = int;
};
struct Weighted {
    static constexpr bool weighted = true;
    using Weights = Span<const float>;
    using MutableWeights = Span<float>;
    using Loop = float;
    using Degree = double;
};

template <class Kind>
using Lists = Csr<typename Kind::Weights>;
template <class Kind>
using Loops = Span<const typename Kind::Loop>;
template <class Kind>
using Degrees = Span<const typename Kind::Degree>;

// z of a deflated sweep, empty if it is not deflated: liverank_gpu.operations.sweeps.DeflationVector.
struct Deflation {
    using fields = Fields<Span<const double>, Span<const double>, double>;

    Span<const double> values, residual;
    double rhs_scale;
};
