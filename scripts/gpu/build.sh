#!/usr/bin/env bash
# Builds what run.sh needs on a machine with a card, in target/gpu: hone with CUDA for one kind of card, the built-in model in
# two parts, vocabularies and a text. Needs neither a card nor a CUDA toolkit; the compiler comes from PyPI.
#
#   scripts/gpu/build.sh [--capability N] [--hone FILE] [--limit MIB]
#     --capability N   the card's compute capability without the point (90: H100, H200)
#     --hone FILE      pack this binary in place of building one
#     --limit MIB      what may travel with a call, the repository's own files included (64)
#   scripts/gpu/build.sh --llama-cpp [--capability N]
#     llama-bench with CUDA for the same card, in target/gpu/llama-cpp, for a call of its own
#
# target/gpu/program and target/gpu/model-1 are carried with the first call, target/gpu/model-2 with the second. It fails if either
# would be too large.
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/cuda-toolkit.sh
. scripts/lib/cuda-toolkit.sh
# shellcheck source=scripts/lib/subcommands.sh
. scripts/lib/subcommands.sh
capability=90 hone='' limit=64 llama_cpp=''
while [ $# -gt 0 ]; do
    case $1 in
    --capability) capability=$2 && shift ;;
    --hone) hone=$2 && shift ;;
    --limit) limit=$2 && shift ;;
    --llama-cpp) llama_cpp=1 ;;
    -h | --help) print_help scripts/gpu/build.sh && exit ;;
    *) echo "error: unknown option $1: $0 --help lists the options" >&2 && exit 2 ;;
    esac
    shift
done
output=target/gpu
features=cuda

say() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }
mebibytes() { awk -v bytes="$1" 'BEGIN { printf "%.1f MiB", bytes / 1048576 }'; }

build_hone() {
    [ -z "$hone" ] || return 0
    CUDA_COMPUTE_CAP=$capability use_cuda_toolkit
    cargo build --locked --release --features $features --bin hone
    hone=${CARGO_TARGET_DIR:-target}/release/hone
}

# What every call takes along besides: the files of the repository, and those that git does not know and does not ignore.
repository_bytes() {
    git ls-files -z --cached --others --exclude-standard | xargs -0 stat --format=%s 2>/dev/null | awk '{ sum += $1 } END { print sum }'
}

pack() {
    local models model program=$output/unpacked
    models=$(scripts/lib/fetch-test-models.sh)
    model=$models/SmolLM2-135M-Instruct.Q4_1.gguf
    rm -rf $output/program $output/model-1 $output/model-2 $program
    mkdir -p $output/program $output/model-1 $output/model-2 $program
    strip -o $program/hone "$hone"
    cp "$models/vocab-llama-spm.gguf" "$models/vocab-qwen2.gguf" $program
    cp /usr/share/common-licenses/GPL-3 $program/text.txt
    say 'packing the program'
    XZ_OPT=-9 tar --owner=0 --group=0 -cJf $output/program/program.tar.xz -C $program .
    manifest "$model" $program/hone >$output/program/manifest.txt
    if [ ! -e $output/model.xz ] || [ "$model" -nt $output/model.xz ]; then
        say 'packing the model'
        xz -6 --stdout "$model" >$output/model.xz
    fi
    divide
}

# Divides the model, so that the first call is full.
divide() {
    local room first
    room=$((limit * 1048576 - $(repository_bytes)))
    first=$((room - $(bytes_of program)))
    head -c $first $output/model.xz >$output/model-1/model.1
    tail -c +$((first + 1)) $output/model.xz >$output/model-2/model.2
    say "first call: $output/program $(mebibytes "$(bytes_of program)"), $output/model-1 $(mebibytes "$(bytes_of model-1)")"
    say "second call: $output/model-2 $(mebibytes "$(bytes_of model-2)")"
    say "a call has room for $(mebibytes $room) beside the repository's own files"
    [ "$(bytes_of model-2)" -le $room ] || { say 'the second call is too large' && return 1; }
}

bytes_of() { cat $output/"$1"/* | wc -c; }

manifest() { # MODEL PROGRAM
    echo "commit: $(git rev-parse HEAD)$(git diff --quiet HEAD || echo ', with changes')"
    echo "built: $(date -u +%FT%TZ)"
    echo "features: $features"
    echo "capability: $capability"
    echo "program sha256: $(sha256sum <"$2" | cut -d ' ' -f 1)"
    echo "model sha256: $(sha256sum <"$1" | cut -d ' ' -f 1)"
    echo "model parts: 2"
}

# Only what the comparison runs: llama-bench, with ggml inside, for one kind of card. Its products for quantized caches are left
# out, and cuBLAS is linked to, which the machine with the card has.
build_llama_bench() {
    # shellcheck source=scripts/lib/llama-cpp.sh
    . scripts/lib/llama-cpp.sh
    fetch_llama_cpp
    use_cuda_toolkit
    use_cublas
    build_llama_cpp "$cache/llama.cpp-cuda-$capability" llama-bench -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES="$capability-real" \
        -DCUDAToolkit_ROOT="$CUDA_HOME" "${cublas_options[@]}" -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=OFF -DGGML_CUDA_FA_ALL_QUANTS=OFF \
        -DGGML_CUDA_NCCL=OFF -DGGML_OPENMP=OFF
    mkdir -p $output/llama-cpp
    strip -o $output/llama-bench "$cache/llama.cpp-cuda-$capability/bin/llama-bench"
    xz -9 --stdout $output/llama-bench >$output/llama-cpp/llama-bench.xz
    say "$output/llama-cpp: $(mebibytes "$(stat -c %s $output/llama-cpp/llama-bench.xz)")"
}

if [ -n "$llama_cpp" ]; then
    build_llama_bench
else
    build_hone
    pack
fi
