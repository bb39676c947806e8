// Attention over the cache.
//
// Both ways to attend use the tensor cores: for some query heads (rows) and keys (columns), scores = Q * K^T, and then
// sums = P * V. A product of tiles (mma) is spread over the lanes of a warp. Lane l holds, with g = l / 4 and t = l % 4:
//   of A (16 rows, 16 deep):  rows g and g + 8, depths 2t, 2t + 1, 2t + 8, 2t + 9
//   of B (16 deep, 8 columns): column g, the same depths
//   of the result:             rows g and g + 8, columns 2t, 2t + 1
// What "depth" and "column" mean is free, as long as A and B agree. So that a lane can load 8 neighbouring elements at once:
// - In Q * K^T, depths are elements of a head. Lane (g, t) holds elements 8t..8t + 7 of every 32; the first four are the depths
//   of one product ("step"), the other four those of the next.
// - In P * V, depths are keys, and columns elements of a head: column g of product j is element 8g + j of every 64. A lane holds
//   elements 8g..8g + 7 of two neighbouring keys, and pairs them up. In the result, it holds elements 16t + j and 16t + 8 + j.
#pragma once
#include "platform.h"
#include "types.h"

// Below every score, and finite, so that differences between scores are finite too.
#define LOWEST_SCORE (-1e30f)

// --- What both ways share -----------------------------------------------------------------------------------------------

// The first position that the token at `position` sees.
DEVICE uint32_t first_visible(const AttentionArguments &arguments, uint32_t position) {
    if (arguments.window_kind == WINDOW_SLIDING) return position + 1 > arguments.window ? position + 1 - arguments.window : 0;
    if (arguments.window_kind == WINDOW_CHUNK) return position - position % arguments.window;
    return 0;
}

// cap * tanh(score / cap): tanh(x) is 1 - 2 / (e^2x + 1). Precise to 1e-7 of the cap, which is enough for a score.
DEVICE float capped_score(float score, float cap) {
    float root = rsqrt_(fast_exp(score * (2.0f / cap)) + 1.0f);
    return cap - 2.0f * cap * (root * root);
}

DEVICE const uint8_t *block_address(const Kv &kv, uint32_t block) {
    const uint8_t *segment = kv.segments[block / kv.segment_blocks];
    return segment + (uint64_t)(block % kv.segment_blocks) * kv.block_bytes;
}

// Where a row of keys or values of a head lies in a block.
DEVICE uint32_t row_offset(const Kv &kv, uint32_t kv_head, uint32_t slot) {
    return (kv_head * BLOCK_TOKENS + slot) * kv.row_bytes;
}

DEVICE uint32_t pack_halves(float low, float high) {
    return (uint32_t)float_to_half(low) | (uint32_t)float_to_half(high) << 16;
}

// What rounding to a half loses, as halves.
DEVICE uint32_t pack_rests(float low, float high, uint32_t packed) {
    Float2 rounded = half2_to_float2(packed);
    return pack_halves(low - rounded.x, high - rounded.y);
}

// Four quants as halves.
DEVICE void unpack_quants(uint32_t quants, float scale, uint32_t halves[2]) {
    halves[0] = pack_halves((float)(int8_t)quants * scale, (float)(int8_t)(quants >> 8) * scale);
    halves[1] = pack_halves((float)(int8_t)(quants >> 16) * scale, (float)(int8_t)(quants >> 24) * scale);
}

// From the halves of two keys, the pair of their first elements and that of their second ones.
FORCE_INLINE_DEVICE void pair_up(uint32_t first, uint32_t second, uint32_t pairs[2]) {
    pairs[0] = (first & 0xffff) | second << 16;
    pairs[1] = first >> 16 | (second & 0xffff0000);
}

#ifdef HAS_MMA
FORCE_INLINE_DEVICE void multiply_tile(float d[4], const uint32_t a[4], const uint32_t b[2]) { mma_f16(d, a, b); }
#else
// The same by plain arithmetic: slow, for cards whose tensor cores have no product of this shape.
__device__ __noinline__ Float4 multiply_slowly(Float4 sums, Uint4 a, Uint2 b) {
    uint32_t first_of_row = lane() / 4 * 4, first_column = lane() % 4 * 2;
    for (uint32_t t = 0; t < 8; t++) {
        Float2 upper = half2_to_float2(shuffle(t < 4 ? a.x : a.z, first_of_row + t % 4));
        Float2 lower = half2_to_float2(shuffle(t < 4 ? a.y : a.w, first_of_row + t % 4));
        Float2 first = half2_to_float2(shuffle(t < 4 ? b.x : b.y, first_column * 4 + t % 4));
        Float2 second = half2_to_float2(shuffle(t < 4 ? b.x : b.y, first_column * 4 + 4 + t % 4));
        sums.x += upper.x * first.x + upper.y * first.y;
        sums.y += upper.x * second.x + upper.y * second.y;
        sums.z += lower.x * first.x + lower.y * first.y;
        sums.w += lower.x * second.x + lower.y * second.y;
    }
    return sums;
}

FORCE_INLINE_DEVICE void multiply_tile(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    Float4 sums = multiply_slowly(Float4{d[0], d[1], d[2], d[3]}, Uint4{a[0], a[1], a[2], a[3]}, Uint2{b[0], b[1]});
    d[0] = sums.x, d[1] = sums.y, d[2] = sums.z, d[3] = sums.w;
}
#endif

// The row of the step that a row of the set is.
DEVICE uint32_t row_of_set(const AttentionArguments &arguments, uint32_t row) {
    return arguments.set == SET_SELECTED ? arguments.batch.selected[row] : row;
}

// --- Few rows: split contexts -------------------------------------------------------------------------------------------
//
// A block attends with the query heads of one kv head, for one row, to a part of the cache's blocks. It is bound by the memory,
// so keys and values go from there straight into registers. The tensor cores have time to spare: queries and weights are
// products' operands twice, as halves and as the halves of what rounding left, which makes them nearly as precise as floats. With
// up to 8 heads ("narrow"), the halves are the upper rows of a product and the rests the lower ones; with up to 16 ("wide"),
// there are two products. More heads take turns.
//
// A warp works on 16 keys ("tile") and up to 128 elements of the heads ("slice") at a time. Wider heads have several slices,
// whose warps exchange their parts of the scores.

#define SPLIT_THREADS 128
#define SPLIT_WARPS (SPLIT_THREADS / 32)
#define SPLIT_HEADS 16
#define SPLIT_KEYS 16
#define SLICE_ELEMENTS 128
#define SLICE_STEPS (SLICE_ELEMENTS / 16)

DEVICE uint32_t n_slices_of(uint32_t head_dim) {
    return head_dim <= SLICE_ELEMENTS ? 1 : head_dim <= 2 * SLICE_ELEMENTS ? 2 : 4;
}

// What a block works on.
struct SplitJob {
    uint32_t row;         // of the set
    uint32_t first_head;
    uint32_t n_heads;
    uint32_t begin, end;  // positions
    const uint32_t *blocks;
};

// A warp's part of it.
struct SplitWarp {
    uint32_t n_slices, slice; // slices of the elements
    uint32_t n_turns, turn;   // warps of a slice take turns with the tiles
};

struct SplitShared {
    Uint4 *queries;  // [slices][SLICE_STEPS][narrow: 1, wide: 2][32]; later `results`
    float *results;  // [SPLIT_WARPS][narrow: 8, wide: 16][RESULT_STRIDE]
    float *scores;   // [2][SPLIT_WARPS][8][32]
    float *largest;  // [SPLIT_WARPS][SPLIT_HEADS]
    float *sums;     // [SPLIT_WARPS][SPLIT_HEADS]
};

// The number of a tile's block. What lies behind the end is not read, so any number will do there.
DEVICE uint32_t number_of_tile(const SplitJob &job, uint32_t tile) {
    uint32_t block = smaller(tile * SPLIT_KEYS, job.end - 1) / BLOCK_TOKENS;
    return load_global(job.blocks + block);
}

// A position that is not the job's is read as its nearest one: what becomes of it is not used.
FORCE_INLINE_DEVICE uint32_t visible_position(const SplitJob &job, uint32_t position) {
    return smaller(larger(position, job.begin), job.end - 1);
}

// Eight neighbouring elements of a row, as they are in the cache.
template <bool IS_QUANTIZED> struct Elements;
template <> struct Elements<false> {
    Uint4 bits;
};
template <> struct Elements<true> {
    Uint2 bits;
};

FORCE_INLINE_DEVICE void load_elements(Elements<false> &elements, const uint8_t *row, uint32_t first, bool exists) {
    elements.bits = Uint4{0, 0, 0, 0};
    if (exists) elements.bits = load_global(reinterpret_cast<const Uint4 *>(row + first * 2));
}

FORCE_INLINE_DEVICE void load_elements(Elements<true> &elements, const uint8_t *row, uint32_t first, bool exists) {
    elements.bits = Uint2{0, 0};
    if (exists) elements.bits = load_global(reinterpret_cast<const Uint2 *>(row + first));
}

// A slice's scales. Rows are padded to 16 bytes, so there are four in the row, but behind the head's last one may be anything.
template <bool IS_QUANTIZED>
FORCE_INLINE_DEVICE Uint2 load_scales(const Kv &kv, const uint8_t *row, uint32_t slice, bool exists) {
    if (!IS_QUANTIZED || !exists) return Uint2{0, 0};
    return load_global(reinterpret_cast<const Uint2 *>(row + kv.head_dim + slice * (SLICE_ELEMENTS / SCALE_ELEMENTS * 2)));
}

FORCE_INLINE_DEVICE void to_halves(const Elements<false> &elements, Uint2, uint32_t, bool, uint32_t halves[4]) {
    halves[0] = elements.bits.x, halves[1] = elements.bits.y, halves[2] = elements.bits.z, halves[3] = elements.bits.w;
}

// `scales` are those of the slice's four groups.
FORCE_INLINE_DEVICE void to_halves(const Elements<true> &elements, Uint2 scales, uint32_t group, bool exists,
                                   uint32_t halves[4]) {
    uint32_t pair = group < 2 ? scales.x : scales.y;
    float scale = exists ? half_to_float((HalfBits)(group % 2 == 0 ? pair & 0xffff : pair >> 16)) : 0.0f;
    unpack_quants(elements.bits.x, scale, halves);
    unpack_quants(elements.bits.y, scale, halves + 2);
}

// A lane's part of a tile's keys: of keys g and g + 8, elements 8t..8t + 7 of every 32.
template <int CHUNKS, bool IS_QUANTIZED> struct SplitKeys {
    Elements<IS_QUANTIZED> elements[2][2 * CHUNKS];
    Uint2 scales[2];

    DEVICE void load(const Kv &kv, const SplitJob &job, uint32_t slice, uint32_t tile, const uint8_t *block) {
        uint32_t first = slice * SLICE_ELEMENTS + lane() % 4 * 8;
        bool has_slice = slice * SLICE_ELEMENTS < kv.head_dim;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t position = visible_position(job, tile * SPLIT_KEYS + i * 8 + lane() / 4);
            const uint8_t *row = block + kv.keys_offset + row_offset(kv, block_x(), position % BLOCK_TOKENS);
            scales[i] = load_scales<IS_QUANTIZED>(kv, row, slice, has_slice);
#pragma unroll
            for (uint32_t j = 0; j < 2 * CHUNKS; j++) {
                load_elements(elements[i][j], row, first + j * 32, has_slice && first + j * 32 < kv.head_dim);
            }
        }
    }
};

// A lane's part of a tile's values: of keys 2t, 2t + 1, 2t + 8, 2t + 9, elements 8g..8g + 7 of every 64.
template <int CHUNKS, bool IS_QUANTIZED> struct SplitValues {
    Elements<IS_QUANTIZED> elements[4][CHUNKS];
    Uint2 scales[4];

    DEVICE void load(const Kv &kv, const SplitJob &job, uint32_t slice, uint32_t tile, const uint8_t *block) {
        uint32_t first = slice * SLICE_ELEMENTS + lane() / 4 * 8;
        bool has_slice = slice * SLICE_ELEMENTS < kv.head_dim;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t position = visible_position(job, tile * SPLIT_KEYS + i / 2 * 8 + lane() % 4 * 2 + i % 2);
            const uint8_t *row = block + kv.values_offset + row_offset(kv, block_x(), position % BLOCK_TOKENS);
            scales[i] = load_scales<IS_QUANTIZED>(kv, row, slice, has_slice);
#pragma unroll
            for (uint32_t c = 0; c < CHUNKS; c++) {
                load_elements(elements[i][c], row, first + c * 64, has_slice && first + c * 64 < kv.head_dim);
            }
        }
    }
};

// Four elements of a query, scaled; zeros where there is no such head or element.
DEVICE void load_query(const AttentionArguments &arguments, const SplitJob &job, uint32_t head, uint32_t first, float query[4]) {
    uint32_t head_dim = arguments.kv.head_dim;
    bool exists = head < job.n_heads && first < head_dim;
    const float *from = arguments.queries.data + (uint64_t)job.row * arguments.queries.stride;
    from += (uint64_t)(job.first_head + head) * head_dim + first;
    Float4 four = {0.0f, 0.0f, 0.0f, 0.0f};
    if (exists && (uintptr_t)from % sizeof(Float4) == 0) {
        four = load_global(reinterpret_cast<const Float4 *>(from));
    } else if (exists) {
        four = Float4{from[0], from[1], from[2], from[3]};
    }
    query[0] = four.x * arguments.scale, query[1] = four.y * arguments.scale;
    query[2] = four.z * arguments.scale, query[3] = four.w * arguments.scale;
}

// Puts the queries into shared memory as the lanes' operands: entry (step, lane), or entries (step, halves or rests, lane).
template <bool IS_WIDE> DEVICE void prepare_queries(const AttentionArguments &arguments, const SplitJob &job, Uint4 *queries) {
    uint32_t n_steps = n_slices_of(arguments.kv.head_dim) * SLICE_STEPS;
#pragma unroll 1
    for (uint32_t index = thread_id(); index < n_steps * 32; index += SPLIT_THREADS) {
        uint32_t step = index / 32, g = index % 32 / 4, t = index % 4;
        uint32_t first = step / 2 * 32 + t * 8 + step % 2 * 4;
        float upper[4], lower[4];
        load_query(arguments, job, g, first, upper);
        Uint4 halves = {pack_halves(upper[0], upper[1]), 0, pack_halves(upper[2], upper[3]), 0};
        if (!IS_WIDE) {
            halves.y = pack_rests(upper[0], upper[1], halves.x);
            halves.w = pack_rests(upper[2], upper[3], halves.z);
            queries[index] = halves;
            continue;
        }
        load_query(arguments, job, g + 8, first, lower);
        halves.y = pack_halves(lower[0], lower[1]);
        halves.w = pack_halves(lower[2], lower[3]);
        queries[step * 64 + index % 32] = halves;
        queries[step * 64 + 32 + index % 32] =
            Uint4{pack_rests(upper[0], upper[1], halves.x), pack_rests(lower[0], lower[1], halves.y),
                  pack_rests(upper[2], upper[3], halves.z), pack_rests(lower[2], lower[3], halves.w)};
    }
}

// The slice's part of the scores of a tile: of heads g (and g + 8, if wide), keys 2t, 2t + 1, 2t + 8, 2t + 9.
template <int CHUNKS, bool IS_QUANTIZED, bool IS_WIDE>
DEVICE void score_tile(const Uint4 *queries, const SplitKeys<CHUNKS, IS_QUANTIZED> &keys, uint32_t width, float scores[2][4]) {
    float sums[2][4] = {};
#pragma unroll
    for (uint32_t j = 0; j < 2 * CHUNKS; j++) {
        uint32_t halves[2][4];
        for (uint32_t i = 0; i < 2; i++) to_halves(keys.elements[i][j], keys.scales[i], j, j * SCALE_ELEMENTS < width, halves[i]);
#pragma unroll
        for (uint32_t step = 0; step < 2; step++) {
#pragma unroll
            for (uint32_t part = 0; part < (IS_WIDE ? 2 : 1); part++) {
                Uint4 operand = queries[((j * 2 + step) * (IS_WIDE ? 2 : 1) + part) * 32 + lane()];
                uint32_t a[4] = {operand.x, operand.y, operand.z, operand.w};
                for (uint32_t i = 0; i < 2; i++) multiply_tile(sums[i], a, halves[i] + step * 2);
            }
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < 4; k++) scores[i][k] = IS_WIDE ? sums[i][k] : k < 2 ? sums[i][k] + sums[i][k + 2] : 0.0f;
    }
}

// Adds up the parts of the scores that the slices' warps have. All do so in the same order, so that they agree.
template <bool IS_WIDE>
DEVICE void exchange_scores(const SplitWarp &place, float *buffer, float scores[2][4]) {
    const uint32_t n = IS_WIDE ? 4 : 2;
    float *mine = buffer + warp() * 8 * 32 + lane();
    for (uint32_t i = 0; i < 2 * n; i++) mine[i * 32] = scores[i / n][i % n];
    sync_block();
    const float *parts = buffer + place.turn * place.n_slices * 8 * 32 + lane();
#pragma unroll
    for (uint32_t i = 0; i < 2 * n; i++) {
        float sum = parts[i * 32];
        for (uint32_t slice = 1; slice < place.n_slices; slice++) sum += parts[(slice * 8 + i) * 32];
        scores[i / n][i % n] = sum;
    }
}

// The largest score so far and this lane's part of the sum of weights, of the heads g and g + 8.
struct SplitTotals {
    float largest[2];
    float sums[2];
};

// Turns scores into weights. `factors` is what earlier sums must be multiplied with.
template <bool IS_WIDE>
DEVICE void weigh_tile(const AttentionArguments &arguments, const SplitJob &job, uint32_t tile, float scores[2][4],
                       SplitTotals &totals, float factors[2]) {
    bool is_visible[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t position = tile * SPLIT_KEYS + i / 2 * 8 + lane() % 4 * 2 + i % 2;
        is_visible[i] = position >= job.begin && position < job.end;
    }
#pragma unroll
    for (uint32_t row = 0; row < (IS_WIDE ? 2 : 1); row++) {
        float largest = totals.largest[row];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            float &score = scores[i / 2][row * 2 + i % 2];
            if (arguments.soft_cap > 0.0f) score = capped_score(score, arguments.soft_cap);
            if (is_visible[i]) largest = larger(largest, score);
        }
        largest = larger(largest, shuffle_xor(largest, 1));
        largest = larger(largest, shuffle_xor(largest, 2));
        factors[row] = fast_exp(totals.largest[row] - largest);
        totals.largest[row] = largest;
        totals.sums[row] *= factors[row];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            float &score = scores[i / 2][row * 2 + i % 2];
            score = is_visible[i] ? fast_exp(score - largest) : 0.0f;
            totals.sums[row] += score;
        }
    }
}

// Adds the weighted values of a tile.
template <int CHUNKS, bool IS_QUANTIZED, bool IS_WIDE>
DEVICE void add_values(const SplitValues<CHUNKS, IS_QUANTIZED> &values, const float weights[2][4], const float factors[2],
                       float results[CHUNKS][8][4]) {
    uint32_t a[4], rests[4];
    a[0] = pack_halves(weights[0][0], weights[0][1]);
    a[2] = pack_halves(weights[1][0], weights[1][1]);
    rests[0] = pack_rests(weights[0][0], weights[0][1], a[0]);
    rests[2] = pack_rests(weights[1][0], weights[1][1], a[2]);
    if (IS_WIDE) {
        a[1] = pack_halves(weights[0][2], weights[0][3]);
        a[3] = pack_halves(weights[1][2], weights[1][3]);
        rests[1] = pack_rests(weights[0][2], weights[0][3], a[1]);
        rests[3] = pack_rests(weights[1][2], weights[1][3], a[3]);
    } else {
        a[1] = rests[0], a[3] = rests[2];
    }
#pragma unroll
    for (uint32_t c = 0; c < CHUNKS; c++) {
        uint32_t halves[4][4];
        // What is made of elements that do not exist ends in columns that nobody reads.
        for (uint32_t i = 0; i < 4; i++) to_halves(values.elements[i][c], values.scales[i], c * 2 + lane() / 16, true, halves[i]);
#pragma unroll
        for (uint32_t word = 0; word < 4; word++) {
            uint32_t upper[2], lower[2];
            pair_up(halves[0][word], halves[1][word], upper);
            pair_up(halves[2][word], halves[3][word], lower);
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                float *result = results[c][word * 2 + i];
                uint32_t b[2] = {upper[i], lower[i]};
                for (uint32_t k = 0; k < 4; k++) result[k] *= factors[IS_WIDE ? k / 2 : 0];
                multiply_tile(result, a, b);
                if (IS_WIDE) multiply_tile(result, rests, b);
            }
        }
    }
}

// Goes over the warp's tiles. The values of a tile are on their way while its scores are computed, and the keys of the next tile
// while the values are summed. Blocks are looked up in two steps, the one a tile earlier than the other.
template <int CHUNKS, bool IS_QUANTIZED, bool IS_WIDE>
DEVICE void attend_tiles(const AttentionArguments &arguments, const SplitJob &job, const SplitWarp &place,
                         const SplitShared &shared, SplitTotals &totals, float results[CHUNKS][8][4]) {
    const Kv &kv = arguments.kv;
    uint32_t first_tile = job.begin / SPLIT_KEYS, end_tile = (job.end + SPLIT_KEYS - 1) / SPLIT_KEYS;
    uint32_t tile = first_tile + place.turn;
    SplitKeys<CHUNKS, IS_QUANTIZED> keys;
    SplitValues<CHUNKS, IS_QUANTIZED> values;
    const uint8_t *block = block_address(kv, number_of_tile(job, tile)), *next_block = block;
    uint32_t number = 0;
    // A short context is one tile for every warp, which has nothing to look up for a next one.
    bool has_next = first_tile + place.n_turns < end_tile;
    if (has_next) {
        next_block = block_address(kv, number_of_tile(job, tile + place.n_turns));
        number = number_of_tile(job, tile + 2 * place.n_turns);
    }
    keys.load(kv, job, place.slice, tile, block);
    prepare_queries<IS_WIDE>(arguments, job, shared.queries);
    sync_block();
    const Uint4 *queries = shared.queries + place.slice * SLICE_STEPS * 32 * (IS_WIDE ? 2 : 1);
    // All warps go on as long as the first one, because they may have to meet.
    for (uint32_t first = first_tile, round = 0;; first += place.n_turns, tile += place.n_turns, round++) {
        float scores[2][4], factors[2];
        values.load(kv, job, place.slice, tile, block);
        score_tile<CHUNKS, IS_QUANTIZED, IS_WIDE>(queries, keys, kv.head_dim - place.slice * SLICE_ELEMENTS, scores);
        if (place.n_slices > 1) exchange_scores<IS_WIDE>(place, shared.scores + round % 2 * SPLIT_WARPS * 8 * 32, scores);
        has_next = first + place.n_turns < end_tile;
        if (has_next) keys.load(kv, job, place.slice, tile + place.n_turns, next_block);
        weigh_tile<IS_WIDE>(arguments, job, tile, scores, totals, factors);
        add_values<CHUNKS, IS_QUANTIZED, IS_WIDE>(values, scores, factors, results);
        if (!has_next) break;
        block = next_block;
        next_block = block_address(kv, number);
        number = number_of_tile(job, tile + 3 * place.n_turns);
    }
}

// Where element `element` of a slice lies in a row of results: those that neighbouring lanes write lie side by side, and rows begin
// at other banks, so that all lanes write at once.
#define RESULT_STRIDE (SLICE_ELEMENTS + 4)

FORCE_INLINE_DEVICE uint32_t result_place(uint32_t element) {
    return element / 64 * 64 + element % 16 * 4 + element % 64 / 16;
}

// Leaves a warp's results in shared memory, relative to the largest score of all warps.
template <int CHUNKS, bool IS_WIDE>
DEVICE void leave_results(const SplitShared &shared, const SplitTotals &totals, const float results[CHUNKS][8][4]) {
    const uint32_t n_rows = IS_WIDE ? 16 : 8;
    uint32_t g = lane() / 4, t = lane() % 4;
#pragma unroll
    for (uint32_t row = 0; row < (IS_WIDE ? 2 : 1); row++) {
        float largest = LOWEST_SCORE;
        for (uint32_t w = 0; w < SPLIT_WARPS; w++) largest = larger(largest, shared.largest[w * SPLIT_HEADS + g + row * 8]);
        float factor = fast_exp(totals.largest[row] - largest);
        float *to = shared.results + (warp() * n_rows + g + row * 8) * RESULT_STRIDE;
#pragma unroll
        for (uint32_t i = 0; i < CHUNKS * 16; i++) {
            const float *result = results[i / 16][i % 8];
            uint32_t column = i % 16 / 8;
            float sum = IS_WIDE ? result[row * 2 + column] : result[column] + result[column + 2];
            to[result_place(i / 16 * 64 + t * 16 + i % 16)] = sum * factor;
        }
    }
}

DEVICE float *partial_of(const AttentionArguments &arguments, uint32_t row, uint32_t head, uint32_t split) {
    uint64_t index = ((uint64_t)row * arguments.n_heads + head) * arguments.n_splits + split;
    return arguments.partials + index * (arguments.kv.head_dim + 2);
}

// Quantizes the elements of a warp's lanes, 32 neighbours from a multiple of 32 on: see `quantize_four` of rows.h.
FORCE_INLINE_DEVICE void quantize_lane(const QuantizedRows &to, uint64_t row, uint32_t column, float x) {
    if (to.bf16) to.bf16[row * to.width + column] = float_to_bf16(x);
    if (!to.quants) return;
    float largest = warp_max(abs_(x));
    bool is_zero = largest < 1e-30f;
    int quant = round_to_int(x * (is_zero ? 0.0f : 127.0f / largest));
    quant = quant < -127 ? -127 : quant > 127 ? 127 : quant;
    to.quants[row * to.width + column] = (int8_t)quant;
    int sum = quant;
    for (uint32_t mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    if (lane() != 0) return;
    float scale = is_zero ? 0.0f : largest / 127.0f;
    uint64_t group = row * (to.width / SCALE_ELEMENTS) + column / SCALE_ELEMENTS;
    to.scales[group] = scale;
    if (to.sums) to.sums[group] = scale * (float)sum;
}

// An element of a head's result. With `quantized`, heads are whole groups of 32, and so a warp's lanes call this together.
FORCE_INLINE_DEVICE void write_result(const AttentionArguments &arguments, uint32_t row, uint32_t head, uint32_t element, float x) {
    uint32_t column = head * arguments.kv.head_dim + element;
    arguments.to.data[(uint64_t)row * arguments.to.stride + column] = x;
    quantize_lane(arguments.quantized, row, column, x);
}

// The largest score of a head, and the sum of its weights, of what all warps have left.
DEVICE Float2 totals_of_head(const SplitWarp &place, const SplitShared &shared, uint32_t head) {
    float largest = LOWEST_SCORE, sum = 0.0f;
    for (uint32_t w = 0; w < SPLIT_WARPS; w++) largest = larger(largest, shared.largest[w * SPLIT_HEADS + head]);
    for (uint32_t w = 0; w < SPLIT_WARPS; w += place.n_slices) {
        float factor = fast_exp(shared.largest[w * SPLIT_HEADS + head] - largest);
        sum += shared.sums[w * SPLIT_HEADS + head] * factor;
    }
    return Float2{largest, sum};
}

// Adds up what the warps have left, a warp for each head, and writes the block's partial results; or, if the context is not cut,
// the results.
template <bool IS_WIDE>
DEVICE void write_partials(const AttentionArguments &arguments, const SplitJob &job, const SplitWarp &place,
                           const SplitShared &shared) {
    const uint32_t n_rows = IS_WIDE ? 16 : 8;
    uint32_t head_dim = arguments.kv.head_dim;
#pragma unroll 1
    for (uint32_t of_job = warp(); of_job < job.n_heads; of_job += SPLIT_WARPS) {
        uint32_t head = job.first_head + of_job;
        Float2 totals = totals_of_head(place, shared, of_job);
        float divisor = totals.y;
        if (arguments.sinks) divisor += exp_(arguments.sinks[head] - totals.x);
        float *partial = partial_of(arguments, job.row, head, block_z());
#pragma unroll 1
        for (uint32_t element = lane(); element < head_dim; element += 32) {
            uint32_t slice = element / SLICE_ELEMENTS;
            const float *results = shared.results + of_job * RESULT_STRIDE + result_place(element % SLICE_ELEMENTS);
            float sum = 0.0f;
            for (uint32_t w = slice; w < SPLIT_WARPS; w += place.n_slices) sum += results[w * n_rows * RESULT_STRIDE];
            if (arguments.n_splits == 1) {
                write_result(arguments, job.row, head, element, sum / divisor);
            } else {
                partial[element] = sum;
            }
        }
        if (arguments.n_splits > 1 && lane() == 0) partial[head_dim] = totals.x, partial[head_dim + 1] = totals.y;
    }
}

template <int CHUNKS, bool IS_QUANTIZED, bool IS_WIDE>
DEVICE void attend_heads(const AttentionArguments &arguments, const SplitJob &job, const SplitShared &shared) {
    uint32_t n_slices = n_slices_of(arguments.kv.head_dim);
    SplitWarp place = {n_slices, warp() % n_slices, SPLIT_WARPS / n_slices, warp() / n_slices};
    SplitTotals totals = {{LOWEST_SCORE, LOWEST_SCORE}, {0.0f, 0.0f}};
    float results[CHUNKS][8][4] = {};
    attend_tiles<CHUNKS, IS_QUANTIZED, IS_WIDE>(arguments, job, place, shared, totals, results);
#pragma unroll
    for (uint32_t row = 0; row < (IS_WIDE ? 2 : 1); row++) {
        float sum = totals.sums[row] + shuffle_xor(totals.sums[row], 1);
        sum += shuffle_xor(sum, 2);
        if (lane() % 4 == 0) {
            shared.largest[warp() * SPLIT_HEADS + lane() / 4 + row * 8] = totals.largest[row];
            shared.sums[warp() * SPLIT_HEADS + lane() / 4 + row * 8] = sum;
        }
    }
    sync_block();
    leave_results<CHUNKS, IS_WIDE>(shared, totals, results);
    sync_block();
    write_partials<IS_WIDE>(arguments, job, place, shared);
    // The next heads use the same memory.
    sync_block();
}

template <int CHUNKS, bool IS_QUANTIZED, bool IS_WIDE>
DEVICE void attend_group(const AttentionArguments &arguments, SplitJob job, const SplitShared &shared) {
    uint32_t group = arguments.n_heads / arguments.kv.n_kv_heads;
    uint32_t end = job.first_head + group;
    const uint32_t at_once = IS_WIDE ? 16 : 8;
    for (; job.first_head < end; job.first_head += at_once) {
        job.n_heads = smaller(end - job.first_head, at_once);
        attend_heads<CHUNKS, IS_QUANTIZED, IS_WIDE>(arguments, job, shared);
    }
}

// The block's part of what its row sees: a range of blocks of the cache, as equal as possible.
DEVICE SplitJob split_job(const AttentionArguments &arguments) {
    const Batch &batch = arguments.batch;
    uint32_t row = row_of_set(arguments, block_y());
    uint32_t position = batch.positions[row];
    uint32_t visible = first_visible(arguments, position);
    uint32_t first_block = visible / BLOCK_TOKENS, n_blocks = position / BLOCK_TOKENS + 1 - first_block;
    uint32_t begin = first_block + (uint32_t)((uint64_t)n_blocks * block_z() / arguments.n_splits);
    uint32_t end = first_block + (uint32_t)((uint64_t)n_blocks * (block_z() + 1) / arguments.n_splits);
    SplitJob job;
    job.row = block_y();
    job.first_head = block_x() * (arguments.n_heads / arguments.kv.n_kv_heads);
    job.n_heads = 0;
    job.begin = larger(begin * BLOCK_TOKENS, visible);
    job.end = smaller(end * BLOCK_TOKENS, position + 1);
    job.blocks = batch.blocks + batch.block_starts[batch.sequence_of[row]];
    return job;
}

DEVICE void write_empty_partials(const AttentionArguments &arguments, const SplitJob &job) {
    uint32_t group = arguments.n_heads / arguments.kv.n_kv_heads, head_dim = arguments.kv.head_dim;
    for (uint32_t head = thread_id(); head < group; head += SPLIT_THREADS) {
        float *partial = partial_of(arguments, job.row, job.first_head + head, block_z());
        partial[head_dim] = LOWEST_SCORE;
        partial[head_dim + 1] = 0.0f;
    }
}

template <int CHUNKS, bool IS_QUANTIZED, bool IS_WIDE>
DEVICE void attend_split_of(const AttentionArguments &arguments, const SplitShared &shared) {
    SplitJob job = split_job(arguments);
    // Only the batch has been read.
    wait_for_earlier();
    if (job.begin >= job.end) {
        write_empty_partials(arguments, job);
    } else {
        attend_group<CHUNKS, IS_QUANTIZED, IS_WIDE>(arguments, job, shared);
    }
}

// A kernel's memory. Declared in kernels only, because what several functions declare adds up.
#define SPLIT_SHARED(name) \
    SHARED(Uint4, results, SPLIT_WARPS * SPLIT_HEADS * RESULT_STRIDE / 4); \
    SHARED(float, scores, 2 * SPLIT_WARPS * 8 * 32); \
    SHARED(float, largest, SPLIT_WARPS * SPLIT_HEADS); \
    SHARED(float, sums, SPLIT_WARPS * SPLIT_HEADS); \
    SplitShared name = {results, reinterpret_cast<float *>(results), scores, largest, sums}

// Kernels `attend_split_FORMAT_WIDTH`: grid (n_kv_heads, n_rows, n_splits), SPLIT_THREADS threads. Width 64 is for head_dim <=
// 64, 128 for all other, up to 512; the `wide` ones are for groups of more than 8 query heads. Blocks with nothing to do write only
// the largest score and the sum of an empty result (a context in one part is never empty). What a context in one part gives is
// written to its place; what several parts leave is merged by `merge_splits`. (That the last block merges it was tried: waiting for
// the others' results took longer than a launch.)
#define SPLIT_KERNEL(name, width, is_quantized, is_wide, min_blocks) \
    KERNEL_THAT_WAITS(attend_split_##name##_##width, AttentionArguments, SPLIT_THREADS, min_blocks) { \
        let_later_start(); \
        SPLIT_SHARED(shared); \
        attend_split_of<width / 64, is_quantized, is_wide>(arguments, shared); \
    }
SPLIT_KERNEL(f16, 64, false, false, 3)
SPLIT_KERNEL(f16, 128, false, false, 3)
SPLIT_KERNEL(q8_0, 64, true, false, 3)
SPLIT_KERNEL(q8_0, 128, true, false, 2)
SPLIT_KERNEL(wide_f16, 64, false, true, 3)
SPLIT_KERNEL(wide_f16, 128, false, true, 2)
SPLIT_KERNEL(wide_q8_0, 64, true, true, 3)
SPLIT_KERNEL(wide_q8_0, 128, true, true, 2)

// Kernel `merge_splits`: grid (n_heads, n_rows), any number of threads; as many as head_dim are of use.
KERNEL_BOUNDS(merge_splits, AttentionArguments, 1024, 1) {
    SHARED(float, weights, 32);
    uint32_t head = block_x(), row = block_y(), head_dim = arguments.kv.head_dim, n_splits = arguments.n_splits;
    const float *partials = partial_of(arguments, row, head, 0);
    uint64_t partial_len = head_dim + 2;
    float largest = LOWEST_SCORE, sum = 0.0f;
    for (uint32_t split = lane(); split < n_splits; split += 32) {
        largest = larger(largest, partials[split * partial_len + head_dim]);
    }
    largest = warp_max(largest);
    for (uint32_t split = lane(); split < n_splits; split += 32) {
        const float *totals = partials + split * partial_len + head_dim;
        sum += totals[1] * exp_(totals[0] - largest);
    }
    sum = warp_sum(sum);
    if (arguments.sinks) sum += exp_(arguments.sinks[head] - largest);
    for (uint32_t first = 0; first < head_dim; first += n_threads()) {
        uint32_t element = first + thread_id();
        float result = 0.0f;
        for (uint32_t first_split = 0; first_split < n_splits; first_split += 32) {
            uint32_t n = smaller(n_splits - first_split, 32u);
            const float *some = partials + first_split * partial_len;
            sync_block();
            if (thread_id() < n) {
                // Of what is empty, nothing has been written but this.
                const float *totals = some + thread_id() * partial_len + head_dim;
                weights[thread_id()] = totals[1] > 0.0f ? exp_(totals[0] - largest) : 0.0f;
            }
            sync_block();
            if (element >= head_dim) continue;
#pragma unroll 8
            for (uint32_t split = 0; split < n; split++) {
                if (weights[split] > 0.0f) result += weights[split] * some[split * partial_len + element];
            }
        }
        if (element < head_dim) write_result(arguments, row, head, element, result / sum);
    }
}

// --- Many rows: tiles of queries ----------------------------------------------------------------------------------------
//
// A block attends with a tile of queries of one sequence and one kv head: the pairs of tokens and heads of the group, all heads
// of the first token, then of the second. It goes over the keys that any of them sees once, a block of the cache at a time, with
// an online softmax. Keys and values are in shared memory as halves, a row of `UNITS` units of 16 bytes for each key. Unit u of
// key k stands at u ^ swizzle(k), so that the lanes of every load meet all banks. There is memory for two blocks of the cache
// ("stages"), so that the next one is on its way all the time; or, for wide heads, for one, so that values are on their way while
// scores are computed, and the next keys while values are summed.

#define PROMPT_THREADS 128
#define PROMPT_WARPS (PROMPT_THREADS / 32)
#define PROMPT_KEYS BLOCK_TOKENS
// Results are scaled down only when a score is so much above the largest one at the last time. Weights may be as large as e^this.
#define LARGEST_GROWTH 5.0f

// How a tile is cut: VALUE_SLICES warps share ROW_TILES * 16 queries; each computes all their scores, and sums 64 * CHUNKS
// elements of the values.
template <bool IS_QUANTIZED_, int CHUNKS_, int VALUE_SLICES_, int ROW_TILES_, int STAGES_> struct PromptShape {
    static constexpr bool IS_QUANTIZED = IS_QUANTIZED_;
    static constexpr uint32_t CHUNKS = CHUNKS_, VALUE_SLICES = VALUE_SLICES_, ROW_TILES = ROW_TILES_, STAGES = STAGES_;
    static constexpr uint32_t ROWS = 16 * ROW_TILES * (PROMPT_WARPS / VALUE_SLICES); // queries of a block
    static constexpr uint32_t WIDTH = 64 * CHUNKS * VALUE_SLICES;                    // elements of a head, padded
    static constexpr uint32_t UNITS = WIDTH / 8;
    static constexpr uint32_t STEPS = WIDTH / 16;
    static constexpr uint32_t KEYS_AT_ONCE = PROMPT_THREADS / UNITS; // rows that the block copies at a time
    static constexpr uint32_t COPIES = PROMPT_KEYS / KEYS_AT_ONCE;
    static constexpr uint32_t PREFETCHED = COPIES < 4 ? COPIES : 4; // copies of quants that registers can hold for a while
    static constexpr uint32_t SHARED_BYTES = (ROWS + 2 * STAGES * PROMPT_KEYS) * WIDTH * 2;
};

struct PromptJob {
    uint32_t kv_head;
    uint32_t group;       // query heads of a kv head
    uint32_t first_row;   // of the sequence, in the set
    uint32_t position;    // of that row
    uint32_t first_query; // of the tile
    uint32_t n_queries;   // of the sequence
    uint32_t begin, end;  // positions that queries of the tile see
    const uint32_t *blocks;
};

DEVICE uint32_t position_of_query(const PromptJob &job, uint32_t query) {
    return job.position + smaller(query, job.n_queries - 1) / job.group;
}

// Finds the block's tile among those of all sequences; false if there is none. Tiles of sequence s get the numbers from
// first_rows[s] * group / ROWS + s on, of which there are enough before the next sequence's. Late tiles see most, so they come
// first.
DEVICE bool find_prompt_job(const AttentionArguments &arguments, uint32_t tile_rows, PromptJob &job) {
    const Batch &batch = arguments.batch;
    const uint32_t *first_rows = arguments.set == SET_SELECTED ? batch.first_selected : batch.first_rows;
    uint32_t group = arguments.n_heads / arguments.kv.n_kv_heads;
    uint32_t number = grid_x() - 1 - block_x(), sequence = 0, behind = batch.n_sequences;
    while (behind - sequence > 1) {
        uint32_t middle = (sequence + behind) / 2;
        if ((uint64_t)first_rows[middle] * group / tile_rows + middle <= number) {
            sequence = middle;
        } else {
            behind = middle;
        }
    }
    uint32_t first_row = first_rows[sequence];
    uint32_t first_number = (uint32_t)((uint64_t)first_row * group / tile_rows) + sequence;
    job.n_queries = (first_rows[sequence + 1] - first_row) * group;
    if (number < first_number || (uint64_t)(number - first_number) * tile_rows >= job.n_queries) return false;
    job.kv_head = block_y();
    job.group = group;
    job.first_row = first_row;
    job.position = batch.positions[row_of_set(arguments, first_row)];
    job.first_query = (number - first_number) * tile_rows;
    job.begin = first_visible(arguments, position_of_query(job, job.first_query));
    job.end = position_of_query(job, job.first_query + tile_rows - 1) + 1;
    job.blocks = batch.blocks + batch.block_starts[sequence];
    return true;
}

template <typename Shape> DEVICE uint32_t first_query_of_warp(const PromptJob &job) {
    return job.first_query + warp() / Shape::VALUE_SLICES * Shape::ROW_TILES * 16;
}

// --- Many rows: copies into shared memory

DEVICE uint32_t swizzle(uint32_t key) { return ((key ^ key >> 1) & 1) << 2 | (key >> 2 & 1) << 1; }

// Keys or values of a block of the cache, those of the job's head.
struct PromptRows {
    const uint8_t *start;
    uint32_t position; // of the first row
};

// The rows that this thread copies are `KEYS_AT_ONCE` apart; of each, it copies one unit.
template <typename Shape> DEVICE uint32_t copied_unit() { return thread_id() % Shape::UNITS; }
template <typename Shape> DEVICE uint32_t copied_key(uint32_t copy) {
    return copy * Shape::KEYS_AT_ONCE + thread_id() / Shape::UNITS;
}
template <typename Shape> DEVICE Uint4 *copied_place(Uint4 *to, uint32_t copy) {
    uint32_t key = copied_key<Shape>(copy);
    return to + key * Shape::UNITS + (copied_unit<Shape>() ^ swizzle(key));
}

// Starts to copy rows of halves. What no query sees becomes zeros.
template <typename Shape> DEVICE void copy_halves(const Kv &kv, const PromptJob &job, const PromptRows &rows, Uint4 *to) {
    if (copied_unit<Shape>() * 8 >= kv.head_dim) return;
#pragma unroll
    for (uint32_t i = 0; i < Shape::COPIES; i++) {
        uint32_t key = copied_key<Shape>(i);
        if (rows.position + key >= job.begin && rows.position + key < job.end) {
            async_copy16(copied_place<Shape>(to, i), rows.start + key * kv.row_bytes + copied_unit<Shape>() * 16);
        } else {
            *copied_place<Shape>(to, i) = Uint4{0, 0, 0, 0};
        }
    }
}

// A thread's part of some rows of quants, from the copy `first` on, on their way to shared memory.
template <typename Shape, int COPIES> struct PromptQuants {
    Uint2 quants[COPIES];
    uint32_t scales[COPIES];

    DEVICE void load(const Kv &kv, const PromptJob &job, const PromptRows &rows, uint32_t first) {
        uint32_t unit = copied_unit<Shape>();
#pragma unroll
        for (uint32_t i = 0; i < COPIES; i++) {
            uint32_t key = copied_key<Shape>(first + i);
            bool exists = rows.position + key >= job.begin && rows.position + key < job.end && unit * 8 < kv.head_dim;
            const uint8_t *row = rows.start + key * kv.row_bytes;
            quants[i] = Uint2{0, 0}, scales[i] = 0;
            if (!exists) continue;
            quants[i] = load_global(reinterpret_cast<const Uint2 *>(row + unit * 8));
            scales[i] = load_global(reinterpret_cast<const HalfBits *>(row + kv.head_dim) + unit * 8 / SCALE_ELEMENTS);
        }
    }

    DEVICE void store(Uint4 *to, uint32_t first) const {
#pragma unroll
        for (uint32_t i = 0; i < COPIES; i++) {
            uint32_t halves[4];
            unpack_quants(quants[i].x, half_to_float((HalfBits)scales[i]), halves);
            unpack_quants(quants[i].y, half_to_float((HalfBits)scales[i]), halves + 2);
            *copied_place<Shape>(to, first + i) = Uint4{halves[0], halves[1], halves[2], halves[3]};
        }
    }
};

// Copies rows of quants from the copy `first` on.
template <typename Shape>
DEVICE void copy_quants(const Kv &kv, const PromptJob &job, const PromptRows &rows, uint32_t first, Uint4 *to) {
#pragma unroll 1
    for (; first < Shape::COPIES; first += 2) {
        PromptQuants<Shape, 2> quants;
        quants.load(kv, job, rows, first);
        quants.store(to, first);
    }
}

// Starts to copy rows, or copies them.
template <typename Shape> DEVICE void copy_rows(const Kv &kv, const PromptJob &job, const PromptRows &rows, Uint4 *to) {
    if (Shape::IS_QUANTIZED) {
        copy_quants<Shape>(kv, job, rows, 0, to);
    } else {
        copy_halves<Shape>(kv, job, rows, to);
        async_commit();
    }
}

// Elements that pad the rows to whole units of the shape: zeros, once and for all.
template <typename Shape> DEVICE void clear_padding(const Kv &kv, Uint4 *memory, uint32_t n_rows) {
    uint32_t first = kv.head_dim / 8, n = Shape::UNITS - first;
    for (uint32_t index = thread_id(); index < n_rows * n; index += PROMPT_THREADS) {
        uint32_t row = index / n;
        memory[row * Shape::UNITS + ((first + index % n) ^ swizzle(row))] = Uint4{0, 0, 0, 0};
    }
}

// Two halves each of four elements of a query, scaled.
DEVICE void load_query(const AttentionArguments &arguments, const PromptJob &job, uint32_t index, uint32_t first,
                       uint32_t to[2]) {
    to[0] = to[1] = 0;
    uint32_t query = job.first_query + index;
    if (query >= job.n_queries || first >= arguments.kv.head_dim) return;
    const float *from = arguments.queries.data + (uint64_t)(job.first_row + query / job.group) * arguments.queries.stride;
    from += (uint64_t)(job.kv_head * job.group + query % job.group) * arguments.kv.head_dim + first;
    for (uint32_t i = 0; i < 2; i++) to[i] = pack_halves(from[2 * i] * arguments.scale, from[2 * i + 1] * arguments.scale);
}

// Puts the queries into shared memory as the lanes' operands: [row tile][step][lane].
template <typename Shape> DEVICE void prepare_queries(const AttentionArguments &arguments, const PromptJob &job, Uint4 *queries) {
    for (uint32_t index = thread_id(); index < Shape::ROWS / 16 * Shape::STEPS * 32; index += PROMPT_THREADS) {
        uint32_t g = index % 32 / 4, t = index % 4, step = index / 32 % Shape::STEPS, row = index / 32 / Shape::STEPS * 16 + g;
        uint32_t first = step / 2 * 32 + t * 8 + step % 2 * 4;
        uint32_t upper[2], lower[2];
        load_query(arguments, job, row, first, upper);
        load_query(arguments, job, row + 8, first, lower);
        queries[index] = Uint4{upper[0], lower[0], upper[1], lower[1]};
    }
}

// --- Many rows: what a warp computes

// Scores by row tile, eight keys, and place in a result of a product; weights as operands for 16 keys at a time.
template <typename Shape> using PromptScores = float[Shape::ROW_TILES][PROMPT_KEYS / 8][4];
template <typename Shape> using PromptWeights = uint32_t[Shape::ROW_TILES][PROMPT_KEYS / 16][4];

// A warp's sums, and by row (g and g + 8 of every row tile) what scores are relative to, and this lane's part of the sum of
// weights.
template <typename Shape> struct PromptState {
    float results[Shape::ROW_TILES][Shape::CHUNKS][8][4];
    float largest[Shape::ROW_TILES * 2];
    float sums[Shape::ROW_TILES * 2];
};

// Adds the products of the j-th 32 elements. `queries` and `keys` are where this lane's operands begin.
template <typename Shape>
FORCE_INLINE_DEVICE void score_elements(const Uint4 *queries, const Uint4 *keys, uint32_t j, PromptScores<Shape> &scores) {
    uint32_t a[Shape::ROW_TILES][2][4];
#pragma unroll
    for (uint32_t i = 0; i < Shape::ROW_TILES * 2; i++) {
        Uint4 operand = queries[(i / 2 * Shape::STEPS + j * 2 + i % 2) * 32];
        uint32_t *to = a[i / 2][i % 2];
        to[0] = operand.x, to[1] = operand.y, to[2] = operand.z, to[3] = operand.w;
    }
#pragma unroll
    for (uint32_t n = 0; n < PROMPT_KEYS / 8; n++) {
        Uint4 operand = keys[n * 8 * Shape::UNITS];
        uint32_t b[4] = {operand.x, operand.y, operand.z, operand.w};
#pragma unroll
        for (uint32_t m = 0; m < Shape::ROW_TILES; m++) {
            multiply_tile(scores[m][n], a[m][0], b);
            multiply_tile(scores[m][n], a[m][1], b + 2);
        }
    }
}

// The scores of the warp's queries.
template <typename Shape>
FORCE_INLINE_DEVICE void score_keys(const Uint4 *queries, const Uint4 *keys, uint32_t head_dim, PromptScores<Shape> &scores) {
    uint32_t g = lane() / 4, t = lane() % 4;
#pragma unroll
    for (uint32_t i = 0; i < Shape::ROW_TILES * PROMPT_KEYS / 2; i++) {
        scores[i / (PROMPT_KEYS / 2)][i / 4 % (PROMPT_KEYS / 8)][i % 4] = 0.0f;
    }
#pragma unroll 2
    for (uint32_t j = 0; j < Shape::WIDTH / 32; j++) {
        if (j * 32 >= head_dim) break;
        score_elements<Shape>(queries + lane(), keys + g * Shape::UNITS + ((j * 4 + t) ^ swizzle(g)), j, scores);
    }
}

template <typename Shape> FORCE_INLINE_DEVICE void cap_scores(float cap, PromptScores<Shape> &scores) {
#pragma unroll
    for (uint32_t i = 0; i < Shape::ROW_TILES * PROMPT_KEYS / 2; i++) {
        float &score = scores[i / (PROMPT_KEYS / 2)][i / 4 % (PROMPT_KEYS / 8)][i % 4];
        score = capped_score(score, cap);
    }
}

// Gives the lowest score to what a query does not see.
template <typename Shape>
DEVICE void hide_scores(const AttentionArguments &arguments, const PromptJob &job, uint32_t first, PromptScores<Shape> &scores) {
#pragma unroll
    for (uint32_t row = 0; row < Shape::ROW_TILES * 2; row++) {
        uint32_t last = position_of_query(job, first_query_of_warp<Shape>(job) + row * 8 + lane() / 4);
        uint32_t visible = first_visible(arguments, last);
#pragma unroll
        for (uint32_t i = 0; i < PROMPT_KEYS / 4; i++) {
            uint32_t position = first + i / 2 * 8 + lane() % 4 * 2 + i % 2;
            if (position > last || position < visible) scores[row / 2][i / 2][row % 2 * 2 + i % 2] = LOWEST_SCORE;
        }
    }
}

// Makes larger scores what the others are relative to, if they are too large else.
template <typename Shape> FORCE_INLINE_DEVICE void raise_largest(const PromptScores<Shape> &scores, PromptState<Shape> &state) {
    float raised[Shape::ROW_TILES * 2];
    bool is_raised = false;
#pragma unroll
    for (uint32_t row = 0; row < Shape::ROW_TILES * 2; row++) {
        const float *first = &scores[row / 2][0][row % 2 * 2];
        float largest = first[0];
#pragma unroll
        for (uint32_t i = 1; i < PROMPT_KEYS / 4; i++) largest = larger(largest, first[i / 2 * 4 + i % 2]);
        largest = larger(largest, shuffle_xor(largest, 1));
        largest = larger(largest, shuffle_xor(largest, 2));
        bool raises = largest > state.largest[row] + LARGEST_GROWTH;
        raised[row] = raises ? largest : state.largest[row];
        is_raised = is_raised || raises;
    }
    if (!is_raised) return;
#pragma unroll
    for (uint32_t row = 0; row < Shape::ROW_TILES * 2; row++) {
        float factor = fast_exp(state.largest[row] - raised[row]);
        state.largest[row] = raised[row];
        state.sums[row] *= factor;
#pragma unroll
        for (uint32_t i = 0; i < Shape::CHUNKS * 16; i++) {
            state.results[row / 2][i / 16][i % 16 / 2][row % 2 * 2 + i % 2] *= factor;
        }
    }
}

// Turns scores into weights. If a query has seen nothing yet, they mean nothing, and disappear when it sees something.
template <typename Shape>
FORCE_INLINE_DEVICE void weigh_keys(const PromptScores<Shape> &scores, PromptState<Shape> &state, PromptWeights<Shape> &weights) {
    raise_largest<Shape>(scores, state);
#pragma unroll
    for (uint32_t row = 0; row < Shape::ROW_TILES * 2; row++) {
#pragma unroll
        for (uint32_t n = 0; n < PROMPT_KEYS / 8; n++) {
            const float *pair = &scores[row / 2][n][row % 2 * 2];
            float first = fast_exp(pair[0] - state.largest[row]), second = fast_exp(pair[1] - state.largest[row]);
            state.sums[row] += first + second;
            weights[row / 2][n / 2][n % 2 * 2 + row % 2] = pack_halves(first, second);
        }
    }
}

// Adds the weighted values of 16 keys, the k-th ones. `first` and `second` are where those of keys 2t and 2t + 1 begin.
template <typename Shape>
FORCE_INLINE_DEVICE void sum_keys(const PromptWeights<Shape> &weights, uint32_t k, const Uint4 *first, const Uint4 *second,
                                  PromptState<Shape> &state) {
#pragma unroll
    for (uint32_t c = 0; c < Shape::CHUNKS; c++) {
        Uint4 rows[4] = {first[c * 8], second[c * 8], first[8 * Shape::UNITS + c * 8], second[8 * Shape::UNITS + c * 8]};
        uint32_t words[4][4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            words[0][i] = rows[i].x, words[1][i] = rows[i].y, words[2][i] = rows[i].z, words[3][i] = rows[i].w;
        }
#pragma unroll
        for (uint32_t word = 0; word < 4; word++) {
            uint32_t upper[2], lower[2];
            pair_up(words[word][0], words[word][1], upper);
            pair_up(words[word][2], words[word][3], lower);
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                uint32_t b[2] = {upper[i], lower[i]};
#pragma unroll
                for (uint32_t m = 0; m < Shape::ROW_TILES; m++) {
                    multiply_tile(state.results[m][c][word * 2 + i], weights[m][k], b);
                }
            }
        }
    }
}

template <typename Shape>
FORCE_INLINE_DEVICE void sum_values(const PromptWeights<Shape> &weights, const Uint4 *values, PromptState<Shape> &state) {
    uint32_t g = lane() / 4, t = lane() % 4;
    const Uint4 *of_slice = values + warp() % Shape::VALUE_SLICES * Shape::CHUNKS * 8;
    const Uint4 *first = of_slice + t * 2 * Shape::UNITS + (g ^ swizzle(t * 2));
    const Uint4 *second = of_slice + (t * 2 + 1) * Shape::UNITS + (g ^ swizzle(t * 2 + 1));
#pragma unroll
    for (uint32_t k = 0; k < PROMPT_KEYS / 16; k++) {
        sum_keys<Shape>(weights, k, first + k * 16 * Shape::UNITS, second + k * 16 * Shape::UNITS, state);
    }
}

// Eight neighbouring floats; rows need not be aligned.
DEVICE void write_eight(float *to, const float eight[8]) {
    if ((uintptr_t)to % 16 == 0) {
        reinterpret_cast<Float4 *>(to)[0] = Float4{eight[0], eight[1], eight[2], eight[3]};
        reinterpret_cast<Float4 *>(to)[1] = Float4{eight[4], eight[5], eight[6], eight[7]};
    } else {
        for (uint32_t i = 0; i < 8; i++) to[i] = eight[i];
    }
}

template <typename Shape>
DEVICE void write_results(const AttentionArguments &arguments, const PromptJob &job, const PromptState<Shape> &state) {
    uint32_t head_dim = arguments.kv.head_dim;
#pragma unroll
    for (uint32_t row = 0; row < Shape::ROW_TILES * 2; row++) {
        float sum = state.sums[row] + shuffle_xor(state.sums[row], 1);
        sum += shuffle_xor(sum, 2);
        uint32_t query = first_query_of_warp<Shape>(job) + row * 8 + lane() / 4;
        if (query >= job.n_queries) continue;
        uint32_t head = job.kv_head * job.group + query % job.group;
        if (arguments.sinks) sum += exp_(arguments.sinks[head] - state.largest[row]);
        float factor = 1.0f / sum;
        float *to = arguments.to.data + (uint64_t)(job.first_row + query / job.group) * arguments.to.stride;
        to += (uint64_t)head * head_dim;
#pragma unroll
        for (uint32_t i = 0; i < Shape::CHUNKS * 2; i++) {
            uint32_t element = (warp() % Shape::VALUE_SLICES * Shape::CHUNKS + i / 2) * 64 + lane() % 4 * 16 + i % 2 * 8;
            float eight[8];
            for (uint32_t k = 0; k < 8; k++) eight[k] = state.results[row / 2][i / 2][k][row % 2 * 2 + i % 2] * factor;
            if (element < head_dim) write_eight(to + element, eight);
        }
    }
}

// --- Many rows: the loops

// Where the block of a position starts, and before that, its number: looked up in two steps, the one a block earlier than the
// other.
DEVICE uint32_t number_of_block(const PromptJob &job, uint32_t position) {
    return load_global(job.blocks + smaller(position, job.end - 1) / BLOCK_TOKENS);
}

// With two stages.
template <typename Shape>
DEVICE void attend_staged(const AttentionArguments &arguments, const PromptJob &job, const Uint4 *queries, Uint4 *memory,
                          PromptState<Shape> &state) {
    const Kv &kv = arguments.kv;
    const uint32_t part = PROMPT_KEYS * Shape::UNITS;
    uint64_t head_offset = row_offset(kv, job.kv_head, 0);
    // From here to there, every query of the tile sees all.
    uint32_t seen_from = first_visible(arguments, job.end - 1), seen_until = position_of_query(job, job.first_query) + 1;
    uint32_t position = job.begin / BLOCK_TOKENS * BLOCK_TOKENS;
    const uint8_t *block = block_address(kv, number_of_block(job, position)) + head_offset;
    const uint8_t *next_block = block_address(kv, number_of_block(job, position + PROMPT_KEYS)) + head_offset;
    uint32_t number = number_of_block(job, position + 2 * PROMPT_KEYS);
    copy_rows<Shape>(kv, job, PromptRows{block + kv.keys_offset, position}, memory);
    copy_rows<Shape>(kv, job, PromptRows{block + kv.values_offset, position}, memory + part);
    for (uint32_t stage = 0; position < job.end; position += PROMPT_KEYS, stage ^= 1) {
        Uint4 *keys = memory + stage * 2 * part, *next_keys = memory + (stage ^ 1) * 2 * part;
        PromptRows rows_of_keys = {next_block + kv.keys_offset, position + PROMPT_KEYS};
        PromptRows rows_of_values = {next_block + kv.values_offset, position + PROMPT_KEYS};
        bool has_next = position + PROMPT_KEYS < job.end, has_quants = has_next && Shape::IS_QUANTIZED;
        PromptQuants<Shape, Shape::PREFETCHED> quants;
        PromptScores<Shape> scores;
        PromptWeights<Shape> weights;
        async_wait(0);
        sync_block(); // This stage is there, and nobody reads the other one any more.
        if (has_quants) {
            quants.load(kv, job, rows_of_keys, 0);
            copy_quants<Shape>(kv, job, rows_of_keys, Shape::PREFETCHED, next_keys);
        } else if (has_next) {
            copy_halves<Shape>(kv, job, rows_of_keys, next_keys);
            copy_halves<Shape>(kv, job, rows_of_values, next_keys + part);
            async_commit();
        }
        next_block = block_address(kv, number) + head_offset;
        number = number_of_block(job, position + 3 * PROMPT_KEYS);
        score_keys<Shape>(queries, keys, kv.head_dim, scores);
        if (has_quants) {
            quants.store(next_keys, 0);
            quants.load(kv, job, rows_of_values, 0);
            copy_quants<Shape>(kv, job, rows_of_values, Shape::PREFETCHED, next_keys + part);
        }
        if (arguments.soft_cap > 0.0f) cap_scores<Shape>(arguments.soft_cap, scores);
        if (position < seen_from || position + PROMPT_KEYS > seen_until) hide_scores<Shape>(arguments, job, position, scores);
        weigh_keys<Shape>(scores, state, weights);
        sum_values<Shape>(weights, keys + part, state);
        if (has_quants) quants.store(next_keys + part, 0);
    }
}

// With one stage.
template <typename Shape>
DEVICE void attend_by_turns(const AttentionArguments &arguments, const PromptJob &job, const Uint4 *queries, Uint4 *keys,
                            PromptState<Shape> &state) {
    const Kv &kv = arguments.kv;
    Uint4 *values = keys + PROMPT_KEYS * Shape::UNITS;
    uint64_t head_offset = row_offset(kv, job.kv_head, 0);
    uint32_t position = job.begin / BLOCK_TOKENS * BLOCK_TOKENS;
    const uint8_t *block = block_address(kv, number_of_block(job, position)) + head_offset;
    uint32_t number = number_of_block(job, position + PROMPT_KEYS);
    copy_rows<Shape>(kv, job, PromptRows{block + kv.keys_offset, position}, keys);
    for (; position < job.end; position += PROMPT_KEYS) {
        PromptScores<Shape> scores;
        PromptWeights<Shape> weights;
        async_wait(0);
        sync_block(); // The keys are there, and nobody reads the previous values any more.
        copy_rows<Shape>(kv, job, PromptRows{block + kv.values_offset, position}, values);
        block = block_address(kv, number) + head_offset;
        number = number_of_block(job, position + 2 * PROMPT_KEYS);
        score_keys<Shape>(queries, keys, kv.head_dim, scores);
        if (arguments.soft_cap > 0.0f) cap_scores<Shape>(arguments.soft_cap, scores);
        hide_scores<Shape>(arguments, job, position, scores);
        async_wait(0);
        sync_block(); // The values are there, and nobody reads the keys any more.
        if (position + PROMPT_KEYS < job.end) {
            copy_rows<Shape>(kv, job, PromptRows{block + kv.keys_offset, position + PROMPT_KEYS}, keys);
        }
        weigh_keys<Shape>(scores, state, weights);
        sum_values<Shape>(weights, values, state);
    }
}

template <typename Shape> DEVICE void attend_tile(const AttentionArguments &arguments, Uint4 *memory) {
    PromptJob job;
    if (!find_prompt_job(arguments, Shape::ROWS, job)) return;
    const uint32_t n_rows = 2 * Shape::STAGES * PROMPT_KEYS;
    Uint4 *queries = memory + n_rows * Shape::UNITS;
    const Uint4 *my_queries = queries + warp() / Shape::VALUE_SLICES * Shape::ROW_TILES * Shape::STEPS * 32;
    clear_padding<Shape>(arguments.kv, memory, n_rows);
    prepare_queries<Shape>(arguments, job, queries);
    PromptState<Shape> state = {};
#pragma unroll
    for (uint32_t row = 0; row < Shape::ROW_TILES * 2; row++) state.largest[row] = LOWEST_SCORE;
    if (Shape::STAGES == 2) {
        attend_staged<Shape>(arguments, job, my_queries, memory, state);
    } else {
        attend_by_turns<Shape>(arguments, job, my_queries, memory, state);
    }
    write_results<Shape>(arguments, job, state);
}

template <bool IS_QUANTIZED> using PromptShape64 = PromptShape<IS_QUANTIZED, 1, 1, 2, 2>;
template <bool IS_QUANTIZED> using PromptShape128 = PromptShape<IS_QUANTIZED, 2, 1, 2, 2>;
template <bool IS_QUANTIZED> using PromptShape256 = PromptShape<IS_QUANTIZED, 4, 1, 1, 2>;
template <bool IS_QUANTIZED> using PromptShape512 = PromptShape<IS_QUANTIZED, 4, 2, 1, 1>;

// Kernels `attend_prompt_FORMAT_WIDTH`, WIDTH being the smallest of 64, 128, 256, 512 that is not less than head_dim:
// PROMPT_THREADS threads, grid (n_rows * group / ROWS rounded down + n_sequences, n_kv_heads), SHARED_BYTES bytes of shared
// memory, where ROWS and SHARED_BYTES are 128 and 32768 for width 64, 128 and 65536 for 128, 64 and 98304 for 256, 32 and 98304
// for 512.
#define PROMPT_KERNEL(format, width, is_quantized) \
    KERNEL_BOUNDS(attend_prompt_##format##_##width, AttentionArguments, PROMPT_THREADS, 2) { \
        DYNAMIC_SHARED(Uint4, memory); \
        attend_tile<PromptShape##width<is_quantized>>(arguments, memory); \
    }
PROMPT_KERNEL(f16, 64, false)
PROMPT_KERNEL(f16, 128, false)
PROMPT_KERNEL(f16, 256, false)
PROMPT_KERNEL(f16, 512, false)
PROMPT_KERNEL(q8_0, 64, true)
PROMPT_KERNEL(q8_0, 128, true)
PROMPT_KERNEL(q8_0, 256, true)
PROMPT_KERNEL(q8_0, 512, true)
