// SplitMix64 as a function of a counter, and what is drawn with it: see liverank_gpu.operations.generate.
#pragma once
#include "vertex.h"
#if !defined(__CUDACC__)
#include <atomic>
#endif

constexpr unsigned long long GOLDEN_GAMMA = 0x9E3779B97F4A7C15ull;

ON_DEVICE unsigned long long mix(unsigned long long state) {
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9ull;
    state = (state ^ (state >> 27)) * 0x94D049BB133111EBull;
    return state ^ (state >> 31);
}

// Number i of the sequence that begins at `start`.
ON_DEVICE unsigned long long random_number(unsigned long long start, unsigned long long index) {
    return mix(start + (index + 1) * GOLDEN_GAMMA);
}

// ⌊number · limit / 2⁶⁴⌋: an integer in 0 … limit - 1 from a 64-bit number. limit < 2³¹.
ON_DEVICE long long below(unsigned long long number, unsigned long long limit) {
    return (long long)(((number >> 32) * limit + ((number & 0xffffffff) * limit >> 32)) >> 32);
}

// The pair of distinct vertices to which a permutation of all pairs maps pair `place`: a Feistel network over 2 · bits bits,
// applied again while the result is no pair (cycle walking): less than four times on average.
ON_DEVICE void permuted_pair(
    unsigned long long place, unsigned long long start, unsigned long long vertices, int bits, int rounds, int& source,
    int& target) {
    const unsigned long long others = vertices - 1, pairs = vertices * others, mask = (1ull << bits) - 1;
    do {
        unsigned long long left = place >> bits, right = place & mask;
        for (int round = 0; round < rounds; ++round) {
            const unsigned long long index = ((unsigned long long)round << bits) + right;
            const unsigned long long swapped = left ^ (random_number(start, index) & mask);
            left = right;
            right = swapped;
        }
        place = left << bits | right;
    } while (place >= pairs);
    const unsigned long long first = place / others, second = place - first * others;
    source = (int)first;
    target = (int)(second + (second >= first));
}

// An edge of the copy model, drawn as algorithm 1 of cuPPA draws it: liverank_gpu.generate.published.
namespace copy_model {

// F(v) of each v ≥ d are the places from (v - d)·d on of `links`. A negative place is NULL; it counts the attempts that have
// failed: -1 - attempts.
struct CopyModel {
    int* links;
    long long d;
    unsigned long long threshold, start;

    // Places of other threads are read while these write them: once, and the value is all that a reader needs.
#if defined(__CUDACC__)
    ON_DEVICE int newest(long long place) const { return ((const volatile int*)links)[place]; }
    ON_DEVICE void set(long long place, int value) const { ((volatile int*)links)[place] = value; }
#else
    int newest(long long place) const { return std::atomic_ref(links[place]).load(std::memory_order_relaxed); }
    void set(long long place, int value) const { std::atomic_ref(links[place]).store(value, std::memory_order_relaxed); }
#endif

    // Lines 5 to 20 for the edge at `place`. False if it has to wait for F_l(u), which is at the place `origin`.
    ON_DEVICE bool execute(long long place, long long& origin) const {
        const long long row = place - place % d, v = d + place / d;
        const unsigned long long edge = random_number(start, d * d + place);
        for (;;) {
            const unsigned long long attempt = (unsigned)(-1 - links[place]);
            const unsigned long long key = edge + 3 * attempt * GOLDEN_GAMMA;
            long long target = below(mix(key + GOLDEN_GAMMA), v);
            if (mix(key + 2 * GOLDEN_GAMMA) >> 11 >= threshold) {
                const unsigned long long number = mix(key + 3 * GOLDEN_GAMMA);
                if (target >= d) {
                    origin = (target - d) * d + below(number, d);
                    target = newest(origin);
                    if (target < 0) return false;
                } else if (d > 1) {
                    const long long other = below(number, d - 1);
                    target = other + (other >= target);
                }
            }
            bool linked = false;
            for (long long l = row; l < row + d; ++l) linked |= links[l] == target;
            if (!linked) {
                set(place, (int)target);
                return true;
            }
            set(place, links[place] - 1);
        }
    }
};

}  // namespace copy_model
