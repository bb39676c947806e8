// Operations on single rows. A block works on one row, or on some columns of it, operation by operation.
#pragma once
#include "dequantize.h"
#include "platform.h"

// Operations that are brought to shared memory together: all of them in nearly every launch.
#define OPERATIONS_AT_ONCE 16
#define MAX_EXPERTS 1024

namespace row_operations {

// What a block works on.
struct RowPlace {
    uint64_t row;
    uint32_t set;
    uint32_t first; // its first column
    uint32_t width; // the number of columns; the last ones may not exist
};

FORCE_INLINE_DEVICE float *row_of(const Part &part, uint64_t row) { return part.data + row * part.stride; }

FORCE_INLINE_DEVICE uint32_t end_of(const RowPlace &place, uint32_t width) {
    uint32_t n_left = width > place.first ? width - place.first : 0;
    return place.first + smaller(n_left, place.width);
}

// The row of the step's tokens.
FORCE_INLINE_DEVICE uint64_t token_row(const Batch &batch, const RowPlace &place) {
    return place.set == SET_SELECTED ? batch.selected[place.row] : place.row;
}

FORCE_INLINE_DEVICE bool is_aligned(const void *p, uint32_t n_bytes) { return (uintptr_t)p % n_bytes == 0; }

// --- Four columns at a time ---------------------------------------------------------------------------------------------

// Elements beyond `n` are zero.
FORCE_INLINE_DEVICE Float4 load4(const float *from, uint32_t n) {
    if (n >= 4 && is_aligned(from, 16)) return *reinterpret_cast<const Float4 *>(from);
    Float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
    if (n > 0) x.x = from[0];
    if (n > 1) x.y = from[1];
    if (n > 2) x.z = from[2];
    if (n > 3) x.w = from[3];
    return x;
}

FORCE_INLINE_DEVICE void store4(float *to, uint32_t n, Float4 x) {
    if (n >= 4 && is_aligned(to, 16)) {
        *reinterpret_cast<Float4 *>(to) = x;
        return;
    }
    if (n > 0) to[0] = x.x;
    if (n > 1) to[1] = x.y;
    if (n > 2) to[2] = x.z;
    if (n > 3) to[3] = x.w;
}

// Calls `function` with the first of every four columns of the thread, and the number of columns from there to the end.
template <typename Function>
FORCE_INLINE_DEVICE void for_columns(const RowPlace &place, uint32_t width, Function function) {
    uint32_t end = end_of(place, width);
    for (uint32_t column = place.first + 4 * thread_id(); column < end; column += 4 * n_threads()) function(column, end - column);
}

// to <- function(to)
template <typename Function>
FORCE_INLINE_DEVICE void change(const RowPlace &place, const Part &part, Function function) {
    float *to = row_of(part, place.row);
    for_columns(place, part.width, [&](uint32_t column, uint32_t n) {
        Float4 x = load4(to + column, n);
        store4(to + column, n, Float4{function(x.x), function(x.y), function(x.z), function(x.w)});
    });
}

// to <- function(to, from)
template <typename Function>
FORCE_INLINE_DEVICE void join(const RowPlace &place, const Part &part, const float *from, Function function) {
    float *to = row_of(part, place.row);
    for_columns(place, part.width, [&](uint32_t column, uint32_t n) {
        Float4 x = load4(to + column, n), y = load4(from + column, n);
        store4(to + column, n, Float4{function(x.x, y.x), function(x.y, y.y), function(x.z, y.z), function(x.w, y.w)});
    });
}

DEVICE void copy(const RowPlace &place, const Part &part, const float *from) {
    float *to = row_of(part, place.row);
    for_columns(place, part.width, [&](uint32_t column, uint32_t n) { store4(to + column, n, load4(from + column, n)); });
}

DEVICE void add(const RowPlace &place, const Part &part, const float *from) {
    join(place, part, from, [](float x, float y) { return x + y; });
}

DEVICE void scale(const RowPlace &place, const Part &part, float factor) {
    change(place, part, [=](float x) { return x * factor; });
}

// --- Functions of one element -------------------------------------------------------------------------------------------

FORCE_INLINE_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + exp_(-x)); }

FORCE_INLINE_DEVICE float gelu(float x) {
    return 0.5f * x * (1.0f + tanh_(0.79788456f * (x + 0.044715f * x * x * x)));
}

// The SwiGLU of gpt-oss, with the factor that it gates.
FORCE_INLINE_DEVICE float clamped_silu(float x, float factor) {
    float gate = fminf(x, 7.0f);
    return gate * sigmoid(1.702f * gate) * (1.0f + fmaxf(fminf(factor, 7.0f), -7.0f));
}

DEVICE void gate(const RowPlace &place, const RowOperation &operation) {
    const float *factors = row_of(operation.b, place.row);
    switch (operation.n0) {
        case 0: join(place, operation.a, factors, [](float x, float y) { return x * sigmoid(x) * y; }); break;
        case 1: join(place, operation.a, factors, [](float x, float y) { return gelu(x) * y; }); break;
        default: join(place, operation.a, factors, [](float x, float y) { return clamped_silu(x, y); }); break;
    }
}

DEVICE void gate_sigmoid(const RowPlace &place, const RowOperation &operation) {
    const float *gates = row_of(operation.b, place.row);
    if (operation.b.width == operation.a.width) {
        join(place, operation.a, gates, [](float x, float y) { return x * sigmoid(y); });
    } else {
        scale(place, operation.a, sigmoid(gates[0]));
    }
}

// --- Tokens and positions -----------------------------------------------------------------------------------------------

DEVICE void embed(const Batch &batch, const RowPlace &place, const RowOperation &operation) {
    const Matrix matrix = operation.m;
    uint32_t token = batch.tokens[token_row(batch, place)];
    float *to = row_of(operation.a, place.row);
    uint32_t end = end_of(place, operation.a.width);
    for (uint32_t column = place.first + thread_id(); column < end; column += n_threads()) {
        to[column] = dequantize_element(matrix, token, column) * operation.f0;
    }
}

DEVICE void angles(const Batch &batch, const RowPlace &place, const RowOperation &operation) {
    float *to = row_of(operation.a, place.row);
    float position = (float)batch.positions[token_row(batch, place)];
    for (uint32_t pair = thread_id(); pair < operation.n0; pair += n_threads()) {
        float sine, cosine;
        sincos_(position * operation.v0[pair], &sine, &cosine);
        to[pair] = cosine * operation.f0;
        to[operation.n0 + pair] = sine * operation.f0;
    }
}

DEVICE void sharpen(const Batch &batch, const RowPlace &place, const RowOperation &operation) {
    uint64_t steps = ((uint64_t)batch.positions[token_row(batch, place)] + operation.n1) / operation.n0;
    scale(place, operation.a, 1.0f + operation.f0 * log1p_((float)steps));
}

DEVICE void rotate(const RowPlace &place, const RowOperation &operation) {
    float *heads = row_of(operation.a, place.row);
    const float *cosines = row_of(operation.b, place.row);
    const float *sines = cosines + operation.n1;
    uint32_t n_pairs = operation.n1, n_all = operation.a.width / operation.n0 * n_pairs;
    uint32_t step = operation.n2 ? 2 : 1, distance = operation.n2 ? 1 : n_pairs;
    for (uint32_t index = thread_id(); index < n_all; index += n_threads()) {
        uint32_t head = index / n_pairs, pair = index - head * n_pairs;
        float *first = heads + (size_t)head * operation.n0 + step * pair;
        float x = first[0], y = first[distance], cosine = cosines[pair], sine = sines[pair];
        first[0] = x * cosine - y * sine;
        first[distance] = x * sine + y * cosine;
    }
}

// --- Heads --------------------------------------------------------------------------------------------------------------

DEVICE void unzip(const RowPlace &place, const RowOperation &operation) {
    const float *from = row_of(operation.b, place.row);
    float *first = row_of(operation.a, place.row), *second = row_of(operation.c, place.row);
    uint32_t head_dim = operation.n0;
    for (uint32_t column = thread_id(); column < operation.a.width; column += n_threads()) {
        const float *source = from + column + (size_t)(column / head_dim) * head_dim;
        first[column] = source[0];
        second[column] = source[head_dim];
    }
}

DEVICE void decay(const RowPlace &place, const RowOperation &operation) {
    float *steps = row_of(operation.a, place.row), *decays = row_of(operation.b, place.row);
    for (uint32_t head = thread_id(); head < operation.a.width; head += n_threads()) {
        float x = steps[head] + operation.v0[head];
        float step = x > 20.0f ? x : log1p_(exp_(x));
        steps[head] = step;
        decays[head] = exp_(operation.v1[head] * step);
    }
}

DEVICE void add_heads(const RowPlace &place, const RowOperation &operation) {
    float *to = row_of(operation.a, place.row);
    const float *from = row_of(operation.b, place.row);
    uint32_t head_dim = operation.a.width / operation.n0;
    for (uint32_t column = thread_id(); column < operation.a.width; column += n_threads()) {
        to[column] += from[column] * operation.v0[column / head_dim];
    }
}

FORCE_INLINE_DEVICE float sum_of_squares(Float4 x) { return x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w; }

FORCE_INLINE_DEVICE Float4 normed(Float4 x, Float4 weight, float factor) {
    return Float4{x.x * factor * weight.x, x.y * factor * weight.y, x.z * factor * weight.z, x.w * factor * weight.w};
}

// Norms one head with threads `index` of `n`, which `sum` adds up. What fits into registers is read once.
template <typename Sum>
FORCE_INLINE_DEVICE void norm_head(float *head, const RowOperation &operation, uint32_t index, uint32_t n, Sum sum) {
    constexpr uint32_t N_KEPT = 4;
    uint32_t width = operation.n0;
    Float4 kept[N_KEPT];
    float squares = 0.0f;
    UNROLL
    for (uint32_t i = 0; i < N_KEPT; i++) {
        uint32_t column = 4 * (index + i * n);
        kept[i] = column < width ? load4(head + column, width - column) : Float4{0.0f, 0.0f, 0.0f, 0.0f};
        squares += sum_of_squares(kept[i]);
    }
    for (uint32_t column = 4 * (index + N_KEPT * n); column < width; column += 4 * n) {
        squares += sum_of_squares(load4(head + column, width - column));
    }
    float factor = 1.0f / sqrt_(sum(squares) / (float)width + operation.f0);
    UNROLL
    for (uint32_t i = 0; i < N_KEPT; i++) {
        uint32_t column = 4 * (index + i * n);
        if (column < width) {
            Float4 weight = load4(operation.v0 + column, width - column);
            store4(head + column, width - column, normed(kept[i], weight, factor));
        }
    }
    for (uint32_t column = 4 * (index + N_KEPT * n); column < width; column += 4 * n) {
        Float4 x = load4(head + column, width - column), weight = load4(operation.v0 + column, width - column);
        store4(head + column, width - column, normed(x, weight, factor));
    }
}

// Wide heads are for the whole block, one after the other; of narrow ones, every warp takes some.
DEVICE void norm(const RowPlace &place, const RowOperation &operation, float *shared32) {
    float *heads = row_of(operation.a, place.row);
    uint32_t n_heads = operation.a.width / operation.n0, n_warps = n_threads() / 32;
    if (n_heads >= n_warps || operation.n0 <= 512) {
        for (uint32_t head = warp(); head < n_heads; head += n_warps) {
            float *start = heads + (size_t)head * operation.n0;
            norm_head(start, operation, lane(), 32, [](float x) { return warp_sum(x); });
        }
        return;
    }
    for (uint32_t head = 0; head < n_heads; head++) {
        float *start = heads + (size_t)head * operation.n0;
        norm_head(start, operation, thread_id(), n_threads(), [=](float x) { return block_sum(x, shared32); });
    }
}

// --- Quantization -------------------------------------------------------------------------------------------------------

FORCE_INLINE_DEVICE float largest_of(Float4 x) { return fmaxf(fmaxf(abs_(x.x), abs_(x.y)), fmaxf(abs_(x.z), abs_(x.w))); }

// Eight neighbouring lanes have 32 elements. All lanes of the warp must call these.
FORCE_INLINE_DEVICE float largest_of_eight_lanes(float x) {
    for (uint32_t mask = 4; mask > 0; mask /= 2) x = fmaxf(x, shuffle_xor(x, mask));
    return x;
}

FORCE_INLINE_DEVICE int sum_of_eight_lanes(int x) {
    for (uint32_t mask = 4; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
    return x;
}

FORCE_INLINE_DEVICE int quant_of(float x) {
    int quant = round_to_int(x);
    return quant < -127 ? -127 : quant > 127 ? 127 : quant;
}

struct Quants {
    int x, y, z, w;
};

FORCE_INLINE_DEVICE Quants quants_of(Float4 x, float steps_per_unit) {
    return Quants{quant_of(x.x * steps_per_unit), quant_of(x.y * steps_per_unit), quant_of(x.z * steps_per_unit),
                  quant_of(x.w * steps_per_unit)};
}

// Four quants as bytes, the first in the lowest.
FORCE_INLINE_DEVICE uint32_t packed(Quants quants) {
    return (uint32_t)(quants.x & 0xff) | (uint32_t)(quants.y & 0xff) << 8 | (uint32_t)(quants.z & 0xff) << 16 |
           (uint32_t)(quants.w & 0xff) << 24;
}

FORCE_INLINE_DEVICE void store_bf16(Bf16Bits *to, uint32_t n, Float4 x) {
    Bf16Bits bits[4] = {float_to_bf16(x.x), float_to_bf16(x.y), float_to_bf16(x.z), float_to_bf16(x.w)};
    if (n >= 4 && is_aligned(to, 8)) {
        Uint2 pairs = {(uint32_t)bits[0] | (uint32_t)bits[1] << 16, (uint32_t)bits[2] | (uint32_t)bits[3] << 16};
        *reinterpret_cast<Uint2 *>(to) = pairs;
        return;
    }
    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        if (i < n) to[i] = bits[i];
    }
}

// Elements that belong to no group are zero, and of lanes without a group the quants are not stored.
FORCE_INLINE_DEVICE void quantize_four(const QuantizedRows &to, uint64_t row, uint32_t column, bool is_stored, Float4 x) {
    float largest = largest_of_eight_lanes(largest_of(x));
    // The inverse of the scale of tiny elements would be infinite; they become zero.
    bool is_zero = largest < 1e-30f;
    float scale = is_zero ? 0.0f : largest / 127.0f;
    Quants quants = quants_of(x, is_zero ? 0.0f : 127.0f / largest);
    int sum = sum_of_eight_lanes(quants.x + quants.y + quants.z + quants.w);
    if (!is_stored) return;
    *reinterpret_cast<uint32_t *>(to.quants + row * to.width + column) = packed(quants);
    if (column % SCALE_ELEMENTS == 0) {
        size_t group = row * (to.width / SCALE_ELEMENTS) + column / SCALE_ELEMENTS;
        to.scales[group] = scale;
        if (to.sums) to.sums[group] = scale * (float)sum;
    }
}

DEVICE void quantize(const RowPlace &place, const RowOperation &operation) {
    const QuantizedRows &to = operation.q;
    const float *from = row_of(operation.a, place.row);
    uint32_t end = end_of(place, operation.a.width);
    // Warps stay together, because their lanes look for the largest element together.
    for (uint32_t start = place.first + 128 * warp(); start < end; start += 4 * n_threads()) {
        uint32_t column = start + 4 * lane(), n = column < end ? end - column : 0;
        Float4 x = load4(from + column, n);
        if (to.quants) quantize_four(to, place.row, column, n > 0, x);
        if (to.bf16) store_bf16(to.bf16 + place.row * to.width + column, n, x);
    }
}

// --- The cache ----------------------------------------------------------------------------------------------------------

FORCE_INLINE_DEVICE float as_half(float x) { return half_to_float(float_to_half(x)); }

FORCE_INLINE_DEVICE Uint2 halves_of(Float4 x) {
    return Uint2{(uint32_t)float_to_half(x.x) | (uint32_t)float_to_half(x.y) << 16,
                 (uint32_t)float_to_half(x.z) | (uint32_t)float_to_half(x.w) << 16};
}

// Where the present token's keys of the first head are, without `keys_offset`; `values_offset` away are the values.
DEVICE uint8_t *token_in_cache(const Batch &batch, const RowPlace &place, const Kv &kv) {
    uint64_t row = token_row(batch, place);
    uint32_t position = batch.positions[row];
    uint32_t block = batch.blocks[batch.block_starts[batch.sequence_of[row]] + position / BLOCK_TOKENS];
    uint8_t *start = kv.segments[block / kv.segment_blocks] + (block % kv.segment_blocks) * kv.block_bytes;
    return start + (uint64_t)(position % BLOCK_TOKENS) * kv.row_bytes;
}

// Groups of 32 elements of keys, then of values, eight lanes for each.
DEVICE void write_kv(const Batch &batch, const RowPlace &place, const RowOperation &operation) {
    const Kv kv = operation.kv;
    uint8_t *token = token_in_cache(batch, place, kv);
    uint32_t groups_per_head = (kv.head_dim + SCALE_ELEMENTS - 1) / SCALE_ELEMENTS;
    uint32_t n_groups = kv.n_kv_heads * groups_per_head;
    for (uint32_t first = 4 * warp(); first < 2 * n_groups; first += n_threads() / 8) {
        uint32_t index = first + lane() / 8;
        bool is_value = index >= n_groups;
        uint32_t head = (is_value ? index - n_groups : index) / groups_per_head;
        uint32_t group = (is_value ? index - n_groups : index) % groups_per_head;
        uint32_t column = group * SCALE_ELEMENTS + lane() % 8 * 4;
        bool exists = index < 2 * n_groups && column < kv.head_dim;
        const float *from = row_of(is_value ? operation.b : operation.a, place.row) + (size_t)head * kv.head_dim + column;
        uint8_t *to = token + (is_value ? kv.values_offset : kv.keys_offset) + (uint64_t)head * BLOCK_TOKENS * kv.row_bytes;
        Float4 x = load4(from, exists ? 4 : 0);
        if (kv.format == KV_F16) {
            if (exists) *reinterpret_cast<Uint2 *>(to + 2 * column) = halves_of(x);
            continue;
        }
        x = Float4{as_half(x.x), as_half(x.y), as_half(x.z), as_half(x.w)};
        HalfBits scale = float_to_half(largest_of_eight_lanes(largest_of(x)) / 127.0f);
        float unit = half_to_float(scale);
        if (!exists) continue;
        *reinterpret_cast<uint32_t *>(to + column) = packed(quants_of(x, unit > 0.0f ? 1.0f / unit : 0.0f));
        if (lane() % 8 == 0) reinterpret_cast<HalfBits *>(to + kv.head_dim)[group] = scale;
    }
}

// --- Experts ------------------------------------------------------------------------------------------------------------

DEVICE void combine(const RowPlace &place, const RowOperation &operation) {
    const Routes &routes = operation.routes;
    const uint32_t *ranks = routes.ranks + place.row * routes.n_used;
    float *to = row_of(operation.a, place.row);
    bool is_weighted = operation.n0 != 0;
    for_columns(place, operation.a.width, [&](uint32_t column, uint32_t n) {
        Float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
        UNROLL_BY(4)
        for (uint32_t choice = 0; choice < routes.n_used; choice++) {
            uint32_t rank = ranks[choice];
            float weight = is_weighted ? routes.weights[rank] : 1.0f;
            Float4 x = load4(row_of(operation.b, rank) + column, n);
            sum = Float4{sum.x + x.x * weight, sum.y + x.y * weight, sum.z + x.z * weight, sum.w + x.w * weight};
        }
        store4(to + column, n, sum);
    });
}

// Numbers in the order of the floats, none of them 0. Both zeros are equal.
FORCE_INLINE_DEVICE uint32_t order_of(float x) {
    uint32_t bits = x == 0.0f ? 0 : bits_of_float(x);
    return larger(bits & 0x80000000u ? ~bits : bits | 0x80000000u, 1u);
}

// One warp turns scores into weights; every lane has those of the experts `lane() + 32 * i`.
DEVICE void weigh_experts(float *scores, uint32_t n_experts, uint32_t gating) {
    if (gating == 2) {
        for (uint32_t expert = lane(); expert < n_experts; expert += 32) scores[expert] = sigmoid(scores[expert]);
        return;
    }
    float largest = -INFINITY, sum = 0.0f;
    for (uint32_t expert = lane(); expert < n_experts; expert += 32) largest = fmaxf(largest, scores[expert]);
    largest = warp_max(largest);
    for (uint32_t expert = lane(); expert < n_experts; expert += 32) {
        float weight = exp_(scores[expert] - largest);
        scores[expert] = weight;
        sum += weight;
    }
    sum = warp_sum(sum);
    for (uint32_t expert = lane(); expert < n_experts; expert += 32) scores[expert] /= sum;
}

// The lane's best expert, of equal ones the first.
FORCE_INLINE_DEVICE uint32_t best_of_lane(const uint32_t *orders, uint32_t n_experts, uint32_t *expert_of_best) {
    uint32_t best = 0;
    for (uint32_t expert = lane(); expert < n_experts; expert += 32) {
        if (orders[expert] > best) best = orders[expert], *expert_of_best = expert;
    }
    return best;
}

// Lane l learns the choices l, l + 32, ...
DEVICE void choose(uint32_t *orders, uint32_t n_experts, uint32_t n_used, uint32_t chosen[MAX_CHOICES / 32]) {
    uint32_t expert = 0, best = best_of_lane(orders, n_experts, &expert);
    for (uint32_t choice = 0; choice < n_used; choice++) {
        bool is_best = best == warp_largest(best);
        uint32_t winner = warp_smallest(is_best ? expert : UINT32_MAX);
        UNROLL
        for (uint32_t i = 0; i < MAX_CHOICES / 32; i++) chosen[i] = choice == lane() + 32 * i ? winner : chosen[i];
        if (is_best && expert == winner) {
            orders[expert] = 0;
            best = best_of_lane(orders, n_experts, &expert);
        }
    }
}

// The weights of the lane's choices.
DEVICE void weigh_choices(const RowOperation &operation, const uint32_t *chosen, float *weights) {
    constexpr uint32_t N = MAX_CHOICES / 32;
    uint32_t n_used = operation.n2;
    float largest = -INFINITY, sum = 0.0f, exponentials = 0.0f;
    if (operation.n0 == 1) {
        for (uint32_t i = 0; i < N; i++) largest = lane() + 32 * i < n_used ? fmaxf(largest, weights[i]) : largest;
        largest = warp_max(largest);
        for (uint32_t i = 0; i < N; i++) {
            weights[i] = exp_(weights[i] - largest);
            exponentials += lane() + 32 * i < n_used ? weights[i] : 0.0f;
        }
        exponentials = warp_sum(exponentials);
        for (uint32_t i = 0; i < N; i++) weights[i] /= exponentials;
    }
    float factor = operation.f0;
    if (operation.n1) {
        for (uint32_t i = 0; i < N; i++) sum += lane() + 32 * i < n_used ? weights[i] : 0.0f;
        // No smaller than the smallest normal number in half precision, as in llama.cpp.
        factor /= fmaxf(warp_sum(sum), 6.1035156e-5f);
    }
    for (uint32_t i = 0; i < N; i++) {
        bool is_choice = lane() + 32 * i < n_used;
        weights[i] *= factor * (operation.v1 && is_choice ? operation.v1[chosen[i]] : 1.0f);
    }
}

// For one warp.
DEVICE void route(const RowPlace &place, const RowOperation &operation, uint32_t *orders) {
    constexpr uint32_t N = MAX_CHOICES / 32;
    float *logits = row_of(operation.a, place.row), *choices = row_of(operation.b, place.row);
    const float *bias = operation.v0;
    uint32_t n_experts = operation.a.width, gating = operation.n0, n_used = operation.n2;
    if (bias && gating != 1) weigh_experts(logits, n_experts, gating);
    for (uint32_t expert = lane(); expert < n_experts; expert += 32) {
        orders[expert] = order_of(bias ? logits[expert] + bias[expert] : logits[expert]);
    }
    uint32_t chosen[N] = {};
    choose(orders, n_experts, n_used, chosen);
    if (!bias && gating != 1) weigh_experts(logits, n_experts, gating);
    sync_warp();
    float weights[N];
    for (uint32_t i = 0; i < N; i++) weights[i] = logits[chosen[i]];
    weigh_choices(operation, chosen, weights);
    UNROLL
    for (uint32_t i = 0; i < N; i++) {
        uint32_t choice = lane() + 32 * i;
        if (choice >= n_used) continue;
        choices[choice] = (float)chosen[i];
        choices[n_used + choice] = weights[i];
    }
}

// --- The kernel ---------------------------------------------------------------------------------------------------------

DEVICE void run_operation(const Batch &batch, const RowPlace &place, const RowOperation &operation, float *sums,
                          uint32_t *orders) {
    const Part &a = operation.a, &b = operation.b;
    const float *vector = operation.v0, factor = operation.f0;
    switch (operation.op) {
        case OP_EMBED: embed(batch, place, operation); break;
        case OP_ANGLES: angles(batch, place, operation); break;
        case OP_GATHER: copy(place, a, row_of(b, batch.selected[place.row])); break;
        case OP_COPY: copy(place, a, row_of(b, place.row)); break;
        case OP_ADD: add(place, a, row_of(b, place.row)); break;
        case OP_SCALE: scale(place, a, factor); break;
        case OP_SHARPEN: sharpen(batch, place, operation); break;
        case OP_MULTIPLY: join(place, a, row_of(b, place.row), [](float x, float y) { return x * y; }); break;
        case OP_GATE_SIGMOID: gate_sigmoid(place, operation); break;
        case OP_SIGMOID: change(place, a, [](float x) { return sigmoid(x); }); break;
        case OP_UNZIP: unzip(place, operation); break;
        case OP_DECAY: decay(place, operation); break;
        case OP_ADD_HEADS: add_heads(place, operation); break;
        case OP_ROUTE:
            if (warp() == 0) route(place, operation, orders);
            break;
        case OP_WEIGH: scale(place, a, operation.routes.weights[place.row]); break;
        case OP_ADD_EXPERT_BIAS: add(place, a, vector + (size_t)operation.routes.experts[place.row] * a.width); break;
        case OP_COMBINE: combine(place, operation); break;
        case OP_ADD_BIAS: add(place, a, vector); break;
        case OP_NORM: norm(place, operation, sums); break;
        case OP_ROTATE: rotate(place, operation); break;
        case OP_WRITE_KV: write_kv(batch, place, operation); break;
        case OP_GATE: gate(place, operation); break;
        case OP_SOFT_CAP: change(place, a, [=](float x) { return factor * tanh_(x / factor); }); break;
        case OP_QUANTIZE: quantize(place, operation); break;
    }
}

// All threads read every operation, so it is brought to shared memory first.
DEVICE void fetch_operations(const RowOperation *from, uint32_t n, RowOperation *to) {
    static_assert(sizeof(RowOperation) % sizeof(Uint2) == 0, "operations are copied in pieces");
    const Uint2 *pieces = reinterpret_cast<const Uint2 *>(from);
    for (uint32_t index = thread_id(); index < n * (sizeof(RowOperation) / sizeof(Uint2)); index += n_threads()) {
        reinterpret_cast<Uint2 *>(to)[index] = load_readonly(pieces + index);
    }
}

} // namespace row_operations

KERNEL_BOUNDS(rows, RowsArguments, 1024, 1) {
    using namespace row_operations;
    SHARED(RowOperation, operations, OPERATIONS_AT_ONCE);
    SHARED(float, sums, 32);
    SHARED(uint32_t, orders, MAX_EXPERTS);
    uint32_t width = arguments.slice_width ? arguments.slice_width : UINT32_MAX;
    RowPlace place = {block_x(), arguments.set, arguments.slice_width * block_y(), width};
    for (uint32_t first = 0; first < arguments.n_operations; first += OPERATIONS_AT_ONCE) {
        uint32_t n = smaller(arguments.n_operations - first, (uint32_t)OPERATIONS_AT_ONCE);
        fetch_operations(arguments.operations + first, n, operations);
        // An operation may read what other threads have written in the one before.
        for (uint32_t index = 0; index < n; index++) {
            sync_block();
            run_operation(arguments.batch, place, operations[index], sums, orders);
        }
        sync_block();
    }
}
