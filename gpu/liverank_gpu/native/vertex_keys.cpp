// The hash table of liverank_service.vertex_keys, which documents its arrays. Its hash is SipHash-1-3: with a random
// seed, clients cannot choose keys that collide (Aumasson and Bernstein, SipHash: a fast short-input PRF, 2012).
#include <algorithm>
#include <cstring>
#include <tuple>

#include "bind.h"
#include "pool.h"

namespace {

constexpr uint64 ID_MASK = 0xFFFFFFFF;

// Distance in keys between the steps of prefetching.
constexpr int64 STRIDE = 8;

// Keys whose hashes are computed before they are looked up, and those of a range of a thread.
constexpr int64 BLOCK = 512, GRAIN = 1 << 13;

uint64 rotated(uint64 word, int bits) { return word << bits | word >> (64 - bits); }

uint64 word_at(const uint8* data) {
    uint64 word;
    std::memcpy(&word, data, sizeof word);
    return word;
}

struct SipState {
    uint64 v0, v1, v2, v3;

    explicit SipState(const Span<const uint64>& seed)
        : v0(seed[0] ^ 0x736F6D6570736575), v1(seed[1] ^ 0x646F72616E646F6D), v2(seed[0] ^ 0x6C7967656E657261),
          v3(seed[1] ^ 0x7465646279746573) {}

    void round() {
        v0 += v1;
        v2 += v3;
        v1 = rotated(v1, 13) ^ v0;
        v3 = rotated(v3, 16) ^ v2;
        v0 = rotated(v0, 32);
        v2 += v1;
        v0 += v3;
        v1 = rotated(v1, 17) ^ v2;
        v3 = rotated(v3, 21) ^ v0;
        v2 = rotated(v2, 32);
    }

    void add(uint64 word) {
        v3 ^= word;
        round();
        v0 ^= word;
    }
};

uint64 sip_hash(const uint8* data, uint64 size, const Span<const uint64>& seed) {
    SipState state(seed);
    const uint8* end = data + size;
    for (; data + 8 <= end; data += 8) state.add(word_at(data));
    uint64 word = size << 56;
    for (int shift = 0; data < end; ++data, shift += 8) word |= static_cast<uint64>(*data) << shift;
    state.add(word);
    state.v2 ^= 0xFF;
    for (int round = 0; round < 3; ++round) state.round();
    return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

// Bytes that lie one after the other. WIDTH is 0 if `offsets` say where each begins.
struct Key {
    const uint8* data;
    uint64 size;
};

template <int64 WIDTH, class Offset>
Key key_at(const Span<Offset>& offsets, const uint8* bytes, int64 index) {
    if (WIDTH) return {bytes + index * WIDTH, WIDTH};
    return {bytes + offsets[index], static_cast<uint64>(offsets[index + 1] - offsets[index])};
}

// Calls function.operator()<WIDTH>(): integer keys have 8 bytes.
template <class Function>
auto with_width(int64 width, const Function& function) {
    return width ? function.template operator()<8>() : function.template operator()<0>();
}

// Keys that a call gives: an Arrow array's.
struct Given {
    using fields = Fields<Span<const int>, Span<const uint8>>;

    Span<const int> offsets;
    Span<const uint8> bytes;

    template <int64 WIDTH>
    Key at(int64 index) const { return key_at<WIDTH>(offsets, bytes.data, index); }
};

// Of a key, in 32 bits; only tests have another mask.
struct Hash {
    using fields = Fields<Span<const uint64>, uint64>;

    Span<const uint64> seed;
    uint64 mask;

    uint64 operator()(const Key& key) const { return sip_hash(key.data, key.size, seed) >> 32 & mask; }
};

// What a reader of the table needs, published together.
template <class Slot, class Offset, class Byte>
struct Table {
    using fields = Fields<Span<Slot>, Span<Offset>, Span<Byte>, int64>;

    Span<Slot> slots;
    Span<Offset> offsets;
    Span<Byte> arena;
    int64 count;

    uint64 mask() const { return slots.size - 1; }
    uint64 slot_at(uint64 slot) const { return __atomic_load_n(&slots[slot], __ATOMIC_RELAXED); }

    // The id of the key or -1, and the slot at which the search ended.
    template <int64 WIDTH>
    std::tuple<int64, uint64> probe(uint64 hashed, const Key& key) const {
        for (uint64 slot = hashed & mask();; slot = (slot + 1) & mask()) {
            const uint64 entry = slot_at(slot);
            if (entry == 0) return {-1, slot};
            if (entry >> 32 != hashed) continue;
            const int64 candidate = static_cast<int64>(entry & ID_MASK) - 1;
            if (candidate >= count) continue;
            const Key found = key_at<WIDTH>(offsets, arena.data, candidate);
            if (found.size == key.size && std::memcmp(found.data, key.data, WIDTH ? WIDTH : key.size) == 0) return {candidate, slot};
        }
    }

    // Prefetches memory for the keys after i: slot, then offset, then bytes. In a large table each of the three is a cache miss
    // that depends on the one before; this overlaps the misses of several keys.
    template <int64 WIDTH>
    void fetch_ahead(const uint64* hashes, int64 size, int64 i) const {
        if (i + 3 * STRIDE < size) __builtin_prefetch(&slots[hashes[i + 3 * STRIDE] & mask()]);
        if (i + 2 * STRIDE < size)
            if (const uint64 entry = slot_at(hashes[i + 2 * STRIDE] & mask())) {
                const uint64 id = (entry & ID_MASK) - 1;
                if (WIDTH) __builtin_prefetch(arena.data + id * WIDTH);
                else __builtin_prefetch(offsets.data + id);
            }
        if (!WIDTH && i + STRIDE < size)
            if (const uint64 entry = slot_at(hashes[i + STRIDE] & mask())) {
                const uint64 id = (entry & ID_MASK) - 1;
                // the id of a key that the writer is adding may have no offset yet
                if (id <= static_cast<uint64>(count)) __builtin_prefetch(arena.data + offsets[id]);
            }
    }

    // Whether there is room for the key as the next one.
    template <int64 WIDTH>
    bool has_room(const Key& key) const {
        if (3 * (count + 1) > 2 * slots.size) return false;
        if (WIDTH) return (count + 1) * WIDTH <= arena.size;
        return count + 2 <= offsets.size && offsets[count] + static_cast<int64>(key.size) <= arena.size;
    }
};

using Read = Table<const uint64, const int64, const uint8>;
using Written = Table<uint64, int64, uint8>;

// Writes the id of each key to `ids`, or -1.
void find_keys(Read table, int64 width, Given keys, Hash hash, Span<int64> ids) {
    with_width(width, [&]<int64 WIDTH>() {
        pool::parallel(ids.size, GRAIN, [&](int64 first, int64 last) {
            uint64 hashes[BLOCK];
            for (; first < last; first += BLOCK) {
                const int64 size = std::min(BLOCK, last - first);
                for (int64 i = 0; i < size; ++i) hashes[i] = hash(keys.at<WIDTH>(first + i));
                for (int64 i = 0; i < size; ++i) {
                    table.fetch_ahead<WIDTH>(hashes, size, i);
                    ids[first + i] = std::get<0>(table.probe<WIDTH>(hashes[i], keys.at<WIDTH>(first + i)));
                }
            }
        });
    });
}
KERNEL("find_keys", find_keys);

// The id of the key in `bytes`, or -1.
int64 find_key(Read table, int64 width, Span<const uint8> bytes, Hash hash) {
    const Key key{bytes.data, static_cast<uint64>(bytes.size)};
    return with_width(width, [&]<int64 WIDTH>() { return std::get<0>(table.probe<WIDTH>(hash(key), key)); });
}
QUICK_KERNEL("find_key", find_key);

// Appends the keys whose ids are -1, from row `first` on: of each row the one of the first column, then that of the second, which
// may be empty. Returns the number of keys, and the row before which there was no more room.
std::tuple<int64, int64> add_keys(
    Written table, int64 width, Given keys, Given others, Hash hash, int64 first, Span<int64> ids, Span<int64> other_ids) {
    return with_width(width, [&]<int64 WIDTH>() -> std::tuple<int64, int64> {
        Key unknown[2 * BLOCK];
        int64 places[2 * BLOCK];  // 2 · row + column
        uint64 hashes[2 * BLOCK];
        for (; first < ids.size; first += BLOCK) {
            int64 size = 0;
            for (int64 row = first; row < std::min(first + BLOCK, ids.size); ++row) {
                if (ids[row] < 0) unknown[size] = keys.at<WIDTH>(row), places[size++] = 2 * row;
                if (other_ids.size && other_ids[row] < 0) unknown[size] = others.at<WIDTH>(row), places[size++] = 2 * row + 1;
            }
            for (int64 i = 0; i < size; ++i) hashes[i] = hash(unknown[i]);
            for (int64 i = 0; i < size; ++i) {
                table.fetch_ahead<WIDTH>(hashes, size, i);
                const Key key = unknown[i];
                auto [found, slot] = table.probe<WIDTH>(hashes[i], key);
                if (found < 0) {
                    if (!table.has_room<WIDTH>(key)) return {table.count, places[i] / 2};
                    found = table.count;
                    const int64 end = WIDTH ? found * WIDTH : table.offsets[found];
                    std::memcpy(table.arena.data + end, key.data, key.size);
                    if (!WIDTH) table.offsets[found + 1] = end + static_cast<int64>(key.size);
                    ++table.count;
                    // readers see the slot when the key is there: they ignore it until the count is published
                    __atomic_store_n(&table.slots[slot], hashes[i] << 32 | static_cast<uint64>(table.count), __ATOMIC_RELEASE);
                }
                (places[i] % 2 ? other_ids : ids)[places[i] / 2] = found;
            }
        }
        return {table.count, ids.size};
    });
}
KERNEL("add_keys", add_keys);

// Copies every entry of `slots` with an id below `count` to the empty table `fresh`.
void refill_keys(Span<const uint64> slots, int64 count, Span<uint64> fresh) {
    const uint64 mask = fresh.size - 1;
    for (const uint64 entry : slots) {
        if (entry == 0 || static_cast<int64>(entry & ID_MASK) > count) continue;
        uint64 slot = entry >> 32 & mask;
        while (fresh[slot] != 0) slot = (slot + 1) & mask;
        fresh[slot] = entry;
    }
}
KERNEL("refill_keys", refill_keys);

// Empties the slots of ids from `count` on, which must be the last ones added.
void clear_keys_from(Span<uint64> slots, int64 count) {
    for (uint64& slot : slots)
        if (static_cast<int64>(slot & ID_MASK) > count) __atomic_store_n(&slot, uint64{0}, __ATOMIC_RELAXED);
}
KERNEL("clear_keys_from", clear_keys_from);

// Copies keys by id, one after the other.
void gather_keys(
    Span<const int64> offsets, Span<const uint8> arena, int64 width, Span<const int64> ids, Span<const int> key_offsets,
    Span<uint8> key_bytes) {
    with_width(width, [&]<int64 WIDTH>() {
        pool::parallel(ids.size, GRAIN, [&](int64 first, int64 last) {
            for (int64 i = first; i < last; ++i) {
                const Key key = key_at<WIDTH>(offsets, arena.data, ids[i]);
                std::memcpy(key_bytes.data + (WIDTH ? i * WIDTH : key_offsets[i]), key.data, key.size);
            }
        });
    });
}
KERNEL("gather_keys", gather_keys);

}  // namespace
