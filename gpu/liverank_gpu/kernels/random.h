// SplitMix64 as a function of a counter, and what is drawn with it: see liverank_gpu.operations.generate.
#pragma once
#include "vertex.h"

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
