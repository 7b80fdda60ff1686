// A partition-centric sweep (pages.py; after Lakhotia, Kannan and Prasanna, "Accelerating PageRank using partition-centric
// processing", USENIX ATC 2018).
//
// The vertices are divided into tiles of TILE consecutive ones. The sums of a tile are formed in shared memory, from the edges
// into the tile in the order of their sources. So a contribution is read once for each tile that a source sends to, not once for
// each edge, and reads of neighbouring sources follow one another. Sums are integers, multiples of 1/scale: they do not depend on
// the order of the additions.
//
// Edges are kept in pages of PAGE_BYTES, sorted by tile, source and target:
//
//     uint16[edges]    from the beginning: the place of the target in its tile, and FIRST at the first edge of a source
//     uint32[sources]  from the end, backwards: the distinct sources
//
// A directory lists the pages of each tile in order. A batch rewrites the pages that it changes; a full one is split.
// Traffic of add_pages: per edge 2 bytes and an atomic addition in shared memory; per source of a page 4 bytes and one random
// read of 2 bytes; per vertex 8 bytes. finish_sweep: 53 to 61 bytes a vertex.

constexpr int TILE = 1 << TILE_BITS;
constexpr int KEY_BITS = TILE_BITS + SOURCE_BITS;      // a key is tile << KEY_BITS | source << TILE_BITS | place in the tile
constexpr int PAGE_CELLS = PAGE_BYTES / 2, PAGE_WORDS = PAGE_BYTES / 4;
constexpr unsigned short FIRST = 0x8000;
constexpr int RUN = 8;                                  // consecutive edges of a lane: 16 bytes
constexpr int MOST_ADDED = PAGE_CELLS / 2;              // edges that a batch adds to a page, at most
static_assert(TILE_BITS <= 15 && PAGE_CELLS <= RUN * BLOCK, "a page has at most RUN edges for each thread of a block");

enum Accumulator { TWO_WORDS, ONE_WORD, FLOAT };        // how shared memory keeps a sum: 32 + 32 bits, 64 bits, a float

struct Pages {
    const unsigned short* cells;
    const int* edges;
    const int* sources;

    __device__ const unsigned* last_word(int page) const {
        return reinterpret_cast<const unsigned*>(cells) + (int64)page * PAGE_WORDS + PAGE_WORDS - 1;
    }
};

template <int ACCUMULATOR>
__device__ __forceinline__ void add_to(unsigned* words, int place, float amount) {
    if constexpr (ACCUMULATOR == FLOAT) atomicAdd(reinterpret_cast<float*>(words) + place, amount);
    else {
        const uint64 integer = (uint64)llrintf(amount);
        if constexpr (ACCUMULATOR == ONE_WORD) atomicAdd(reinterpret_cast<uint64*>(words) + place, integer);
        else {
            const unsigned low = (unsigned)integer, old = atomicAdd(words + place, low);
            const unsigned high = (unsigned)(integer >> 32) + (old + low < low);
            if (high) atomicAdd(words + TILE + place, high);
        }
    }
}

template <int ACCUMULATOR>
__device__ __forceinline__ int64 sum_at(const unsigned* words, int place) {
    if constexpr (ACCUMULATOR == FLOAT) return llrintf(reinterpret_cast<const float*>(words)[place]);
    else if constexpr (ACCUMULATOR == ONE_WORD) return reinterpret_cast<const int64*>(words)[place];
    else return (int64)((uint64)words[TILE + place] << 32 | words[place]);
}

// Adds what a page sends. A warp works on it. If BINNED, amounts[i] is the contribution of source i of the page.
template <int ACCUMULATOR, bool BINNED>
__device__ __forceinline__ void add_page(
    const Pages& pages, int page, const unsigned short* contributions, const unsigned short* amounts, float scale,
    unsigned* words) {
    const int lane = threadIdx.x % WARP, edges = pages.edges[page];
    const unsigned short* cells = pages.cells + (int64)page * PAGE_CELLS;
    const unsigned* last_word = pages.last_word(page);
    int before = -1;  // the source of the edge before this round
    for (int begin = 0; begin < edges; begin += RUN * WARP) {
        const int at = begin + RUN * lane, count = min(RUN, max(0, edges - at));
        uint4 packed = {};
        if (count > 0) packed = __ldcs(reinterpret_cast<const uint4*>(cells + at));
        const unsigned pairs[] = {packed.x, packed.y, packed.z, packed.w};
        unsigned firsts = 0;
#pragma unroll
        for (int edge = 0; edge < RUN; ++edge)
            firsts |= (pairs[edge / 2] >> (16 * (edge % 2) + 15) & (edge < count)) << edge;
        const int own = __popc(firsts), through = inclusive_sum(own), source = before + through - own;
        before += __shfl_sync(FULL, through, WARP - 1);
        if (count > 0) firsts |= 1;  // the first edge of the lane needs its source too
        const int begins = pairs[0] >> 15 & 1;
        unsigned sender[RUN];
        float amount[RUN];
#pragma unroll
        for (int edge = 0; edge < RUN; ++edge) {
            const int index = source + begins + __popc(firsts & ((2u << edge) - 1)) - 1;
            if constexpr (BINNED) sender[edge] = index;
            else sender[edge] = firsts >> edge & 1 ? __ldcs(last_word - index) : 0;
        }
#pragma unroll
        for (int edge = 0; edge < RUN; ++edge)
            amount[edge] = firsts >> edge & 1
                ? scale * (float)exact(BINNED ? __ldcs(amounts + sender[edge]) : contributions[sender[edge]]) : 0.0f;
#pragma unroll
        for (int edge = 0; edge < RUN; ++edge) {
            if (edge > 0 && !(firsts >> edge & 1)) amount[edge] = amount[edge - 1];
            if (edge < count) add_to<ACCUMULATOR>(words, pairs[edge / 2] >> (16 * (edge % 2)) & (TILE - 1), amount[edge]);
        }
    }
}

// sums[v] = scale · Σ contributions of the in-neighbours of v, for the pages of each item: (tile, first entry of the directory,
// entries, whether the tile has other items, which add to sums[v]). next_item is 0 before the launch.
// Launch: THREADS a block, as many blocks as are resident; dynamic shared memory for a tile.
template <int ACCUMULATOR, bool BINNED>
__global__ void __launch_bounds__(THREADS, RESIDENT) add_pages(
    int64 vertices, const int4* __restrict__ items, int count, const int* __restrict__ directory,
    const unsigned short* __restrict__ cells, const int* __restrict__ page_edges, const int* __restrict__ page_sources,
    const unsigned short* __restrict__ contributions, const int64* __restrict__ first_amounts,
    const unsigned short* __restrict__ amounts, float scale, int* next_item, int64* __restrict__ sums) {
    extern __shared__ unsigned words[];
    __shared__ int item, next_page;
    const Pages pages = {cells, page_edges, page_sources};
    for (;;) {
        if (threadIdx.x == 0) item = atomicAdd(next_item, 1), next_page = 0;
        for (int word = threadIdx.x; word < (ACCUMULATOR == FLOAT ? 1 : 2) * TILE; word += THREADS) words[word] = 0;
        __syncthreads();
        if (item >= count) return;
        const int4 own = items[item];
        for (;;) {
            int place = 0;
            if (threadIdx.x % WARP == 0) place = atomicAdd(&next_page, 1);
            place = __shfl_sync(FULL, place, 0);
            if (place >= own.z) break;
            const int page = directory[own.y + place];
            const unsigned short* binned = BINNED ? amounts + first_amounts[page] : nullptr;
            add_page<ACCUMULATOR, BINNED>(pages, page, contributions, binned, scale, words);
        }
        __syncthreads();
        const int64 first = (int64)own.x << TILE_BITS;
        for (int place = threadIdx.x; place < TILE && first + place < vertices; place += THREADS) {
            const int64 sum = sum_at<ACCUMULATOR>(words, place);
            if (own.w == 0) sums[first + place] = sum;
            else if (sum != 0) atomicAdd(reinterpret_cast<uint64*>(sums) + first + place, (uint64)sum);
        }
        __syncthreads();
    }
}

// amounts[first_amounts[page] + i] = the contribution of source i, pages in the order of their sources. A warp a page.
__global__ void __launch_bounds__(BLOCK) bin_contributions(
    const int* __restrict__ order, int count, const unsigned short* __restrict__ cells, const int* __restrict__ page_edges,
    const int* __restrict__ page_sources, const unsigned short* __restrict__ contributions,
    const int64* __restrict__ first_amounts, unsigned short* __restrict__ amounts) {
    const Pages pages = {cells, page_edges, page_sources};
    const int warps = gridDim.x * WARPS;
    for (int place = blockIdx.x * WARPS + threadIdx.x / WARP; place < count; place += warps) {
        const int page = order[place], sources = page_sources[page];
        const unsigned* last_word = pages.last_word(page);
        for (int source = threadIdx.x % WARP; source < sources; source += WARP)
            amounts[first_amounts[page] + source] = contributions[last_word[-source]];
    }
}

// The rest of a sweep: sums, in multiples of 1/scale, are the incoming mass. Those of divided tiles, and next_item, are 0 then.
__global__ void __launch_bounds__(BLOCK) finish_sweep(
    int64 vertices, const int* __restrict__ row_lengths, const Loop* __restrict__ loop, const Degree* __restrict__ degree,
    const unsigned short* __restrict__ contributions, double damping, double shift, double unit,
    const uint8* __restrict__ divided, int* next_item, int64* __restrict__ sums, double* __restrict__ values,
    double* __restrict__ r, unsigned short* __restrict__ new_contributions, double* __restrict__ partial_sums) {
    double own_sums[SWEEP_SUMS] = {};
    const Sweep<double, false> step = {
        row_lengths, loop, degree, contributions, damping, shift, nullptr, nullptr, 0.0, 0.0, values, r, new_contributions};
    if (blockIdx.x == 0 && threadIdx.x == 0) *next_item = 0;
    for (int64 v = (int64)blockIdx.x * BLOCK + threadIdx.x; v < vertices; v += (int64)gridDim.x * BLOCK) {
        const double incoming = unit * (double)sums[v];
        if (divided[v >> TILE_BITS]) sums[v] = 0;
        step.finish((int)v, step.read((int)v, true), incoming, own_sums);
    }
    write_sums<true>(own_sums, partial_sums + (int64)blockIdx.x * SWEEP_SUMS);
}

// The sum of `own` over the earlier threads of the block, and over all. Every thread takes part.
__device__ __forceinline__ int sum_before(int own, int& total) {
    __shared__ int warps[WARPS];
    const int through = inclusive_sum(own), warp = threadIdx.x / WARP;
    if (threadIdx.x % WARP == WARP - 1) warps[warp] = through;
    __syncthreads();
    int before = 0;
    total = 0;
#pragma unroll
    for (int other = 0; other < WARPS; ++other) {
        before += other < warp ? warps[other] : 0;
        total += warps[other];
    }
    __syncthreads();
    return before + through - own;
}

// The number of distinct sources in ascending keys, in all threads of the block.
__device__ __forceinline__ int distinct_sources(const int64* keys, int count) {
    int own = 0, total;
    for (int at = threadIdx.x; at < count; at += BLOCK)
        own += at == 0 || keys[at] >> TILE_BITS != keys[at - 1] >> TILE_BITS;
    sum_before(own, total);
    return total;
}

// Writes a page with these keys, which fit.
__device__ __forceinline__ void write_page(
    const int64* keys, int count, int page, unsigned short* cells, int* page_edges, int* page_sources) {
    const int share = (count + BLOCK - 1) / BLOCK, begin = min(count, (int)threadIdx.x * share), end = min(count, begin + share);
    int own = 0, sources;
    for (int at = begin; at < end; ++at) own += at == 0 || keys[at] >> TILE_BITS != keys[at - 1] >> TILE_BITS;
    int source = sum_before(own, sources);
    unsigned short* const first_cell = cells + (int64)page * PAGE_CELLS;
    unsigned* const last_word = reinterpret_cast<unsigned*>(cells) + (int64)page * PAGE_WORDS + PAGE_WORDS - 1;
    for (int at = begin; at < end; ++at) {
        const int64 key = keys[at];
        const bool first = at == 0 || key >> TILE_BITS != keys[at - 1] >> TILE_BITS;
        first_cell[at] = (unsigned short)((key & (TILE - 1)) | (first ? FIRST : 0));
        if (first) *(last_word - source++) = (unsigned)(key >> TILE_BITS & ((1ll << SOURCE_BITS) - 1));
    }
    if (threadIdx.x == 0) page_edges[page] = count, page_sources[page] = sources;
}

// Writes page i from keys[begins[i]] … keys[begins[i + 1] - 1]. Launch: a block a page.
__global__ void __launch_bounds__(BLOCK) write_pages(
    const int64* __restrict__ keys, const int64* __restrict__ begins, unsigned short* __restrict__ cells,
    int* __restrict__ page_edges, int* __restrict__ page_sources) {
    const int64 begin = begins[blockIdx.x];
    write_page(keys + begin, (int)(begins[blockIdx.x + 1] - begin), blockIdx.x, cells, page_edges, page_sources);
}

// The first of `count` ascending items that is at least `value`.
template <class Item>
__device__ __forceinline__ int64 lower_bound(const Item* items, int64 count, Item value) {
    int64 low = 0, high = count;
    while (low < high) {
        const int64 middle = (low + high) / 2;
        if (items[middle] < value) low = middle + 1;
        else high = middle;
    }
    return low;
}

// The entry of the directory whose page holds, or would hold, each key.
__global__ void __launch_bounds__(BLOCK) find_pages(
    const int64* __restrict__ keys, int64 count, const int64* __restrict__ first_keys, int64 entries, int* __restrict__ found) {
    for (int64 i = (int64)blockIdx.x * BLOCK + threadIdx.x; i < count; i += (int64)gridDim.x * BLOCK)
        found[i] = (int)lower_bound(first_keys, entries, keys[i] + 1) - 1;
}

enum PageCount { PAGES, FAILURES };

// Rewrites the pages that changes name. removed, added: ascending keys, of edges in the pages and of edges that are not;
// removed_at, added_at: their entries in the directory. A page that overflows gives its second half to a new one: split[entry]
// is that page and split_key[entry] its first key. counts: pages in use, and changes that found no room.
// Launch: a block a change; the first change of a page does the work.
__global__ void __launch_bounds__(BLOCK) rewrite_pages(
    const int64* __restrict__ removed, const int* __restrict__ removed_at, int64 removals, const int64* __restrict__ added,
    const int* __restrict__ added_at, int64 additions, const int* __restrict__ directory,
    const int64* __restrict__ first_keys, int most_pages, unsigned short* cells, int* page_edges, int* page_sources,
    int* __restrict__ split, int64* __restrict__ split_key, int* counts) {
    __shared__ int64 keys[PAGE_CELLS], merged[PAGE_CELLS + MOST_ADDED];
    __shared__ int64 bounds[4];
    __shared__ int new_page;
    const int64 change = blockIdx.x;
    const int entry = change < removals ? removed_at[change] : added_at[change - removals];
    if (change < removals ? change > 0 && removed_at[change - 1] == entry
                          : change > removals && added_at[change - removals - 1] == entry)
        return;
    if (threadIdx.x < 4) {
        const int* const list = threadIdx.x < 2 ? removed_at : added_at;
        bounds[threadIdx.x] = lower_bound(list, threadIdx.x < 2 ? removals : additions, entry + (int)threadIdx.x % 2);
    }
    __syncthreads();
    const int64 first_removed = bounds[0], first_added = bounds[2];
    const int gone = (int)(bounds[1] - first_removed), more = (int)(bounds[3] - first_added);
    if (change >= removals && gone > 0) return;
    const int page = directory[entry], edges = page_edges[page], count = edges - gone + more;
    if (more > MOST_ADDED) {
        if (threadIdx.x == 0) atomicAdd(counts + FAILURES, gone + more);
        return;
    }
    // the keys of the page
    const int64 tile = first_keys[entry] >> KEY_BITS << KEY_BITS;
    const unsigned* const last_word = Pages{cells, page_edges, page_sources}.last_word(page);
    const int begin = min(edges, RUN * (int)threadIdx.x), end = min(edges, begin + RUN);
    int own = 0, sources;
    for (int at = begin; at < end; ++at) own += cells[(int64)page * PAGE_CELLS + at] >> 15;
    int source = sum_before(own, sources) - 1;
    for (int at = begin; at < end; ++at) {
        const unsigned short cell = cells[(int64)page * PAGE_CELLS + at];
        source += cell >> 15;
        keys[at] = tile | (int64)*(last_word - source) << TILE_BITS | (cell & (TILE - 1));
    }
    __syncthreads();
    // those that stay and those that are added, at their places in ascending order
    removed += first_removed, added += first_added;
    for (int at = threadIdx.x; at < edges; at += BLOCK) {
        const int64 key = keys[at], smaller = lower_bound(removed, gone, key);
        if (smaller < gone && removed[smaller] == key) continue;
        merged[at - smaller + lower_bound(added, more, key)] = key;
    }
    for (int at = threadIdx.x; at < more; at += BLOCK) {
        const int64 key = added[at];
        merged[at + lower_bound(keys, edges, key) - lower_bound(removed, gone, key)] = key;
    }
    __syncthreads();
    if (2 * count + 4 * distinct_sources(merged, count) <= PAGE_BYTES) {
        write_page(merged, count, page, cells, page_edges, page_sources);
        return;
    }
    const int half = count / 2;
    const int first_bytes = 2 * half + 4 * distinct_sources(merged, half);
    const int second_bytes = 2 * (count - half) + 4 * distinct_sources(merged + half, count - half);
    if (threadIdx.x == 0) new_page = max(first_bytes, second_bytes) <= PAGE_BYTES ? atomicAdd(counts + PAGES, 1) : most_pages;
    __syncthreads();
    if (new_page >= most_pages) {
        if (threadIdx.x == 0) atomicAdd(counts + FAILURES, gone + more);
        return;
    }
    write_page(merged, half, page, cells, page_edges, page_sources);
    write_page(merged + half, count - half, new_page, cells, page_edges, page_sources);
    if (threadIdx.x == 0) split[entry] = new_page, split_key[entry] = merged[half];
}
