// The machine: runs the threads of a block one at a time, each until it waits or ends, and the blocks one after the other.
//
// A thread runs on a carrier, a stack of its own. A thread that ends without having waited leaves its carrier to the next one,
// so a kernel without barriers runs as a plain loop. Everything runs on the calling thread, so a launch is deterministic.
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <vector>

#include "context.hpp"
#include "launch.hpp"

namespace cuda_on_cpu {

const Position* position = nullptr;
uint3 grid_shape, block_shape;
unsigned atomics_until_yield;
const GuardedArrays* running_arrays = nullptr;

namespace {

constexpr std::size_t stack_bytes = 64 << 10;
constexpr std::size_t most_carriers = 16384;            // each takes two of the 65,530 mappings of a process
constexpr std::uint64_t most_yields = 10'000'000;       // a launch with more is assumed to spin for ever
constexpr unsigned atomics_between_yields = 256;        // in order
constexpr unsigned most_atomics_between_yields_shuffled = 4;
constexpr int garbage = 0xff;                           // fills shared memory: NaN, or -1

struct Block;

struct Carrier {
    Context context;
    char* stack;
    std::size_t bytes;
};

struct Thread {
    Position position;
    Block* block;
    Carrier* carrier; // null before it starts
    const char* waits_in;
    Site site;
    unsigned mask; // of the warp operation in which it waits
    Exchange exchange;
};

struct Warp {
    unsigned existing, exited, waiting; // lanes; `waiting` in a warp operation
    unsigned runnable;                  // in shuffled order only
    Lane lanes[warp_size];
};

class Random {
    std::uint64_t state_ = 0;

  public:
    void seed(std::uint64_t seed) { state_ = seed; }
    // splitmix64
    std::uint64_t next() {
        std::uint64_t mixed = (state_ += 0x9e3779b97f4a7c15);
        mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
        mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
        return mixed ^ (mixed >> 31);
    }
    std::size_t below(std::size_t limit) { return std::size_t((unsigned __int128)next() * limit >> 64); }

    template <class Values>
    void shuffle(Values& values) {
        for (std::size_t left = values.size(); left > 1; --left) std::swap(values[left - 1], values[below(left)]);
    }
};

// Threads that have started and can run, first in first out; at most those of the block.
class ReadyQueue {
    std::vector<Thread*> slots_;
    std::size_t first_ = 0, size_ = 0, mask_ = 0;

  public:
    void reset(std::size_t most) {
        std::size_t capacity = 1;
        while (capacity < most) capacity *= 2;
        if (slots_.size() < capacity) slots_.resize(capacity);
        mask_ = slots_.size() - 1;
        first_ = size_ = 0;
    }
    std::size_t size() const { return size_; }
    void push(Thread* thread) { slots_[(first_ + size_++) & mask_] = thread; }
    Thread* pop() {
        --size_;
        return slots_[first_++ & mask_];
    }
    Thread* peek() const { return slots_[first_ & mask_]; }
};

struct Block {
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::size_t exited;
    std::size_t started; // in forward order: threads start by rank, and runnable ones continue first
    ReadyQueue ready;
    unsigned favoured; // in shuffled order: the warp that ran last

    unsigned arrived, arrived_true, last_true; // the barrier of the block
    std::vector<Thread*> at_barrier;
    std::vector<Thread*> at_grid;

    std::vector<char> shared_memory; // while other blocks of a cooperative grid run
    std::vector<char> dynamic_memory;

    bool finished() const { return exited == threads.size(); }
};

struct Machine {
    std::mutex one_launch;
    const Kernel* kernel;
    void** arguments;
    bool shuffled;
    bool warps_run_ahead; // in shuffled order: a warp continues while one of its threads can run
    Random random;
    std::uint64_t yields;

    Context outside; // of the launch, between blocks
    Thread* current;
    Block* block;
    std::vector<std::unique_ptr<Carrier>> carriers;
    std::vector<Carrier*> idle_carriers;
    std::vector<std::unique_ptr<Block>> blocks;
    std::vector<Block*> idle_blocks;

    char* shared_memory;
    std::size_t shared_bytes;
    char* dynamic_memory; // ends at an inaccessible page
    std::size_t dynamic_bytes;
};
Machine machine;

void carry();

Carrier* new_carrier() {
    if (machine.carriers.size() == most_carriers) return nullptr;
    const std::size_t page = std::size_t(sysconf(_SC_PAGESIZE));
    void* stack = mmap(nullptr, page + stack_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) return nullptr;
    char* usable = static_cast<char*>(stack) + page;
    if (mprotect(usable, stack_bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
    // Stack tops at different distances from the end of a page, or all would share a few cache lines.
    const std::size_t colour = machine.carriers.size() * 320 % 4096;
    machine.carriers.push_back(std::make_unique<Carrier>(Carrier{{}, usable, stack_bytes - colour}));
    Carrier* carrier = machine.carriers.back().get();
    carrier->context.prepare(carrier->stack, carrier->bytes, carry);
    return carrier;
}

Carrier* acquire_carrier() {
    if (machine.idle_carriers.empty()) {
        Carrier* carrier = new_carrier();
        if (!carrier) {
            record_fault("more than %zu threads wait at the same time: too many for this machine", machine.carriers.size());
            return nullptr;
        }
        return carrier;
    }
    Carrier* carrier = machine.idle_carriers.back();
    machine.idle_carriers.pop_back();
    return carrier;
}

void make_ready(Block& block, Thread* thread) {
    const unsigned rank = thread->position.rank;
    if (machine.shuffled) block.warps[rank / warp_size].runnable |= 1u << rank % warp_size;
    else block.ready.push(thread);
}

Thread* choose_at_random(Block& block) {
    const unsigned warps = unsigned(block.warps.size());
    unsigned at = machine.warps_run_ahead ? block.favoured : unsigned(machine.random.below(warps));
    if (!block.warps[at].runnable) {
        const unsigned first = at = unsigned(machine.random.below(warps));
        while (!block.warps[at].runnable) {
            at = (at + 1) % warps;
            if (at == first) return nullptr;
        }
    }
    block.favoured = at;
    unsigned& runnable = block.warps[at].runnable;
    const unsigned first = unsigned(machine.random.below(warp_size)); // the next one from there on runs
    const unsigned after = runnable & ~0u << first;
    const unsigned lane = unsigned(__builtin_ctz(after ? after : runnable));
    runnable &= ~(1u << lane);
    return &block.threads[at * warp_size + lane];
}

// The thread that runs next, or null if all threads that have not exited wait.
Thread* choose(Block& block) {
    if (machine.shuffled) return choose_at_random(block);
    if (block.ready.size() > 0) {
        Thread* next = block.ready.pop();
        // when this thread waits, the next one's stack is in cache: saves a quarter of the time of a barrier
        if (block.ready.size() > 0) block.ready.peek()->carrier->context.prefetch();
        return next;
    }
    return block.started < block.threads.size() ? &block.threads[block.started++] : nullptr;
}

inline void make_current(Thread* thread) {
    machine.current = thread;
    position = &thread->position;
}

// Continues with `next`, or outside if there is none; returns when the owner of `here` is chosen again.
void run_next(Context& here, Thread* next) {
    if (next && !next->carrier) {
        next->carrier = acquire_carrier();
        if (!next->carrier) next = nullptr;
    }
    if (!next) {
        position = nullptr;
        here.switch_to(machine.outside);
        return;
    }
    make_current(next);
    here.switch_to(next->carrier->context);
}

void wait(const char* operation, Site site) {
    Thread* me = machine.current;
    me->waits_in = operation;
    me->site = site;
    Thread* next = choose(*me->block);
    if (next != me) run_next(me->carrier->context, next);
    me->waits_in = nullptr;
}

// Resumes the warp if every lane of `mask` that has not exited waits in the same operation.
void finish_warp_operation(Block& block, unsigned warp_index, unsigned mask, Exchange exchange, Thread* completing) {
    Warp& warp = block.warps[warp_index];
    const unsigned members = mask & warp.existing & ~warp.exited;
    if (members == 0 || (warp.waiting & members) != members) return;
    Thread* lanes = &block.threads[warp_index * warp_size];
    for (unsigned left = members; left; left &= left - 1) {
        const Thread& lane = lanes[__builtin_ctz(left)];
        if (lane.mask != mask || lane.exchange != exchange) return;
    }
    exchange(warp.lanes, members);
    warp.waiting &= ~members;
    for (unsigned left = members; left; left &= left - 1) {
        Thread* lane = lanes + __builtin_ctz(left);
        if (lane != completing) make_ready(block, lane);
    }
}

void leave(Thread* thread) {
    Block& block = *thread->block;
    ++block.exited;
    const unsigned warp_index = thread->position.rank / warp_size;
    Warp& warp = block.warps[warp_index];
    warp.exited |= 1u << thread->position.rank % warp_size;
    for (unsigned left = warp.waiting; left; left &= left - 1) {
        const unsigned lane = unsigned(__builtin_ctz(left));
        if (!(warp.waiting >> lane & 1)) continue;
        const Thread& waiting = block.threads[warp_index * warp_size + lane];
        finish_warp_operation(block, warp_index, waiting.mask, waiting.exchange, nullptr);
    }
}

// What a carrier runs: one thread after another.
void carry() {
    for (;;) {
        Thread* thread = machine.current;
        Carrier* carrier = thread->carrier;
        machine.kernel->run(machine.arguments);
        thread = machine.current;
        leave(thread);
        Thread* next = choose(*thread->block);
        if (next && !next->carrier) {
            next->carrier = carrier;
            make_current(next);
            continue;
        }
        machine.idle_carriers.push_back(carrier);
        run_next(carrier->context, next);
    }
}

void restart_carriers() {
    machine.idle_carriers.clear();
    for (const auto& carrier : machine.carriers) {
        carrier->context.prepare(carrier->stack, carrier->bytes, carry);
        machine.idle_carriers.push_back(carrier.get());
    }
}

unsigned atomics_before_next_yield() {
    return machine.shuffled ? 1 + unsigned(machine.random.below(most_atomics_between_yields_shuffled)) : atomics_between_yields;
}

void prepare(Block& block, uint3 index, const Shape& shape) {
    const unsigned count = shape.block.x * shape.block.y * shape.block.z;
    block.threads.resize(count);
    unsigned rank = 0;
    for (unsigned z = 0; z < shape.block.z; ++z)
        for (unsigned y = 0; y < shape.block.y; ++y)
            for (unsigned x = 0; x < shape.block.x; ++x, ++rank) {
                Thread& thread = block.threads[rank];
                thread.position = {{x, y, z}, index, rank};
                thread.block = &block;
                thread.carrier = nullptr;
                thread.waits_in = nullptr;
            }
    block.warps.resize((count + warp_size - 1) / warp_size);
    for (std::size_t at = 0; at < block.warps.size(); ++at) {
        const unsigned lanes = std::min(warp_size, count - unsigned(at) * warp_size);
        Warp& warp = block.warps[at];
        warp.existing = 0xffffffffu >> (warp_size - lanes);
        warp.exited = warp.waiting = 0;
        warp.runnable = warp.existing;
    }
    block.started = block.exited = 0;
    block.favoured = 0;
    block.arrived = block.arrived_true = 0;
    block.at_barrier.clear();
    block.at_grid.clear();
    block.ready.reset(count);
}

void report_deadlock(const Block& block) {
    struct Group {
        const char* operation;
        Site site;
        unsigned count;
    };
    std::vector<Group> groups;
    for (const Thread& thread : block.threads) {
        if (!thread.waits_in) continue;
        const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
            return group.operation == thread.waits_in && group.site.line() == thread.site.line();
        });
        if (same == groups.end()) groups.push_back({thread.waits_in, thread.site, 1});
        else ++same->count;
    }
    char text[512];
    int used = 0;
    for (const Group& group : groups) {
        if (used > 400) break;
        used += std::snprintf(text + used, sizeof text - std::size_t(used), "%s%u in %s at %s:%u", used ? ", " : "", group.count,
                              group.operation, group.site.file_name(), unsigned(group.site.line()));
    }
    const uint3 index = block.threads[0].position.block;
    record_fault("divergent barrier: of the %zu threads of block (%u, %u, %u), %zu exited and the others wait: %s",
                 block.threads.size(), index.x, index.y, index.z, block.exited, text);
}

// Runs a block until it ends or waits for the grid. False on a fault.
bool run(Block& block) {
    machine.block = &block;
    run_next(machine.outside, choose(block));
    position = nullptr;
    if (faulted) return false;
    if (block.finished() || block.at_grid.size() == block.threads.size()) return true;
    report_deadlock(block);
    return false;
}

struct Segment {
    const void* inside_library;
    std::size_t bytes;
    char* begin;
};

// The thread-local segment of the library that holds `address`, in the copy of the calling thread.
Segment thread_local_segment(const void* address) {
    Segment segment{address, 0, nullptr};
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            auto& found = *static_cast<Segment*>(data);
            const auto wanted = reinterpret_cast<ElfW(Addr)>(found.inside_library);
            bool here = false;
            std::size_t bytes = 0;
            for (int at = 0; at < info->dlpi_phnum; ++at) {
                const auto& header = info->dlpi_phdr[at];
                const auto begin = info->dlpi_addr + header.p_vaddr;
                if (header.p_type == PT_LOAD && wanted >= begin && wanted < begin + header.p_memsz) here = true;
                if (header.p_type == PT_TLS) bytes = header.p_memsz;
            }
            if (!here) return 0;
            found.bytes = bytes;
            found.begin = static_cast<char*>(info->dlpi_tls_data);
            return 1;
        },
        &segment);
    return segment;
}

void find_shared_memory(const Library* library) {
    // Where the segment begins relative to a variable in it is the same for every thread, and slow to find.
    struct Known {
        const Library* library;
        std::ptrdiff_t before_variable;
        std::size_t bytes;
    };
    static std::vector<Known> all_known;
    char* variable = library->shared_memory();
    auto known = std::find_if(all_known.begin(), all_known.end(), [&](const Known& one) { return one.library == library; });
    if (known == all_known.end()) {
        const Segment segment = thread_local_segment(library);
        known = all_known.insert(known, {library, variable - segment.begin, segment.bytes});
    }
    machine.shared_memory = variable - known->before_variable;
    machine.shared_bytes = known->bytes;
}

void place_dynamic_memory(std::size_t bytes) {
    constexpr std::size_t most = 256 << 10;
    static char* end = nullptr;
    if (!end) {
        void* reserved = mmap(nullptr, 2 * most, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reserved == MAP_FAILED || mprotect(reserved, most, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
        end = static_cast<char*>(reserved) + most;
    }
    // 16-byte aligned as on a GPU, so up to 15 bytes lie between its end and the inaccessible page
    machine.dynamic_bytes = (bytes + 15) / 16 * 16;
    machine.dynamic_memory = end - machine.dynamic_bytes;
}

void fill_shared_memory_with_garbage() {
    std::memset(machine.shared_memory, garbage, machine.shared_bytes);
    std::memset(machine.dynamic_memory, garbage, machine.dynamic_bytes);
}

void save_shared_memory(Block& block) {
    block.shared_memory.assign(machine.shared_memory, machine.shared_memory + machine.shared_bytes);
    block.dynamic_memory.assign(machine.dynamic_memory, machine.dynamic_memory + machine.dynamic_bytes);
}

void restore_shared_memory(const Block& block) {
    std::copy(block.shared_memory.begin(), block.shared_memory.end(), machine.shared_memory);
    std::copy(block.dynamic_memory.begin(), block.dynamic_memory.end(), machine.dynamic_memory);
}

Block* acquire_block() {
    if (machine.idle_blocks.empty()) {
        machine.blocks.push_back(std::make_unique<Block>());
        return machine.blocks.back().get();
    }
    Block* block = machine.idle_blocks.back();
    machine.idle_blocks.pop_back();
    return block;
}

void run_grid(const Shape& shape) {
    const std::size_t count = std::size_t{shape.grid.x} * shape.grid.y * shape.grid.z;
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (machine.shuffled) machine.random.shuffle(order);

    std::vector<Block*> parked; // at the barrier of the grid
    for (const std::size_t at : order) {
        Block* block = acquire_block();
        const std::size_t row = at / shape.grid.x;
        prepare(*block, {unsigned(at % shape.grid.x), unsigned(row % shape.grid.y), unsigned(row / shape.grid.y)}, shape);
        fill_shared_memory_with_garbage();
        if (!run(*block)) return;
        if (block->finished()) {
            machine.idle_blocks.push_back(block);
        } else {
            save_shared_memory(*block);
            parked.push_back(block);
        }
    }
    while (!parked.empty()) {
        if (parked.size() < count) {
            record_fault("divergent barrier: of the %zu blocks, %zu wait in grid.sync() and the others have exited", count,
                         parked.size());
            return;
        }
        if (machine.shuffled) machine.random.shuffle(parked);
        std::vector<Block*> parked_again;
        for (Block* block : parked) {
            for (Thread* thread : block->at_grid) make_ready(*block, thread);
            block->at_grid.clear();
            restore_shared_memory(*block);
            if (!run(*block)) return;
            if (block->finished()) {
                machine.idle_blocks.push_back(block);
            } else {
                save_shared_memory(*block);
                parked_again.push_back(block);
            }
        }
        parked = std::move(parked_again);
    }
}

} // namespace

unsigned meet_block(const char* operation, Site site, bool predicate) {
    Block& block = *machine.block;
    if (!block.at_barrier.empty()) {
        const Site other = block.at_barrier.front()->site;
        if (other.line() != site.line())
            fail("divergent barrier: threads of a block meet in %s at %s:%u and at %s:%u", operation, other.file_name(),
                 unsigned(other.line()), site.file_name(), unsigned(site.line()));
    }
    ++block.arrived;
    block.arrived_true += predicate;
    if (block.arrived < block.threads.size()) {
        block.at_barrier.push_back(machine.current);
        wait(operation, site);
        return block.last_true;
    }
    block.last_true = block.arrived_true;
    block.arrived = block.arrived_true = 0;
    for (Thread* thread : block.at_barrier) make_ready(block, thread);
    block.at_barrier.clear();
    // in shuffled order the last thread to arrive is not the first to leave
    if (machine.shuffled) yield();
    return block.last_true;
}

void meet_warp(const char* operation, Site site, unsigned mask, Exchange exchange, Lane lane) {
    Block& block = *machine.block;
    Thread* me = machine.current;
    const unsigned warp_index = me->position.rank / warp_size, lane_index = me->position.rank % warp_size;
    if (!(mask >> lane_index & 1))
        fail("%s at %s:%u: lane %u is not in its own mask 0x%08x", operation, site.file_name(), unsigned(site.line()), lane_index, mask);
    Warp& warp = block.warps[warp_index];
    warp.lanes[lane_index] = lane;
    warp.waiting |= 1u << lane_index;
    me->mask = mask;
    me->exchange = exchange;
    finish_warp_operation(block, warp_index, mask, exchange, me);
    if (warp.waiting >> lane_index & 1) wait(operation, site);
    else if (machine.shuffled) yield();
}

void meet_grid(Site site) {
    machine.block->at_grid.push_back(machine.current);
    wait("grid.sync()", site);
}

void yield() {
    if (++machine.yields > most_yields) fail("yielded %llu times: it spins", static_cast<unsigned long long>(most_yields));
    atomics_until_yield = atomics_before_next_yield();
    Block& block = *machine.block;
    make_ready(block, machine.current);
    wait("yield", Site::current());
}

void sleep() {
    Block& block = *machine.block;
    if (machine.shuffled) block.favoured = unsigned(machine.random.below(unsigned(block.warps.size())));
    yield();
}

void* dynamic_shared_memory() { return machine.dynamic_memory; }

void abandon_launch() {
    Context abandoned;
    position = nullptr;
    abandoned.switch_to(machine.outside);
    __builtin_unreachable();
}

bool cuda_on_cpu_launch(const Library* library, const Kernel* kernel, const Shape* shape, const Arguments* arguments,
                        Fault* out) {
    const std::lock_guard one_launch(machine.one_launch);
    machine.kernel = kernel;
    machine.shuffled = shape->seed != 0;
    machine.random.seed(shape->seed);
    // each way finds races that the other hides
    machine.warps_run_ahead = machine.random.below(2) == 0;
    machine.yields = 0;
    atomics_until_yield = atomics_before_next_yield();
    grid_shape = shape->grid;
    block_shape = shape->block;
    faulted = false;
    position = nullptr;
    try {
        find_shared_memory(library);
        place_dynamic_memory(shape->shared_bytes);
        GuardedArrays arrays(*arguments);
        machine.arguments = arrays.addresses();
        running_arrays = &arrays;
        {
            const MemoryFaultsCaught caught;
            run_grid(*shape);
        }
        if (!faulted && arrays.copy_back()) return true;
    } catch (const std::bad_alloc&) {
        position = nullptr;
        record_fault("not enough memory for the launch");
    }
    *out = fault;
    restart_carriers();
    machine.idle_blocks.clear();
    for (const auto& block : machine.blocks) machine.idle_blocks.push_back(block.get());
    return false;
}

} // namespace cuda_on_cpu
