// The hash table of liverank_service.vertex_keys, which documents its arrays. Its hash is SipHash-1-3: with a random
// seed, clients cannot choose keys that collide (Aumasson and Bernstein, SipHash: a fast short-input PRF, 2012).
#include <cstring>
#include <tuple>

#include "bind.h"

namespace {

constexpr uint64 ID_MASK = 0xFFFFFFFF;

// Distance in keys between the steps of prefetching.
constexpr int64 STRIDE = 8;

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

// Key `index` of bytes that lie one after the other: `width` is 0 if `offsets` are used.
struct Key {
    const uint8* data;
    uint64 size;

    bool operator==(const Key& other) const { return size == other.size && std::memcmp(data, other.data, size) == 0; }
};

template <class Offset>
Key key_at(const Span<Offset>& offsets, const uint8* bytes, int64 width, int64 index) {
    if (width) return {bytes + index * width, static_cast<uint64>(width)};
    return {bytes + offsets[index], static_cast<uint64>(offsets[index + 1] - offsets[index])};
}

// Keys that a call gives: an Arrow array's.
struct Given {
    using fields = Fields<Span<const int>, Span<const uint8>>;

    Span<const int> offsets;
    Span<const uint8> bytes;

    Key at(int64 width, int64 index) const { return key_at(offsets, bytes.data, width, index); }
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
    std::tuple<int64, uint64> probe(int64 width, uint64 hashed, const Key& key) const {
        for (uint64 slot = hashed & mask();; slot = (slot + 1) & mask()) {
            const uint64 entry = slot_at(slot);
            if (entry == 0) return {-1, slot};
            if (entry >> 32 != hashed) continue;
            const int64 candidate = static_cast<int64>(entry & ID_MASK) - 1;
            if (candidate < count && key_at(offsets, arena.data, width, candidate) == key) return {candidate, slot};
        }
    }

    // Prefetches memory for the keys after i: slot, then offset, then bytes. In a large table each of the three is a cache miss
    // that depends on the one before; this overlaps the misses of several keys.
    void fetch_ahead(int64 width, const Span<const uint64>& hashes, int64 i) const {
        if (i + 3 * STRIDE < hashes.size) __builtin_prefetch(&slots[hashes[i + 3 * STRIDE] & mask()]);
        if (i + 2 * STRIDE < hashes.size)
            if (const uint64 entry = slot_at(hashes[i + 2 * STRIDE] & mask())) {
                const uint64 id = (entry & ID_MASK) - 1;
                if (width) __builtin_prefetch(arena.data + id * width);
                else __builtin_prefetch(offsets.data + id);
            }
        if (!width && i + STRIDE < hashes.size)
            if (const uint64 entry = slot_at(hashes[i + STRIDE] & mask())) {
                const uint64 id = (entry & ID_MASK) - 1;
                // the id of a key that the writer is adding may have no offset yet
                if (id <= static_cast<uint64>(count)) __builtin_prefetch(arena.data + offsets[id]);
            }
    }
};

using Read = Table<const uint64, const int64, const uint8>;
using Written = Table<uint64, int64, uint8>;

void hash_keys(Given keys, int64 width, int64 first, Span<const uint64> seed, uint64 mask, Span<uint64> hashes) {
    for (int64 i = 0; i < hashes.size; ++i) {
        const Key key = keys.at(width, first + i);
        hashes[i] = sip_hash(key.data, key.size, seed) >> 32 & mask;
    }
}
KERNEL("hash_keys", hash_keys);

// Writes the id of each key from `first` on to `ids`, or -1.
void find_keys(Read table, int64 width, Given keys, int64 first, Span<const uint64> hashes, Span<int64> ids) {
    for (int64 i = 0; i < hashes.size; ++i) {
        table.fetch_ahead(width, hashes, i);
        ids[first + i] = std::get<0>(table.probe(width, hashes[i], keys.at(width, first + i)));
    }
}
KERNEL("find_keys", find_keys);

// The id of the key in `bytes`, or -1.
int64 find_key(Read table, int64 width, Span<const uint8> bytes, Span<const uint64> seed, uint64 mask) {
    const Key key{bytes.data, static_cast<uint64>(bytes.size)};
    return std::get<0>(table.probe(width, sip_hash(key.data, key.size, seed) >> 32 & mask, key));
}
QUICK_KERNEL("find_key", find_key);

// Like `find_keys`, but appends unknown keys, which must fit; returns the new number of keys.
int64 add_keys(Written table, int64 width, Given keys, int64 first, Span<const uint64> hashes, Span<int64> ids) {
    for (int64 i = 0; i < hashes.size; ++i) {
        table.fetch_ahead(width, hashes, i);
        const Key key = keys.at(width, first + i);
        auto [found, slot] = table.probe(width, hashes[i], key);
        if (found < 0) {
            found = table.count;
            const int64 end = width ? found * width : table.offsets[found];
            std::memcpy(table.arena.data + end, key.data, key.size);
            if (!width) table.offsets[found + 1] = end + static_cast<int64>(key.size);
            ++table.count;
            // readers see the slot when the key is there: they ignore it until the count is published
            __atomic_store_n(&table.slots[slot], hashes[i] << 32 | static_cast<uint64>(table.count), __ATOMIC_RELEASE);
        }
        ids[first + i] = found;
    }
    return table.count;
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
    for (int64 i = 0; i < ids.size; ++i) {
        const Key key = key_at(offsets, arena.data, width, ids[i]);
        std::memcpy(key_bytes.data + (width ? i * width : key_offsets[i]), key.data, key.size);
    }
}
KERNEL("gather_keys", gather_keys);

}  // namespace
