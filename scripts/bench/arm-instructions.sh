#!/usr/bin/env bash
# Counts the instructions that hone and llama.cpp execute for the same product on 64-bit ARM, by weight type, and for the
# same attention, under an emulator: exact numbers of executed instructions, and no speed. Prints Markdown tables of
# instructions per multiply-accumulate, for generation (one token) and prompts (128 tokens), quantizing the activations
# included.
#
# Both compute once and twice as often, and the difference of the totals counts, without what happens once. llama.cpp is
# built from the sources that scripts/bench.sh peers uses, in its cache, with -march=armv8.2-a+dotprod, with
# -march=armv8.6-a+i8mm and, for where it computes in half precision then, with -march=armv8.2-a+dotprod+fp16; hone's
# kernels are built as in a release. Takes ten minutes, the first time twenty.
# Arguments: the types to count; without, all, and attention.
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/arm-tools.sh
. scripts/lib/arm-tools.sh
# shellcheck source=scripts/lib/llama-cpp.sh
. scripts/lib/llama-cpp.sh

command -v jq >/dev/null || { echo "jq is needed: install it from your system's packages" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

fetch_llama_cpp
for arch in armv8.2-a+dotprod armv8.6-a+i8mm armv8.2-a+dotprod+fp16; do
    build=$cache/$arch
    build_llama_cpp "$build" ggml -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DBUILD_SHARED_LIBS=OFF \
        -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DLLAMA_BUILD_SERVER=OFF \
        -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_COMMON=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_CPU_ARM_ARCH="$arch"
    for kernel in product attention; do
        aarch64-linux-gnu-g++ -O2 -std=c++17 -I "$cache/source/vendor/llama.cpp/ggml/include" \
            -o "$work/$kernel-${arch##*+}" "scripts/bench/instructions/llama-$kernel.cpp" \
            "$build"/ggml/src/libggml{,-cpu,-base}.a -pthread -static
    done
done
cc -O2 -shared -fPIC -o "$work/plugin.so" scripts/bench/instructions/plugin.c
bench() {
    cargo bench --package hone-kernels --bench "$1" --no-run --locked --target "$ARM" --message-format json |
        jq -r --arg name "$1" 'select(.executable and .target.name == $name).executable'
}
products=$(bench products)
attention=$(bench attention)

read -ra emulator <<<"$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER"
python3 scripts/bench/instructions/table.py "$work" "$products" "$attention" "${emulator[@]}" -- "$@"
