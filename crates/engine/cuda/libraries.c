// Stands for CUDA's libraries where the program is linked, and finds their functions when they are first called: a program
// with the feature `cuda` then starts on a machine that has no driver, no card and no CUDA. candle has cudarc link to the
// libraries, and no feature of ours can take that back.
//
// A function of functions.h passes its arguments on as they are, whatever they are: registers and stack stay untouched until
// the jump. What it jumps to is looked up once. Where there is no library, or not this function in it, it answers with an
// error of that library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

struct library {
    const char *const *names; // the first that loads is taken
    int (*missing)(void);     // what answers where none loads
    int (*too_old)(void);     // what answers where it lacks a function
    void *handle;
};

struct function {
    void *address; // read by the assembly below: the first field
    const char *name;
    struct library *library;
};

static int cuda_missing(void) { return 34; }    // CUDA_ERROR_STUB_LIBRARY
static int cuda_too_old(void) { return 36; }    // CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER
static int cublas_missing(void) { return 1; }   // CUBLAS_STATUS_NOT_INITIALIZED
static int cublas_too_old(void) { return 15; }  // CUBLAS_STATUS_NOT_SUPPORTED
static int curand_missing(void) { return 101; } // CURAND_STATUS_NOT_INITIALIZED
static int curand_too_old(void) { return 100; } // CURAND_STATUS_VERSION_MISMATCH

static const char *const cuda_names[] = {"libcuda.so.1", "libcuda.so", NULL};
static const char *const cublas_names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so", NULL};
static const char *const curand_names[] = {"libcurand.so.10", "libcurand.so", NULL};
static struct library cuda = {cuda_names, cuda_missing, cuda_too_old, NULL};
static struct library cublas = {cublas_names, cublas_missing, cublas_too_old, NULL};
static struct library curand = {curand_names, curand_missing, curand_too_old, NULL};

static void *load(struct library *library) {
    void *handle = __atomic_load_n(&library->handle, __ATOMIC_ACQUIRE);
    for (const char *const *name = library->names; !handle && *name; ++name)
        handle = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
    __atomic_store_n(&library->handle, handle, __ATOMIC_RELEASE);
    return handle;
}

// What a function jumps to. A library that is missing is looked for again by the next call.
__attribute__((visibility("hidden"), used)) void *hone_cuda_find(struct function *function) {
    struct library *library = function->library;
    void *handle = load(library);
    if (!handle)
        return (void *)library->missing;
    void *address = dlsym(handle, function->name);
    if (!address)
        address = (void *)library->too_old;
    __atomic_store_n(&function->address, address, __ATOMIC_RELEASE);
    return address;
}

__asm__(".pushsection .text\n"
        "hone_cuda_call:\n"
        "    movq (%r11), %rax\n"
        "    testq %rax, %rax\n"
        "    je 1f\n"
        "    jmp *%rax\n"
        "1:  pushq %rbp\n"
        "    movq %rsp, %rbp\n"
        "    subq $176, %rsp\n"
        "    movq %rdi, 0(%rsp)\n"
        "    movq %rsi, 8(%rsp)\n"
        "    movq %rdx, 16(%rsp)\n"
        "    movq %rcx, 24(%rsp)\n"
        "    movq %r8, 32(%rsp)\n"
        "    movq %r9, 40(%rsp)\n"
        "    movaps %xmm0, 48(%rsp)\n"
        "    movaps %xmm1, 64(%rsp)\n"
        "    movaps %xmm2, 80(%rsp)\n"
        "    movaps %xmm3, 96(%rsp)\n"
        "    movaps %xmm4, 112(%rsp)\n"
        "    movaps %xmm5, 128(%rsp)\n"
        "    movaps %xmm6, 144(%rsp)\n"
        "    movaps %xmm7, 160(%rsp)\n"
        "    movq %r11, %rdi\n"
        "    call hone_cuda_find\n"
        "    movq 0(%rsp), %rdi\n"
        "    movq 8(%rsp), %rsi\n"
        "    movq 16(%rsp), %rdx\n"
        "    movq 24(%rsp), %rcx\n"
        "    movq 32(%rsp), %r8\n"
        "    movq 40(%rsp), %r9\n"
        "    movaps 48(%rsp), %xmm0\n"
        "    movaps 64(%rsp), %xmm1\n"
        "    movaps 80(%rsp), %xmm2\n"
        "    movaps 96(%rsp), %xmm3\n"
        "    movaps 112(%rsp), %xmm4\n"
        "    movaps 128(%rsp), %xmm5\n"
        "    movaps 144(%rsp), %xmm6\n"
        "    movaps 160(%rsp), %xmm7\n"
        "    leave\n"
        "    jmp *%rax\n"
        ".popsection\n");

#define ENTER(name) "    leaq hone_cuda_" #name "(%rip), %r11\n    jmp hone_cuda_call\n"

#define FUNCTION(library, name)                                                                                                \
    __attribute__((visibility("hidden"), used)) struct function hone_cuda_##name = {NULL, #name, &library};                    \
    __asm__(".pushsection .text\n.globl " #name "\n.hidden " #name "\n.type " #name ", %function\n" #name ":\n" ENTER(name)  \
            ".popsection\n");

#include "functions.h"
