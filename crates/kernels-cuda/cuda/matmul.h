// Products with many rows: weights as bf16, and a product of them where there is no library that has one.
#pragma once
#include "parts.h"
#include "platform.h"
#include "types.h"

// --- Dequantization -----------------------------------------------------------------------------------------------------

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
            uint32_t four[4];
            load_four((const uint32_t*)(weights + column), 0, four);
            floats_of_bf16(four, w);
            load_four((const uint32_t*)(input + column), 0, four);
            floats_of_bf16(four, x);
#pragma unroll
            for (uint32_t i = 0; i < 8; i++) sum += w[i] * x[i];
        }
        write_matmul(arguments, row, out, sum);
    }
}
#endif
