// An edge of the copy model, drawn as algorithm 1 of cuPPA draws it: liverank_gpu.generate.published.
#pragma once
#include "random.h"
#if !defined(__CUDACC__)
#include <atomic>
#endif

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
