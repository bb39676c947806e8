// The formats of weights, as in GGUF files; crates/kernels/src/quantized.rs describes every layout.
//
// A block of a quantized format is decoded four elements at a time: element e of a block is factor * quant - minimum, where
// at least eight neighbours share factor and minimum. Blocks are only as aligned as their size says: most to two bytes.
#pragma once
#include "platform.h"
#include "types.h"

enum TypeId {
    TYPE_F32 = 0,
    TYPE_F16 = 1,
    TYPE_Q4_0 = 2,
    TYPE_Q4_1 = 3,
    TYPE_Q5_0 = 6,
    TYPE_Q5_1 = 7,
    TYPE_Q8_0 = 8,
    TYPE_Q2_K = 10,
    TYPE_Q3_K = 11,
    TYPE_Q4_K = 12,
    TYPE_Q5_K = 13,
    TYPE_Q6_K = 14,
    TYPE_IQ4_NL = 20,
    TYPE_IQ4_XS = 23,
    TYPE_BF16 = 30,
    TYPE_MXFP4 = 39,
};

// --- Bytes in words -----------------------------------------------------------------------------------------------------

DEVICE uint32_t word_at(const uint8_t* bytes) {
    return *(const uint32_t*)bytes;
}

// A word that is aligned to two bytes.
DEVICE uint32_t word_of_halves(const uint8_t* bytes) {
    const uint16_t* halves = (const uint16_t*)bytes;
    return halves[0] | (uint32_t)halves[1] << 16;
}

DEVICE uint32_t word_of_bytes(const uint8_t* bytes) {
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

DEVICE float half_at(const uint8_t* bytes) {
    return half_to_float(*(const HalfBits*)bytes);
}

// Subtracts from each of four bytes below 128, without borrowing from the neighbour; the results are signed.
DEVICE uint32_t minus_bytes(uint32_t word, uint32_t subtrahends) {
    return ((word | 0x80808080u) - subtrahends) ^ 0x80808080u;
}

// Puts the lowest four bits of a number into the lowest bits of four bytes.
DEVICE uint32_t spread_bits(uint32_t bits) {
    return ((bits & 15u) * 0x00204081u) & 0x01010101u;
}

DEVICE float signed_byte(uint32_t word, uint32_t index) {
    return (float)(int8_t)(word >> (8 * index));
}

// --- Tables of 16 signed bytes ------------------------------------------------------------------------------------------

struct ByteTable {
    uint32_t words[4];
};

DEVICE ByteTable iq4_nl_table() {
    return {{0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u}};
}

DEVICE ByteTable mxfp4_table() {
    return {{0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu}};
}

// The entries that the lowest four half bytes index, as four bytes.
DEVICE uint32_t look_up(const ByteTable& table, uint32_t indices) {
    const uint32_t places = indices & 0x7777u;
    const uint32_t lower = byte_permute(table.words[0], table.words[1], places);
    const uint32_t upper = byte_permute(table.words[2], table.words[3], places);
    return byte_permute(lower, upper, 0x3210u | (indices & 0x8888u) >> 1);
}

// The entries of four indices that are the low (shift = 0) or high (shift = 4) halves of a word's bytes.
DEVICE uint32_t look_up_halves(const ByteTable& table, uint32_t word, uint32_t shift) {
    const uint32_t pairs = word >> shift & 0x0f0f0f0fu;
    const uint32_t close = (pairs | pairs >> 4) & 0x00ff00ffu;
    return look_up(table, close | close >> 8);
}

// --- Formats ------------------------------------------------------------------------------------------------------------

struct Scale {
    float factor;
    float minimum;
};

struct FormatQ4_0 {
    static constexpr uint32_t ELEMENTS = 32, BYTES = 18;
    static DEVICE Scale scale(const uint8_t* block, uint32_t) { return {half_at(block), 0.0f}; }
    static DEVICE uint32_t quants(const uint8_t* block, uint32_t e) {
        return minus_bytes(word_of_halves(block + 2 + e % 16) >> e / 16 * 4 & 0x0f0f0f0fu, 0x08080808u);
    }
};

struct FormatQ4_1 {
    static constexpr uint32_t ELEMENTS = 32, BYTES = 20;
    static DEVICE Scale scale(const uint8_t* block, uint32_t) { return {half_at(block), -half_at(block + 2)}; }
    static DEVICE uint32_t quants(const uint8_t* block, uint32_t e) {
        return word_at(block + 4 + e % 16) >> e / 16 * 4 & 0x0f0f0f0fu;
    }
};

struct FormatQ5_0 {
    static constexpr uint32_t ELEMENTS = 32, BYTES = 22;
    static DEVICE Scale scale(const uint8_t* block, uint32_t) { return {half_at(block), 0.0f}; }
    static DEVICE uint32_t quants(const uint8_t* block, uint32_t e) {
        const uint32_t low = word_of_halves(block + 6 + e % 16) >> e / 16 * 4 & 0x0f0f0f0fu;
        return minus_bytes(low | spread_bits(word_of_halves(block + 2) >> e) << 4, 0x10101010u);
    }
};

struct FormatQ5_1 {
    static constexpr uint32_t ELEMENTS = 32, BYTES = 24;
    static DEVICE Scale scale(const uint8_t* block, uint32_t) { return {half_at(block), -half_at(block + 2)}; }
    static DEVICE uint32_t quants(const uint8_t* block, uint32_t e) {
        const uint32_t low = word_at(block + 8 + e % 16) >> e / 16 * 4 & 0x0f0f0f0fu;
        return low | spread_bits(word_at(block + 4) >> e) << 4;
    }
};

struct FormatQ8_0 {
    static constexpr uint32_t ELEMENTS = 32, BYTES = 34;
    static DEVICE Scale scale(const uint8_t* block, uint32_t) { return {half_at(block), 0.0f}; }
    static DEVICE uint32_t quants(const uint8_t* block, uint32_t e) { return word_of_halves(block + 2 + e); }
};

struct FormatIQ4_NL {
    static constexpr uint32_t ELEMENTS = 32, BYTES = 18;
    static DEVICE Scale scale(const uint8_t* block, uint32_t) { return {half_at(block), 0.0f}; }
    static DEVICE uint32_t quants(const uint8_t* block, uint32_t e) {
        return look_up_halves(iq4_nl_table(), word_of_halves(block + 2 + e % 16), e / 16 * 4);
    }
};

// 2^(exponent - 128): half of the scale, because the table has the doubled values. Zero in place of the two subnormal numbers.
DEVICE float mxfp4_scale(uint32_t exponent) {
    return bf16_to_float((Bf16Bits)((exponent == 0 ? 0 : exponent - 1) << 7));
}

struct FormatMXFP4 {
    static constexpr uint32_t ELEMENTS = 32, BYTES = 17;
    static DEVICE Scale scale(const uint8_t* block, uint32_t) { return {mxfp4_scale(block[0]), 0.0f}; }
    static DEVICE uint32_t quants(const uint8_t* block, uint32_t e) {
        return look_up_halves(mxfp4_table(), word_of_bytes(block + 1 + e % 16), e / 16 * 4);
    }
};

struct FormatQ2_K {
    static constexpr uint32_t ELEMENTS = 256, BYTES = 84;
    static DEVICE Scale scale(const uint8_t* block, uint32_t e) {
        const uint32_t group = block[e / 16];
        return {half_at(block + 80) * (float)(group & 15u), half_at(block + 82) * (float)(group >> 4)};
    }
    static DEVICE uint32_t quants(const uint8_t* block, uint32_t e) {
        return word_at(block + 16 + e / 128 * 32 + e % 32) >> e % 128 / 32 * 2 & 0x03030303u;
    }
};

struct FormatQ3_K {
    static constexpr uint32_t ELEMENTS = 256, BYTES = 110;
    static DEVICE Scale scale(const uint8_t* block, uint32_t e) {
        const uint32_t group = e / 16;
        const uint32_t low = block[96 + group % 8] >> group / 8 * 4 & 15u;
        const uint32_t high = block[104 + group % 4] >> group / 4 * 2 & 3u;
        return {half_at(block + 108) * (float)((int)(low | high << 4) - 32), 0.0f};
    }
    static DEVICE uint32_t quants(const uint8_t* block, uint32_t e) {
        const uint32_t low = word_of_halves(block + 32 + e / 128 * 32 + e % 32) >> e % 128 / 32 * 2 & 0x03030303u;
        const uint32_t high = word_of_halves(block + e % 32) >> e / 32 & 0x01010101u;
        return minus_bytes(low | high << 2, 0x04040404u);
    }
};

// Scale and minimum of group g < 8 of Q4_K or Q5_K, from the 12 bytes of scales in three words.
DEVICE Scale k_group(uint32_t first, uint32_t second, uint32_t third, uint32_t g) {
    const uint32_t shift = 8 * (g % 4);
    const uint32_t upper = g / 4 * 6; // the upper two bits of later groups lie above the six bits of earlier ones
    if (g < 4) return {(float)(first >> shift & 0x3fu), (float)(second >> shift & 0x3fu)};
    const uint32_t scale = (third >> shift & 15u) | (first >> (shift + upper) & 3u) << 4;
    const uint32_t minimum = (third >> (shift + 4) & 15u) | (second >> (shift + upper) & 3u) << 4;
    return {(float)scale, (float)minimum};
}

DEVICE Scale k_scale(const uint8_t* block, uint32_t e) {
    const Scale group = k_group(word_at(block + 4), word_at(block + 8), word_at(block + 12), e / 32);
    const Float2 scales = half2_to_float2(word_at(block));
    return {scales.x * group.factor, scales.y * group.minimum};
}

struct FormatQ4_K {
    static constexpr uint32_t ELEMENTS = 256, BYTES = 144;
    static DEVICE Scale scale(const uint8_t* block, uint32_t e) { return k_scale(block, e); }
    static DEVICE uint32_t quants(const uint8_t* block, uint32_t e) {
        return word_at(block + 16 + e / 64 * 32 + e % 32) >> e / 32 % 2 * 4 & 0x0f0f0f0fu;
    }
};

struct FormatQ5_K {
    static constexpr uint32_t ELEMENTS = 256, BYTES = 176;
    static DEVICE Scale scale(const uint8_t* block, uint32_t e) { return k_scale(block, e); }
    static DEVICE uint32_t quants(const uint8_t* block, uint32_t e) {
        const uint32_t low = word_at(block + 48 + e / 64 * 32 + e % 32) >> e / 32 % 2 * 4 & 0x0f0f0f0fu;
        return low | (word_at(block + 16 + e % 32) >> e / 32 & 0x01010101u) << 4;
    }
};

struct FormatQ6_K {
    static constexpr uint32_t ELEMENTS = 256, BYTES = 210;
    static DEVICE Scale scale(const uint8_t* block, uint32_t e) {
        return {half_at(block + 208) * (float)(int8_t)block[192 + e / 16], 0.0f};
    }
    static DEVICE uint32_t quants(const uint8_t* block, uint32_t e) {
        const uint32_t half = e / 128;
        const uint32_t low = word_of_halves(block + half * 64 + e % 64) >> e / 64 % 2 * 4 & 0x0f0f0f0fu;
        const uint32_t high = word_of_halves(block + 128 + half * 32 + e % 32) >> e % 128 / 32 * 2 & 0x03030303u;
        return minus_bytes(low | high << 4, 0x20202020u);
    }
};

struct FormatIQ4_XS {
    static constexpr uint32_t ELEMENTS = 256, BYTES = 136;
    static DEVICE Scale scale(const uint8_t* block, uint32_t e) {
        const uint32_t group = e / 32;
        const uint32_t low = block[4 + group / 2] >> group % 2 * 4 & 15u;
        const uint32_t high = *(const uint16_t*)(block + 2) >> 2 * group & 3u;
        return {half_at(block) * (float)((int)(low | high << 4) - 32), 0.0f};
    }
    static DEVICE uint32_t quants(const uint8_t* block, uint32_t e) {
        return look_up_halves(iq4_nl_table(), word_at(block + 8 + e / 32 * 16 + e % 16), e / 16 % 2 * 4);
    }
};

// --- Elements -----------------------------------------------------------------------------------------------------------

// Element `column` of a row of blocks.
template <class Format>
DEVICE float element_of(const uint8_t* row, uint32_t column) {
    const uint8_t* block = row + (uint64_t)(column / Format::ELEMENTS) * Format::BYTES;
    const uint32_t e = column % Format::ELEMENTS;
    const Scale scale = Format::scale(block, e);
    return scale.factor * signed_byte(Format::quants(block, e & ~3u), e & 3u) - scale.minimum;
}

// Eight elements from `column` on, which is a multiple of eight.
template <class Format>
DEVICE void eight_of(const uint8_t* row, uint32_t column, float to[8]) {
    const uint8_t* block = row + (uint64_t)(column / Format::ELEMENTS) * Format::BYTES;
    const uint32_t e = column % Format::ELEMENTS;
    const Scale scale = Format::scale(block, e);
    const uint32_t words[2] = {Format::quants(block, e), Format::quants(block, e + 4)};
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        to[i] = scale.factor * signed_byte(words[i / 4], i % 4) - scale.minimum;
    }
}

struct FormatF32 {
    static DEVICE float element(const uint8_t* row, uint32_t column) { return ((const float*)row)[column]; }
};

struct FormatF16 {
    static DEVICE float element(const uint8_t* row, uint32_t column) { return half_to_float(((const HalfBits*)row)[column]); }
};

struct FormatBF16 {
    static DEVICE float element(const uint8_t* row, uint32_t column) { return bf16_to_float(((const Bf16Bits*)row)[column]); }
};

DEVICE float dequantize_element(const Matrix& matrix, uint64_t row, uint32_t column) {
    const uint8_t* data = matrix.data + row * matrix.row_bytes;
    switch (matrix.type) {
    case TYPE_F32: return FormatF32::element(data, column);
    case TYPE_F16: return FormatF16::element(data, column);
    case TYPE_BF16: return FormatBF16::element(data, column);
    case TYPE_Q4_0: return element_of<FormatQ4_0>(data, column);
    case TYPE_Q4_1: return element_of<FormatQ4_1>(data, column);
    case TYPE_Q5_0: return element_of<FormatQ5_0>(data, column);
    case TYPE_Q5_1: return element_of<FormatQ5_1>(data, column);
    case TYPE_Q8_0: return element_of<FormatQ8_0>(data, column);
    case TYPE_Q2_K: return element_of<FormatQ2_K>(data, column);
    case TYPE_Q3_K: return element_of<FormatQ3_K>(data, column);
    case TYPE_Q4_K: return element_of<FormatQ4_K>(data, column);
    case TYPE_Q5_K: return element_of<FormatQ5_K>(data, column);
    case TYPE_Q6_K: return element_of<FormatQ6_K>(data, column);
    case TYPE_IQ4_NL: return element_of<FormatIQ4_NL>(data, column);
    case TYPE_IQ4_XS: return element_of<FormatIQ4_XS>(data, column);
    case TYPE_MXFP4: return element_of<FormatMXFP4>(data, column);
    default: return 0.0f;
    }
}
