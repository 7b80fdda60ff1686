// Array arguments moved to where their ends touch inaccessible pages, so that an access beyond an end is caught.
#pragma once

#include <cstddef>
#include <vector>

#include "cuda_on_cpu/launch.hpp"

namespace cuda_on_cpu {

// A number or a pointer among the values of a launch; array and bytes: what a pointer points to.
struct Argument {
    Parameter parameter;
    unsigned offset;
    void* array;
    std::size_t bytes;
};

// The values of a launch in one block, as CUDA takes them. Numbers are in it; pointers are written when arrays have moved.
struct Arguments {
    const Argument* items;
    unsigned count;
    char* block;
    const unsigned* offsets; // of each parameter
    unsigned parameters;
};

// Arrays that overlap are moved together and stay overlapping.
class GuardedArrays {
  public:
    explicit GuardedArrays(const Arguments& arguments);
    ~GuardedArrays();
    GuardedArrays(const GuardedArrays&) = delete;

    // One address for each parameter, as Kernel::run takes them.
    void** addresses() { return addresses_.data(); }

    // Copies back what the kernel may have written. False, with the fault recorded, if it wrote just outside of an array.
    bool copy_back();

    // Writes to `text` which argument is next to an inaccessible address; false if none is.
    bool describe(const void* address, char* text, std::size_t bytes) const;

    struct Range;

  private:
    const Arguments& arguments_;
    std::vector<Range> ranges_;
    std::vector<void*> pointers_;
    std::vector<void*> addresses_;
};

} // namespace cuda_on_cpu
