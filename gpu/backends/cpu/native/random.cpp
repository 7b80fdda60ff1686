// Counter-based random numbers: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014, figure 16). See gpu.jit.random_numbers.
#include "bind.h"
#include "pool.h"
#include "random.h"

namespace {

// numbers[i] = number skipped + i of the sequence from `start`.
void fill_random(uint64 start, int64 skipped, Span<uint64> numbers) {
    pool::parallel(numbers.size, 1 << 14, [&](int64 first, int64 last) {
        for (int64 index = first; index < last; ++index) numbers[index] = random_number(start, skipped + index);
    });
}
KERNEL("fill_random", fill_random);

}  // namespace
