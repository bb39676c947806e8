// Operations on single rows. A block works on one row, or on some columns of it, operation by operation.
#pragma once
#include "dequantize.h"
#include "platform.h"

// Operations that are brought to shared memory together: all of them in nearly every launch.
#define OPERATIONS_AT_ONCE 16
#define MAX_EXPERTS 1024

// A flag of an operation: it depends on no other operation since the last barrier, so that none is needed before it. It may
// depend on one that leaves every column to the same thread, if it does that itself.
#define NEEDS_NO_BARRIER 1u

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

template <typename Function>
FORCE_INLINE_DEVICE Float4 joined(Float4 x, Float4 y, Function function) {
    return Float4{function(x.x, y.x), function(x.y, y.y), function(x.z, y.z), function(x.w, y.w)};
}

// to <- function(to, from)
template <typename Function>
FORCE_INLINE_DEVICE void join(const RowPlace &place, const Part &part, const float *from, Function function) {
    float *to = row_of(part, place.row);
    for_columns(place, part.width, [&](uint32_t column, uint32_t n) {
        store4(to + column, n, joined(load4(to + column, n), load4(from + column, n), function));
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

// activation(x) * y
FORCE_INLINE_DEVICE Float4 gated(uint32_t activation, Float4 x, Float4 y) {
    switch (activation) {
        case 0: return joined(x, y, [](float x, float y) { return x * sigmoid(x) * y; });
        case 1: return joined(x, y, [](float x, float y) { return gelu(x) * y; });
        default: return joined(x, y, [](float x, float y) { return clamped_silu(x, y); });
    }
}

// Four columns, of which the first n exist. Also returns what it writes.
FORCE_INLINE_DEVICE Float4 gate_four(const RowPlace &place, const RowOperation &operation, uint32_t column, uint32_t n) {
    float *to = row_of(operation.a, place.row) + column;
    Float4 x = gated(operation.n0, load4(to, n), load4(row_of(operation.b, place.row) + column, n));
    store4(to, n, x);
    return x;
}

DEVICE void gate(const RowPlace &place, const RowOperation &operation) {
    for_columns(place, operation.a.width, [&](uint32_t column, uint32_t n) { gate_four(place, operation, column, n); });
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

// Pairs of any number and place.
DEVICE void rotate_pairs(const RowPlace &place, const RowOperation &operation) {
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

FORCE_INLINE_DEVICE void rotate_one(float &x, float &y, float cosine, float sine) {
    float first = x * cosine - y * sine;
    y = x * sine + y * cosine;
    x = first;
}

// Four pairs: of elements of x and y, or of neighbours in them.
FORCE_INLINE_DEVICE void rotate_four(Float4 &x, Float4 &y, Float4 cosines, Float4 sines, bool are_neighbours) {
    if (are_neighbours) {
        rotate_one(x.x, x.y, cosines.x, sines.x);
        rotate_one(x.z, x.w, cosines.y, sines.y);
        rotate_one(y.x, y.y, cosines.z, sines.z);
        rotate_one(y.z, y.w, cosines.w, sines.w);
    } else {
        rotate_one(x.x, y.x, cosines.x, sines.x);
        rotate_one(x.y, y.y, cosines.y, sines.y);
        rotate_one(x.z, y.z, cosines.z, sines.z);
        rotate_one(x.w, y.w, cosines.w, sines.w);
    }
}

// The first `n_busy` threads work on other operations since the last barrier; this one begins with the threads after them.
DEVICE void rotate(const RowPlace &place, const RowOperation &operation, uint32_t &n_busy) {
    float *heads = row_of(operation.a, place.row);
    const float *angles = row_of(operation.b, place.row);
    uint32_t head_dim = operation.n0, n_pairs = operation.n1, n_fours = n_pairs / 4;
    if ((head_dim | n_pairs) % 4 != 0 || !is_aligned(heads, 16) || !is_aligned(angles, 16)) {
        rotate_pairs(place, operation);
        n_busy = 0;
        return;
    }
    uint32_t n_all = operation.a.width / head_dim * n_fours, distance = operation.n2 ? 4 : n_pairs;
    uint32_t start = thread_id() >= n_busy ? thread_id() - n_busy : thread_id() + n_threads() - n_busy;
    for (uint32_t index = start; index < n_all; index += n_threads()) {
        uint32_t head = index / n_fours, pair = 4 * (index - head * n_fours);
        float *first = heads + (size_t)head * head_dim + (operation.n2 ? 2 * pair : pair);
        Float4 x = *reinterpret_cast<const Float4 *>(first), y = *reinterpret_cast<const Float4 *>(first + distance);
        Float4 cosines = *reinterpret_cast<const Float4 *>(angles + pair);
        Float4 sines = *reinterpret_cast<const Float4 *>(angles + n_pairs + pair);
        rotate_four(x, y, cosines, sines, operation.n2 != 0);
        *reinterpret_cast<Float4 *>(first) = x;
        *reinterpret_cast<Float4 *>(first + distance) = y;
    }
    n_busy = n_all < n_threads() - n_busy ? n_busy + n_all : 0;
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
template <uint32_t N_KEPT, typename Sum>
FORCE_INLINE_DEVICE void norm_head(float *head, const RowOperation &operation, uint32_t index, uint32_t n, Sum sum) {
    uint32_t width = operation.n0;
    Float4 kept[N_KEPT], weights[N_KEPT];
    float squares = 0.0f;
    UNROLL
    for (uint32_t i = 0; i < N_KEPT; i++) {
        uint32_t column = 4 * (index + i * n);
        kept[i] = column < width ? load4(head + column, width - column) : Float4{0.0f, 0.0f, 0.0f, 0.0f};
        weights[i] = column < width ? load4(operation.v0 + column, width - column) : Float4{0.0f, 0.0f, 0.0f, 0.0f};
        squares += sum_of_squares(kept[i]);
    }
    for (uint32_t column = 4 * (index + N_KEPT * n); column < width; column += 4 * n) {
        squares += sum_of_squares(load4(head + column, width - column));
    }
    float factor = 1.0f / sqrt_(sum(squares) / (float)width + operation.f0);
    UNROLL
    for (uint32_t i = 0; i < N_KEPT; i++) {
        uint32_t column = 4 * (index + i * n);
        if (column < width) store4(head + column, width - column, normed(kept[i], weights[i], factor));
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
            norm_head<2>(start, operation, lane(), 32, [](float x) { return warp_sum(x); });
        }
        return;
    }
    for (uint32_t head = 0; head < n_heads; head++) {
        float *start = heads + (size_t)head * operation.n0;
        norm_head<1>(start, operation, thread_id(), n_threads(), [=](float x) { return block_sum(x, shared32); });
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

FORCE_INLINE_DEVICE void write_quantized(const QuantizedRows &to, uint64_t row, uint32_t column, uint32_t n, Float4 x) {
    if (to.quants) quantize_four(to, row, column, n > 0, x);
    if (to.bf16) store_bf16(to.bf16 + row * to.width + column, n, x);
}

// Quantizes what `function` returns for four columns each. It is also called beyond the end, with 0 columns, and returns zeros.
template <typename Function>
FORCE_INLINE_DEVICE void quantize_each(const RowPlace &place, uint32_t width, const QuantizedRows &to, Function function) {
    uint32_t end = end_of(place, width);
    // Warps stay together, because their lanes look for the largest element together.
    for (uint32_t start = place.first + 128 * warp(); start < end; start += 4 * n_threads()) {
        uint32_t column = start + 4 * lane(), n = column < end ? end - column : 0;
        write_quantized(to, place.row, column, n, function(column, n));
    }
}

DEVICE void quantize(const RowPlace &place, const RowOperation &operation) {
    const float *from = row_of(operation.a, place.row);
    quantize_each(place, operation.a.width, operation.q, [&](uint32_t column, uint32_t n) { return load4(from + column, n); });
}

DEVICE void gate_and_quantize(const RowPlace &place, const RowOperation &operation, const QuantizedRows &to) {
    quantize_each(place, operation.a.width, to, [&](uint32_t column, uint32_t n) {
        return n > 0 ? gate_four(place, operation, column, n) : Float4{0.0f, 0.0f, 0.0f, 0.0f};
    });
}

// --- Chains -------------------------------------------------------------------------------------------------------------

// Neighbouring operations that are done together, with the row in registers: x <- x + y; a <- x; a is normed as one head; a is
// quantized. There is always a norm.
struct Chain {
    const RowOperation *first;
    bool has_add, has_copy, has_quantize;
};

FORCE_INLINE_DEVICE const RowOperation &copy_of(const Chain &chain) { return chain.first[chain.has_add]; }
FORCE_INLINE_DEVICE const RowOperation &norm_of(const Chain &chain) { return chain.first[chain.has_add + chain.has_copy]; }
FORCE_INLINE_DEVICE const QuantizedRows &quantized_of(const Chain &chain) { return (&norm_of(chain))[1].q; }

// A thread keeps up to so many times four columns.
#define MOST_KEPT 4

FORCE_INLINE_DEVICE bool is_same(const Part &a, const Part &b) {
    return a.data == b.data && a.stride == b.stride && a.width == b.width;
}

// Where the chain's elements come from, if they are not only in `a`.
FORCE_INLINE_DEVICE const Part &source_of(const Chain &chain) { return chain.has_copy ? copy_of(chain).b : norm_of(chain).a; }

FORCE_INLINE_DEVICE bool is_chain(const RowPlace &place, const Chain &chain) {
    const RowOperation &norm = norm_of(chain);
    const Part &a = norm.a, &source = source_of(chain);
    if (norm.n0 != a.width || a.width % 4 != 0 || a.width > 4 * MOST_KEPT * n_threads()) return false;
    if (chain.has_copy && !(is_same(copy_of(chain).a, a) && source.width == a.width)) return false;
    if (chain.has_add && !is_same(chain.first->a, source)) return false;
    uintptr_t all = (uintptr_t)row_of(a, place.row) | (uintptr_t)row_of(source, place.row) | (uintptr_t)norm.v0;
    if (chain.has_add) all |= (uintptr_t)row_of(chain.first->b, place.row);
    return all % sizeof(Float4) == 0;
}

// Returns the number of operations, 0 if no chain begins with the first.
FORCE_INLINE_DEVICE uint32_t find_chain(const RowPlace &place, const RowOperation *operations, uint32_t n, Chain &chain) {
    chain = Chain{operations, false, false, false};
    uint32_t next = 0;
    chain.has_add = operations[0].op == OP_ADD;
    next += chain.has_add;
    chain.has_copy = next < n && operations[next].op == OP_COPY;
    next += chain.has_copy;
    if (next == n || operations[next].op != OP_NORM) return 0;
    next++;
    chain.has_quantize = next < n && operations[next].op == OP_QUANTIZE && is_same(operations[next].a, operations[next - 1].a);
    return is_chain(place, chain) ? next + chain.has_quantize : 0;
}

// The same as `block_sum`, but no one else may use `shared32` until after the next barrier.
FORCE_INLINE_DEVICE float sum_of_block(float x, float *shared32) {
    x = warp_sum(x);
    if (lane() == 0) shared32[warp()] = x;
    sync_block();
    return warp_sum(lane() < n_threads() / 32 ? shared32[lane()] : 0.0f);
}

FORCE_INLINE_DEVICE Float4 load4_if(bool exists, const float *from) {
    return exists ? *reinterpret_cast<const Float4 *>(from) : Float4{0.0f, 0.0f, 0.0f, 0.0f};
}

// Every thread has N times four columns, the threads' first ones lying side by side, then their second ones, and so on. Other
// threads read nothing of what is written before the sum, and nothing of the rows is read after it: the sum's barrier is enough.
template <uint32_t N>
DEVICE void run_chain(const RowPlace &place, const Chain &chain, float *shared32) {
    const RowOperation &norm = norm_of(chain);
    uint32_t width = norm.n0, step = 4 * n_threads(), first = 4 * thread_id();
    float *to = row_of(norm.a, place.row), *source = row_of(source_of(chain), place.row);
    Float4 kept[N], weight = {0.0f, 0.0f, 0.0f, 0.0f};
    UNROLL
    for (uint32_t i = 0; i < N; i++) kept[i] = load4_if(first + i * step < width, source + first + i * step);
    // More weights would not fit into the registers.
    if (N == 1) weight = load4_if(first < width, norm.v0 + first);
    float squares = 0.0f;
    UNROLL
    for (uint32_t i = 0; i < N; i++) {
        uint32_t column = first + i * step;
        if (chain.has_add && column < width) {
            Float4 addend = *reinterpret_cast<const Float4 *>(row_of(chain.first->b, place.row) + column);
            kept[i] = joined(kept[i], addend, [](float x, float y) { return x + y; });
            // Without a copy, the normed elements take the place of the sums.
            if (chain.has_copy) *reinterpret_cast<Float4 *>(source + column) = kept[i];
        }
        squares += sum_of_squares(kept[i]);
    }
    float factor = 1.0f / sqrt_(sum_of_block(squares, shared32) / (float)width + norm.f0);
    UNROLL
    for (uint32_t i = 0; i < N; i++) {
        uint32_t column = first + i * step, n = column < width ? width - column : 0;
        // Whole warps, as quantization needs it.
        if (128 * warp() + i * step >= width) break;
        if (N > 1) weight = load4_if(n > 0, norm.v0 + column);
        Float4 x = normed(kept[i], weight, factor);
        if (n > 0) *reinterpret_cast<Float4 *>(to + column) = x;
        if (chain.has_quantize) write_quantized(quantized_of(chain), place.row, column, n, x);
    }
}

// --- The cache ----------------------------------------------------------------------------------------------------------

FORCE_INLINE_DEVICE float as_half(float x) { return half_to_float(float_to_half(x)); }

FORCE_INLINE_DEVICE uint32_t halves_of(float x, float y) {
    return (uint32_t)float_to_half(x) | (uint32_t)float_to_half(y) << 16;
}

struct Token {
    uint32_t position;
    uint32_t sequence;
};

FORCE_INLINE_DEVICE Token token_of(const Batch &batch, const RowPlace &place) {
    uint64_t row = token_row(batch, place);
    return Token{batch.positions[row], batch.sequence_of[row]};
}

// Where the token's keys of the first head are, without `keys_offset`; `values_offset` away are the values.
FORCE_INLINE_DEVICE uint8_t *token_in_cache(const Batch &batch, Token token, const Kv &kv) {
    uint32_t block = batch.blocks[batch.block_starts[token.sequence] + token.position / BLOCK_TOKENS];
    uint8_t *start = kv.segments[block / kv.segment_blocks] + (block % kv.segment_blocks) * kv.block_bytes;
    return start + (uint64_t)(token.position % BLOCK_TOKENS) * kv.row_bytes;
}

// One warp looks for the places in the cache where operations will write. Every step waits for memory, so that it is best done
// while the other warps have something else to do.
DEVICE void find_in_cache(const Batch &batch, const RowPlace &place, Token token, const RowOperation *operations, uint32_t n,
                          uint8_t **places) {
    if (lane() >= n || operations[lane()].op != OP_WRITE_KV) return;
    if (place.set != SET_TOKENS) token = token_of(batch, place);
    places[lane()] = token_in_cache(batch, token, operations[lane()].kv);
}

// Eight elements at a time, of keys, then of values.
DEVICE void write_halves(const RowPlace &place, const RowOperation &operation, uint8_t *token) {
    const Kv &kv = operation.kv;
    uint32_t per_head = kv.head_dim / 8, n_keys = kv.n_kv_heads * per_head;
    for (uint32_t index = thread_id(); index < 2 * n_keys; index += n_threads()) {
        bool is_value = index >= n_keys;
        uint32_t eight = is_value ? index - n_keys : index, head = eight / per_head;
        const float *from = row_of(is_value ? operation.b : operation.a, place.row) + (size_t)eight * 8;
        Float4 x = load4(from, 4), y = load4(from + 4, 4);
        uint8_t *to = token + (is_value ? kv.values_offset : kv.keys_offset) + (uint64_t)head * BLOCK_TOKENS * kv.row_bytes;
        Uint4 halves = {halves_of(x.x, x.y), halves_of(x.z, x.w), halves_of(y.x, y.y), halves_of(y.z, y.w)};
        *reinterpret_cast<Uint4 *>(to + (size_t)(eight - head * per_head) * sizeof(Uint4)) = halves;
    }
}

// Groups of 32 elements of keys, then of values, eight lanes for each.
DEVICE void write_quants(const RowPlace &place, const RowOperation &operation, uint8_t *token) {
    const Kv &kv = operation.kv;
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
        x = Float4{as_half(x.x), as_half(x.y), as_half(x.z), as_half(x.w)};
        HalfBits scale = float_to_half(largest_of_eight_lanes(largest_of(x)) / 127.0f);
        float unit = half_to_float(scale);
        if (!exists) continue;
        *reinterpret_cast<uint32_t *>(to + column) = packed(quants_of(x, unit > 0.0f ? 1.0f / unit : 0.0f));
        if (lane() % 8 == 0) reinterpret_cast<HalfBits *>(to + kv.head_dim)[group] = scale;
    }
}

DEVICE void write_kv(const RowPlace &place, const RowOperation &operation, uint8_t *token) {
    if (operation.kv.format == KV_F16) {
        write_halves(place, operation, token);
    } else {
        write_quants(place, operation, token);
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

// What the block's threads share, and how many of them the operations since the last barrier keep busy.
struct Block {
    const RowOperation *operations;
    uint8_t **places;  // one for each operation that writes into the cache
    float *sums;       // 32 for single norms, and 32 for each chain, so that no barrier is needed between their uses
    uint32_t *orders;
    uint32_t n_busy;
};

DEVICE void run_operation(const Batch &batch, const RowPlace &place, uint32_t index, Block &block) {
    const RowOperation &operation = block.operations[index];
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
            if (warp() == 0) route(place, operation, block.orders);
            break;
        case OP_WEIGH: scale(place, a, operation.routes.weights[place.row]); break;
        case OP_ADD_EXPERT_BIAS: add(place, a, vector + (size_t)operation.routes.experts[place.row] * a.width); break;
        case OP_COMBINE: combine(place, operation); break;
        case OP_ADD_BIAS: add(place, a, vector); break;
        case OP_NORM: norm(place, operation, block.sums); break;
        case OP_ROTATE: rotate(place, operation, block.n_busy); break;
        case OP_WRITE_KV: write_kv(place, operation, block.places[index]); break;
        case OP_GATE: gate(place, operation); break;
        case OP_SOFT_CAP: change(place, a, [=](float x) { return factor * tanh_(x / factor); }); break;
        case OP_QUANTIZE: quantize(place, operation); break;
    }
}

// All threads read every operation, so it is brought to shared memory first: everything in one round trip.
DEVICE void fetch_operations(const RowOperation *from, uint32_t n, RowOperation *to) {
    static_assert(sizeof(RowOperation) % sizeof(Uint4) == 0, "operations are copied in pieces");
    const Uint4 *pieces = reinterpret_cast<const Uint4 *>(from);
    for (uint32_t index = thread_id(); index < n * (sizeof(RowOperation) / sizeof(Uint4)); index += n_threads()) {
        async_copy16(reinterpret_cast<Uint4 *>(to) + index, pieces + index);
    }
    async_commit();
}

// Whether a barrier must come between operations that are done together, the first of them `previous`, and the next ones, which
// end with `end`. A barrier that belongs into their middle comes before and after them.
FORCE_INLINE_DEVICE bool needs_barrier(const RowOperation *operations, uint32_t previous, uint32_t first, uint32_t end) {
    // The places in the cache were not found before, but after the last barrier.
    bool is_needed = operations[first].op == OP_WRITE_KV;
    for (uint32_t index = previous + 1; index < end; index++) is_needed |= !(operations[index].flags & NEEDS_NO_BARRIER);
    return is_needed;
}

FORCE_INLINE_DEVICE bool is_quantized_gate(const RowOperation *operations, uint32_t n) {
    return operations[0].op == OP_GATE && n > 1 && operations[1].op == OP_QUANTIZE && is_same(operations[0].a, operations[1].a);
}

DEVICE void run_operations(const Batch &batch, const RowPlace &place, uint32_t n, Block &block) {
    const RowOperation *operations = block.operations;
    uint32_t previous = 0, index = 0;
    while (index < n) {
        Chain chain;
        uint32_t n_chained = find_chain(place, operations + index, n - index, chain);
        bool is_gate = is_quantized_gate(operations + index, n - index);
        uint32_t end = index + (is_gate ? 2 : larger(n_chained, 1u));
        // The first operations come after the barrier behind which they are in shared memory.
        if (index > 0 ? needs_barrier(operations, previous, index, end) : operations[0].op == OP_WRITE_KV) {
            sync_block();
            block.n_busy = 0;
        }
        if (is_gate) {
            gate_and_quantize(place, operations[index], operations[index + 1].q);
        } else if (n_chained == 0) {
            run_operation(batch, place, index, block);
        } else if (norm_of(chain).n0 <= 4 * n_threads()) {
            run_chain<1>(place, chain, block.sums + 32 * end);
        } else {
            run_chain<MOST_KEPT>(place, chain, block.sums + 32 * end);
        }
        previous = index, index = end;
    }
}

} // namespace row_operations

// --- Kernels for few operations ------------------------------------------------------------------------------------------
//
// A step of one token consists of short launches. One that knows its operations has little code, which the card has to fetch from
// memory like everything else, and nothing to look up.

template <typename Arguments> FORCE_INLINE_DEVICE row_operations::RowPlace place_of_block(const Arguments &arguments) {
    uint32_t width = arguments.slice_width ? arguments.slice_width : UINT32_MAX;
    return {block_x(), arguments.set, arguments.slice_width * block_y(), width};
}

// One chain, whose width is no more than MOST_KEPT times four elements for every thread.
KERNEL_BOUNDS(norm_rows, FewRowsArguments, 1024, 1) {
    using namespace row_operations;
    SHARED(float, sums, 32);
    RowPlace place = place_of_block(arguments);
    Chain chain;
    find_chain(place, arguments.operations, arguments.n_operations, chain);
    if (norm_of(chain).n0 <= 4 * n_threads()) {
        run_chain<1>(place, chain, sums);
    } else {
        run_chain<MOST_KEPT>(place, chain, sums);
    }
}

// OP_QUANTIZE, or OP_GATE and OP_QUANTIZE of the same elements.
KERNEL_BOUNDS(quantize_rows, FewRowsArguments, 1024, 1) {
    using namespace row_operations;
    RowPlace place = place_of_block(arguments);
    if (arguments.n_operations == 2) {
        gate_and_quantize(place, arguments.operations[0], arguments.operations[1].q);
    } else {
        quantize(place, arguments.operations[0]);
    }
}

// OP_ADD_BIAS, OP_NORM, OP_ROTATE in any order, then OP_WRITE_KV if it is there.
KERNEL_THAT_WAITS(head_rows, FewRowsArguments, 1024, 1) {
    using namespace row_operations;
    SHARED(float, sums, 32);
    SHARED(uint8_t *, token, 1);
    let_later_start();
    RowPlace place = place_of_block(arguments);
    const Batch &batch = arguments.batch;
    const RowOperation *operations = arguments.operations, &last = operations[arguments.n_operations - 1];
    if (last.op == OP_WRITE_KV && thread_id() == 0) token[0] = token_in_cache(batch, token_of(batch, place), last.kv);
    // Only the batch has been read.
    wait_for_earlier();
    uint32_t n_busy = 0;
    for (uint32_t index = 0; index < arguments.n_operations; index++) {
        const RowOperation &operation = operations[index];
        if (operation.op == OP_WRITE_KV || (index > 0 && !(operation.flags & NEEDS_NO_BARRIER))) {
            sync_block();
            n_busy = 0;
        }
        switch (operation.op) {
            case OP_ADD_BIAS: add(place, operation.a, operation.v0); break;
            case OP_NORM: norm(place, operation, sums); break;
            case OP_ROTATE: rotate(place, operation, n_busy); break;
            case OP_WRITE_KV: write_kv(place, operation, token[0]); break;
        }
    }
}

KERNEL_THAT_WAITS(rows, RowsArguments, 1024, 1) {
    let_later_start();
    using namespace row_operations;
    SHARED(RowOperation, operations, OPERATIONS_AT_ONCE);
    SHARED(uint8_t *, places, OPERATIONS_AT_ONCE);
    SHARED(float, sums, 32 * (OPERATIONS_AT_ONCE + 1));
    SHARED(uint32_t, orders, MAX_EXPERTS);
    const Batch &batch = arguments.batch;
    RowPlace place = place_of_block(arguments);
    // The last warp, as it is the most likely one to have nothing else to do.
    bool is_finder = warp() == n_threads() / 32 - 1;
    if (arguments.n_operations == 0) wait_for_earlier();
    for (uint32_t first = 0; first < arguments.n_operations; first += OPERATIONS_AT_ONCE) {
        uint32_t n = smaller(arguments.n_operations - first, (uint32_t)OPERATIONS_AT_ONCE);
        if (first > 0) sync_block();
        fetch_operations(arguments.operations + first, n, operations);
        // Under way together with the operations; whether it is needed is not known yet.
        Token token = {0, 0};
        if (is_finder && place.set == SET_TOKENS && batch.positions) token = token_of(batch, place);
        async_wait(0);
        // So far, only operations and the batch were read.
        wait_for_earlier();
        sync_block();
        if (is_finder) find_in_cache(batch, place, token, operations, n, places);
        Block block = {operations, places, sums, orders, 0};
        run_operations(batch, place, n, block);
    }
}
