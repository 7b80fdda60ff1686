// The groups that kernels use, on top of the barriers of grid, block and warp.
#pragma once

#include "cuda_on_cpu.hpp"

namespace cooperative_groups {

using Site = cuda_on_cpu::Site;

class grid_group {
  public:
    void sync(Site site = Site::current()) const { cuda_on_cpu::meet_grid(site); }
    bool is_valid() const { return true; }
    unsigned long long num_blocks() const { return 1ull * gridDim.x * gridDim.y * gridDim.z; }
    unsigned long long block_rank() const { return (1ull * blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x; }
    unsigned long long num_threads() const { return num_blocks() * blockDim.x * blockDim.y * blockDim.z; }
    unsigned long long size() const { return num_threads(); }
    unsigned long long thread_rank() const {
        return block_rank() * blockDim.x * blockDim.y * blockDim.z + cuda_on_cpu::position->rank;
    }
};
inline grid_group this_grid() { return {}; }

class thread_block {
  public:
    void sync(Site site = Site::current()) const { cuda_on_cpu::meet_block("block.sync()", site, false); }
    unsigned thread_rank() const { return cuda_on_cpu::position->rank; }
    unsigned num_threads() const { return blockDim.x * blockDim.y * blockDim.z; }
    unsigned size() const { return num_threads(); }
    uint3 group_index() const { return blockIdx; }
    uint3 thread_index() const { return threadIdx; }
};
inline thread_block this_thread_block() { return {}; }

template <unsigned tile_size>
class thread_block_tile {
    static_assert(tile_size <= 32 && (tile_size & (tile_size - 1)) == 0, "a tile has 1, 2, 4, 8, 16 or 32 threads");

    unsigned first() const { return cuda_on_cpu::lane() & ~(tile_size - 1); }
    unsigned mask() const { return (0xffffffffu >> (32 - tile_size)) << first(); }

  public:
    static constexpr unsigned num_threads() { return tile_size; }
    static constexpr unsigned size() { return tile_size; }
    unsigned thread_rank() const { return cuda_on_cpu::lane() % tile_size; }
    unsigned meta_group_rank() const { return cuda_on_cpu::position->rank / tile_size; }
    unsigned meta_group_size() const {
        return (blockDim.x * blockDim.y * blockDim.z + tile_size - 1) / tile_size;
    }

    void sync(Site site = Site::current()) const { __syncwarp(mask(), site); }
    template <class T>
    T shfl(T value, int source, Site site = Site::current()) const {
        return __shfl_sync(mask(), value, source, tile_size, site);
    }
    template <class T>
    T shfl_up(T value, unsigned delta, Site site = Site::current()) const {
        return __shfl_up_sync(mask(), value, delta, tile_size, site);
    }
    template <class T>
    T shfl_down(T value, unsigned delta, Site site = Site::current()) const {
        return __shfl_down_sync(mask(), value, delta, tile_size, site);
    }
    template <class T>
    T shfl_xor(T value, int lane_mask, Site site = Site::current()) const {
        return __shfl_xor_sync(mask(), value, lane_mask, tile_size, site);
    }
    unsigned ballot(int predicate, Site site = Site::current()) const {
        return __ballot_sync(mask(), predicate, site) >> first();
    }
    int any(int predicate, Site site = Site::current()) const { return __any_sync(mask(), predicate, site); }
    int all(int predicate, Site site = Site::current()) const { return __all_sync(mask(), predicate, site); }
};

template <unsigned tile_size>
thread_block_tile<tile_size> tiled_partition(const thread_block&) {
    return {};
}
template <unsigned tile_size, unsigned parent_size>
thread_block_tile<tile_size> tiled_partition(const thread_block_tile<parent_size>&) {
    static_assert(tile_size <= parent_size);
    return {};
}

template <class Group>
void sync(const Group& group, Site site = Site::current()) {
    group.sync(site);
}

} // namespace cooperative_groups
