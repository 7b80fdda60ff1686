// Batches in JSON (RFC 8259) as columns of keys, without an object per key: liverank_service.formats.json_body. What it takes is
// {"insert": [[source, target], …], "delete": …, "vertices": [key, …], "remove": …}, in any order, each member once, the keys
// all strings that are not empty or all integers of at most 18 digits. What else there is, valid or not, is left to others.
#include <array>
#include <cstring>
#include <string_view>

#include "bind.h"

namespace {

// As the members follow below: insert_sources, insert_targets, delete_sources, delete_targets, vertices, remove.
constexpr int COLUMNS = 6;
constexpr std::array<std::string_view, 4> MEMBERS{"\"insert\"", "\"delete\"", "\"vertices\"", "\"remove\""};

// The bytes of the character in UTF-8 that begins there; 0 if there is none.
int64 character(const uint8* at, const uint8* end) {
    const int64 size = *at < 0x80 ? 1 : *at < 0xC2 ? 0 : *at < 0xE0 ? 2 : *at < 0xF0 ? 3 : *at < 0xF5 ? 4 : 0;
    if (size < 2) return size;
    if (end - at < size) return 0;
    if (at[1] < (*at == 0xE0 ? 0xA0 : *at == 0xF0 ? 0x90 : 0x80) || at[1] > (*at == 0xED ? 0x9F : *at == 0xF4 ? 0x8F : 0xBF)) return 0;
    for (int64 place = 2; place < size; ++place)
        if ((at[place] & 0xC0) != 0x80) return 0;
    return size;
}

// Counts what is in the body, or writes it if WRITES. WIDTH is 0 for strings.
template <int64 WIDTH, bool WRITES>
struct Reader {
    const uint8 *at, *end;
    Span<int64> counts, bytes;          // of each column: its keys, and their bytes
    std::array<int*, COLUMNS> offsets;  // where the next one of each column is written
    std::array<uint8*, COLUMNS> texts;  // where those of each column begin

    // The members that it has, as bits; -1 if it is not to be read here.
    int64 read() {
        int64 seen = 0;
        if (!take('{')) return -1;
        if (!take('}')) {
            do {
                space();
                int member = 0;
                while (member < 4 && !starts_with(MEMBERS[member])) ++member;
                if (member == 4 || (seen >> member & 1)) return -1;
                at += MEMBERS[member].size();
                seen |= int64{1} << member;
                if (!take(':') || !(member < 2 ? list([&] { return pair(2 * member); }) : list([&] { return key(member + 2); }))) return -1;
            } while (take(','));
            if (!take('}')) return -1;
        }
        space();
        return at == end ? seen : -1;
    }

    bool starts_with(std::string_view text) const {
        return end - at >= static_cast<int64>(text.size()) && std::memcmp(at, text.data(), text.size()) == 0;
    }

    void space() {
        while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) ++at;
    }

    bool take(char sign) {
        space();
        return at < end && *at == sign ? (++at, true) : false;
    }

    template <class Item>
    bool list(const Item& item) {
        if (!take('[')) return false;
        if (take(']')) return true;
        do
            if (!item()) return false;
        while (take(','));
        return take(']');
    }

    bool pair(int column) { return take('[') && key(column) && take(',') && key(column + 1) && take(']'); }

    bool key(int column) {
        space();
        const bool is_key = WIDTH ? number(column) : text(column);
        ++counts[column];
        return is_key;
    }

    bool number(int column) {
        const bool is_negative = at < end && *at == '-';
        const uint8* first = at += is_negative;
        int64 value = 0;
        for (; at < end && *at >= '0' && *at <= '9'; ++at)
            if (at - first < 18) value = 10 * value + (*at - '0');
        if (at == first || at - first > 18 || (*first == '0' && (is_negative || at - first > 1))) return false;
        if (is_negative) value = -value;
        return put(column, reinterpret_cast<const uint8*>(&value), sizeof value), true;
    }

    bool text(int column) {
        if (!take('"')) return false;
        const int64 before = bytes[column];
        while (true) {
            const uint8* first = at;
            while (at < end && *at != '"' && *at != '\\' && *at >= ' ' && *at < 0x80) ++at;
            put(column, first, at - first);
            if (at == end || *at < ' ') return false;
            if (*at == '"') break;
            if (*at == '\\') {
                if (!escape(column)) return false;
            } else {
                const int64 size = character(at, end);
                if (size == 0) return false;
                put(column, at, size);
                at += size;
            }
        }
        ++at;
        if (WRITES) *++offsets[column] = static_cast<int>(bytes[column]);
        return bytes[column] > before;
    }

    void put(int column, const uint8* from, int64 size) {
        if (WRITES) std::memcpy(texts[column] + bytes[column], from, static_cast<std::size_t>(size));
        bytes[column] += size;
    }

    bool escape(int column) {
        if (end - at < 2) return false;
        constexpr std::string_view signs = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
        const auto known = signs.find(static_cast<char>(at[1]));
        if (known != signs.npos) {
            const uint8 sign = meant[known];
            at += 2;
            return put(column, &sign, 1), true;
        }
        int64 code = unit();
        if (code >> 10 == 0xD800 >> 10) {  // the first half of a pair
            const int64 low = unit();
            if (low >> 10 != 0xDC00 >> 10) return false;
            code = 0x10000 + ((code & 0x3FF) << 10 | (low & 0x3FF));
        } else if (code < 0 || code >> 10 == 0xDC00 >> 10) {
            return false;
        }
        uint8 own[4];
        const int64 size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
        for (int64 place = size - 1; place > 0; --place, code >>= 6) own[place] = static_cast<uint8>(0x80 | (code & 0x3F));
        own[0] = static_cast<uint8>(code | (size == 1 ? 0 : 0xF00 >> size & 0xFF));
        return put(column, own, size), true;
    }

    // The number in \uXXXX, or -1.
    int64 unit() {
        if (end - at < 6 || at[0] != '\\' || at[1] != 'u') return -1;
        int64 code = 0;
        for (const uint8 digit : {at[2], at[3], at[4], at[5]}) {
            const uint8 lower = digit | 0x20;
            if (digit >= '0' && digit <= '9') code = 16 * code + digit - '0';
            else if (lower >= 'a' && lower <= 'f') code = 16 * code + lower - 'a' + 10;
            else return -1;
        }
        at += 6;
        return code;
    }
};

// Sets the number of keys of each column, and their bytes; returns the members that the body has, or -1.
template <int64 WIDTH>
int64 counted(Span<const uint8> body, Span<int64> counts, Span<int64> bytes) {
    std::fill(counts.begin(), counts.end(), 0);
    std::fill(bytes.begin(), bytes.end(), 0);
    return Reader<WIDTH, false>{body.begin(), body.end(), counts, bytes, {}, {}}.read();
}

int64 count_pairs(Span<const uint8> body, int64 width, Span<int64> counts, Span<int64> bytes) {
    return width ? counted<8>(body, counts, bytes) : counted<0>(body, counts, bytes);
}
KERNEL("count_pairs", count_pairs);
QUICK_KERNEL("count_few_pairs", count_pairs);

// Writes the columns, one after the other, as Arrow has them: `offsets` are count + 1 for each column of strings, each from 0 on.
template <int64 WIDTH>
void written(Span<const uint8> body, Span<const int64> counts, Span<const int64> bytes, Span<int> offsets, Span<uint8> texts) {
    std::array<int64, COLUMNS> own_counts{}, own_bytes{};
    Reader<WIDTH, true> reader{body.begin(), body.end(), {own_counts.data(), COLUMNS}, {own_bytes.data(), COLUMNS}, {}, {}};
    int* first = offsets.data;
    uint8* text = texts.data;
    for (int column = 0; column < COLUMNS; ++column) {
        reader.offsets[column] = first;
        reader.texts[column] = text;
        if (!WIDTH) *first = 0, first += counts[column] + 1;
        text += bytes[column];
    }
    reader.read();
}

void write_pairs(
    Span<const uint8> body, int64 width, Span<const int64> counts, Span<const int64> bytes, Span<int> offsets, Span<uint8> texts) {
    width ? written<8>(body, counts, bytes, offsets, texts) : written<0>(body, counts, bytes, offsets, texts);
}
KERNEL("write_pairs", write_pairs);
QUICK_KERNEL("write_few_pairs", write_pairs);

}  // namespace
