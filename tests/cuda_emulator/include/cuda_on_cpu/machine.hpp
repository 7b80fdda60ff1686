// What a kernel sees of the machine that runs it: its position in the launch, barriers and warp operations.
//
// One CUDA thread runs at a time. It keeps the processor until it must wait for others, so between two barriers its
// accesses are never interleaved with another's; the machine's order of threads decides which side of a missing barrier wins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>

struct uint3 {
    unsigned x, y, z;
};

namespace cuda_on_cpu {

constexpr unsigned warp_size = 32;

struct Position {
    uint3 thread;  // threadIdx
    uint3 block;   // blockIdx
    unsigned rank; // of the thread in its block, x fastest
};

extern const Position* position; // of the thread that runs
extern uint3 grid_shape;
extern uint3 block_shape;

using Site = std::source_location;

// What one lane contributes to a warp operation, and where it gets the result.
struct Lane {
    const void* given;
    void* taken;
    unsigned source; // the lane it reads from, for shuffles
};

// Runs once when all `members` have arrived; lanes[i] is valid if bit i of `members` is set.
using Exchange = void (*)(const Lane* lanes, unsigned members);

// Waits for every thread of the block; returns how many of them gave a true predicate.
unsigned meet_block(const char* operation, Site site, bool predicate);

// Waits for every lane of `mask` that has not exited.
void meet_warp(const char* operation, Site site, unsigned mask, Exchange exchange, Lane lane);

void meet_grid(Site site);

// Lets other threads of the block run first.
void yield();

// The same, and another warp of the block may run ahead: a warp that spins on what another one writes does not spin for ever.
void sleep();

// Called at each atomic: yields from time to time, so that a thread which spins on one does not spin for ever.
extern unsigned atomics_until_yield;
inline void interleave() {
    if (--atomics_until_yield == 0) yield();
}

void* dynamic_shared_memory();

// Ends the launch; the text is that of the Python exception.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

} // namespace cuda_on_cpu
