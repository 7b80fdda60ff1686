// A page of the in-lists: how it keeps edges, and how a warp edits it.
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
#include "contributions.cuh"

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
