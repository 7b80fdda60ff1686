// What ended a launch early, and how the launch is left from wherever that was noticed.
#pragma once

#include <cstdarg>
#include <cstddef>

#include "cuda_on_cpu/machine.hpp"

namespace cuda_on_cpu {

struct Fault {
    char message[1024];
    bool in_thread; // whether the next two mean anything
    uint3 block, thread;
    const void* instruction; // of a bad access, null for the others
};

extern Fault fault;
extern bool faulted;

// Leaves the running CUDA thread, and all others, where they are, and goes on in `launch`.
[[noreturn]] void abandon_launch();

// Records what happened without leaving: for what the machine notices between threads.
void record_fault(const char* format, ...) __attribute__((format(printf, 1, 2)));
void record_fault_text(const char* format, std::va_list values);

// Turns memory faults of this thread into faults of the launch while it lives.
class MemoryFaultsCaught {
  public:
    MemoryFaultsCaught();
    ~MemoryFaultsCaught();
    MemoryFaultsCaught(const MemoryFaultsCaught&) = delete;
};

} // namespace cuda_on_cpu
