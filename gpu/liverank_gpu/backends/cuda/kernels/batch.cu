// A batch of insertions and deletions, planned and then applied, in both directions of the graph at once
// (liverank_gpu.operations.graph: plan, apply). Keys: see GraphOperations; NO_KEY, above all keys, is no operation.
//
//     plan_batch, plan_sent: write nothing of the graph
//         find_rows      distinct edges and rows of sorted keys, by two exclusive sums: about 50 bytes an operation
//         locate         reads every named row once, 4 bytes an entry, and looks each entry up among the edges of the row
//         decide         removed and added edges, by an exclusive sum: about 50 bytes an edge. If WEIGHTED, weights before and
//                        after too: about 20 bytes more, one random read among them; an edge with another weight is both
//         plan_rows      new length and start of every named row, by exclusive sums
//     apply_batch:
//         move_rows      copies the rows that outgrow their capacity behind `end`: 8 bytes an entry
//         place_changes  additions go into the slots of removed entries, then behind the end of the row; slots that stay empty
//                        are marked: about 50 bytes a change
//         find_holes     a row that shrinks by h entries has h slots behind its new end. As many of them still hold an entry as
//                        there are marked slots before the new end, row by row, so one exclusive sum over the removed entries
//                        pairs them
//         fill_holes     moves the entries
//         finish_rows    starts, lengths, capacities and degrees; the changed rows with their old degrees. If WEIGHTED, the
//                        strengths of these are summed again: 4 bytes an entry
//
//     update_batch: both at once for a small batch, and then what perturb.cu does. First ids become positions, all edges of
//                   vertices to remove are listed, and the keys of both directions are sorted
//
// If WEIGHTED, a weight goes with each entry: 4 bytes more wherever an entry is read or written.
// Rows are unordered. The order in a row follows from the sorted keys alone, never from the order of threads.
// Launch: BLOCK threads a block, all blocks resident (cooperative): they synchronise between the steps. Blocks take tiles,
// items or parts of the work of one direction from the first on, and of the other from the last on: few have both if there is
// little.
#include <cooperative_groups.h>
#include "perturb.cuh"
#include "strengths.cuh"

// One direction of the graph, the keys, and where the plan of a batch is: liverank_gpu.operations.csr.SlackCsr and
// liverank_gpu.operations.graph.BatchPlan.
struct Direction {
    int64* row_starts;
    int* row_lengths;
    int* column_indices;
    float* slot_weights;
    int* capacities;
    uint8* degree_bins;
    int64 end, operations;
    int64* keys;
    float* weights;
    int64* counters;
    uint64* first_scan;  // of SCANS, each in `words`
    int64* wide;         // arrays of `room` each
    int* narrow;
    signed char* tiny;
    float* floats;
    int64 room, words;
};

// The same, and the arrays of the plan.
struct Side : Direction {
    uint64* scans[SCANS];
    int64* const row_work = wide;
    int64* const move_work = wide + room;
    int64* const new_start = wide + 2 * room;
    int* const edge_operation = narrow;
    int* const edge_neighbour = narrow + room;
    int* const edge_row = narrow + 2 * room;
    int* const edge_slot = narrow + 3 * room;
    int* const row_edge = narrow + 4 * room;
    int* const row_vertex = narrow + 5 * room;
    int* const row_removed = narrow + 6 * room;
    int* const row_added = narrow + 7 * room;
    int* const removed_row = narrow + 8 * room;
    int* const removed_neighbour = narrow + 9 * room;
    int* const removed_slot = narrow + 10 * room;
    int* const added_row = narrow + 11 * room;
    int* const added_neighbour = narrow + 12 * room;
    int* const new_length = narrow + 13 * room;
    int* const changed_row = narrow + 14 * room;
    signed char* const row_loop = tiny;
    float* const removed_weights = floats;
    float* const added_weights = floats + room;
    float* const filler_weights = floats + 3 * room;

    __device__ __forceinline__ explicit Side(const Direction& direction) : Direction(direction) {
#pragma unroll
        for (int scan = 0; scan < SCANS; ++scan) scans[scan] = first_scan + scan * words;
    }
};

// A small batch as it was sent.
struct Unsorted {
    const int64* ids;  // of all sources, deletions first, of all targets, and of the vertices to remove, ascending
    int64 count, deletions, removals;
    int64 vertices[2];     // ids that are known, to deletions and to insertions
    const int* positions;  // see position_of
    const int* own_ids;    // the other way round
    int64 permuted;
    const float* weights;  // of the operations, if WEIGHTED
    int64* unsorted;       // scratch: int64[2 · room], keys of the out-lists and of the in-lists
    int64 room;            // keys of each, with those of edges of removed vertices, at most
    int shards, rank, columns;  // positions are dealt out to shards, each with so many columns; here are the lists of one

    // The key of an operation in the list of the first, NO_KEY if that is of another shard:
    // liverank_gpu.sharded.columns.Numbering.
    __device__ __forceinline__ int64 own_key(int64 position, int64 neighbour, int operation) const {
        const int first = (int)position, second = (int)neighbour, owner = second % shards, row = second / shards;
        if (first % shards != rank) return NO_KEY;
        return key_of(first / shards, owner == rank ? row : (int64)(owner + 1) * columns + row, operation);
    }
};

// What the batch says of loops, counts and weights: see GraphOperations.plan.
struct Rules {
    int64 vertices;
    const Loop* loop;
    int fixed_loops, directed, adds;
};

// `body(side, block)` for both directions; blocks of the second are counted from the last one.
template <class Body>
__device__ __forceinline__ void both(const Side& out, const Side& in, Body body) {
    body(out, (int64)blockIdx.x);
    body(in, (int64)(gridDim.x - 1 - blockIdx.x));
}

// ---- plan ----

// The keys of both directions. An operation on an id that is not known is none. A loop is a flag of its vertex, in the
// out-lists alone.
__device__ __forceinline__ void list_keys(const Unsorted& batch, const Side& out) {
    for (int64 at = thread_of_grid(); at < batch.count; at += threads_of_grid()) {
        const int operation = at < batch.deletions ? DELETE : INSERT;
        const uint64 limit = operation == DELETE ? batch.vertices[0] : batch.vertices[1];
        const int64 ids[2] = {batch.ids[at], batch.ids[batch.count + at]};
        int64 outgoing = NO_KEY, incoming = NO_KEY;
        if ((uint64)ids[0] < limit && (uint64)ids[1] < limit) {
            const int64 source = position_of(ids[0], batch.positions, batch.permuted);
            const int64 target = position_of(ids[1], batch.positions, batch.permuted);
            outgoing = batch.own_key(source, target, operation);
            if (source != target) incoming = batch.own_key(target, source, operation);
        }
        batch.unsorted[at] = outgoing;
        batch.unsorted[batch.room + at] = incoming;
        // which are read at random, and nearer there
        if constexpr (WEIGHTED) out.filler_weights[at] = batch.weights[at];
    }
}

// The deletions of all edges of the vertices to remove, behind what was sent. An arc between two of them is in both lists and
// counts once. found: receives how many keys there are, of which those that fit are written, and how many edges; of an
// undirected graph twice.
__device__ __forceinline__ void list_removals(
    const cooperative_groups::grid_group& grid, const Unsorted& batch, const Side& out, const Side& in, const Rules& rules,
    uint64* found) {
    int* const removed = in.edge_slot;  // which is free until entries are looked up
    for (int64 at = thread_of_grid(); at < batch.removals; at += threads_of_grid())
        removed[at] = (int)batch.ids[2 * batch.count + at];
    grid.sync();
    for (int64 item = thread_of_grid() / WARP; item < batch.removals; item += threads_of_grid() / WARP) {
        const int64 vertex = position_of(removed[item], batch.positions, batch.permuted);
        const int leaving = out.row_lengths[vertex], arcs = leaving + in.row_lengths[vertex];
        const int all = arcs + (!rules.fixed_loops && rules.loop[vertex] != 0);
        int64 first = 0;
        if (threadIdx.x % WARP == 0) first = batch.count + (int64)atomicAdd(found, (uint64)all);
        first = __shfl_sync(FULL, first, 0);
        if (first + all > batch.room) continue;
        int64 edges = 0;
        for (int at = threadIdx.x % WARP; at < all; at += WARP) {
            int64 source = vertex, target = vertex;
            if (at < leaving) target = out.column_indices[out.row_starts[vertex] + at];
            else if (at < arcs) source = in.column_indices[in.row_starts[vertex] + at - leaving];
            const int id = (int)position_of(source, batch.own_ids, batch.permuted);
            const int64 place = first_from<int64>(removed, 0, batch.removals, id);
            const bool counted = source == vertex || place == batch.removals || removed[place] != id;
            batch.unsorted[first + at] = counted ? key_of(source, target, DELETE) : NO_KEY;
            batch.unsorted[batch.room + first + at] = counted && source != target ? key_of(target, source, DELETE) : NO_KEY;
            if constexpr (WEIGHTED) out.filler_weights[first + at] = 0.0f;
            if (counted) edges += source == target && !rules.directed ? 2 : 1;
        }
        count(reinterpret_cast<int64*>(found + 1), edges);
    }
}

constexpr int RUN = 512;  // keys that are compared with one another

// How many of ascending keys are below `key`, or (through) not above it.
__device__ __forceinline__ int64 keys_below(const int64* keys, int64 count, int64 key, bool through) {
    int64 low = 0, high = count;
    while (low < high) {
        const int64 middle = (low + high) / 2;
        if (keys[middle] < key || (through && keys[middle] == key)) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Equal keys stay in their order. A warp takes a key: first it is compared with all of its run, and then, from sorted runs,
// looked up in the others. Up to WARP runs take as long as one.
__device__ __forceinline__ void sort_keys(
    const cooperative_groups::grid_group& grid, const Unsorted& batch, const Side& out, const Side& in) {
    const int64 total = out.operations, warps = threads_of_grid() / WARP;
    const int lane = threadIdx.x % WARP;
    for (int64 item = thread_of_grid() / WARP; item < 2 * total; item += warps) {
        // arrays are chosen, not sides: those stay in registers
        const bool of_in = item >= total;
        const int64* const own = of_in ? batch.unsorted + batch.room : batch.unsorted;
        const int64 at = of_in ? item - total : item, run = at / RUN * RUN;
        const int64 place = run + keys_before(own + run, total - run < RUN ? total - run : RUN, at - run);
        if (lane != 0) continue;
        // in arrays that are free until rows are planned
        int64* const to = total > RUN ? (of_in ? in.row_work : out.row_work) : of_in ? in.keys : out.keys;
        to[place] = own[at];
        if constexpr (WEIGHTED) {
            float* const weights =
                total > RUN ? (of_in ? in.added_weights : out.added_weights) : of_in ? in.weights : out.weights;
            weights[place] = out.filler_weights[at];
        }
    }
    if (total <= RUN) return;
    grid.sync();
    for (int64 item = thread_of_grid() / WARP; item < 2 * total; item += warps) {
        const bool of_in = item >= total;
        const int64* const runs = of_in ? in.row_work : out.row_work;
        const int64 at = of_in ? item - total : item, run = at / RUN * RUN, key = runs[at];
        uint64 before = 0;
        for (int64 first = (int64)lane * RUN; first < total; first += WARP * RUN) {
            const int64 count = total - first < RUN ? total - first : RUN;
            before += first == run ? at - run : keys_below(runs + first, count, key, first < run);
        }
        before = warp_sum(before);
        if (lane != 0) continue;
        (of_in ? in.keys : out.keys)[before] = key;
        if constexpr (WEIGHTED)
            (of_in ? in.weights : out.weights)[before] = (of_in ? in.added_weights : out.added_weights)[at];
    }
}

__device__ __forceinline__ int64 units_of(int row, int64 vertices, const int* row_lengths) {
    return 1 + (row < vertices ? quads_of(row_lengths[row]) : 0);
}

__device__ __forceinline__ void find_rows(const Side& side, int64 tile, int64 vertices) {
    const int64 first = first_item(tile, ITEMS);
    int64 key[ITEMS];
    unsigned edge_heads = 0, row_heads = 0;  // one bit an item: the first key of an edge, of a row
    uint64 sums[2][ITEMS];
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 at = first + item * WARP;
        key[item] = at < side.operations ? side.keys[at] : NO_KEY;
        const int64 before = at > 0 && at < side.operations ? side.keys[at - 1] : -1;
        const bool edge_head = key[item] != NO_KEY && key[item] >> 1 != before >> 1;
        const bool row_head = key[item] != NO_KEY && row_of_key(key[item]) != row_of_key(before);
        edge_heads |= (unsigned)edge_head << item;
        row_heads |= (unsigned)row_head << item;
        sums[0][item] = (uint64)edge_head | (uint64)row_head << HALF;
        sums[1][item] = row_head ? (uint64)units_of((int)row_of_key(key[item]), vertices, side.row_lengths) : 0;
    }
    uint64* const scans[2] = {side.scans[0], side.scans[1]};
    exclusive_sums(scans, tile, sums);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 at = first + item * WARP;
        if (at >= side.operations) continue;
        if (key[item] == NO_KEY) continue;
        int edge = (int)(sums[0][item] & LOW), row = (int)(sums[0][item] >> HALF);
        int64 units = (int64)sums[1][item];
        if (row_heads >> item & 1) {
            const int vertex = (int)row_of_key(key[item]);
            side.row_edge[row] = edge;
            side.row_vertex[row] = vertex;
            side.row_loop[row] = 0;
            side.row_work[row] = units;
            units += units_of(vertex, vertices, side.row_lengths);
            row += 1;
        }
        if (edge_heads >> item & 1) {
            side.edge_operation[edge] = (int)at;
            side.edge_neighbour[edge] = (int)neighbour_of_key(key[item]);
            side.edge_row[edge] = row - 1;
            side.edge_slot[edge] = -1;
            edge += 1;
        }
        if (at + 1 == side.operations || side.keys[at + 1] == NO_KEY) {
            side.edge_operation[edge] = (int)(at + 1);
            side.row_edge[row] = edge;
            side.row_work[row] = units;
            side.counters[Counter::EDGES] = edge;
            side.counters[Counter::ROWS] = row;
        }
    }
}

// A Bloom filter of ids, one for each warp. It spares nearly every entry of a long row the search.
constexpr int FILTER_WORDS = 128;

__device__ __forceinline__ unsigned filter_bit(int id) { return (unsigned)id * 2654435769u >> 20; }

__device__ __forceinline__ void locate(const Side& side, unsigned* filter, int64 block) {
    const int lane = threadIdx.x % WARP;
    const int4* const entries = (const int4*)side.column_indices;
    const int64 rows = side.counters[Counter::ROWS];
    if (rows == 0) return;
    const auto search = [&](int neighbour, int slot, int first_edge, int last_edge) {
        const int edge = first_from(side.edge_neighbour, first_edge, last_edge, neighbour);
        if (edge < last_edge && side.edge_neighbour[edge] == neighbour) side.edge_slot[edge] = slot;
    };
    const auto whole = [&](int64 row, int64 first, int64 last) {
        const int vertex = side.row_vertex[row], first_edge = side.row_edge[row], last_edge = side.row_edge[row + 1];
        __syncwarp();
        for (int word = lane; word < FILTER_WORDS; word += WARP) filter[word] = 0;
        __syncwarp();
        for (int edge = first_edge + lane; edge < last_edge; edge += WARP) {
            const unsigned bit = filter_bit(side.edge_neighbour[edge]);
            atomicOr(filter + bit / 32, 1u << bit % 32);
        }
        __syncwarp();
        const int count = side.row_lengths[vertex];
        const int4* quads = entries + side.row_starts[vertex] / QUAD;
        constexpr int AHEAD = 4;  // loads in flight
        for (int64 quad = first + lane; quad < last; quad += AHEAD * WARP) {
            int4 four[AHEAD];
#pragma unroll
            for (int load = 0; load < AHEAD; ++load)
                four[load] = quad + load * WARP < last ? quads[quad + load * WARP] : make_int4(-1, -1, -1, -1);
#pragma unroll
            for (int load = 0; load < AHEAD; ++load) {
                const int neighbours[QUAD] = {four[load].x, four[load].y, four[load].z, four[load].w};
#pragma unroll
                for (int item = 0; item < QUAD; ++item) {
                    const unsigned bit = filter_bit(neighbours[item]);
                    const int slot = (int)(quad + load * WARP) * QUAD + item;
                    if ((filter[bit / 32] >> bit % 32 & 1) && slot < count)
                        search(neighbours[item], slot, first_edge, last_edge);
                }
            }
        }
    };
    const auto one = [&](int64 row, int64 quad) {
        const int vertex = side.row_vertex[row], first_edge = side.row_edge[row], last_edge = side.row_edge[row + 1];
        const int count = side.row_lengths[vertex];
        const int4 four = entries[side.row_starts[vertex] / QUAD + quad];
        const int neighbours[QUAD] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int item = 0; item < QUAD; ++item) {
            const int slot = (int)quad * QUAD + item;
            if (slot < count) search(neighbours[item], slot, first_edge, last_edge);
        }
    };
    balance_rows(side.row_work[rows], rows, [&](int64 row) { return side.row_work[row]; }, whole, one, block);
}

// The weight of an edge after the insertions among its operations keys[first … last), in the order in which they were sent.
// present: its weight before them, 0 if it is absent.
__device__ __forceinline__ float summed_weight(
    const int64* keys, const float* weights, int first, int last, float present, int adds) {
    if (!adds) return weights[last - 1];
    double total = present;
    for (int at = first; at < last; ++at)
        if ((keys[at] & 1) == INSERT) total += weights[at];
    return (float)total;
}

__device__ __forceinline__ void decide(const Side& side, int64 tile, const Rules& rules) {
    const int64 edges = side.counters[Counter::EDGES];
    const int64 first = first_item(tile, ITEMS);
    unsigned removed = 0, added = 0;  // one bit an item
    uint64 changes[1][ITEMS];
    int64 inserted = 0, deleted = 0, reweighted = 0, exceeded = 0;
    float before[ITEMS], after[ITEMS];  // weights
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 edge = first + item * WARP;
        changes[0][item] = 0;
        if (edge >= edges) continue;
        const int vertex = side.row_vertex[side.edge_row[edge]], neighbour = side.edge_neighbour[edge];
        const bool is_loop = vertex == neighbour;
        if (is_loop && rules.fixed_loops) continue;
        const bool deletes = (side.keys[side.edge_operation[edge]] & 1) == DELETE;
        const bool inserts = (side.keys[side.edge_operation[edge + 1] - 1] & 1) == INSERT;
        const bool present = is_loop ? vertex < rules.vertices && rules.loop[vertex] : side.edge_slot[edge] >= 0;
        const bool counted = rules.directed || vertex <= neighbour;
        deleted += counted && present && deletes;
        inserted += counted && inserts && (deletes || !present);
        bool removes = present && deletes && !inserts, places = inserts && !present;
        if constexpr (WEIGHTED) {
            before[item] = 0.0f;
            const int64 slot = present && !is_loop ? side.row_starts[vertex] + side.edge_slot[edge] : 0;
            if (present) before[item] = is_loop ? rules.loop[vertex] : side.slot_weights[slot];
            after[item] = deletes ? 0.0f : before[item];
            const int last = side.edge_operation[edge + 1];
            if (inserts) {
                after[item] = summed_weight(side.keys, side.weights, side.edge_operation[edge], last, after[item], rules.adds);
                if (isinf(after[item]) && exceeded == 0) exceeded = LAST_PLACE - last;
                reweighted += counted && present && !deletes && after[item] != before[item];
            }
            removes = present && after[item] != before[item];
            places = after[item] > 0.0f && after[item] != before[item];
        }
        removed |= (unsigned)removes << item;
        added |= (unsigned)places << item;
        changes[0][item] = (uint64)removes | (uint64)places << HALF;
    }
    exclusive_sums(side.scans[2], tile, changes);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 edge = first + item * WARP;
        if (edge >= edges) continue;
        const int row = side.edge_row[edge];
        int removals = (int)(changes[0][item] & LOW), additions = (int)(changes[0][item] >> HALF);
        if (side.row_edge[row] == edge) {
            side.row_removed[row] = removals;
            side.row_added[row] = additions;
        }
        if ((removed | added) >> item & 1) {
            const int removes = removed >> item & 1, places = added >> item & 1;
            const int64 vertex = side.row_vertex[row], neighbour = side.edge_neighbour[edge];
            if (vertex == neighbour) {
                side.row_loop[row] = removes && places ? LOOP_REWEIGHTED : places ? 1 : -1;
            }
            if (removes) {
                side.removed_row[removals] = row;
                side.removed_neighbour[removals] = (int)neighbour;
                side.removed_slot[removals] = side.edge_slot[edge];
                if constexpr (WEIGHTED) side.removed_weights[removals] = before[item];
                removals += 1;
            }
            if (places) {
                side.added_row[additions] = row;
                side.added_neighbour[additions] = (int)neighbour;
                if constexpr (WEIGHTED) side.added_weights[additions] = after[item];
                additions += 1;
            }
        }
        if (edge + 1 == edges) {
            side.row_removed[row + 1] = removals;
            side.row_added[row + 1] = additions;
            side.counters[Counter::REMOVED] = removals;
            side.counters[Counter::ADDED] = additions;
        }
    }
    count(side.counters + Counter::INSERTED, inserted);
    count(side.counters + Counter::DELETED, deleted);
    if constexpr (WEIGHTED) {
        count(side.counters + Counter::REWEIGHTED, reweighted);
        count_largest(side.counters + Counter::EXCEEDED, exceeded);
    }
}

// Whether a row is far from the lengths of its degree bin.
__device__ __forceinline__ bool is_misbinned(int bin, int64 length) {
    return (bin < BINS - 1 && length > MISBINNED_FACTOR * limit_of(bin)) ||
           (bin > 0 && length <= limit_of(bin - 1) / MISBINNED_FACTOR);
}

__device__ __forceinline__ bool loses_loop(signed char loop) { return loop < 0 || (WEIGHTED && loop == LOOP_REWEIGHTED); }

// What one row loses and gains, its loop excluded.
struct Row {
    int vertex, removed, added;
    signed char loop;
};

__device__ __forceinline__ Row row_of(const Side& side, int row) {
    const signed char loop = side.row_loop[row];
    return {side.row_vertex[row], side.row_removed[row + 1] - side.row_removed[row] - loses_loop(loop),
            side.row_added[row + 1] - side.row_added[row] - (loop > 0), loop};
}

// For a row that moves: quads to copy and, in the second half, quads behind `end`.
__device__ __forceinline__ uint64 move_of(int64 before, int64 after) {
    return (uint64)quads_of(before) + ((uint64)quads_of(roomy_slots(after)) << HALF);
}

__device__ __forceinline__ void plan_rows(const Side& side, int64 tile, int64 vertices) {
    const int64 rows = side.counters[Counter::ROWS];
    const int64 first = first_item(tile, ITEMS);
    unsigned changed = 0, moves = 0;  // one bit an item
    int old_length[ITEMS], after[ITEMS];
    uint64 sums[2][ITEMS];
    int64 most = 0, growth = 0, emptied = 0, longest = 0, misbinned = 0, overflowed = 0;
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        old_length[item] = after[item] = 0;
        sums[0][item] = sums[1][item] = 0;
        if (first + item * WARP >= rows) continue;
        const Row row = row_of(side, (int)(first + item * WARP));
        const bool known = row.vertex < vertices;
        const int before = known ? side.row_lengths[row.vertex] : 0;
        old_length[item] = before;
        after[item] = before + row.added - row.removed;
        const bool move = after[item] > (known ? side.capacities[row.vertex] : 0);
        const bool change = row.added || row.removed || row.loop;
        moves |= (unsigned)move << item;
        changed |= (unsigned)change << item;
        sums[0][item] = change;
        sums[1][item] = 1 + (move ? move_of(before, after[item]) : 0);
        if (row.added > row.removed) most += roomy_slots(after[item]);
        else emptied += row.removed - row.added;
        growth += (quads_of(after[item]) - quads_of(before)) * QUAD;
        longest = after[item] > longest ? after[item] : longest;
        const int bin = known ? side.degree_bins[row.vertex] : 0;
        misbinned += (int)is_misbinned(bin, after[item]) - (int)is_misbinned(bin, before);
        overflowed += bin < BINS - 1 && after[item] > OVERFLOW_FACTOR * limit_of(bin);
    }
    uint64* const scans[2] = {side.scans[3], side.scans[4]};
    exclusive_sums(scans, tile, sums);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 row = first + item * WARP;
        if (row >= rows) continue;
        uint64 changes = sums[0][item], work = sums[1][item];
        const bool move = moves >> item & 1;
        side.new_length[row] = after[item];
        side.new_start[row] = move ? (int64)(work >> HALF) * QUAD : -1;
        side.move_work[row] = (int64)(work & LOW);
        if (changed >> item & 1) side.changed_row[changes++] = (int)row;
        if (row + 1 == rows) {
            work += 1 + (move ? move_of(old_length[item], after[item]) : 0);
            side.move_work[rows] = (int64)(work & LOW);
            side.counters[Counter::CHANGED] = (int64)changes;
            side.counters[Counter::NEEDED] = (int64)(work >> HALF) * QUAD;
        }
    }
    count(side.counters + Counter::MOST, most);
    count(side.counters + Counter::GROWTH, growth);
    count(side.counters + Counter::EMPTIED, emptied);
    count(side.counters + Counter::MISBINNED, misbinned);
    count(side.counters + Counter::OVERFLOWED, overflowed);
    count_largest(side.counters + Counter::LONGEST, longest);
}

// How many more vertices have an edge other than a loop, among those whose out-list the batch names, or (not OUTGOING) whose
// in-list alone. No row is written yet.
template <bool OUTGOING>
__device__ __forceinline__ int64 newly_connected(const Side& side, const Side& other, int64 vertices) {
    int64 more = 0;
    const int64 rows = side.counters[Counter::ROWS], others = other.counters[Counter::ROWS];
    for (int64 at = thread_of_grid(); at < rows; at += threads_of_grid()) {
        const Row row = row_of(side, (int)at);
        const int64 found = first_from<int64>(other.row_vertex, 0, others, row.vertex);
        const bool both = found < others && other.row_vertex[found] == row.vertex;
        if (both && !OUTGOING) continue;
        const bool known = row.vertex < vertices;
        const int before = known ? side.row_lengths[row.vertex] : 0, before_other = known ? other.row_lengths[row.vertex] : 0;
        int after = before + row.added - row.removed, after_other = before_other;
        if (both) {
            const Row change = row_of(other, (int)found);
            after_other += change.added - change.removed;
        }
        more += (int)(after + after_other > 0) - (int)(before + before_other > 0);
    }
    return more;
}

// The counters, for the host.
__device__ __forceinline__ void tell_counters(const Side& out, const Side& in, int64* found) {
    if (blockIdx.x > 0 || threadIdx.x >= 2 * COUNTERS) return;
    const int at = threadIdx.x;
    found[at] = at < COUNTERS ? out.counters[at] : in.counters[at - COUNTERS];
}

// zeroed: int64[zeros], counters and scans.
__device__ __forceinline__ void clear(int64* zeroed, int64 zeros) {
    for (int64 at = thread_of_grid(); at < zeros; at += threads_of_grid()) zeroed[at] = 0;
}

// From sorted keys, when counters and scans have been cleared.
__device__ __forceinline__ void plan(
    const cooperative_groups::grid_group& grid, const Side& out, const Side& in, const Rules& rules) {
    __shared__ unsigned filters[WARPS][FILTER_WORDS];
    grid.sync();
    both(out, in, [&](const Side& side, int64 block) {
        over_tiles(side.scans[0], side.operations, block, [&](int64 tile) { find_rows(side, tile, rules.vertices); });
    });
    grid.sync();
    both(out, in, [&](const Side& side, int64 block) { locate(side, filters[threadIdx.x / WARP], block); });
    grid.sync();
    both(out, in, [&](const Side& side, int64 block) {
        over_tiles(side.scans[2], side.counters[Counter::EDGES], block, [&](int64 tile) { decide(side, tile, rules); });
    });
    grid.sync();
    const int64 more = newly_connected<true>(out, in, rules.vertices) + newly_connected<false>(in, out, rules.vertices);
    count(out.counters + Counter::CONNECTED, more);
    both(out, in, [&](const Side& side, int64 block) {
        const int64 rows = side.counters[Counter::ROWS];
        over_tiles(side.scans[3], rows, block, [&](int64 tile) { plan_rows(side, tile, rules.vertices); });
    });
    grid.sync();
}

__global__ void __launch_bounds__(BLOCK, 2) plan_batch(
    Direction outgoing, Direction incoming, Rules rules, int64* zeroed, int64 zeros, Answer answer) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const Side out(outgoing), in(incoming);
    clear(zeroed, zeros);
    plan(grid, out, in, rules);
    tell_counters(out, in, answer.told);
}

// Of a small batch as it was sent, whose keys are sorted first. It removes no vertices.
__global__ void __launch_bounds__(BLOCK, 2) plan_sent(
    Direction outgoing, Direction incoming, Rules rules, Unsorted batch, int64* zeroed, int64 zeros, Answer answer) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const Side out(outgoing), in(incoming);
    clear(zeroed, zeros);
    list_keys(batch, out);
    grid.sync();
    sort_keys(grid, batch, out, in);
    plan(grid, out, in, rules);
    tell_counters(out, in, answer.told);
}

// plan_rows alone, again, for directions that were packed since.
__global__ void __launch_bounds__(BLOCK, 2) plan_again(
    Direction outgoing, Direction incoming, int out_again, int in_again, int64 vertices, Answer answer) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const Side out(outgoing), in(incoming);
    both(out, in, [&](const Side& side, int64 block) {
        if (&side == &out ? !out_again : !in_again) return;
        over_tiles(side.scans[3], side.counters[Counter::ROWS], block, [&](int64 tile) { plan_rows(side, tile, vertices); });
    });
    grid.sync();
    tell_counters(out, in, answer.told);
}

// ---- apply ----

__device__ __forceinline__ void move_rows(const Side& side, int64 block) {
    const int64 rows = side.counters[Counter::ROWS];
    if (rows == 0) return;
    int4* const entries = (int4*)side.column_indices;
    float4* const weights = (float4*)side.slot_weights;
    const auto begins = [&](int64 row) { return side.move_work[row]; };
    const auto one = [&](int64 row, int64 quad) {
        const int64 to = (side.end + side.new_start[row]) / QUAD + quad;
        const int64 from = side.row_starts[side.row_vertex[row]] / QUAD + quad;
        entries[to] = entries[from];
        if constexpr (WEIGHTED) weights[to] = weights[from];
    };
    const auto whole = [&](int64 row, int64 first, int64 last) {
#pragma unroll 4
        for (int64 quad = first + threadIdx.x % WARP; quad < last; quad += WARP) one(row, quad);
    };
    // a row that does not move has no units but its own
    balance_rows(side.move_work[rows], rows, begins, whole, one, block);
}

template <bool OUTGOING>
__device__ __forceinline__ void place_changes(const Side& side, int64 block, Loop* loop, const EdgeChanges& to) {
    const int64 removals = side.counters[Counter::REMOVED], additions = side.counters[Counter::ADDED];
    for (int64 item = block * BLOCK + threadIdx.x; item < removals + additions; item += threads_of_grid()) {
        const bool adds = item >= removals;
        const int64 at = adds ? item - removals : item;
        const int row_index = adds ? side.added_row[at] : side.removed_row[at];
        const int neighbour = adds ? side.added_neighbour[at] : side.removed_neighbour[at];
        const Row row = row_of(side, row_index);
        if constexpr (OUTGOING) {
            (adds ? to.added_sources : to.removed_sources)[at] = row.vertex;
            (adds ? to.added_targets : to.removed_targets)[at] = neighbour;
            if constexpr (WEIGHTED)
                (adds ? to.added_weights : to.removed_weights)[at] = (adds ? side.added_weights : side.removed_weights)[at];
            if (neighbour == row.vertex) {
                // a loop with another weight is removed and added
                if constexpr (!WEIGHTED) loop[row.vertex] = adds;
                else if (adds || row.loop < 0) loop[row.vertex] = adds ? side.added_weights[at] : 0.0f;
                continue;
            }
        }
        const int64 moved = side.new_start[row_index];
        const int64 begin = moved >= 0 ? side.end + moved : side.row_starts[row.vertex];
        int* slots = side.column_indices + begin;
        if (adds) {
            const int rank = (int)at - side.row_added[row_index] - (row.loop > 0 && neighbour > row.vertex);
            int64 slot = side.row_lengths[row.vertex] + (int64)rank - row.removed;
            if (rank < row.removed) {
                int reused = side.row_removed[row_index] + rank;
                reused += loses_loop(row.loop) && side.removed_neighbour[reused] >= row.vertex;
                slot = side.removed_slot[reused];
            }
            slots[slot] = neighbour;
            if constexpr (WEIGHTED) side.slot_weights[begin + slot] = side.added_weights[at];
        } else {
            const int rank = (int)at - side.row_removed[row_index] - (loses_loop(row.loop) && neighbour > row.vertex);
            if (rank >= row.added) slots[side.removed_slot[at]] = -1;
        }
    }
}

// The places of holes and their fillers are written to arrays that are no longer needed: work, and the slots of edges.
__device__ __forceinline__ void find_holes(const Side& side, int64 tile) {
    const int64 removals = side.counters[Counter::REMOVED];
    const int64 first = first_item(tile, ITEMS);
    int64 hole_at[ITEMS];
    int filled_by[ITEMS];
    [[maybe_unused]] float filler_weight[ITEMS];
    uint64 pairs[1][ITEMS];
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        hole_at[item] = filled_by[item] = -1;
        pairs[0][item] = 0;
        const int64 at = first + item * WARP;
        if (at >= removals) continue;
        const int row_index = side.removed_row[at], neighbour = side.removed_neighbour[at];
        const Row row = row_of(side, row_index);
        const int rank = (int)at - side.row_removed[row_index] - (loses_loop(row.loop) && neighbour > row.vertex);
        if (neighbour == row.vertex || rank < row.added) continue;
        const int64 begin = side.row_starts[row.vertex], end = side.new_length[row_index];
        if (side.removed_slot[at] < end) hole_at[item] = begin + side.removed_slot[at];
        filled_by[item] = side.column_indices[begin + end + rank - row.added];
        if constexpr (WEIGHTED) filler_weight[item] = side.slot_weights[begin + end + rank - row.added];
        pairs[0][item] = (uint64)(hole_at[item] >= 0) | (uint64)(filled_by[item] >= 0) << HALF;
    }
    exclusive_sums(side.scans[5], tile, pairs);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        uint64 holes = pairs[0][item] & LOW;
        if (hole_at[item] >= 0) side.row_work[holes++] = hole_at[item];
        if (filled_by[item] >= 0) side.edge_slot[pairs[0][item] >> HALF] = filled_by[item];
        if constexpr (WEIGHTED)
            if (filled_by[item] >= 0) side.filler_weights[pairs[0][item] >> HALF] = filler_weight[item];
        if (first + item * WARP + 1 == removals) side.counters[Counter::HOLES] = (int64)holes;
    }
}

__device__ __forceinline__ void fill_holes(const Side& side, int64 block) {
    const int64 holes = side.counters[Counter::HOLES];
    for (int64 at = block * BLOCK + threadIdx.x; at < holes; at += threads_of_grid()) {
        side.column_indices[side.row_work[at]] = side.edge_slot[at];
        if constexpr (WEIGHTED) side.slot_weights[side.row_work[at]] = side.filler_weights[at];
    }
}

template <bool OUTGOING>
__device__ __forceinline__ void finish_rows(
    const Side& side, int64 block, const Loop* loop, Degree* degree, const EdgeChanges& to) {
    const int64 changed = side.counters[Counter::CHANGED];
    for (int64 at = block * BLOCK + threadIdx.x; at < changed; at += threads_of_grid()) {
        const int row = side.changed_row[at], vertex = side.row_vertex[row], after = side.new_length[row];
        if constexpr (OUTGOING) {
            to.sources[at] = vertex;
            if constexpr (WEIGHTED) {  // strengths are summed when all rows are there
                to.old_degree[at] = degree[vertex];
            } else {
                to.old_degree[at] = side.row_lengths[vertex] + loop[vertex] - side.row_loop[row];
                degree[vertex] = after + loop[vertex];
            }
        }
        side.row_lengths[vertex] = after;
        if (side.new_start[row] >= 0) {
            side.row_starts[vertex] = side.end + side.new_start[row];
            side.capacities[vertex] = (int)roomy_slots(after);
        }
    }
}

__device__ __forceinline__ Lists lists_of(const Side& side) {
    return {side.row_starts, side.row_lengths, side.column_indices, side.slot_weights};
}

__device__ __forceinline__ void apply(
    const cooperative_groups::grid_group& grid, const Side& out, const Side& in, Loop* loop, Degree* degree,
    const EdgeChanges& changes) {
    const int64 backwards = gridDim.x - 1 - blockIdx.x;
    if (out.counters[Counter::NEEDED] > 0 || in.counters[Counter::NEEDED] > 0) {
        both(out, in, [&](const Side& side, int64 block) { move_rows(side, block); });
        grid.sync();
    }
    place_changes<true>(out, blockIdx.x, loop, changes);
    place_changes<false>(in, backwards, loop, changes);
    grid.sync();
    if (out.counters[Counter::EMPTIED] > 0 || in.counters[Counter::EMPTIED] > 0) {
        both(out, in, [&](const Side& side, int64 block) {
            over_tiles(side.scans[5], side.counters[Counter::REMOVED], block, [&](int64 tile) { find_holes(side, tile); });
        });
        grid.sync();
        both(out, in, [&](const Side& side, int64 block) { fill_holes(side, block); });
    }
    finish_rows<true>(out, blockIdx.x, loop, degree, changes);
    finish_rows<false>(in, backwards, loop, degree, changes);
#if WEIGHTED
    grid.sync();
    sum_strengths(changes.sources, out.counters[Counter::CHANGED], lists_of(out), loop, degree);
#endif
}

__global__ void __launch_bounds__(BLOCK, 2) apply_batch(
    Direction outgoing, Direction incoming, Loop* loop, Degree* degree, EdgeChanges changes) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    apply(grid, Side(outgoing), Side(incoming), loop, degree, changes);
}

// ---- both, and the residual ----

// How far the lists of both directions may grow: liverank_gpu.operations.graph.Room.
struct Room {
    int64 slots[2], slack[2];
};

__device__ __forceinline__ bool has_room(const Side& side, int64 slots, int64 slack) {
    const int64 needed = side.counters[Counter::NEEDED];
    return needed <= slots && needed - 2 * side.counters[Counter::GROWTH] <= slack;
}

// liverank_gpu.operations.graph.ChangeBlock
__device__ __forceinline__ EdgeChanges changes_in(int* block, int64 room) {
    int* const ints = block + sizeof(Degree) / sizeof(int) * room;
    float* const floats = WEIGHTED ? reinterpret_cast<float*>(ints + 5 * room) : nullptr;
    return {ints, reinterpret_cast<Degree*>(block), ints + room, ints + 2 * room, ints + 3 * room, ints + 4 * room,
            floats, WEIGHTED ? floats + room : nullptr};
}

// Plans a batch and, if there is room and no sum of weights is too large, applies it at once; if there are `values`, the
// residual follows. changed: a block with room for so many each. The host gets the counters of both directions, whether the
// batch was applied, the tally, and what `list_removals` found.
__global__ void __launch_bounds__(BLOCK, 2) update_batch(
    Direction outgoing, Direction incoming, Rules rules, Unsorted batch, int64* zeroed, int64 zeros, Room room, Loop* loop,
    Degree* degree, int* changed, int64 most, const double* __restrict__ values, double damping, int64* memory, int64 limit,
    Candidates to, int64 listed, Answer answer) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    Side out(outgoing), in(incoming);
    bool applies = false;
    clear(zeroed, zeros);
    list_keys(batch, out);
    if (batch.removals > 0) list_removals(grid, batch, out, in, rules, reinterpret_cast<uint64*>(answer.counts) + Tally::SIZE);
    grid.sync();
    const int64 operations = batch.count + answer.counts[Tally::SIZE];
    if (operations <= batch.room) {
        out.operations = in.operations = operations;
        sort_keys(grid, batch, out, in);
        plan(grid, out, in, rules);
        applies = has_room(out, room.slots[0], room.slack[0]) && has_room(in, room.slots[1], room.slack[1]);
        if constexpr (WEIGHTED) applies = applies && out.counters[Counter::EXCEEDED] == 0;
    }
    const int64 sources = applies ? out.counters[Counter::CHANGED] : 0;
    if (applies && (sources > 0 || in.counters[Counter::CHANGED] > 0)) {
        const EdgeChanges changes = changes_in(changed, most);
        apply(grid, out, in, loop, degree, changes);
        if (values != nullptr && sources > 0) {
            grid.sync();
            const int64 removed = out.counters[Counter::REMOVED], added = out.counters[Counter::ADDED];
            const GraphLists graph = {lists_of(out), loop, degree};
            perturb_all(
                grid, changes, sources, removed, added, graph, values, damping, memory, limit, to, listed, answer);
        }
    }
    grid.sync();
    tell_counters(out, in, answer.told);
    if (blockIdx.x > 0) return;
    int64* const told = answer.told + 2 * COUNTERS;
    if (threadIdx.x == 0) told[0] = applies;
    if (threadIdx.x < Tally::SIZE + 2) {
        told[1 + threadIdx.x] = answer.counts[threadIdx.x];
        answer.counts[threadIdx.x] = 0;
    }
}
