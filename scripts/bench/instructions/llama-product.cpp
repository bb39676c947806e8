// Computes one product on one thread of llama.cpp's CPU backend, as often as it is told. The weights lie where its
// loader would put them: repacked, if it has a repacked layout for the type and the processor.
//
// Arguments: type, rows, columns, tokens, repeats. Prints the name of the buffer type that holds the weights.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <strings.h>
#include <vector>

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

static ggml_type type_named(const char * name) {
    for (int type = 0; type < GGML_TYPE_COUNT; type++) {
        const char * other = ggml_type_name((ggml_type) type);
        if (other && strcasecmp(name, other) == 0) {
            return (ggml_type) type;
        }
    }
    fprintf(stderr, "llama.cpp has no type %s\n", name);
    exit(2);
}

static ggml_backend_buffer_type_t buffer_type_for(ggml_backend_dev_t device, ggml_tensor * weights, ggml_tensor * product) {
    auto * extra_types = (ggml_backend_dev_get_extra_bufts_t) ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts");
    for (auto * type = extra_types ? extra_types(device) : nullptr; type && *type; type++) {
        weights->buffer = ggml_backend_buft_alloc_buffer(*type, 0);
        const bool supported = ggml_backend_dev_supports_op(device, product);
        ggml_backend_buffer_free(weights->buffer);
        weights->buffer = nullptr;
        if (supported) {
            return *type;
        }
    }
    return ggml_backend_dev_buffer_type(device);
}

int main(int n_arguments, char ** arguments) {
    if (n_arguments != 6) {
        fprintf(stderr, "usage: %s TYPE ROWS COLUMNS TOKENS REPEATS\n", arguments[0]);
        return 2;
    }
    const ggml_type type = type_named(arguments[1]);
    const int64_t n_rows = atoll(arguments[2]), n_columns = atoll(arguments[3]), n_tokens = atoll(arguments[4]);

    ggml_backend_t backend = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(backend, 1);
    ggml_backend_dev_t device = ggml_backend_get_device(backend);

    ggml_context * context = ggml_init({ 1 << 20, nullptr, true });
    ggml_tensor * weights = ggml_new_tensor_2d(context, type, n_columns, n_rows);
    ggml_tensor * activations = ggml_new_tensor_2d(context, GGML_TYPE_F32, n_columns, n_tokens);
    ggml_tensor * product = ggml_mul_mat(context, weights, activations);

    ggml_backend_buffer_type_t buffer_type = buffer_type_for(device, weights, product);
    ggml_backend_buffer_t buffer =
        ggml_backend_buft_alloc_buffer(buffer_type, ggml_backend_buft_get_alloc_size(buffer_type, weights));
    ggml_backend_tensor_alloc(buffer, weights, ggml_backend_buffer_get_base(buffer));
    ggml_backend_alloc_ctx_tensors(context, backend);

    // Small bytes everywhere make small numbers of all scales, whatever the type.
    std::vector<unsigned char> bytes(ggml_nbytes(weights));
    for (size_t idx = 0; idx < bytes.size(); idx++) {
        bytes[idx] = idx * 7 % 31;
    }
    ggml_backend_tensor_set(weights, bytes.data(), 0, bytes.size());
    std::vector<float> elements(n_columns * n_tokens);
    for (size_t idx = 0; idx < elements.size(); idx++) {
        elements[idx] = (float) (idx * 37 % 101) / 50 - 1;
    }
    ggml_backend_tensor_set(activations, elements.data(), 0, elements.size() * sizeof(float));

    ggml_cgraph * graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, product);
    for (int repeats = atoi(arguments[5]); repeats > 0; repeats--) {
        ggml_backend_graph_compute(backend, graph);
    }
    printf("%s\n", ggml_backend_buft_name(buffer_type));
    return 0;
}
