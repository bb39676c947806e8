// Computes attention on one thread of llama.cpp's CPU backend, as often as it is told: that of the last tokens of a context,
// with a causal mask.
//
// Arguments: type of the keys and values, heads, heads of keys and values, their width, context, tokens, repeats.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

static std::vector<float> numbers(int64_t n) {
    std::vector<float> numbers(n);
    for (int64_t idx = 0; idx < n; idx++) {
        numbers[idx] = (float) (idx * 37 % 101) / 50 - 1;
    }
    return numbers;
}

int main(int n_arguments, char ** arguments) {
    if (n_arguments != 8) {
        fprintf(stderr, "usage: %s F16|Q8_0 HEADS KV_HEADS WIDTH CONTEXT TOKENS REPEATS\n", arguments[0]);
        return 2;
    }
    const ggml_type type = strcmp(arguments[1], "Q8_0") == 0 ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
    const int64_t n_heads = atoll(arguments[2]), n_kv_heads = atoll(arguments[3]), width = atoll(arguments[4]);
    const int64_t n_positions = atoll(arguments[5]), n_tokens = atoll(arguments[6]);

    ggml_backend_t backend = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(backend, 1);
    ggml_context * context = ggml_init({ 1 << 20, nullptr, true });
    ggml_tensor * queries = ggml_new_tensor_3d(context, GGML_TYPE_F32, width, n_tokens, n_heads);
    ggml_tensor * keys = ggml_new_tensor_3d(context, type, width, n_positions, n_kv_heads);
    ggml_tensor * values = ggml_new_tensor_3d(context, type, width, n_positions, n_kv_heads);
    ggml_tensor * mask = ggml_new_tensor_2d(context, GGML_TYPE_F16, n_positions, n_tokens);
    ggml_tensor * attended =
        ggml_flash_attn_ext(context, queries, keys, values, mask, 1 / sqrtf((float) width), 0, 0);
    ggml_backend_alloc_ctx_tensors(context, backend);

    const std::vector<float> elements = numbers(ggml_nelements(queries));
    ggml_backend_tensor_set(queries, elements.data(), 0, ggml_nbytes(queries));
    const std::vector<float> cached = numbers(ggml_nelements(keys));
    std::vector<unsigned char> bytes(ggml_nbytes(keys));
    ggml_quantize_chunk(type, cached.data(), bytes.data(), 0, ggml_nrows(keys), width, nullptr);
    ggml_backend_tensor_set(keys, bytes.data(), 0, bytes.size());
    ggml_backend_tensor_set(values, bytes.data(), 0, bytes.size());
    std::vector<ggml_fp16_t> hidden(n_positions * n_tokens);
    for (int64_t token = 0; token < n_tokens; token++) {
        for (int64_t position = 0; position < n_positions; position++) {
            const bool is_seen = position <= n_positions - n_tokens + token;
            hidden[token * n_positions + position] = ggml_fp32_to_fp16(is_seen ? 0 : -INFINITY);
        }
    }
    ggml_backend_tensor_set(mask, hidden.data(), 0, ggml_nbytes(mask));

    ggml_cgraph * graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, attended);
    for (int repeats = atoi(arguments[7]); repeats > 0; repeats--) {
        ggml_backend_graph_compute(backend, graph);
    }
    return 0;
}
