// The overhead of a round of small work, by what starts it (benchmarks/rounds.py).
//
// A round is two steps, and the second needs the results of the first, as in a push. In a step each of `threads` threads adds
// to one random element. Three ways to run rounds until a counter reaches 0:
//
//   meet    one cooperative launch whose blocks synchronise twice a round (as the kernel `push` does)
//   graph   one launch of a CUDA graph: a conditional node repeats two kernels
//   host    two launches a round, and the counter is read back
//
// Usage: rounds <blocks> <rounds> <threads of a step>; prints microseconds a round, the median of several runs, as JSON.

#include <cooperative_groups.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int BLOCK = 256, ELEMENTS = 1 << 20, RUNS = 21;

static void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    std::exit(1);
}
#define CHECK(call) check(call, #call)

__device__ void step(float* elements, int threads, int seed) {
    for (int at = blockIdx.x * BLOCK + threadIdx.x; at < threads; at += gridDim.x * BLOCK)
        atomicAdd(elements + (unsigned)(at * 2654435761u + seed * 40503u) % ELEMENTS, 1.0f);
}

__global__ void __launch_bounds__(BLOCK) meet(float* elements, int threads, const int* rounds) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    for (int round = *rounds; round > 0; --round) {
        step(elements, threads, 2 * round);
        grid.sync();
        step(elements, threads, 2 * round + 1);
        grid.sync();
    }
}

__global__ void __launch_bounds__(BLOCK) first_step(float* elements, int threads, const int* remaining) {
    step(elements, threads, 2 * *remaining);
}

__global__ void __launch_bounds__(BLOCK) second_step(float* elements, int threads, const int* remaining) {
    step(elements, threads, 2 * *remaining + 1);
}

// Between two rounds, by one thread: the decision that every block of `meet` makes for itself.
__global__ void decide(int* remaining, cudaGraphConditionalHandle handle) {
    cudaGraphSetConditional(handle, --*remaining > 0);
}

__global__ void count_down(int* remaining) { --*remaining; }

template <class Run>
static double microseconds(const Run& run, int rounds) {
    std::vector<double> seen;
    for (int repeat = 0; repeat < RUNS; ++repeat) {
        const auto begin = std::chrono::steady_clock::now();
        run();
        CHECK(cudaDeviceSynchronize());
        seen.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    }
    std::nth_element(seen.begin(), seen.begin() + RUNS / 2, seen.end());
    return seen[RUNS / 2] / rounds;
}

int main(int count, char** arguments) {
    if (count != 4) return 2;
    int blocks = std::atoi(arguments[1]), rounds = std::atoi(arguments[2]), threads = std::atoi(arguments[3]);
    float* elements;
    int *remaining, *all;
    CHECK(cudaMalloc(&elements, ELEMENTS * sizeof(float)));
    CHECK(cudaMemset(elements, 0, ELEMENTS * sizeof(float)));
    CHECK(cudaMalloc(&remaining, sizeof(int)));
    CHECK(cudaMalloc(&all, sizeof(int)));
    CHECK(cudaMemcpy(all, &rounds, sizeof(int), cudaMemcpyHostToDevice));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));

    const double meeting = microseconds([&] {
        void* parameters[] = {&elements, &threads, &all};
        CHECK(cudaLaunchCooperativeKernel((void*)meet, blocks, BLOCK, parameters, 0, stream));
    }, rounds);

    cudaGraph_t graph;
    cudaGraphConditionalHandle handle;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
    cudaGraphNodeParams repeated = {};
    repeated.type = cudaGraphNodeTypeConditional;
    repeated.conditional.handle = handle;
    repeated.conditional.type = cudaGraphCondTypeWhile;
    repeated.conditional.size = 1;
    cudaGraphNode_t node;
#if CUDART_VERSION >= 13000
    CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &repeated));
#else
    CHECK(cudaGraphAddNode(&node, graph, nullptr, 0, &repeated));
#endif
    CHECK(cudaStreamBeginCaptureToGraph(
        stream, repeated.conditional.phGraph_out[0], nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
    first_step<<<blocks, BLOCK, 0, stream>>>(elements, threads, remaining);
    second_step<<<blocks, BLOCK, 0, stream>>>(elements, threads, remaining);
    decide<<<1, 1, 0, stream>>>(remaining, handle);
    CHECK(cudaStreamEndCapture(stream, nullptr));
    cudaGraphExec_t ready;
    CHECK(cudaGraphInstantiate(&ready, graph, 0));
    const double graphing = microseconds([&] {
        CHECK(cudaMemcpyAsync(remaining, all, sizeof(int), cudaMemcpyDeviceToDevice, stream));
        CHECK(cudaGraphLaunch(ready, stream));
    }, rounds);

    const double hosting = microseconds([&] {
        CHECK(cudaMemcpyAsync(remaining, all, sizeof(int), cudaMemcpyDeviceToDevice, stream));
        int seen;
        do {
            first_step<<<blocks, BLOCK, 0, stream>>>(elements, threads, remaining);
            second_step<<<blocks, BLOCK, 0, stream>>>(elements, threads, remaining);
            count_down<<<1, 1, 0, stream>>>(remaining);
            CHECK(cudaMemcpyAsync(&seen, remaining, sizeof(int), cudaMemcpyDeviceToHost, stream));
            CHECK(cudaStreamSynchronize(stream));
        } while (seen > 0);
    }, rounds);
    std::printf(
        "{\"blocks\": %d, \"rounds\": %d, \"threads\": %d, \"meet_us\": %.3f, \"graph_us\": %.3f, \"host_us\": %.3f}\n", blocks,
        rounds, threads, meeting, graphing, hosting);
    return 0;
}
