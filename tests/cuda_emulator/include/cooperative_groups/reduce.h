#pragma once

#include "../cooperative_groups.h"

namespace cooperative_groups {

template <class T>
struct plus {
    T operator()(T left, T right) const { return left + right; }
};
template <class T>
struct less {
    T operator()(T left, T right) const { return right < left ? right : left; }
};
template <class T>
struct greater {
    T operator()(T left, T right) const { return left < right ? right : left; }
};

template <unsigned tile_size, class T, class Operation>
T reduce(const thread_block_tile<tile_size>& tile, T value, Operation operation, Site site = Site::current()) {
    for (unsigned distance = tile_size / 2; distance > 0; distance /= 2)
        value = operation(value, tile.shfl_xor(value, int(distance), site));
    return value;
}

} // namespace cooperative_groups
