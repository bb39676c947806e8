// Products of weights with few rows of activations, which the memory's bandwidth bounds, and what surrounds them.
//
// A warp is four groups of eight lanes; a group multiplies one row of weights (or two) with all rows of activations, and all
// four groups read the same activations. Rows of weights come through shared memory in chunks: asynchronous copies keep many
// bytes under way without registers, and shared memory does not mind that most blocks are aligned to two bytes only. Every
// lane decodes its own part of a chunk and multiplies it. The warps of a block share the chunks of their rows if there are
// enough; the sum of an element is added up in the same order, whatever the number of rows of activations.
#pragma once
#include "dequantize.h"
#include "platform.h"
#include "types.h"

#define PRODUCT_WARPS 4
#define PRODUCT_THREADS 128
// Rows of weights that a warp works on at the same time, each with eight lanes.
#define ROW_LANES 8
#define WARP_ROWS 4
// Partial sums of all warps, for two rows of weights and the largest number of rows of activations.
#define PRODUCT_PARTIALS (PRODUCT_WARPS * WARP_ROWS * 2 * 8)

// Neighbouring lanes work on different rows and read the same activations, which costs the least.
FORCE_INLINE_DEVICE uint32_t row_group() {
    return lane() % WARP_ROWS;
}

FORCE_INLINE_DEVICE uint32_t lane_in_row() {
    return lane() / WARP_ROWS;
}

// --- Words of shared memory ---------------------------------------------------------------------------------------------

// A chunk of a row in shared memory: offsets are bytes from `words`, which is aligned to 16 bytes.

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

FORCE_INLINE_DEVICE uint32_t load_half(const uint32_t* words, uint32_t offset) {
    return ((const uint16_t*)words)[offset / 2];
}

FORCE_INLINE_DEVICE uint32_t load_byte(const uint32_t* words, uint32_t offset) {
    return ((const uint8_t*)words)[offset];
}

FORCE_INLINE_DEVICE float load_float_half(const uint32_t* words, uint32_t offset) {
    return half_to_float((HalfBits)load_half(words, offset));
}

FORCE_INLINE_DEVICE void load_four(const uint32_t* words, uint32_t offset, uint32_t* to) {
    const Uint4 four = ((const Uint4*)words)[offset / 16];
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

// --- Parts of chunks ----------------------------------------------------------------------------------------------------

// What a lane has decoded of a row: groups of weights, as four signed bytes to a word. A weight is factor * quant - minimum.
// Group g is 32 columns after the first one.
template <uint32_t GROUPS, uint32_t WORDS>
struct Unit {
    uint32_t quants[GROUPS][WORDS];
    float factors[GROUPS];
    float minimums[GROUPS];
};

// How minimums are multiplied: not at all, with the sums of 32 activations, or with sums that are computed.
enum Minimums { NO_MINIMUMS, MINIMUMS_OF_32, MINIMUMS_OF_16 };

// Formats with blocks of 32: a lane decodes one or two whole blocks of a chunk.
template <uint32_t BYTES, uint32_t BLOCKS = 2>
struct SmallBlocks {
    static constexpr uint32_t CHUNK_BYTES = ROW_LANES * BLOCKS * BYTES, CHUNK_COLUMNS = ROW_LANES * BLOCKS * 32;
    static constexpr uint32_t UNITS = BLOCKS, GROUPS = 1, WORDS = 8;
    typedef Unit<GROUPS, WORDS> LaneUnit;
    static DEVICE uint32_t column(uint32_t row_lane, uint32_t unit) { return 32 * (row_lane + ROW_LANES * unit); }
    static DEVICE uint32_t offset(uint32_t row_lane, uint32_t unit) { return BYTES * (row_lane + ROW_LANES * unit); }
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
};

struct PartQ8_0 : SmallBlocks<34, 1> {
    static constexpr uint32_t ALIGNMENT = 2;
    static constexpr Minimums MINIMUMS = NO_MINIMUMS;
    static FORCE_INLINE_DEVICE void decode(const uint32_t* words, uint32_t offset, uint32_t, LaneUnit& unit) {
        load_words(words, offset + 2, unit.quants[0]);
        unit.factors[0] = load_float_half(words, offset);
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
};

// Formats with blocks of 256 in groups of 32: a lane decodes two neighbouring groups, a quarter of a block.
template <uint32_t BYTES>
struct PairsOfGroups {
    static constexpr uint32_t CHUNK_BYTES = 2 * BYTES, CHUNK_COLUMNS = 2 * 256;
    static constexpr uint32_t UNITS = 1, GROUPS = 2, WORDS = 8;
    typedef Unit<GROUPS, WORDS> LaneUnit;
    static DEVICE uint32_t column(uint32_t row_lane, uint32_t) { return 64 * row_lane; }
    static DEVICE uint32_t offset(uint32_t row_lane, uint32_t) { return BYTES * (row_lane / 4); }
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

struct PartQ4_K : PairsOfGroups<144> {
    static constexpr uint32_t ALIGNMENT = 16;
    static constexpr Minimums MINIMUMS = MINIMUMS_OF_32;
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
};

struct PartQ5_K : PairsOfGroups<176> {
    static constexpr uint32_t ALIGNMENT = 16;
    static constexpr Minimums MINIMUMS = MINIMUMS_OF_32;
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
};

struct PartIQ4_XS : PairsOfGroups<136> {
    static constexpr uint32_t ALIGNMENT = 8;
    static constexpr Minimums MINIMUMS = NO_MINIMUMS;
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
};

// Formats with blocks of 256 in groups of 16: a lane decodes one of two halves of four groups of 32, which lie at the same bytes.
template <uint32_t BYTES>
struct HalvesOfGroups {
    static constexpr uint32_t CHUNK_BYTES = 2 * BYTES, CHUNK_COLUMNS = 2 * 256;
    static constexpr uint32_t UNITS = 1, GROUPS = 4, WORDS = 4;
    typedef Unit<GROUPS, WORDS> LaneUnit;
    static DEVICE uint32_t column(uint32_t row_lane, uint32_t) { return 128 * (row_lane / 2) + 16 * (row_lane % 2); }
    static DEVICE uint32_t offset(uint32_t row_lane, uint32_t) { return BYTES * (row_lane / 4); }
};

struct PartQ2_K : HalvesOfGroups<84> {
    static constexpr uint32_t ALIGNMENT = 4;
    static constexpr Minimums MINIMUMS = MINIMUMS_OF_16;
    static FORCE_INLINE_DEVICE void decode(const uint32_t* words, uint32_t offset, uint32_t row_lane, LaneUnit& unit) {
        const uint32_t side = row_lane / 2 % 2, half = row_lane % 2;
        const uint32_t* two_bits = words + (offset + 16 + 32 * side + 16 * half) / 4;
        const uint32_t* scale_words = words + (offset + 8 * side) / 4;
        const Float2 both = half2_to_float2(words[(offset + 80) / 4]);
#pragma unroll
        for (uint32_t g = 0; g < 4; g++) {
            const uint32_t scales = scale_words[g / 2] >> (16 * (g % 2) + 8 * half);
            unit.factors[g] = both.x * (float)(scales & 15u);
            unit.minimums[g] = both.y * (float)(scales >> 4 & 15u);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) unit.quants[g][i] = two_bits[i] >> 2 * g & 0x03030303u;
        }
    }
};

struct PartQ3_K : HalvesOfGroups<110> {
    static constexpr uint32_t ALIGNMENT = 2;
    static constexpr Minimums MINIMUMS = NO_MINIMUMS;
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
                unit.quants[g][i] = minus_bytes((two_bits[i] >> 2 * g & 0x03030303u) | third << 2, 0x04040404u);
            }
        }
    }
};

struct PartQ6_K : HalvesOfGroups<210> {
    static constexpr uint32_t ALIGNMENT = 2;
    static constexpr Minimums MINIMUMS = NO_MINIMUMS;
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
                unit.quants[g][i] = minus_bytes(lower | (upper & 0x30303030u), 0x20202020u);
            }
        }
    }
};

// --- Multiplication of parts --------------------------------------------------------------------------------------------

// The rows of activations of a product, so few that numbers of elements have 32 bits. Those after the last are the last again, so
// that nothing else is read.
struct ProductInput {
    const int8_t* quants;
    const float* scales;
    const float* sums;
    const Bf16Bits* bf16;
    uint32_t width;
    uint32_t n_rows;
    DEVICE uint32_t row(uint32_t r) const { return smaller(r, n_rows - 1); }
};

FORCE_INLINE_DEVICE ProductInput product_input(const QuantizedRows& rows, uint32_t first, uint32_t n_rows) {
    const uint64_t elements = (uint64_t)first * rows.width, blocks = (uint64_t)first * (rows.width / SCALE_ELEMENTS);
    return {rows.quants + elements, rows.scales + blocks, rows.sums + blocks, rows.bf16 + elements, rows.width, n_rows};
}

template <uint32_t N>
FORCE_INLINE_DEVICE void load_floats(const float* from, float (&to)[N]) {
    if (N == 4) {
        const Float4 four = *(const Float4*)from;
        to[0] = four.x, to[1 % N] = four.y, to[2 % N] = four.z, to[3 % N] = four.w;
    } else if (N == 2) {
        const Float2 two = *(const Float2*)from;
        to[0] = two.x, to[1 % N] = two.y;
    } else {
        to[0] = from[0];
    }
}

// Adds the products of units of R rows of weights, which start at a column, with one row of activations.
template <class Part, uint32_t R, uint32_t ROWS>
FORCE_INLINE_DEVICE void multiply_row(const typename Part::LaneUnit (&units)[R], const ProductInput& input, uint32_t row,
                                      uint32_t column, float (&sums)[R][ROWS], uint32_t to) {
    constexpr uint32_t GROUPS = Part::GROUPS, WORDS = Part::WORDS;
    const uint32_t block = row * (input.width / SCALE_ELEMENTS) + column / SCALE_ELEMENTS;
    const Uint4* from = (const Uint4*)(input.quants + (block * SCALE_ELEMENTS + column % SCALE_ELEMENTS));
    float scales[GROUPS], block_sums[GROUPS];
    load_floats(input.scales + block, scales);
    if (Part::MINIMUMS == MINIMUMS_OF_32) load_floats(input.sums + block, block_sums);
#pragma unroll
    for (uint32_t g = 0; g < GROUPS; g++) {
        uint32_t quants[WORDS];
#pragma unroll
        for (uint32_t i = 0; i < WORDS / 4; i++) {
            const Uint4 four = from[2 * g + i];
            quants[4 * i] = four.x, quants[4 * i + 1] = four.y, quants[4 * i + 2] = four.z, quants[4 * i + 3] = four.w;
        }
        int quant_sum = 0;
        if (Part::MINIMUMS == MINIMUMS_OF_16) {
#pragma unroll
            for (uint32_t i = 0; i < WORDS; i++) quant_sum = dot4(0x01010101, (int)quants[i], quant_sum);
        }
#pragma unroll
        for (uint32_t w = 0; w < R; w++) {
            int dot = 0;
#pragma unroll
            for (uint32_t i = 0; i < WORDS; i++) dot = dot4((int)units[w].quants[g][i], (int)quants[i], dot);
            float product = units[w].factors[g] * (float)dot;
            if (Part::MINIMUMS == MINIMUMS_OF_16) product -= units[w].minimums[g] * (float)quant_sum;
            sums[w][to] += scales[g] * product;
            if (Part::MINIMUMS == MINIMUMS_OF_32) sums[w][to] -= units[w].minimums[g] * block_sums[g];
        }
    }
}

// Calls `work(row, to)` for all rows of activations, where `to` is the place of the row's sums. Two rows at a time, or the compiler
// would load so much ahead that registers run out: the sums go round instead of being indexed.
template <uint32_t R, uint32_t ROWS, class Work>
FORCE_INLINE_DEVICE void for_each_row(const ProductInput& input, float (&sums)[R][ROWS], Work work) {
    constexpr uint32_t PAIR = ROWS < 2 ? 1 : 2;
#pragma unroll 1
    for (uint32_t first = 0; first < ROWS; first += PAIR) {
#pragma unroll
        for (uint32_t r = 0; r < PAIR; r++) work(ROWS == 1 ? 0 : input.row(first + r), r);
        if (ROWS > PAIR) {
#pragma unroll
            for (uint32_t w = 0; w < R; w++) {
                const float kept[2] = {sums[w][0], sums[w][1 % ROWS]};
#pragma unroll
                for (uint32_t i = 0; i + PAIR < ROWS; i++) sums[w][i] = sums[w][i + PAIR];
                sums[w][ROWS - PAIR] = kept[0], sums[w][ROWS - 1] = kept[PAIR - 1];
            }
        }
    }
}

// Multiplies a lane's part of chunks of R rows of weights. `offsets` are those of the chunks in shared memory.
template <class Part, uint32_t R, uint32_t ROWS>
FORCE_INLINE_DEVICE void multiply_chunks(const uint32_t* words, const uint32_t (&offsets)[R], uint32_t row_lane, uint32_t chunk,
                                         uint32_t n_columns, const ProductInput& input, float (&sums)[R][ROWS]) {
#pragma unroll
    for (uint32_t u = 0; u < Part::UNITS; u++) {
        const uint32_t column = chunk * Part::CHUNK_COLUMNS + Part::column(row_lane, u);
        if (column >= n_columns) continue;
        typename Part::LaneUnit units[R];
#pragma unroll
        for (uint32_t w = 0; w < R; w++) Part::decode(words, offsets[w] + Part::offset(row_lane, u), row_lane, units[w]);
        for_each_row(input, sums, [&](uint32_t row, uint32_t to) {
            multiply_row<Part, R, ROWS>(units, input, row, column, sums, to);
        });
    }
}

// --- Floats -------------------------------------------------------------------------------------------------------------

// Weights that are floats of some kind: a lane takes eight neighbouring columns at a time.
template <uint32_t BYTES>
struct Floats {
    static constexpr uint32_t ALIGNMENT = BYTES;
    static constexpr uint32_t CHUNK_BYTES = 256, CHUNK_COLUMNS = 256 / BYTES;
    static constexpr uint32_t UNITS = CHUNK_COLUMNS / (8 * ROW_LANES);
};

FORCE_INLINE_DEVICE void floats_of_bf16(const Uint4& bits, float (&to)[8]) {
    const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        to[2 * i] = float_of_bits(words[i] << 16);
        to[2 * i + 1] = float_of_bits(words[i] & 0xffff0000u);
    }
}

struct PartBF16 : Floats<2> {
    static FORCE_INLINE_DEVICE void eight(const uint32_t* words, uint32_t offset, float (&to)[8]) {
        floats_of_bf16(((const Uint4*)words)[offset / 16], to);
    }
    static FORCE_INLINE_DEVICE float one(const uint32_t* words, uint32_t offset) {
        return bf16_to_float((Bf16Bits)load_half(words, offset));
    }
};

struct PartF16 : Floats<2> {
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
};

struct PartF32 : Floats<4> {
    static FORCE_INLINE_DEVICE void eight(const uint32_t* words, uint32_t offset, float (&to)[8]) {
        uint32_t bits[8];
        load_four(words, offset, bits);
        load_four(words, offset + 16, bits + 4);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) to[i] = float_of_bits(bits[i]);
    }
    static FORCE_INLINE_DEVICE float one(const uint32_t* words, uint32_t offset) { return float_of_bits(words[offset / 4]); }
};

template <class Part, uint32_t R, uint32_t ROWS>
FORCE_INLINE_DEVICE void multiply_floats(const uint32_t* words, const uint32_t (&offsets)[R], uint32_t row_lane, uint32_t chunk,
                                         const Matrix& matrix, const ProductInput& input, float (&sums)[R][ROWS]) {
    const uint32_t n_columns = matrix.n_columns;
    const bool is_aligned = (n_columns | input.width) % 8 == 0 && matrix.row_bytes % 16 == 0;
#pragma unroll
    for (uint32_t u = 0; u < Part::UNITS; u++) {
        const uint32_t place = 8 * (row_lane + ROW_LANES * u);
        const uint32_t column = chunk * Part::CHUNK_COLUMNS + place;
        if (column >= n_columns) continue;
        if (!is_aligned) {
            for (uint32_t i = 0; i < smaller(8u, n_columns - column); i++) {
#pragma unroll
                for (uint32_t r = 0; r < ROWS; r++) {
                    const float x = bf16_to_float(input.bf16[input.row(r) * input.width + column + i]);
#pragma unroll
                    for (uint32_t w = 0; w < R; w++) {
                        sums[w][r] += Part::one(words, offsets[w] + (place + i) * Part::ALIGNMENT) * x;
                    }
                }
            }
            continue;
        }
        float weights[R][8];
#pragma unroll
        for (uint32_t w = 0; w < R; w++) Part::eight(words, offsets[w] + place * Part::ALIGNMENT, weights[w]);
        for_each_row(input, sums, [&](uint32_t row, uint32_t to) {
            float x[8];
            floats_of_bf16(*(const Uint4*)(input.bf16 + (row * input.width + column)), x);
#pragma unroll
            for (uint32_t w = 0; w < R; w++) {
#pragma unroll
                for (uint32_t i = 0; i < 8; i++) sums[w][to] += weights[w][i] * x[i];
            }
        });
    }
}

template <class Part>
struct IsFloats {
    static constexpr bool VALUE = false;
};
template <>
struct IsFloats<PartBF16> {
    static constexpr bool VALUE = true;
};
template <>
struct IsFloats<PartF16> {
    static constexpr bool VALUE = true;
};
template <>
struct IsFloats<PartF32> {
    static constexpr bool VALUE = true;
};

// --- Chunks on their way ------------------------------------------------------------------------------------------------

// Rows of weights for each group of lanes, so that every activation that is read serves two of them, and chunks under way.
template <class Part>
struct Shape {
    static constexpr uint32_t R = 2;
    static constexpr uint32_t STAGES = 3;
    // A chunk in shared memory begins as far from a multiple of 16 as it does in global memory.
    static constexpr uint32_t CHUNK_LINES = (Part::CHUNK_BYTES + 15) / 16 + (Part::ALIGNMENT % 16 == 0 ? 0 : 1);
    static constexpr uint32_t STAGE_LINES = WARP_ROWS * R * CHUNK_LINES;
    static constexpr uint32_t WARP_LINES = STAGES * STAGE_LINES;
    static constexpr uint32_t BLOCK_LINES = PRODUCT_WARPS * WARP_LINES;
};


// A row of weights, and where its matrix ends.
struct WeightRow {
    const uint8_t* data;
    const uint8_t* end;
};

// Copies bytes [first, first + n_bytes) of a row, and their neighbours up to multiples of 16. The matrix begins at such a
// multiple; what lies after its end is not read.
template <class Part>
FORCE_INLINE_DEVICE void copy_chunk(const WeightRow& row, uint64_t first, uint32_t n_bytes, uint32_t row_lane, Uint4* to) {
    constexpr uint32_t LINES = (Part::CHUNK_BYTES + 15) / 16 + (Part::ALIGNMENT % 16 == 0 ? 0 : 1);
    const uint8_t* begin = row.data + first;
    const uint32_t before = Part::ALIGNMENT % 16 == 0 ? 0 : (uint32_t)((uintptr_t)begin % 16);
    const uint8_t* from = begin - before;
    const uint32_t length = before + n_bytes;
#pragma unroll
    for (uint32_t first_line = 0; first_line < LINES; first_line += ROW_LANES) {
        const uint32_t line = first_line + row_lane;
        if (16 * line >= length) continue;
        const uint8_t* bytes = from + 16 * line;
        if (Part::ALIGNMENT % 16 == 0 || bytes + 16 <= row.end) {
            async_copy16(to + line, bytes);
        } else {
            for (uint32_t i = 0; bytes + i < row.end; i++) ((uint8_t*)(to + line))[i] = bytes[i];
        }
    }
}

// --- Products -----------------------------------------------------------------------------------------------------------

// A product: the rows of all outputs, and an expert's matrices among those that lie one after the other.
struct Product {
    const ProductOutput* outputs;
    const uint64_t* matrix_bytes; // null without experts
    uint64_t expert;
    ProductInput input;
    uint32_t n_outputs;
    uint32_t n_out;
    uint32_t first_row;           // the outputs' first row that is written
};

FORCE_INLINE_DEVICE const ProductOutput& output_of(const Product& product, uint32_t row) {
    uint32_t index = 0;
    for (uint32_t i = 1; i < product.n_outputs; i++) {
        if (row >= product.outputs[i].first_row) index = i;
    }
    return product.outputs[index];
}

FORCE_INLINE_DEVICE WeightRow weight_row(const Product& product, uint32_t row) {
    const ProductOutput& output = output_of(product, row);
    const uint8_t* data = output.matrix.data;
    if (product.matrix_bytes) data += product.expert * product.matrix_bytes[&output - product.outputs];
    return {data + (uint64_t)(row - output.first_row) * output.matrix.row_bytes,
            data + (uint64_t)output.matrix.n_rows * output.matrix.row_bytes};
}

FORCE_INLINE_DEVICE void write_product(const Product& product, uint32_t row, uint32_t r, float value) {
    const ProductOutput& output = output_of(product, row);
    float* to = output.to.data + (uint64_t)(product.first_row + r) * output.to.stride + (row - output.first_row);
    *to = output.add ? *to + value : value;
}

// Sums N values over eight lanes. Lanes divide the values as long as there are several: value i of a lane is afterwards the sum
// of value first + i, for i < the returned number.
template <uint32_t N>
FORCE_INLINE_DEVICE uint32_t sum_over_lanes(float (&values)[N], uint32_t row_lane, uint32_t& first) {
    uint32_t n = N;
    first = 0;
#pragma unroll
    for (uint32_t mask = ROW_LANES / 2; mask > 0; mask /= 2) {
        if (n == 1) {
            values[0] += shuffle_xor(values[0], mask * WARP_ROWS);
            continue;
        }
        n /= 2;
        const bool is_upper = (row_lane & mask) != 0;
        if (is_upper) first += n;
#pragma unroll
        for (uint32_t i = 0; 2 * i < N; i++) {
            if (i >= n) break;
            const float given = is_upper ? values[i] : values[i + n];
            values[i] = (is_upper ? values[i + n] : values[i]) + shuffle_xor(given, mask * WARP_ROWS);
        }
    }
    return n;
}

// The chunks of a warp, one after the other: those of its rows that are its share, then those of its next rows. They are asked for
// long before they are used, so that memory is never idle.
template <class Part>
struct Chunks {
    typedef Shape<Part> S;
    Uint4* stages;
    WeightRow rows[S::R];  // those of the next chunk that is asked for
    uint32_t row, chunk;   // likewise
    uint32_t asked, used;  // the next stages
    uint32_t n_chunks, first_chunk, step;
    uint32_t last_bytes;   // the length of the last chunk of a row

    FORCE_INLINE_DEVICE void find_rows(const Product& product) {
#pragma unroll
        for (uint32_t w = 0; w < S::R; w++) {
            rows[w] = weight_row(product, smaller(row + w * WARP_ROWS + row_group(), product.n_out - 1));
        }
    }

    FORCE_INLINE_DEVICE uint32_t line(uint32_t stage, uint32_t w) const {
        return stage * S::STAGE_LINES + (w * WARP_ROWS + row_group()) * S::CHUNK_LINES;
    }

    // Asks for the next chunk. `row_step` is the distance to the warp's next rows.
    FORCE_INLINE_DEVICE void ask(const Product& product, uint32_t row_step) {
        if (row < product.n_out) {
            const uint32_t n_bytes = chunk + 1 < n_chunks ? Part::CHUNK_BYTES : last_bytes;
#pragma unroll
            for (uint32_t w = 0; w < S::R; w++) {
                copy_chunk<Part>(rows[w], (uint64_t)chunk * Part::CHUNK_BYTES, n_bytes, lane_in_row(), stages + line(asked, w));
            }
            chunk += step;
            if (chunk >= n_chunks) {
                chunk = first_chunk;
                row += row_step;
                if (row < product.n_out) find_rows(product);
            }
        }
        async_commit();
        asked = asked + 1 == S::STAGES ? 0 : asked + 1;
    }
};

// Adds the products of a warp's share of its rows, which begin at `row`.
template <class Part, uint32_t ROWS>
FORCE_INLINE_DEVICE void sum_chunks(const Product& product, Chunks<Part>& chunks, uint32_t row, uint32_t row_step,
                                    float (&sums)[Shape<Part>::R][ROWS]) {
    typedef Shape<Part> S;
    uint32_t phases[S::R];
#pragma unroll
    for (uint32_t w = 0; w < S::R; w++) {
        const uint32_t of_group = smaller(row + w * WARP_ROWS + row_group(), product.n_out - 1);
        phases[w] = Part::ALIGNMENT % 16 == 0 ? 0 : (uint32_t)(uintptr_t)weight_row(product, of_group).data;
    }
    for (uint32_t chunk = chunks.first_chunk; chunk < chunks.n_chunks; chunk += chunks.step) {
        async_wait(S::STAGES - 2);
        sync_warp(); // all lanes' copies are there, and the stage before is no longer read
        chunks.ask(product, row_step);
        uint32_t offsets[S::R];
#pragma unroll
        for (uint32_t w = 0; w < S::R; w++) {
            offsets[w] = 16 * chunks.line(chunks.used, w) + (phases[w] + chunk * Part::CHUNK_BYTES) % 16 * (Part::ALIGNMENT % 16 != 0);
        }
        const uint32_t* words = (const uint32_t*)chunks.stages;
        if constexpr (IsFloats<Part>::VALUE) {
            multiply_floats<Part>(words, offsets, lane_in_row(), chunk, product.outputs[0].matrix, product.input, sums);
        } else {
            multiply_chunks<Part>(words, offsets, lane_in_row(), chunk, product.outputs[0].matrix.n_columns, product.input, sums);
        }
        chunks.used = chunks.used + 1 == S::STAGES ? 0 : chunks.used + 1;
    }
}

// Adds up the partial sums of the warps that share rows, and writes them.
template <uint32_t OUT, uint32_t ROWS>
FORCE_INLINE_DEVICE void write_sums(const Product& product, uint32_t first, uint32_t n_sharing, const float* partials) {
    constexpr uint32_t VALUES = OUT * ROWS;
    for (uint32_t i = thread_id(); i < PRODUCT_WARPS / n_sharing * VALUES; i += PRODUCT_THREADS) {
        const uint32_t team = i / VALUES, value = i % VALUES, r = value / OUT, row = first + team * OUT + value % OUT;
        if (row >= product.n_out || r >= product.input.n_rows) continue;
        float sum = 0.0f;
        for (uint32_t share = 0; share < n_sharing; share++) sum += partials[(team * n_sharing + share) * VALUES + value];
        write_product(product, row, r, sum);
    }
}

// All rows of the product that are this block's, for up to ROWS rows of activations.
template <class Part, uint32_t ROWS>
FORCE_INLINE_DEVICE void multiply_rows(const Product& product, Uint4* stages, float* partials) {
    typedef Shape<Part> S;
    constexpr uint32_t OUT = WARP_ROWS * S::R, VALUES = OUT * ROWS;
    const Matrix& matrix = product.outputs[0].matrix;
    const uint32_t n_chunks = (matrix.n_columns + Part::CHUNK_COLUMNS - 1) / Part::CHUNK_COLUMNS;
    const uint32_t n_sharing = n_chunks >= 4 ? 4 : n_chunks >= 2 ? 2 : 1; // so that the order of sums depends on nothing else
    const uint32_t block_out = OUT * (PRODUCT_WARPS / n_sharing), row_step = grid_x() * block_out;
    const uint32_t before = warp() / n_sharing * OUT; // the block's rows before those of the warp
    Chunks<Part> chunks;
    chunks.stages = stages + warp() * S::WARP_LINES;
    chunks.row = block_x() * block_out + before;
    chunks.n_chunks = n_chunks;
    chunks.chunk = chunks.first_chunk = warp() % n_sharing;
    chunks.step = n_sharing;
    chunks.asked = chunks.used = 0;
    chunks.last_bytes = (uint32_t)(matrix.row_bytes - (uint64_t)(n_chunks - 1) * Part::CHUNK_BYTES);
    chunks.find_rows(product);
#pragma unroll
    for (uint32_t i = 0; i + 1 < S::STAGES; i++) chunks.ask(product, row_step);
    uint32_t place = 0; // partial sums lie at one place while those before, at the other, are added up
    for (uint32_t first = block_x() * block_out; first < product.n_out; first += row_step) {
        float sums[S::R][ROWS] = {};
        // Of a warp that has no rows, only the others of its block do, the chunks were not asked for.
        if (first + before < product.n_out) sum_chunks<Part, ROWS>(product, chunks, first + before, row_step, sums);
        float values[S::R * ROWS];
#pragma unroll
        for (uint32_t i = 0; i < S::R * ROWS; i++) values[i] = sums[i / ROWS][i % ROWS];
        uint32_t first_value;
        const uint32_t n_values = sum_over_lanes(values, lane_in_row(), first_value);
        float* to = partials + place * PRODUCT_PARTIALS;
#pragma unroll
        for (uint32_t i = 0; i < S::R * ROWS; i++) {
            if (i >= n_values) break;
            const uint32_t w = (first_value + i) / ROWS, r = (first_value + i) % ROWS;
            to[warp() * VALUES + r * OUT + w * WARP_ROWS + row_group()] = values[i];
        }
        sync_block();
        write_sums<OUT, ROWS>(product, first, n_sharing, to);
        place = 1 - place;
    }
    async_wait(0);
}

template <class Part>
FORCE_INLINE_DEVICE void multiply_few_rows(const Product& product, Uint4* stages, float* partials) {
    const uint32_t n_rows = product.input.n_rows;
    if (n_rows == 1) {
        multiply_rows<Part, 1>(product, stages, partials);
    } else if (n_rows == 2) {
        multiply_rows<Part, 2>(product, stages, partials);
    } else if (n_rows <= 4) {
        multiply_rows<Part, 4>(product, stages, partials);
    } else {
        multiply_rows<Part, 8>(product, stages, partials);
    }
}

template <class Part>
FORCE_INLINE_DEVICE void product_kernel(const ProductArguments& arguments, Uint4* stages, float* partials) {
    if (arguments.n_rows == 0) return;
    const ProductInput input = product_input(arguments.input, arguments.first_input, arguments.n_rows);
    const Product product = {arguments.outputs, nullptr, 0, input, arguments.n_outputs, arguments.n_out, arguments.first_input};
    multiply_few_rows<Part>(product, stages, partials);
}

template <class Part>
FORCE_INLINE_DEVICE void expert_product_kernel(const ExpertProductArguments& arguments, Uint4* stages, float* partials) {
    if (block_y() >= *arguments.routes.n_tiles) return;
    const uint32_t* tile = arguments.routes.tiles + 3 * block_y();
    const uint32_t expert = tile[0], first_rank = tile[1], n_ranks = tile[2];
    const ProductInput input = product_input(arguments.input, first_rank, n_ranks);
    const Product product = {arguments.outputs, arguments.matrix_bytes, expert, input, arguments.n_outputs, arguments.n_out, first_rank};
    multiply_few_rows<Part>(product, stages, partials);
}

#define PRODUCT_KERNELS(name, Part) \
    KERNEL_BOUNDS(product_##name, ProductArguments, PRODUCT_THREADS, 4) { \
        SHARED(Uint4, stages, Shape<Part>::BLOCK_LINES); \
        SHARED(float, partials, 2 * PRODUCT_PARTIALS); \
        product_kernel<Part>(arguments, stages, partials); \
    } \
    KERNEL_BOUNDS(expert_product_##name, ExpertProductArguments, PRODUCT_THREADS, 4) { \
        SHARED(Uint4, stages, Shape<Part>::BLOCK_LINES); \
        SHARED(float, partials, 2 * PRODUCT_PARTIALS); \
        expert_product_kernel<Part>(arguments, stages, partials); \
    }

PRODUCT_KERNELS(f32, PartF32)
PRODUCT_KERNELS(f16, PartF16)
PRODUCT_KERNELS(bf16, PartBF16)
PRODUCT_KERNELS(q4_0, PartQ4_0)
PRODUCT_KERNELS(q4_1, PartQ4_1)
PRODUCT_KERNELS(q5_0, PartQ5_0)
PRODUCT_KERNELS(q5_1, PartQ5_1)
PRODUCT_KERNELS(q8_0, PartQ8_0)
PRODUCT_KERNELS(q2_k, PartQ2_K)
PRODUCT_KERNELS(q3_k, PartQ3_K)
PRODUCT_KERNELS(q4_k, PartQ4_K)
PRODUCT_KERNELS(q5_k, PartQ5_K)
PRODUCT_KERNELS(q6_k, PartQ6_K)
PRODUCT_KERNELS(iq4_nl, PartIQ4_NL)
PRODUCT_KERNELS(iq4_xs, PartIQ4_XS)
PRODUCT_KERNELS(mxfp4, PartMXFP4)

// --- Dequantization -----------------------------------------------------------------------------------------------------

FORCE_INLINE_DEVICE uint32_t two_bf16(float first, float second) {
    return float_to_bf16(first) | (uint32_t)float_to_bf16(second) << 16;
}

// Block x does rows x, x + grid, ...; a thread does eight columns at a time.
template <class Format>
FORCE_INLINE_DEVICE void dequantize_rows(const DequantizeArguments& arguments) {
    const Matrix& matrix = arguments.matrix;
    for (uint32_t row = block_x(); row < arguments.n_rows; row += grid_x()) {
        const uint8_t* from = matrix.data + (uint64_t)(arguments.first_row + row) * matrix.row_bytes;
        Bf16Bits* to = arguments.to + (uint64_t)row * matrix.n_columns;
        for (uint32_t column = 8 * thread_id(); column < matrix.n_columns; column += 8 * n_threads()) {
            float x[8];
            eight_of<Format>(from, column, x);
            *(Uint4*)(to + column) = {two_bf16(x[0], x[1]), two_bf16(x[2], x[3]), two_bf16(x[4], x[5]), two_bf16(x[6], x[7])};
        }
    }
}

// Rows of floats may have any number of columns, so that they are not aligned; then one element at a time.
template <class Format, class Part>
FORCE_INLINE_DEVICE void convert_rows(const DequantizeArguments& arguments) {
    const Matrix& matrix = arguments.matrix;
    const bool is_aligned = matrix.n_columns % 8 == 0 && matrix.row_bytes % 16 == 0;
    for (uint32_t row = block_x(); row < arguments.n_rows; row += grid_x()) {
        const uint8_t* from = matrix.data + (uint64_t)(arguments.first_row + row) * matrix.row_bytes;
        Bf16Bits* to = arguments.to + (uint64_t)row * matrix.n_columns;
        if (is_aligned) {
            for (uint32_t column = 8 * thread_id(); column < matrix.n_columns; column += 8 * n_threads()) {
                float x[8];
                Part::eight((const uint32_t*)from, column * Part::ALIGNMENT, x);
                *(Uint4*)(to + column) = {two_bf16(x[0], x[1]), two_bf16(x[2], x[3]), two_bf16(x[4], x[5]), two_bf16(x[6], x[7])};
            }
        } else {
            for (uint32_t column = thread_id(); column < matrix.n_columns; column += n_threads()) {
                to[column] = float_to_bf16(Format::element(from, column));
            }
        }
    }
}

KERNEL_BOUNDS(dequantize_to_bf16, DequantizeArguments, 256, 4) {
    switch (arguments.matrix.type) {
    case TYPE_F32: return convert_rows<FormatF32, PartF32>(arguments);
    case TYPE_F16: return convert_rows<FormatF16, PartF16>(arguments);
    case TYPE_BF16: return convert_rows<FormatBF16, PartBF16>(arguments);
    case TYPE_Q4_0: return dequantize_rows<FormatQ4_0>(arguments);
    case TYPE_Q4_1: return dequantize_rows<FormatQ4_1>(arguments);
    case TYPE_Q5_0: return dequantize_rows<FormatQ5_0>(arguments);
    case TYPE_Q5_1: return dequantize_rows<FormatQ5_1>(arguments);
    case TYPE_Q8_0: return dequantize_rows<FormatQ8_0>(arguments);
    case TYPE_Q2_K: return dequantize_rows<FormatQ2_K>(arguments);
    case TYPE_Q3_K: return dequantize_rows<FormatQ3_K>(arguments);
    case TYPE_Q4_K: return dequantize_rows<FormatQ4_K>(arguments);
    case TYPE_Q5_K: return dequantize_rows<FormatQ5_K>(arguments);
    case TYPE_Q6_K: return dequantize_rows<FormatQ6_K>(arguments);
    case TYPE_IQ4_NL: return dequantize_rows<FormatIQ4_NL>(arguments);
    case TYPE_IQ4_XS: return dequantize_rows<FormatIQ4_XS>(arguments);
    case TYPE_MXFP4: return dequantize_rows<FormatMXFP4>(arguments);
    default: return;
    }
}

// --- Products of bf16 with many rows ------------------------------------------------------------------------------------

// A block computes 64 rows of the result for 128 rows of weights, with four warps of 64 x 32; grid (n_out / 128, n_rows / 64).
#define MATMUL_THREADS 128
#define MATMUL_ROWS 64
#define MATMUL_OUT 128
#define MATMUL_COLUMNS 32
#define MATMUL_STAGES 3
// Words of a row of a tile: 16 with elements, and 4 so that the rows that a warp reads at once lie in different banks.
#define MATMUL_ROW_WORDS 20
#define MATMUL_STAGE_WORDS ((MATMUL_ROWS + MATMUL_OUT) * MATMUL_ROW_WORDS)

FORCE_INLINE_DEVICE void write_matmul(const MatmulArguments& arguments, uint32_t row, uint32_t out, float value) {
    if (row >= arguments.n_rows || out >= arguments.n_out) return;
    float* to = arguments.to + (uint64_t)row * arguments.to_stride + out;
    *to = arguments.add ? *to + value : value;
}

#ifdef HAS_MMA
// Asks for 32 columns of all rows of a tile. Rows after the last are the last again; columns after the last are zeros.
FORCE_INLINE_DEVICE void copy_matmul_tile(const MatmulArguments& arguments, uint32_t first_column, uint32_t* stage) {
    constexpr uint32_t ROW_LINES = MATMUL_COLUMNS / 8, LINES = (MATMUL_ROWS + MATMUL_OUT) * ROW_LINES;
#pragma unroll
    for (uint32_t first = 0; first < LINES; first += MATMUL_THREADS) {
        const uint32_t line = first + thread_id(), row = line / ROW_LINES, column = first_column + line % ROW_LINES * 8;
        uint32_t* to = stage + row * MATMUL_ROW_WORDS + line % ROW_LINES * 4;
        if (column >= arguments.n_columns) {
            *(Uint4*)to = {0, 0, 0, 0};
        } else if (row < MATMUL_ROWS) {
            const uint32_t from = smaller(block_y() * MATMUL_ROWS + row, arguments.n_rows - 1);
            async_copy16(to, arguments.input + (uint64_t)from * arguments.input_stride + column);
        } else {
            const uint32_t from = smaller(block_x() * MATMUL_OUT + row - MATMUL_ROWS, arguments.n_out - 1);
            async_copy16(to, arguments.weights + (uint64_t)from * arguments.weights_stride + column);
        }
    }
}

FORCE_INLINE_DEVICE void multiply_matmul_tile(const uint32_t* stage, float (&sums)[4][4][4]) {
    const uint32_t row = lane() / 4, pair = lane() % 4;
    const uint32_t* input = stage + row * MATMUL_ROW_WORDS + pair;
    const uint32_t* weights = stage + (MATMUL_ROWS + warp() * 32 + row) * MATMUL_ROW_WORDS + pair;
#pragma unroll
    for (uint32_t k = 0; k < MATMUL_COLUMNS / 2; k += 8) {
        uint32_t a[4][4], b[4][2];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t* from = input + 16 * i * MATMUL_ROW_WORDS + k;
            a[i][0] = from[0], a[i][1] = from[8 * MATMUL_ROW_WORDS], a[i][2] = from[4], a[i][3] = from[8 * MATMUL_ROW_WORDS + 4];
            b[i][0] = weights[8 * i * MATMUL_ROW_WORDS + k], b[i][1] = weights[8 * i * MATMUL_ROW_WORDS + k + 4];
        }
#pragma unroll
        for (uint32_t i = 0; i < 16; i++) mma_bf16(sums[i / 4][i % 4], a[i / 4], b[i % 4]);
    }
}

KERNEL_BOUNDS(matmul_bf16, MatmulArguments, MATMUL_THREADS, 3) {
    SHARED(uint32_t, stages, MATMUL_STAGES * MATMUL_STAGE_WORDS);
    float sums[4][4][4] = {};
    const uint32_t n_tiles = (arguments.n_columns + MATMUL_COLUMNS - 1) / MATMUL_COLUMNS;
    for (uint32_t tile = 0; tile < MATMUL_STAGES - 1; tile++) {
        if (tile < n_tiles) copy_matmul_tile(arguments, tile * MATMUL_COLUMNS, stages + tile * MATMUL_STAGE_WORDS);
        async_commit();
    }
    uint32_t stage = 0, next_stage = MATMUL_STAGES - 1;
    for (uint32_t tile = 0; tile < n_tiles; tile++) {
        async_wait(MATMUL_STAGES - 2);
        sync_block(); // all threads' copies are there, and the tile before is no longer read
        const uint32_t next = tile + MATMUL_STAGES - 1;
        if (next < n_tiles) copy_matmul_tile(arguments, next * MATMUL_COLUMNS, stages + next_stage * MATMUL_STAGE_WORDS);
        async_commit();
        multiply_matmul_tile(stages + stage * MATMUL_STAGE_WORDS, sums);
        stage = stage + 1 == MATMUL_STAGES ? 0 : stage + 1;
        next_stage = next_stage + 1 == MATMUL_STAGES ? 0 : next_stage + 1;
    }
    async_wait(0);
    const uint32_t row = block_y() * MATMUL_ROWS + lane() / 4, out = block_x() * MATMUL_OUT + warp() * 32 + lane() % 4 * 2;
#pragma unroll
    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t part = i % 4;
        write_matmul(arguments, row + i / 16 * 16 + part / 2 * 8, out + i / 4 % 4 * 8 + part % 2, sums[i / 16][i / 4 % 4][part]);
    }
}
#else
// Without tensor cores: a thread computes elements of one row of weights.
KERNEL_BOUNDS(matmul_bf16, MatmulArguments, MATMUL_THREADS, 3) {
    const uint32_t out = block_x() * MATMUL_OUT + thread_id();
    if (out >= arguments.n_out) return;
    const Bf16Bits* weights = arguments.weights + (uint64_t)out * arguments.weights_stride;
    const uint32_t first = block_y() * MATMUL_ROWS, end = smaller(first + MATMUL_ROWS, arguments.n_rows);
    for (uint32_t row = first; row < end; row++) {
        const Bf16Bits* input = arguments.input + (uint64_t)row * arguments.input_stride;
        float sum = 0.0f;
        for (uint32_t column = 0; column < arguments.n_columns; column += 8) {
            float w[8], x[8];
            floats_of_bf16(*(const Uint4*)(weights + column), w);
            floats_of_bf16(*(const Uint4*)(input + column), x);
#pragma unroll
            for (uint32_t i = 0; i < 8; i++) sum += w[i] * x[i];
        }
        write_matmul(arguments, row, out, sum);
    }
}
#endif

// --- Routes -------------------------------------------------------------------------------------------------------------

// Choices are divided into runs, one for each warp; PLAN_COUNTS is the room for the numbers of choices by expert and run.
#define PLAN_THREADS 1024
#define PLAN_COUNTS 8192

// The sum of the values of the threads before this one. `sums` has room for a number for each warp and one more; there, the last
// is the sum of all.
FORCE_INLINE_DEVICE uint32_t sum_before(uint32_t value, uint32_t* sums) {
    uint32_t sum = value;
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        const uint32_t other = shuffle(sum, lane() >= distance ? lane() - distance : lane());
        if (lane() >= distance) sum += other;
    }
    if (lane() == 31) sums[warp()] = sum;
    sync_block();
    if (thread_id() == 0) {
        uint32_t all = 0;
        for (uint32_t i = 0; i < n_threads() / 32; i++) {
            const uint32_t of_warp = sums[i];
            sums[i] = all;
            all += of_warp;
        }
        sums[n_threads() / 32] = all;
    }
    sync_block();
    const uint32_t before = sums[warp()] + sum - value;
    return before;
}

// Replaces numbers by the sums of those before them.
FORCE_INLINE_DEVICE void sum_all_before(uint32_t* numbers, uint32_t n, uint32_t* sums) {
    const uint32_t each = (n + n_threads() - 1) / n_threads();
    const uint32_t first = smaller(thread_id() * each, n), end = smaller(first + each, n);
    uint32_t sum = 0;
    for (uint32_t i = first; i < end; i++) sum += numbers[i];
    uint32_t before = sum_before(sum, sums);
    for (uint32_t i = first; i < end; i++) {
        const uint32_t number = numbers[i];
        numbers[i] = before;
        before += number;
    }
    sync_block();
}

FORCE_INLINE_DEVICE uint32_t chosen_expert(const Routes& routes, uint32_t choice) {
    return (uint32_t)routes.choices[(uint64_t)(choice / routes.n_used) * 2 * routes.n_used + choice % routes.n_used];
}

// Gives the choices of a run their ranks, 32 at a time. `counts` are the next ranks of the run by expert, `step` numbers apart.
FORCE_INLINE_DEVICE void rank_run(const Routes& routes, uint32_t first, uint32_t end, uint32_t* counts, uint32_t step) {
    for (uint32_t i = first; i < end; i += 32) {
        const uint32_t choice = i + lane();
        const bool is_choice = choice < end;
        const uint32_t expert = is_choice ? chosen_expert(routes, choice) : UINT32_MAX;
        uint32_t n_before = 0, n_after = 0;
        for (uint32_t other = 0; other < 32; other++) {
            const bool is_same = shuffle(expert, other) == expert;
            if (is_same && other < lane()) n_before++;
            if (is_same && other > lane()) n_after++;
        }
        const uint32_t rank = is_choice ? counts[expert * step] + n_before : 0;
        sync_warp();
        if (!is_choice) continue;
        if (n_after == 0) counts[expert * step] = rank + 1;
        const uint32_t row = choice / routes.n_used;
        routes.ranks[choice] = rank;
        routes.rows[rank] = row;
        routes.experts[rank] = expert;
        routes.weights[rank] = routes.choices[(uint64_t)row * 2 * routes.n_used + routes.n_used + choice % routes.n_used];
    }
}

// Lists the tiles of all experts; `next` has the first ranks of experts, and that after the last.
FORCE_INLINE_DEVICE void make_tiles(const Routes& routes, const uint32_t* next, uint32_t* sums) {
    const uint32_t each = (routes.n_experts + n_threads() - 1) / n_threads();
    const uint32_t first = smaller(thread_id() * each, routes.n_experts), end = smaller(first + each, routes.n_experts);
    uint32_t n_tiles = 0;
    for (uint32_t expert = first; expert < end; expert++) {
        n_tiles += (next[expert + 1] - next[expert] + TILE_RANKS - 1) / TILE_RANKS;
    }
    uint32_t tile = sum_before(n_tiles, sums);
    if (thread_id() == 0) *routes.n_tiles = sums[n_threads() / 32];
    for (uint32_t expert = first; expert < end; expert++) {
        for (uint32_t rank = next[expert]; rank < next[expert + 1]; rank += TILE_RANKS, tile++) {
            routes.tiles[3 * tile] = expert;
            routes.tiles[3 * tile + 1] = rank;
            routes.tiles[3 * tile + 2] = smaller((uint32_t)TILE_RANKS, next[expert + 1] - rank);
        }
    }
    sync_block();
}

KERNEL_BOUNDS(plan_routes, PlanArguments, PLAN_THREADS, 1) {
    SHARED(uint32_t, counts, PLAN_COUNTS);
    SHARED(uint32_t, sums, 33);
    const Routes& routes = arguments.routes;
    const uint32_t n_choices = arguments.n_rows * routes.n_used;
    const uint32_t n_runs = smaller(n_threads() / 32, PLAN_COUNTS / routes.n_experts), n_counts = n_runs * routes.n_experts;
    // A multiple of 32, so that a warp does not begin amid the choices of another.
    const uint32_t run_choices = (n_choices + 32 * n_runs - 1) / (32 * n_runs) * 32;
    const uint32_t first = smaller(warp() * run_choices, n_choices), end = smaller(first + run_choices, n_choices);
    for (uint32_t i = thread_id(); i < n_counts; i += n_threads()) counts[i] = 0;
    sync_block();
    if (warp() < n_runs) {
        for (uint32_t choice = first + lane(); choice < end; choice += 32) {
            atomic_add(&counts[chosen_expert(routes, choice) * n_runs + warp()], 1);
        }
    }
    sync_block();
    sum_all_before(counts, n_counts, sums);
    for (uint32_t expert = thread_id(); expert <= routes.n_experts; expert += n_threads()) {
        arguments.next[expert] = expert < routes.n_experts ? counts[expert * n_runs] : n_choices;
    }
    sync_block();
    make_tiles(routes, arguments.next, sums);
    if (warp() < n_runs) rank_run(routes, first, end, counts + warp(), n_runs);
}

// Copies bytes from one row to another, in words of 16 bytes if both are aligned.
FORCE_INLINE_DEVICE void copy_row(const void* from, void* to, uint64_t from_offset, uint64_t to_offset, uint64_t n_bytes) {
    const uint8_t* source = (const uint8_t*)from + from_offset;
    uint8_t* target = (uint8_t*)to + to_offset;
    if (((uintptr_t)source | (uintptr_t)target | n_bytes) % 16 == 0) {
        for (uint64_t i = thread_id(); i < n_bytes / 16; i += n_threads()) ((Uint4*)target)[i] = ((const Uint4*)source)[i];
    } else {
        for (uint64_t i = thread_id(); i < n_bytes / 2; i += n_threads()) ((uint16_t*)target)[i] = ((const uint16_t*)source)[i];
    }
}

KERNEL(spread, SpreadArguments) {
    const uint64_t rank = block_x(), row = arguments.routes.rows[rank];
    const QuantizedRows &from = arguments.from, &to = arguments.to;
    const uint64_t width = to.width, n_scales = width / SCALE_ELEMENTS;
    if (from.quants && to.quants) copy_row(from.quants, to.quants, row * width, rank * width, width);
    if (from.scales && to.scales) copy_row(from.scales, to.scales, row * n_scales * 4, rank * n_scales * 4, n_scales * 4);
    if (from.sums && to.sums) copy_row(from.sums, to.sums, row * n_scales * 4, rank * n_scales * 4, n_scales * 4);
    if (from.bf16 && to.bf16) copy_row(from.bf16, to.bf16, row * width * 2, rank * width * 2, width * 2);
}
