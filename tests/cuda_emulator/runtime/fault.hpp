// Why a launch ended early, and how it is left from wherever that was noticed.
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

// Abandons the running CUDA thread and all others, and continues in `launch`.
[[noreturn]] void abandon_launch();

// Records a fault that the machine notices between threads, without leaving.
void record_fault(const char* format, ...) __attribute__((format(printf, 1, 2)));
void record_fault_text(const char* format, std::va_list values);

// While it exists, memory faults of this thread are faults of the launch.
class MemoryFaultsCaught {
  public:
    MemoryFaultsCaught();
    ~MemoryFaultsCaught();
    MemoryFaultsCaught(const MemoryFaultsCaught&) = delete;
};

} // namespace cuda_on_cpu
