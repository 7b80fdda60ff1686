// cuPPA, algorithm 1 of Alam and Perumalla (2017), for one segment of vertices: liverank_gpu.generate.published, which says
// what of the text is corrected.
//
// Thread i of T executes vertices first + i, first + i + T, …. An edge waits in the thread's queue as the places in `links` of
// F_ℓ(v), in the upper half of a number, and of F_l(u). Q and Q' share memory: what is appended to one has left the other. A
// thread with a full queue resolves edges before it goes on.
//
// It ends if all blocks run at the same time (section 3.4): so there are no more of them than multiprocessors. Let v be the
// smallest vertex that is not done. All that it can wait for is done, and its thread has no edges of smaller vertices: what
// waits there of v's own is resolved by the next pass, so v advances.
//
// Launch: any number of threads, each with room for `room` edges in dynamic shared memory, or in `queues` unless it is null.
// Traffic an edge: 4 bytes written twice (-1 and the link), a row of links compared, one sector read at random for a copy.
#include "common.cuh"
#include "copy_model.h"

#if !WEIGHTED
__global__ void __launch_bounds__(1024) execute_copy_model(
    int64 first, int64 last, int64 edges_per_vertex, uint64 threshold, uint64 start, int64 room, uint64* queues, int* links,
    uint64* counts) {
    constexpr unsigned PAUSE = 50;  // nanoseconds between two passes
    extern __shared__ uint64 shared_queues[];
    const int64 d = edges_per_vertex, threads = (int64)gridDim.x * blockDim.x;
    const int64 thread = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    const copy_model::CopyModel model = {links, d, threshold, start};
    uint64* const queue = queues != nullptr ? queues + thread : shared_queues + threadIdx.x;
    const int64 stride = queues != nullptr ? threads : (int64)blockDim.x;
    uint64 waiting = 0, queued = 0, largest = 0, passes = 0;
    const auto resolve = [&] {  // lines 23 to 29
        __nanosleep(PAUSE);
        ++passes;
        uint64 kept = 0;
        for (uint64 at = 0; at < waiting; ++at) {
            const uint64 pair = queue[at * stride];
            const int64 place = (int64)(pair >> 32);
            int64 origin = (int64)(pair & 0xffffffff);
            if (model.newest(origin) < 0 || !model.execute(place, origin))
                queue[kept++ * stride] = (uint64)place << 32 | (uint64)origin;
        }
        waiting = kept;
    };
    __syncthreads();  // none waits for a thread of its block that has not begun
    int64 v = first + thread, edge = 0;
    // lanes of a warp go through these turns together, so that none waits for another one that cannot go on
    while (v < last || waiting > 0) {
        if (v < last && waiting < (uint64)room) {  // phase 1: execute the copy model
            const int64 place = (v - d) * d + edge;
            int64 origin = 0;
            if (!model.execute(place, origin)) {
                queue[waiting++ * stride] = (uint64)place << 32 | (uint64)origin;
                ++queued;
                if (waiting > largest) largest = waiting;
            }
            if (++edge == d) edge = 0, v += threads;
        } else {  // phase 2: resolve incomplete edges
            resolve();
        }
    }
    if (queued > 0) atomicAdd(counts, queued);
    if (largest > ((volatile uint64*)counts)[1]) atomicMax(counts + 1, largest);
    if (passes > ((volatile uint64*)counts)[2]) atomicMax(counts + 2, passes);
}
#endif
