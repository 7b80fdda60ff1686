#include "pool.h"

#include "bind.h"

#if defined(BORROWED_POOL)

// In a library that is not the extension loops run on the threads of the extension, since a process has one pool. The kernel
// use_pool takes what the extension's kernel `pool` returns.
namespace pool {

static void (*borrowed)(int64, int64, Body, const void*);

void run(int64 items, int64 grain, Body body, const void* context) { borrowed(items, grain, body, context); }

static void use_pool(int64 address) { borrowed = reinterpret_cast<decltype(borrowed)>(address); }
KERNEL("use_pool", use_pool);

}  // namespace pool

#else

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace pool {
namespace {

struct Loop {
    Body body;
    const void* context;
    int64 items, grain, ranges, helpers_wanted;
    std::atomic<int64> next{0};
    int64 helpers = 0;  // threads inside, besides the one that runs it
    Loop* following = nullptr;
    std::condition_variable left{};

    bool has_work() const { return next.load(std::memory_order_relaxed) < ranges; }

    void take_part() {
        for (;;) {
            const int64 range = next.fetch_add(1, std::memory_order_relaxed);
            if (range >= ranges) return;
            const int64 first = range * grain;
            body(context, first, std::min(first + grain, items));
        }
    }
};

struct Pool {
    std::mutex mutex;
    std::condition_variable work;
    Loop* loops = nullptr;  // that may have ranges left
    int64 started = 0;

    Loop* find() {
        for (Loop* loop = loops; loop; loop = loop->following)
            if (loop->helpers < loop->helpers_wanted && loop->has_work()) return loop;
        return nullptr;
    }

    void serve() {
        std::unique_lock lock(mutex);
        for (;;) {
            Loop* loop = nullptr;
            work.wait(lock, [&] { return (loop = find()) != nullptr; });
            ++loop->helpers;
            lock.unlock();
            loop->take_part();
            lock.lock();
            if (--loop->helpers == 0) loop->left.notify_one();
        }
    }

    void start(int64 helpers) {  // with the mutex held
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the threads of Python
        try {
            for (; started < helpers; ++started) std::thread(&Pool::serve, this).detach();
        } catch (const std::system_error&) {
            // without more threads a loop takes longer, and computes the same
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    void run(Loop& loop) {
        {
            std::lock_guard lock(mutex);
            if (started < loop.helpers_wanted) start(loop.helpers_wanted);
            loop.following = loops;
            loops = &loop;
        }
        for (int64 helper = 0; helper < loop.helpers_wanted; ++helper) work.notify_one();
        loop.take_part();
        std::unique_lock lock(mutex);
        Loop** place = &loops;
        while (*place != &loop) place = &(*place)->following;
        *place = loop.following;
        loop.left.wait(lock, [&] { return loop.helpers == 0; });
    }
};

// Never destroyed, as its threads are never joined: the process ends with them asleep.
Pool* pool_of_process = new Pool;

int64 threads_by_default() {
    if (const char* given = std::getenv("LIVERANK_THREADS"))
        if (const long long count = std::atoll(given); count > 0) return count;
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) return std::max(1, CPU_COUNT(&cores));
    return std::max(1u, std::thread::hardware_concurrency());
}

thread_local int64 most_threads = 0;

int64 threads_of_process() {
    static const int64 count = threads_by_default();
    return count;
}

// The threads of the parent are not in the child, and its mutex may have been held.
const int registered = pthread_atfork(nullptr, nullptr, [] { pool_of_process = new Pool; });

}  // namespace

int64 threads() { return most_threads > 0 ? most_threads : threads_of_process(); }

void set_threads(int64 most) { most_threads = most; }

void run(int64 items, int64 grain, Body body, const void* context) {
    const int64 ranges = (items + grain - 1) / grain;
    Loop loop{body, context, items, grain, ranges, std::min(threads(), ranges) - 1};
    if (loop.helpers_wanted > 0) pool_of_process->run(loop);
    else loop.take_part();
}

// For use_pool.
static int64 address() { return reinterpret_cast<int64>(&run); }

KERNEL("pool", address);
KERNEL("threads", threads);
KERNEL("set_threads", set_threads);

}  // namespace pool

#endif
