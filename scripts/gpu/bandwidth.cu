// How fast the card's memory is: a large copy on the device, and a kernel that only reads. Prints one line of JSON.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call)                                                                                                            \
    do {                                                                                                                       \
        cudaError_t status = (call);                                                                                           \
        if (status != cudaSuccess) {                                                                                           \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));                                                    \
            exit(1);                                                                                                           \
        }                                                                                                                      \
    } while (0)

// Adds up what it reads, so that the compiler leaves the reads in.
__global__ void read_all(const uint4 *from, size_t n, unsigned *sum) {
    const size_t stride = size_t(gridDim.x) * blockDim.x;
    unsigned total = 0;
#pragma unroll 8
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
        const uint4 value = from[i];
        total += value.x ^ value.y ^ value.z ^ value.w;
    }
    if (total == 0x12345678u) *sum = total;
}

template <typename Run> double bytes_per_second(double bytes, Run run) {
    const int runs = 20;
    cudaEvent_t began, ended;
    CHECK(cudaEventCreate(&began));
    CHECK(cudaEventCreate(&ended));
    for (int i = 0; i < 3; ++i) run();
    CHECK(cudaEventRecord(began));
    for (int i = 0; i < runs; ++i) run();
    CHECK(cudaEventRecord(ended));
    CHECK(cudaEventSynchronize(ended));
    CHECK(cudaGetLastError());
    float milliseconds = 0;
    CHECK(cudaEventElapsedTime(&milliseconds, began, ended));
    return bytes * runs / (milliseconds / 1e3);
}

int main() {
    cudaDeviceProp card;
    CHECK(cudaGetDeviceProperties(&card, 0));
    const size_t bytes = size_t(4) << 30;
    char *from, *to;
    unsigned *sum;
    CHECK(cudaMalloc(&from, bytes));
    CHECK(cudaMalloc(&to, bytes));
    CHECK(cudaMalloc(&sum, sizeof *sum));
    CHECK(cudaMemset(from, 1, bytes));
    const double copied =
        bytes_per_second(2.0 * bytes, [&] { CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice)); });
    const int blocks = card.multiProcessorCount * 8;
    const double read = bytes_per_second(
        double(bytes), [&] { read_all<<<blocks, 256>>>(reinterpret_cast<const uint4 *>(from), bytes / sizeof(uint4), sum); });
    printf("{\"card\":\"%s\",\"multiprocessors\":%d,\"copy_bytes_per_second\":%.4e,\"read_bytes_per_second\":%.4e}\n", card.name,
           card.multiProcessorCount, copied, read);
}
