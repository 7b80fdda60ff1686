// The group that kernels use: the grid, on top of its barrier.
#pragma once

#include "cuda_on_cpu.hpp"

namespace cooperative_groups {

class grid_group {
  public:
    void sync(cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) const { cuda_on_cpu::meet_grid(site); }
};
inline grid_group this_grid() { return {}; }

} // namespace cooperative_groups
