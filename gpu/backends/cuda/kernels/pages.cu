// The in-lists of an unweighted graph in pages, for sweeps that read less at random (gpu.operations.pages; after Lakhotia,
// Kannan and Prasanna, "Accelerating PageRank using partition-centric processing", USENIX ATC 2018).
//
// The vertices are divided into tiles of TILE consecutive ones. The sums of a tile are formed in shared memory, from the edges
// into the tile in the order of their sources. So a contribution is read once for each tile that a source sends to, not once
// for each edge, and reads of neighbouring sources follow one another.
//
// Edges are kept in pages of PAGE_BYTES, ascending by tile, source and target:
//
//     uint16[edges]    from the beginning: the place of the target in its tile, and FIRST at the first edge of a source
//     uint32[sources]  from the end, backwards: the distinct sources
//
// The pages that a build makes are in the order of their keys. A page that overflows gives a part of its edges to new ones,
// which follow it: `following`. So a batch rewrites the pages that it names, and nothing else.
// Traffic of add_pages: per edge 2 bytes and an atomic addition in shared memory; per source of a page 4 bytes and one random
// read of 2 bytes; per vertex 8 bytes. Of rewrite_pages: 4 to 8 KiB a page.

constexpr int TILE = 1 << TILE_BITS;
constexpr int KEY_BITS = TILE_BITS + 31;               // a key is tile << KEY_BITS | source << TILE_BITS | place in the tile
constexpr int64 ADDED = 1ll << 62;                      // above all keys
constexpr int64 NO_REMOVAL = -1, NO_ADDITION = ~(1ll << 63);  // of loops: below and above all others
constexpr int PAGE_CELLS = PAGE_BYTES / 2, PAGE_WORDS = PAGE_BYTES / 4;
constexpr unsigned short FIRST = 0x8000;
constexpr int RUN = 8;                                  // consecutive edges of a lane: 16 bytes
static_assert(TILE_BITS <= 15 && PAGE_CELLS <= RUN * BLOCK, "a page has at most RUN edges for each thread of a block");

struct Pages {
    const unsigned short* cells;
    const int* edges;
    const int* sources;

    __device__ const unsigned* last_word(int page) const {
        return reinterpret_cast<const unsigned*>(cells) + (int64)page * PAGE_WORDS + PAGE_WORDS - 1;
    }
};

// ---- sums ----

// A sum is kept in two words of 32 bits, since shared memory has no atomic additions of 64.
__device__ __forceinline__ void add_to(unsigned* words, int place, int64 units) {
    const unsigned low = (unsigned)units, old = atomicAdd(words + place, low);
    const unsigned high = (unsigned)((uint64)units >> 32) + (old + low < low);
    if (high) atomicAdd(words + TILE + place, high);
}

// Adds what a page sends. A warp works on it.
__device__ __forceinline__ void add_page(
    const Pages& pages, int page, const unsigned short* contributions, float scale, unsigned* words) {
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
            sender[edge] = firsts >> edge & 1 ? __ldcs(last_word - index) : 0;
        }
#pragma unroll
        for (int edge = 0; edge < RUN; ++edge)
            amount[edge] = firsts >> edge & 1 ? scale * (float)exact(contributions[sender[edge]]) : 0.0f;
#pragma unroll
        for (int edge = 0; edge < RUN; ++edge) {
            if (edge > 0 && !(firsts >> edge & 1)) amount[edge] = amount[edge - 1];
            if (edge < count) add_to(words, pairs[edge / 2] >> (16 * (edge % 2)) & (TILE - 1), llrintf(amount[edge]));
        }
    }
}

// Before add_pages: next_item = 0, and sums[v] = 0 in the tiles that several items add to. Launch: a block for each of these.
__global__ void __launch_bounds__(BLOCK) clear_sums(
    const int* __restrict__ divided, int count, int* next_item, int64* __restrict__ sums) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *next_item = 0;
    if (blockIdx.x >= count) return;
    const int64 first = (int64)divided[blockIdx.x] << TILE_BITS;
    for (int place = threadIdx.x; place < TILE; place += BLOCK) sums[first + place] = 0;
}

// sums[v] = Σ units of the contributions of the in-neighbours of v, for the pages of each item: (tile, first page, pages,
// whether the tile has other items, which add to sums[v]).
// Launch: PAGE_THREADS a block, as many blocks as are resident; dynamic shared memory for a tile.
__global__ void __launch_bounds__(PAGE_THREADS, PAGE_BLOCKS) add_pages(
    int64 vertices, const int4* __restrict__ items, int count, const unsigned short* __restrict__ cells,
    const int* __restrict__ page_edges, const int* __restrict__ page_sources, const int* __restrict__ following,
    const unsigned short* __restrict__ contributions, float scale, int* next_item, int64* __restrict__ sums) {
    extern __shared__ unsigned words[];
    __shared__ int item, next_page;
    const Pages pages = {cells, page_edges, page_sources};
    for (;;) {
        if (threadIdx.x == 0) item = atomicAdd(next_item, 1), next_page = 0;
        for (int word = threadIdx.x; word < 2 * TILE; word += PAGE_THREADS) words[word] = 0;
        __syncthreads();
        if (item >= count) return;
        const int4 own = items[item];
        for (;;) {
            int place = 0;
            if (threadIdx.x % WARP == 0) place = atomicAdd(&next_page, 1);
            place = __shfl_sync(FULL, place, 0);
            if (place >= own.z) break;
            for (int page = own.y + place; page >= 0; page = following[page])
                add_page(pages, page, contributions, scale, words);
        }
        __syncthreads();
        const int64 first = (int64)own.x << TILE_BITS;
        for (int place = threadIdx.x; place < TILE && first + place < vertices; place += PAGE_THREADS) {
            const int64 sum = (int64)((uint64)words[TILE + place] << 32 | words[place]);
            if (own.w == 0) sums[first + place] = sum;
            else if (sum != 0) atomicAdd(reinterpret_cast<uint64*>(sums) + first + place, (uint64)sum);
        }
        __syncthreads();
    }
}

// ---- keys ----

__device__ __forceinline__ int64 key_of(int64 source, int64 target) {
    return target >> TILE_BITS << KEY_BITS | source << TILE_BITS | (target & (TILE - 1));
}

// The keys of the entries of in-lists; row 0 is that of first_row.
__global__ void __launch_bounds__(BLOCK) pack_entries(
    const int* __restrict__ rows, const int* __restrict__ neighbours, int64 count, int64 first_row,
    int64* __restrict__ keys) {
    for (int64 i = (int64)blockIdx.x * BLOCK + threadIdx.x; i < count; i += (int64)gridDim.x * BLOCK)
        keys[i] = key_of(neighbours[i], first_row + rows[i]);
}

// The changes of a batch, so that ascending ones are the removals and then the additions.
__global__ void __launch_bounds__(BLOCK) pack_changes(
    const int* __restrict__ removed_sources, const int* __restrict__ removed_targets, int64 removals,
    const int* __restrict__ added_sources, const int* __restrict__ added_targets, int64 additions,
    int64* __restrict__ changes) {
    for (int64 i = (int64)blockIdx.x * BLOCK + threadIdx.x; i < removals + additions; i += (int64)gridDim.x * BLOCK) {
        const bool adds = i >= removals;
        const int source = adds ? added_sources[i - removals] : removed_sources[i];
        const int target = adds ? added_targets[i - removals] : removed_targets[i];
        if (source == target) changes[i] = adds ? NO_ADDITION : NO_REMOVAL;
        else changes[i] = key_of(source, target) | (adds ? ADDED : 0);
    }
}

// The first of `count` ascending items that is at least `value`.
__device__ __forceinline__ int64 lower_bound(const int64* items, int64 count, int64 value) {
    int64 low = 0, high = count;
    while (low < high) {
        const int64 middle = (low + high) / 2;
        if (items[middle] < value) low = middle + 1;
        else high = middle;
    }
    return low;
}

// The page that holds, or would hold, the edge of each change; -1 for loops.
__global__ void __launch_bounds__(BLOCK) find_pages(
    const int64* __restrict__ changes, int64 count, const int64* __restrict__ first_keys, int64 built,
    const int* __restrict__ following, int* __restrict__ found) {
    for (int64 i = (int64)blockIdx.x * BLOCK + threadIdx.x; i < count; i += (int64)gridDim.x * BLOCK) {
        const int64 change = changes[i], key = change & ~ADDED;
        if (change == NO_REMOVAL || change == NO_ADDITION) {
            found[i] = -1;
            continue;
        }
        int page = (int)lower_bound(first_keys, built, key + 1) - 1;
        for (int next = following[page]; next >= 0 && first_keys[next] <= key; next = following[next]) page = next;
        found[i] = page;
    }
}

// ---- writing ----

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

__device__ __forceinline__ bool begins_source(const int64* keys, int at) {
    return at == 0 || keys[at] >> TILE_BITS != keys[at - 1] >> TILE_BITS;
}

// The bytes of a page with these ascending keys, in all threads of the block.
__device__ __forceinline__ int page_bytes(const int64* keys, int count) {
    int own = 0, sources;
    for (int at = threadIdx.x; at < count; at += BLOCK) own += begins_source(keys, at);
    sum_before(own, sources);
    return 2 * count + 4 * sources;
}

// Writes a page with these keys, which fit.
__device__ __forceinline__ void write_page(
    const int64* keys, int count, int64 page, unsigned short* cells, int* page_edges, int* page_sources) {
    const int share = (count + BLOCK - 1) / BLOCK;
    const int begin = min(count, (int)threadIdx.x * share), end = min(count, begin + share);
    int own = 0, sources;
    for (int at = begin; at < end; ++at) own += begins_source(keys, at);
    int source = sum_before(own, sources);
    unsigned short* const first_cell = cells + page * PAGE_CELLS;
    unsigned* const last_word = reinterpret_cast<unsigned*>(cells) + page * PAGE_WORDS + PAGE_WORDS - 1;
    for (int at = begin; at < end; ++at) {
        const int64 key = keys[at];
        const bool first = begins_source(keys, at);
        first_cell[at] = (unsigned short)((key & (TILE - 1)) | (first ? FIRST : 0));
        if (first) *(last_word - source++) = (unsigned)(key >> TILE_BITS & 0x7fffffff);
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

// ---- following batches ----

// The changes of one page in one list: those from `begin` to `end` - 1.
struct Own {
    int64 begin, end;
};

__device__ __forceinline__ Own changes_of(const int64* changes, const int* at, int64 count, int page, int64 first) {
    const int64 begin = lower_bound(changes, count, first);
    int64 low = begin, high = count;  // from begin on, first those of this page
    while (low < high) {
        const int64 middle = (low + high) / 2;
        if (at[middle] == page) low = middle + 1;
        else high = middle;
    }
    return {begin, low};
}

// Rewrites the pages that changes name. removed, added: ascending, of edges in the pages and of edges that are not;
// removed_at, added_at: of find_pages. A page takes MOST_ADDED additions at most; left[i] = 1 for the others, 0 before, if
// `left` is not null. counts: see PageCount.
// Launch: a block a change; the first change of a page does the work.
__global__ void __launch_bounds__(BLOCK) rewrite_pages(
    const int64* __restrict__ removed, const int* __restrict__ removed_at, int64 removals, const int64* __restrict__ added,
    const int* __restrict__ added_at, int64 additions, uint8* __restrict__ left, int most_pages, unsigned short* cells,
    int* page_edges, int* page_sources, int* following, int64* first_keys, int* counts) {
    __shared__ int64 keys[PAGE_CELLS], merged[PAGE_CELLS + MOST_ADDED];
    __shared__ Own bounds[2];
    __shared__ int first_new;
    const int64 change = blockIdx.x;
    const int page = change < removals ? removed_at[change] : added_at[change - removals];
    if (page < 0) return;
    if (change < removals ? change > 0 && removed_at[change - 1] == page
                          : change > removals && added_at[change - removals - 1] == page)
        return;
    const int64 first_key = first_keys[page];
    if (threadIdx.x == 0) bounds[0] = changes_of(removed, removed_at, removals, page, first_key);
    if (threadIdx.x == WARP) bounds[1] = changes_of(added, added_at, additions, page, first_key | ADDED);
    __syncthreads();
    const int gone = (int)(bounds[0].end - bounds[0].begin);
    const int64 named = bounds[1].end - bounds[1].begin;
    if (change >= removals && gone > 0) return;
    const int more = (int)(named < MOST_ADDED ? named : MOST_ADDED);
    removed += bounds[0].begin, added += bounds[1].begin;
    if (named > more) {
        for (int64 at = more + threadIdx.x; at < named; at += BLOCK) left[bounds[1].begin + at] = 1;
        if (threadIdx.x == 0) atomicAdd(counts + PageCount::LEFT, 1);
    }
    // the keys of the page
    const int edges = page_edges[page], count = edges - gone + more;
    const int64 tile = first_key >> KEY_BITS << KEY_BITS;
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
    for (int at = threadIdx.x; at < edges; at += BLOCK) {
        const int64 key = keys[at], smaller = lower_bound(removed, gone, key);
        if (smaller < gone && removed[smaller] == key) continue;
        merged[at - smaller + lower_bound(added, more, key | ADDED)] = key;
    }
    for (int at = threadIdx.x; at < more; at += BLOCK) {
        const int64 key = added[at] & ~ADDED;
        merged[at + lower_bound(keys, edges, key) - lower_bound(removed, gone, key)] = key;
    }
    __syncthreads();
    // in as many parts as fit; of 8 each does, were all sources distinct
    int parts = 1;
    for (bool fits = false; !fits; parts *= 2) {
        fits = true;
        for (int part = 0; part < parts && fits; ++part) {
            const int from = count * part / parts;
            fits = page_bytes(merged + from, count * (part + 1) / parts - from) <= PAGE_BYTES;
        }
        if (fits) break;
    }
    if (threadIdx.x == 0) first_new = parts > 1 ? atomicAdd(counts + PageCount::USED, parts - 1) : 0;
    __syncthreads();
    if (first_new + parts - 1 > most_pages) {
        if (threadIdx.x == 0) counts[PageCount::FAILED] = 1;
        return;
    }
    const int after = following[page];
    for (int part = 0; part < parts; ++part) {
        const int from = count * part / parts, at = part == 0 ? page : first_new + part - 1;
        write_page(merged + from, count * (part + 1) / parts - from, at, cells, page_edges, page_sources);
        if (threadIdx.x == 0 && parts > 1) {
            if (part > 0) first_keys[at] = merged[from];
            following[at] = part + 1 < parts ? first_new + part : after;
        }
    }
}
