// SplitMix64 as a function of a counter: see liverank_gpu.operations.generate.
#pragma once
#include "arrays.h"

constexpr uint64 GOLDEN_GAMMA = 0x9E3779B97F4A7C15;

inline uint64 mix(uint64 state) {
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9;
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB;
    return state ^ (state >> 31);
}
