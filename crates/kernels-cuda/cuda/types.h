// What kernels are launched with. Every kernel has one argument, a struct by value; src/arguments.rs has the same structs.
// Pointers are to device memory. Rows of floats are f32; "width" and "stride" count elements.
#pragma once
#include <stdint.h>

typedef uint16_t HalfBits; // IEEE half precision, as bits
typedef uint16_t Bf16Bits; // bfloat16, as bits

// Positions of a block of the cache.
#define BLOCK_TOKENS 32
// Elements that share a scale in quantized activations.
#define SCALE_ELEMENTS 32
// Choices that a row may make among experts.
#define MAX_CHOICES 64
// Taps of a convolution.
#define MAX_TAPS 16

// The tokens of a step, sequence by sequence. Constant during a step.
struct Batch {
    const uint32_t *tokens;          // [n_tokens]
    const uint32_t *positions;       // [n_tokens] position of each token in its sequence
    const uint32_t *sequence_of;     // [n_tokens] the sequence of each token
    const uint32_t *selected;        // [n_selected] rows whose results are wanted
    const uint32_t *blocks;          // the cache blocks of all sequences, one sequence after the other
    const uint32_t *block_starts;    // [n_sequences] where a sequence's blocks begin in `blocks`
    const uint32_t *first_rows;      // [n_sequences + 1] first row of each sequence; the last is n_tokens
    const uint32_t *first_selected;  // [n_sequences + 1] the same among the selected rows
    uint32_t n_tokens;
    uint32_t n_selected;
    uint32_t n_sequences;
    uint32_t reserved;
};

// The sets of rows that a phase works on.
enum RowSet { SET_TOKENS = 0, SET_SELECTED = 1, SET_ROUTED = 2 };

// Element i of a row is at data[row * stride + i], for i < width.
struct Part {
    float *data;
    uint32_t stride;
    uint32_t width;
};

// Rows as products read them. A product of quantized weights with few rows reads quants, scales and sums; others read bf16.
// Any of the pointers may be null if no reader needs it. Width is a multiple of 32 where quants are not null.
struct QuantizedRows {
    int8_t *quants;   // [n_rows][width]: x = quant * scale
    float *scales;    // [n_rows][width / 32]
    float *sums;      // [n_rows][width / 32]: scale * (sum of the 32 quants)
    Bf16Bits *bf16;   // [n_rows][width]
    uint32_t width;
    uint32_t reserved;
};

enum KvFormat { KV_F16 = 0, KV_Q8_0 = 1 };

// One layer's part of the cache. Blocks lie in segments; one block holds the keys and values of all layers.
// Block b starts at segments[b / segment_blocks] + (b % segment_blocks) * block_bytes.
// In it, the key of kv head h at slot s (position % BLOCK_TOKENS) starts at keys_offset + (h * BLOCK_TOKENS + s) * row_bytes,
// the value at values_offset + (h * BLOCK_TOKENS + s) * row_bytes.
// A row is head_dim halves; or, in Q8_0, head_dim int8 quants followed by ceil(head_dim / 32) scales as halves.
// row_bytes is a multiple of 16. head_dim is a multiple of 8 (32 is usual: 64, 80, 96, 128, 256).
struct Kv {
    uint8_t *const *segments;
    uint64_t block_bytes;
    uint64_t keys_offset;
    uint64_t values_offset;
    uint32_t segment_blocks;
    uint32_t row_bytes;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t format;
    uint32_t reserved;
};

// What the rows of a set chose among experts, sorted by expert ("rank" is the place after sorting). Filled by `plan_routes`.
// A tile is up to TILE_RANKS neighbouring ranks of one expert.
#define TILE_RANKS 8
struct Routes {
    const float *choices;   // [n_rows][2 * n_used]: numbers of the experts, then their weights
    uint32_t *ranks;        // [n_rows * n_used] by row and choice
    uint32_t *rows;         // [n_ranks] by rank
    uint32_t *experts;      // [n_ranks] by rank
    float *weights;         // [n_ranks] by rank
    uint32_t *tiles;        // [max_tiles][3]: expert, first rank, number of ranks
    uint32_t *n_tiles;      // one number
    uint32_t n_experts;
    uint32_t n_used;
};

// --- Operations on rows -------------------------------------------------------------------------------------------------

enum RowOp {
    OP_EMBED = 0,        // to.a <- row `token` of the matrix m, dequantized, * f0
    OP_ANGLES,           // a (angles, width 2 * n): cos, then sin, of position * v0[i], times f0, for i < n = n0.
                         //   (halves and neighbours alike: n0 cosines, then n0 sines)
    OP_GATHER,           // a[row] <- b[selected[row]]
    OP_COPY,             // a <- b
    OP_ADD,              // a <- a + b
    OP_SCALE,            // a <- a * f0
    OP_SHARPEN,          // a <- a * (1 + f0 * ln(1 + floor((position + n1) / n0)))
    OP_MULTIPLY,         // a <- a * b
    OP_GATE_SIGMOID,     // a <- a * sigmoid(b); b is as wide as a, or has one element
    OP_SIGMOID,          // a <- sigmoid(a)
    OP_UNZIP,            // b holds pairs of heads of n0 elements; the first of each pair goes to a, the second to c
    OP_DECAY,            // a (steps) <- softplus(a + v0); b (decays) <- exp(v1 * a). softplus(x) = x > 20 ? x : log1p(exp(x))
    OP_ADD_HEADS,        // a <- a + b * v0[head], with n0 heads
    OP_ROUTE,            // chooses experts: see `route` in crates/kernels/src/step/gating.rs. a: logits (are changed), b: choices,
                         //   n0: gating (0 softmax, 1 softmax of chosen, 2 sigmoid), n1: is_normalized, n2: n_used, f0: scale,
                         //   v0: selection bias or null, v1: output scales or null
    OP_WEIGH,            // a <- a * routes.weights[row]
    OP_ADD_EXPERT_BIAS,  // a <- a + v0[routes.experts[row] * width + i]
    OP_COMBINE,          // a <- sum over choices k of b[rank] * (n0 ? routes.weights[rank] : 1), rank = routes.ranks[row * n_used + k],
                         //   in the order of the choices
    OP_ADD_BIAS,         // a <- a + v0
    OP_NORM,             // every head of n0 elements of a: x * v0[i] / sqrt(mean(x^2) + f0)
    OP_ROTATE,           // every head of n0 elements of a is rotated by the angles b (n1 cosines, n1 sines: pairs; 2 * n1 <= n0);
                         //   n2 = 0: pairs (i, i + n1); n2 = 1: pairs (2i, 2i + 1). (x, y) <- (x cos - y sin, x sin + y cos)
    OP_WRITE_KV,         // writes a (keys) and b (values) of the row's token into the cache kv
    OP_GATE,             // a <- activation(a) * b: n0 = 0 SiLU, 1 GELU (tanh), 2 clamped SiLU of gpt-oss
    OP_SOFT_CAP,         // a <- f0 * tanh(a / f0)
    OP_QUANTIZE,         // q <- a
};

struct Matrix {
    const uint8_t *data;    // rows of blocks, as in a GGUF file
    uint64_t row_bytes;
    uint32_t type;          // the type's id in a GGUF file
    uint32_t n_rows;
    uint32_t n_columns;
    uint32_t reserved;
};

struct RowOperation {
    uint32_t op;
    uint32_t n0, n1, n2;
    float f0, f1;
    uint32_t flags;      // bit 0: no barrier is needed before it
    uint32_t reserved;
    Part a, b, c;
    const float *v0;
    const float *v1;
    QuantizedRows q;
    Matrix m;
    Kv kv;
    Routes routes;
};

// Kernel `rows`: grid (n_rows, n_slices), any multiple of 32 threads up to 1024. All operations in order, on row blockIdx.x.
// With n_slices > 1 every operation is elementwise over columns with the same width w (COPY, ADD, SCALE, MULTIPLY,
// GATE_SIGMOID with equal widths, ADD_BIAS, GATE, SOFT_CAP, QUANTIZE, EMBED, GATHER), and the block does only columns
// [blockIdx.y * slice_width, +slice_width), slice_width being a multiple of 256.
struct RowsArguments {
    Batch batch;
    const RowOperation *operations; // device memory
    uint32_t n_operations;
    uint32_t set;
    uint32_t slice_width;           // 0: whole rows
    uint32_t reserved;
};

// Kernels for what most rows need, with few operations that come with the launch: `norm_rows`, `quantize_rows`, `head_rows`. Grids
// and threads as those of `rows`.
#define MAX_FEW_OPERATIONS 8
struct FewRowsArguments {
    Batch batch;
    RowOperation operations[MAX_FEW_OPERATIONS];
    uint32_t n_operations;
    uint32_t set;
    uint32_t slice_width;
    uint32_t reserved;
};

// --- Products -----------------------------------------------------------------------------------------------------------

#define MAX_OUTPUTS 4
struct ProductOutput {
    Matrix matrix;
    Part to;             // element (row, i): to.data[row * to.stride + i]
    uint32_t add;        // whether it is added to what is there
    uint32_t first_row;  // the matrix's first row among those of all outputs of this launch
};

// Kernels `product_TYPE` (one per type family): out[r][i] = sum_j W[i][j] * x[r][j] for n_rows <= 16 rows.
struct ProductArguments {
    ProductOutput outputs[MAX_OUTPUTS]; // all of the kernel's type, all of n_columns
    QuantizedRows input;
    uint32_t n_outputs;
    uint32_t n_out;       // rows of all matrices together
    uint32_t n_rows;
    uint32_t reserved;
};

// Kernel `dequantize`: rows [first_row, first_row + n_rows) of a matrix as bf16, [n_rows][n_columns].
struct DequantizeArguments {
    Matrix matrix;
    Bf16Bits *to;
    uint32_t first_row;
    uint32_t n_rows;
};

// Kernel `plan_routes`: one block. Sorts the choices by expert (stable: by row, then choice) and makes the tiles.
struct PlanArguments {
    Routes routes;
    uint32_t n_rows;
    uint32_t reserved;
};

// Kernel `spread`: copies row routes.rows[rank] of `from` to row rank of `to`, in all forms that both have. grid (n_ranks).
struct SpreadArguments {
    Routes routes;
    QuantizedRows from;
    QuantizedRows to;
};

// Kernels `expert_product_TYPE`: as product_TYPE, for the ranks of a tile (blockIdx.y; those >= *n_tiles return at once) with the
// matrix of the tile's expert: matrix.data + expert * matrix_bytes. Input and output rows are ranks.
struct ExpertProductArguments {
    ProductOutput outputs[MAX_OUTPUTS];
    uint64_t matrix_bytes[MAX_OUTPUTS];
    QuantizedRows input;
    Routes routes;
    uint32_t n_outputs;
    uint32_t n_out;
};

// --- Attention ----------------------------------------------------------------------------------------------------------

enum WindowKind { WINDOW_NONE = 0, WINDOW_SLIDING = 1, WINDOW_CHUNK = 2 };

// Row r of the set belongs to a sequence and a position; it sees the cache's positions from first_visible to its own.
// Query head h reads kv head h / (n_heads / n_kv_heads).
struct AttentionArguments {
    Batch batch;
    Kv kv;
    Part queries;        // n_heads * head_dim wide
    Part to;             // as wide
    const float *sinks;  // [n_heads] a score that joins the softmax and brings no value; or null
    float *partials;     // scratch of `attend_split`: [n_rows][n_heads][n_splits][head_dim + 2]: sums, then the largest score and
                         //   the sum of weights
    uint32_t set;        // SET_TOKENS or SET_SELECTED
    uint32_t n_heads;
    float scale;
    float soft_cap;      // 0: none; else scores x (scaled) become cap * tanh(x / cap)
    uint32_t window_kind;
    uint32_t window;     // sliding: position p sees (p + 1 - window).. p; chunk: p - p % window .. p
    uint32_t n_splits;
    uint32_t reserved;
    QuantizedRows quantized; // what `attend_split` and `merge_splits` write is quantized to here, too; or no pointers
};

// --- States -------------------------------------------------------------------------------------------------------------

// A sequence's states, in device memory: the state before its first new token (null: the beginning of a text, all zeros), and those
// that are written. A layer's part of a state starts `state_offset` floats into it: the convolution's last n_taps - 1 inputs, oldest
// first, [n_taps - 1][n_channels]; then the matrices of its heads, [n_heads][key_dim][value_dim].
struct StatesArguments {
    Batch batch;
    float *const *before;            // [n_sequences]
    float *const *written;           // the written states of all sequences, one sequence after the other
    const uint32_t *written_after;   // as many: the number of the sequence's new tokens after which the state holds, ascending; the
                                     //   last is the number of its new tokens
    const uint32_t *written_starts;  // [n_sequences + 1]
    uint64_t state_offset;
    uint32_t n_channels, n_taps;
    uint32_t n_heads, key_dim, value_dim;
    uint32_t reserved;
};

// Kernel `convolve`: to[row][c] = sum over taps t of taps[t * n_channels + c] * input of (n_taps - 1 - t) tokens before, + bias[c];
// then x * sigmoid(x) if has_silu. Also keeps the inputs of the states that are written.
struct ConvolveArguments {
    StatesArguments states;
    Part from;
    Part to;
    const float *taps;
    const float *bias;     // or null
    uint32_t has_silu;
    uint32_t reserved;
};

// Kernel `recur`: for every sequence and head, token by token: M <- M * decay; d = is_delta ? strength * (v - M^T k) : strength * v;
// M <- M + k (x) d; out = M^T q. Head h uses key h / (n_heads / n_keys) (grouped) or h % n_keys (interleaved).
struct RecurArguments {
    StatesArguments states;
    Part keys, queries, values, decays, strengths;
    Part to;
    uint32_t n_keys;
    uint32_t is_delta;
    uint32_t is_interleaved;
    uint32_t reserved;
};

// Kernel `matmul_bf16`: to[r][i] = sum_j weights[i][j] * input[r][j], or added to what is there. Strides are in elements; n_columns
// and the strides of weights and input are multiples of 8, their data is aligned to 16 bytes.
struct MatmulArguments {
    const Bf16Bits *weights; // [n_out][n_columns]
    const Bf16Bits *input;   // [n_rows][n_columns]
    float *to;               // [n_rows][n_out]
    uint64_t weights_stride;
    uint64_t input_stride;
    uint64_t to_stride;
    uint32_t n_rows;
    uint32_t n_out;
    uint32_t n_columns;
    uint32_t add;
};
