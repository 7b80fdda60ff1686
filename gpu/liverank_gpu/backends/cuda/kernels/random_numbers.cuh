// SplitMix64: see liverank_gpu.random_numbers.
#include "common.cuh"

constexpr uint64 GOLDEN_GAMMA = 0x9e3779b97f4a7c15ull;

__device__ __forceinline__ uint64 mix(uint64 state) {
    state = (state ^ state >> 30) * 0xbf58476d1ce4e5b9ull;
    state = (state ^ state >> 27) * 0x94d049bb133111ebull;
    return state ^ state >> 31;
}
