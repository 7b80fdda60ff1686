// The in-lists of a graph in pages, for sweeps that read less at random (liverank_gpu.operations.pages; after
// Lakhotia, Kannan and Prasanna, "Accelerating PageRank using partition-centric processing", USENIX ATC 2018).
//
// The vertices are divided into tiles of TILE consecutive ones. The sums of a tile are formed in shared memory, from the edges
// into the tile in the order of their sources. So a contribution is read once for each tile that a source sends to, not once
// for each edge, and reads of neighbouring sources follow one another.
//
// If WEIGHTED, a contribution times the weight of an edge is exact in float64, and rounded to the unit for each edge: by half a
// unit, which the certificate has to contain (Iterate.sweep).
//
// Traffic of add_pages: per edge 2 bytes (and 4 of weight if WEIGHTED) and an atomic addition in shared memory; per source of a
// page 4 bytes and one random read of 2 bytes; per vertex 8 bytes. Of edit_pages: the page is read once, and written from its
// first change on.
#include "contributions.cuh"

// ---- a page: how it keeps edges, and how a warp edits it ----
//
// Edges are kept in pages of PAGE_BYTES, ascending by tile, source and target:
//
//     uint16[edges]    from the beginning: the place of the target in its tile, and FIRST at the first edge of a source
//     uint32[sources]  from the end, backwards: the distinct sources
//
// If WEIGHTED, the weights of its edges are float32[MOST_EDGES] in another array.
//
// The pages that a build makes are in the order of their keys. A page that overflows gives a part of its edges to new ones,
// which follow it: `following`. So a batch changes the pages that it names, and nothing else.

constexpr int TILE = 1 << TILE_BITS;
constexpr int KEY_BITS = TILE_BITS + 31;  // a key is tile << KEY_BITS | source << TILE_BITS | place in the tile
constexpr int PAGE_CELLS = PAGE_BYTES / 2, PAGE_WORDS = PAGE_BYTES / 4, PAGE_CHUNKS = PAGE_BYTES / 16;
constexpr int MOST_EDGES = WEIGHTED ? PAGE_WORDS : PAGE_CELLS;  // of a page
constexpr int MOST_BYTES = 6;             // that an edge takes
constexpr unsigned short FIRST = 0x8000;

struct Pages {
    const unsigned short* cells;
    const int* edges;
    const int* sources;

    __device__ const unsigned* last_word(int page) const {
        return reinterpret_cast<const unsigned*>(cells) + (int64)page * PAGE_WORDS + PAGE_WORDS - 1;
    }
};

// Moves items[begin] … items[end - 1] one place up, or down. Every lane of the warp takes part.
template <typename Item> __device__ __forceinline__ void move_up(Item* items, int begin, int end) {
    for (int last = end - 1; last >= begin; last -= WARP) {
        const int at = last - (int)(threadIdx.x % WARP);
        const Item item = at >= begin ? items[at] : Item();
        __syncwarp();
        if (at >= begin) items[at + 1] = item;
        __syncwarp();
    }
}

template <typename Item> __device__ __forceinline__ void move_down(Item* items, int begin, int end) {
    for (int first = begin; first < end; first += WARP) {
        const int at = first + threadIdx.x % WARP;
        const Item item = at < end ? items[at] : Item();
        __syncwarp();
        if (at < end) items[at - 1] = item;
        __syncwarp();
    }
}

// A page in shared memory, which a warp edits: every lane takes part, and has the same arguments and counts.
struct StagedPage {
    uint4* chunks;
    float* weights;  // of the stored page: they are changed in place; null if not WEIGHTED
    int edges, sources;
    int changed_cell = PAGE_CELLS, changed_source = PAGE_WORDS;  // the first ones

    __device__ unsigned short* cells() const { return reinterpret_cast<unsigned short*>(chunks); }
    __device__ unsigned* words() const { return reinterpret_cast<unsigned*>(chunks); }
    __device__ unsigned& source(int number) const { return words()[PAGE_WORDS - 1 - number]; }
    __device__ bool has_room(int added) const {
        return 2 * edges + 4 * sources + MOST_BYTES * added <= PAGE_BYTES && edges + added <= MOST_EDGES;
    }

    // added: how many edges will be added
    __device__ __forceinline__ void load(const uint4* stored, int added) {
        constexpr int ROUNDS = (PAGE_CHUNKS + WARP - 1) / WARP;
        const int lane = threadIdx.x % WARP;
        uint4 own[ROUNDS] = {};
#pragma unroll
        for (int round = 0; round < ROUNDS; ++round) {
            const int chunk = WARP * round + lane;
            const bool used = 16 * chunk < 2 * (edges + added) || 16 * (chunk + 1) > PAGE_BYTES - 4 * (sources + added);
            if (used && chunk < PAGE_CHUNKS) own[round] = stored[chunk];
        }
#pragma unroll
        for (int round = 0; round < ROUNDS; ++round)
            if (WARP * round + lane < PAGE_CHUNKS) chunks[WARP * round + lane] = own[round];
        __syncwarp();
    }

    // Writes what has changed.
    __device__ __forceinline__ void store(uint4* stored) const {
        for (int chunk = threadIdx.x % WARP; chunk < PAGE_CHUNKS; chunk += WARP) {
            const int begin = 16 * chunk, end = begin + 16;
            const bool of_cells = end > 2 * changed_cell && begin < 2 * edges;
            const bool of_sources = end > PAGE_BYTES - 4 * sources && begin < PAGE_BYTES - 4 * changed_source;
            if (of_cells || of_sources) stored[chunk] = chunks[chunk];
        }
    }

    // How many sources are smaller.
    __device__ __forceinline__ int sources_below(unsigned sender) const {
        int low = 0, high = sources;
        while (low < high) {
            const int middle = (low + high) / 2;
            if (source(middle) < sender) low = middle + 1;
            else high = middle;
        }
        return low;
    }

    // The first edge of a source; `edges` for the one after the last.
    __device__ __forceinline__ int first_of(int number) const {
        const int lane = threadIdx.x % WARP;
        for (int begin = 0; begin < edges; begin += WARP) {
            const bool first = begin + lane < edges && cells()[begin + lane] >= FIRST;
            const unsigned firsts = __ballot_sync(FULL, first);
            if (number < __popc(firsts)) {
                const bool found = first && __popc(firsts & ((1u << lane) - 1)) == number;
                return begin + __ffs((int)__ballot_sync(FULL, found)) - 1;
            }
            number -= __popc(firsts);
        }
        return edges;
    }

    // The first edge from the first of its source on that goes to `place` or after it, or is of another source.
    __device__ __forceinline__ int edge_from(int first, int place) const {
        for (int begin = first;; begin += WARP) {
            const int at = begin + threadIdx.x % WARP;
            const int cell = at < edges ? cells()[at] : FIRST;
            const bool ends = (cell >= FIRST && at > first) || (cell & (TILE - 1)) >= place;
            const unsigned found = __ballot_sync(FULL, ends);
            if (found) return begin + __ffs((int)found) - 1;
        }
    }

    __device__ __forceinline__ void add(unsigned sender, int place, float weight) {
        const int number = sources_below(sender), first = first_of(number);
        const bool known = number < sources && source(number) == sender;
        const int at = known ? edge_from(first, place) : first;
        move_up(cells(), at, edges);
        if (WEIGHTED) move_up(weights, at, edges);
        if (!known) move_down(words(), PAGE_WORDS - sources, PAGE_WORDS - number);
        if (threadIdx.x % WARP == 0) {
            cells()[at] = (unsigned short)(place | (at == first ? FIRST : 0));
            if (known && at == first) cells()[at + 1] &= (unsigned short)~FIRST;
            if (!known) source(number) = sender;
            if (WEIGHTED) weights[at] = weight;
        }
        __syncwarp();
        ++edges, sources += !known;
        changed_cell = min(changed_cell, at);
        if (!known) changed_source = min(changed_source, number);
    }

    // Of an edge in the page.
    __device__ __forceinline__ void remove(unsigned sender, int place) {
        const int number = sources_below(sender), first = first_of(number), at = edge_from(first, place);
        const bool begins = at == first, last = at + 1 == edges || cells()[at + 1] >= FIRST;
        move_down(cells(), at + 1, edges);
        if (WEIGHTED) move_down(weights, at + 1, edges);
        if (begins && last) move_up(words(), PAGE_WORDS - sources, PAGE_WORDS - 1 - number);
        else if (begins && threadIdx.x % WARP == 0) cells()[at] |= FIRST;
        __syncwarp();
        --edges, sources -= begins && last;
        changed_cell = min(changed_cell, at);
        if (begins && last) changed_source = min(changed_source, number);
    }
};

// ---- tiles and their changes ----

constexpr int64 NO_CHANGE = ~(1ll << 63);  // of loops: above all changes
constexpr int RUN = 8;                     // consecutive edges of a lane: 16 bytes
static_assert(TILE_BITS <= 15 && MOST_EDGES <= RUN * BLOCK, "a page has at most RUN edges for each thread of a block");
static_assert(MOST_EDGES % RUN == 0, "a lane reads the weights of its edges at once");

// A change of a batch: the key of its edge twice, and 1 if it is added.
constexpr int64 ADDS = 1;

// ---- sums ----

// A sum is kept in two words of 32 bits, since shared memory has no atomic additions of 64.
__device__ __forceinline__ void add_to(unsigned* words, int place, int64 units) {
    const unsigned low = (unsigned)units, old = atomicAdd(words + place, low);
    const unsigned high = (unsigned)((uint64)units >> 32) + (old + low < low);
    if (high) atomicAdd(words + TILE + place, high);
}

// What arrives along an edge, in units.
__device__ __forceinline__ int64 arriving(float contribution, float weight, float scale) {
    if constexpr (WEIGHTED) return llrint((double)scale * ((double)contribution * (double)weight));
    else return llrintf(scale * contribution);
}

// Adds what a page sends. A warp works on it. weights: of all pages.
__device__ __forceinline__ void add_page(
    const Pages& pages, const float* weights, int page, const unsigned short* contributions, float scale, unsigned* words) {
    const int lane = threadIdx.x % WARP, edges = pages.edges[page];
    const unsigned short* cells = pages.cells + (int64)page * PAGE_CELLS;
    const unsigned* last_word = pages.last_word(page);
    int before = -1;  // the source of the edge before this round
    for (int begin = 0; begin < edges; begin += RUN * WARP) {
        const int at = begin + RUN * lane, count = min(RUN, max(0, edges - at));
        uint4 packed = {};
        if (count > 0) packed = __ldcs(reinterpret_cast<const uint4*>(cells + at));
        const unsigned pairs[] = {packed.x, packed.y, packed.z, packed.w};
        float4 own[RUN / 4] = {};
        if (WEIGHTED && count > 0) {
            const float4* const first = reinterpret_cast<const float4*>(weights + (int64)page * MOST_EDGES + at);
#pragma unroll
            for (int four = 0; four < RUN / 4; ++four) own[four] = __ldcs(first + four);
        }
        unsigned firsts = 0;
#pragma unroll
        for (int edge = 0; edge < RUN; ++edge)
            firsts |= (pairs[edge / 2] >> (16 * (edge % 2) + 15) & (edge < count)) << edge;
        const int begun = __popc(firsts), through = inclusive_sum(begun), source = before + through - begun;
        before += __shfl_sync(FULL, through, WARP - 1);
        if (count > 0) firsts |= 1;  // the first edge of the lane needs its source too
        const int begins = pairs[0] >> 15 & 1;
        unsigned sender[RUN];
        float sent[RUN];
#pragma unroll
        for (int edge = 0; edge < RUN; ++edge) {
            const int index = source + begins + __popc(firsts & ((2u << edge) - 1)) - 1;
            sender[edge] = firsts >> edge & 1 ? __ldcs(last_word - index) : 0;
        }
#pragma unroll
        for (int edge = 0; edge < RUN; ++edge)
            sent[edge] = firsts >> edge & 1 ? (float)exact(contributions[sender[edge]]) : 0.0f;
#pragma unroll
        for (int edge = 0; edge < RUN; ++edge) {
            if (edge > 0 && !(firsts >> edge & 1)) sent[edge] = sent[edge - 1];
            const float4 four = own[edge / 4];
            const float weight = edge % 4 < 2 ? (edge % 2 ? four.y : four.x) : (edge % 2 ? four.w : four.z);
            const int place = pairs[edge / 2] >> (16 * (edge % 2)) & (TILE - 1);
            if (edge < count) add_to(words, place, arriving(sent[edge], weight, scale));
        }
    }
}

#if !WEIGHTED
// Before add_pages: next_item = 0, and sums[v] = 0 in the tiles that several items add to. Launch: a block for each of these.
__global__ void __launch_bounds__(BLOCK) clear_sums(
    const int* __restrict__ divided, int count, int* next_item, int64* __restrict__ sums) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *next_item = 0;
    if (blockIdx.x >= count) return;
    const int64 first = (int64)divided[blockIdx.x] << TILE_BITS;
    for (int place = threadIdx.x; place < TILE; place += BLOCK) sums[first + place] = 0;
}
#endif

// sums[v] = Σ units of the contributions of the in-neighbours of v, for the pages of each item: (tile, first page, pages,
// whether the tile has other items, which add to sums[v]).
// Launch: PAGE_THREADS a block, as many blocks as are resident; dynamic shared memory for a tile.
__global__ void __launch_bounds__(PAGE_THREADS, PAGE_BLOCKS) add_pages(
    int64 vertices, const int4* __restrict__ items, int count, const unsigned short* __restrict__ cells,
    const float* __restrict__ weights, const int* __restrict__ page_edges, const int* __restrict__ page_sources,
    const int* __restrict__ following, const unsigned short* __restrict__ contributions, float scale, int* next_item,
    int64* __restrict__ sums) {
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
                add_page(pages, weights, page, contributions, scale, words);
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

#if !WEIGHTED
// The keys of the entries of in-lists; row 0 is that of first_row.
__global__ void __launch_bounds__(BLOCK) pack_entries(
    const int* __restrict__ rows, const int* __restrict__ neighbours, int64 count, int64 first_row,
    int64* __restrict__ keys) {
    for (int64 i = (int64)blockIdx.x * BLOCK + threadIdx.x; i < count; i += (int64)gridDim.x * BLOCK)
        keys[i] = key_of(neighbours[i], first_row + rows[i]);
}

// The changes of a batch.
__global__ void __launch_bounds__(BLOCK) pack_changes(
    const int* __restrict__ removed_sources, const int* __restrict__ removed_targets, int64 removals,
    const int* __restrict__ added_sources, const int* __restrict__ added_targets, int64 additions,
    int64* __restrict__ changes) {
    for (int64 i = (int64)blockIdx.x * BLOCK + threadIdx.x; i < removals + additions; i += (int64)gridDim.x * BLOCK) {
        const bool adds = i >= removals;
        const int source = adds ? added_sources[i - removals] : removed_sources[i];
        const int target = adds ? added_targets[i - removals] : removed_targets[i];
        changes[i] = source == target ? NO_CHANGE : 2 * key_of(source, target) + adds;
    }
}
#endif

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

#if !WEIGHTED
// The page that holds, or would hold, the edge of each change; -1 for loops. Before edit_pages: counts[…] = 0.
__global__ void __launch_bounds__(BLOCK) find_pages(
    const int64* __restrict__ changes, int64 count, const int64* __restrict__ first_keys, int64 built,
    const int* __restrict__ following, int* __restrict__ found, int* counts) {
    if (blockIdx.x == 0 && threadIdx.x == 0) counts[PageCount::CROWDED] = counts[PageCount::LEFT] = 0;
    for (int64 i = (int64)blockIdx.x * BLOCK + threadIdx.x; i < count; i += (int64)gridDim.x * BLOCK) {
        const int64 key = changes[i] / 2;
        if (changes[i] == NO_CHANGE) {
            found[i] = -1;
            continue;
        }
        int page = (int)lower_bound(first_keys, built, key + 1) - 1;
        for (int next = following[page]; next >= 0 && first_keys[next] <= key; next = following[next]) page = next;
        found[i] = page;
    }
}
#endif

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

// Writes a page with these keys, which fit, and their weights, in order.
__device__ __forceinline__ void write_page(
    const int64* keys, const float* own_weights, int count, int64 page, unsigned short* cells, float* weights, int* page_edges,
    int* page_sources) {
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
        if (WEIGHTED) weights[page * MOST_EDGES + at] = own_weights[at];
    }
    if (threadIdx.x == 0) page_edges[page] = count, page_sources[page] = sources;
}

// Writes page i from keys[begins[i]] … keys[begins[i + 1] - 1]. Launch: a block a page.
__global__ void __launch_bounds__(BLOCK) write_pages(
    const int64* __restrict__ keys, const float* __restrict__ key_weights, const int64* __restrict__ begins,
    unsigned short* __restrict__ cells, float* __restrict__ weights, int* __restrict__ page_edges,
    int* __restrict__ page_sources) {
    const int64 begin = begins[blockIdx.x];
    const float* const own = WEIGHTED ? key_weights + begin : nullptr;
    const int count = (int)(begins[blockIdx.x + 1] - begin);
    write_page(keys + begin, own, count, blockIdx.x, cells, weights, page_edges, page_sources);
}

// ---- following batches ----

// Edits the pages that changes name: those with fewer than WARP changes and room for all of them. changes: ascending, removals
// of edges in the pages and additions of edges that are not; change_weights: of the added edges; at: of find_pages. crowded:
// the first change of each other page. counts: see PageCount.
// Launch: a warp a change; the first change of a page does the work.
__global__ void __launch_bounds__(BLOCK) edit_pages(
    const int64* __restrict__ changes, const float* __restrict__ change_weights, const int* __restrict__ at, int count,
    unsigned short* cells, float* weights, int* page_edges, int* page_sources, int* __restrict__ crowded, int* counts) {
    __shared__ uint4 staged[WARPS][PAGE_CHUNKS];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int change = blockIdx.x * WARPS + warp, other = change + lane;
    if (change >= count) return;
    const int page = at[change];
    if (page < 0 || (change > 0 && at[change - 1] == page)) return;
    const bool named = other < count && at[other] == page;
    const int64 own = named ? changes[other] : 0;
    const int changed = __popc(__ballot_sync(FULL, named)), added = __popc(__ballot_sync(FULL, own & ADDS));
    const float own_weight = WEIGHTED && named ? change_weights[other] : 1.0f;
    float* const stored_weights = WEIGHTED ? weights + (int64)page * MOST_EDGES : nullptr;
    StagedPage edited = {staged[warp], stored_weights, page_edges[page], page_sources[page]};
    if (changed == WARP || !edited.has_room(added)) {
        if (lane == 0) crowded[atomicAdd(counts + PageCount::CROWDED, 1)] = change;
        return;
    }
    uint4* const stored = reinterpret_cast<uint4*>(cells) + (int64)page * PAGE_CHUNKS;
    edited.load(stored, added);
    for (int number = 0; number < changed; ++number) {
        const int64 next = __shfl_sync(FULL, own, number), key = next / 2;
        const unsigned source = (unsigned)(key >> TILE_BITS & 0x7fffffff);
        const float weight = WEIGHTED ? __shfl_sync(FULL, own_weight, number) : 1.0f;
        if (next & ADDS) edited.add(source, (int)(key & (TILE - 1)), weight);
        else edited.remove(source, (int)(key & (TILE - 1)));
    }
    edited.store(stored);
    if (lane == 0) page_edges[page] = edited.edges, page_sources[page] = edited.sources;
}

// Rewrites the crowded pages of edit_pages, whose arguments the first ones are. A page that overflows gives edges to new ones.
// A page takes its first MOST_CHANGED changes; left[i] = 1 for the others, 0 before, if `left` is not null.
// Launch: as many blocks as are resident; a block takes a page at a time. A fifth block would leave too few registers.
__global__ void __launch_bounds__(BLOCK, 4) rewrite_pages(
    const int64* __restrict__ changes, const float* __restrict__ change_weights, const int* __restrict__ at, int count,
    unsigned short* cells, float* weights, int* page_edges, int* page_sources, const int* __restrict__ crowded, int* counts,
    uint8* __restrict__ left, int most_pages, int* following,
    int64* first_keys) {
    __shared__ int64 keys[MOST_EDGES], merged[MOST_EDGES + MOST_CHANGED];
    __shared__ float merged_weights[WEIGHTED ? MOST_EDGES + MOST_CHANGED : 1];
    __shared__ unsigned short added_before[MOST_CHANGED + 1];
    __shared__ int named, first_new;
    for (int number = blockIdx.x; number < counts[PageCount::CROWDED]; number += gridDim.x) {
        const int change = crowded[number], page = at[change];
        if (threadIdx.x == 0) {
            int low = change + 1, high = count;  // first those of this page
            while (low < high) {
                const int middle = low + (high - low) / 2;
                if (at[middle] == page) low = middle + 1;
                else high = middle;
            }
            named = low - change;
            if (named > MOST_CHANGED) atomicAdd(counts + PageCount::LEFT, 1);
        }
        __syncthreads();
        const int64* const own = changes + change;
        const int changed = min(named, MOST_CHANGED);
        for (int i = changed + threadIdx.x; i < named; i += BLOCK) left[change + i] = 1;
        const int share = (changed + BLOCK - 1) / BLOCK;
        const int first = min(changed, (int)threadIdx.x * share), last = min(changed, first + share);
        int adding = 0, added;
        for (int i = first; i < last; ++i) adding += own[i] & ADDS;
        adding = sum_before(adding, added);
        for (int i = first; i < last; ++i) {
            added_before[i] = (unsigned short)adding;
            adding += own[i] & ADDS;
        }
        if (threadIdx.x == 0) added_before[changed] = (unsigned short)added;
        // the keys of the page
        const int edges = page_edges[page], total = edges + 2 * added - changed;
        const int64 tile = first_keys[page] >> KEY_BITS << KEY_BITS;
        const unsigned* const last_word = Pages{cells, page_edges, page_sources}.last_word(page);
        const int begin = min(edges, RUN * (int)threadIdx.x), end = min(edges, begin + RUN);
        int begun = 0, sources;
        for (int i = begin; i < end; ++i) begun += cells[(int64)page * PAGE_CELLS + i] >> 15;
        int source = sum_before(begun, sources) - 1;
        for (int i = begin; i < end; ++i) {
            const unsigned short cell = cells[(int64)page * PAGE_CELLS + i];
            source += cell >> 15;
            keys[i] = tile | (int64)*(last_word - source) << TILE_BITS | (cell & (TILE - 1));
        }
        __syncthreads();
        // those that stay and those that are added, at their places in ascending order
        for (int i = threadIdx.x; i < edges; i += BLOCK) {
            const int before = (int)lower_bound(own, changed, 2 * keys[i]);
            if (before < changed && own[before] == 2 * keys[i]) continue;
            const int place = i + 2 * added_before[before] - before;
            merged[place] = keys[i];
            if (WEIGHTED) merged_weights[place] = weights[(int64)page * MOST_EDGES + i];
        }
        for (int i = threadIdx.x; i < changed; i += BLOCK) {
            if (!(own[i] & ADDS)) continue;
            const bool replaces = i > 0 && own[i - 1] == own[i] - ADDS;  // its edge, with another weight
            const int place = (int)lower_bound(keys, edges, own[i] / 2) + 2 * added_before[i] - i + replaces;
            merged[place] = own[i] / 2;
            if (WEIGHTED) merged_weights[place] = change_weights[change + i];
        }
        __syncthreads();
        // in as many parts as fit; of 8 each does, were all sources distinct
        int parts = 1;
        for (bool fits = false; !fits; parts *= 2) {
            fits = true;
            for (int part = 0; part < parts && fits; ++part) {
                const int from = total * part / parts, some = total * (part + 1) / parts - from;
                fits = some <= MOST_EDGES && page_bytes(merged + from, some) <= PAGE_BYTES;
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
            const int from = total * part / parts, to = part == 0 ? page : first_new + part - 1;
            const float* const own_weights = WEIGHTED ? merged_weights + from : nullptr;
            const int some = total * (part + 1) / parts - from;
            write_page(merged + from, own_weights, some, to, cells, weights, page_edges, page_sources);
            if (threadIdx.x == 0 && parts > 1) {
                if (part > 0) first_keys[to] = merged[from];
                following[to] = part + 1 < parts ? first_new + part : after;
            }
        }
        __syncthreads();
    }
}
