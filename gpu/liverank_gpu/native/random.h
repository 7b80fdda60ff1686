// SplitMix64 as a function of a counter: see liverank_gpu.random_numbers.
#pragma once
#include "arrays.h"

constexpr uint64 GOLDEN_GAMMA = 0x9E3779B97F4A7C15;

inline uint64 mix(uint64 state) {
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9;
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB;
    return state ^ (state >> 31);
}

// Number i of the sequence that begins at `start`.
inline uint64 random_number(uint64 start, int64 index) {
    return mix(start + (static_cast<uint64>(index) + 1) * GOLDEN_GAMMA);
}

// An integer in 0 … limit - 1 from a 64-bit number: ⌊number · limit / 2⁶⁴⌋. limit < 2³¹.
inline uint64 below(uint64 number, uint64 limit) {
    return ((number >> 32) * limit + ((number & 0xFFFFFFFF) * limit >> 32)) >> 32;
}
