#!/usr/bin/env bash
# Runs hone and llama.cpp in turn on the same files with the same number of threads, and prints their medians and ratios
# as a Markdown table. The figures also go to benches/results/, as a CSV that names the day and the processor.
#
# llama.cpp is built from the sources that llama-cpp-python brings along on PyPI, in a cache outside of the repository,
# which also keeps the 7B: random weights in a real model's shape. It takes 5 GB, and the first run half an hour.
# Each of this year's shapes is written into the cache, measured and removed: the largest needs 19 GB of disk and memory.
#
#   BENCH_7B         a 7B file to use instead
#   BENCH_SHAPES     this year's shapes to measure, each as SHAPE:QUANTIZATION:VOCABULARY ("" for none of them)
#   BENCH_ONLY       "shapes": nothing but these
#   BENCH_AVX2       1: both engines without AVX-512 and AVX-VNNI, as on most older processors; the llama.cpp of LLAMA_CPP_BIN has to
#                    be built so
#   BENCH_REPEATS    how often each engine runs each test in each of its two turns (3)
#   BENCH_THREADS    threads of both engines (one for each core)
#   LLAMA_CPP_BIN    a folder that holds llama-bench, and perhaps llama-batched-bench and llama-server: nothing is built then
set -euo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/llama-cpp.sh
. scripts/lib/llama-cpp.sh
repeats=${BENCH_REPEATS:-3}
threads=${BENCH_THREADS:-$(nproc)}
# The vocabularies are those that llama.cpp tests itself with; gpt-oss's own is not among them.
shapes=${BENCH_SHAPES-qwen35-4b:q4_k_m:qwen35 gemma4-e4b:q4_k_m:gemma-4 lfm2-8b-a1b:q4_k_m:llama-bpe
    gpt-oss-20b:mxfp4_moe:qwen2 qwen3-30b-a3b:q4_k_m:qwen2}
hone=target/release/hone
samples=$(mktemp)
trap 'rm -f "$samples"' EXIT

say() { printf '%s\n' "$*" >&2; }

# Every line of $samples is a test, an engine and tokens per second.
record() { jq -r --arg test "$1" --arg engine "$2" '.[] | [$test, $engine, .] | @tsv' >>"$samples"; }

run_llama() { # TEST MODEL ARGUMENTS…
    local test=$1 model=$2
    shift 2
    "$llama/llama-bench" -m "$model" -t "$threads" -r "$repeats" -o json "$@" 2>/dev/null |
        jq '.[0].samples_ts' | record "$test" llama.cpp
}

run_hone() { # TEST MODEL ENGINE ARGUMENTS…
    local test=$1 model=$2 engine=$3
    shift 3
    "$hone" bench -m "$model" -t "$threads" -r "$repeats" --json "$@" 2>/dev/null |
        tee >(jq '[.[0].memory.tokens_per_second // empty]' | record "$test" memory) |
        jq '.[0].samples' | record "$test" "$engine"
}

# Generation of 8 sequences, all tokens together.
run_llama_batch() { # TEST MODEL
    [ -x "$llama/llama-batched-bench" ] || return 0
    "$llama/llama-batched-bench" -m "$2" -t "$threads" -c 1024 -npp 4 -ntg 32 -npl 8 --output-format jsonl 2>/dev/null |
        jq -s '[.[] | select(.speed_tg) | .speed_tg]' | record "$1" llama.cpp
}

# Both engines, twice in turn, so that a change of the machine's mood does not favour one.
compare() { # TEST MODEL ARGUMENTS…
    local test=$1 model=$2
    shift 2
    for _ in 1 2; do
        say "$test"
        run_llama "$test" "$model" "$@"
        run_hone "$test" "$model" hone "$@"
    done
}

# A model of this year's: written, compared, removed.
compare_shape() { # SHAPE QUANTIZATION VOCABULARY
    local file=$cache/$1-$2.gguf
    "$hone" synth --shape "$1" --quant "$2" --output "$file" \
        --tokenizer "$vocabularies/ggml-vocab-$3.gguf"
    compare "$1 $2 pp256" "$file" -p 256 -n 0
    compare "$1 $2 tg32" "$file" -p 0 -n 32
    rm "$file"
}

compare_small_and_7b() {
    local seven=${BENCH_7B:-$cache/mistral-7b-q4_k_m.gguf}
    [ -e "$seven" ] || "$hone" synth --shape mistral-7b --quant q4_k_m --tokenizer "$built_in" --output "$seven"
    compare 'built-in pp512' "$built_in" -p 512 -n 0
    compare 'built-in tg128' "$built_in" -p 0 -n 128
    compare 'built-in tg64 at depth 2048' "$built_in" -p 0 -n 64 -d 2048
    compare '7B pp256' "$seven" -p 256 -n 0
    compare '7B tg32' "$seven" -p 0 -n 32
    for _ in 1 2; do
        say '7B tg32, 8 sequences'
        run_llama_batch '7B tg32, 8 sequences' "$seven"
        run_hone '7B tg32, 8 sequences' "$seven" hone -p 0 -n 32 --batch 8
    done
    # candle would go on using whatever the processor has.
    [ -z "$suffix" ] || return 0
    say 'candle'
    run_hone 'built-in pp512' "$built_in" candle --backend candle -p 512 -n 0
    run_hone 'built-in tg128' "$built_in" candle --backend candle -p 0 -n 128
}

report() {
    local processor date file
    processor=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)${suffix:+, AVX2 only}
    date=$(date -u +%F)
    mkdir -p benches/results
    file=benches/results/$date-peers$suffix.csv
    python3 - "$samples" "$date" "$processor" "$threads" "$file" <<'PYTHON'
import csv, statistics, sys

samples, date, processor, threads, file = sys.argv[1:]
figures = {}
for line in open(samples):
    test, engine, speed = line.rstrip("\n").split("\t")
    figures.setdefault((test, engine), []).append(float(speed))
medians = {key: statistics.median(speeds) for key, speeds in figures.items()}
with open(file, "w") as output:
    out = csv.writer(output, lineterminator="\n")
    out.writerow("date processor threads test engine samples median min max".split())
    for (test, engine), speeds in figures.items():
        numbers = [f"{number:.3f}" for number in (medians[test, engine], min(speeds), max(speeds))]
        out.writerow([date, processor, threads, test, engine, len(speeds), *numbers])

def cell(test, engine):
    if (test, engine) not in figures:
        return "–"
    speeds = figures[test, engine]
    return f"{medians[test, engine]:.1f} ({min(speeds):.1f}–{max(speeds):.1f})"

def ratio(above, below):
    return f"{medians[above] / medians[below]:.2f}" if above in medians and below in medians else "–"

print(f"{processor}, {threads} threads, {date}; tokens per second, median (min–max)\n")
print("| test | hone | llama.cpp | candle | memory allows | hone / llama.cpp | hone / memory |")
print("| --- | --- | --- | --- | --- | --- | --- |")
for test in dict.fromkeys(test for test, _ in figures):
    engines = [cell(test, engine) for engine in ("hone", "llama.cpp", "candle", "memory")]
    ratios = [ratio((test, "hone"), (test, other)) for other in ("llama.cpp", "memory")]
    print(f"| {test} | {' | '.join(engines + ratios)} |")
eight, one = ("7B tg32, 8 sequences", "hone"), ("7B tg32", "hone")
if eight in medians:
    print(f"\n8 sequences against one, hone: {ratio(eight, one)}")
PYTHON
    say "wrote $file"
}

command -v jq >/dev/null || { say "jq is needed: install it from your system's packages"; exit 1; }
build=llama.cpp suffix='' instructions=(-DGGML_NATIVE=ON)
if [ "${BENCH_AVX2:-}" = 1 ]; then
    build=avx2 suffix=-avx2
    instructions=(-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DGGML_AVX_VNNI=OFF
        -DGGML_AVX512=OFF)
    export HONE_ENGINE_INSTRUCTION_SET=avx2
fi
llama=${LLAMA_CPP_BIN:-$cache/$build/bin}
vocabularies=$cache/source/vendor/llama.cpp/models
fetch_llama_cpp
if [ ! -x "$llama/llama-bench" ]; then
    say "building llama.cpp in $cache"
    build_llama_cpp "$cache/$build" 'llama-bench llama-batched-bench llama-server' "${instructions[@]}" -DLLAMA_BUILD_SERVER=ON
fi
cargo build --release --locked >&2
built_in=$(scripts/lib/fetch-test-models.sh)/SmolLM2-135M-Instruct.Q4_1.gguf
[ "${BENCH_ONLY:-}" = shapes ] || compare_small_and_7b
for shape in $shapes; do
    IFS=: read -r name quantization vocabulary <<<"$shape"
    compare_shape "$name" "$quantization" "$vocabulary"
done
report
if [ "${BENCH_ONLY:-}" != shapes ] && [ -x "$llama/llama-server" ]; then
    say 'servers'
    echo
    scripts/bench/server.py "$built_in" --llama-server "$llama/llama-server" --threads "$threads"
fi
