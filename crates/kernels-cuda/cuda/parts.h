// How products read weights: formats in chunks of rows that lie in shared memory, which does not mind that most blocks are
// aligned to two bytes only. What the formats look like is told in dequantize.h.
//
// There are two ways. For products of bytes without tensor cores, eight lanes share a row, and a lane decodes "units" of it. For
// tensor cores, a lane decodes "fragments" of 32 columns: eight weights in two words. Lane t of the four that share a row has
// columns 8t to 8t + 7, or, of formats with scales for 16 columns, 4t to 4t + 3 of either half.
#pragma once
#include "dequantize.h"
#include "platform.h"
#include "types.h"

#define ROW_LANES 8

// --- Words of shared memory ---------------------------------------------------------------------------------------------

// Offsets are bytes from `words`, which is aligned to 16 bytes. Loads are as aligned as their size.

template <class T>
FORCE_INLINE_DEVICE T load_at(const uint32_t* words, uint32_t offset) {
    return *(const T*)((const uint8_t*)words + offset);
}

FORCE_INLINE_DEVICE uint32_t load_word(const uint32_t* words, uint32_t offset) {
    return load_at<uint32_t>(words, offset);
}

FORCE_INLINE_DEVICE uint32_t load_half(const uint32_t* words, uint32_t offset) {
    return load_at<uint16_t>(words, offset);
}

FORCE_INLINE_DEVICE uint32_t load_byte(const uint32_t* words, uint32_t offset) {
    return load_at<uint8_t>(words, offset);
}

FORCE_INLINE_DEVICE float load_float_half(const uint32_t* words, uint32_t offset) {
    return half_to_float(load_at<uint16_t>(words, offset));
}

FORCE_INLINE_DEVICE void load_two(const uint32_t* words, uint32_t offset, uint32_t* to) {
    const Uint2 two = load_at<Uint2>(words, offset);
    to[0] = two.x, to[1] = two.y;
}

FORCE_INLINE_DEVICE void load_four(const uint32_t* words, uint32_t offset, uint32_t* to) {
    const Uint4 four = load_at<Uint4>(words, offset);
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

// A word that is aligned to two bytes: for few of them that is less work than `load_words`.
FORCE_INLINE_DEVICE uint32_t load_halves(const uint32_t* words, uint32_t offset) {
    return load_half(words, offset) | load_half(words, offset + 2) << 16;
}

// N words from any byte on.
template <uint32_t N>
FORCE_INLINE_DEVICE void load_words(const uint32_t* words, uint32_t offset, uint32_t (&to)[N]) {
    const uint32_t first = offset / 4, shift = offset % 4 * 8;
    uint32_t low = words[first];
#pragma unroll
    for (uint32_t i = 0; i < N; i++) {
        // An aligned run of words ends before the last word that another would need.
        const uint32_t high = words[first + i + (i + 1 < N || shift != 0 ? 1 : 0)];
        to[i] = (uint32_t)(((uint64_t)high << 32 | low) >> shift);
        low = high;
    }
}

// --- Units and fragments ------------------------------------------------------------------------------------------------

// Groups of weights, as four signed bytes to a word. A weight is factor * (quant - UNIT_OFFSET) - minimum. Group g is 32 columns
// after the first.
template <uint32_t GROUPS, uint32_t WORDS>
struct Unit {
    uint32_t quants[GROUPS][WORDS];
    float factors[GROUPS];
    float minimums[GROUPS];
};

// A lane's eight weights of 32 columns of a row. With two scales, each is for one of the words.
template <uint32_t SCALES>
struct Fragment {
    uint32_t quants[2];
    float factors[SCALES];
    float minimums[SCALES];
};

// What a lane keeps of a block of 256 for all of its fragments. Others have nothing of the kind.
struct NoHead {};

// The formats say how their kernels work best: chunks that a warp has under way (STAGES), and blocks of threads that each
// processor of the card should have room for (SM_BLOCKS).

// How minimums are multiplied: not at all, with the sums of 32 activations, or with sums of 16 that are computed.
enum Minimums { NO_MINIMUMS, MINIMUMS_OF_32, MINIMUMS_OF_16 };

// Formats with blocks of 32: a lane's units are whole blocks.
template <uint32_t BYTES, uint32_t BLOCKS = 2>
struct SmallBlocks {
    static constexpr bool IS_FLOATS = false, IS_BLOCKS_OF_256 = false;
    static constexpr uint32_t STAGES = 2, SM_BLOCKS = 4;
    static constexpr int UNIT_OFFSET = 0;
    static constexpr uint32_t CHUNK_BYTES = ROW_LANES * BLOCKS * BYTES, CHUNK_COLUMNS = ROW_LANES * BLOCKS * 32;
    static constexpr uint32_t UNITS = BLOCKS, GROUPS = 1, WORDS = 8, SCALES = 1;
    typedef Unit<GROUPS, WORDS> LaneUnit;
    typedef Fragment<SCALES> LaneFragment;
    typedef NoHead Head;
    static DEVICE uint32_t unit_column(uint32_t row_lane, uint32_t unit) { return 32 * (row_lane + ROW_LANES * unit); }
    static DEVICE uint32_t unit_offset(uint32_t row_lane, uint32_t unit) { return BYTES * (row_lane + ROW_LANES * unit); }
    static DEVICE uint32_t fragment_offset(uint32_t group) { return BYTES * group; }
    static DEVICE Head head(const uint32_t*, uint32_t) { return {}; }
};

FORCE_INLINE_DEVICE void unpack_halves(const uint32_t* words, uint32_t (&quants)[8]) {
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        quants[i] = words[i] & 0x0f0f0f0fu;
        quants[i + 4] = words[i] >> 4 & 0x0f0f0f0fu;
    }
}

FORCE_INLINE_DEVICE void add_fifth_bits(uint32_t bits, uint32_t (&quants)[8]) {
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) quants[i] |= spread_bits(bits >> 4 * i) << 4;
}

FORCE_INLINE_DEVICE void look_up_all(const ByteTable& table, const uint32_t* words, uint32_t (&quants)[8]) {
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t first = look_up(table, words[i] & 0xffffu), second = look_up(table, words[i] >> 16);
        quants[i] = byte_permute(first, second, 0x6420u);
        quants[i + 4] = byte_permute(first, second, 0x7531u);
    }
}

// Lane t's half bytes of a group of 32 are in the low halves of eight bytes, or in the high ones for columns from 16 on.
FORCE_INLINE_DEVICE void pick_halves(const uint32_t (&words)[2], uint32_t t, uint32_t (&quants)[2]) {
    quants[0] = words[0] >> t / 2 * 4 & 0x0f0f0f0fu;
    quants[1] = words[1] >> t / 2 * 4 & 0x0f0f0f0fu;
}

FORCE_INLINE_DEVICE void look_up_picked(const ByteTable& table, const uint32_t (&words)[2], uint32_t t, uint32_t (&quants)[2]) {
    uint32_t indices[2];
    pick_halves(words, t, indices);
    const uint32_t both = indices[0] | indices[1] << 4;
    const uint32_t first = look_up(table, both & 0xffffu), second = look_up(table, both >> 16);
    quants[0] = byte_permute(first, second, 0x6420u);
    quants[1] = byte_permute(first, second, 0x7531u);
}

struct PartQ4_0 : SmallBlocks<18> {
    static constexpr uint32_t ALIGNMENT = 2;
    static constexpr Minimums MINIMUMS = MINIMUMS_OF_32;
    static FORCE_INLINE_DEVICE void decode(const uint32_t* words, uint32_t offset, uint32_t, LaneUnit& unit) {
        uint32_t halves[4];
        load_words(words, offset + 2, halves);
        unpack_halves(halves, unit.quants[0]);
        unit.factors[0] = load_float_half(words, offset);
        unit.minimums[0] = 8.0f * unit.factors[0];
    }
    static FORCE_INLINE_DEVICE void decode(
        const uint32_t* words, uint32_t offset, const Head&, uint32_t, uint32_t t, LaneFragment& fragment) {
        const uint32_t from = offset + 2 + 8 * (t % 2);
        const uint32_t halves[2] = {load_halves(words, from), load_halves(words, from + 4)};
        pick_halves(halves, t, fragment.quants);
        fragment.factors[0] = load_float_half(words, offset);
        fragment.minimums[0] = 8.0f * fragment.factors[0];
    }
};

struct PartQ4_1 : SmallBlocks<20> {
    static constexpr uint32_t ALIGNMENT = 4;
    static constexpr Minimums MINIMUMS = MINIMUMS_OF_32;
    static FORCE_INLINE_DEVICE void decode(const uint32_t* words, uint32_t offset, uint32_t, LaneUnit& unit) {
        const uint32_t* block = words + offset / 4;
        const Float2 scales = half2_to_float2(block[0]);
        unpack_halves(block + 1, unit.quants[0]);
        unit.factors[0] = scales.x;
        unit.minimums[0] = -scales.y;
    }
    static FORCE_INLINE_DEVICE void decode(
        const uint32_t* words, uint32_t offset, const Head&, uint32_t, uint32_t t, LaneFragment& fragment) {
        const Float2 scales = half2_to_float2(load_word(words, offset));
        const uint32_t from = offset + 4 + 8 * (t % 2);
        const uint32_t halves[2] = {load_word(words, from), load_word(words, from + 4)};
        pick_halves(halves, t, fragment.quants);
        fragment.factors[0] = scales.x;
        fragment.minimums[0] = -scales.y;
    }
};

struct PartQ5_0 : SmallBlocks<22> {
    static constexpr uint32_t ALIGNMENT = 2;
    static constexpr Minimums MINIMUMS = MINIMUMS_OF_32;
    static FORCE_INLINE_DEVICE void decode(const uint32_t* words, uint32_t offset, uint32_t, LaneUnit& unit) {
        uint32_t bits_and_halves[5];
        load_words(words, offset + 2, bits_and_halves);
        unpack_halves(bits_and_halves + 1, unit.quants[0]);
        add_fifth_bits(bits_and_halves[0], unit.quants[0]);
        unit.factors[0] = load_float_half(words, offset);
        unit.minimums[0] = 16.0f * unit.factors[0];
    }
    static FORCE_INLINE_DEVICE void decode(
        const uint32_t* words, uint32_t offset, const Head&, uint32_t, uint32_t t, LaneFragment& fragment) {
        const uint32_t from = offset + 6 + 8 * (t % 2);
        const uint32_t halves[2] = {load_halves(words, from), load_halves(words, from + 4)};
        pick_halves(halves, t, fragment.quants);
        const uint32_t bits = load_byte(words, offset + 2 + t);
        fragment.quants[0] |= spread_bits(bits) << 4;
        fragment.quants[1] |= spread_bits(bits >> 4) << 4;
        fragment.factors[0] = load_float_half(words, offset);
        fragment.minimums[0] = 16.0f * fragment.factors[0];
    }
};

struct PartQ5_1 : SmallBlocks<24> {
    static constexpr uint32_t ALIGNMENT = 4;
    static constexpr Minimums MINIMUMS = MINIMUMS_OF_32;
    static FORCE_INLINE_DEVICE void decode(const uint32_t* words, uint32_t offset, uint32_t, LaneUnit& unit) {
        const uint32_t* block = words + offset / 4;
        const Float2 scales = half2_to_float2(block[0]);
        unpack_halves(block + 2, unit.quants[0]);
        add_fifth_bits(block[1], unit.quants[0]);
        unit.factors[0] = scales.x;
        unit.minimums[0] = -scales.y;
    }
    static FORCE_INLINE_DEVICE void decode(
        const uint32_t* words, uint32_t offset, const Head&, uint32_t, uint32_t t, LaneFragment& fragment) {
        const Float2 scales = half2_to_float2(load_word(words, offset));
        const uint32_t from = offset + 8 + 8 * (t % 2);
        const uint32_t halves[2] = {load_word(words, from), load_word(words, from + 4)};
        pick_halves(halves, t, fragment.quants);
        const uint32_t bits = load_byte(words, offset + 4 + t);
        fragment.quants[0] |= spread_bits(bits) << 4;
        fragment.quants[1] |= spread_bits(bits >> 4) << 4;
        fragment.factors[0] = scales.x;
        fragment.minimums[0] = -scales.y;
    }
};

struct PartQ8_0 : SmallBlocks<34, 1> {
    static constexpr uint32_t ALIGNMENT = 2;
    static constexpr Minimums MINIMUMS = NO_MINIMUMS;
    static FORCE_INLINE_DEVICE void decode(const uint32_t* words, uint32_t offset, uint32_t, LaneUnit& unit) {
        load_words(words, offset + 2, unit.quants[0]);
        unit.factors[0] = load_float_half(words, offset);
    }
    static FORCE_INLINE_DEVICE void decode(
        const uint32_t* words, uint32_t offset, const Head&, uint32_t, uint32_t t, LaneFragment& fragment) {
        fragment.quants[0] = load_halves(words, offset + 2 + 8 * t);
        fragment.quants[1] = load_halves(words, offset + 6 + 8 * t);
        fragment.factors[0] = load_float_half(words, offset);
    }
};

struct PartIQ4_NL : SmallBlocks<18> {
    static constexpr uint32_t ALIGNMENT = 2;
    static constexpr Minimums MINIMUMS = NO_MINIMUMS;
    static FORCE_INLINE_DEVICE void decode(const uint32_t* words, uint32_t offset, uint32_t, LaneUnit& unit) {
        uint32_t halves[4];
        load_words(words, offset + 2, halves);
        look_up_all(iq4_nl_table(), halves, unit.quants[0]);
        unit.factors[0] = load_float_half(words, offset);
    }
    static FORCE_INLINE_DEVICE void decode(
        const uint32_t* words, uint32_t offset, const Head&, uint32_t, uint32_t t, LaneFragment& fragment) {
        const uint32_t from = offset + 2 + 8 * (t % 2);
        const uint32_t halves[2] = {load_halves(words, from), load_halves(words, from + 4)};
        look_up_picked(iq4_nl_table(), halves, t, fragment.quants);
        fragment.factors[0] = load_float_half(words, offset);
    }
};

struct PartMXFP4 : SmallBlocks<17> {
    static constexpr uint32_t ALIGNMENT = 1;
    static constexpr Minimums MINIMUMS = NO_MINIMUMS;
    static FORCE_INLINE_DEVICE void decode(const uint32_t* words, uint32_t offset, uint32_t, LaneUnit& unit) {
        uint32_t halves[4];
        load_words(words, offset + 1, halves);
        look_up_all(mxfp4_table(), halves, unit.quants[0]);
        unit.factors[0] = mxfp4_scale(load_byte(words, offset));
    }
    static FORCE_INLINE_DEVICE void decode(
        const uint32_t* words, uint32_t offset, const Head&, uint32_t, uint32_t t, LaneFragment& fragment) {
        uint32_t halves[2];
        load_words(words, offset + 1 + 8 * (t % 2), halves);
        look_up_picked(mxfp4_table(), halves, t, fragment.quants);
        fragment.factors[0] = mxfp4_scale(load_byte(words, offset));
    }
};

// --- Blocks of 256 with groups of 32 ------------------------------------------------------------------------------------

// A lane's unit is two neighbouring groups, a quarter of a block.
template <uint32_t BYTES>
struct PairsOfGroups {
    static constexpr bool IS_FLOATS = false, IS_BLOCKS_OF_256 = true;
    static constexpr uint32_t STAGES = 2, SM_BLOCKS = 4;
    static constexpr uint32_t CHUNK_BYTES = 2 * BYTES, CHUNK_COLUMNS = 2 * 256;
    static constexpr uint32_t UNITS = 1, GROUPS = 2, WORDS = 8, SCALES = 1;
    typedef Unit<GROUPS, WORDS> LaneUnit;
    static constexpr int UNIT_OFFSET = 0;
    typedef Fragment<SCALES> LaneFragment;
    static DEVICE uint32_t unit_column(uint32_t row_lane, uint32_t) { return 64 * row_lane; }
    static DEVICE uint32_t unit_offset(uint32_t row_lane, uint32_t) { return BYTES * (row_lane / 4); }
    static DEVICE uint32_t fragment_offset(uint32_t) { return 0; }
};

// The scales of groups 2 * pair and 2 * pair + 1 of Q4_K and Q5_K; see `k_group`.
FORCE_INLINE_DEVICE void decode_k_scales(const uint32_t (&head)[4], uint32_t pair, Unit<2, 8>& unit) {
    const uint32_t shift = 16 * (pair % 2);
    const uint32_t first = head[1] >> shift, second = head[2] >> shift, third = head[3] >> shift;
    const bool is_early = pair < 2;
    const uint32_t scales = is_early ? first & 0x3f3fu : (third & 0x0f0fu) | (first >> 2 & 0x3030u);
    const uint32_t minimums = is_early ? second & 0x3f3fu : (third >> 4 & 0x0f0fu) | (second >> 2 & 0x3030u);
    const Float2 both = half2_to_float2(head[0]);
#pragma unroll
    for (uint32_t g = 0; g < 2; g++) {
        unit.factors[g] = both.x * (float)(scales >> 8 * g & 0xffu);
        unit.minimums[g] = both.y * (float)(minimums >> 8 * g & 0xffu);
    }
}

struct KHead {
    Float2 both;
    uint32_t scales[3];
};

FORCE_INLINE_DEVICE KHead load_k_head(const uint32_t* words, uint32_t offset) {
    uint32_t four[4];
    load_four(words, offset, four);
    return {half2_to_float2(four[0]), {four[1], four[2], four[3]}};
}

FORCE_INLINE_DEVICE void decode_k_scales(const KHead& head, uint32_t group, Fragment<1>& fragment) {
    const Scale scale = k_group(head.scales[0], head.scales[1], head.scales[2], group);
    fragment.factors[0] = head.both.x * scale.factor;
    fragment.minimums[0] = head.both.y * scale.minimum;
}

struct PartQ4_K : PairsOfGroups<144> {
    static constexpr uint32_t ALIGNMENT = 16;
    static constexpr Minimums MINIMUMS = MINIMUMS_OF_32;
    typedef KHead Head;
    static FORCE_INLINE_DEVICE void decode(const uint32_t* words, uint32_t offset, uint32_t row_lane, LaneUnit& unit) {
        const uint32_t pair = row_lane % 4;
        uint32_t head[4], halves[8];
        load_four(words, offset, head);
        load_four(words, offset + 16 + 32 * pair, halves);
        load_four(words, offset + 32 + 32 * pair, halves + 4);
        decode_k_scales(head, pair, unit);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            unit.quants[0][i] = halves[i] & 0x0f0f0f0fu;
            unit.quants[1][i] = halves[i] >> 4 & 0x0f0f0f0fu;
        }
    }
    static FORCE_INLINE_DEVICE Head head(const uint32_t* words, uint32_t offset) { return load_k_head(words, offset); }
    static FORCE_INLINE_DEVICE void decode(
        const uint32_t* words, uint32_t offset, const Head& head, uint32_t group, uint32_t t, LaneFragment& fragment) {
        uint32_t halves[2];
        load_two(words, offset + 16 + group / 2 * 32 + 8 * t, halves);
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) fragment.quants[i] = halves[i] >> group % 2 * 4 & 0x0f0f0f0fu;
        decode_k_scales(head, group, fragment);
    }
};

struct PartQ5_K : PairsOfGroups<176> {
    static constexpr uint32_t ALIGNMENT = 16;
    static constexpr Minimums MINIMUMS = MINIMUMS_OF_32;
    typedef KHead Head;
    static FORCE_INLINE_DEVICE void decode(const uint32_t* words, uint32_t offset, uint32_t row_lane, LaneUnit& unit) {
        const uint32_t pair = row_lane % 4;
        uint32_t head[4], halves[8], bits[8];
        load_four(words, offset, head);
        load_four(words, offset + 16, bits);
        load_four(words, offset + 32, bits + 4);
        load_four(words, offset + 48 + 32 * pair, halves);
        load_four(words, offset + 64 + 32 * pair, halves + 4);
        decode_k_scales(head, pair, unit);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t two = bits[i] >> 2 * pair & 0x03030303u;
            unit.quants[0][i] = (halves[i] & 0x0f0f0f0fu) | (two << 4 & 0x10101010u);
            unit.quants[1][i] = (halves[i] >> 4 & 0x0f0f0f0fu) | (two << 3 & 0x10101010u);
        }
    }
    static FORCE_INLINE_DEVICE Head head(const uint32_t* words, uint32_t offset) { return load_k_head(words, offset); }
    static FORCE_INLINE_DEVICE void decode(
        const uint32_t* words, uint32_t offset, const Head& head, uint32_t group, uint32_t t, LaneFragment& fragment) {
        uint32_t halves[2], bits[2];
        load_two(words, offset + 48 + group / 2 * 32 + 8 * t, halves);
        load_two(words, offset + 16 + 8 * t, bits);
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            fragment.quants[i] = (halves[i] >> group % 2 * 4 & 0x0f0f0f0fu) | (bits[i] >> group & 0x01010101u) << 4;
        }
        decode_k_scales(head, group, fragment);
    }
};

struct IQ4_XSHead {
    float scale;
    uint32_t upper, lower;
};

struct PartIQ4_XS : PairsOfGroups<136> {
    static constexpr uint32_t ALIGNMENT = 8;
    static constexpr Minimums MINIMUMS = NO_MINIMUMS;
    typedef IQ4_XSHead Head;
    static FORCE_INLINE_DEVICE void decode(const uint32_t* words, uint32_t offset, uint32_t row_lane, LaneUnit& unit) {
        const uint32_t pair = row_lane % 4;
        const Uint2* halves = (const Uint2*)words + (offset + 8 + 32 * pair) / 8;
        const float scale = load_float_half(words, offset);
        const uint32_t upper = load_half(words, offset + 2) >> 4 * pair, lower = load_byte(words, offset + 4 + pair);
#pragma unroll
        for (uint32_t g = 0; g < 2; g++) {
            const Uint2 first = halves[2 * g], second = halves[2 * g + 1];
            const uint32_t four[4] = {first.x, first.y, second.x, second.y};
            look_up_all(iq4_nl_table(), four, unit.quants[g]);
            const uint32_t bits = (lower >> 4 * g & 15u) | (upper >> 2 * g & 3u) << 4;
            unit.factors[g] = scale * (float)((int)bits - 32);
        }
    }
    static FORCE_INLINE_DEVICE Head head(const uint32_t* words, uint32_t offset) {
        return {load_float_half(words, offset), load_half(words, offset + 2), load_word(words, offset + 4)};
    }
    static FORCE_INLINE_DEVICE void decode(
        const uint32_t* words, uint32_t offset, const Head& head, uint32_t group, uint32_t t, LaneFragment& fragment) {
        uint32_t halves[2];
        load_two(words, offset + 8 + 16 * group + 8 * (t % 2), halves);
        look_up_picked(iq4_nl_table(), halves, t, fragment.quants);
        const uint32_t bits = (head.lower >> 4 * group & 15u) | (head.upper >> 2 * group & 3u) << 4;
        fragment.factors[0] = head.scale * (float)((int)bits - 32);
    }
};

// --- Blocks of 256 with groups of 16 ------------------------------------------------------------------------------------

// A lane's unit is one of two halves of four groups of 32, which lie at the same bytes.
template <uint32_t BYTES>
struct HalvesOfGroups {
    static constexpr bool IS_FLOATS = false, IS_BLOCKS_OF_256 = true;
    static constexpr uint32_t STAGES = 2, SM_BLOCKS = 4;
    static constexpr uint32_t CHUNK_BYTES = 2 * BYTES, CHUNK_COLUMNS = 2 * 256;
    static constexpr uint32_t UNITS = 1, GROUPS = 4, WORDS = 4, SCALES = 2;
    typedef Unit<GROUPS, WORDS> LaneUnit;
    typedef Fragment<SCALES> LaneFragment;
    static DEVICE uint32_t unit_column(uint32_t row_lane, uint32_t) { return 128 * (row_lane / 2) + 16 * (row_lane % 2); }
    static DEVICE uint32_t unit_offset(uint32_t row_lane, uint32_t) { return BYTES * (row_lane / 4); }
    static DEVICE uint32_t fragment_offset(uint32_t) { return 0; }
};

struct Q2_KHead {
    Float2 both;
    uint32_t scales[4];
};

struct PartQ2_K : HalvesOfGroups<84> {
    static constexpr uint32_t ALIGNMENT = 4;
    static constexpr Minimums MINIMUMS = MINIMUMS_OF_16;
    static constexpr int UNIT_OFFSET = 0;
    typedef Q2_KHead Head;
    static FORCE_INLINE_DEVICE void decode(const uint32_t* words, uint32_t offset, uint32_t row_lane, LaneUnit& unit) {
        const uint32_t side = row_lane / 2 % 2, half = row_lane % 2;
        const uint32_t* two_bits = words + (offset + 16 + 32 * side + 16 * half) / 4;
        const uint32_t* scale_words = words + (offset + 8 * side) / 4;
        const Float2 both = half2_to_float2(load_word(words, offset + 80));
#pragma unroll
        for (uint32_t g = 0; g < 4; g++) {
            const uint32_t scales = scale_words[g / 2] >> (16 * (g % 2) + 8 * half);
            unit.factors[g] = both.x * (float)(scales & 15u);
            unit.minimums[g] = both.y * (float)(scales >> 4 & 15u);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) unit.quants[g][i] = two_bits[i] >> 2 * g & 0x03030303u;
        }
    }
    static FORCE_INLINE_DEVICE Head head(const uint32_t* words, uint32_t offset) {
        const uint32_t* scales = words + offset / 4;
        return {half2_to_float2(load_word(words, offset + 80)), {scales[0], scales[1], scales[2], scales[3]}};
    }
    static FORCE_INLINE_DEVICE void decode(
        const uint32_t* words, uint32_t offset, const Head& head, uint32_t group, uint32_t t, LaneFragment& fragment) {
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t two_bits = load_word(words, offset + 16 + group / 4 * 32 + 16 * i + 4 * t);
            fragment.quants[i] = two_bits >> group % 4 * 2 & 0x03030303u;
            const uint32_t scales = head.scales[group / 2] >> (16 * (group % 2) + 8 * i);
            fragment.factors[i] = head.both.x * (float)(scales & 15u);
            fragment.minimums[i] = head.both.y * (float)(scales >> 4 & 15u);
        }
    }
};

struct Q3_KHead {
    float scale;
    uint32_t scales[3];
};

struct PartQ3_K : HalvesOfGroups<110> {
    static constexpr uint32_t ALIGNMENT = 2;
    static constexpr Minimums MINIMUMS = NO_MINIMUMS;
    static constexpr int UNIT_OFFSET = 4;
    typedef Q3_KHead Head;
    static FORCE_INLINE_DEVICE void decode(const uint32_t* words, uint32_t offset, uint32_t row_lane, LaneUnit& unit) {
        const uint32_t side = row_lane / 2 % 2, half = row_lane % 2;
        uint32_t third_bits[4], two_bits[4];
        load_words(words, offset + 16 * half, third_bits);
        load_words(words, offset + 32 + 32 * side + 16 * half, two_bits);
        const float scale = load_float_half(words, offset + 108);
#pragma unroll
        for (uint32_t g = 0; g < 4; g++) {
            const uint32_t lower = load_byte(words, offset + 96 + 2 * g + half) >> 4 * side & 15u;
            const uint32_t upper = load_byte(words, offset + 104 + 2 * (g % 2) + half) >> (4 * side + 2 * (g / 2)) & 3u;
            unit.factors[g] = scale * (float)((int)(lower | upper << 4) - 32);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t third = third_bits[i] >> (4 * side + g) & 0x01010101u;
                unit.quants[g][i] = (two_bits[i] >> 2 * g & 0x03030303u) | third << 2;
            }
        }
    }
    static FORCE_INLINE_DEVICE Head head(const uint32_t* words, uint32_t offset) {
        Head head;
        load_words(words, offset + 96, head.scales);
        head.scale = load_float_half(words, offset + 108);
        return head;
    }
    static FORCE_INLINE_DEVICE void decode(
        const uint32_t* words, uint32_t offset, const Head& head, uint32_t group, uint32_t t, LaneFragment& fragment) {
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t two_bits = load_halves(words, offset + 32 + group / 4 * 32 + 16 * i + 4 * t);
            const uint32_t third_bits = load_halves(words, offset + 16 * i + 4 * t);
            const uint32_t quants = (two_bits >> group % 4 * 2 & 0x03030303u) | (third_bits >> group & 0x01010101u) << 2;
            fragment.quants[i] = minus_bytes(quants, 0x04040404u);
            const uint32_t of_16 = 2 * group + i, place = 8 * (of_16 % 4);
            const uint32_t lower = head.scales[of_16 % 8 / 4] >> (place + of_16 / 8 * 4) & 15u;
            const uint32_t upper = head.scales[2] >> (place + of_16 / 4 * 2) & 3u;
            fragment.factors[i] = head.scale * (float)((int)(lower | upper << 4) - 32);
        }
    }
};

struct Q6_KHead {
    float scale;
    uint32_t scales[4];
};

struct PartQ6_K : HalvesOfGroups<210> {
    static constexpr uint32_t ALIGNMENT = 2;
    static constexpr Minimums MINIMUMS = NO_MINIMUMS;
    static constexpr int UNIT_OFFSET = 32;
    typedef Q6_KHead Head;
    static FORCE_INLINE_DEVICE void decode(const uint32_t* words, uint32_t offset, uint32_t row_lane, LaneUnit& unit) {
        const uint32_t side = row_lane / 2 % 2, half = row_lane % 2;
        uint32_t low[2][4], high[4];
        load_words(words, offset + 64 * side + 16 * half, low[0]);
        load_words(words, offset + 64 * side + 32 + 16 * half, low[1]);
        load_words(words, offset + 128 + 32 * side + 16 * half, high);
        const float scale = load_float_half(words, offset + 208);
#pragma unroll
        for (uint32_t g = 0; g < 4; g++) {
            unit.factors[g] = scale * (float)(int8_t)load_byte(words, offset + 192 + 8 * side + 2 * g + half);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t upper = g < 2 ? high[i] << (4 - 2 * g) : high[i] >> (2 * g - 4);
                const uint32_t lower = low[g % 2][i] >> g / 2 * 4 & 0x0f0f0f0fu;
                unit.quants[g][i] = lower | (upper & 0x30303030u);
            }
        }
    }
    static FORCE_INLINE_DEVICE Head head(const uint32_t* words, uint32_t offset) {
        Head head;
        load_words(words, offset + 192, head.scales);
        head.scale = load_float_half(words, offset + 208);
        return head;
    }
    static FORCE_INLINE_DEVICE void decode(
        const uint32_t* words, uint32_t offset, const Head& head, uint32_t group, uint32_t t, LaneFragment& fragment) {
        const uint32_t side = group / 4, g = group % 4;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t low = load_halves(words, offset + 64 * side + g % 2 * 32 + 16 * i + 4 * t);
            const uint32_t high = load_halves(words, offset + 128 + 32 * side + 16 * i + 4 * t);
            const uint32_t upper = g < 2 ? high << (4 - 2 * g) : high >> (2 * g - 4);
            const uint32_t lower = low >> g / 2 * 4 & 0x0f0f0f0fu;
            fragment.quants[i] = minus_bytes(lower | (upper & 0x30303030u), 0x20202020u);
            fragment.factors[i] = head.scale * signed_byte(head.scales[group / 2], group % 2 * 2 + i);
        }
    }
};

// --- Floats -------------------------------------------------------------------------------------------------------------

// Lanes take eight neighbouring columns at a time. For tensor cores a weight is a sum of TERMS numbers in bf16, exactly.
template <uint32_t BYTES, uint32_t N_TERMS>
struct Floats {
    static constexpr bool IS_FLOATS = true;
    static constexpr uint32_t STAGES = 3, SM_BLOCKS = N_TERMS == 1 ? 5 : 4;
    static constexpr uint32_t ALIGNMENT = BYTES, TERMS = N_TERMS;
    static constexpr Minimums MINIMUMS = NO_MINIMUMS;
    static constexpr uint32_t CHUNK_BYTES = 256, CHUNK_COLUMNS = 256 / BYTES;
    static constexpr uint32_t UNITS = CHUNK_COLUMNS / (8 * ROW_LANES);
    typedef NoHead LaneUnit;
};

FORCE_INLINE_DEVICE uint32_t two_bf16(float first, float second) {
    return float_to_bf16(first) | (uint32_t)float_to_bf16(second) << 16;
}

FORCE_INLINE_DEVICE Float2 floats_of_two_bf16(uint32_t bits) {
    return Float2{float_of_bits(bits << 16), float_of_bits(bits & 0xffff0000u)};
}

FORCE_INLINE_DEVICE void floats_of_bf16(const uint32_t (&words)[4], float (&to)[8]) {
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const Float2 two = floats_of_two_bf16(words[i]);
        to[2 * i] = two.x, to[2 * i + 1] = two.y;
    }
}

// Divides floats into what bf16 can hold, what it can hold of the rest, and so on.
template <uint32_t TERMS>
FORCE_INLINE_DEVICE void divide_floats(const float (&from)[8], uint32_t (&terms)[TERMS][4]) {
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        Float2 rest = {from[2 * i], from[2 * i + 1]};
#pragma unroll
        for (uint32_t term = 0; term < TERMS; term++) {
            terms[term][i] = two_bf16(rest.x, rest.y);
            const Float2 held = floats_of_two_bf16(terms[term][i]);
            rest.x -= held.x, rest.y -= held.y;
        }
    }
}

struct PartBF16 : Floats<2, 1> {
    static FORCE_INLINE_DEVICE void eight(const uint32_t* words, uint32_t offset, float (&to)[8]) {
        uint32_t four[4];
        load_four(words, offset, four);
        floats_of_bf16(four, to);
    }
    static FORCE_INLINE_DEVICE float one(const uint32_t* words, uint32_t offset) {
        return bf16_to_float((Bf16Bits)load_half(words, offset));
    }
    static FORCE_INLINE_DEVICE void terms(const uint32_t* words, uint32_t offset, uint32_t (&to)[TERMS][4]) {
        load_four(words, offset, to[0]);
    }
};

struct PartF16 : Floats<2, 2> {
    static FORCE_INLINE_DEVICE void eight(const uint32_t* words, uint32_t offset, float (&to)[8]) {
        uint32_t four[4];
        load_four(words, offset, four);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const Float2 both = half2_to_float2(four[i]);
            to[2 * i] = both.x, to[2 * i + 1] = both.y;
        }
    }
    static FORCE_INLINE_DEVICE float one(const uint32_t* words, uint32_t offset) { return load_float_half(words, offset); }
    static FORCE_INLINE_DEVICE void terms(const uint32_t* words, uint32_t offset, uint32_t (&to)[TERMS][4]) {
        float x[8];
        eight(words, offset, x);
        divide_floats(x, to);
    }
};

struct PartF32 : Floats<4, 3> {
    static FORCE_INLINE_DEVICE void eight(const uint32_t* words, uint32_t offset, float (&to)[8]) {
        uint32_t bits[8];
        load_four(words, offset, bits);
        load_four(words, offset + 16, bits + 4);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) to[i] = float_of_bits(bits[i]);
    }
    static FORCE_INLINE_DEVICE float one(const uint32_t* words, uint32_t offset) {
        return float_of_bits(load_word(words, offset));
    }
    static FORCE_INLINE_DEVICE void terms(const uint32_t* words, uint32_t offset, uint32_t (&to)[TERMS][4]) {
        float x[8];
        eight(words, offset, x);
        divide_floats(x, to);
    }
};
