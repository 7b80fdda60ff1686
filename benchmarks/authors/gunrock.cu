// A main for Gunrock's PageRank (gunrock/algorithms/pr.hxx), which is called as it is.
//
//     gunrock FOLDER VERTICES EDGES REPEATS TOLERANCE...
//
// As examples/algorithms/pr/pr.cu, but the graph's arrays are read instead of text, the tolerance is
// given, and ranks are written. `run` times the iterations; not the graph, allocation and out-weights.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>
#include <gunrock/algorithms/pr.hxx>

#ifndef RANK
#define RANK float
#endif

using namespace gunrock;

template <class T>
std::vector<T> read(const std::string& path, size_t count) {
  std::vector<T> values(count);
  FILE* file = fopen(path.c_str(), "rb");
  if (!file || fread(values.data(), sizeof(T), count, file) != count) { perror(path.c_str()); exit(1); }
  fclose(file);
  return values;
}

int main(int argc, char** argv) {
  const std::string folder = std::string(argv[1]) + "/";
  const int vertices = atoi(argv[2]), edges = atoi(argv[3]), repeats = atoi(argv[4]);
  format::csr_t<memory_space_t::device, int, int, RANK> csr;
  csr.number_of_rows = csr.number_of_columns = vertices;
  csr.number_of_nonzeros = edges;
  csr.row_offsets = read<int>(folder + "out-offsets", vertices + 1);
  csr.column_indices = read<int>(folder + "out-ids", edges);
  csr.nonzero_values.assign(edges, RANK(1));
  graph::graph_properties_t properties;
  properties.directed = true;
  auto G = graph::build<memory_space_t::device>(properties, csr);
  auto context = std::make_shared<gcuda::multi_context_t>(0);
  thrust::device_vector<RANK> ranks(vertices);
  for (int i = 5; i < argc; ++i) {
    pr::param_t<RANK> param(RANK(0.85), RANK(atof(argv[i])));
    pr::result_t<RANK> result(ranks.data().get());
    std::vector<float> times;
    // the first run loads kernels
    for (int run = 0; run <= repeats; ++run) {
      context->get_context(0)->synchronize();
      const float time = pr::run(G, param, result, context);
      if (run) times.push_back(time);
    }
    std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
    printf("%s: %.6f ms\n", argv[i], times[repeats / 2]);
    fflush(stdout);
    std::vector<RANK> found(vertices);
    thrust::copy(ranks.begin(), ranks.end(), found.begin());
    const std::vector<double> wide(found.begin(), found.end());
    FILE* file = fopen((folder + argv[i] + ".ranks").c_str(), "wb");
    fwrite(wide.data(), sizeof(double), vertices, file);
    fclose(file);
  }
}
