// Plans and applies what resolve_update.cu found in one direction of the graph (liverank_gpu.operations.graph: plan_rows,
// apply_update).
//
//     plan_rows       new length and start of every named row, by exclusive sums; writes nothing of the graph
//     move_rows       copies the rows that outgrow their capacity behind `end`: 8 bytes an entry
//     place_changes   additions go into the slots of removed entries, then behind the end of the row; slots that stay empty are
//                     marked: about 50 bytes a change
//     find_holes      a row that shrinks by h entries has h slots behind its new end. As many of them still hold an entry as
//                     there are marked slots before the new end, row by row, so one exclusive sum over the removed entries
//                     pairs them
//     fill_holes      moves the entries
//     finish_rows     starts, lengths, capacities and degrees; the changed rows with their old degrees
//
// If WEIGHTED, a weight goes with each entry: 4 bytes more wherever an entry is read or written.
// Rows are unordered. The order in a row follows from the sorted keys alone, never from the order of threads.
// Launch: BLOCK threads a block; a block a tile for plan_rows and find_holes; a thread an item for place_changes, fill_holes
// and finish_rows; any grid for move_rows, which balances the rows over warps as `locate` does.
#include "scan.cuh"

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

__device__ __forceinline__ Row row_of(int row, const int* row_vertex, const signed char* row_loop, const int* row_removed,
                                      const int* row_added) {
    const signed char loop = row_loop[row];
    return {row_vertex[row], row_removed[row + 1] - row_removed[row] - loses_loop(loop),
            row_added[row + 1] - row_added[row] - (loop > 0), loop};
}

// For a row that moves: quads to copy and, in the second half, quads behind `end`.
__device__ __forceinline__ uint64 move_of(int64 before, int64 after) {
    return (uint64)quads_of(before) + ((uint64)quads_of(roomy_slots(after)) << HALF);
}

__global__ void __launch_bounds__(BLOCK, 2) plan_rows(
    const int* __restrict__ row_vertex, const signed char* __restrict__ row_loop, const int* __restrict__ row_removed,
    const int* __restrict__ row_added, int64 vertices, const int* __restrict__ row_lengths,
    const int* __restrict__ capacities, const uint8* __restrict__ degree_bins, uint64* scan_changed, uint64* scan_moves,
    int* __restrict__ new_length, int64* __restrict__ new_start, int64* __restrict__ move_work,
    int* __restrict__ changed_row, int64* __restrict__ counters) {
    const int64 rows = counters[Counter::ROWS];
    const int64 tile = next_tile(scan_changed);
    if (tile * TILE >= rows) return;
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
        const Row row = row_of((int)(first + item * WARP), row_vertex, row_loop, row_removed, row_added);
        const bool known = row.vertex < vertices;
        const int before = known ? row_lengths[row.vertex] : 0;
        old_length[item] = before;
        after[item] = before + row.added - row.removed;
        const bool move = after[item] > (known ? capacities[row.vertex] : 0);
        const bool change = row.added || row.removed || row.loop;
        moves |= (unsigned)move << item;
        changed |= (unsigned)change << item;
        sums[0][item] = change;
        sums[1][item] = 1 + (move ? move_of(before, after[item]) : 0);
        if (row.added > row.removed) most += roomy_slots(after[item]);
        else emptied += row.removed - row.added;
        growth += (quads_of(after[item]) - quads_of(before)) * QUAD;
        longest = after[item] > longest ? after[item] : longest;
        const int bin = known ? degree_bins[row.vertex] : 0;
        misbinned += (int)is_misbinned(bin, after[item]) - (int)is_misbinned(bin, before);
        overflowed += bin < BINS - 1 && after[item] > OVERFLOW_FACTOR * limit_of(bin);
    }
    uint64* const scans[2] = {scan_changed, scan_moves};
    exclusive_sums(scans, tile, sums);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 row = first + item * WARP;
        if (row >= rows) continue;
        uint64 changes = sums[0][item], work = sums[1][item];
        const bool move = moves >> item & 1;
        new_length[row] = after[item];
        new_start[row] = move ? (int64)(work >> HALF) * QUAD : -1;
        move_work[row] = (int64)(work & LOW);
        if (changed >> item & 1) changed_row[changes++] = (int)row;
        if (row + 1 == rows) {
            work += 1 + (move ? move_of(old_length[item], after[item]) : 0);
            move_work[rows] = (int64)(work & LOW);
            counters[Counter::CHANGED] = (int64)changes;
            counters[Counter::NEEDED] = (int64)(work >> HALF) * QUAD;
        }
    }
    count(counters + Counter::MOST, most);
    count(counters + Counter::GROWTH, growth);
    count(counters + Counter::EMPTIED, emptied);
    count(counters + Counter::MISBINNED, misbinned);
    count(counters + Counter::OVERFLOWED, overflowed);
    count_largest(counters + Counter::LONGEST, longest);
}

__global__ void __launch_bounds__(BLOCK) move_rows(
    const int64* __restrict__ counters, const int* __restrict__ row_vertex, const int64* __restrict__ new_start,
    const int64* __restrict__ move_work, const int64* __restrict__ row_starts, int64 end, int4* column_indices,
    float4* weights) {
    const int64 rows = counters[Counter::ROWS];
    const auto begins = [&](int64 row) { return move_work[row]; };
    const auto one = [&](int64 row, int64 quad) {
        const int64 to = (end + new_start[row]) / QUAD + quad, from = row_starts[row_vertex[row]] / QUAD + quad;
        column_indices[to] = column_indices[from];
        if constexpr (WEIGHTED) weights[to] = weights[from];
    };
    const auto whole = [&](int64 row, int64 first, int64 last) {
#pragma unroll 4
        for (int64 quad = first + threadIdx.x % WARP; quad < last; quad += WARP) one(row, quad);
    };
    // a row that does not move has no units but its own
    balance_rows(move_work[rows], rows, begins, whole, one);
}

INSTANCES(place_changes<false>, place_changes<true>)
template <bool OUTGOING>
__global__ void __launch_bounds__(BLOCK) place_changes(
    const int* __restrict__ row_vertex, const signed char* __restrict__ row_loop, const int* __restrict__ row_removed,
    const int* __restrict__ row_added, const int* __restrict__ removed_row, const int* __restrict__ removed_neighbour,
    const int* __restrict__ removed_slot, const int* __restrict__ added_row, const int* __restrict__ added_neighbour,
    const int64* __restrict__ new_start, const int64* __restrict__ row_starts, const int* __restrict__ row_lengths,
    int* __restrict__ column_indices, float* __restrict__ weights, int64 end, int64 removals, int64 additions,
    Loop* __restrict__ loop, int* __restrict__ removed_sources, int* __restrict__ removed_targets,
    int* __restrict__ added_sources, int* __restrict__ added_targets, const float* __restrict__ before,
    const float* __restrict__ after, float* __restrict__ removed_weights, float* __restrict__ added_weights) {
    const int64 item = (int64)blockIdx.x * BLOCK + threadIdx.x;
    if (item >= removals + additions) return;
    const bool adds = item >= removals;
    const int64 at = adds ? item - removals : item;
    const int row_index = adds ? added_row[at] : removed_row[at];
    const int neighbour = adds ? added_neighbour[at] : removed_neighbour[at];
    const Row row = row_of(row_index, row_vertex, row_loop, row_removed, row_added);
    if constexpr (OUTGOING) {
        (adds ? added_sources : removed_sources)[at] = row.vertex;
        (adds ? added_targets : removed_targets)[at] = neighbour;
        if constexpr (WEIGHTED) (adds ? added_weights : removed_weights)[at] = (adds ? after : before)[at];
        if (neighbour == row.vertex) {
            // a loop with another weight is removed and added
            if constexpr (!WEIGHTED) loop[row.vertex] = adds;
            else if (adds || row.loop < 0) loop[row.vertex] = adds ? after[at] : 0.0f;
            return;
        }
    }
    const int64 moved = new_start[row_index];
    const int64 begin = moved >= 0 ? end + moved : row_starts[row.vertex];
    int* slots = column_indices + begin;
    if (adds) {
        const int rank = (int)at - row_added[row_index] - (row.loop > 0 && neighbour > row.vertex);
        int64 slot = row_lengths[row.vertex] + (int64)rank - row.removed;
        if (rank < row.removed) {
            int reused = row_removed[row_index] + rank;
            reused += loses_loop(row.loop) && removed_neighbour[reused] >= row.vertex;
            slot = removed_slot[reused];
        }
        slots[slot] = neighbour;
        if constexpr (WEIGHTED) weights[begin + slot] = after[at];
    } else {
        const int rank = (int)at - row_removed[row_index] - (loses_loop(row.loop) && neighbour > row.vertex);
        if (rank >= row.added) slots[removed_slot[at]] = -1;
    }
}

__global__ void __launch_bounds__(BLOCK, 4) find_holes(
    const int* __restrict__ row_vertex, const signed char* __restrict__ row_loop, const int* __restrict__ row_removed,
    const int* __restrict__ row_added, const int* __restrict__ removed_row, const int* __restrict__ removed_neighbour,
    const int* __restrict__ removed_slot, const int* __restrict__ new_length, const int64* __restrict__ row_starts,
    int64 removals, const int* __restrict__ column_indices, uint64* scan, int64* __restrict__ hole, int* __restrict__ filler,
    int64* __restrict__ counters, const float* __restrict__ weights, float* __restrict__ filler_weights) {
    const int64 tile = next_tile(scan);
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
        const int row_index = removed_row[at], neighbour = removed_neighbour[at];
        const Row row = row_of(row_index, row_vertex, row_loop, row_removed, row_added);
        const int rank = (int)at - row_removed[row_index] - (loses_loop(row.loop) && neighbour > row.vertex);
        if (neighbour == row.vertex || rank < row.added) continue;
        const int64 begin = row_starts[row.vertex], end = new_length[row_index];
        if (removed_slot[at] < end) hole_at[item] = begin + removed_slot[at];
        filled_by[item] = column_indices[begin + end + rank - row.added];
        if constexpr (WEIGHTED) filler_weight[item] = weights[begin + end + rank - row.added];
        pairs[0][item] = (uint64)(hole_at[item] >= 0) | (uint64)(filled_by[item] >= 0) << HALF;
    }
    exclusive_sums(scan, tile, pairs);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        uint64 holes = pairs[0][item] & LOW;
        if (hole_at[item] >= 0) hole[holes++] = hole_at[item];
        if (filled_by[item] >= 0) filler[pairs[0][item] >> HALF] = filled_by[item];
        if constexpr (WEIGHTED)
            if (filled_by[item] >= 0) filler_weights[pairs[0][item] >> HALF] = filler_weight[item];
        if (first + item * WARP + 1 == removals) counters[Counter::HOLES] = (int64)holes;
    }
}

__global__ void __launch_bounds__(BLOCK) fill_holes(
    const int64* __restrict__ counters, const int64* __restrict__ hole, const int* __restrict__ filler,
    int* __restrict__ column_indices, const float* __restrict__ filler_weights, float* __restrict__ weights) {
    const int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x;
    if (at >= counters[Counter::HOLES]) return;
    column_indices[hole[at]] = filler[at];
    if constexpr (WEIGHTED) weights[hole[at]] = filler_weights[at];
}

INSTANCES(finish_rows<false>, finish_rows<true>)
template <bool OUTGOING>
__global__ void __launch_bounds__(BLOCK) finish_rows(
    int64 changed, const int* __restrict__ changed_row, const int* __restrict__ row_vertex,
    const signed char* __restrict__ row_loop, const int* __restrict__ new_length, const int64* __restrict__ new_start,
    int64 end, int64* __restrict__ row_starts, int* __restrict__ row_lengths, int* __restrict__ capacities,
    const Loop* __restrict__ loop, Degree* __restrict__ degree, int* __restrict__ sources, Degree* __restrict__ old_degree) {
    const int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x;
    if (at >= changed) return;
    const int row = changed_row[at], vertex = row_vertex[row], after = new_length[row];
    if constexpr (OUTGOING) {
        sources[at] = vertex;
        if constexpr (WEIGHTED) {  // strengths are summed afterwards
            old_degree[at] = degree[vertex];
        } else {
            old_degree[at] = row_lengths[vertex] + loop[vertex] - row_loop[row];
            degree[vertex] = after + loop[vertex];
        }
    }
    row_lengths[vertex] = after;
    if (new_start[row] >= 0) {
        row_starts[vertex] = end + new_start[row];
        capacities[vertex] = (int)roomy_slots(after);
    }
}
