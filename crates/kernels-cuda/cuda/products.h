// Products of weights with few rows of activations, which the memory's bandwidth bounds.
//
// A warp multiplies a tile of 8 or 16 rows of weights, which come in chunks of columns: asynchronous copies into shared memory
// keep many bytes under way without registers, also while the results of a tile are written. The warps of a block share the
// chunks of a tile if there are enough of them. The order in which an element's products are added up depends on the number of
// columns, and on whether there are so many rows of activations that tensor cores do the work, but on nothing else.
#pragma once
#include "parts.h"
#include "platform.h"
#include "types.h"

#include "matmul.h"
#include "routes.h"

#define PRODUCT_WARPS 4
#define PRODUCT_THREADS 128
// With no more rows of activations than these, tensor cores would mostly multiply zeros.
#define DOT_ROWS 4

// A product: the rows of all outputs, and an expert's matrices among those that lie one after the other.
struct Product {
    const ProductOutput* outputs;
    const uint64_t* matrix_bytes; // null without experts
    uint64_t expert;
    uint32_t n_outputs;
    uint32_t n_columns;
    uint32_t row_bytes;
    uint32_t first_row;           // the first row of the input that is read, and of the outputs that is written
    uint32_t n_rows;
};

FORCE_INLINE_DEVICE const uint8_t* matrix_of(const Product& product, uint32_t output) {
    const uint8_t* data = product.outputs[output].matrix.data;
    return product.matrix_bytes ? data + product.expert * product.matrix_bytes[output] : data;
}

// The rows of activations of a product, so few that numbers of elements have 32 bits.
struct ProductInput {
    const int8_t* quants;
    const float* scales;
    const float* sums;
    const Bf16Bits* bf16;
    uint32_t width;
    uint32_t n_rows;
};

FORCE_INLINE_DEVICE ProductInput product_input(const QuantizedRows& rows, uint32_t first, uint32_t n_rows) {
    const uint64_t elements = (uint64_t)first * rows.width, blocks = (uint64_t)first * (rows.width / SCALE_ELEMENTS);
    return {rows.quants + elements, rows.scales + blocks, rows.sums + blocks, rows.bf16 + elements, rows.width, n_rows};
}

// A chunk of a tile in shared memory, and where its columns begin.
struct Chunk {
    const uint32_t* words;
    uint32_t column;
    uint32_t n_columns; // those of the matrix
    bool is_aligned;    // rows of floats: eight columns are aligned, in memory too
};

// --- Few rows of activations --------------------------------------------------------------------------------------------

// A group of eight lanes multiplies two rows of weights with all rows of activations. Neighbouring lanes work on different rows
// of weights and read the same activations, which costs the least.
#define DOT_GROUPS 4

FORCE_INLINE_DEVICE uint32_t dot_group() {
    return lane() % DOT_GROUPS;
}

FORCE_INLINE_DEVICE uint32_t dot_lane() {
    return lane() / DOT_GROUPS;
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

// Sums N values over eight lanes. Lanes divide the values as long as there are several: value i of a lane is afterwards the sum
// of value first + i, for i < the returned number.
template <uint32_t N>
FORCE_INLINE_DEVICE uint32_t sum_over_lanes(float (&values)[N], uint32_t& first) {
    uint32_t n = N;
    first = 0;
#pragma unroll
    for (uint32_t mask = ROW_LANES / 2; mask > 0; mask /= 2) {
        if (n == 1) {
            values[0] += shuffle_xor(values[0], mask * DOT_GROUPS);
            continue;
        }
        n /= 2;
        const bool is_upper = (dot_lane() & mask) != 0;
        if (is_upper) first += n;
#pragma unroll
        for (uint32_t i = 0; 2 * i < N; i++) {
            if (i >= n) break;
            const float given = is_upper ? values[i] : values[i + n];
            values[i] = (is_upper ? values[i + n] : values[i]) + shuffle_xor(given, mask * DOT_GROUPS);
        }
    }
    return n;
}

template <class Part, uint32_t N_ROWS>
struct DotWork {
    static constexpr uint32_t R = 2, OUT = DOT_GROUPS * R, ROWS = N_ROWS;
    static constexpr uint32_t CHUNK_BYTES = Part::CHUNK_BYTES, CHUNK_COLUMNS = Part::CHUNK_COLUMNS;
    float sums[R][ROWS];

    FORCE_INLINE_DEVICE void clear() {
#pragma unroll
        for (uint32_t i = 0; i < R * ROWS; i++) sums[i / ROWS][i % ROWS] = 0.0f;
    }

    // Rows after the last are the last again, so that nothing else is read.
    static FORCE_INLINE_DEVICE uint32_t input_row(const ProductInput& input, uint32_t r) {
        return ROWS <= 2 ? r : smaller(r, input.n_rows - 1);
    }

    // Calls `work(row, r)` for all rows of activations, where r is the place of the row's sums. No more than two rows at a
    // time, or the compiler would load so much ahead that registers run out: the sums change places instead of being indexed.
    template <class RowWork>
    FORCE_INLINE_DEVICE void for_each_row(const ProductInput& input, RowWork work) {
        constexpr uint32_t AT_ONCE = ROWS < 2 ? 1 : 2;
#pragma unroll 1
        for (uint32_t first = 0; first < ROWS; first += AT_ONCE) {
#pragma unroll
            for (uint32_t r = 0; r < AT_ONCE; r++) work(input_row(input, first + r), r);
#pragma unroll
            for (uint32_t i = 0; i < R * AT_ONCE; i++) {
                const uint32_t w = i / AT_ONCE, r = i % AT_ONCE;
                const float done = sums[w][r];
#pragma unroll
                for (uint32_t to = r; to + AT_ONCE < ROWS; to += AT_ONCE) sums[w][to] = sums[w][to + AT_ONCE];
                sums[w][ROWS - AT_ONCE + r] = done;
            }
        }
    }

    // Before the chunk has arrived: nothing.
    FORCE_INLINE_DEVICE void prepare(const ProductInput&, const Chunk&, float*) {}

    // `offset_of` knows where a row of the tile begins.
    template <class OffsetOf>
    FORCE_INLINE_DEVICE void multiply(const ProductInput& input, const Chunk& chunk, const float*, OffsetOf offset_of) {
        uint32_t offsets[R];
#pragma unroll
        for (uint32_t w = 0; w < R; w++) offsets[w] = offset_of(w * DOT_GROUPS + dot_group());
        if constexpr (Part::IS_FLOATS) {
            multiply_floats(input, chunk, offsets);
        } else {
            multiply_units(input, chunk, offsets);
        }
    }

    FORCE_INLINE_DEVICE void multiply_units(const ProductInput& input, const Chunk& chunk, const uint32_t (&offsets)[R]) {
#pragma unroll
        for (uint32_t u = 0; u < Part::UNITS; u++) {
            const uint32_t column = chunk.column + Part::unit_column(dot_lane(), u);
            if (column >= chunk.n_columns) continue;
            typename Part::LaneUnit units[R];
#pragma unroll
            for (uint32_t w = 0; w < R; w++) {
                Part::decode(chunk.words, offsets[w] + Part::unit_offset(dot_lane(), u), dot_lane(), units[w]);
            }
            for_each_row(input, [&](uint32_t row, uint32_t r) { multiply_row(units, input, row, column, r); });
        }
    }

    FORCE_INLINE_DEVICE void multiply_row(
        const typename Part::LaneUnit (&units)[R], const ProductInput& input, uint32_t row, uint32_t column, uint32_t r) {
        constexpr uint32_t WORDS = Part::WORDS;
        const uint32_t block = row * (input.width / SCALE_ELEMENTS) + column / SCALE_ELEMENTS;
        const int8_t* from = input.quants + (block * SCALE_ELEMENTS + column % SCALE_ELEMENTS);
        float scales[Part::GROUPS], block_sums[Part::GROUPS];
        load_floats(input.scales + block, scales);
        if (Part::MINIMUMS == MINIMUMS_OF_32) load_floats(input.sums + block, block_sums);
#pragma unroll
        for (uint32_t g = 0; g < Part::GROUPS; g++) {
            uint32_t quants[WORDS];
#pragma unroll
            for (uint32_t i = 0; i < WORDS; i += 4) load_four((const uint32_t*)from, 32 * g + 4 * i, quants + i);
            int quant_sum = 0;
            if (Part::MINIMUMS == MINIMUMS_OF_16 || Part::UNIT_OFFSET != 0) {
#pragma unroll
                for (uint32_t i = 0; i < WORDS; i++) quant_sum = dot4(0x01010101, (int)quants[i], quant_sum);
            }
#pragma unroll
            for (uint32_t w = 0; w < R; w++) {
                int dot = -Part::UNIT_OFFSET * quant_sum;
#pragma unroll
                for (uint32_t i = 0; i < WORDS; i++) dot = dot4((int)units[w].quants[g][i], (int)quants[i], dot);
                float product = units[w].factors[g] * (float)dot;
                if (Part::MINIMUMS == MINIMUMS_OF_16) product -= units[w].minimums[g] * (float)quant_sum;
                sums[w][r] += scales[g] * product;
                if (Part::MINIMUMS == MINIMUMS_OF_32) sums[w][r] -= units[w].minimums[g] * block_sums[g];
            }
        }
    }

    FORCE_INLINE_DEVICE void multiply_floats(const ProductInput& input, const Chunk& chunk, const uint32_t (&offsets)[R]) {
#pragma unroll
        for (uint32_t u = 0; u < Part::UNITS; u++) {
            const uint32_t place = 8 * (dot_lane() + ROW_LANES * u), column = chunk.column + place;
            if (column >= chunk.n_columns) continue;
            if (!chunk.is_aligned) {
                multiply_some(input, chunk, offsets, place);
                continue;
            }
            float weights[R][8];
#pragma unroll
            for (uint32_t w = 0; w < R; w++) Part::eight(chunk.words, offsets[w] + place * Part::ALIGNMENT, weights[w]);
            for_each_row(input, [&](uint32_t row, uint32_t r) {
                uint32_t four[4];
                float x[8];
                load_four((const uint32_t*)(input.bf16 + (row * input.width + column)), 0, four);
                floats_of_bf16(four, x);
#pragma unroll
                for (uint32_t i = 0; i < 8 * R; i++) sums[i / 8][r] += weights[i / 8][i % 8] * x[i % 8];
            });
        }
    }

    // Up to eight columns, one at a time.
    FORCE_INLINE_DEVICE void multiply_some(
        const ProductInput& input, const Chunk& chunk, const uint32_t (&offsets)[R], uint32_t place) {
        const uint32_t n = smaller(8u, chunk.n_columns - chunk.column - place);
        for (uint32_t i = place; i < place + n; i++) {
#pragma unroll
            for (uint32_t r = 0; r < ROWS; r++) {
                const float x = bf16_to_float(input.bf16[input_row(input, r) * input.width + chunk.column + i]);
#pragma unroll
                for (uint32_t w = 0; w < R; w++) sums[w][r] += Part::one(chunk.words, offsets[w] + i * Part::ALIGNMENT) * x;
            }
        }
    }

    // Writes the sums of row r of activations to places r * OUT and following.
    FORCE_INLINE_DEVICE void give(float* to) {
        float values[R * ROWS];
#pragma unroll
        for (uint32_t i = 0; i < R * ROWS; i++) values[i] = sums[i / ROWS][i % ROWS];
        uint32_t first;
        const uint32_t n = sum_over_lanes(values, first);
#pragma unroll
        for (uint32_t i = 0; i < R * ROWS; i++) {
            if (i >= n) break;
            const uint32_t w = (first + i) / ROWS, r = (first + i) % ROWS;
            to[r * OUT + w * DOT_GROUPS + dot_group()] = values[i];
        }
    }
};

// --- More rows of activations --------------------------------------------------------------------------------------------

// Tensor cores multiply 16 rows of weights with 8 of activations. Of either, lane 4q + t has row q (of weights also q + 8), and
// columns that t says; of the results, it has rows q and q + 8 of weights and rows 2t and 2t + 1 of activations. Weights that are
// decoded once are multiplied with TILES times 8 rows of activations.
template <class Part, uint32_t TILES>
struct TensorWork {
    static constexpr uint32_t OUT = 16, ROWS = 8 * TILES;
    static constexpr uint32_t CHUNK_BYTES = Part::CHUNK_BYTES / 2, CHUNK_COLUMNS = Part::CHUNK_COLUMNS / 2;
    static constexpr uint32_t GROUPS = CHUNK_COLUMNS / SCALE_ELEMENTS;
    static constexpr bool HAS_SUMS = Part::MINIMUMS == MINIMUMS_OF_32;
    static constexpr uint32_t NUMBERS = HAS_SUMS ? 2 : 1; // for each group and row of activations
    // Tiles of activations that are loaded ahead; registers would run out with more.
    static constexpr uint32_t AHEAD = Part::SCALES == 1 || TILES == 1 ? TILES : 0;
    float sums[TILES][4];                  // [row q or q + 8][row 2t or 2t + 1]
    uint32_t quants[AHEAD + 1][GROUPS][2]; // row q of activations; the last is not used

    FORCE_INLINE_DEVICE void clear() {
#pragma unroll
        for (uint32_t i = 0; i < 4 * TILES; i++) sums[i / 4][i % 4] = 0.0f;
    }

    // Before the chunk has arrived: loads its activations, and writes their scales and sums to where all lanes find them.
    FORCE_INLINE_DEVICE void prepare(const ProductInput& input, const Chunk& chunk, float* scales) {
#pragma unroll
        for (uint32_t tile = 0; tile < TILES; tile++) prepare_scales(input, chunk, scales, 8 * tile + lane() / 4);
#pragma unroll
        for (uint32_t i = 0; i < AHEAD * GROUPS; i++) {
            load_quants(input, chunk, i / GROUPS, i % GROUPS, quants[i / GROUPS][i % GROUPS]);
        }
    }

    // A group of row q of a tile of activations; zeros where there is none.
    static FORCE_INLINE_DEVICE void load_quants(
        const ProductInput& input, const Chunk& chunk, uint32_t tile, uint32_t g, uint32_t (&quants)[2]) {
        const uint32_t row = 8 * tile + lane() / 4, t = lane() % 4;
        const uint32_t block = row * (input.width / SCALE_ELEMENTS) + chunk.column / SCALE_ELEMENTS;
        const uint32_t* words = (const uint32_t*)(input.quants + block * SCALE_ELEMENTS);
        quants[0] = quants[1] = 0;
        if (row >= input.n_rows || chunk.column + SCALE_ELEMENTS * g >= chunk.n_columns) return;
        if (Part::SCALES == 1) {
            load_two(words, SCALE_ELEMENTS * g + 8 * t, quants);
        } else {
            quants[0] = words[8 * g + t], quants[1] = words[8 * g + 4 + t];
        }
    }

    static FORCE_INLINE_DEVICE void prepare_scales(const ProductInput& input, const Chunk& chunk, float* scales, uint32_t row) {
        const uint32_t t = lane() % 4;
        const bool is_row = row < input.n_rows;
        const uint32_t block = row * (input.width / SCALE_ELEMENTS) + chunk.column / SCALE_ELEMENTS;
#pragma unroll
        for (uint32_t i = 0; i < GROUPS / 4; i++) {
            const uint32_t g = t * (GROUPS / 4) + i;
            const bool is_there = is_row && chunk.column + SCALE_ELEMENTS * g < chunk.n_columns;
            float* to = scales + (g * ROWS + row) * NUMBERS;
            to[0] = is_there ? input.scales[block + g] : 0.0f;
            if (HAS_SUMS) to[NUMBERS - 1] = is_there ? input.sums[block + g] : 0.0f;
        }
    }

    template <class OffsetOf>
    FORCE_INLINE_DEVICE void multiply(const ProductInput& input, const Chunk& chunk, const float* scales, OffsetOf offset_of) {
        const uint32_t q = lane() / 4, t = lane() % 4;
        const uint32_t offsets[2] = {offset_of(q), offset_of(q + 8)};
        const typename Part::Head heads[2] = {Part::head(chunk.words, offsets[0]), Part::head(chunk.words, offsets[1])};
#pragma unroll
        for (uint32_t g = 0; g < GROUPS; g++) {
            // What lies after the last column is anything, and not always a number.
            if (!Part::IS_BLOCKS_OF_256 && chunk.column + SCALE_ELEMENTS * g >= chunk.n_columns) break;
            typename Part::LaneFragment weights[2];
#pragma unroll
            for (uint32_t w = 0; w < 2; w++) {
                Part::decode(chunk.words, offsets[w] + Part::fragment_offset(g), heads[w], g, t, weights[w]);
            }
#pragma unroll
            for (uint32_t tile = 0; tile < TILES; tile++) {
                float of_rows[2 * NUMBERS];
                load_floats(scales + (g * ROWS + 8 * tile + 2 * t) * NUMBERS, of_rows);
                uint32_t later[2];
                if (tile >= AHEAD) load_quants(input, chunk, tile, g, later);
                const uint32_t(&x)[2] = tile < AHEAD ? quants[tile][g] : later;
                if constexpr (Part::SCALES == 1) {
                    add_group_of_32(weights, x, of_rows, sums[tile]);
                } else {
                    add_groups_of_16(weights, x, of_rows, sums[tile]);
                }
            }
        }
    }

    static FORCE_INLINE_DEVICE void add_group_of_32(
        const Fragment<1> (&weights)[2], const uint32_t (&x)[2], const float (&of_rows)[2 * NUMBERS], float (&sums)[4]) {
        const uint32_t a[4] = {weights[0].quants[0], weights[1].quants[0], weights[0].quants[1], weights[1].quants[1]};
        int dots[4] = {0, 0, 0, 0};
        mma_s8_k32(dots, a, x);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const Fragment<1>& of = weights[i / 2];
            sums[i] += of_rows[i % 2 * NUMBERS] * (of.factors[0] * (float)dots[i]);
            if (HAS_SUMS) sums[i] -= of.minimums[0] * of_rows[i % 2 * NUMBERS + NUMBERS - 1];
        }
    }

    static FORCE_INLINE_DEVICE void add_groups_of_16(
        const Fragment<2> (&weights)[2], const uint32_t (&x)[2], const float (&of_rows)[2 * NUMBERS], float (&sums)[4]) {
        float products[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t a[2] = {weights[0].quants[half], weights[1].quants[half]};
            const uint32_t ones[2] = {0x01010101u, 0x01010101u};
            int dots[4] = {0, 0, 0, 0}, quant_sums[4] = {0, 0, 0, 0};
            mma_s8_k16(dots, a, x[half]);
            if (Part::MINIMUMS == MINIMUMS_OF_16) mma_s8_k16(quant_sums, ones, x[half]);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                products[i] += weights[i / 2].factors[half] * (float)dots[i];
                if (Part::MINIMUMS == MINIMUMS_OF_16) products[i] -= weights[i / 2].minimums[half] * (float)quant_sums[i];
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) sums[i] += of_rows[i % 2 * NUMBERS] * products[i];
    }

    FORCE_INLINE_DEVICE void give(float* to) {
#pragma unroll
        for (uint32_t i = 0; i < 4 * TILES; i++) {
            const uint32_t row = i / 4 * 8 + lane() % 4 * 2 + i % 2;
            to[row * OUT + lane() / 4 + i / 2 % 2 * 8] = sums[i / 4][i % 4];
        }
    }
};

#ifdef HAS_MMA
// The same of floats, of which lane 4q + t has columns 8t to 8t + 7 of every 32.
template <class Part>
struct FloatTensorWork {
    static constexpr uint32_t OUT = 16, ROWS = 8;
    static constexpr uint32_t CHUNK_BYTES = Part::CHUNK_BYTES / 2, CHUNK_COLUMNS = Part::CHUNK_COLUMNS / 2;
    static constexpr uint32_t GROUPS = CHUNK_COLUMNS / 32;
    float sums[4];
    uint32_t inputs[GROUPS][4];

    FORCE_INLINE_DEVICE void clear() {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) sums[i] = 0.0f;
    }

    FORCE_INLINE_DEVICE void prepare(const ProductInput& input, const Chunk& chunk, float*) {
        const uint32_t q = lane() / 4;
#pragma unroll
        for (uint32_t g = 0; g < GROUPS; g++) {
            const uint32_t column = chunk.column + 32 * g + lane() % 4 * 8;
            inputs[g][0] = inputs[g][1] = inputs[g][2] = inputs[g][3] = 0;
            if (q >= input.n_rows || column >= chunk.n_columns) continue;
            load_four((const uint32_t*)(input.bf16 + (q * input.width + column)), 0, inputs[g]);
        }
    }

    template <class OffsetOf>
    FORCE_INLINE_DEVICE void multiply(const ProductInput&, const Chunk& chunk, const float*, OffsetOf offset_of) {
        const uint32_t offsets[2] = {offset_of(lane() / 4), offset_of(lane() / 4 + 8)};
#pragma unroll
        for (uint32_t g = 0; g < GROUPS; g++) {
            const uint32_t place = 32 * g + lane() % 4 * 8;
            uint32_t weights[2][Part::TERMS][4] = {};
            if (chunk.column + place < chunk.n_columns) {
#pragma unroll
                for (uint32_t w = 0; w < 2; w++) Part::terms(chunk.words, offsets[w] + place * Part::ALIGNMENT, weights[w]);
            }
#pragma unroll
            for (uint32_t i = 0; i < 2 * Part::TERMS; i++) {
                const uint32_t k = i % 2 * 2, *upper = weights[0][i / 2] + k, *lower = weights[1][i / 2] + k;
                const uint32_t a[4] = {upper[0], lower[0], upper[1], lower[1]};
                mma_bf16(sums, a, inputs[g] + k);
            }
        }
    }

    FORCE_INLINE_DEVICE void give(float* to) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) to[(lane() % 4 * 2 + i % 2) * OUT + lane() / 4 + i / 2 * 8] = sums[i];
    }
};
#endif

// --- Chunks on their way ------------------------------------------------------------------------------------------------

// Lines of 16 bytes for a part of a row in shared memory, where it begins as far from a multiple of 16 as it does in memory. An
// odd number of them lets lanes that read different rows at once read different banks; those of aligned formats are odd anyway.
constexpr uint32_t LINE_BYTES = 16;
template <class Part, class Work>
struct Lines {
    static constexpr uint32_t MOST_BEFORE = Part::ALIGNMENT >= LINE_BYTES ? 0 : LINE_BYTES - Part::ALIGNMENT;
    static constexpr uint32_t NEEDED = (Work::CHUNK_BYTES + MOST_BEFORE + LINE_BYTES - 1) / LINE_BYTES;
    static constexpr uint32_t N = Work::OUT == 16 && MOST_BEFORE > 0 ? NEEDED | 1 : NEEDED;
};

// The work with the most rows of activations.
template <class Part, bool IS_FLOATS>
struct MostWork {
    typedef TensorWork<Part, 1> Work;
};
#ifdef HAS_MMA
template <class Part>
struct MostWork<Part, true> {
    typedef FloatTensorWork<Part> Work;
};
#else
template <class Part>
struct MostWork<Part, true> {
    typedef DotWork<Part, DOT_ROWS> Work;
};
#endif

// Room for a block's chunks, whatever the work, and for the scales and sums of activations of a warp's chunk.
template <class Part>
struct Room {
    typedef typename MostWork<Part, Part::IS_FLOATS>::Work Most;
    typedef DotWork<Part, 1> Least;
    static constexpr uint32_t MOST_LINES = Most::OUT * Lines<Part, Most>::N, LEAST_LINES = Least::OUT * Lines<Part, Least>::N;
    static constexpr uint32_t LINES = PRODUCT_WARPS * Part::STAGES * (MOST_LINES > LEAST_LINES ? MOST_LINES : LEAST_LINES);
    // One or two numbers for each of eight rows, and each 32 of half of the columns.
    static constexpr uint32_t TILE_SCALES = Part::CHUNK_COLUMNS / 64 * 8 * (Part::MINIMUMS == MINIMUMS_OF_32 ? 2 : 1);
    // Two tiles of activations at once, if there is room in what a block may have without asking.
    static constexpr uint32_t TILE_BYTES = 2 * PRODUCT_WARPS * sizeof(float) * (128 + TILE_SCALES);
    static constexpr uint32_t TILES = !Part::IS_FLOATS && LINES * LINE_BYTES + 2 * TILE_BYTES <= 48 * 1024 ? 2 : 1;
    static constexpr uint32_t SCALES = TILES * TILE_SCALES;
    // Sums of a warp: 16 rows of weights times 8 of activations, for each tile.
    static constexpr uint32_t SUMS = TILES * 128;
};

// A warp's chunks, one after the other: those of its tile that are its share, then those of its next tile. They are asked for
// long before they are used, so that memory is never idle.
template <class Part, class Work>
struct Chunks {
    static constexpr uint32_t ROW_LINES = Lines<Part, Work>::N, STAGE_LINES = Work::OUT * ROW_LINES;
    static constexpr uint32_t LANE_LINES = (STAGE_LINES + 31) / 32;
    static constexpr bool IS_ALIGNED = Part::ALIGNMENT >= LINE_BYTES;
    Uint4* stages;
    uint32_t asked, used;      // the next stages
    uint32_t n_chunks, first_chunk, step;
    // The next chunk that is asked for: its tile, the tile's place in memory, and the end of the matrix.
    uint32_t tile, chunk;
    const uint8_t* data;
    const uint8_t* end;
    uint32_t n_rows;               // of the tile
    bool is_last;                  // whether the matrix ends with the tile
    uint32_t offsets[LANE_LINES];  // where this lane's lines of a chunk begin, from `data`, before they are aligned

    // Finds the output that a tile belongs to, and the tile's first row; false if there is no such tile.
    static FORCE_INLINE_DEVICE bool find(const Product& product, uint32_t tile, uint32_t& output, uint32_t& row) {
        for (output = 0; output < product.n_outputs; output++) {
            const uint32_t n_tiles = (product.outputs[output].matrix.n_rows + Work::OUT - 1) / Work::OUT;
            if (tile < n_tiles) {
                row = tile * Work::OUT;
                return true;
            }
            tile -= n_tiles;
        }
        return false;
    }

    FORCE_INLINE_DEVICE void go_to(const Product& product, uint32_t to) {
        uint32_t output, row;
        tile = to;
        chunk = first_chunk;
        data = nullptr;
        if (!find(product, tile, output, row)) return;
        const uint32_t n_left = product.outputs[output].matrix.n_rows - row;
        data = matrix_of(product, output) + (uint64_t)row * product.row_bytes;
        end = data + (uint64_t)n_left * product.row_bytes;
        n_rows = smaller(n_left, Work::OUT);
        is_last = n_left <= Work::OUT;
        // Rows after the matrix's last are the last again.
#pragma unroll
        for (uint32_t i = 0; i < LANE_LINES; i++) {
            const uint32_t index = 32 * i + lane(), of_tile = smaller(index / ROW_LINES, n_rows - 1);
            offsets[i] = of_tile * product.row_bytes + index % ROW_LINES * LINE_BYTES;
        }
    }

    // Asks for the next chunk.
    FORCE_INLINE_DEVICE void ask(const Product& product, uint32_t tile_step) {
        if (data) {
            const uint32_t first = chunk * Work::CHUNK_BYTES, n_bytes = smaller(Work::CHUNK_BYTES, product.row_bytes - first);
            Uint4* to = stages + asked * STAGE_LINES;
            if (n_bytes == Work::CHUNK_BYTES && (IS_ALIGNED || !is_last)) {
                ask_whole(data + first, to);
            } else {
                ask_some(product.row_bytes, first, n_bytes, to);
            }
            chunk += step;
            if (chunk >= n_chunks) go_to(product, tile + tile_step);
        }
        async_commit();
        asked = asked + 1 == Part::STAGES ? 0 : asked + 1;
    }

    // Lines have neighbours' bytes at both ends, of which the next chunk or the next tile has enough. The matrix begins with a
    // line.
    FORCE_INLINE_DEVICE void ask_whole(const uint8_t* first, Uint4* to) {
#pragma unroll
        for (uint32_t i = 0; i < LANE_LINES; i++) {
            if (STAGE_LINES % 32 != 0 && 32 * i + lane() >= STAGE_LINES) break;
            const uint8_t* from = first + offsets[i];
            if (!IS_ALIGNED) from -= (uintptr_t)from % LINE_BYTES;
            async_copy16(to + 32 * i + lane(), from);
        }
    }

    // Only the lines that have bytes of the chunk, and of those not what lies after the end of the matrix.
    FORCE_INLINE_DEVICE void ask_some(uint32_t row_bytes, uint32_t first, uint32_t n_bytes, Uint4* to) {
#pragma unroll 1
        for (uint32_t index = lane(); index < STAGE_LINES; index += 32) {
            const uint32_t row = smaller(index / ROW_LINES, n_rows - 1), place = index % ROW_LINES * LINE_BYTES;
            const uint8_t* begin = data + (row * row_bytes + first);
            const uint32_t before = IS_ALIGNED ? 0 : (uint32_t)((uintptr_t)begin % LINE_BYTES);
            if (place >= before + n_bytes) continue;
            const uint8_t* from = begin - before + place;
            if (IS_ALIGNED || from + LINE_BYTES <= end) {
                async_copy16(to + index, from);
            } else {
#pragma unroll 1
                for (uint32_t i = 0; from + i < end; i++) ((uint8_t*)(to + index))[i] = from[i];
            }
        }
    }
};

// --- Products -----------------------------------------------------------------------------------------------------------

// What the warps of a block have in common.
struct ProductShared {
    Uint4* stages;
    float* sums;   // of two tiles, so that one is written while the next is computed
    float* scales; // of two chunks of each warp, likewise
};

// Adds a warp's share of the products of a tile, whose rows begin at `data`.
template <class Part, class Work>
FORCE_INLINE_DEVICE void add_chunks(const Product& product, const ProductInput& input, Chunks<Part, Work>& chunks,
                                    uint32_t tile_step, const uint8_t* data, uint32_t last_row, float* scales, Work& work) {
    typedef Chunks<Part, Work> C;
    const bool is_aligned = (product.n_columns | input.width) % 8 == 0 && product.row_bytes % 16 == 0;
    for (uint32_t number = chunks.first_chunk; number < chunks.n_chunks; number += chunks.step) {
        const Chunk chunk = {(const uint32_t*)chunks.stages, number * Work::CHUNK_COLUMNS, product.n_columns, is_aligned};
        float* kept = scales + number / chunks.step % 2 * Room<Part>::SCALES;
        work.prepare(input, chunk, kept);
        async_wait(Part::STAGES - 2);
        sync_warp(); // what all lanes have copied and prepared is there, and the stage before is no longer read
        chunks.ask(product, tile_step);
        const uint32_t line = chunks.used * C::STAGE_LINES, first = number * Work::CHUNK_BYTES;
        work.multiply(input, chunk, kept, [&](uint32_t row) {
            const uint32_t phase = (uint32_t)(uintptr_t)data + smaller(row, last_row) * product.row_bytes + first;
            return LINE_BYTES * (line + row * C::ROW_LINES) + (C::IS_ALIGNED ? 0 : phase % LINE_BYTES);
        });
        chunks.used = chunks.used + 1 == Part::STAGES ? 0 : chunks.used + 1;
    }
}

// Adds up the sums of the warps that share tiles, and writes them.
template <class Part, class Work>
FORCE_INLINE_DEVICE void write_tiles(const Product& product, uint32_t first_tile, uint32_t n_sharing, const float* sums) {
    constexpr uint32_t VALUES = Work::OUT * Work::ROWS;
    for (uint32_t i = thread_id(); i < PRODUCT_WARPS / n_sharing * VALUES; i += PRODUCT_THREADS) {
        const uint32_t team = i / VALUES, value = i % VALUES, r = value / Work::OUT;
        uint32_t index, row;
        if (r >= product.n_rows || !Chunks<Part, Work>::find(product, first_tile + team, index, row)) continue;
        const ProductOutput& output = product.outputs[index];
        row += value % Work::OUT;
        if (row >= output.matrix.n_rows) continue;
        float sum = 0.0f;
        for (uint32_t share = 0; share < n_sharing; share++) sum += sums[(team * n_sharing + share) * Room<Part>::SUMS + value];
        float* to = output.to.data + ((uint64_t)(product.first_row + r) * output.to.stride + row);
        *to = output.add ? *to + sum : sum;
    }
}

// All tiles of this block: with grid_x() blocks, every grid_x()-th.
template <class Part, class Work>
FORCE_INLINE_DEVICE void multiply_tiles(const Product& product, const ProductInput& input, const ProductShared& shared) {
    Chunks<Part, Work> chunks;
    chunks.n_chunks = (product.n_columns + Work::CHUNK_COLUMNS - 1) / Work::CHUNK_COLUMNS;
    const uint32_t n_sharing = chunks.n_chunks >= 4 ? 4 : chunks.n_chunks >= 2 ? 2 : 1, n_teams = PRODUCT_WARPS / n_sharing;
    const uint32_t team = warp() / n_sharing, tile_step = grid_x() * n_teams;
    chunks.stages = shared.stages + warp() * (Part::STAGES * Chunks<Part, Work>::STAGE_LINES);
    chunks.asked = chunks.used = 0;
    chunks.first_chunk = warp() % n_sharing;
    chunks.step = n_sharing;
    chunks.go_to(product, block_x() * n_teams + team);
    for (uint32_t i = 0; i + 1 < Part::STAGES; i++) chunks.ask(product, tile_step);
    // The first weights are on their way by then.
    wait_for_earlier();
    float* scales = shared.scales + warp() * 2 * Room<Part>::SCALES;
    uint32_t output, row, place = 0;
    for (uint32_t tile = block_x() * n_teams; Chunks<Part, Work>::find(product, tile, output, row); tile += tile_step) {
        Work work;
        work.clear();
        // Of a block's last tiles, some warps may have none.
        if (Chunks<Part, Work>::find(product, tile + team, output, row)) {
            const uint8_t* data = matrix_of(product, output) + (uint64_t)row * product.row_bytes;
            const uint32_t last_row = smaller(product.outputs[output].matrix.n_rows - row, Work::OUT) - 1;
            add_chunks(product, input, chunks, tile_step, data, last_row, scales, work);
        }
        float* sums = shared.sums + place * PRODUCT_WARPS * Room<Part>::SUMS;
        work.give(sums + warp() * Room<Part>::SUMS);
        sync_block();
        write_tiles<Part, Work>(product, tile, n_sharing, sums);
        place = 1 - place;
    }
    async_wait(0);
    sync_block();
}

// Without tensor cores: as many rows of activations as `DotWork` takes.
template <class Part>
FORCE_INLINE_DEVICE void multiply_dots(const Product& product, const ProductInput& input, const ProductShared& shared) {
    if (product.n_rows == 1) {
        multiply_tiles<Part, DotWork<Part, 1>>(product, input, shared);
    } else if (product.n_rows == 2) {
        multiply_tiles<Part, DotWork<Part, 2>>(product, input, shared);
    } else {
        multiply_tiles<Part, DotWork<Part, DOT_ROWS>>(product, input, shared);
    }
}

// Calls `multiply` for all rows, no more than `at_once` at a time.
template <class Multiply>
FORCE_INLINE_DEVICE void for_some_rows(Product product, const QuantizedRows& rows, uint32_t at_once, Multiply multiply) {
    const uint32_t end = product.first_row + product.n_rows;
#pragma unroll 1
    for (; product.first_row < end; product.first_row += product.n_rows) {
        product.n_rows = smaller(at_once, end - product.first_row);
        multiply(product, product_input(rows, product.first_row, product.n_rows));
    }
}

// Rows of quants for tensor cores.
template <class Part, uint32_t TILES>
FORCE_INLINE_DEVICE void multiply_quants(const Product& product, const QuantizedRows& rows, const ProductShared& shared) {
    for_some_rows(product, rows, 8 * TILES, [&](const Product& some, const ProductInput& input) {
        multiply_tiles<Part, TensorWork<Part, TILES>>(some, input, shared);
    });
}

// No more than MOST_TILES times 8 rows of activations at once.
template <class Part, uint32_t MOST_TILES>
FORCE_INLINE_DEVICE void multiply_few_rows(const Product& product, const QuantizedRows& rows, const ProductShared& shared) {
    if (product.n_rows == 0) return;
    if constexpr (!Part::IS_FLOATS) {
        if (product.n_rows <= DOT_ROWS) {
            multiply_dots<Part>(product, product_input(rows, product.first_row, product.n_rows), shared);
        } else if (product.n_rows <= 8 || MOST_TILES == 1) {
            multiply_quants<Part, 1>(product, rows, shared);
        } else {
            multiply_quants<Part, MOST_TILES>(product, rows, shared);
        }
    } else {
#ifdef HAS_MMA
        const bool is_aligned = (product.n_columns | rows.width) % 8 == 0 && product.row_bytes % 16 == 0;
        if (product.n_rows > DOT_ROWS && is_aligned) {
            return for_some_rows(product, rows, 8, [&](const Product& some, const ProductInput& input) {
                multiply_tiles<Part, FloatTensorWork<Part>>(some, input, shared);
            });
        }
#endif
        // Rows that are not aligned, or that tensor cores do not have.
        for_some_rows(product, rows, DOT_ROWS, [&](const Product& some, const ProductInput& input) {
            multiply_dots<Part>(some, input, shared);
        });
    }
}

template <class Part>
FORCE_INLINE_DEVICE void product_kernel(const ProductArguments& arguments, const ProductShared& shared) {
    const Matrix& matrix = arguments.outputs[0].matrix;
    const Product product = {
        arguments.outputs, nullptr, 0, arguments.n_outputs, matrix.n_columns, (uint32_t)matrix.row_bytes, 0, arguments.n_rows};
    multiply_few_rows<Part, Room<Part>::TILES>(product, arguments.input, shared);
}

template <class Part>
FORCE_INLINE_DEVICE void expert_product_kernel(const ExpertProductArguments& arguments, const ProductShared& shared) {
    if (block_y() >= *arguments.routes.n_tiles) return;
    const uint32_t* tile = arguments.routes.tiles + 3 * block_y();
    const Matrix& matrix = arguments.outputs[0].matrix;
    multiply_few_rows<Part, 1>({arguments.outputs, arguments.matrix_bytes, tile[0], arguments.n_outputs, matrix.n_columns,
                             (uint32_t)matrix.row_bytes, tile[1], tile[2]},
                            arguments.input, shared);
}

#define SHARED_FOR_PRODUCT(Part) \
    SHARED(Uint4, stages, Room<Part>::LINES); \
    SHARED(float, sums, 2 * PRODUCT_WARPS * Room<Part>::SUMS); \
    SHARED(float, scales, 2 * PRODUCT_WARPS * Room<Part>::SCALES)

#define PRODUCT_KERNELS(name, Part) \
    KERNEL_THAT_WAITS(product_##name, ProductArguments, PRODUCT_THREADS, Part::SM_BLOCKS) { \
        let_later_start(); \
        SHARED_FOR_PRODUCT(Part); \
        product_kernel<Part>(arguments, {stages, sums, scales}); \
    } \
    KERNEL_BOUNDS(expert_product_##name, ExpertProductArguments, PRODUCT_THREADS, Part::SM_BLOCKS) { \
        SHARED_FOR_PRODUCT(Part); \
        expert_product_kernel<Part>(arguments, {stages, sums, scales}); \
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
