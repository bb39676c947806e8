#!/usr/bin/env bash
# Records what llama.cpp's samplers leave of fixed logits, for the test that compares hone's with them
# (crates/engine/src/sampler/llama_cpp.rs). Run it again when a sampler is added. Only the files that samplers need are compiled.
set -euo pipefail

cd "$(dirname "$0")/../.."
. scripts/lib/llama-cpp.sh
fetch_llama_cpp
build_llama_cpp "$cache/samplers" ggml-base -DBUILD_SHARED_LIBS=OFF -DGGML_OPENMP=OFF

source=$cache/source/vendor/llama.cpp
objects=$cache/samplers/objects
mkdir -p "$objects"
flags=(-std=c++17 -O2 -ffunction-sections -fdata-sections -I "$source/include" -I "$source/src" -I "$source/ggml/include")
for name in llama-sampler llama-vocab llama-grammar llama-impl unicode unicode-data; do
    [ "$objects/$name.o" -nt "$source/src/$name.cpp" ] || g++ "${flags[@]}" -c "$source/src/$name.cpp" -o "$objects/$name.o"
done
# What samplers never call (loading vocabularies) refers to files that are left out: it is not linked.
g++ "${flags[@]}" -DRECORDED_WITH="\"$llama_cpp_python\"" -Wl,--gc-sections -o "$objects/record" \
    scripts/record/samplers/record.cpp "$objects"/*.o "$(find "$cache/samplers" -name libggml-base.a)" -lpthread -ldl
"$objects/record" >crates/engine/src/sampler/llama_cpp.json
