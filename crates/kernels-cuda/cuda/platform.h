// The language of the kernels, for two places: the card (nvcc), and the host, where kernels run emulated.
//
// On the host, the blocks of a launch run one after the other, and every thread of a block is a fiber. A fiber runs until it
// reaches a barrier; then the next one in the order of `hone_host_set_order` runs. Shared memory holds NaNs and other nonsense
// when a block starts, and asynchronous copies happen as late as they may.
//
// Only one file of a program may include this header, because it defines `hone_host_launch`.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "types.h"

#ifdef __CUDACC__

// --- The card -----------------------------------------------------------------------------------------------------------

// A kernel may start while those launched before it still run (programmatic dependent launch, from compute capability 9.0 on). It
// waits for them before it does anything; a kernel "that waits" begins with what none of them writes, like weights, and then calls
// `wait_for_earlier` itself, in every thread.
#define KERNEL_THAT_WAITS(name, Arguments, max_threads, min_blocks) \
    extern "C" __global__ void __launch_bounds__(max_threads, min_blocks) name(const __grid_constant__ Arguments arguments)
#define KERNEL_BOUNDS(name, Arguments, max_threads, min_blocks) \
    FORCE_INLINE_DEVICE void name##_after_earlier(const Arguments &arguments); \
    KERNEL_THAT_WAITS(name, Arguments, max_threads, min_blocks) { \
        let_later_start(); \
        wait_for_earlier(); \
        name##_after_earlier(arguments); \
    } \
    FORCE_INLINE_DEVICE void name##_after_earlier(const Arguments &arguments)
#define DEVICE __device__ inline
#define FORCE_INLINE_DEVICE __device__ __forceinline__
#define SHARED(type, name, size) __shared__ __align__(16) type name[size]
#define DYNAMIC_SHARED(type, name) \
    extern __shared__ __align__(16) unsigned char hone_dynamic_shared[]; \
    type *name = reinterpret_cast<type *>(hone_dynamic_shared)

// Before a loop: its steps are laid out one after the other.
#define UNROLL _Pragma("unroll")
#define UNROLL_TEXT(text) _Pragma(#text)
#define UNROLL_BY(n) UNROLL_TEXT(unroll n)

// The host's half of nvcc reads device functions too, but compiles none.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define HAS_MMA 1
#define HAS_ASYNC_COPY 1
#endif

typedef uint2 Uint2;
typedef uint4 Uint4;
typedef float2 Float2;
typedef float4 Float4;

FORCE_INLINE_DEVICE uint32_t thread_id() { return threadIdx.x; }
FORCE_INLINE_DEVICE uint32_t n_threads() { return blockDim.x; }
FORCE_INLINE_DEVICE uint32_t block_x() { return blockIdx.x; }
FORCE_INLINE_DEVICE uint32_t block_y() { return blockIdx.y; }
FORCE_INLINE_DEVICE uint32_t block_z() { return blockIdx.z; }
FORCE_INLINE_DEVICE uint32_t grid_x() { return gridDim.x; }
FORCE_INLINE_DEVICE uint32_t grid_y() { return gridDim.y; }

// Lets the kernels that are launched next start as soon as there is room for them: when all blocks of this one have started.
FORCE_INLINE_DEVICE void let_later_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits until the kernels launched before this one are done, and what they wrote is there.
FORCE_INLINE_DEVICE void wait_for_earlier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

FORCE_INLINE_DEVICE void sync_block() { __syncthreads(); }
FORCE_INLINE_DEVICE void sync_warp() { __syncwarp(); }

template <typename T> FORCE_INLINE_DEVICE T shuffle_xor(T x, uint32_t mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
template <typename T> FORCE_INLINE_DEVICE T shuffle(T x, uint32_t lane) { return __shfl_sync(0xffffffffu, x, lane); }
template <typename T> FORCE_INLINE_DEVICE T shuffle_down(T x, uint32_t n) { return __shfl_down_sync(0xffffffffu, x, n); }
// The lanes for which it is true, as bits.
FORCE_INLINE_DEVICE uint32_t lanes_where(bool is_true) { return __ballot_sync(0xffffffffu, is_true); }
FORCE_INLINE_DEVICE uint32_t count_bits(uint32_t bits) { return (uint32_t)__popc(bits); }

FORCE_INLINE_DEVICE float warp_sum(float x) {
    for (uint32_t mask = 16; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
    return x;
}

FORCE_INLINE_DEVICE float warp_max(float x) {
    for (uint32_t mask = 16; mask > 0; mask /= 2) x = fmaxf(x, shuffle_xor(x, mask));
    return x;
}

FORCE_INLINE_DEVICE uint32_t warp_largest(uint32_t x) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xffffffffu, x);
#else
    for (uint32_t mask = 16; mask > 0; mask /= 2) x = max(x, shuffle_xor(x, mask));
    return x;
#endif
}

FORCE_INLINE_DEVICE uint32_t warp_smallest(uint32_t x) { return ~warp_largest(~x); }

FORCE_INLINE_DEVICE float float_of_bits(uint32_t bits) { return __uint_as_float(bits); }
FORCE_INLINE_DEVICE uint32_t bits_of_float(float x) { return __float_as_uint(x); }

FORCE_INLINE_DEVICE float half_to_float(HalfBits bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

FORCE_INLINE_DEVICE HalfBits float_to_half(float x) {
    HalfBits bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

FORCE_INLINE_DEVICE Bf16Bits float_to_bf16(float x) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    Bf16Bits bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
#else
    uint32_t bits = bits_of_float(x);
    if (x != x) return 0x7fff;
    return (Bf16Bits)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
#endif
}

// Products of signed bytes, added to c.
FORCE_INLINE_DEVICE int dot4(int a, int b, int c) { return __dp4a(a, b, c); }

// Four of the eight bytes of a (0 to 3) and b (4 to 7): those that the selector names in its lowest half bytes, each below 8.
FORCE_INLINE_DEVICE uint32_t byte_permute(uint32_t a, uint32_t b, uint32_t selector) { return __byte_perm(a, b, selector); }

FORCE_INLINE_DEVICE float fast_exp(float x) { return __expf(x); }
FORCE_INLINE_DEVICE float exp_(float x) { return expf(x); }
FORCE_INLINE_DEVICE float log1p_(float x) { return log1pf(x); }
FORCE_INLINE_DEVICE float tanh_(float x) { return tanhf(x); }
FORCE_INLINE_DEVICE float sqrt_(float x) { return sqrtf(x); }
FORCE_INLINE_DEVICE float rsqrt_(float x) { return rsqrtf(x); }
FORCE_INLINE_DEVICE float abs_(float x) { return fabsf(x); }
FORCE_INLINE_DEVICE void sincos_(float x, float *sine, float *cosine) { sincosf(x, sine, cosine); }
// To the nearest integer, of two equally near ones the even one. Not a number becomes 0, and what is too large the largest.
FORCE_INLINE_DEVICE int round_to_int(float x) { return __float2int_rn(x); }

// From the device's memory, past the multiprocessor's own cache, which does not know what kernels that still run write.
template <typename T> FORCE_INLINE_DEVICE T load_global(const T *p) { return __ldcg(p); }
FORCE_INLINE_DEVICE uint32_t atomic_add(uint32_t *p, uint32_t value) { return atomicAdd(p, value); }

#ifdef HAS_MMA
FORCE_INLINE_DEVICE void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

FORCE_INLINE_DEVICE void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// The same for signed bytes, of which a register has four: 16 x 32 times 32 x 8, and 16 x 16 times 16 x 8. Older cards do it with
// the smaller shape that they have, whose registers are the same.
FORCE_INLINE_DEVICE void mma_s8_small(int &d0, int &d1, uint32_t a, uint32_t b) {
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+r"(d0), "+r"(d1) : "r"(a), "r"(b));
}

FORCE_INLINE_DEVICE void mma_s8_k32(int d[4], const uint32_t a[4], const uint32_t b[2]) {
#ifdef HAS_MMA
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    for (int i = 0; i < 4; i++) mma_s8_small(d[i % 2 * 2], d[i % 2 * 2 + 1], a[i], b[i / 2]);
#endif
}

FORCE_INLINE_DEVICE void mma_s8_k16(int d[4], const uint32_t a[2], uint32_t b) {
#ifdef HAS_MMA
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
#else
    for (int i = 0; i < 2; i++) mma_s8_small(d[i * 2], d[i * 2 + 1], a[i], b);
#endif
}

#ifdef HAS_ASYNC_COPY
// Both addresses are multiples of 16. The copy is there after `async_commit` and `async_wait`, for this thread.
FORCE_INLINE_DEVICE void async_copy16(void *shared, const void *global) {
    uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}

FORCE_INLINE_DEVICE void async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until no more than n committed groups are under way. n is a constant.
FORCE_INLINE_DEVICE void async_wait(int n) {
    switch (n) {
        case 0: asm volatile("cp.async.wait_group 0;" ::: "memory"); break;
        case 1: asm volatile("cp.async.wait_group 1;" ::: "memory"); break;
        case 2: asm volatile("cp.async.wait_group 2;" ::: "memory"); break;
        case 3: asm volatile("cp.async.wait_group 3;" ::: "memory"); break;
        case 4: asm volatile("cp.async.wait_group 4;" ::: "memory"); break;
        case 5: asm volatile("cp.async.wait_group 5;" ::: "memory"); break;
        case 6: asm volatile("cp.async.wait_group 6;" ::: "memory"); break;
        default: asm volatile("cp.async.wait_group 7;" ::: "memory"); break;
    }
}
#else
FORCE_INLINE_DEVICE void async_copy16(void *shared, const void *global) {
    *reinterpret_cast<uint4 *>(shared) = *reinterpret_cast<const uint4 *>(global);
}

FORCE_INLINE_DEVICE void async_commit() {}
FORCE_INLINE_DEVICE void async_wait(int) {}
#endif

#else

#include "emulation.h"

#endif

// --- Both ---------------------------------------------------------------------------------------------------------------

FORCE_INLINE_DEVICE uint32_t lane() { return thread_id() % 32; }
FORCE_INLINE_DEVICE uint32_t warp() { return thread_id() / 32; }

template <typename T> FORCE_INLINE_DEVICE T smaller(T a, T b) { return b < a ? b : a; }
template <typename T> FORCE_INLINE_DEVICE T larger(T a, T b) { return a < b ? b : a; }

FORCE_INLINE_DEVICE float bf16_to_float(Bf16Bits bits) { return float_of_bits((uint32_t)bits << 16); }

// The lower half first.
FORCE_INLINE_DEVICE Float2 half2_to_float2(uint32_t bits) {
    return Float2{half_to_float((HalfBits)(bits & 0xffff)), half_to_float((HalfBits)(bits >> 16))};
}

// Every thread of the block gets the sum. `shared32` is free again when it returns.
FORCE_INLINE_DEVICE float block_sum(float x, float *shared32) {
    x = warp_sum(x);
    if (lane() == 0) shared32[warp()] = x;
    sync_block();
    x = warp_sum(lane() < n_threads() / 32 ? shared32[lane()] : 0.0f);
    sync_block();
    return x;
}

// The same of the largest.
FORCE_INLINE_DEVICE float block_max(float x, float *shared32) {
    x = warp_max(x);
    if (lane() == 0) shared32[warp()] = x;
    sync_block();
    x = warp_max(lane() < n_threads() / 32 ? shared32[lane()] : -INFINITY);
    sync_block();
    return x;
}
