// Threads that share the ranges of a loop with the one that runs it.
//
// Ranges are handed out in order, each of `grain` items (the last one may be shorter), whatever the number of threads: what a
// loop computes for a range, and how, does not depend on it. Any thread may run a loop at any time; loops that run at once share
// the threads. A loop is called without the interpreter lock and calls nothing of Python's. A child of fork has threads of its
// own. Threads are started by the first loop that has work for them; LIVERANK_THREADS says how many, the caller included.
#pragma once
#include <memory>

#include "arrays.h"

namespace pool {

using Body = void (*)(const void* context, int64 first, int64 last);

void run(int64 items, int64 grain, Body body, const void* context);

// How many threads take part in the loops of the calling thread.
int64 threads();
void set_threads(int64 most);

// Calls body(first, last) for each range of `grain` items. The calling thread runs a single range alone: waking another one takes
// longer than 10 µs of work.
template <class Function>
void parallel(int64 items, int64 grain, const Function& body) {
    if (items <= grain) {
        if (items > 0) body(int64{0}, items);
        return;
    }
    run(
        items, grain,
        [](const void* context, int64 first, int64 last) { (*static_cast<const Function*>(context))(first, last); },
        std::addressof(body));
}

// Calls visit(item) for each item, one at a time, each on any thread.
template <class Visit>
void each(int64 items, const Visit& visit) {
    parallel(items, 1, [&](int64 item, int64) { visit(item); });
}

}  // namespace pool
