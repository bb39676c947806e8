// Layers with a state: convolutions over time, and matrices that every token decays and adds to.
#pragma once
#include "platform.h"
#include "types.h"

// --- Convolution --------------------------------------------------------------------------------------------------------

// Where a token stands in its sequence.
struct TokenPlace {
    uint32_t row;
    uint32_t sequence;
    uint32_t n_before; // tokens of the sequence in this step before it
};

DEVICE TokenPlace token_place(const Batch &batch, uint32_t row) {
    uint32_t sequence = batch.sequence_of[row];
    return TokenPlace{row, sequence, row - batch.first_rows[sequence]};
}

// A channel's input `distance` tokens before a token: of this step, of the state before it, or 0 before the text.
DEVICE float input_before(const ConvolveArguments &arguments, const TokenPlace &place, uint32_t distance, uint32_t channel) {
    if (distance <= place.n_before) {
        return arguments.from.data[(uint64_t)(place.row - distance) * arguments.from.stride + channel];
    }
    const StatesArguments &states = arguments.states;
    const float *before = states.before[place.sequence];
    if (!before) return 0.0f;
    uint32_t index = states.n_taps - 1 - (distance - place.n_before);
    return before[states.state_offset + (uint64_t)index * states.n_channels + channel];
}

// The state that is written after a token, or null.
DEVICE float *state_after(const StatesArguments &states, const TokenPlace &place) {
    uint32_t end = states.written_starts[place.sequence + 1];
    for (uint32_t index = states.written_starts[place.sequence]; index < end; index++) {
        if (states.written_after[index] == place.n_before + 1) return states.written[index];
    }
    return nullptr;
}

// Kernel `convolve`: grid (n_tokens, n_channels / n_threads rounded up), any number of threads; a thread for each channel.
KERNEL_BOUNDS(convolve, ConvolveArguments, 256, 4) {
    const StatesArguments &states = arguments.states;
    uint32_t channel = block_y() * n_threads() + thread_id(), n_taps = states.n_taps;
    if (channel >= states.n_channels) return;
    TokenPlace place = token_place(states.batch, block_x());
    float *kept = state_after(states, place);
    float sum = arguments.bias ? arguments.bias[channel] : 0.0f;
#pragma unroll 4
    for (uint32_t tap = 0; tap < n_taps; tap++) {
        float input = input_before(arguments, place, n_taps - 1 - tap, channel);
        sum += input * arguments.taps[(uint64_t)tap * states.n_channels + channel];
        if (kept && tap > 0) kept[states.state_offset + (uint64_t)(tap - 1) * states.n_channels + channel] = input;
    }
    if (arguments.has_silu) sum /= 1.0f + exp_(-sum);
    arguments.to.data[(uint64_t)place.row * arguments.to.stride + channel] = sum;
}

// --- Matrices -----------------------------------------------------------------------------------------------------------
//
// The columns of a matrix are independent of each other. `PARTS` neighbouring lanes have a column in their registers while the
// tokens go by: lane p of them the rows 4 * (p + PARTS * i) + 0..3, so that what they read of a key together is contiguous.
// What the tokens bring is copied into shared memory, some tokens at a time, while those before them are worked on.

#define RECUR_THREADS 128
#define RECUR_TOKENS 8
#define MAX_KEY_DIM 256
#define MAX_RECUR_COLUMNS 32

struct RecurShared {
    float keys[RECUR_TOKENS][MAX_KEY_DIM];
    float queries[RECUR_TOKENS][MAX_KEY_DIM];
    float values[RECUR_TOKENS][MAX_RECUR_COLUMNS];
    float decays[RECUR_TOKENS];
    float strengths[RECUR_TOKENS];
};

// What a block works on: some columns of a head of a sequence.
struct RecurJob {
    uint32_t head, key_head, sequence;
    uint32_t first_row, n_tokens;
    uint32_t first_column, n_columns;
};

template <int PARTS> DEVICE RecurJob recur_job(const RecurArguments &arguments) {
    const StatesArguments &states = arguments.states;
    const uint32_t columns = RECUR_THREADS / PARTS;
    RecurJob job;
    job.head = block_x();
    job.sequence = block_y();
    job.key_head = arguments.is_interleaved ? job.head % arguments.n_keys : job.head / (states.n_heads / arguments.n_keys);
    job.first_row = states.batch.first_rows[job.sequence];
    job.n_tokens = states.batch.first_rows[job.sequence + 1] - job.first_row;
    job.first_column = block_z() * columns;
    job.n_columns = job.first_column < states.value_dim ? smaller(states.value_dim - job.first_column, columns) : 0;
    return job;
}

// Starts to copy `width` floats of each of some rows to rows of `to_stride` floats.
DEVICE void start_copy(const Part &from, uint32_t first_row, uint32_t first, uint32_t width, uint32_t n_rows, float *to,
                       uint32_t to_stride) {
    const float *start = from.data + (uint64_t)first_row * from.stride + first;
    bool is_aligned = (uintptr_t)start % 16 == 0 && from.stride % 4 == 0 && width % 4 == 0;
    uint32_t n = is_aligned ? width / 4 : width;
    for (uint32_t index = thread_id(); index < n_rows * n; index += RECUR_THREADS) {
        uint32_t row = index / n, unit = index % n;
        const float *row_start = start + (uint64_t)row * from.stride;
        if (is_aligned) {
            async_copy16(to + row * to_stride + unit * 4, row_start + unit * 4);
        } else {
            to[row * to_stride + unit] = row_start[unit];
        }
    }
}

DEVICE void start_copy(const RecurArguments &arguments, const RecurJob &job, uint32_t first_token, RecurShared &to) {
    const StatesArguments &states = arguments.states;
    uint32_t row = job.first_row + first_token, n = smaller(job.n_tokens - first_token, (uint32_t)RECUR_TOKENS);
    uint32_t key = job.key_head * states.key_dim, value = job.head * states.value_dim + job.first_column;
    start_copy(arguments.keys, row, key, states.key_dim, n, to.keys[0], MAX_KEY_DIM);
    start_copy(arguments.queries, row, key, states.key_dim, n, to.queries[0], MAX_KEY_DIM);
    start_copy(arguments.values, row, value, job.n_columns, n, to.values[0], MAX_RECUR_COLUMNS);
    start_copy(arguments.decays, row, job.head, 1, n, to.decays, 1);
    start_copy(arguments.strengths, row, job.head, 1, n, to.strengths, 1);
    async_commit();
}

// Rows of a matrix that pad it, and columns that no one has, are zeros.
DEVICE void clear_padding(const RecurArguments &arguments, RecurShared &shared) {
    uint32_t key_dim = arguments.states.key_dim, n = MAX_KEY_DIM - key_dim;
    for (uint32_t index = thread_id(); index < RECUR_TOKENS * n; index += RECUR_THREADS) {
        shared.keys[index / n][key_dim + index % n] = 0.0f;
        shared.queries[index / n][key_dim + index % n] = 0.0f;
    }
}

// A lane's part of a column.
template <int PARTS, int ROWS> struct MatrixPart {
    float rows[ROWS];

    DEVICE static uint32_t row_of(uint32_t i) { return 4 * (thread_id() % PARTS + PARTS * (i / 4)) + i % 4; }

    // `column` is where the column starts in a matrix of that many rows and columns.
    DEVICE void load(const float *column, uint32_t n_rows, uint32_t n_columns) {
#pragma unroll
        for (uint32_t i = 0; i < ROWS; i++) rows[i] = row_of(i) < n_rows ? column[(uint64_t)row_of(i) * n_columns] : 0.0f;
    }

    DEVICE void store(float *column, uint32_t n_rows, uint32_t n_columns) const {
#pragma unroll
        for (uint32_t i = 0; i < ROWS; i++) {
            if (row_of(i) < n_rows) column[(uint64_t)row_of(i) * n_columns] = rows[i];
        }
    }

    DEVICE static float sum_of_parts(float x) {
#pragma unroll
        for (uint32_t mask = 1; mask < PARTS; mask *= 2) x += shuffle_xor(x, mask);
        return x;
    }

    // What the column says of a key.
    DEVICE float known(const float *key) const {
        float sums[4] = {};
#pragma unroll
        for (uint32_t i = 0; i < ROWS; i += 4) {
            Float4 four = *reinterpret_cast<const Float4 *>(key + row_of(i));
            sums[0] += rows[i] * four.x;
            sums[1] += rows[i + 1] * four.y;
            sums[2] += rows[i + 2] * four.z;
            sums[3] += rows[i + 3] * four.w;
        }
        return sum_of_parts((sums[0] + sums[1]) + (sums[2] + sums[3]));
    }

    DEVICE void add(const float *key, float decay, float added) {
#pragma unroll
        for (uint32_t i = 0; i < ROWS; i += 4) {
            Float4 four = *reinterpret_cast<const Float4 *>(key + row_of(i));
            rows[i] = rows[i] * decay + four.x * added;
            rows[i + 1] = rows[i + 1] * decay + four.y * added;
            rows[i + 2] = rows[i + 2] * decay + four.z * added;
            rows[i + 3] = rows[i + 3] * decay + four.w * added;
        }
    }
};

template <int PARTS, int ROWS> DEVICE void advance(const RecurArguments &arguments, RecurShared *shared) {
    const StatesArguments &states = arguments.states;
    RecurJob job = recur_job<PARTS>(arguments);
    if (job.n_tokens == 0 || job.n_columns == 0) return;
    uint32_t column = thread_id() / PARTS;
    bool exists = column < job.n_columns, writes = exists && thread_id() % PARTS == 0;
    uint64_t matrix = states.state_offset + (uint64_t)(states.n_taps - 1) * states.n_channels;
    matrix += (uint64_t)job.head * states.key_dim * states.value_dim + job.first_column + column;
    float *to = arguments.to.data + (uint64_t)job.first_row * arguments.to.stride;
    to += (uint64_t)job.head * states.value_dim + job.first_column + column;
    uint32_t written = states.written_starts[job.sequence];

    start_copy(arguments, job, 0, shared[0]);
    clear_padding(arguments, shared[0]);
    clear_padding(arguments, shared[1]);
    const float *before = states.before[job.sequence];
    MatrixPart<PARTS, ROWS> part = {};
    if (before && exists) part.load(before + matrix, states.key_dim, states.value_dim);
    for (uint32_t first = 0; first < job.n_tokens; first += RECUR_TOKENS) {
        const RecurShared &now = shared[first / RECUR_TOKENS % 2];
        async_wait(0);
        sync_block(); // These tokens are there, and nobody reads those before them any more.
        if (first + RECUR_TOKENS < job.n_tokens) {
            start_copy(arguments, job, first + RECUR_TOKENS, shared[(first / RECUR_TOKENS + 1) % 2]);
        }
        for (uint32_t i = 0; i < smaller(job.n_tokens - first, (uint32_t)RECUR_TOKENS); i++) {
            float decay = now.decays[i], added = exists ? now.values[i][column] : 0.0f;
            if (arguments.is_delta) added -= part.known(now.keys[i]) * decay;
            part.add(now.keys[i], decay, added * now.strengths[i]);
            float result = part.known(now.queries[i]);
            if (writes) *to = result;
            to += arguments.to.stride;
            if (states.written_after[written] != first + i + 1) continue;
            if (exists) part.store(states.written[written] + matrix, states.key_dim, states.value_dim);
            if (first + i + 1 < job.n_tokens) written++;
        }
    }
}

// Kernel `recur`: grid (n_heads, n_sequences, slices of columns), RECUR_THREADS threads. A slice has 32 columns (of value_dim)
// for key_dim <= 128, 16 for key_dim <= 256.
KERNEL_BOUNDS(recur, RecurArguments, RECUR_THREADS, 4) {
    SHARED(RecurShared, shared, 2);
    if (arguments.states.key_dim <= 64) {
        advance<4, 16>(arguments, shared);
    } else if (arguments.states.key_dim <= 128) {
        advance<4, 32>(arguments, shared);
    } else {
        advance<8, 32>(arguments, shared);
    }
}
