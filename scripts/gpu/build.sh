#!/usr/bin/env bash
# Builds what run.sh needs on a machine with a card, in target/gpu: hone with CUDA for one kind of card, the built-in model in
# parts, vocabularies and a text. Needs neither a card nor a CUDA toolkit; the compiler comes from PyPI.
#
#   scripts/gpu/build.sh [--capability N] [--hone FILE] [--limit MIB]
#     --capability N   the card's compute capability without the point (90: H100, H200)
#     --hone FILE      pack this binary in place of building one
#     --limit MIB      what may travel with a call, the repository's own files included (60: of 64, some are lost on the way)
#   scripts/gpu/build.sh --llama-cpp [--capability N] [--flash-attention]
#     llama-bench with CUDA for the same card, in target/gpu/llama-cpp, for a call of its own; its kernels for flash attention take
#     longer to compile than all the others
#
# target/gpu/program and target/gpu/model-1 are carried with the first call, target/gpu/model-2 with the second, and so on.
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/cuda-toolkit.sh
. scripts/lib/cuda-toolkit.sh
# shellcheck source=scripts/lib/subcommands.sh
. scripts/lib/subcommands.sh
capability=90 hone='' limit=60 llama_cpp='' flash_attention=OFF
while [ $# -gt 0 ]; do
    case $1 in
    --capability) capability=$2 && shift ;;
    --hone) hone=$2 && shift ;;
    --limit) limit=$2 && shift ;;
    --llama-cpp) llama_cpp=1 ;;
    --flash-attention) flash_attention=ON ;;
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
    rm -rf $output/program $output/model-* $program
    mkdir -p $output/program $program
    strip -o $program/hone "$hone"
    cp "$models/vocab-llama-spm.gguf" "$models/vocab-qwen2.gguf" $program
    cp /usr/share/common-licenses/GPL-3 $program/text.txt
    say 'packing the program'
    XZ_OPT=-9 tar --owner=0 --group=0 -cJf $output/program/program.tar.xz -C $program .
    if [ ! -e $output/model.xz ] || [ "$model" -nt $output/model.xz ]; then
        say 'packing the model'
        xz -6 --stdout "$model" >$output/model.xz
    fi
    divide
    manifest "$model" $program/hone >$output/program/manifest.txt
}

# Divides the model, so that every call is full.
divide() {
    local room first size part=1 written=0
    room=$((limit * 1048576 - $(repository_bytes)))
    # The manifest is still to come.
    first=$((room - $(bytes_of program) - 4096)) size=$(stat -c %s $output/model.xz)
    while [ "$written" -lt "$size" ]; do
        mkdir -p $output/model-$part
        dd if=$output/model.xz of=$output/model-$part/model.$part bs=1M iflag=skip_bytes,count_bytes status=none \
            skip="$written" count=$((part == 1 ? first : room))
        written=$((written + $(bytes_of model-$part)))
        say "call $part: $output/model-$part $(mebibytes "$(bytes_of model-$part)")"
        n_parts=$part part=$((part + 1))
    done
    say "the first call carries $output/program, too: $(mebibytes "$(bytes_of program)")"
    say "a call has room for $(mebibytes $room) beside the repository's own files"
}

bytes_of() { cat $output/"$1"/* | wc -c; }

manifest() { # MODEL PROGRAM
    echo "commit: $(git rev-parse HEAD)$(git diff --quiet HEAD || echo ', with changes')"
    echo "built: $(date -u +%FT%TZ)"
    echo "features: $features"
    echo "capability: $capability"
    echo "program sha256: $(sha256sum <"$2" | cut -d ' ' -f 1)"
    echo "model sha256: $(sha256sum <"$1" | cut -d ' ' -f 1)"
    echo "model parts: $n_parts"
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
        -DCUDAToolkit_ROOT="$CUDA_HOME" "${cublas_options[@]}" -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=OFF \
        -DGGML_CUDA_FA=$flash_attention -DGGML_CUDA_FA_ALL_QUANTS=OFF -DGGML_CUDA_NCCL=OFF -DGGML_OPENMP=OFF
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
