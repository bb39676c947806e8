// The kernels' language on the host: see platform.h, which includes this.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <vector>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HONE_HOST_ASAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define HONE_HOST_ASAN 1
#endif
#ifdef HONE_HOST_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define DEVICE inline
#define FORCE_INLINE_DEVICE inline
#define UNROLL
#define UNROLL_BY(n)
#define HAS_MMA 1
#define HAS_ASYNC_COPY 1

#define KERNEL_THAT_WAITS(name, Arguments, max_threads, min_blocks) \
    static void name##_on_host(const Arguments &arguments); \
    static void name##_entry(const void *arguments) { name##_on_host(*static_cast<const Arguments *>(arguments)); } \
    static emulation::Kernel name##_kernel(#name, name##_entry, max_threads); \
    static void name##_on_host([[maybe_unused]] const Arguments &arguments)
#define KERNEL_BOUNDS(name, Arguments, max_threads, min_blocks) \
    static void name##_after_earlier(const Arguments &arguments); \
    KERNEL_THAT_WAITS(name, Arguments, max_threads, min_blocks) { \
        wait_for_earlier(); \
        name##_after_earlier(arguments); \
    } \
    static void name##_after_earlier([[maybe_unused]] const Arguments &arguments)

#define SHARED(type, name, size) \
    static thread_local emulation::SharedArray name##_memory; \
    type(&name)[size] = *static_cast<type(*)[size]>(name##_memory.of_block(sizeof(type) * (size)))
#define DYNAMIC_SHARED(type, name) type *name = reinterpret_cast<type *>(emulation::machine->dynamic_shared.get())

struct alignas(8) Uint2 {
    uint32_t x, y;
};
struct alignas(16) Uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) Float2 {
    float x, y;
};
struct alignas(16) Float4 {
    float x, y, z, w;
};

inline float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

inline uint32_t bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float half_to_float(HalfBits half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t magnitude = half & 0x7fff;
    if (magnitude >= 0x7c00) return float_of_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    if (magnitude >= 0x400) return float_of_bits(sign | ((magnitude << 13) + (112u << 23)));
    return float_of_bits(sign | bits_of_float((float)magnitude * 0x1p-24f));
}

inline HalfBits float_to_half(float x) {
    uint32_t bits = bits_of_float(x);
    HalfBits sign = (HalfBits)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return sign | 0x7fff;
    if (magnitude >= 0x47800000) return sign | 0x7c00;
    if (magnitude < 0x38800000) {
        // A sum with one half has the result's digits at its end, rounded to even.
        return (HalfBits)(sign | (bits_of_float(float_of_bits(magnitude) + 0.5f) - bits_of_float(0.5f)));
    }
    // Rounding may carry into the exponent, and up to infinity, as it should.
    return (HalfBits)(sign | (((magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13) - (112u << 10)));
}

inline Bf16Bits float_to_bf16(float x) {
    uint32_t bits = bits_of_float(x);
    if (x != x) return 0x7fff;
    return (Bf16Bits)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

namespace emulation {

// --- Kernels ------------------------------------------------------------------------------------------------------------

struct Kernel {
    const char *name;
    void (*entry)(const void *);
    uint32_t max_threads;
    Kernel *next;

    inline static Kernel *first = nullptr;

    Kernel(const char *name, void (*entry)(const void *), uint32_t max_threads)
        : name(name), entry(entry), max_threads(max_threads), next(first) {
        first = this;
    }

    static const Kernel *find(const char *name) {
        const Kernel *kernel = first;
        while (kernel && strcmp(kernel->name, name) != 0) kernel = kernel->next;
        return kernel;
    }
};

// --- Switching between stacks -------------------------------------------------------------------------------------------

// `switch_stack` keeps the registers that functions must preserve on the present stack, writes the stack pointer to `*kept`, and
// goes on with another stack, where they are kept in the same way.
#if defined(__x86_64__)

typedef void *Context;
void switch_stack(Context *kept, Context *next) asm("hone_host_switch_stack");
asm(".text\n"
    ".p2align 4\n"
    "hone_host_switch_stack:\n"
    "  movq (%rsi), %rsi\n"
    "  pushq %rbp\n"
    "  pushq %rbx\n"
    "  pushq %r12\n"
    "  pushq %r13\n"
    "  pushq %r14\n"
    "  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n"
    "  popq %r14\n"
    "  popq %r13\n"
    "  popq %r12\n"
    "  popq %rbx\n"
    "  popq %rbp\n"
    "  popq %rcx\n"
    "  jmpq *%rcx\n"); // Processors predict where `ret` goes from the calls before, which were made on other stacks.

// A stack from which `switch_stack` goes on with `entry`, as if it had been called: at its top stands a return address, here 0.
inline void make_context(Context *context, uint8_t *stack, size_t n_bytes, void (*entry)()) {
    void **top = reinterpret_cast<void **>(stack + n_bytes);
    memset(top - 8, 0, 8 * sizeof(void *));
    top[-2] = reinterpret_cast<void *>(entry);
    *context = top - 8;
}

#elif defined(__aarch64__)

typedef void *Context;
void switch_stack(Context *kept, Context *next) asm("hone_host_switch_stack");
asm(".text\n"
    ".p2align 2\n"
    "hone_host_switch_stack:\n"
    "  ldr x1, [x1]\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp]\n"
    "  stp x21, x22, [sp, #16]\n"
    "  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n"
    "  stp x27, x28, [sp, #64]\n"
    "  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n"
    "  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n"
    "  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n"
    "  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp x19, x20, [sp]\n"
    "  ldp x21, x22, [sp, #16]\n"
    "  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n"
    "  ldp x27, x28, [sp, #64]\n"
    "  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n"
    "  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n"
    "  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n");

inline void make_context(Context *context, uint8_t *stack, size_t n_bytes, void (*entry)()) {
    void **frame = reinterpret_cast<void **>(stack + n_bytes - 160);
    memset(frame, 0, 160);
    frame[11] = reinterpret_cast<void *>(entry);
    *context = frame;
}

#else

typedef ucontext_t Context;
inline void switch_stack(Context *kept, Context *next) { swapcontext(kept, next); }

inline void make_context(Context *context, uint8_t *stack, size_t n_bytes, void (*entry)()) {
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = n_bytes;
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
}

#endif

// --- Fibers -------------------------------------------------------------------------------------------------------------

#ifdef HONE_HOST_ASAN
constexpr size_t STACK_BYTES = 256 << 10;
#else
constexpr size_t STACK_BYTES = 64 << 10;
#endif
constexpr uint32_t WARP = 32;
constexpr uint32_t MAX_THREADS = 1024;
constexpr size_t MAX_SHARED_BYTES = 227 << 10;

struct Copy {
    void *to;
    const void *from;
    uint32_t group;
};

struct Fiber {
    Context context;
    void *asan_stack = nullptr;
    uint32_t place = 0;
    // Asynchronous copies that have not happened yet, and the number of the group that is being filled.
    std::vector<Copy> copies;
    uint32_t copy_group = 0;
    // Whether it has waited for the kernels before this one.
    bool has_waited = false;
};

// Functions that never return leave marks on their stack that the next user must not meet.
inline void clear_marks([[maybe_unused]] uint8_t *memory, [[maybe_unused]] size_t n_bytes) {
#ifdef HONE_HOST_ASAN
    __asan_unpoison_memory_region(memory, n_bytes);
#endif
}

// Stacks with a page between them that must not be touched.
class Stacks {
public:
    Stacks() : guard((size_t)sysconf(_SC_PAGESIZE)) {}
    Stacks(const Stacks &) = delete;
    Stacks &operator=(const Stacks &) = delete;

    ~Stacks() {
        for (uint8_t *stack : stacks) munmap(stack - guard, STACK_BYTES + guard);
    }

    uint8_t *get(uint32_t index) {
        while (stacks.size() <= index) {
            void *memory = mmap(nullptr, STACK_BYTES + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
            if (memory == MAP_FAILED || mprotect(memory, guard, PROT_NONE) != 0) {
                perror("stack of an emulated thread");
                abort();
            }
            stacks.push_back(static_cast<uint8_t *>(memory) + guard);
            clear_marks(stacks.back(), STACK_BYTES);
        }
        return stacks[index];
    }

private:
    size_t guard;
    std::vector<uint8_t *> stacks;
};

// What the lanes of a warp tell each other. Fast lanes may be one exchange ahead of slow ones, so what is written exists twice.
struct Warp {
    uint32_t n_arrived;
    uint32_t n_barriers;
    uint32_t values[2][WARP];
    uint32_t a[2][WARP][4];
    uint32_t b[2][WARP][2];
    // What the first lane computes after a barrier for all of them, and the number of that barrier.
    uint32_t computed_after;
    float result;
    float a_floats[16][16];
    float b_floats[8][16];
};

enum State : uint8_t { READY = 1, WAITS_FOR_WARP, WAITS_FOR_BLOCK, RETURNED };

inline std::atomic<uint64_t> order_seed{0};

// One for each thread of the host that launches kernels.
struct Machine {
    const Kernel *kernel = nullptr;
    const void *arguments = nullptr;
    uint32_t n_threads = 0;
    uint32_t grid[3] = {};
    uint32_t block[3] = {};
    uint64_t n_blocks_started = 0;
    std::unique_ptr<uint8_t[]> dynamic_shared;
    std::vector<std::unique_ptr<uint8_t[]>> static_shared;

    Context launcher;
    void *asan_stack = nullptr;
    const void *launcher_bottom = nullptr;
    size_t launcher_bytes = 0;
    Stacks stacks;
    Fiber fibers[MAX_THREADS];
    Warp warps[MAX_THREADS / WARP];
    // The threads in the order in which they run, and their states in the same order.
    uint32_t threads[MAX_THREADS];
    uint8_t states[MAX_THREADS];
    uint32_t n_returned = 0;
    uint32_t n_at_barrier = 0;
};

// Plain pointers and numbers, so that reading them is cheap.
inline thread_local Machine *machine = nullptr;
inline thread_local uint32_t current = 0;

[[noreturn]] inline void fail(const char *what) {
    uint32_t counts[5] = {};
    for (uint32_t place = 0; place < machine->n_threads; place++) counts[machine->states[place]]++;
    const uint32_t *block = machine->block;
    fprintf(stderr, "kernel %s, block (%u, %u, %u): %s\n", machine->kernel->name, block[0], block[1], block[2], what);
    fprintf(stderr, "%u threads: %u wait for their warp, %u for their block, %u have returned\n", machine->n_threads,
            counts[WAITS_FOR_WARP], counts[WAITS_FOR_BLOCK], counts[RETURNED]);
    abort();
}

inline void switch_context(Context *kept, Context *next, void **asan_stack, const void *bottom, size_t n_bytes) {
#ifdef HONE_HOST_ASAN
    void *stack = nullptr;
    __sanitizer_start_switch_fiber(asan_stack ? &stack : nullptr, bottom, n_bytes);
    if (asan_stack) *asan_stack = stack;
    switch_stack(kept, next);
    __sanitizer_finish_switch_fiber(asan_stack ? *asan_stack : nullptr, nullptr, nullptr);
#else
    (void)asan_stack, (void)bottom, (void)n_bytes;
    switch_stack(kept, next);
#endif
}

// Goes on with another fiber; `is_last` if this one never runs again.
inline void switch_to(uint32_t thread, bool is_last) {
    if (thread == current) return;
    Fiber &from = machine->fibers[current];
    current = thread;
    Fiber &to = machine->fibers[thread];
    switch_context(&from.context, &to.context, is_last ? nullptr : &from.asan_stack, machine->stacks.get(thread), STACK_BYTES);
}

// The first thread after a place, and around, that does not wait.
inline void run_next(uint32_t place, bool is_last) {
    const uint8_t *states = machine->states;
    const void *ready = memchr(states + place + 1, READY, machine->n_threads - place - 1);
    if (!ready) ready = memchr(states, READY, place + 1);
    if (!ready) fail("the threads wait for each other");
    switch_to(machine->threads[static_cast<const uint8_t *>(ready) - states], is_last);
}

inline bool release_block() {
    if (machine->n_at_barrier + machine->n_returned < machine->n_threads) return false;
    for (uint32_t place = 0; place < machine->n_threads; place++) {
        if (machine->states[place] == WAITS_FOR_BLOCK) machine->states[place] = READY;
    }
    machine->n_at_barrier = 0;
    return true;
}

inline void block_barrier() {
    uint32_t place = machine->fibers[current].place;
    machine->states[place] = WAITS_FOR_BLOCK;
    machine->n_at_barrier++;
    release_block();
    run_next(place, false);
}

inline void warp_barrier() {
    uint32_t place = machine->fibers[current].place;
    uint32_t first = current / WARP * WARP;
    Warp &warp = machine->warps[current / WARP];
    machine->states[place] = WAITS_FOR_WARP;
    if (++warp.n_arrived == WARP) {
        for (uint32_t lane = 0; lane < WARP; lane++) machine->states[machine->fibers[first + lane].place] = READY;
        warp.n_arrived = 0;
        warp.n_barriers++;
    }
    run_next(place, false);
}

inline void start_fiber() {
#ifdef HONE_HOST_ASAN
    // The first fiber of a block learns where the launcher's stack is.
    const void *bottom = nullptr;
    size_t n_bytes = 0;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &n_bytes);
    if (!machine->launcher_bottom) machine->launcher_bottom = bottom, machine->launcher_bytes = n_bytes;
#endif
    machine->kernel->entry(machine->arguments);
    Fiber &fiber = machine->fibers[current];
    if (!fiber.has_waited) fail("a thread has not waited for earlier kernels");
    machine->states[fiber.place] = RETURNED;
    machine->n_returned++;
    if (machine->n_returned == machine->n_threads) {
        switch_context(&fiber.context, &machine->launcher, nullptr, machine->launcher_bottom, machine->launcher_bytes);
    }
    release_block();
    run_next(fiber.place, true);
    abort();
}

inline uint64_t next_random(uint64_t &state) {
    state += 0x9e3779b97f4a7c15;
    uint64_t x = state;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

// 0: forward, 1: backward, else shuffled.
inline void set_thread_order(uint64_t seed, uint64_t &random) {
    uint32_t n = machine->n_threads;
    for (uint32_t place = 0; place < n; place++) machine->threads[place] = seed == 1 ? n - 1 - place : place;
    for (uint32_t place = n; seed > 1 && place > 1; place--) {
        std::swap(machine->threads[place - 1], machine->threads[next_random(random) % place]);
    }
    for (uint32_t place = 0; place < n; place++) machine->fibers[machine->threads[place]].place = place;
}

inline void run_block(size_t shared_bytes) {
    uint32_t n = machine->n_threads;
    machine->n_blocks_started++;
    memset(machine->dynamic_shared.get(), 0xff, shared_bytes);
    memset(machine->states, READY, n);
    machine->n_returned = machine->n_at_barrier = 0;
    for (uint32_t warp = 0; warp < n / WARP; warp++) {
        machine->warps[warp].n_arrived = machine->warps[warp].n_barriers = machine->warps[warp].computed_after = 0;
    }
    for (uint32_t thread = 0; thread < n; thread++) {
        Fiber &fiber = machine->fibers[thread];
        fiber.copies.clear();
        fiber.copy_group = 0;
        fiber.has_waited = false;
        // All stacks start at different places of a page, or they would compete for the same lines of the processor's cache.
        size_t unused = thread % 64 * 64;
        uint8_t *stack = machine->stacks.get(thread);
        clear_marks(stack + STACK_BYTES - (8 << 10), 8 << 10);
        make_context(&fiber.context, stack, STACK_BYTES - unused, start_fiber);
    }
    current = machine->threads[0];
    Fiber &first = machine->fibers[current];
    switch_context(&machine->launcher, &first.context, &machine->asan_stack, machine->stacks.get(current), STACK_BYTES);
}

// The blocks run in an order that the seed sets, too.
inline void run_blocks(uint64_t seed, size_t shared_bytes) {
    uint64_t random = seed;
    uint64_t n_blocks = (uint64_t)machine->grid[0] * machine->grid[1] * machine->grid[2];
    uint64_t stride = seed == 1 ? n_blocks - 1 : 1, first = seed == 1 ? n_blocks - 1 : 0;
    if (seed > 1) {
        first = next_random(random) % n_blocks;
        do stride = next_random(random) % n_blocks + 1;
        while (std::gcd(stride, n_blocks) != 1);
    }
    set_thread_order(seed, random);
    for (uint64_t index = 0, block = first; index < n_blocks; index++, block = (block + stride) % n_blocks) {
        if (seed > 1) set_thread_order(seed, random);
        machine->block[0] = (uint32_t)(block % machine->grid[0]);
        machine->block[1] = (uint32_t)(block / machine->grid[0] % machine->grid[1]);
        machine->block[2] = (uint32_t)(block / machine->grid[0] / machine->grid[1]);
        run_block(shared_bytes);
    }
}

// --- Shared memory ------------------------------------------------------------------------------------------------------

// The memory of one declaration. The first thread of a block that reaches it fills it with nonsense.
struct SharedArray {
    uint8_t *memory;
    uint64_t block;

    void *of_block(size_t n_bytes) {
        if (!memory) {
            machine->static_shared.emplace_back(new uint8_t[n_bytes]);
            memory = machine->static_shared.back().get();
        }
        if (block != machine->n_blocks_started) {
            block = machine->n_blocks_started;
            memset(memory, 0xff, n_bytes);
        }
        return memory;
    }
};

// --- What lanes exchange ------------------------------------------------------------------------------------------------

// Every lane gives a value; then each may look at those of all.
template <typename T> inline const uint32_t *exchange(T x) {
    static_assert(sizeof(T) == 4, "lanes exchange 32 bits");
    Warp &warp = machine->warps[current / WARP];
    uint32_t *values = warp.values[warp.n_barriers % 2];
    memcpy(&values[current % WARP], &x, sizeof x);
    warp_barrier();
    return values;
}

template <typename T> inline T value_of(const uint32_t *values, uint32_t lane) {
    T x;
    memcpy(&x, &values[lane], sizeof x);
    return x;
}

// In the order of the card, which is the same for every lane.
template <typename Combine> inline float reduce(float x, Combine combine) {
    const uint32_t *values = exchange(x);
    Warp &warp = machine->warps[current / WARP];
    if (warp.computed_after != warp.n_barriers) {
        float sums[WARP];
        memcpy(sums, values, sizeof sums);
        for (uint32_t n = WARP / 2; n > 0; n /= 2) {
            for (uint32_t lane = 0; lane < n; lane++) sums[lane] = combine(sums[lane], sums[lane + n]);
        }
        warp.computed_after = warp.n_barriers;
        warp.result = sums[0];
    }
    return warp.result;
}

template <typename ToFloat> inline void multiply(float d[4], const uint32_t a[4], const uint32_t b[2], ToFloat to_float) {
    Warp &warp = machine->warps[current / WARP];
    uint32_t buffer = warp.n_barriers % 2, lane = current % WARP;
    memcpy(warp.a[buffer][lane], a, sizeof warp.a[buffer][lane]);
    memcpy(warp.b[buffer][lane], b, sizeof warp.b[buffer][lane]);
    warp_barrier();
    if (warp.computed_after != warp.n_barriers) {
        warp.computed_after = warp.n_barriers;
        for (uint32_t k = 0; k < 16; k++) {
            uint32_t shift = k % 2 * 16;
            for (uint32_t row = 0; row < 16; row++) {
                uint32_t pair = warp.a[buffer][row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
                warp.a_floats[row][k] = to_float((uint16_t)(pair >> shift));
            }
            for (uint32_t column = 0; column < 8; column++) {
                uint32_t pair = warp.b[buffer][column * 4 + k % 8 / 2][k / 8];
                warp.b_floats[column][k] = to_float((uint16_t)(pair >> shift));
            }
        }
    }
    for (uint32_t index = 0; index < 4; index++) {
        const float *row = warp.a_floats[lane / 4 + index / 2 * 8], *column = warp.b_floats[lane % 4 * 2 + index % 2];
        float sum = 0.0f;
        for (uint32_t k = 0; k < 16; k++) sum += row[k] * column[k];
        d[index] += sum;
    }
}

// Products of signed bytes: k is 32, or 16 with half of the registers.
template <uint32_t HALVES> inline void multiply_bytes(int d[4], const uint32_t *a, const uint32_t *b) {
    Warp &warp = machine->warps[current / WARP];
    uint32_t buffer = warp.n_barriers % 2, lane = current % WARP;
    memcpy(warp.a[buffer][lane], a, HALVES * 2 * sizeof *a);
    memcpy(warp.b[buffer][lane], b, HALVES * sizeof *b);
    warp_barrier();
    for (uint32_t index = 0; index < 4; index++) {
        for (uint32_t part = 0; part < 4 * HALVES; part++) {
            uint32_t row = warp.a[buffer][lane / 4 * 4 + part % 4][index / 2 + part / 4 * 2];
            uint32_t column = warp.b[buffer][(lane % 4 * 2 + index % 2) * 4 + part % 4][part / 4];
            for (int shift = 0; shift < 32; shift += 8) d[index] += (int8_t)(row >> shift) * (int8_t)(column >> shift);
        }
    }
}

} // namespace emulation

inline uint32_t thread_id() { return emulation::current; }
inline uint32_t n_threads() { return emulation::machine->n_threads; }
inline uint32_t block_x() { return emulation::machine->block[0]; }
inline uint32_t block_y() { return emulation::machine->block[1]; }
inline uint32_t block_z() { return emulation::machine->block[2]; }
inline uint32_t grid_x() { return emulation::machine->grid[0]; }
inline uint32_t grid_y() { return emulation::machine->grid[1]; }

inline void sync_block() { emulation::block_barrier(); }
inline void sync_warp() { emulation::warp_barrier(); }

template <typename T> inline T shuffle(T x, uint32_t lane) {
    return emulation::value_of<T>(emulation::exchange(x), lane % emulation::WARP);
}
template <typename T> inline T shuffle_xor(T x, uint32_t mask) { return shuffle(x, thread_id() ^ mask); }
template <typename T> inline T shuffle_down(T x, uint32_t n) {
    uint32_t lane = thread_id() % emulation::WARP;
    return shuffle(x, lane + n < emulation::WARP ? lane + n : lane);
}

inline uint32_t lanes_where(bool is_true) {
    const uint32_t *values = emulation::exchange((uint32_t)is_true);
    uint32_t lanes = 0;
    for (uint32_t lane = 0; lane < emulation::WARP; lane++) lanes |= values[lane] << lane;
    return lanes;
}
inline uint32_t count_bits(uint32_t bits) { return (uint32_t)__builtin_popcount(bits); }

inline float warp_sum(float x) {
    return emulation::reduce(x, [](float a, float b) { return a + b; });
}
inline float warp_max(float x) {
    return emulation::reduce(x, [](float a, float b) { return fmaxf(a, b); });
}

inline uint32_t warp_largest(uint32_t x) {
    const uint32_t *values = emulation::exchange(x);
    for (uint32_t lane = 0; lane < emulation::WARP; lane++) x = values[lane] > x ? values[lane] : x;
    return x;
}
inline uint32_t warp_smallest(uint32_t x) { return ~warp_largest(~x); }

inline int dot4(int a, int b, int c) {
    for (int shift = 0; shift < 32; shift += 8) c += (int8_t)((uint32_t)a >> shift) * (int8_t)((uint32_t)b >> shift);
    return c;
}

inline uint32_t byte_permute(uint32_t a, uint32_t b, uint32_t selector) {
    const uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (int shift = 0; shift < 16; shift += 4) result |= (uint32_t)(uint8_t)(bytes >> (selector >> shift & 7) * 8) << 2 * shift;
    return result;
}

inline float fast_exp(float x) { return expf(x); }
inline float exp_(float x) { return expf(x); }
inline float log1p_(float x) { return log1pf(x); }
inline float tanh_(float x) { return tanhf(x); }
inline float sqrt_(float x) { return sqrtf(x); }
inline float rsqrt_(float x) { return 1.0f / sqrtf(x); }
inline float abs_(float x) { return fabsf(x); }
inline void sincos_(float x, float *sine, float *cosine) { *sine = sinf(x), *cosine = cosf(x); }
inline int round_to_int(float x) {
    if (x != x) return 0;
    if (x >= 0x1p31f) return INT32_MAX;
    return x <= -0x1p31f ? INT32_MIN : (int)nearbyintf(x);
}

inline uint32_t atomic_add(uint32_t *p, uint32_t value) {
    uint32_t before = *p;
    *p = before + value;
    return before;
}
template <typename T> inline T load_global(const T *p) { return *p; }
inline void let_later_start() {}
inline void wait_for_earlier() { emulation::machine->fibers[thread_id()].has_waited = true; }

inline void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    emulation::multiply(d, a, b, [](uint16_t bits) { return float_of_bits((uint32_t)bits << 16); });
}
inline void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    emulation::multiply(d, a, b, [](uint16_t bits) { return half_to_float(bits); });
}

inline void mma_s8_k32(int d[4], const uint32_t a[4], const uint32_t b[2]) { emulation::multiply_bytes<2>(d, a, b); }
inline void mma_s8_k16(int d[4], const uint32_t a[2], uint32_t b) { emulation::multiply_bytes<1>(d, a, &b); }

inline void async_copy16(void *shared, const void *global) {
    if (((uintptr_t)shared | (uintptr_t)global) % 16 != 0) emulation::fail("an asynchronous copy is not aligned");
    emulation::Fiber &fiber = emulation::machine->fibers[thread_id()];
    fiber.copies.push_back({shared, global, fiber.copy_group});
}
inline void async_commit() { emulation::machine->fibers[thread_id()].copy_group++; }
inline void async_wait(int n) {
    emulation::Fiber &fiber = emulation::machine->fibers[thread_id()];
    size_t n_done = 0;
    for (const emulation::Copy &copy : fiber.copies) {
        if (copy.group + (uint32_t)n >= fiber.copy_group) break;
        memcpy(copy.to, copy.from, 16);
        n_done++;
    }
    fiber.copies.erase(fiber.copies.begin(), fiber.copies.begin() + (ptrdiff_t)n_done);
}

// The order in which threads of a block, and blocks, run: 0 forward, 1 backward, else shuffled.
extern "C" void hone_host_set_order(uint64_t seed) { emulation::order_seed = seed; }

// Runs a kernel to its end. 0: it has run; 1: there is no such kernel; 2: the card would not run it with this shape.
extern "C" int hone_host_launch(const char *name, const void *arguments, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t threads,
                                uint32_t shared_bytes) {
    using namespace emulation;
    static thread_local std::unique_ptr<Machine> owned;
    const Kernel *kernel = Kernel::find(name);
    if (!kernel) return 1;
    if (threads == 0 || threads % WARP != 0 || threads > kernel->max_threads || shared_bytes > MAX_SHARED_BYTES) return 2;
    if (gx == 0 || gy == 0 || gz == 0 || gx > INT32_MAX || gy > UINT16_MAX || gz > UINT16_MAX) return 2;
    if (!owned) owned.reset(new Machine());
    machine = owned.get();
    machine->kernel = kernel;
    machine->arguments = arguments;
    machine->n_threads = threads;
    machine->grid[0] = gx, machine->grid[1] = gy, machine->grid[2] = gz;
    machine->dynamic_shared.reset(new uint8_t[shared_bytes]);
    run_blocks(order_seed, shared_bytes);
    return 0;
}
