// Array arguments moved to where their ends touch inaccessible pages, so that an access beyond an end is caught.
#pragma once

#include <cstddef>
#include <vector>

#include "cuda_on_cpu/launch.hpp"

namespace cuda_on_cpu {

struct Argument {
    void* data; // the array, or the value of a scalar
    std::size_t bytes;
};

// Arrays that overlap are moved together and stay overlapping.
class GuardedArrays {
  public:
    GuardedArrays(const Kernel& kernel, const Argument* arguments);
    ~GuardedArrays();
    GuardedArrays(const GuardedArrays&) = delete;

    // One address for each argument, as Kernel::run takes them.
    void** addresses() { return addresses_.data(); }

    // Copies back what the kernel may have written. False, with the fault recorded, if it wrote just outside of an array.
    bool copy_back();

    // Writes to `text` which argument is next to an inaccessible address; false if none is.
    bool describe(const void* address, char* text, std::size_t bytes) const;

    struct Range;

  private:
    const Kernel& kernel_;
    const Argument* arguments_;
    std::vector<Range> ranges_;
    std::vector<void*> pointers_;
    std::vector<void*> addresses_;
};

} // namespace cuda_on_cpu
