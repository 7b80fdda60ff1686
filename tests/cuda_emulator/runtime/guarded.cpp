#include "guarded.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <new>
#include <vector>

#include "fault.hpp"

namespace cuda_on_cpu {
namespace {

constexpr std::size_t guard_bytes = std::size_t{1} << 20; // inaccessible, on either side
constexpr std::size_t margin_bytes = 256;                 // accessible, watched for writes: in front, and behind for alignment
constexpr unsigned char margin_filler = 0xff;             // a NaN, or -1

struct Buffer {
    char* begin;
    std::size_t capacity;
    char* end() const { return begin + capacity; }
};

std::map<std::size_t, std::vector<Buffer>> idle_buffers; // by capacity

Buffer acquire(std::size_t bytes) {
    // few capacities, so that buffers are reused: the number of mappings of a process is limited
    const std::size_t capacity = std::bit_ceil(std::max(bytes, std::size_t(sysconf(_SC_PAGESIZE))));
    std::vector<Buffer>& idle = idle_buffers[capacity];
    if (!idle.empty()) {
        const Buffer buffer = idle.back();
        idle.pop_back();
        return buffer;
    }
    void* reserved = mmap(nullptr, capacity + 2 * guard_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) throw std::bad_alloc();
    char* begin = static_cast<char*>(reserved) + guard_bytes;
    if (mprotect(begin, capacity, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    return {begin, capacity};
}

bool untouched(const char* from, const char* to) {
    return std::all_of(from, to, [](char byte) { return static_cast<unsigned char>(byte) == margin_filler; });
}

} // namespace

struct GuardedArrays::Range {
    char *from, *to; // the caller's memory
    bool written;
    unsigned first_argument;
    std::size_t alignment;
    Buffer buffer;
    char* copy;

    std::size_t bytes() const { return std::size_t(to - from); }
    char* copy_end() const { return copy + bytes(); }
};

GuardedArrays::GuardedArrays(const Arguments& arguments) : arguments_(arguments), pointers_(arguments.count) {
    for (unsigned at = 0; at < arguments.parameters; ++at) addresses_.push_back(arguments.block + arguments.offsets[at]);
    for (unsigned at = 0; at < arguments.count; ++at) {
        const Argument& argument = arguments.items[at];
        if (!argument.array) continue;
        char* from = static_cast<char*>(argument.array);
        const unsigned size = argument.parameter.size;
        const std::size_t alignment = std::min<std::size_t>(size & -size, 16);
        ranges_.push_back({from, from + argument.bytes, !argument.parameter.constant, at, alignment, {}, nullptr});
    }
    std::stable_sort(ranges_.begin(), ranges_.end(), [](const Range& left, const Range& right) { return left.from < right.from; });
    std::size_t kept = 0;
    for (std::size_t at = 0; at < ranges_.size(); ++at) {
        Range& next = ranges_[at];
        if (kept > 0 && next.from < ranges_[kept - 1].to) {
            Range& last = ranges_[kept - 1];
            last.to = std::max(last.to, next.to);
            last.written |= next.written;
            last.alignment = std::max(last.alignment, next.alignment);
            last.first_argument = std::min(last.first_argument, next.first_argument);
        } else {
            ranges_[kept++] = next;
        }
    }
    ranges_.resize(kept);
    for (Range& range : ranges_) {
        range.buffer = acquire(range.bytes() + margin_bytes);
        const auto end = reinterpret_cast<std::uintptr_t>(range.buffer.end() - range.bytes());
        range.copy = reinterpret_cast<char*>(end / range.alignment * range.alignment);
        std::memset(range.copy - (margin_bytes - range.alignment), margin_filler, margin_bytes - range.alignment);
        std::memcpy(range.copy, range.from, range.bytes());
        std::memset(range.copy_end(), margin_filler, std::size_t(range.buffer.end() - range.copy_end()));
    }
    for (unsigned at = 0; at < arguments.count; ++at) {
        const Argument& argument = arguments.items[at];
        if (!argument.parameter.pointer) continue;
        std::memset(arguments.block + argument.offset, 0, sizeof(void*));
        if (!argument.array) continue;
        char* from = static_cast<char*>(argument.array);
        // the last range that begins at or before the array: an empty array has its own range or lies in another
        const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), from,
                                            [](const char* address, const Range& range) { return address < range.from; });
        const Range& range = *std::prev(after);
        pointers_[at] = range.copy + (from - range.from);
        std::memcpy(arguments.block + argument.offset, &pointers_[at], sizeof(void*));
    }
}

GuardedArrays::~GuardedArrays() {
    for (const Range& range : ranges_) idle_buffers[range.buffer.capacity].push_back(range.buffer);
}

bool GuardedArrays::copy_back() {
    for (const Range& range : ranges_) {
        const bool before = !untouched(range.copy - (margin_bytes - range.alignment), range.copy);
        if (before || !untouched(range.copy_end(), range.buffer.end())) {
            record_fault("wrote just %s argument %u", before ? "before the beginning of" : "behind the end of", range.first_argument);
            return false;
        }
    }
    for (const Range& range : ranges_)
        if (range.written) std::memcpy(range.from, range.copy, range.bytes());
    return true;
}

bool GuardedArrays::describe(const void* address, char* text, std::size_t bytes) const {
    const char* accessed = static_cast<const char*>(address);
    for (const Range& range : ranges_) {
        if (accessed < range.buffer.begin - guard_bytes || accessed >= range.buffer.end() + guard_bytes) continue;
        const Argument& argument = arguments_.items[range.first_argument];
        const std::ptrdiff_t offset = accessed - static_cast<const char*>(pointers_[range.first_argument]);
        const std::ptrdiff_t size = argument.parameter.size;
        std::snprintf(text, bytes, "out of bounds: element %td of argument %u, which has %zu elements",
                      offset >= 0 ? offset / size : -((-offset + size - 1) / size), range.first_argument,
                      argument.bytes / argument.parameter.size);
        return true;
    }
    return false;
}

} // namespace cuda_on_cpu
