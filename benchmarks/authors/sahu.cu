// A main for Sahu's functions (puzzlef/pagerank-cuda-dynamic, inc/main.hxx), which are called as they are.
//
//     sahu FOLDER VERTICES EDGES REPEATS METHOD...
//
// It maps the graph's arrays instead of reading text, and writes ranks. The functions time partition,
// initial ranks, marking and iterations; not allocation, transfers and the conversion to CSR.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "inc/main.hxx"

template <class T>
const T* mapped(const std::string& path, size_t* count = nullptr) {
  const int file = open(path.c_str(), O_RDONLY);
  struct stat facts;
  if (file < 0 || fstat(file, &facts)) { perror(path.c_str()); exit(1); }
  if (count) *count = facts.st_size / sizeof(T);
  if (!facts.st_size) return nullptr;
  return (const T*)mmap(nullptr, facts.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
}

/// What the functions read of a graph: out-lists, or in-lists with the out-degree as a vertex's value.
struct Csr {
  using key_type = uint32_t;
  size_t vertices, edges;
  const uint32_t *offsets, *ids, *out_offsets;
  size_t span() const { return vertices; }
  size_t order() const { return vertices; }
  size_t size() const { return edges; }
  bool empty() const { return !vertices; }
  uint32_t degree(uint32_t u) const { return offsets[u + 1] - offsets[u]; }
  uint32_t vertexValue(uint32_t u) const { return out_offsets[u + 1] - out_offsets[u]; }
  template <class F> void forEachVertexKey(F visit) const { for (uint32_t u = 0; u < vertices; ++u) visit(u); }
};

// theirs looks each id up in a hash table, which takes minutes; not a part of what is timed
template <class K>
void csrCreateEdgeKeysW(std::vector<K>& keys, const Csr& x, const std::vector<K>&) { keys.assign(x.ids, x.ids + x.edges); }

using Edges = std::vector<std::tuple<uint32_t, uint32_t>>;
using Options = PagerankOptions<double>;

auto solve(const std::string& method, const Csr& y, const Csr& yt, const Edges& deleted, const Edges& inserted,
           const std::vector<double>& first, const Options& options) {
  if (method == "static") return pagerankStaticCuda<true>(y, yt, options);
  if (method == "nd") return pagerankNaiveDynamicCuda<true>(y, yt, &first, options);
  if (method == "dt") return pagerankDynamicTraversalCuda<true>(y, yt, y, yt, deleted, inserted, &first, options);
  if (method == "df") return pagerankDynamicFrontierCuda<true>(y, yt, y, yt, deleted, inserted, &first, options);
  if (method == "df-p") return pagerankPruneDynamicFrontierCuda<true>(y, yt, y, yt, deleted, inserted, &first, options);
  fprintf(stderr, "no method %s\n", method.c_str());
  exit(1);
}

Edges pairs(const std::string& path) {
  size_t count = 0;
  const uint32_t* ids = mapped<uint32_t>(path, &count);
  Edges edges;
  for (size_t i = 0; i < count; i += 2) edges.push_back({ids[i], ids[i + 1]});
  return edges;
}

int main(int argc, char** argv) {
  const std::string folder = std::string(argv[1]) + "/";
  const size_t vertices = strtoull(argv[2], nullptr, 10), edges = strtoull(argv[3], nullptr, 10);
  const auto out = mapped<uint32_t>(folder + "out-offsets"), in = mapped<uint32_t>(folder + "in-offsets");
  const Csr y{vertices, edges, out, mapped<uint32_t>(folder + "out-ids"), out};
  const Csr yt{vertices, edges, in, mapped<uint32_t>(folder + "in-ids"), out};
  const Edges deleted = pairs(folder + "deleted"), inserted = pairs(folder + "inserted");
  size_t known = 0;
  const double* ranks = mapped<double>(folder + "first", &known);
  const std::vector<double> first(ranks, ranks + known);
  const Options options(atoi(argv[4]));
  // loads the kernels of the methods: a star, as vertices of low and of high degree have kernels of their own
  // (not smaller: CUB's scratch memory is as large as an array of the vertices)
  const uint32_t leaves = 10000;
  std::vector<uint32_t> starts{0, leaves}, ends;
  for (uint32_t v = 0; v < leaves; ++v) ends.push_back(v);
  for (uint32_t v = 1; v < leaves; ++v) {
    ends.insert(ends.end(), {0, v});
    starts.push_back(ends.size());
  }
  const Csr star{leaves, ends.size(), starts.data(), ends.data(), starts.data()};
  const std::vector<double> even(leaves, 1.0 / leaves);
  for (int i = 5; i < argc; ++i) solve(argv[i], star, star, {}, {{0, 1}}, even, Options());
  for (int i = 5; i < argc; ++i) {
    const auto found = solve(argv[i], y, yt, deleted, inserted, first, options);
    printf("%s: %.6f ms, %d iterations\n", argv[i], found.time, found.iterations);
    fflush(stdout);
    FILE* file = fopen((folder + argv[i] + ".ranks").c_str(), "wb");
    fwrite(found.ranks.data(), sizeof(double), vertices, file);
    fclose(file);
  }
}
