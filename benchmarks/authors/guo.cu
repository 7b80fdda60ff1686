// A main for the push of Guo and others (guowentian/dynamicppr, gpu/PPRRevPushGPU.cuh), which runs as it is.
//
//     guo FOLDER -d FOLDER/stream -a 0 -i 0 -y 1 -w RATIO -n 1 -c BATCH -l EDGES -s VERTEX -e TOLERANCE
//
// As gpu/PPRGPUMain.cu, but each push and the update of the residual before it are timed, and estimates
// are written: of the first window, and after each batch. Graph updates and transfers are not timed, as theirs.
#include <thrust/binary_search.h>
#include <thrust/device_ptr.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/scan.h>

// the one function that they have of cuSPARSE, for graph updates: offsets of sorted rows
enum { CUSPARSE_STATUS_SUCCESS, CUSPARSE_MATRIX_TYPE_GENERAL = 0, CUSPARSE_INDEX_BASE_ZERO = 0 };
using cusparseStatus_t = int;
using cusparseHandle_t = int;
using cusparseMatDescr_t = int;
inline int cusparseCreate(int*) { return 0; }
inline int cusparseCreateMatDescr(int*) { return 0; }
inline int cusparseSetMatType(int, int) { return 0; }
inline int cusparseSetMatIndexBase(int, int) { return 0; }
inline int cusparseXcoo2csr(int, const int* rows, int count, int vertices, int* offsets, int) {
  const auto first = thrust::device_pointer_cast(rows);
  const auto ids = thrust::counting_iterator<int>(0);
  thrust::lower_bound(first, first + count, ids, ids + vertices + 1, thrust::device_pointer_cast(offsets));
  return 0;
}

// CUB's vote, which is gone
__device__ inline bool any_of_warp(bool value) { return __any_sync(0xffffffffu, value); }

#include "Meta.h"
#include "GraphVec.h"
#include "SlidingGraphVec.h"
#include "PPRRevPushGPU.cuh"
#include "Arguments.h"

class Timed : public PPRRevPushGPU {
 public:
  Timed(GraphVec* graph, std::string folder) : PPRRevPushGPU(graph), folder(folder) {}
  void IncrementalBatchUpdate() override {
    timer.StartTimer();
    PPRRevPushGPU::IncrementalBatchUpdate();
    timer.EndTimer();
    spent = timer.GetElapsedMilliSeconds();
    batch = true;
  }
  void ExecuteMainLoop(const size_t phase) override {
    timer.StartTimer();
    PPRRevPushGPU::ExecuteMainLoop(phase);
    timer.EndTimer();
    spent += timer.GetElapsedMilliSeconds();
    if (batch && phase == 0) return;  // the negative residual comes next
    std::vector<ValueType> found(graph->vertex_count);
    CUDA_ERROR(cudaMemcpy(found.data(), device_memory->pagerank, sizeof(ValueType) * found.size(), cudaMemcpyDeviceToHost));
    FILE* file = fopen((folder + "/" + std::to_string(solved) + ".ranks").c_str(), "wb");
    fwrite(found.data(), sizeof(ValueType), found.size(), file);
    fclose(file);
    printf("solve %d: %.6f ms\n", solved++, spent);
    fflush(stdout);
  }

 private:
  std::string folder;
  GPUTimer timer;
  float spent = 0;
  int solved = 0;
  bool batch = false;
};

int main(int argc, char** argv) {
  ArgumentsParser(argc, argv);
  GPUProfiler::InitProfiler();
  // as theirs, never freed
  (new Timed(new SlidingGraphVec(gDataFileName, gIsDirected), argv[1]))->DynamicExecute();
}
