// For a library that is not the extension: its loops run on the threads of the extension, since a process has one pool. The kernel
// use_pool takes what the extension's kernel `pool` returns.
#pragma once
#include "bind.h"
#include "pool.h"

namespace pool {

static void (*borrowed)(int64, int64, Body, const void*);

void run(int64 items, int64 grain, Body body, const void* context) { borrowed(items, grain, body, context); }

static void use_pool(int64 address) { borrowed = reinterpret_cast<decltype(borrowed)>(address); }
KERNEL("use_pool", use_pool);

}  // namespace pool
