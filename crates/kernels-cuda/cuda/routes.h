// Sorting what rows choose among experts.
#pragma once
#include "platform.h"
#include "types.h"

// --- Routes -------------------------------------------------------------------------------------------------------------

// Choices are divided into runs, one for each warp; PLAN_COUNTS is the room for the numbers of choices by expert and run.
#define PLAN_THREADS 1024
#define PLAN_COUNTS 8192

// The sum of the values of the lanes up to this one.
FORCE_INLINE_DEVICE uint32_t sum_up_to(uint32_t value) {
#pragma unroll
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        const uint32_t other = shuffle(value, lane() >= distance ? lane() - distance : lane());
        if (lane() >= distance) value += other;
    }
    return value;
}

// The sum of the values of the threads before this one. `sums` has room for 33 numbers; the last is afterwards the sum of all.
FORCE_INLINE_DEVICE uint32_t sum_before(uint32_t value, uint32_t* sums) {
    const uint32_t sum = sum_up_to(value);
    if (lane() == 31) sums[warp()] = sum;
    sync_block();
    if (warp() == 0) {
        const uint32_t of_warp = lane() < n_threads() / 32 ? sums[lane()] : 0, up_to = sum_up_to(of_warp);
        sums[lane()] = up_to - of_warp;
        if (lane() == 31) sums[32] = up_to;
    }
    sync_block();
    return sums[warp()] + sum - value;
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

// The lanes that have the same number of `n_bits` bits, as bits.
FORCE_INLINE_DEVICE uint32_t lanes_with_same(uint32_t number, uint32_t n_bits) {
    uint32_t same = UINT32_MAX;
    for (uint32_t bit = 0; bit < n_bits; bit++) {
        const bool is_set = (number >> bit & 1u) != 0;
        const uint32_t lanes = lanes_where(is_set);
        same &= is_set ? lanes : ~lanes;
    }
    return same;
}

// Gives the choices of a run their ranks, 32 at a time. `counts` are the next ranks of the run by expert, `step` numbers apart.
FORCE_INLINE_DEVICE void rank_run(const Routes& routes, uint32_t first, uint32_t end, uint32_t* counts, uint32_t step) {
    uint32_t n_bits = 0;
    while (routes.n_experts >> n_bits != 0) n_bits++; // enough for n_experts itself, which stands for no choice
    uint32_t next = first + lane() < end ? chosen_expert(routes, first + lane()) : routes.n_experts;
    for (uint32_t i = first; i < end; i += 32) {
        const uint32_t choice = i + lane(), expert = next;
        next = choice + 32 < end ? chosen_expert(routes, choice + 32) : routes.n_experts;
        const uint32_t same = lanes_with_same(expert, n_bits);
        const uint32_t rank = choice < end ? counts[expert * step] + count_bits(same & ((1u << lane()) - 1)) : 0;
        sync_warp();
        if (choice < end) {
            if (same >> lane() == 1) counts[expert * step] = rank + 1; // the last lane with this expert
            const uint32_t row = choice / routes.n_used;
            routes.ranks[choice] = rank;
            routes.rows[rank] = row;
            routes.experts[rank] = expert;
            routes.weights[rank] = routes.choices[(uint64_t)row * 2 * routes.n_used + routes.n_used + choice % routes.n_used];
        }
        sync_warp();
    }
}

// Lists the tiles of all experts. `first_rank(expert)` is an expert's first rank; for the number of experts, that after the last.
template <class FirstRank>
FORCE_INLINE_DEVICE void make_tiles(const Routes& routes, FirstRank first_rank, uint32_t* sums) {
    const uint32_t each = (routes.n_experts + n_threads() - 1) / n_threads();
    const uint32_t first = smaller(thread_id() * each, routes.n_experts), end = smaller(first + each, routes.n_experts);
    uint32_t n_tiles = 0;
    for (uint32_t expert = first; expert < end; expert++) {
        n_tiles += (first_rank(expert + 1) - first_rank(expert) + TILE_RANKS - 1) / TILE_RANKS;
    }
    uint32_t tile = sum_before(n_tiles, sums);
    if (thread_id() == 0) *routes.n_tiles = sums[32];
    for (uint32_t expert = first; expert < end; expert++) {
        const uint32_t after = first_rank(expert + 1);
        for (uint32_t rank = first_rank(expert); rank < after; rank += TILE_RANKS, tile++) {
            routes.tiles[3 * tile] = expert;
            routes.tiles[3 * tile + 1] = rank;
            routes.tiles[3 * tile + 2] = smaller((uint32_t)TILE_RANKS, after - rank);
        }
    }
    sync_block();
}

KERNEL_BOUNDS(plan_routes, PlanArguments, PLAN_THREADS, 1) {
    SHARED(uint32_t, counts, PLAN_COUNTS);
    SHARED(uint32_t, sums, 33);
    const Routes& routes = arguments.routes;
    const uint32_t n_choices = arguments.n_rows * routes.n_used;
    const uint32_t most_runs = smaller(n_threads() / 32, PLAN_COUNTS / routes.n_experts);
    const uint32_t n_runs = larger(1u, smaller(most_runs, n_choices / 32)), n_counts = n_runs * routes.n_experts;
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
    make_tiles(routes, [&](uint32_t expert) { return expert < routes.n_experts ? counts[expert * n_runs] : n_choices; }, sums);
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

KERNEL_BOUNDS(spread, SpreadArguments, 1024, 1) {
    const uint64_t rank = block_x(), row = arguments.routes.rows[rank];
    const QuantizedRows &from = arguments.from, &to = arguments.to;
    const uint64_t width = to.width, n_scales = width / SCALE_ELEMENTS;
    if (from.quants && to.quants) copy_row(from.quants, to.quants, row * width, rank * width, width);
    if (from.scales && to.scales) copy_row(from.scales, to.scales, row * n_scales * 4, rank * n_scales * 4, n_scales * 4);
    if (from.sums && to.sums) copy_row(from.sums, to.sums, row * n_scales * 4, rank * n_scales * 4, n_scales * 4);
    if (from.bf16 && to.bf16) copy_row(from.bf16, to.bf16, row * width * 2, rank * width * 2, width * 2);
}
